/* Vectors of texts, of encoders without a head and with one: those of the fixtures, which other
 * software computed in float64, and means of the states that it gave; on every mesh. */
#include "bp_test_mpi.h"

#include "ensemble_world.h"
#include "io/huggingface/hf_model.h"
#include "io/huggingface/safetensors.h"
#include "models/open.h"

#define WORLD MPI_COMM_WORLD

typedef struct fixture {
    bp_safetensors *expected;
    json_t *tokens;
    int64_t B, T, C;
    int32_t *inputs, *targets, *segments;
} fixture;

static char *file_of(const char *folder, const char *file)
{
    static char path[4096];
    char relative[128];

    snprintf(relative, sizeof relative, "reference/%s/%s", folder, file);
    snprintf(path, sizeof path, "%s", bp_test_shared(relative));
    return path;
}

static int64_t number(const fixture *f, const char *name, int64_t k)
{
    const json_t *rows = json_object_get(f->tokens, name);

    return json_integer_value(
        json_array_get(json_array_get(rows, (size_t)(k / f->T)), (size_t)(k % f->T)));
}

/* The folder as a checkpoint, as bagpipe-data import makes it. */
static void import(const char *folder)
{
    const char *path = file_of(folder, "."); /* all ranks skip the test where there is none */
    bp_hf_model *model;
    int64_t count;

    if (bp_comm_rank(WORLD) == 0) {
        bp_test_expect(bp_hf_open(&model, path, bp_model_huggingface_tables()), BP_OK);
        bp_hf_shape shape = bp_hf_shape_of(model);
        const bp_slice *slices = bp_hf_slices(model, &count);
        json_t *state = json_pack("{s:i, s:o, s:s, s:i, s:b}", "step", 0, "model",
                                  bp_hf_model_json(&shape), "tokenizer_hash", "", "eod_id", -1,
                                  "headless", bp_hf_report_of(model).headless ? 1 : 0);
        bp_checkpoint_commit commit = {
            .parent = bp_test_path("."), .name = folder, .fetch = bp_hf_fetch, .context = model};

        bp_test_expect(bp_checkpoint_save(MPI_COMM_SELF, &commit, slices, count, state), BP_OK);
        json_decref(state);
        bp_hf_close(&model);
    }
    MPI_Barrier(WORLD);
}

static void open_fixture(fixture *f, const char *folder)
{
    *f = (fixture){0};
    import(folder);
    bp_test_expect(bp_safetensors_open(&f->expected, file_of(folder, "expected.safetensors")),
                   BP_OK);
    bp_test_expect(bp_json_load(&f->tokens, file_of(folder, "tokens.json"), 1 << 20), BP_OK);
    const bp_safetensor *hidden = bp_safetensors_find(f->expected, "hidden");
    f->B = hidden->shape[0];
    f->T = (int64_t)json_array_size(json_array_get(json_object_get(f->tokens, "input_ids"), 0));
    f->C = hidden->count / f->B / f->T;
    f->inputs = bp_alloc("test", f->B * f->T, sizeof(int32_t));
    f->targets = bp_alloc("test", f->B * f->T, sizeof(int32_t));
    f->segments = bp_alloc("test", f->B * f->T, sizeof(int32_t));
    for (int64_t k = 0; k < f->B * f->T; k++) {
        bool seen = number(f, "attention_mask", k) != 0;

        f->inputs[k] = seen ? (int32_t)number(f, "input_ids", k) : -1;
        f->targets[k] = k % f->T == 0 ? 0 : -1;
        f->segments[k] = seen ? (int32_t)number(f, "token_type_ids", k) : 0;
    }
}

static void close_fixture(fixture *f)
{
    bp_safetensors_close(&f->expected);
    json_decref(f->tokens);
    bp_free(f->inputs);
    bp_free(f->targets);
    bp_free(f->segments);
}

/* What the states of the last layer, [B][T][C], are pooled to. */
static void pool(const fixture *f, const char *how, float *out)
{
    const bp_safetensor *tensor = bp_safetensors_find(f->expected, "hidden");
    float *hidden = bp_alloc("test", tensor->count, sizeof *hidden);

    bp_test_expect(bp_safetensors_read(f->expected, tensor, 0, tensor->count, hidden), BP_OK);
    for (int64_t b = 0; b < f->B; b++) {
        int64_t length = 0;

        while (length < f->T && f->inputs[b * f->T + length] >= 0)
            length++;
        for (int64_t c = 0; c < f->C; c++) {
            const float *at = hidden + b * f->T * f->C + c;
            double sum = 0;

            for (int64_t t = 0; t < length; t++)
                sum += (double)at[t * f->C];
            out[b * f->C + c] = strcmp(how, "first") == 0  ? at[0]
                                : strcmp(how, "last") == 0 ? at[(length - 1) * f->C]
                                                           : (float)(sum / (double)length);
        }
    }
    bp_free(hidden);
}

static void check(const fixture *f, const char *folder, const bp_mesh_shape *shape, const char *how)
{
    float *got = bp_alloc("test", f->B * f->C, sizeof *got),
          *want = bp_alloc("test", f->B * f->C, sizeof *want);
    bp_model_batch batch = {.windows = f->B,
                            .length = f->T,
                            .inputs = f->inputs,
                            .targets = f->targets,
                            .segments = f->segments};
    bp_config *config = world_config();
    const bp_safetensor *stored = bp_safetensors_find(f->expected, how);
    double worst = 0;
    bp_mesh *mesh;
    bp_model *model;

    bp_test_expect(bp_mesh_new(&mesh, WORLD, shape), BP_OK);
    bp_test_check_err(
        WORLD, bp_model_open_vectors(&model, mesh, config, bp_test_path(folder), 0, how), BP_OK);
    bp_test_check(WORLD, model->info.vocab_size == f->C);
    bp_test_check_err(WORLD, bp_model_distribution(model, &batch, got, NULL), BP_OK);
    pool(f, how, want);
    for (int64_t k = 0; k < f->B * f->C; k++)
        worst = fmax(worst, fabs((double)(got[k] - want[k])));
    if (stored) {
        bp_test_expect(bp_safetensors_read(f->expected, stored, 0, f->B * f->C, want), BP_OK);
        for (int64_t k = 0; k < f->B * f->C; k++)
            worst = fmax(worst, fabs((double)(got[k] - want[k])));
    }
    if (!(worst < 2e-5))
        print_error("%s, %s: off by %g\n", folder, how, worst);
    bp_test_check(WORLD, worst < 2e-5);
    bp_model_free(&model);
    bp_mesh_free(&mesh);
    bp_config_free(&config);
    bp_free(got);
    bp_free(want);
}

static void vectors_are_those_of_the_fixtures(void **state)
{
    static const char *const FOLDERS[] = {"minilm-tiny",      "bert-tiny",       "roberta-tiny",
                                          "xlm-roberta-tiny", "distilbert-tiny", "modernbert-tiny",
                                          "deberta-v3-tiny"};
    static const char *const POOLS[] = {"mean", "first", "last"};

    (void)state;
    for (size_t k = 0; k < sizeof FOLDERS / sizeof FOLDERS[0]; k++) {
        fixture f;

        open_fixture(&f, FOLDERS[k]);
        for (int p = 0; p < 3; p++)
            for (int way = 0; way < 2; way++) {
                int size = bp_comm_size(WORLD);
                bp_mesh_shape shape = {1, way ? size : 1, way ? 1 : size, 1, BP_COORDINATOR_SHARED};

                check(&f, FOLDERS[k], &shape, POOLS[p]);
            }
        close_fixture(&f);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(vectors_are_those_of_the_fixtures)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
