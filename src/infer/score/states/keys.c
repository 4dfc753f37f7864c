/* score.states of a model that returns keys: the datastore of a nearest-neighbour language model. A
 * unit of windows (loop.c) computes the keys with the scores, so a token's key is the state from
 * which it is predicted in scoring. Its part begins with the keys. Called by loop.c and setup.c. */
#include "infer/score/states/states.h"

#include "infer/score/tables/tables.h"
#include "infer/score/unit.h"
#include "math/math.h"

#include <string.h>

bool scorer_asks_keys(const scorer *self)
{
    return bp_score_keys_of(self->config)->states && self->info.states.keys;
}

/* Rows [first, first + count) of /scored. */
static bp_err write_flags(state_file *file, int64_t first, int64_t count, bool scored)
{
    uint8_t flags[STATE_GAP];
    bp_err err = BP_OK;

    memset(flags, scored, sizeof flags);
    while (count > 0 && err == BP_OK) {
        int64_t now = count < STATE_GAP ? count : STATE_GAP;

        err = bp_h5_write_slab(file->draft.file, "scored", BP_H5_U8, first, flags, now);
        first += now;
        count -= now;
    }
    return err;
}

/* Add the attributes of a datastore: the model, and the text. */
static bp_err begin(state_file *file, const scorer *self)
{
    const bp_score_plan *plan = &self->plan;
    int64_t rows = plan->first_token[plan->files];
    bp_err err = state_file_begin(file, self, STATE_GAP);
    bp_h5 *h5 = file->draft.file;

    if (err == BP_OK)
        err = bp_h5_put_text(h5, "/", "model_digest", self->info.digest);
    if (err == BP_OK)
        err = bp_h5_put_text(h5, "/", "precision", bp_math_keys_of(self->config)->precision);
    if (err == BP_OK)
        err = bp_h5_make(h5, "scored", BP_H5_U8, rows);
    if (err == BP_OK)
        err = write_flags(file, 0, rows, false);
    return err == BP_OK ? bp_score_text_write(h5, plan) : err;
}

static bp_err write_unit(state_file *file, bp_score_unit *unit, bp_part_result *part)
{
    int64_t C = file->form.columns;
    bp_score_key_rows keys;
    bp_err err = bp_score_result_keys(&keys, &part->data, &part->bytes, C, part->path);

    if (err == BP_OK)
        err = bp_score_unit_load(unit, part->unit);
    if (err == BP_OK && keys.count != bp_score_unit_scored(unit))
        err = BP_FAIL(BP_ERR_FORMAT, "result.damaged",
                      "a result is damaged, it does not have a key for each scored token: at %s",
                      part->path);
    for (int64_t w = 0; err == BP_OK && w < bp_score_unit_windows(unit); w++) {
        int64_t value;
        bp_score_run run = bp_score_unit_run(unit, w, &value);

        if (run.count > 0)
            err = state_file_rows(file, run.first, run.count, keys.rows + value * C);
        if (err == BP_OK)
            err = write_flags(file, run.first, run.count, true);
    }
    return err;
}

bp_err states_merge_keys(scorer *self, bp_parts *parts)
{
    bp_score_unit *unit = NULL;
    state_file file;
    bp_part_result part = {0};
    bp_err err;

    if (!self->info.states.keys)
        return BP_OK;
    err = begin(&file, self);

    if (err == BP_OK)
        err = bp_score_unit_new(&unit, &self->plan, 1);
    while (bp_parts_next(parts, &part, &err)) {
        err = states_look_for_stop();
        if (err == BP_OK)
            err = write_unit(&file, unit, &part);
    }
    bp_score_unit_free(&unit);
    return state_file_end(&file, err);
}
