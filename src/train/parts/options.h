/* The tables of keys that every job that trains has, after run.* and its own: pretrain, finetune,
 * ensemble, search. */
#pragma once

#include "base/config/run_options.h"
#include "data/corpus.h"
#include "math/math.h"
#include "mesh/node_memory.h"
#include "models/family.h"
#include "models/objective.h"
#include "run/stop_request.h"
#include "run/watchdog/watchdog.h"
#include "train/engine/options.h"
#include "train/loop/options.h"
#include "train/parts/list.h"

#define BP_NO_OPTIONS_ROW(word)
#define BP_PART_OPTIONS_ROW(word) training_##word##_options,
#define BP_TRAINING_OPTIONS                                                                        \
    bp_corpus_options, bp_model_options, bp_mask_options, bp_noise_options, bp_mesh_options,       \
        bp_memory_options, bp_train_options,                                                       \
        BP_TRAINING_PARTS(BP_NO_OPTIONS_ROW, BP_PART_OPTIONS_ROW) bp_optimizer_options,            \
        bp_checkpoint_options, bp_math_options, bp_slurm_options, bp_watchdog_options
