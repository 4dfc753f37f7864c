#ifndef BP_TRAIN_ENGINE_STAGE_SPEC_PRIV_H
#define BP_TRAIN_ENGINE_STAGE_SPEC_PRIV_H

#include "train/engine/options.h"
#include "train/engine/stage.h"

/** What stage `stage` does, of a training with these settings on so many data ranks. */
bp_stage_spec bp_stage_spec_for(const bp_engine_spec *spec, const bp_model_shape *shape, int datas,
                                int stage, int stages);

#endif
