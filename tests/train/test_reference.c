/* GPT-2 as somebody else computed it in float64 (../shared/reference/gpt2-tiny): probabilities over
 * the whole vocabulary, every parameter's gradient, the losses of five AdamW steps; on 1, 2 and 4
 * ranks. */
#include "bp_test_batch.h"
#include "bp_test_mpi.h"

#include "base/config/json.h"
#include "math/kernels/kernels.h"
#include "models/list.h"
#include "train/adamw.h"
#include "train/engine/gradient.h"
#include "train/engine/stage.h"

#include <math.h>

#define SEQUENCES 2
#define LENGTH    48
#define V         300

static const bp_model_shape SHAPE = {
    .family = &bp_gpt_family, .layers = 2, .width = 64, .heads = 4, .context = 64, .vocab_size = V};

/* A safetensors file, whole, as a reader of a few lines sees it. */
typedef struct tensors {
    char *bytes;
    json_t *header;
    const float *data;
} tensors;

static void open_tensors(tensors *t, const char *path)
{
    size_t bytes;
    uint64_t header_bytes;

    bp_test_expect(bp_file_read(path, 1 << 26, &t->bytes, &bytes), BP_OK);
    memcpy(&header_bytes, t->bytes, 8);
    t->header = json_loadb(t->bytes + 8, header_bytes, 0, NULL);
    assert_non_null(t->header);
    t->data = bp_alloc("test", (int64_t)(bytes - 8 - header_bytes), 1);
    memcpy((void *)(uintptr_t)t->data, t->bytes + 8 + header_bytes, bytes - 8 - header_bytes);
}

static void close_tensors(tensors *t)
{
    json_decref(t->header);
    bp_free(t->bytes);
    bp_free((void *)(uintptr_t)t->data);
}

static const float *tensor_of(const tensors *t, const char *name, int64_t *elements)
{
    json_t *offsets = json_object_get(json_object_get(t->header, name), "data_offsets");
    json_int_t begin = json_integer_value(json_array_get(offsets, 0)),
               end = json_integer_value(json_array_get(offsets, 1));

    if (!offsets)
        print_error("there is no tensor %s\n", name);
    assert_non_null(offsets);
    *elements = (end - begin) / 4;
    return t->data + begin / 4;
}

/* Where a logical tensor lies in Hugging Face's: Conv1D weights are [in, out], and q, k, v are
 * columns of one of them. */
typedef struct place {
    char name[BP_PARAM_NAME];
    bool transposed;
    int64_t first_column, columns; /* of the file's tensor */
} place;

static place place_of(const char *name)
{
    static const char *const PAIRS[][2] = {
        {"ln1.gain", "ln_1.weight"}, {"ln1.bias", "ln_1.bias"}, {"attn.out.", "attn.c_proj."},
        {"ln2.gain", "ln_2.weight"}, {"ln2.bias", "ln_2.bias"}, {"mlp.up.", "mlp.c_fc."},
        {"mlp.down.", "mlp.c_proj."}};
    place p = {.columns = 0};
    long long layer;
    int used;

    if (sscanf(name, "h.%lld.%n", &layer, &used) != 1) {
        const char *gain = strcmp(name, "ln_f.gain") == 0 ? "ln_f.weight" : name;
        snprintf(p.name, sizeof p.name, strchr(name, '.') ? "%s" : "%s.weight", gain);
        return p;
    }
    const char *part = name + used, *last = strrchr(name, '.') + 1;
    p.transposed = strcmp(last, "weight") == 0;
    for (int k = 0; k < 3; k++) {
        char prefix[16];
        snprintf(prefix, sizeof prefix, "attn.%c.", "qkv"[k]);
        if (strncmp(part, prefix, strlen(prefix)) == 0) {
            snprintf(p.name, sizeof p.name, "h.%lld.attn.c_attn.%s", layer, last);
            p.first_column = k * SHAPE.width;
            p.columns = 3 * SHAPE.width;
            return p;
        }
    }
    for (size_t k = 0; k < sizeof PAIRS / sizeof PAIRS[0]; k++)
        if (strncmp(part, PAIRS[k][0], strlen(PAIRS[k][0])) == 0)
            snprintf(p.name, sizeof p.name, "h.%lld.%s%s", layer, PAIRS[k][1],
                     part + strlen(PAIRS[k][0]));
    return p;
}

