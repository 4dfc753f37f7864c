/* What tests of ensembles share: small models with random weights in checkpoints, a batch, meshes.
 * For one program: include bp_test_mpi.h first. */
#pragma once

#include "bp_test_perturb.h"
#include "infer/ensemble/ensemble.h"
#include "io/checkpoint/ensemble_file.h"
#include "io/checkpoint/head_samples.h"
#include "math/kernels/kernels.h"
#include "math/math.h"
#include "models/list.h"
#include "models/open.h"

#include <math.h>

#ifndef WORLD_VOCABULARY
#define WORLD_VOCABULARY 23
#define WORLD_SCALE      12 /* of the weights, for distributions with a shape */
#endif
enum {
    V = WORLD_VOCABULARY,
    CONTEXT = 12,
    WINDOWS = 5,
    LENGTH = 11,
    TOKENS = WINDOWS * LENGTH,
    MEMBERS = 3
};

/* What a checkpoint has, but for its weights. */
typedef struct small_model {
    const char *name;
    uint64_t seed;
    int64_t layers, vocab_size, eod_id, step;
    const char *tokenizer_hash;
} small_model;

#define HASH_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define HASH_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

/* Weights large enough for distributions with a shape. On one rank. */
static inline void save_small_model(const small_model *model)
{
    bp_model_shape shape = {.family = &bp_gpt_family,
                            .layers = model->layers,
                            .width = 16,
                            .heads = 4,
                            .context = CONTEXT,
                            .vocab_size = model->vocab_size};
    bp_checkpoint_commit commit = {.parent = bp_test_path("."), .name = model->name, .writers = 1};
    bp_nn nn = {.tensor = MPI_COMM_SELF, .tensor_ranks = 1};
    bp_network *network;
    int64_t used = 0;

    bp_test_expect(bp_gemm_new(&nn.gemm, BP_F32), BP_OK);
    bp_test_expect(bp_model_network_new(&network, &nn, &shape, 0, 1), BP_OK);
    bp_network_lay_out(network, 1);
    float *values = bp_alloc("test", network->floats, sizeof(float));
    bp_test_expect(bp_network_bind_values(network, values), BP_OK);
    bp_network_initialise(network, model->seed);
    int64_t capacity = bp_network_slice_capacity(network);
    bp_slice *slices = bp_alloc("test", capacity, sizeof *slices);
    for (int g = 0; g < network->group_count; g++) {
        bp_group *group = &network->groups[g];
        for (int64_t i = 0; !group->replicated && i < group->floats; i++)
            values[group->place + i] *= WORLD_SCALE;
        bp_network_slices(network, g, "", values + group->place, 0, group->floats, slices, &used,
                          capacity);
    }
    bp_test_perturb(network, model->seed, 0.3F);
    json_t *state = json_pack("{s:o, s:I, s:I, s:s}", "model", bp_model_shape_json(&shape), "step",
                              (json_int_t)model->step, "eod_id", (json_int_t)model->eod_id,
                              "tokenizer_hash", model->tokenizer_hash);
    assert_non_null(state);
    bp_test_expect(bp_checkpoint_save(MPI_COMM_SELF, &commit, slices, used, state), BP_OK);
    json_decref(state);
    bp_free(slices);
    bp_free(values);
    bp_network_free(&network);
    bp_gemm_free(&nn.gemm);
}

/* An ensemble of models of these names, in a folder of its own. On one rank. */
static inline void save_list(const char *folder, const char *const *names, int64_t count)
{
    bp_ensemble_member members[8];
    bp_ensemble_list list = {members, count};
    char text[8][64];

    assert_true(count <= 8);
    for (int64_t k = 0; k < count; k++) {
        snprintf(text[k], sizeof text[k], "m%02d", (int)k);
        members[k] = (bp_ensemble_member){text[k], bp_sprintf("../%s", names[k]),
                                          k == 1 ? 12.5 : (double)NAN};
    }
    bp_test_expect(bp_dir_make(bp_test_path(folder)), BP_OK);
    bp_test_expect(bp_ensemble_list_save(&list, bp_test_path(folder)), BP_OK);
    for (int64_t k = 0; k < count; k++)
        bp_free(members[k].path);
}

