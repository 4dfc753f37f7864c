/* Validation losses of an ensemble's members, from the state of their checkpoints. */
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"

#include "base/buffer.h"
#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define FAR_NATS 0.5 /* above the lowest loss: members that learned the same differ by less */
#define SHOWN    6   /* members by name in a warning */

double bp_checkpoint_valid_loss(const char *path, char **corpus)
{
    json_t *state = NULL;
    bp_err err = bp_ensemble_read_state(&state, path);
    const json_t *loss = json_object_get(state, "best_valid_loss"),
                 *task = json_object_get(json_object_get(state, "model"), "task");
    const char *hash = json_string_value(json_object_get(state, "valid_hash"));
    bool in_nats = !json_is_string(task) || strcmp(json_string_value(task), "regression") != 0;
    double value =
        err == BP_OK && in_nats && json_is_number(loss) && hash ? json_number_value(loss) : NAN;

    *corpus = isnan(value) ? NULL : bp_strdup(hash);
    json_decref(state);
    return value;
}

/* The losses of members that have been validated on the corpus of the first one; others NaN. */
static void read_losses(double *losses, const bp_ensemble_list *list)
{
    char *first = NULL;

    for (int64_t k = 0; k < list->count; k++) {
        char *corpus;

        losses[k] = bp_checkpoint_valid_loss(list->members[k].path, &corpus);
        if (first && corpus && strcmp(first, corpus) != 0)
            losses[k] = NAN;
        if (!first)
            first = corpus;
        else
            bp_free(corpus);
    }
    bp_free(first);
}

void bp_ensemble_warn_of_losses(const bp_ensemble_list *list, const char *path)
{
    double *losses = bp_alloc("ensemble.losses", list->count, sizeof *losses), lowest = INFINITY;
    int64_t far = 0;
    bp_buffer names = {0};

    read_losses(losses, list);
    for (int64_t k = 0; k < list->count; k++)
        lowest = fmin(lowest, losses[k]); /* of NaN and a number fmin takes the number */
    for (int64_t k = 0; k < list->count; k++) {
        if (!(losses[k] > lowest + FAR_NATS) || ++far > SHOWN)
            continue;
        bp_buffer_printf(&names, "%s%s %.4f", far > 1 ? ", " : "", list->members[k].name,
                         losses[k]);
    }
    if (far > 0)
        BP_WARN("ensemble.far_member",
                "%" PRId64 " of %" PRId64 " members predict the validation text far worse than the "
                "best one: validation loss %s%s, against %.4f: at %s; leave them out of "
                "ensemble.json, or train them anew: with them the ensemble may be worse than one "
                "member, and its mutual information says nothing",
                far, list->count, names.data, far > SHOWN ? ", ..." : "", lowest, path);
    bp_buffer_clear(&names);
    bp_free(losses);
}
