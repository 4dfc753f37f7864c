/* The documents of a task as inputs of a model, with their targets, in fixed groups, which are
 * units of work. */
#pragma once

#include "base/config/json.h"
#include "data/document_table.h"
#include "infer/score/plan.h"
#include "mesh/mesh.h"
#include "models/model.h"
#include "models/task/task.h"

#define TASK_GROUP 32 /* documents of a batch */

/** The rows of a document: one, or for tags one for each word that fits. For spans, a document is
 * one window over a question and its context. */
typedef struct task_row {
    int32_t label; /* a class or tag, -1 if none that the model knows; a regression's target */
    float value;   /* for a regression; NAN if there is none */
    int32_t word, place; /* for tags: the number of the word, and the place of its first token */
    int32_t window;      /* for spans: its number in its document, */
    int32_t none;        /* the place of no answer, */
    int32_t context[2];  /* the first place of the context, and the one after its last, */
    int32_t token;       /* the offset from a place to a token of the context, */
    int32_t answer[2];   /* and where the answer begins and ends; `none` if not in this window */
} task_row;

typedef struct task_documents {
    const bp_mesh *mesh; /* borrowed */
    const bp_task_kind *kind;
    int64_t length;                /* the most positions of an example */
    int64_t stride, answer_tokens; /* for spans: requested; 0: the checkpoint's */
    int64_t count, rows;           /* documents used, and their rows */
    int64_t cut, words_cut;        /* documents longer than the context, and words beyond it */
    int32_t *inputs, *segments;    /* [TASK_GROUP][length] */
    int32_t *targets;              /* [TASK_GROUP][length] */

    /* On ranks that read: */
    json_t *state; /* the checkpoint's, or the first member's */
    bp_task_frame frame;
    char *column;
    const char **names; /* of classes or tags of the state, padded with "" */
    bp_document_columns columns;
    bp_corpus *corpus; /* borrowed */
    bp_stream *stream;
    bp_document_table *table; /* all documents of the corpora */
    bool *pair;               /* [all documents] the document's file has pairs of texts */
    int64_t *number;          /* [count] in the table */
    int64_t *tokens;          /* [count] of the document, without its end token */
    int64_t *first_row;       /* [count + 1] */
    task_row *row;            /* [rows] */
} task_documents;

typedef struct task_documents_spec {
    const bp_mesh *mesh;
    const bp_model_info *model;
    const char *path;          /* path of the model, or of an ensemble */
    bp_corpus *corpus;         /* on ranks that read; NULL on others */
    const bp_score_plan *plan; /* documents that it omits are not used; NULL: all are used */
    bool open;       /* documents may lack a class, or have a class or tag unknown to the model */
    bool unlabelled; /* documents may lack a class, value, tags or known answers */
    int64_t wanted;  /* this many documents at even steps; 0: all */
    int64_t length;  /* the most positions of an example; 0: the model's context */
    const bp_config *config; /* has task.stride and task.answer_tokens (bp_score_rule_options);
                                NULL: the checkpoint's */
} task_documents_spec;

/** Select documents of corpora.
 *
 * Collective: over mesh->replica and the coordinator, `world` (the communicator over which ranks
 *             agree); the spec is equal on all ranks, except for `corpus` and `plan`.
 * Owns:       bp_task_documents_clear(), after an error too.
 * Errors:     those of bp_checkpoint_read_metadata, bp_task_frame_of and bp_document_table_new;
 *             BP_ERR_FORMAT an empty document: the same on all ranks.
 */
bp_err bp_task_documents_open(task_documents *self, const task_documents_spec *spec,
                              MPI_Comm world);
void bp_task_documents_clear(task_documents *self);
/** Log the number of truncated documents. */
void task_documents_tell_cut(const task_documents *self);

/** From "spans" of the checkpoint; an imported checkpoint has no such entry. */
int64_t task_documents_answer_tokens(const task_documents *self);

/** doc_id of document d of the corpora, "" without one. Errors: those of bp_corpus_file_doc_id. */
bp_err task_documents_id(const task_documents *self, int64_t d, char *id, size_t id_bytes);

static inline int64_t task_documents_groups(const task_documents *self)
{
    return (self->count + TASK_GROUP - 1) / TASK_GROUP;
}
/** Group g, as long as its longest document; a target is the label of a row, with `unknown` instead
 * of -1. A text's target is at the first place, a word's at its first token. For spans, the first
 * two positions have the positions where the answer begins and ends. The lead reads. Collective
 * over mesh->replica. Errors: those of reading, the same on all its ranks. */
bp_err task_documents_group(task_documents *self, int64_t g, int32_t unknown,
                            bp_model_batch *batch);

/** Only example `number`: inputs[self->length], segments[self->length]; *length: its positions.
 * Local, on ranks that read. Errors: those of reading. */
bp_err bp_task_documents_one(task_documents *self, int64_t number, int32_t *inputs,
                             int32_t *segments, int64_t *length);

/** The number of predictions of a document's rows: two per row for spans, else one. */
static inline int64_t task_documents_ends(const task_documents *self)
{
    return self->kind->ends;
}
/** The place of prediction `end` of a row in a batch of `length` positions, whose example is window
 * w. */
int64_t bp_task_documents_at(const task_documents *self, const task_row *row, int64_t end,
                             int64_t w, int64_t length);