/* The file's entry for entry (row, column) of a logical tensor. */
static int64_t index_in_file(const bp_param *param, const place *p, int64_t row, int64_t column)
{
    if (param->dims == 1)
        return p->first_column + column;
    int64_t columns = p->columns ? p->columns : p->transposed ? param->shape[0] : param->shape[1];
    return p->transposed ? column * columns + p->first_column + row : row * columns + column;
}

static void visit(const bp_param *param, const tensors *t, const char *prefix,
                  void (*each)(void *context, float *mine, float file), float *mine, void *context,
                  double *largest)
{
    place p = place_of(param->name);
    char name[BP_PARAM_NAME + 8];
    int64_t elements, rows = param->dims == 2 ? param->extent[0] : 1;
    int64_t columns = param->dims == 2 ? param->extent[1] : param->extent[0];
    int64_t row = param->dims == 2 ? param->offset[0] : 0,
            column = param->dims == 2 ? param->offset[1] : param->offset[0];

    snprintf(name, sizeof name, "%s%s", prefix, p.name);
    const float *file = tensor_of(t, name, &elements);
    *largest = 0;
    for (int64_t i = 0; i < elements; i++)
        *largest = fmax(*largest, fabs((double)file[i]));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            each(context, &mine[r * columns + c],
                 file[index_in_file(param, &p, row + r, column + c)]);
}

static void take(void *context, float *mine, float file)
{
    (void)context;
    *mine = file;
}

static void compare(void *context, float *mine, float file)
{
    double *worst = context;

    *worst = fmax(*worst, fabs((double)*mine - (double)file));
}

static void load_network(bp_network *network, const tensors *model)
{
    double largest;

    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++) {
            bp_param *param = &network->groups[g].params[k];
            visit(param, model, "", take, param->value, NULL, &largest);
        }
    bp_network_refresh(network);
}

typedef struct fixture {
    bp_mesh *mesh;
    bp_gemm *gemm;
    bp_network *network;
    bp_stage *stage;
    float *values, *scratch;
    tensors model, expected;
    int32_t windows[SEQUENCES * (LENGTH + 1)], inputs[SEQUENCES * LENGTH],
        targets[SEQUENCES * LENGTH];
} fixture;

static void read_tokens(fixture *f)
{
    json_t *root, *rows;

    bp_test_expect(bp_json_load(&root, bp_test_shared("reference/gpt2-tiny/tokens.json"), 1 << 20),
                   BP_OK);
    rows = json_object_get(root, "tokens");
    for (int b = 0; b < SEQUENCES; b++)
        for (int t = 0; t <= LENGTH; t++) {
            int32_t id = (int32_t)json_integer_value(
                json_array_get(json_array_get(rows, (size_t)b), (size_t)t));
            f->windows[b * (LENGTH + 1) + t] = id;
            if (t < LENGTH)
                f->inputs[b * LENGTH + t] = id;
            if (t > 0)
                f->targets[b * LENGTH + t - 1] = id;
        }
    json_decref(root);
}

static void open_fixture(fixture *f)
{
    int size = bp_comm_size(MPI_COMM_WORLD), tensors_along = size > 1 ? 2 : 1;
    bp_mesh_shape shape = {1, size / tensors_along, 1, tensors_along, BP_COORDINATOR_SHARED};
    bp_stage_spec spec = {
        .most = {1, {LENGTH}}, .micro_batches = SEQUENCES, .schedule = BP_1F1B, .tree = true};

    memset(f, 0, sizeof *f);
    open_tensors(&f->model, bp_test_shared("reference/gpt2-tiny/model.safetensors"));
    open_tensors(&f->expected, bp_test_shared("reference/gpt2-tiny/expected.safetensors"));
    read_tokens(f);
    bp_test_expect(bp_mesh_new(&f->mesh, MPI_COMM_WORLD, &shape), BP_OK);
    bp_test_expect(bp_gemm_new(&f->gemm, BP_F32), BP_OK);
    bp_nn nn = {.gemm = f->gemm,
                .tensor = f->mesh->tensor,
                .tensor_rank = f->mesh->tensor_rank,
                .tensor_ranks = tensors_along};
    bp_test_expect(
        bp_model_network_new(&f->network, &nn, &SHAPE, f->mesh->pipeline_rank, shape.pipeline),
        BP_OK);
    bp_network_lay_out(f->network, BP_NORM_BLOCK);
    f->values = bp_alloc("test", f->network->floats, sizeof(float));
    f->scratch = bp_alloc("test", bp_gradient_scratch(f->mesh, f->network), sizeof(float));
    bp_test_expect(bp_network_bind_values(f->network, f->values), BP_OK);
    spec.stage = f->mesh->pipeline_rank;
    spec.stages = shape.pipeline;
    bp_test_expect(bp_stage_new(&f->stage, f->mesh, f->network, &spec), BP_OK);
    load_network(f->network, &f->model);
}

