/* What the tests of decoding share: shapes, models on meshes, and sequences that are fed to them.
 * For one program: include bp_test_mpi.h first. */
#pragma once

#include "bp_test_perturb.h"

#include "base/rng.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/feedforward/feedforward.h"
#include "models/list.h"
#include "models/network/network_inside_priv.h"
#include "models/network/network_model.h"
#include "models/open.h"
#include "models/recurrent/recurrent.h"
#include "models/stack/rotary.h"
#include "models/stack/stack.h"

#include <math.h>

#define WORLD MPI_COMM_WORLD

enum { V = 61, CONTEXT = 40, SLOTS = 5, CAPACITY = 32, GROUPS = 2, SCALE = 8 };

static bp_rng_key key;
static uint64_t drawn;

/* A number below `end`, the same on all ranks. */
static inline int32_t draw(int64_t end)
{
    return (int32_t)bp_rng_below(&key, drawn++, end);
}

static const bp_model_shape gpt = {.family = &bp_gpt_family,
                                   .layers = 4,
                                   .width = 32,
                                   .heads = 4,
                                   .context = CONTEXT,
                                   .vocab_size = V};

static inline bp_model_shape llama(int64_t kv_heads, int64_t window)
{
    bp_model_shape shape = {.family = &bp_llama_family,
                            .layers = 4,
                            .width = 48,
                            .heads = 8,
                            .context = CONTEXT,
                            .vocab_size = V};

    shape.stack.kv_heads = kv_heads;
    shape.stack.inner = 56;
    shape.stack.qkv_bias = window > 0;
    shape.stack.window = window;
    shape.family->fill_defaults(&shape);
    return shape;
}

/* Positions whose frequencies change with a sequence's length: once, when it is longer than the
 * original context, or then with each token. */
static inline bp_model_shape scaled(bp_rope_scaling scaling)
{
    bp_model_shape shape = llama(2, 0);

    shape.stack.rope_scaling = scaling;
    shape.stack.rope_original = 9;
    shape.stack.rope_factor = 4;
    for (int k = 0; scaling == BP_ROPE_LONGROPE && k < 3; k++) {
        shape.stack.rope_short[k] = 1 + 0.1 * k;
        shape.stack.rope_long[k] = 1.5 + 2 * k;
    }
    return shape;
}

static inline bp_model_shape recurrent(const bp_model_family *family, int64_t embedding)
{
    bp_model_shape shape = {
        .family = family, .layers = 2, .width = 24, .context = 3, .vocab_size = V};

    bp_recurrent_sizes_in(&shape)->embedding = embedding;
    shape.family->fill_defaults(&shape);
    return shape;
}

static inline bp_model_shape feedforward(int64_t order, bool direct)
{
    bp_model_shape shape = {
        .family = &bp_feedforward_family, .width = 24, .context = 3, .vocab_size = V};

    bp_feedforward_sizes_in(&shape)->order = order;
    bp_feedforward_sizes_in(&shape)->embedding = 10;
    bp_feedforward_sizes_in(&shape)->direct = direct;
    return shape;
}

/* ---- models on meshes ---- */

typedef struct world {
    bp_mesh *mesh;
    bp_config *config;
    bp_model *model;
} world;

/* Stages and tensor ranks of world's size; the last one is number 0. */
static inline int mesh_count(void)
{
    int size = bp_comm_size(WORLD);

    return size == 1 ? 1 : size == 2 ? 2 : 3;
}

static inline void open_world(world *w, const bp_model_shape *shape, int number)
{
    static const bp_option *const tables[] = {bp_math_options, NULL};
    int size = bp_comm_size(WORLD), stages = number == 0 ? size : number == 1 ? 1 : 2;
    bp_mesh_shape on = {1, stages, 1, size / stages, BP_COORDINATOR_SHARED};

    if (size == 4 && number == 2)
        on = (bp_mesh_shape){1, 1, 2, 2, BP_COORDINATOR_SHARED};
    bp_test_expect(bp_config_new(&w->config, tables, tables), BP_OK);
    bp_test_expect(bp_config_set(w->config, "math.precision", "f32"), BP_OK);
    bp_test_expect(bp_mesh_new(&w->mesh, WORLD, &on), BP_OK);
    bp_test_check_err(WORLD, bp_model_new(&w->model, w->mesh, w->config, shape, 7), BP_OK);
    network_model *model =
        (network_model *)w->model; /* larger weights: distributions with a shape */
    for (int g = 0; g < model->network->group_count; g++) {
        const bp_group *group = &model->network->groups[g];

        for (int k = 0; !group->replicated && k < group->count; k++)
            for (int64_t i = 0; i < bp_param_floats(&group->params[k]); i++)
                group->params[k].value[i] *= SCALE;
    }
    bp_test_perturb(model->network, 3, 0.3F);
    bp_network_refresh(model->network);
}

static inline void close_world(world *w)
{
    bp_model_free(&w->model);
    bp_mesh_free(&w->mesh);
    bp_config_free(&w->config);
}

/* ---- sequences, and what is known of them ---- */

typedef struct sequence {
    int32_t ids[CAPACITY];
    int64_t length;
} sequence;

/* A step with its arrays. */
typedef struct fed {
    bp_decode_step step;
    int32_t counts[SLOTS], tokens[SLOTS * CAPACITY], parents[SLOTS];
    float *logits, statistics[SLOTS][BP_DECODE_STATISTICS];
} fed;

static inline void open_fed(fed *f, const world *w)
{
    memset(f, 0, sizeof *f);
    f->step = (bp_decode_step){.slots = SLOTS, .counts = f->counts, .tokens = f->tokens};
    f->logits = bp_alloc("test", SLOTS * w->model->info.vocab_count + 1, sizeof(float));
}

/* Slot s gets counts[s] more tokens, as its sequence does. */
static inline void feed(fed *f, sequence *of, bp_decoding *decoding, int group, bool statistics)
{
    int64_t tokens = 0;

    for (int64_t s = 0; s < f->step.slots; s++)
        for (int64_t k = 0; k < f->counts[s]; k++)
            of[s].ids[of[s].length++] = f->tokens[tokens++] = draw(V);
    bp_model_decode(decoding, group, &f->step, f->logits, statistics ? f->statistics[0] : NULL);
}

static inline bool is_last(const world *w)
{
    return w->mesh->pipeline_rank == w->mesh->pipeline_ranks - 1;
}

/* lp[V] of a row of logits, on all ranks. */
static inline void whole_logprobs(double *lp, const world *w, const float *logits)
{
    const bp_model_info *info = &w->model->info;
    double most = -INFINITY, sum = 0;

    memset(lp, 0, V * sizeof *lp);
    for (int64_t v = 0; is_last(w) && v < info->vocab_count; v++)
        lp[info->vocab_first + v] = (double)logits[v];
    bp_all_sum_double(lp, V, w->mesh->model);
    for (int v = 0; v < V; v++)
        most = fmax(most, lp[v]);
    for (int v = 0; v < V; v++)
        sum += exp(lp[v] - most);
    for (int v = 0; v < V; v++)
        lp[v] -= most + log(sum);
}
