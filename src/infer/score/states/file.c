/* The HDF5 file of states: the output of each layer for every token, and a mix of the layers
 * (Peters et al. 2018, equation 1). The merges of states.c and keys.c write its rows in the order
 * of the corpora, so that the file does not depend on the distribution of work. */
#include "infer/score/states/states.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "base/process/signals.h"
#include "run/stop_request.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define VERSION    1
#define NAME_BYTES 32

bp_err states_no_memory(int64_t tokens)
{
    return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                   "memory is short: at the states of %" PRId64
                   " tokens; use a smaller score.context",
                   tokens);
}

bp_err states_look_for_stop(void)
{
    return bp_signals_stop_asked() ? bp_stop_request_stopped("while it wrote score/states.h5")
                                   : BP_OK;
}

/* The layers, or a mix of them, as datasets with one row per token. */
static bp_err make_layers(state_file *file)
{
    const bp_score_plan *plan = &file->self->plan;
    int64_t extent[] = {plan->first_token[plan->files], file->form.columns};
    bp_h5 *h5 = file->draft.file;
    char name[NAME_BYTES];
    bp_err err = bp_h5_write(h5, "corpus_start", BP_H5_I64, plan->first_token, plan->files + 1);

    for (int64_t k = 0; k < file->form.layers && err == BP_OK; k++) {
        (void)snprintf(name, sizeof name, "layer_%" PRId64, k);
        err = bp_h5_make_array(h5, name, BP_H5_F32, 2, extent, NULL);
    }
    if (err == BP_OK && file->mixed)
        err = bp_h5_make_array(h5, "mix", BP_H5_F32, 2, extent, NULL);
    if (err == BP_OK && file->mixed)
        err = bp_h5_write(h5, "mix_weights", BP_H5_F64, file->weights, file->form.layers);
    return err;
}

static bp_err alloc_rows(state_file *file)
{
    const char *mix = bp_score_keys_of(file->self->config)->mix;
    int64_t floats = file->most * file->form.columns;

    file->gap = bp_try_alloc("score.states", floats, sizeof *file->gap);
    for (int64_t i = 0; file->gap && i < floats; i++)
        file->gap[i] = NAN;
    if (mix) {
        file->mixed = bp_try_alloc("score.states", floats, sizeof *file->mixed);
        BP_CHECK(states_read_weights(file->weights, mix, file->form.layers));
        states_soften(file->weights, file->form.layers);
    }
    return !file->gap || (mix && !file->mixed) ? states_no_memory(file->most) : BP_OK;
}

bp_err state_file_begin(state_file *file, const scorer *self, int64_t most)
{
    char *path = bp_path_join(self->folder, "states.h5");
    bp_err err;

    *file = (state_file){.self = self, .form = self->info.states, .most = most};
    err = alloc_rows(file);
    if (err == BP_OK)
        err = bp_h5_draft_begin(&file->draft, path, VERSION);
    if (err == BP_OK)
        err = make_layers(file);
    bp_free(path);
    return err;
}

/* Write the same rows of a layer or the mix. */
static bp_err write_slab(state_file *file, const char *name, int64_t row, int64_t count,
                         const float *values)
{
    int64_t C = file->form.columns;

    return bp_h5_write_slab(file->draft.file, name, BP_H5_F32, row * C, values, count * C);
}

/* layer_step: floats from a layer's rows to the next one's; 0: all are the same. */
static bp_err write_layers(state_file *file, int64_t row, int64_t count, const float *states,
                           int64_t layer_step)
{
    char name[NAME_BYTES];
    bp_err err = BP_OK;

    for (int64_t k = 0; k < file->form.layers && err == BP_OK; k++) {
        (void)snprintf(name, sizeof name, "layer_%" PRId64, k);
        err = write_slab(file, name, row, count, states + k * layer_step);
    }
    return err;
}

static void mix_layers(state_file *file, const float *states, int64_t floats)
{
    double scale = bp_score_keys_of(file->self->config)->mix_scale;

    for (int64_t i = 0; i < floats; i++) {
        double sum = 0;

        for (int64_t k = 0; k < file->form.layers; k++)
            sum += file->weights[k] * (double)states[k * floats + i];
        file->mixed[i] = (float)(scale * sum);
    }
}

/* These rows may be most of a corpus, so a stop request is checked here too. */
bp_err state_file_gap(state_file *file, int64_t end)
{
    bp_err err = BP_OK;

    while (file->written < end && err == BP_OK) {
        int64_t row = file->written, left = end - row,
                count = left < file->most ? left : file->most;

        bp_heartbeat_progress();
        err = states_look_for_stop();
        if (err == BP_OK)
            err = write_layers(file, row, count, file->gap, 0);
        if (err == BP_OK && file->mixed)
            err = write_slab(file, "mix", row, count, file->gap);
        file->written += count;
    }
    return err;
}

bp_err state_file_rows(state_file *file, int64_t row, int64_t count, const float *states)
{
    int64_t floats = count * file->form.columns;
    bp_err err = state_file_gap(file, row);

    if (err == BP_OK)
        err = write_layers(file, row, count, states, floats);
    if (err == BP_OK && file->mixed) {
        mix_layers(file, states, floats);
        err = write_slab(file, "mix", row, count, file->mixed);
    }
    file->written = row + count;
    return err;
}

bp_err state_file_end(state_file *file, bp_err err)
{
    const bp_score_plan *plan = &file->self->plan;

    if (err == BP_OK)
        err = state_file_gap(file, plan->first_token[plan->files]);
    if (err == BP_OK)
        err = bp_h5_draft_commit(&file->draft, "score-states", VERSION);
    bp_h5_draft_end(&file->draft);
    bp_free(file->mixed);
    bp_free(file->gap);
    return err;
}
