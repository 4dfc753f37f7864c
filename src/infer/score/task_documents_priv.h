/* The documents of a task as a model takes them: fixed groups, which data ranks take in turn. */
#ifndef BP_INFER_SCORE_TASK_DOCUMENTS_PRIV_H
#define BP_INFER_SCORE_TASK_DOCUMENTS_PRIV_H

#include "base/json.h"
#include "data/task_texts.h"
#include "models/model.h"
#include "models/task.h"

#define TASK_GROUP 32 /* documents of a batch */

typedef struct task_documents {
    const bp_mesh *mesh; /* borrowed */
    int64_t kind, outcomes, length;
    json_t *state; /* of the checkpoint, or the first member's: on ranks that read */
    bp_task_frame frame;
    bp_task_texts texts; /* on ranks that read */
    int64_t documents;
    int64_t *number; /* [documents] in the corpora; those that are left out are missing */
    int32_t *label;  /* [documents] targets; -1: none that the model knows */
    int32_t *inputs, *targets, *segments; /* [TASK_GROUP][length] */
    int64_t cut;                          /* documents that are longer than the context */
} task_documents;

/** What they are of. Clear after an error too. */
typedef struct task_documents_spec {
    const bp_mesh *mesh;
    const bp_model_info *model;
    const char *path; /* of the model, or of an ensemble */
    bp_corpus *corpus;
    bool open;  /* documents may have no label, or one that the model does not know: their target is
                   -1 */
    bool reads; /* this rank reads */
} task_documents_spec;

/** Room for a group, and on ranks that read what the checkpoint says and all texts. Local. Errors:
 * those of bp_checkpoint_read_metadata, bp_task_frame_of and bp_task_texts_read. */
bp_err task_documents_open(task_documents *self, const task_documents_spec *spec);
void task_documents_clear(task_documents *self);
/** Take document d of the corpora behind those that were taken. Local. */
void task_documents_take(task_documents *self, int64_t d);
/** Names of classes; NULL: none, as of a regression. Borrowed. */
const json_t *task_documents_classes(const task_documents *self);

/** Documents [first, first + TASK_GROUP), as long as the longest, and with `outcomes` places where
 * all outcomes are asked for. Local. */
bp_model_batch task_documents_group(task_documents *self, int64_t first, int64_t places);
/** Hand a lead's group to the other ranks of its model, the targets too where there are any.
 * Collective over mesh->ensemble. */
void task_documents_share(task_documents *self, bp_model_batch *batch, bool targets);

#endif
