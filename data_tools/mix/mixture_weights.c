/* The file of a mixture's weights: JSON, with the digest of the model of each. */
#include "base/config/json.h"
#include "base/files/fs.h"
#include "mixture.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define WEIGHTS_BYTES ((int64_t)64 << 20)
#define FORMAT        "bagpipe mixture"
#define VERSION       1

bp_err mixture_weights_save(const mixture *mix, const double *weights, const bp_mixture_fit *fit,
                            const char *path)
{
    const json_t *convention = json_object_get(mix->first.summary, "convention");
    json_t *parts = json_array();
    bool whole = true;
    bp_err err;

    for (int64_t m = 0; m < mix->count; m++)
        whole &=
            0 == json_array_append_new(
                     parts, json_pack("{so ss sI so so}", "folder",
                                      bp_json_string(mix->parts[m].given), "digest",
                                      mix->parts[m].digest, "step", (json_int_t)mix->parts[m].step,
                                      "weight", bp_json_real(weights[m]), "perplexity",
                                      bp_json_real(exp(mix->parts[m].nll / (double)mix->scored))));
    json_t *root = json_pack("{ss si so sI so so sI so sO}", "format", FORMAT, "format_version",
                             VERSION, "models", parts, "tokens", (json_int_t)mix->scored,
                             "nll_nats", bp_json_real(fit->nll), "perplexity",
                             bp_json_real(exp(fit->nll / (double)mix->scored)), "iterations",
                             (json_int_t)fit->iterations, "gap_nats", bp_json_real(fit->gap),
                             "tokenizer_hash", json_object_get(convention, "tokenizer_hash"));
    err = root && whole ? bp_json_save(path, root)
                        : BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                                  "no memory, or a name that is not UTF-8: at %s", path);
    json_decref(root);
    return err;
}

static bp_err wrong_weights(const char *path, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "mixture.bad_weights",
                   "%s: at %s; fit the weights again with bagpipe-data mix", what, path);
}

/* One of them is of the model whose scores are in its place. */
static bp_err read_weight(double *weight, const json_t *one, const mixture_part *part,
                          const char *path)
{
    const char *digest = json_string_value(json_object_get(one, "digest"));
    const json_t *value = json_object_get(one, "weight");

    *weight = json_number_value(value);
    if (!digest || !json_is_number(value) || !(*weight >= 0 && *weight <= 1))
        return wrong_weights(path, "a model has no digest, or no weight from 0 to 1");
    if (strcmp(digest, part->digest) != 0)
        return BP_FAIL(BP_ERR_FORMAT, "mixture.other_models",
                       "the weight %.17g is of model %.12s, and the scores in its place are of "
                       "%.12s: at %s and %s; give the folders in the order of the weights",
                       *weight, digest, part->digest, path, part->given);
    return BP_OK;
}

bp_err mixture_weights_read(double *weights, const mixture *mix, const char *path)
{
    json_t *root = NULL;
    double total = 0;
    bp_err err = bp_json_load(&root, path, WEIGHTS_BYTES);
    const json_t *models = json_object_get(root, "models");
    const char *format = json_string_value(json_object_get(root, "format"));

    if (err == BP_OK && (!format || strcmp(format, FORMAT) != 0 || !json_is_array(models)))
        err = wrong_weights(path, "these are not weights of a mixture");
    if (err == BP_OK && json_integer_value(json_object_get(root, "format_version")) != VERSION)
        err = wrong_weights(path, "weights of a format_version that this program does not know");
    if (err == BP_OK && (int64_t)json_array_size(models) != mix->count)
        err = BP_FAIL(BP_ERR_FORMAT, "mixture.other_models",
                      "there are %zu weights, but %" PRId64
                      " folders: at %s; give a folder for each model, in their order",
                      json_array_size(models), mix->count, path);
    for (int64_t m = 0; m < mix->count && err == BP_OK; m++) {
        err = read_weight(&weights[m], json_array_get(models, (size_t)m), &mix->parts[m], path);
        total += weights[m];
    }
    if (err == BP_OK && fabs(total - 1) > 1e-9)
        err = wrong_weights(path, "the weights do not sum to 1");
    json_decref(root);
    return err;
}
