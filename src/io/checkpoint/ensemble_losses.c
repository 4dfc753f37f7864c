/* Validation losses of an ensemble's members, from the state of their checkpoints. */
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"

#include "base/buffer.h"
#include "base/log.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define SHOWN 6 /* members by name in a warning */

/* The lowest validation loss of a checkpoint's training up to then, in nats per prediction; NaN: it
 * was not validated, or its loss has another unit (a regression). *like: the kind of the model and
 * the hash of the validation corpus, equal where losses can be compared; NULL for NaN. bp_free().
 */
static double loss_of(const char *path, char **like)
{
    json_t *state = NULL;
    bp_err err = bp_ensemble_read_state(&state, path);
    const json_t *loss = json_object_get(state, "best_valid_loss"),
                 *model = json_object_get(state, "model"), *task = json_object_get(model, "task");
    const char *hash = json_string_value(json_object_get(state, "valid_hash")),
               *kind = json_string_value(json_object_get(model, "kind"));
    bool in_nats = !json_is_string(task) || strcmp(json_string_value(task), "regression") != 0;
    double value =
        err == BP_OK && in_nats && json_is_number(loss) && hash ? json_number_value(loss) : NAN;

    *like = isnan(value) ? NULL : bp_sprintf("%s %s", kind ? kind : "", hash);
    json_decref(state);
    return value;
}

/* The lowest loss of members like member k. */
static double lowest_like(const double *losses, char *const *like, int64_t count, int64_t k)
{
    double lowest = losses[k];

    for (int64_t j = 0; j < count; j++)
        if (like[j] && strcmp(like[j], like[k]) == 0)
            lowest = fmin(lowest, losses[j]);
    return lowest;
}

void bp_ensemble_warn_of_losses(const bp_ensemble_list *list, const char *path)
{
    double *losses = bp_alloc("ensemble.losses", list->count, sizeof *losses);
    char **like = bp_alloc("ensemble.losses", list->count, sizeof *like);
    int64_t far = 0;
    bp_buffer names = {0};

    for (int64_t k = 0; k < list->count; k++)
        losses[k] = loss_of(list->members[k].path, &like[k]);
    for (int64_t k = 0; k < list->count; k++) {
        double lowest = like[k] ? lowest_like(losses, like, list->count, k) : NAN;

        if (!(losses[k] > lowest + BP_MEMBER_FAR_NATS) || ++far > SHOWN)
            continue;
        bp_buffer_printf(&names, "%s%s %.4f against %.4f", far > 1 ? ", " : "",
                         list->members[k].name, losses[k], lowest);
    }
    if (far > 0)
        BP_WARN("ensemble.far_member",
                "%" PRId64 " of %" PRId64 " members predict the validation text far worse than the "
                "best one: validation loss %s%s: at %s; leave them out of ensemble.json, or train "
                "them anew: with them the ensemble may be worse than one member, and its mutual "
                "information says nothing",
                far, list->count, names.data, far > SHOWN ? ", ..." : "", path);
    bp_buffer_clear(&names);
    for (int64_t k = 0; k < list->count; k++)
        bp_free(like[k]);
    bp_free(like);
    bp_free(losses);
}