static void close_fixture(fixture *f)
{
    bp_stage_free(&f->stage);
    bp_network_free(&f->network);
    bp_gemm_free(&f->gemm);
    bp_mesh_free(&f->mesh);
    bp_free(f->values);
    bp_free(f->scratch);
    close_tensors(&f->model);
    close_tensors(&f->expected);
}

/* The model is never asked for its logits: each word of the vocabulary in turn is the target of all
 * positions. */
static void every_probability_is_the_reference_s(void **state)
{
    fixture f;
    int64_t n;
    double worst = 0;

    (void)state;
    open_fixture(&f);
    const float *logits = tensor_of(&f.expected, "logits", &n);
    assert_int_equal(n, SEQUENCES * LENGTH * V);
    for (int32_t v = 0; v < V; v++)
        for (int b = 0; b < SEQUENCES; b++)
            for (int t = 0; t < LENGTH;
                 t += 7) { /* one position at a time: the loss is its log-probability */
                int32_t targets[LENGTH];
                double sum[BP_TERMS], norm = 0;
                int64_t count[BP_TERMS];
                bp_batch one = bp_batch_of_positions(1, LENGTH, f.inputs + b * LENGTH, targets);
                const float *row = logits + (b * LENGTH + t) * V;

                for (int k = 0; k < LENGTH; k++)
                    targets[k] = k == t ? v : -1;
                if (v % 23 != 0 && t > 0)
                    continue; /* all words at the first position, some at the others */
                bp_stage_evaluate(f.stage, &(bp_evaluation){.batch = &one}, sum, count);
                for (int k = 0; k < V; k++)
                    norm += exp((double)row[k]);
                if (f.mesh->pipeline_rank == f.mesh->pipeline_ranks - 1)
                    worst = fmax(worst, fabs(-sum[0] - ((double)row[v] - log(norm))));
            }
    close_fixture(&f);
    bp_test_check(MPI_COMM_WORLD, worst < 1e-4);
}

static void start_sum(void *context, int g)
{
    bp_gradient_start(context, g);
}

static void every_gradient_is_the_reference_s(void **state)
{
    fixture f;
    double sums[SEQUENCES] = {0};
    bp_async *async;
    bool agrees = true;

    (void)state;
    open_fixture(&f);
    bp_test_expect(bp_async_new(&async, f.mesh->data, f.network->group_count, true), BP_OK);
    bp_reduction reduction = {.mesh = f.mesh,
                              .network = f.network,
                              .async = async,
                              .gradients = f.stage->gradient,
                              .scratch = f.scratch};
    bp_batch batch = bp_batch_of_positions(SEQUENCES, LENGTH, f.inputs, f.targets);
    bp_stage_step step = {.batch = &batch,
                          .step = 1,
                          .loss_weight = {(float)(1.0 / (SEQUENCES * LENGTH))},
                          .is_whole = start_sum,
                          .context = &reduction};
    bp_stage_accumulate(f.stage, &step, sums, 0);
    bp_gradient_finish(&reduction);
    bp_async_free(&async);
    bp_network_bind_gradients(f.network, f.stage->gradient);
    for (int g = 0; g < f.network->group_count; g++)
        for (int k = 0; k < f.network->groups[g].count; k++) {
            bp_param *param = &f.network->groups[g].params[k];
            double worst = 0, largest;
            visit(param, &f.expected, "grad.", compare, param->gradient, &worst, &largest);
            if (!(worst <= 1e-4 * largest)) {
                print_error("%s: off by %g of %g\n", param->name, worst, largest);
                agrees = false;
            }
        }
    close_fixture(&f);
    bp_test_check(MPI_COMM_WORLD, agrees);
}

