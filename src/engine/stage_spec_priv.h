#ifndef BP_ENGINE_STAGE_SPEC_PRIV_H
#define BP_ENGINE_STAGE_SPEC_PRIV_H

#include "engine/engine.h"
#include "engine/stage.h"

/** What stage `stage` does, of a training with these settings on so many data ranks. */
bp_stage_spec bp_stage_spec_for(const bp_engine_spec *spec, const bp_gpt_shape *shape, int datas,
                                int stage, int stages);

#endif
