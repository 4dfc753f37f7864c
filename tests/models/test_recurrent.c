/* Recurrent families against torch.nn in float64: two windows with the state carried between them
 * (losses, states, every gradient), and five steps of AdamW on five windows. */
#include "bp_test_mpi.h"
#include "train/adamw.h"

#include "io/huggingface/hf_model_priv.h"
#include "io/huggingface/safetensors.h"
#include "mesh/collective.h"
#include "models/family.h"
#include "train/engine/engine.h"
#include "train/engine/stage.h"

#include <math.h>
#include <string.h>

enum { B = 3, T = 9, WINDOWS = 5, MOST_CARRIES = 8 };

typedef struct fixture {
    const char *folder;
    bp_hf_model *model;
    bp_hf_shape hf;
    bp_model_shape shape;
    bp_safetensors *expected;
    json_t *figures;
    int32_t inputs[WINDOWS][B * T], targets[WINDOWS][B * T];
} fixture;

static char *file_of(const char *folder, const char *file)
{
    static char path[4096];
    char relative[128];

    snprintf(relative, sizeof relative, "reference/%s/%s", folder, file);
    snprintf(path, sizeof path, "%s", bp_test_shared(relative));
    return path;
}

static void open_fixture(fixture *f, const char *folder)
{
    json_t *root, *state = json_object();

    *f = (fixture){.folder = folder};
    bp_test_expect(bp_hf_open(&f->model, file_of(folder, "."), bp_model_huggingface_tables()),
                   BP_OK);
    f->hf = bp_hf_shape_of(f->model);
    json_object_set_new(state, "model", bp_hf_model_json(&f->hf));
    bp_test_expect(bp_model_shape_read(&f->shape, state, folder), BP_OK);
    json_decref(state);
    f->shape.context = T;
    bp_test_expect(bp_safetensors_open(&f->expected, file_of(folder, "expected.safetensors")),
                   BP_OK);
    bp_test_expect(bp_json_load(&f->figures, file_of(folder, "expected.json"), 1 << 20), BP_OK);
    bp_test_expect(bp_json_load(&root, file_of(folder, "tokens.json"), 1 << 20), BP_OK);
    for (size_t at = 0; at < WINDOWS * T; at++)
        for (size_t b = 0; b < B; b++) {
            const json_t *row = json_array_get(json_object_get(root, "tokens"), b);
            size_t place = b * T + at % T;

            f->inputs[at / T][place] = (int32_t)json_integer_value(json_array_get(row, at));
            f->targets[at / T][place] = (int32_t)json_integer_value(json_array_get(row, at + 1));
        }
    json_decref(root);
}

static void close_fixture(fixture *f)
{
    bp_hf_close(&f->model);
    bp_safetensors_close(&f->expected);
    json_decref(f->figures);
}

static float *read_tensor(fixture *f, const char *name)
{
    const bp_safetensor *tensor = bp_safetensors_find(f->expected, name);

    assert_non_null(tensor);
    float *out = bp_alloc("test", tensor->count, sizeof *out);
    bp_test_expect(bp_safetensors_read(f->expected, tensor, 0, tensor->count, out), BP_OK);
    return out;
}

static double figure(fixture *f, const char *name)
{
    return json_real_value(json_object_get(f->figures, name));
}

/* A rank's slab of a whole tensor. */
static void take_slab(const bp_slice *slab, float *to, const float *whole)
{
    int last = slab->dims - 1;
    int64_t rows = last ? slab->extent[0] : 1, first = last ? slab->offset[0] : 0;

    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * slab->extent[last],
               whole + (first + r) * slab->shape[last] + slab->offset[last],
               (size_t)slab->extent[last] * sizeof *to);
}

static bp_slice slab_of(const bp_param *param)
{
    bp_slice out = {.dims = param->dims};

    memcpy(out.shape, param->shape, sizeof param->shape);
    memcpy(out.offset, param->offset, sizeof param->offset);
    memcpy(out.extent, param->extent, sizeof param->extent);
    return out;
}

static void load(fixture *f, const bp_slice *slab, const char *name, float *to)
{
    int64_t count;
    const bp_slice *slices = bp_hf_slices(f->model, &count);
    const float *data = NULL;

    for (int64_t k = 0; k < count; k++)
        if (strcmp(slices[k].name, name) == 0)
            bp_test_expect(bp_hf_fetch(f->model, &slices[k], k, &data), BP_OK);
    assert_non_null(data);
    take_slab(slab, to, data);
}

/* ---- two windows ---- */

typedef struct parts {
    bp_mesh *mesh;
    bp_gemm *gemm;
    bp_network *network;
    bp_stage *stage;
    float *values, *rows[2 * MOST_CARRIES];
} parts;

