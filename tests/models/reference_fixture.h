/* A folder of shared/reference: a model of Hugging Face or a GGUF file, a batch, and what other
 * software computed of them. */
#pragma once

#include "bp_test_mpi.h"
#include "io/gguf/gguf_model.h"
#include "io/huggingface/hf_config_priv.h"
#include "io/huggingface/hf_model_priv.h"
#include "io/huggingface/safetensors.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"
#include "models/electra/electra.h"
#include "models/family.h"
#include "models/list.h"
#include "models/stack/stack_priv.h"
#include "models/task/list.h"
#include "train/adamw.h"
#include "train/engine/engine.h"
#include "train/engine/stage.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

/* The path of a file in shared/reference; skips the test where there is none. */
char *file_of(const char *folder, const char *file);

typedef struct fixture {
    const char *folder;
    bp_gguf *gguf;
    bp_hf_model *model;
    bp_hf_shape hf;
    bp_model_shape shape;
    bp_safetensors *expected;
    json_t *figures;
    int64_t B, T, V, stored; /* positions of a row in the file, T with more padding */
    bool a_text;             /* the head of a task has a target a text, else one a place */
    int32_t *inputs, *targets;
    int32_t *lengths, *segments, *next; /* of masked models: targets of next sentences too; or NULL
                                         */
    int64_t
        S; /* of encoder-decoders: the source's positions; and, of lengths that it has, the ids */
    int32_t *source, *source_lengths;
    bool smoothed;          /* losses with label smoothing */
    bool judges;            /* a discriminator: targets are the text's tokens */
    bp_objective objective; /* of ELECTRA's halves, each by itself */
    bp_model_family family;
} fixture;

#define SMOOTHING 0.1F

/* A member of the folder's figures, or what is there of it with label smoothing. */
const json_t *figure(const fixture *f, const char *name);

bp_batch batch_of(const fixture *f);

/* gguf: a file of the folder, whose expected.* begin with its name; NULL: the folder itself. */
void open_fixture(fixture *f, const char *folder, const char *gguf);

/* The same model in the form of transformers 4, where the folder has it. */
void check_old_config(fixture *f);

void close_fixture(fixture *f);