static const char *engine_model_path;

/* The engine takes its values as from a checkpoint: through slices. */
static void load_engine(bp_engine *engine)
{
    tensors model;
    bp_slice *slices;
    int64_t count;

    open_tensors(&model, engine_model_path);
    slices = bp_engine_slices_to_load(engine, true, &count);
    for (int64_t k = 0; k < count; k++) {
        bp_param param = {.dims = slices[k].dims};
        double largest;
        snprintf(param.name, sizeof param.name, "%.*s", BP_PARAM_NAME - 1, slices[k].name);
        for (int d = 0; d < param.dims; d++) {
            param.shape[d] = slices[k].shape[d];
            param.offset[d] = slices[k].offset[d];
            param.extent[d] = slices[k].extent[d];
        }
        visit(&param, &model, "", take, slices[k].data, NULL, &largest);
    }
    bp_free(slices);
    close_tensors(&model);
    bp_engine_loaded(engine);
}

/* The sixth "step" begins while the gathers of the fifth are under way: from the loaded values. */
static void five_adamw_steps_have_the_reference_s_losses_and_a_load_ends_gathers(void **state)
{
    int size = bp_comm_size(MPI_COMM_WORLD), data = size > 1 ? 2 : 1;
    bp_mesh_shape mesh_shape = {1, size / data, data, 1, BP_COORDINATOR_SHARED};
    bp_model_shape shape = SHAPE;
    bp_engine_spec spec = {
        .batch = SEQUENCES, .micro_batch = 1, .schedule = BP_1F1B, .tree = true, .overlap = true};
    bp_mesh *mesh;
    bp_engine *engine;
    fixture f = {0};
    json_t *expected;

    (void)state;
    engine_model_path = bp_test_shared("reference/gpt2-tiny/model.safetensors");
    bp_test_expect(
        bp_json_load(&expected, bp_test_shared("reference/gpt2-tiny/expected.json"), 1 << 20),
        BP_OK);
    read_tokens(&f);
    bp_test_adamw(&spec, 1e-3, 5);
    shape.context = LENGTH; /* positions that no token has do not matter */
    bp_test_expect(bp_mesh_new(&mesh, MPI_COMM_WORLD, &mesh_shape), BP_OK);
    bp_test_expect(bp_engine_new(&engine, mesh, &spec, &shape), BP_OK);
    load_engine(engine);
    bp_example_maker maker = bp_objective_causal.maker(NULL, LENGTH, NULL);
    void *bytes = bp_alloc("test", (int64_t)bp_batch_bytes(&maker.form, SEQUENCES), 1);
    for (int step = 1; step <= 6; step++) {
        int64_t first, count;
        bp_step_result result;
        double loss = json_real_value(
            json_array_get(json_object_get(expected, "adamw_losses"), (size_t)(step - 1) % 5));

        if (step == 6)
            load_engine(engine);
        bp_engine_slots(engine, &first, &count);
        bp_batch batch =
            bp_test_batch(&maker, f.windows + first * (LENGTH + 1), step, first, count, bytes);
        bp_engine_step(engine, step, step, &batch, &result);
        bp_test_check(MPI_COMM_WORLD, fabs(result.loss - loss) < 1e-5);
        double norm = json_real_value(json_object_get(expected, "grad_norm"));
        bp_test_check(MPI_COMM_WORLD, step > 1 || fabs(result.grad_norm - norm) < 1e-4);
    }
    bp_free(bytes);
    bp_engine_free(&engine);
    bp_mesh_free(&mesh);
    json_decref(expected);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_probability_is_the_reference_s),
        cmocka_unit_test(every_gradient_is_the_reference_s),
        cmocka_unit_test(five_adamw_steps_have_the_reference_s_losses_and_a_load_ends_gathers),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
