/* The documents of corpora as a model reads them, and what is explained of each. A model that
 * continues texts, or writes a target for a source, reads the documents of a score plan; a masked
 * model, and one with the head of a task, framed examples (framed.c). */
#ifndef BP_EXPLAIN_TEXTS_TEXTS_H
#define BP_EXPLAIN_TEXTS_TEXTS_H

#include "explain/method.h"
#include "infer/score/task/documents.h"

/** explain.target */
typedef enum explain_target {
    EXPLAIN_NEXT,  /* the token that follows */
    EXPLAIN_BEST,  /* the outcome that the model prefers */
    EXPLAIN_LABEL, /* the outcome that the corpus has */
    EXPLAIN_EVERY, /* each class, or tag */
    EXPLAIN_CLASS, /* the one that is named */
    EXPLAIN_HIDDEN /* of masked models: labels, or best where no place that is masked has one */
} explain_target;

/** What is asked of them, equal on all ranks but for the strings. */
typedef struct explain_wish {
    const char *corpus, *model;    /* paths */
    const char *texts;             /* explain.texts, in the place of a corpus; NULL: none */
    const bp_tokenizer *tokenizer; /* of these */
    const bp_model_info *info;
    int64_t most; /* inputs of a document, and of a source */
    explain_target target;
    const char *outcome; /* the one that is named */
    const char *masks;   /* explain.masks; NULL: none */
    int64_t places;      /* explain.places */
    const char *sets;    /* explain.sets; NULL: none */
} explain_wish;

/** Sizes of a document, as bp_explained has them. K 0: nothing is explained. */
typedef struct explain_sizes {
    int64_t K, T, S;
} explain_sizes;

/** A document that is read, and where its arrays are. */
typedef struct explain_reading {
    bp_explained document; /* borrows what follows */
    int32_t *inputs;       /* [most T + 1] */
    int32_t *segments;     /* [most T + 1] */
    int32_t *sources;      /* [most S] */
    int32_t *targets;      /* [most K] */
    int32_t *places;       /* [most K] */
    int32_t *foils;        /* [most K][foils] */
} explain_reading;

typedef struct explain_texts {
    explain_wish wish;
    bp_corpus *corpus;
    bp_score_plan plan; /* on ranks that read */
    bool framed;
    task_documents examples; /* where it is framed; on all ranks */
    json_t *masks;           /* a list for each document; NULL: none */
    int64_t *sets;           /* [documents of the corpus] of contrast_sets; NULL: none */
    int64_t mask;            /* the mask token; -1: not a masked model */
    int32_t outcome;         /* the number of the one that is named */
    int64_t documents;       /* that are explained: of spans windows over documents */
    int64_t targets;         /* of all documents */
    int64_t cut;             /* documents that lose their end */
    explain_sizes *sizes;    /* [documents] */
    explain_sizes largest;   /* of each the most; on all ranks */
} explain_texts;

/** `reads`: this rank needs documents.
 *
 * Collective: over mesh->world; the wish is equal on all ranks.
 * Owns:       explain_texts_clear(), after an error too.
 * Errors:     those of bp_corpus_open and of reading corpora; BP_ERR_FORMAT a tokenizer that is not
 *             the model's; BP_ERR_CONFIG no such class, or no target at all: the same on all
 *             ranks. */
bp_err explain_texts_open(explain_texts *texts, const explain_wish *wish, const bp_mesh *mesh,
                          bool reads);
void explain_texts_clear(explain_texts *texts);

/** For the largest documents. Owns: explain_reading_clear(). */
void explain_reading_new(explain_reading *read, const explain_texts *texts);
void explain_reading_clear(explain_reading *read);
/** A document, on a rank that reads. Errors: those of reading the corpus. */
bp_err explain_texts_read(explain_texts *texts, int64_t document, explain_reading *read);

/* ---- text_file.c ---- */

/** Opens the corpus that the wish asks for. Local. Errors: those of bp_corpus_open, and of texts
 * BP_ERR_FORMAT no text, not UTF-8. */
bp_err explain_corpus_open(bp_corpus **out, const explain_wish *wish);

/* ---- sets.c ---- */

/** The sets of the wish: numbers of the label's values, in the order in which they come first.
 * Local. Errors: BP_ERR_CONFIG the corpus has no such label; those of reading it. */
bp_err explain_sets_open(explain_texts *texts);

/* ---- framed.c ---- */

/** Collective as explain_texts_open: examples, masks, the outcome that is named. */
bp_err explain_framed_open(explain_texts *texts, const bp_mesh *mesh);
/** Example d, and its targets (of labels that are not known: none; of the best: 0). */
bp_err explain_framed_read(explain_texts *texts, int64_t d, explain_reading *read);
/** The most predictions of an example of `length` places. */
int64_t explain_framed_most(const explain_texts *texts, int64_t length);
/** Of spans: the document that a window is of. */
int64_t explain_framed_document(const explain_texts *texts, int64_t d);

#endif