static const small_model world_models[MEMBERS] = {
    {"a", 1, 2, V, 22, 10, HASH_A}, {"b", 2, 2, V, 22, 30, ""}, {"c", 3, 1, V, 22, 20, HASH_A}};

/* The models a, b and c, and the ensembles "three" of them, "one" of a, and "copies" of b. On all
 * ranks. */
static inline void make_world(void)
{
    static const char *const three[] = {"a", "b", "c"}, *const copies[] = {"b", "b", "b", "b", "b"};

    if (bp_comm_is_root(MPI_COMM_WORLD)) {
        for (int k = 0; k < MEMBERS; k++)
            save_small_model(&world_models[k]);
        save_list("three", three, 3);
        save_list("one", three, 1);
        save_list("copies", copies, 5);
    }
    BP_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

enum { SAMPLES = 3, WIDTH = 16 };

static inline float sample_entry(int s, int64_t i)
{
    bp_rng_key key = bp_rng_key_of(5, BP_RNG_TEST, s, 0, 0);

    return (float)bp_rng_normal(&key, (uint64_t)i) / 2;
}

/* Samples of the last layer of the model with this digest. On one rank. */
static inline void save_samples(const char *name, const char *model_digest, int64_t width)
{
    static float weights[V * WIDTH];
    bp_head_samples_info info = {
        .samples = SAMPLES, .vocab_size = V, .width = width, .digest = "d"};
    bp_head_samples *file;

    snprintf(info.model_digest, sizeof info.model_digest, "%s", model_digest);
    bp_test_expect(bp_head_samples_create(&file, bp_test_path(name), &info), BP_OK);
    for (int s = 0; s < SAMPLES; s++) {
        for (int64_t i = 0; i < V * width; i++)
            weights[i] = sample_entry(s, i);
        bp_test_expect(bp_head_samples_write(file, s, 0, V, weights), BP_OK);
    }
    bp_test_expect(bp_head_samples_commit(&file), BP_OK);
}

static inline bp_config *world_config(void)
{
    static const bp_option *const tables[] = {bp_math_options, NULL};
    bp_config *config;

    bp_test_expect(bp_config_new(&config, tables, tables), BP_OK);
    bp_test_expect(bp_config_set(config, "math.precision", "f32"), BP_OK);
    return config;
}

static int32_t world_inputs[TOKENS], world_targets[TOKENS];

/* A batch with unscored positions, some of them at the ends of windows. */
static inline bp_model_batch world_batch(void)
{
    for (int i = 0; i < TOKENS; i++) {
        world_inputs[i] = (i * 7 + i / 5) % V;
        world_targets[i] = i % LENGTH > 8 || i % 6 == 1 ? -1 : (i * 5 + 11) % V;
    }
    return (bp_model_batch){.windows = WINDOWS,
                            .length = LENGTH,
                            .inputs = world_inputs,
                            .targets = world_targets,
                            .first_slot = 4};
}

/* A mesh with an ensemble on it. */
typedef struct world_ensemble {
    bp_mesh *mesh;
    bp_config *config;
    bp_model *model;
} world_ensemble;

static inline bp_err open_ensemble(world_ensemble *e, MPI_Comm comm, const bp_mesh_shape *shape,
                                   const bp_ensemble_spec *spec)
{
    e->model = NULL;
    e->config = world_config();
    bp_test_expect(bp_mesh_new(&e->mesh, comm, shape), BP_OK);
    return bp_ensemble_open(&e->model, e->mesh, e->config, spec);
}

static inline void close_ensemble(world_ensemble *e)
{
    bp_model_free(&e->model);
    bp_mesh_free(&e->mesh);
    bp_config_free(&e->config);
}

static const bp_mesh_shape alone = {1, 1, 1, 1, BP_COORDINATOR_SHARED};

/* Meshes of this world's size. */
static inline const bp_mesh_shape *world_meshes(int *count)
{
    static const bp_mesh_shape of_one[] = {{1, 1, 1, 1, BP_COORDINATOR_SHARED}};
    static const bp_mesh_shape of_two[] = {{2, 1, 1, 1, BP_COORDINATOR_SHARED},
                                           {1, 2, 1, 1, BP_COORDINATOR_SHARED},
                                           {1, 1, 1, 2, BP_COORDINATOR_SHARED},
                                           {1, 1, 2, 1, BP_COORDINATOR_SHARED}};
    static const bp_mesh_shape of_four[] = {
        {4, 1, 1, 1, BP_COORDINATOR_SHARED}, {2, 2, 1, 1, BP_COORDINATOR_SHARED},
        {2, 1, 1, 2, BP_COORDINATOR_SHARED}, {1, 2, 1, 2, BP_COORDINATOR_SHARED},
        {2, 1, 2, 1, BP_COORDINATOR_SHARED}, {1, 1, 1, 4, BP_COORDINATOR_SHARED}};
    int size = bp_comm_size(MPI_COMM_WORLD);

    *count = size == 1 ? 1 : size == 2 ? 4 : 6;
    return size == 1 ? of_one : size == 2 ? of_two : of_four;
}

/* ---- the plain twin: float64 over all logits of all members ---- */

/* logits[TOKENS][V] of one checkpoint, on one rank alone. pass: as bp_model_ops.backbone has it. */
static inline void whole_logits(float *logits, const char *name, const bp_model_batch *batch,
                                int64_t pass, float rate, uint64_t seed)
{
    static float hidden[TOKENS * 16];
    bp_config *config = world_config();
    bp_mesh *mesh;
    bp_model *model;

    bp_test_expect(bp_mesh_new(&mesh, MPI_COMM_SELF, &alone), BP_OK);
    bp_test_expect(bp_model_open(&model, mesh, config, bp_test_path(name)), BP_OK);
    model->ops->set_dropout(model, rate, seed);
    bp_test_expect(model->ops->backbone(model, batch, pass, hidden), BP_OK);
    model->ops->logits(model, 0, hidden, TOKENS, logits);
    bp_model_free(&model);
    bp_mesh_free(&mesh);
    bp_config_free(&config);
}

/* lp[V] of one row. */
static inline void plain_logprob(double *lp, const float *logits)
{
    double most = -INFINITY, sum = 0;

    for (int v = 0; v < V; v++)
        most = fmax(most, (double)logits[v]);
    for (int v = 0; v < V; v++)
        sum += exp((double)logits[v] - most);
    for (int v = 0; v < V; v++)
        lp[v] = (double)logits[v] - most - log(sum);
}

static inline int plain_top(const double *x)
{
    int top = 0;

    for (int v = 1; v < V; v++)
        top = x[v] > x[top] ? v : top;
    return top;
}

/* out[BP_MODEL_MEMBER + M] of one token; lp[M][V] */
static inline void plain_values(double *out, const double (*lp)[V], int M, int32_t target)
{
    double p[V] = {0}, mean = 0, squares = 0;

    memset(out, 0, (size_t)(BP_MODEL_MEMBER + M) * sizeof *out);
    for (int m = 0; m < M; m++)
        for (int v = 0; v < V; v++)
            p[v] += exp(lp[m][v]) / M;
    int top = plain_top(p);
    for (int m = 0; m < M; m++) {
        for (int v = 0; v < V; v++) {
            out[BP_MODEL_EXPECTED_ENTROPY] -= exp(lp[m][v]) * lp[m][v] / M;
            out[BP_MODEL_MUTUAL_INFORMATION] += exp(lp[m][v]) * (lp[m][v] - log(p[v])) / M;
        }
        out[BP_MODEL_MEMBER + m] = lp[m][target];
        mean += lp[m][target] / M;
        squares += lp[m][target] * lp[m][target] / M;
        out[BP_MODEL_AGREEMENT] += plain_top(lp[m]) == top ? 1.0 / M : 0;
    }
    for (int v = 0; v < V; v++) {
        out[BP_MODEL_TOTAL_ENTROPY] -= p[v] * log(p[v]);
        out[BP_MODEL_BRIER] += (p[v] - (v == target)) * (p[v] - (v == target));
    }
    out[BP_MODEL_LOGPROB] = log(p[target]);
    out[BP_MODEL_LOGPROB_VARIANCE] = squares - mean * mean;
    out[BP_MODEL_CONFIDENCE] = p[top];
    out[BP_MODEL_CORRECT] = top == target;
}
