/* Faults of a search's keys that need neither files nor ranks. Called by jobs/search.c. */
#include "search/search.h"

#include "base/config/ignored.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "search/limit.h"
#include "search/methods/method.h"
#include "search/space.h"
#include "train/loop/pretrain.h"
#include "train/parts/list.h"

#include <string.h>

/* Keys of these sections can't be searched: they do not change the model. */
static bool is_fixed(const char *key)
{
    static const char *const SECTIONS[] = {"run.",        "search.",   "mesh.",       "checkpoint.",
                                           "slurm.",      "watchdog.", "math.",       "tokenizer.",
                                           "train.steps", "corpus.",   "train.epochs"};

    for (size_t k = 0; k < sizeof SECTIONS / sizeof SECTIONS[0]; k++)
        if (strncmp(key, SECTIONS[k], strlen(SECTIONS[k])) == 0)
            return true;
    return strcmp(key, "model.kind") == 0 || strcmp(key, "model.init") == 0;
}

typedef struct lookup {
    const char *key;
    bool found;
} lookup;

static void look(void *context, const bp_option *option, const char *value)
{
    lookup *what = context;

    (void)value;
    what->found = what->found || bp_option_is(option, what->key);
}

/* Checks that each key allows its values. Then the configuration has the largest model of the
 * space: it is checked like a training's, and planned. */
static void take_largest(bp_config *config, const nas_space *space)
{
    nas_point largest = nas_space_largest(space);
    char settings[NAS_SETTINGS];
    bool good = true;

    for (int a = 0; a < space->count; a++)
        for (int k = 0; k < space->axes[a].count; k++)
            if (bp_config_set_from(config, space->axes[a].key, space->axes[a].values[k],
                                   "search.space") != BP_OK) {
                bp_config_fault_err(config);
                good = false;
            }
    BP_CHECK(nas_space_text(settings, sizeof settings, space, &largest));
    if (good)
        BP_CHECK(nas_settings_set(config, settings) == BP_OK);
}

static void check_space(bp_config *config)
{
    nas_space *space = bp_alloc("search", 1, sizeof *space);
    bool good = nas_space_read(space, bp_nas_keys_of(config)->space) == BP_OK;

    if (!good)
        bp_config_fault_err(config);
    for (int a = 0; a < space->count; a++) {
        lookup what = {space->axes[a].key, false};

        bp_config_each(config, look, &what);
        if (what.found && !is_fixed(what.key))
            continue;
        good = false;
        bp_config_fault(config, "search.bad_key",
                        "search.space names %s, which is no key that a model or its training "
                        "could differ in: at search.space; use keys of model.*, optimizer.* "
                        "or train.*",
                        what.key);
    }
    if (good)
        take_largest(config, space);
    bp_free(space);
}

/* Checks for trials that share weights. */
static void check_shared(bp_config *config)
{
    const bp_mesh_keys *mesh = bp_mesh_keys_of(config);

    if (mesh->tensor > 1 || mesh->pipeline > 1)
        bp_config_fault(config, "search.mesh",
                        "mesh.tensor = %lld and mesh.pipeline = %lld, but shared weights are "
                        "trained by data ranks: at mesh.tensor; leave both at 1",
                        (long long)mesh->tensor, (long long)mesh->pipeline);
    if (bp_model_keys_of(config)->init)
        bp_config_fault(config, "search.init",
                        "model.init begins with the weights of one shape, and shared weights with "
                        "those of all: at model.init; leave it out");
}

void bp_nas_warn(const bp_config *config)
{
    const nas_method *method = nas_method_of(config);
    bool ranks = method == &nas_ranked, evolves = method == &nas_evolution,
         finds = method == &nas_differentiable,
         shares = method->shares || finds || bp_nas_keys_of(config)->shared;
    const bp_unused_key rows[] = {
        {"search.ranker", !ranks, "only search.method = ranked has one"},
        {"search.population", !evolves, "only search.method = evolution has one"},
        {"search.mutation", !evolves && !ranks, "only search.method = evolution and ranked mutate"},
        {"search.crossover", !evolves && !ranks, "only search.method = evolution and ranked cross"},
        {"search.shared", ranks || finds, "only search.method = random and evolution choose"},
        {"search.shared_steps", !shares, "without search.shared no weights are shared"},
        {"search.steps", shares, "no trial trains from scratch"},
        {"search.nodes", !finds, "only search.method = differentiable has them"},
        {NULL, false, NULL}};

    bp_warn_of_unused(config, rows);
}

void bp_nas_check(bp_config *config)
{
    const bp_nas_keys *keys = bp_nas_keys_of(config);
    const nas_method *method = nas_method_of(config);
    nas_limit limit;

    check_space(config);
    if (!method->free_space && !keys->space)
        bp_config_fault(config, "search.no_space",
                        "search.method = %s needs keys to choose values of: at search.space; give "
                        "model.layers=2,4; model.inner=256,512 or the like",
                        method->name);
    if (nas_limit_read(&limit, keys->limit) != BP_OK)
        bp_config_fault_err(config);
    if (!bp_corpus_keys_of(config)->valid)
        bp_config_fault(config, "search.no_validation",
                        "trials are compared by their loss on validation text, and corpus.valid is "
                        "not given: at corpus.valid; give a corpus");
    if (bp_mesh_keys_of(config)->members > 1 && keys->trials < bp_mesh_keys_of(config)->members)
        bp_config_fault(config, "mesh.too_many_members",
                        "mesh.members = %lld is more than search.trials = %lld: at mesh.members; "
                        "use %lld or fewer",
                        (long long)bp_mesh_keys_of(config)->members, (long long)keys->trials,
                        (long long)keys->trials);
    if (keys->shared || method->shares)
        check_shared(config);
    if (method->check)
        method->check(config);
    (void)bp_pretrain_check_model(config, bp_training_parts);
}
