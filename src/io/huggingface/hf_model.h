/* Models as Hugging Face folders hold them: config.json and model.safetensors (or shards with
 * model.safetensors.index.json).
 *
 * Another program's models come in the same way: a folder src/io/NAME that opens and checks them,
 * gives our tensors as slices without data, and a bp_checkpoint_commit.fetch for their values.
 *
 * Which of their tensors is which of ours is in a family's table (hf_table.h). Memory is
 * bounded by two copies of the largest tensor. Local: no MPI, except where a checkpoint is read.
 */
#pragma once

#include "base/config/json.h"
#include "io/checkpoint/checkpoint.h"
#include "io/huggingface/hf_table.h"

/* A message's remedy: a command, run in the folder, that converts its pickles to model.safetensors.
 */
#define BP_HF_CONVERT                                                                              \
    "python3 -c \"import glob, torch, safetensors.torch as s; s.save_file({k: v.clone() for f in " \
    "glob.glob('pytorch_model*.bin') for k, v in torch.load(f, 'cpu', "                            \
    "weights_only=True).items()}, "                                                                \
    "'model.safetensors', {'format': 'pt'})\""

typedef struct bp_hf_model bp_hf_model;

/** Open a folder, check its configuration, and find every tensor of the model. tables: those of the
 * families, ended by NULL; borrowed until bp_hf_close.
 *
 * Owns:   *out is the caller's, bp_hf_close(); NULL on failure.
 * Errors: BP_ERR_INPUT no folder, config.json or safetensors; BP_ERR_FORMAT another model_type, an
 *         unsupported setting, a missing tensor or one of another shape, extra layers, a head that
 *         is not tied, files that are not safetensors; BP_ERR_IO, BP_ERR_DENIED, BP_ERR_SYSTEM.
 */
bp_err bp_hf_open(bp_hf_model **out, const char *folder, const bp_hf_table *const *tables);
/** The same for a model in another form of file: `config` as config.json would be, and its tensors
 * under Hugging Face's names; `path` is for messages. Owns: takes `tensors`, even on failure. */
struct bp_safetensors;
bp_err bp_hf_open_as(bp_hf_model **out, const char *path, json_t *config,
                     struct bp_safetensors *tensors, const bp_hf_table *const *tables);
void bp_hf_close(bp_hf_model **model);

bp_hf_shape bp_hf_shape_of(const bp_hf_model *model);

/** Our tensors as slices without data, for bp_checkpoint_save with bp_hf_fetch. Borrowed. */
const bp_slice *bp_hf_slices(const bp_hf_model *model, int64_t *count);
/** bp_checkpoint_commit.fetch: `model` is a bp_hf_model.
 *
 * Errors: BP_ERR_FORMAT a value that is not finite; BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err bp_hf_fetch(void *model, const bp_slice *slice, int64_t index, const float **data);

/** The model_type that a checkpoint's model was imported as, from any form of file, or that its run
 * began with; NULL if none. Borrowed from `state`. */
const char *bp_hf_origin_of(const json_t *state);

/** "model" of a checkpoint's state. New reference. */
json_t *bp_hf_model_json(const bp_hf_shape *shape);

/** How the folder's tensors were used. */
typedef struct bp_hf_report {
    int64_t tensors; /* in the folder */
    int64_t used, transposed, split;
    int64_t buffers;     /* masks and other constants, and copies of parameters */
    int64_t tied_heads;  /* lm_head.weight, equal to the table to which they are tied */
    int64_t left;        /* unknown, not imported */
    int64_t made;        /* of ours */
    const char *prefix;  /* the table's, or "" */
    const char *wrapper; /* prefix before it, from a program that wrapped the model, or "" */
    bool headless;       /* a base class, without tensors of the head */
} bp_hf_report;
bp_hf_report bp_hf_report_of(const bp_hf_model *model);
/** Name of an unknown tensor, 0 <= k < report.left. Borrowed. */
const char *bp_hf_left(const bp_hf_model *model, int64_t k);
/** Name of a buffer, a copy or a tied head, 0 <= k < report.buffers + report.tied_heads. Borrowed.
 */
const char *bp_hf_ignored(const bp_hf_model *model, int64_t k);

/** The source of one of our tensors. */
typedef struct bp_hf_source {
    const char *theirs; /* the folder's tensor; borrowed */
    int part, parts;    /* of it: number `part`, from 0 */
    bool transposed;
} bp_hf_source;
/** The source of slice k of bp_hf_slices. */
bp_hf_source bp_hf_source_of(const bp_hf_model *model, int64_t k);

struct bp_safetensor;
/** Options for writing a folder. */
typedef struct bp_hf_export_options {
    const char *dtype;     /* "F32", "F16", "BF16": round to nearest, ties to even */
    int64_t shard_bytes;   /* maximum bytes of a file's tensors, except for a larger single one; 0:
                              one file */
    const char *tokenizer; /* the text of tokenizer.json; NULL if none */
    const json_t *tokenizer_config; /* beside it: tokenizer_config.json; borrowed. NULL: none */
    const json_t *files; /* more files: an object of their contents by name, which may include one
                            folder; borrowed. NULL if none */
    /** Write more into the folder, after `files`. NULL: nothing. */
    bp_err (*also)(bp_checkpoint *checkpoint, const char *dtype, const char *folder);
    const json_t *model; /* a part of the checkpoint's "model" object, used instead of it; borrowed.
                            NULL: the whole */
    /** Called after each tensor with the number of values written and the total. May be NULL. */
    void (*progress)(void *context, int64_t done, int64_t total);
    void *context;
    /** Change a whole tensor's values before writing. NULL: unchanged. */
    bp_err (*merge)(bp_checkpoint *checkpoint, const bp_slice *slice, float *values);
} bp_hf_export_options;

/** Make the folder `out` with config.json, model.safetensors (or several files with
 * model.safetensors.index.json), tokenizer.json and tokenizer_config.json, in the form that
 * save_pretrained writes.
 *
 * It has a hidden name until complete, and every tensor's digest is checked. Memory is bounded by
 * two copies of the largest tensor.
 *
 * Collective: over the communicator of the checkpoint, which must be of one rank (BP_ASSERT).
 * Errors:     BP_ERR_FORMAT a kind without a table, an incomplete or damaged checkpoint, or a value
 *             beyond the type's largest (its tensor is named); BP_ERR_CREATE `out` exists, or can't
 *             be created; BP_ERR_DENIED, BP_ERR_IO, BP_ERR_SYSTEM. Nothing is left then.
 */
bp_err bp_hf_export(bp_checkpoint *checkpoint, const char *out, const bp_hf_export_options *options,
                    const bp_hf_table *const *tables);

/** The destination of a model written in another form of file. */
typedef struct bp_hf_sink {
    /** All tensors in a folder's form, with its config.json; borrowed for the call. */
    bp_err (*begin)(void *context, const json_t *config, const struct bp_safetensor *tensors,
                    int64_t count);
    /** Tensor k, whole; they come in order. */
    bp_err (*write)(void *context, int64_t k, const float *values);
    void *context;
} bp_hf_sink;
/** As bp_hf_export, to a sink: reads only the options model, progress, context and merge.
 * Collective, Errors: as bp_hf_export, and those of the sink. */
bp_err bp_hf_export_to(bp_checkpoint *checkpoint, const bp_hf_sink *sink,
                       const bp_hf_export_options *options, const bp_hf_table *const *tables);
