/* math.precision of a run: one for all of its ranks and starts. Called by
 * train/ensemble/ensemble_keys.c and setup.c. */
#include "train/loop/start/precision.h"

#include "base/config/run_options.h"
#include "base/mem.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "run/run_folder.h"

#include <string.h>

/* A run keeps the precision that its first start resolved; whether this CPU has it matters only
 * once there is something to compute (trainer_build). */
bp_err bp_trainer_precision(MPI_Comm comm, bp_config *config, bp_precision *out)
{
    char *before = NULL;
    bp_err err = bp_run_previous(comm, bp_run_keys_of(config)->dir, "math.precision", &before);

    bool keeps = before && strcmp(bp_math_keys_of(config)->precision, "auto") == 0 &&
                 strcmp(before, "auto") != 0;

    if (err == BP_OK && keeps)
        *out = strcmp(before, "bf16") == 0 ? BP_BF16 : BP_F32;
    else if (err == BP_OK)
        err = bp_math_precision(config, out);
    bp_free(before);
    err = bp_agree(comm, err);
    if (err == BP_OK) /* ranks on other CPUs would compute with another precision: the least of all
                         counts */
        *out = bp_all_max_int(*out == BP_F32, comm) ? BP_F32 : BP_BF16;
    if (err == BP_OK)
        err = bp_config_set(config, "math.precision", *out == BP_BF16 ? "bf16" : "f32");
    return bp_agree(comm, err);
}
