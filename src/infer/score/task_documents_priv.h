/* The documents of a classifier as a model takes them, each with its class: fixed groups, which
 * data ranks take in turn. */
#ifndef BP_INFER_SCORE_TASK_DOCUMENTS_PRIV_H
#define BP_INFER_SCORE_TASK_DOCUMENTS_PRIV_H

#include "base/json.h"
#include "data/document_table.h"
#include "mesh/mesh.h"
#include "models/model.h"
#include "models/task.h"

#define TASK_GROUP 32 /* documents of a batch */

typedef struct task_documents {
    const bp_mesh *mesh; /* borrowed */
    int64_t length;      /* places that an example has most */
    int64_t count, cut;  /* documents that are taken, and those of them that are longer */
    int32_t *inputs, *targets, *segments; /* [TASK_GROUP][length] */

    /* On ranks that read: */
    json_t *state; /* of the checkpoint, or the first member's */
    bp_task_frame frame;
    char *column;
    const char **classes; /* of the state */
    bp_corpus *corpus;    /* borrowed */
    bp_stream *stream;
    bp_document_table *table; /* all documents of the corpora */
    bool *pair;               /* [all documents] its file has documents of two texts */
    int64_t *number;          /* [count] in the corpora */
    int32_t *label;           /* [count] classes; -1: none that the model knows */
} task_documents;

typedef struct task_documents_spec {
    const bp_mesh *mesh;
    const bp_model_info *model;
    const char *path;  /* of the model, or of an ensemble */
    bp_corpus *corpus; /* on ranks that read; NULL on others */
    bool open;         /* documents may have no class, or one that the model does not know */
    int64_t wanted;    /* so many documents at even steps; 0: all */
} task_documents_spec;

/** What a checkpoint, or the first member of an ensemble, keeps beside tensors: a new reference in
 * *state. Local. Errors: those of bp_checkpoint_read_metadata and bp_ensemble_list_load. */
bp_err task_state_read(json_t **state, const char *path);

/** Take documents of corpora.
 *
 * Collective: over mesh->ensemble and the coordinator, `world` (the communicator over which ranks
 *             agree); the spec is equal on all ranks, but for `corpus`.
 * Owns:       task_documents_clear(), after an error too.
 * Errors:     those of bp_checkpoint_read_metadata, bp_task_frame_of and bp_document_table_new;
 *             BP_ERR_FORMAT an empty document: the same on all ranks.
 */
bp_err task_documents_open(task_documents *self, const task_documents_spec *spec, MPI_Comm world);
void task_documents_clear(task_documents *self);

static inline int64_t task_documents_groups(const task_documents *self)
{
    return (self->count + TASK_GROUP - 1) / TASK_GROUP;
}
/** Group g, as long as its longest document; the target at the first place of each is its label, or
 * `unknown` in the place of -1. The lead reads. Collective over mesh->ensemble. Errors: those of
 * reading, on the lead; batch->windows is -1 on all then. */
bp_err task_documents_group(task_documents *self, int64_t g, int32_t unknown,
                            bp_model_batch *batch);

#endif