static void open_parts(parts *p, fixture *f, bool recompute)
{
    int size = bp_comm_size(MPI_COMM_WORLD), tensors = size > 1 ? 2 : 1;
    bp_mesh_shape mesh = {1, size / tensors, 1, tensors, BP_COORDINATOR_SHARED};
    bp_stage_spec spec = {
        .most = {B, {T}}, .micro_batches = 1, .schedule = BP_1F1B, .recompute = recompute};

    bp_test_expect(bp_mesh_new(&p->mesh, MPI_COMM_WORLD, &mesh), BP_OK);
    bp_test_expect(bp_gemm_new(&p->gemm, BP_F32), BP_OK);
    bp_nn nn = {.gemm = p->gemm,
                .tensor = p->mesh->tensor,
                .tensor_rank = p->mesh->tensor_rank,
                .tensor_ranks = tensors};
    bp_test_expect(
        bp_model_network_new(&p->network, &nn, &f->shape, p->mesh->pipeline_rank, mesh.pipeline),
        BP_OK);
    bp_network_lay_out(p->network, 1);
    p->values = bp_alloc("test", p->network->floats, sizeof(float));
    bp_test_expect(bp_network_bind_values(p->network, p->values), BP_OK);
    for (int g = 0; g < p->network->group_count; g++)
        for (int k = 0; k < p->network->groups[g].count; k++) {
            bp_param *param = &p->network->groups[g].params[k];
            bp_slice slab = slab_of(param);

            load(f, &slab, param->name, param->value);
        }
    for (int k = 0; k < p->network->carry_count; k++)
        for (int parity = 0; parity < 2; parity++) {
            bp_carry *carry = &p->network->carries[k];

            carry->rows[parity] = p->rows[2 * k + parity] =
                bp_alloc("test", B * carry->columns, sizeof(float));
            memset(carry->rows[parity], 0, (size_t)(B * carry->columns) * sizeof(float));
        }
    bp_network_refresh(p->network);
    spec.stage = p->mesh->pipeline_rank;
    spec.stages = mesh.pipeline;
    bp_test_expect(bp_stage_new(&p->stage, p->mesh, p->network, &spec), BP_OK);
}

static void close_parts(parts *p)
{
    bp_stage_free(&p->stage);
    bp_network_free(&p->network);
    bp_gemm_free(&p->gemm);
    bp_mesh_free(&p->mesh);
    bp_free(p->values);
    for (int k = 0; k < 2 * MOST_CARRIES; k++)
        bp_free(p->rows[k]);
}

static bool is_near(const fixture *f, const char *what, const float *mine, const float *theirs,
                    int64_t count, double tolerance)
{
    double worst = 0;

    for (int64_t i = 0; i < count; i++)
        worst = fmax(worst, fabs((double)(mine[i] - theirs[i])));
    if (!(worst <= tolerance))
        print_error("%s, %s: off by %g, more than %g\n", f->folder, what, worst, tolerance);
    return worst <= tolerance;
}

/* Whole, of one of ours: from the tensor of theirs that it is a part of. */
static float *gradient_of(fixture *f, const bp_param *param, int window)
{
    int64_t count = param->shape[0] * (param->dims == 2 ? param->shape[1] : 1);
    float *ours = bp_alloc("test", count, sizeof *ours);

    for (int64_t k = 0; k < hf_tensor_count(&f->hf); k++) {
        hf_tensor theirs;

        hf_tensor_of(&theirs, &f->hf, k);
        for (int part = 0; part < theirs.parts; part++) {
            char name[2 * HF_NAME];

            if (strcmp(theirs.ours[part], param->name) != 0)
                continue;
            snprintf(name, sizeof name, "window%d.grad.%s", window, theirs.name);
            float *whole = read_tensor(f, name);
            hf_take_part(ours, whole, &theirs, part);
            bp_free(whole);
        }
    }
    return ours;
}

static bool gradients_agree(fixture *f, parts *p, int window)
{
    bool agree = true;

    for (int g = 0; g < p->network->group_count; g++)
        for (int k = 0; k < p->network->groups[g].count; k++) {
            const bp_group *group = &p->network->groups[g];
            const bp_param *param = &group->params[k];
            int64_t all = param->shape[0] * (param->dims == 2 ? param->shape[1] : 1);
            float *whole = gradient_of(f, param, window), largest = 0,
                  *slab = bp_alloc("test", all, sizeof *slab);
            bp_slice at = slab_of(param);

            for (int64_t i = 0; i < all; i++)
                largest = fmaxf(largest, fabsf(whole[i]));
            take_slab(&at, slab, whole);
            /* a tied table's gradient lies in parts on two stages */
            if (!group->tied || p->mesh->pipeline_ranks == 1)
                agree = is_near(f, param->name, p->stage->gradient + group->place + param->place,
                                slab, bp_param_floats(param), 1e-4 * (double)largest) &&
                        agree;
            bp_free(whole);
            bp_free(slab);
        }
    return agree;
}

