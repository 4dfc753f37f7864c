/* A loader's windows as they are: examples of T + 1 inputs and nothing else. */
#pragma once

#include "data/loader.h"

#include <string.h>

static int64_t values_of_a_step; /* of the loader in use */

static void take_window(const bp_example_maker *self, const int32_t *tokens, int64_t step,
                        int64_t slot, bp_example *out)
{
    (void)step, (void)slot;
    memcpy(out->inputs[0], tokens, (size_t)self->window * sizeof *tokens);
}

/* For a loader of so many slots, from now on. */
static bp_example_maker window_maker(int64_t T, int64_t slots)
{
    values_of_a_step = slots * (T + 1);
    return (bp_example_maker){
        .form = {.stream = {{.T = T + 1}}}, .window = T + 1, .make = take_window};
}

static bp_err read_windows(bp_loader *loader, int64_t step, int32_t *windows)
{
    const void *batch;
    bp_err err = bp_loader_read(loader, step, &batch);

    if (err == BP_OK)
        memcpy(windows, batch, (size_t)values_of_a_step * sizeof *windows);
    return err;
}
