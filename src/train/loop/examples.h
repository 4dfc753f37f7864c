/* Examples of a training: windows, documents or runs of sentences. */
#pragma once

#include "train/loop/trainer.h"

/** Makes the examples of a model whose longest stream has T positions: shape.context in training,
 * fewer at the end of a validation. Local. */
static inline bp_example_maker trainer_maker(const trainer *self, int64_t T)
{
    return bp_model_objective(&self->shape)->maker(&self->shape, T, &self->rules);
}
/** Tokens of the stream from one window to the next. Local. */
static inline int64_t trainer_stride(const trainer *self)
{
    return self->examples.maker.window - 1;
}
/** What examples are made of, for people: "windows". Local. */
const char *trainer_examples_name(const trainer *self);

/** The documents (or runs of sentences) of a stream. Local. Owns: *out is the caller's,
 * bp_document_table_free(). Errors: those of bp_document_table_new. */
bp_err bp_trainer_open_table(const trainer *self, bp_stream *stream, bp_document_table **out);
/** facts.epoch_windows, .documents and .valid_documents, where examples are documents or runs of
 * sentences. Local, on the coordinator. Errors: those of bp_document_table_new. */
bp_err trainer_count_documents(trainer *self);

/** The memory of `examples`; on leads the loader, and the table and the window that validation
 * reads. Local, on ranks that compute, with the engine or the learner there. Errors: BP_ERR_SYSTEM
 * out of memory; BP_ERR_CONFIG corpus.bucket or corpus.weights do not go with these examples; those
 * of bp_document_table_new and bp_loader_new. */
bp_err trainer_open_examples(trainer *self);
/** Warns if a step takes more examples than there are. Local. */
void trainer_warn_of_few(const trainer *self);
/** Frees all but the loader. Local. */
void trainer_close_examples(trainer *self);
