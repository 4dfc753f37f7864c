/* The face of all models: calls go to the model's table of functions. */
#include "models/lm.h"

#include "models/gpt/gpt.h"
#include "models/gpt/gpt_lm_priv.h"
#include "models/lm_priv.h"

#include <stdio.h>
#include <string.h>

bp_err bp_lm_read_info(bp_lm_info *info, const bp_checkpoint *checkpoint)
{
    const json_t *state = bp_checkpoint_state(checkpoint);
    const char *where = bp_checkpoint_folder(checkpoint), *hash = NULL;
    bp_gpt_shape shape;
    bp_err err = bp_json_get_int(state, "step", &info->step, where);

    if (err == BP_OK)
        err = bp_json_get_int(state, "eod_id", &info->eod_id, where);
    if (err == BP_OK)
        err = bp_json_get_string(state, "tokenizer_hash", &hash, where);
    if (err == BP_OK) /* one kind so far: others are refused by name */
        err = bp_gpt_shape_read(&shape, state, where);
    if (err != BP_OK)
        return err;
    snprintf(info->tokenizer_hash, sizeof info->tokenizer_hash, "%s", hash);
    snprintf(info->digest, sizeof info->digest, "%s", bp_checkpoint_digest(checkpoint));
    info->width = shape.width;
    info->context = shape.context;
    info->vocab_size = shape.vocab_size;
    return BP_OK;
}

bp_err bp_lm_of_checkpoint(bp_lm **out, const bp_mesh *mesh, const bp_config *config,
                           bp_checkpoint *checkpoint)
{
    bp_lm_info told = {0};
    bp_err err = bp_agree(mesh->member, bp_lm_read_info(&told, checkpoint));

    *out = NULL;
    if (err == BP_OK)
        err = bp_gpt_lm_open(out, mesh, config, checkpoint);
    if (err != BP_OK)
        return err;
    bp_lm_info *info = &(*out)->info;
    info->step = told.step;
    info->eod_id = told.eod_id;
    memcpy(info->tokenizer_hash, told.tokenizer_hash, sizeof told.tokenizer_hash);
    memcpy(info->digest, told.digest, sizeof told.digest);
    return BP_OK;
}

bp_err bp_lm_estimate(bp_lm_memory *out, const json_t *state, const bp_config *config,
                      const bp_lm_task *task)
{
    bp_gpt_shape shape;
    bp_err err = bp_gpt_shape_read(&shape, state, "manifest.json");

    *out = (bp_lm_memory){0};
    return err == BP_OK ? bp_gpt_lm_estimate(out, &shape, config, task) : err;
}

bp_err bp_lm_open(bp_lm **out, const bp_mesh *mesh, const bp_config *config, const char *path)
{
    bp_checkpoint *checkpoint = NULL;
    bp_err err = bp_checkpoint_open_any(mesh->member, path, &checkpoint);

    *out = NULL;
    if (err == BP_OK)
        err = bp_lm_of_checkpoint(out, mesh, config, checkpoint);
    bp_checkpoint_close(&checkpoint);
    return err;
}

const char *bp_lm_statistic_name(int64_t statistic)
{
    static const char *const NAMES[] = {"logprob",
                                        "total_entropy",
                                        "expected_entropy",
                                        "mutual_information",
                                        "logprob_variance",
                                        "agreement",
                                        "confidence",
                                        "correct",
                                        "brier"};

    BP_ASSERT(statistic >= 0 && statistic < BP_LM_MEMBER);
    return NAMES[statistic];
}

void bp_lm_free(bp_lm **lm)
{
    if (*lm)
        (*lm)->ops->free(*lm);
    *lm = NULL;
}

bp_err bp_lm_score(bp_lm *lm, const bp_lm_batch *batch, float *values)
{
    return lm->ops->score(lm, batch, values);
}