/* What the blocks of this stage carry after a window: "carry/h.K.state" is row K of "h". */
static bool states_agree(fixture *f, parts *p, int window)
{
    bool agree = true;

    for (int k = 0; k < p->network->carry_count; k++) {
        const bp_carry *carry = &p->network->carries[k];
        bool is_cell = strstr(carry->name, "cell") != NULL;
        int64_t layer = carry->name[strlen("carry/h.")] - '0', n = B * carry->columns;
        char name[64];

        snprintf(name, sizeof name, "window%d.%s", window, is_cell ? "c" : "h");
        float *theirs = read_tensor(f, name);
        agree =
            is_near(f, carry->name, carry->rows[(window + 1) & 1], theirs + layer * n, n, 5e-6) &&
            agree;
        bp_free(theirs);
    }
    return agree;
}

static void check_windows(fixture *f, bool recompute)
{
    parts p = {0};

    open_parts(&p, f, recompute);
    for (int w = 0; w < 2; w++) {
        bp_batch batch = bp_batch_of_positions(B, T, f->inputs[w], f->targets[w]);
        bp_stage_step step = {.batch = &batch, .step = w + 1, .loss_weight = {1.0F / (B * T)}};
        double sums[BP_TERMS] = {0};
        char name[32];

        bp_stage_accumulate(p.stage, &step, sums, 1);
        snprintf(name, sizeof name, "window%d.loss", w);
        bool loss = p.mesh->pipeline_rank < p.mesh->pipeline_ranks - 1 ||
                    fabs(sums[0] / (B * T) - figure(f, name)) < 5e-6;
        bp_test_check(MPI_COMM_WORLD, loss);
        bool agree = gradients_agree(f, &p, w);
        bp_test_check(MPI_COMM_WORLD, states_agree(f, &p, w) && agree);
    }
    close_parts(&p);
}

/* ---- documents ---- */

/* The sum of the losses of window 0, without a carried state. */
static double loss_of(fixture *f, parts *p, const bp_batch *batch, int64_t step)
{
    double sums[BP_TERMS] = {0};
    bp_stage_step one = {.batch = batch, .step = step, .loss_weight = {1}};

    (void)f;
    for (int k = 0; k < p->network->carry_count; k++)
        for (int parity = 0; parity < 2; parity++)
            memset(p->network->carries[k].rows[parity], 0,
                   (size_t)(B * p->network->carries[k].columns) * sizeof(float));
    bp_stage_accumulate(p->stage, &one, sums, 1);
    return sums[0];
}

/* A window whose examples begin documents at some positions has the losses of its pieces, each from
 * the zero state; its gradient is the change of its loss. */
