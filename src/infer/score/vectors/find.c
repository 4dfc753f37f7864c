/* Settings of document vectors, from the keys and the model's checkpoint. Called by
 * jobs/score.c. */
#include "infer/score/vectors/vectors.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/score/keys.h"
#include "io/checkpoint/checkpoint.h"
#include "mesh/collective.h"
#include "text/tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

/* Keys that have no meaning with it. */
static bp_err check_keys(const bp_config *config)
{
    static const char *const OTHERS[] = {"score.candidates", "score.select",  "score.tokens",
                                         "score.states",     "score.mix",     "score.neighbours",
                                         "score.convention", "score.stride",  "score.end",
                                         "score.boundaries", "score.entropy", "score.cluster"};

    for (size_t k = 0; k < sizeof OTHERS / sizeof OTHERS[0]; k++)
        if (bp_config_departs(config, OTHERS[k]))
            return BP_FAIL(BP_ERR_CONFIG, "score.vectors_alone",
                           "%s is given, and score.vectors = %s computes vectors and no scores: at "
                           "%s; leave it out, or set score.vectors=none",
                           OTHERS[k], bp_score_keys_of(config)->vectors, OTHERS[k]);
    return BP_OK;
}

/* For a causal model, the tokenizer's template may put a token after a text. */
static bp_err find_end(bp_vectors_wish *out, const char *folder)
{
    char *path = bp_path_join(folder, "tokenizer.json");
    bp_tokenizer *tokenizer = NULL;
    bp_err err = BP_OK;

    if (bp_path_exists(path))
        err = bp_tokenizer_load(&tokenizer, path);
    out->end = tokenizer ? bp_tokenizer_template_end(tokenizer) : -1;
    bp_tokenizer_free(&tokenizer);
    bp_free(path);
    return err;
}

static void take_prompt(bp_vectors_wish *out, const json_t *ids)
{
    size_t count = json_array_size(ids);

    out->prompt_count = count < BP_VECTORS_PROMPT ? (int64_t)count : BP_VECTORS_PROMPT;
    for (int64_t k = 0; k < out->prompt_count; k++) {
        json_int_t id = json_integer_value(json_array_get(ids, (size_t)k));

        out->prompt[k] = id < 0 || id > INT32_MAX ? -1 : (int32_t)id;
    }
    if (count > BP_VECTORS_PROMPT)
        out->prompt[0] = -1; /* refused, like ids beyond the vocabulary */
}

/* On the root. Opening it reports a checkpoint that can't be read. */
static bp_err find(bp_vectors_wish *out, const bp_config *config)
{
    const bp_score_keys *keys = bp_score_keys_of(config);
    bool given = bp_config_is_given(config, "score.vectors");
    char *folder = NULL;
    json_t *manifest = NULL;
    bp_err err = BP_OK;

    if (bp_checkpoint_read_metadata(keys->model, &folder, &manifest) != BP_OK)
        manifest = NULL;
    const json_t *state = json_object_get(manifest, "state"),
                 *of_model = json_object_get(state, "vectors");
    const char *pool = given ? keys->vectors : json_string_value(json_object_get(of_model, "pool"));

    out->norm = bp_config_is_given(config, "score.vectors_norm")
                    ? keys->vectors_norm
                    : json_is_true(json_object_get(of_model, "norm"));
    if (pool && strcmp(pool, "none") != 0)
        (void)snprintf(out->pool, sizeof out->pool, "%s", pool);
    out->most = json_integer_value(json_object_get(of_model, "context"));
    take_prompt(out, json_object_get(of_model, "prompt"));
    if (out->pool[0] && folder)
        err = find_end(out, folder);
    json_decref(manifest);
    bp_free(folder);
    return err;
}

bp_err bp_vectors_find(bp_vectors_wish *out, bp_config *config, MPI_Comm world)
{
    bp_err err;

    *out = (bp_vectors_wish){.end = -1};
    err = bp_agree(world, bp_comm_is_root(world) ? find(out, config) : BP_OK);
    bp_bcast_bytes(out, sizeof *out, 0, world);
    if (err == BP_OK)
        err = bp_config_set(config, "score.vectors", out->pool[0] ? out->pool : "none");
    if (err == BP_OK)
        err = bp_config_set(config, "score.vectors_norm", out->norm ? "yes" : "no");
    if (err == BP_OK && out->pool[0])
        err = check_keys(config);
    return bp_agree(world, err);
}
