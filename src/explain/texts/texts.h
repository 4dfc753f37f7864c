/* The documents of corpora as a model reads them, and the targets explained in each. A model that
 * continues texts, or writes a target for a source, reads the documents of a score plan; a masked
 * model, and one with the head of a task, framed examples (framed.c). */
#pragma once

#include "explain/method.h"
#include "infer/score/task/documents.h"

/** explain.target */
typedef enum explain_target {
    EXPLAIN_NEXT,  /* the token that follows */
    EXPLAIN_BEST,  /* the outcome that the model prefers */
    EXPLAIN_LABEL, /* the corpus's outcome */
    EXPLAIN_EVERY, /* each class, or tag */
    EXPLAIN_CLASS, /* the named one */
    EXPLAIN_HIDDEN /* for masked models: labels, or best if no masked place has a label */
} explain_target;

/** The request, equal on all ranks except for the strings. */
typedef struct explain_wish {
    const char *corpus, *model;    /* paths */
    const char *texts;             /* explain.texts, instead of a corpus; NULL if not set */
    const bp_tokenizer *tokenizer; /* of these */
    const bp_model_info *info;
    int64_t most; /* the most inputs of a document, and of a source */
    explain_target target;
    const char *outcome; /* the named one */
    const char *masks;   /* explain.masks; NULL if not set */
    int64_t positions;   /* explain.places */
    const char *sets;    /* explain.sets; NULL if not set */
} explain_wish;

/** Sizes of a document, as in bp_explained. K 0: nothing is explained. */
typedef struct explain_sizes {
    int64_t K, T, S;
} explain_sizes;

/** A document, with memory for its arrays. */
typedef struct explain_reading {
    bp_explained document; /* borrows what follows */
    int32_t *inputs;       /* [most T + 1] */
    int32_t *segments;     /* [most T + 1] */
    int32_t *sources;      /* [most S] */
    int32_t *targets;      /* [most K] */
    int32_t *positions;    /* [most K] */
    int32_t *labels;       /* [most K] */
    int32_t *foils;        /* [most K][foils] */
} explain_reading;

typedef struct explain_texts {
    explain_wish wish;
    bp_corpus *corpus;
    bp_score_plan plan; /* on ranks that read */
    bool framed;
    task_documents examples; /* if texts are framed; on all ranks */
    json_t *masks;           /* a list for each document; NULL if there are none */
    int64_t *sets;         /* [documents of the corpus] for contrast_sets; NULL if there are none */
    bool lone;             /* of these no two are equal */
    char *writer;          /* the model that wrote the texts, if it is another one; NULL: unknown */
    bp_buffer prompts;     /* int64_t: by line of outputs.jsonl the index of its prompt, -1: none;
                              empty for other texts */
    int64_t mask;          /* the mask token; -1 if not a masked model */
    int32_t outcome;       /* the number of the named outcome */
    int64_t documents;     /* explained documents; for spans, windows over documents */
    int64_t targets;       /* of all documents */
    int64_t cut;           /* documents that are truncated */
    explain_sizes *sizes;  /* [documents] */
    explain_sizes largest; /* the maximum of each size; on all ranks */
} explain_texts;

/** `reads`: this rank needs documents.
 *
 * Collective: over mesh->world; the wish is equal on all ranks.
 * Owns:       explain_texts_clear(), after an error too.
 * Errors:     those of bp_corpus_open and of reading corpora; BP_ERR_FORMAT a tokenizer that is not
 *             the model's; BP_ERR_CONFIG no such class, or no target: the same on all ranks. */
bp_err explain_texts_open(explain_texts *texts, const explain_wish *wish, const bp_mesh *mesh,
                          bool reads);
void explain_texts_clear(explain_texts *texts);

/** Allocate for the largest documents. Owns: explain_reading_clear(). */
void explain_reading_new(explain_reading *read, const explain_texts *texts);
void explain_reading_clear(explain_reading *read);
/** A document, on a rank that reads. Errors: those of reading the corpus. */
bp_err explain_texts_read(explain_texts *texts, int64_t document, explain_reading *read);

/* ---- text_file.c ---- */

/** Opens the corpus of the wish. Texts of a model that reads pairs are generate's outputs.jsonl:
 * its prompts are sources, its texts targets. Local. Errors: those of bp_corpus_open; for texts
 * BP_ERR_FORMAT no text, not UTF-8, no pair. Owns: bp_buffer_clear(prompts): those of
 * explain_texts. */
bp_err explain_corpus_open(bp_corpus **out, const explain_wish *wish, bp_buffer *prompts);

/* ---- writer.c ---- */

/** The model that wrote outputs.jsonl at `texts`, as generate's run names it, if it is another one
 * than `digest` (bp_model_info); NULL: the same, or the file is not in a run folder of generate.
 * Owns: bp_free(). Local. */
char *explain_writer_of(const char *texts, const char *digest);

/* ---- sets.c ---- */

/** Is it a file with a list, and not a label? */
bool explain_sets_are_listed(const char *sets);
/** The sets of the wish: numbers of the label's values, or of the names in a JSON file, in the
 * order of first occurrence. Local. Errors: BP_ERR_CONFIG the corpus has no such label;
 * BP_ERR_FORMAT a list of another length; those of reading. */
bp_err explain_sets_open(explain_texts *texts);

/* ---- framed.c ---- */

/** Open examples, masks and the named outcome. Collective as explain_texts_open. */
bp_err explain_framed_open(explain_texts *texts, const bp_mesh *mesh);
/** Read example d and its targets (unknown labels: none; the best: 0). */
bp_err explain_framed_read(explain_texts *texts, int64_t d, explain_reading *read);
/** The most predictions of an example of `length` positions. */
int64_t explain_framed_most(const explain_texts *texts, int64_t length);
/** For spans: the document of a window. */
int64_t explain_framed_document(const explain_texts *texts, int64_t d);