static void check_documents(fixture *f)
{
    enum { BEGIN = 7 }; /* a token */
    static const int positions[][2] = {
        {0, 4}, {5, 3}, {8, 2}}; /* of example b: two documents begin */
    bp_batch batch = bp_batch_of_positions(B, T, f->inputs[0], f->targets[0]);
    int32_t pieces[B * T], after[B * T];
    parts p = {0};
    double whole, apart = 0;

    open_parts(&p, f, false);
    for (int i = 0; i < B * T; i++)
        f->inputs[0][i] = f->inputs[0][i] == BEGIN ? BEGIN + 1 : f->inputs[0][i];
    for (int b = 0; b < B; b++)
        for (int k = 0; k < 2; k++)
            f->inputs[0][b * T + positions[b][k]] = BEGIN;
    p.stage->spec.restart = 1 + BEGIN;
    whole = loss_of(f, &p, &batch, 1);
    bp_param *param = NULL; /* the first layer's product with its state */
    for (int g = 0; g < p.network->group_count; g++)
        for (int k = 0; k < p.network->groups[g].count; k++)
            if (strcmp(p.network->groups[g].params[k].name, "h.0.hidden.weight") == 0)
                param = &p.network->groups[g].params[k];
    assert_non_null(param);
    int64_t n = bp_param_floats(param);
    float *gradient = bp_alloc("test", n, sizeof *gradient),
          *values = bp_alloc("test", n, sizeof *values);
    double square = 0, change[2];
    for (int g = 0; g < p.network->group_count; g++)
        if (param >= p.network->groups[g].params &&
            param < p.network->groups[g].params + p.network->groups[g].count)
            memcpy(gradient, p.stage->gradient + p.network->groups[g].place + param->place,
                   (size_t)n * sizeof *gradient);
    memcpy(values, param->value, (size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++)
        square += (double)gradient[i] * (double)gradient[i];
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < n; i++)
            param->value[i] =
                values[i] + (side ? -1 : 1) * 1e-2F * gradient[i] / (float)sqrt(square);
        bp_network_refresh(p.network);
        change[side] = loss_of(f, &p, &batch, 2 + side);
    }
    assert_true(fabs((change[0] - change[1]) / 2e-2 / sqrt(square) - 1) < 1e-2);
    memcpy(param->value, values, (size_t)n * sizeof *values);
    bp_network_refresh(p.network);
    p.stage->spec.restart = 0;
    for (int piece = 0; piece < 3; piece++) { /* of each example, from its own first place on */
        for (int b = 0; b < B; b++) {
            int low = positions[b][0] < positions[b][1] ? positions[b][0] : positions[b][1];
            int high = positions[b][0] + positions[b][1] - low;
            int from = piece == 0   ? 0
                       : piece == 1 ? low
                                    : high,
                to = piece == 0   ? low
                     : piece == 1 ? high
                                  : T;

            for (int t = 0; t < T; t++) {
                bool inside = from + t < to;

                pieces[b * T + t] = inside ? f->inputs[0][b * T + from + t] : 0;
                after[b * T + t] = inside ? f->targets[0][b * T + from + t] : -1;
            }
        }
        batch = bp_batch_of_positions(B, T, pieces, after);
        apart += loss_of(f, &p, &batch, 4 + piece);
    }
    if (fabs(whole - apart) > 1e-4)
        print_error("%s: loss %.9g, of its documents %.9g\n", f->folder, whole, apart);
    assert_true(fabs(whole - apart) <= 1e-4);
    bp_free(values);
    bp_free(gradient);
    close_parts(&p);
}

/* ---- five steps ---- */

static void load_engine(fixture *f, bp_engine *engine)
{
    int64_t count;
    bp_slice *slices = bp_engine_slices_to_load(engine, true, &count);

    for (int64_t k = 0; k < count; k++)
        load(f, &slices[k], slices[k].name, slices[k].data);
    bp_free(slices);
    bp_engine_loaded(engine);
}

static void check_adamw(fixture *f)
{
    int size = bp_comm_size(MPI_COMM_WORLD);
    bp_mesh_shape mesh_shape = {1, size > 1 ? 2 : 1, 1, size > 1 ? size / 2 : 1,
                                BP_COORDINATOR_SHARED};
    bp_engine_spec spec = {
        .batch = B, .micro_batch = 1, .schedule = BP_1F1B, .tree = true, .overlap = true};
    bp_mesh *mesh;
    bp_engine *engine;

    bp_test_adamw(&spec, 1e-3, WINDOWS);
    bp_test_expect(bp_mesh_new(&mesh, MPI_COMM_WORLD, &mesh_shape), BP_OK);
    bp_test_expect(bp_engine_new(&engine, mesh, &spec, &f->shape), BP_OK);
    load_engine(f, engine);
    for (int w = 0; w < WINDOWS; w++) {
        bp_batch batch = bp_batch_of_positions(B, T, f->inputs[w], f->targets[w]);
        double expected =
            json_real_value(json_array_get(json_object_get(f->figures, "adamw_losses"), (size_t)w));
        bp_step_result result;

        bp_engine_step(engine, w + 1, w + 1, &batch, &result);
        if (fabs(result.loss - expected) >= 2e-5)
            print_error("%s, step %d: loss %.9g, not %.9g\n", f->folder, w + 1, result.loss,
                        expected);
        bp_test_check(MPI_COMM_WORLD, fabs(result.loss - expected) < 2e-5);
    }
    bp_engine_free(&engine);
    bp_mesh_free(&mesh);
}

static void recurrent_models_are_the_references(void **state)
{
    static const char *const FOLDERS[] = {"rnn-tiny",      "lstm-tiny",      "gru-tiny",
                                          "rnn-tied-tiny", "lstm-tied-tiny", "gru-tied-tiny"};

    (void)state;
    for (size_t k = 0; k < sizeof FOLDERS / sizeof FOLDERS[0]; k++) {
        fixture f;

        open_fixture(&f, FOLDERS[k]);
        check_windows(&f, false);
        check_windows(&f, true);
        check_adamw(&f);
        if (bp_comm_size(MPI_COMM_WORLD) == 1)
            check_documents(&f);
        close_fixture(&f);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(recurrent_models_are_the_references)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
