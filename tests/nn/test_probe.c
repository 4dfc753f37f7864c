/* What a probe sees of a network: the activations that its blocks leave, and weights of attention,
 * on one rank, on tensor ranks and on stages. */
#include "bp_test_mpi.h"
#include "bp_test_perturb.h"

#include "math/math.h"
#include "mesh/collective.h"
#include "models/list.h"
#include "models/network/network_inside_priv.h"
#include "models/network/network_model.h"
#include "models/open.h"
#include "nn/core/layers.h"

#include <math.h>

#define WORLD MPI_COMM_WORLD

enum { V = 61, T = 12, B = 3, L = 2, C = 32, HEADS = 4 };

static const bp_model_shape gpt = {.family = &bp_gpt_family,
                                   .layers = L,
                                   .width = C,
                                   .heads = HEADS,
                                   .context = T,
                                   .vocab_size = V};

typedef struct witness {
    bp_probe probe;
    int64_t rows;         /* of a piece: stages get a batch window by window */
    int hidden, matrices; /* seen */
    int wrong;            /* of them */
    bool heads[B][HEADS];
    float last[B * T * C]; /* after the last layer */
} witness;

/* Rows of a causal attention: they sum to 1, and nothing later is seen. */
static bool is_causal(const bp_probed *at)
{
    for (int64_t t = 0; t < at->rows; t++) {
        double sum = 0;

        for (int64_t k = 0; k < at->columns; k++) {
            float weight = at->x[t * at->columns + k];

            if (k > t ? weight != 0 : weight <= 0)
                return false;
            sum += (double)weight;
        }
        if (fabs(sum - 1) > 1e-5)
            return false;
    }
    return true;
}

static void see(bp_probe *probe, const bp_probed *at)
{
    witness *self = (witness *)probe;

    if (strcmp(at->what, "attention") == 0) {
        self->matrices++;
        self->wrong += at->rows != T || at->columns != T || !is_causal(at);
        self->heads[at->example][at->head] = true;
        return;
    }
    self->hidden++;
    self->wrong += strcmp(at->what, "hidden") != 0 || at->rows != self->rows || at->columns != C ||
                   at->block < 0 || at->block > L;
    if (at->block == L && at->rows == B * T)
        memcpy(self->last, at->x, sizeof self->last);
}

static void what_blocks_compute_is_seen(void **state)
{
    static const bp_option *const tables[] = {bp_math_options, NULL};
    static int32_t tokens[B * T];
    static float hidden[B * T * C], normed[B * T * C];
    int size = bp_comm_size(WORLD), stages = size == 4 ? 2 : 1, tensors = size / stages;
    bp_mesh_shape on = {1, stages, 1, tensors, BP_COORDINATOR_SHARED};
    bp_model_batch batch = {.windows = B, .length = T, .inputs = tokens, .targets = tokens};
    witness seen = {.probe = {.see = see, .attention = true}, .rows = stages > 1 ? T : B * T};
    bp_config *config;
    bp_mesh *mesh;
    bp_model *model;

    (void)state;
    for (int i = 0; i < B * T; i++)
        tokens[i] = (i * 17 + 5) % V;
    bp_test_expect(bp_config_new(&config, tables, tables), BP_OK);
    bp_test_expect(bp_config_set(config, "math.precision", "f32"), BP_OK);
    bp_test_expect(bp_mesh_new(&mesh, WORLD, &on), BP_OK);
    bp_test_check_err(WORLD, bp_model_new(&model, mesh, config, &gpt, 7), BP_OK);
    bp_test_perturb(((network_model *)model)->network, 3, 0.3F);
    bp_network_refresh(((network_model *)model)->network);
    bp_test_check_err(WORLD, model->ops->backbone(model, &batch, BP_MODEL_NO_DROPOUT, hidden),
                      BP_OK);
    model->ops->set_probe(model, &seen.probe);
    bp_test_check_err(WORLD, model->ops->backbone(model, &batch, BP_MODEL_NO_DROPOUT, normed),
                      BP_OK);
    model->ops->set_probe(model, NULL);

    bool last = mesh->pipeline_rank == stages - 1;
    const network_model *network = (const network_model *)model;
    int layers =
        network->network->block_count - (last ? 1 : 0) - (mesh->pipeline_rank == 0 ? 1 : 0);
    int pieces = stages == 1 ? 1 : B;
    bool right = seen.matrices == layers * B * HEADS / tensors && seen.wrong == 0 &&
                 seen.hidden == pieces * (layers + (mesh->pipeline_rank == 0 ? 1 : 0));
    if (last)
        right = right && memcmp(hidden, normed, sizeof hidden) == 0;
    if (last &&
        stages == 1) { /* the model's hidden state is the norm of what the last layer left */
        bp_lm_head_norm(network_head(network), normed, seen.last, B * T);
        right = right && memcmp(hidden, normed, sizeof hidden) == 0;
    }
    int64_t heads = 0;
    for (int i = 0; i < B * HEADS; i++)
        heads += seen.heads[i / HEADS][i % HEADS];
    right = right && heads == (layers > 0 ? B * HEADS / tensors : 0);
    bp_test_check(WORLD, right);
    bp_model_free(&model);
    bp_mesh_free(&mesh);
    bp_config_free(&config);
}

/* What explanations of several targets keep of one pass forward. */
static void repeated_rows_are_copies(void **state)
{
    enum { ROWS = 3, STRIDE = 5, TIMES = 4 };
    float from[ROWS * STRIDE], to[TIMES * ROWS * STRIDE + 1];
    bp_operand some = {.data = from, .rows = ROWS, .columns = 4, .stride = STRIDE}, all = some;

    (void)state;
    all.data = to;
    all.rows = TIMES * ROWS;
    for (int k = 0; k < ROWS * STRIDE; k++)
        from[k] = (float)k;
    for (int k = 0; k <= TIMES * ROWS * STRIDE; k++)
        to[k] = -1;
    bp_repeat_rows(&all, &some, TIMES);
    for (int r = 0; r < TIMES * ROWS; r++)
        for (int c = 0; c < some.columns; c++)
            assert_true(to[r * STRIDE + c] == from[r % ROWS * STRIDE + c]);
    assert_true(to[TIMES * ROWS * STRIDE] == -1);
    all.data = NULL;
    bp_repeat_rows(&all, &some, TIMES);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(what_blocks_compute_is_seen),
                                              cmocka_unit_test(repeated_rows_are_copies)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
