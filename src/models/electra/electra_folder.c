/* Both halves of ELECTRA in one folder, generator/ and discriminator/, each in Hugging Face's
 * format. Called by electra.c. */
#include "models/electra/electra.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/huggingface/hf_model.h"
#include "models/shape/shape_json.h"

#include <string.h>

static const char *const HALVES[] = {"generator", "discriminator"};
enum { GENERATOR, DISCRIMINATOR, HALF_COUNT };

/* A half's own sizes, under both names that a "model" object has for them. */
static const char *const OWN[][2] = {{"layers", "generator_layers"},
                                     {"width", "generator_width"},
                                     {"heads", "generator_heads"},
                                     {"inner", "generator_inner"}};
#define OWN_COUNT (sizeof OWN / sizeof OWN[0])

json_t *bp_electra_half(const bp_model_shape *shape, int half, const char **name)
{
    json_t *model;

    if (bp_electra_sizes_of(shape)->part != BP_ELECTRA_BOTH || bp_task_has_head(&shape->task) ||
        half >= HALF_COUNT)
        return NULL;
    *name = HALVES[half];
    model = bp_model_shape_json(shape);
    (void)json_object_set_new(model, "part", bp_json_string(HALVES[half]));
    for (size_t k = 0; half == GENERATOR && k < OWN_COUNT; k++)
        (void)json_object_set(model, OWN[k][0], json_object_get(model, OWN[k][1]));
    return model;
}

bool bp_electra_folder_is(const char *path)
{
    bool both = true;

    for (int half = 0; half < HALF_COUNT && both; half++) {
        char *folder = bp_path_join(path, HALVES[half]),
             *file = bp_path_join(folder, "config.json");

        both = bp_path_exists(file);
        bp_free(file);
        bp_free(folder);
    }
    return both;
}

/* Both folders; our tensors are the discriminator's, and those that only the generator has. */
typedef struct reader {
    bp_hf_model *half[HALF_COUNT];
    bp_slice *slices;
    int *from;      /* which half slice k is of, */
    int64_t *index; /* and its number there */
} reader;

static void close_reader(bp_model_folder *folder)
{
    reader *self = folder->context;

    for (int half = 0; half < HALF_COUNT; half++)
        bp_hf_close(&self->half[half]);
    bp_free(self->slices);
    bp_free(self->from);
    bp_free(self->index);
    bp_free(self);
    folder->context = NULL;
}

static bp_err fetch(void *context, const bp_slice *slice, int64_t index, const float **data)
{
    reader *self = context;

    return bp_hf_fetch(self->half[self->from[index]], slice, self->index[index], data);
}

static int64_t find_slice(const bp_slice *slices, int64_t count, const char *name)
{
    for (int64_t k = 0; k < count; k++)
        if (strcmp(slices[k].name, name) == 0)
            return k;
    return -1;
}

/* The embeddings are shared: their values must be the same. */
static bp_err compare(reader *self, const bp_slice *a, int64_t a_index, const bp_slice *b,
                      int64_t b_index, const char *path)
{
    int64_t floats = a->shape[0] * (a->dims == 2 ? a->shape[1] : 1);
    bool same = a->dims == b->dims && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
    float *values = NULL;
    const float *data;
    bp_err err = BP_OK;

    if (same) {
        values = bp_try_alloc("electra.folder", floats, sizeof *values);
        err = values ? bp_hf_fetch(self->half[DISCRIMINATOR], a, a_index, &data)
                     : bp_fail_memory("the embeddings", floats, sizeof *values);
    }
    if (same && err == BP_OK) {
        memcpy(values, data, (size_t)floats * sizeof *values);
        err = bp_hf_fetch(self->half[GENERATOR], b, b_index, &data);
        same = err == BP_OK && memcmp(values, data, (size_t)floats * sizeof *values) == 0;
    }
    bp_free(values);
    if (err == BP_OK && !same)
        err = BP_FAIL(BP_ERR_FORMAT, "electra.other_embeddings",
                      "the generator's %s is not the discriminator's, but they share their "
                      "embeddings: at %s; import one of both folders alone",
                      a->name, path);
    return err;
}

static bp_err list_slices(reader *self, bp_model_folder *out, const char *path)
{
    int64_t counts[HALF_COUNT];
    const bp_slice *slices[HALF_COUNT];
    bp_err err = BP_OK;

    for (int half = 0; half < HALF_COUNT; half++)
        slices[half] = bp_hf_slices(self->half[half], &counts[half]);
    self->slices = bp_alloc("electra.folder", counts[0] + counts[1], sizeof *self->slices);
    self->from = bp_alloc("electra.folder", counts[0] + counts[1], sizeof *self->from);
    self->index = bp_alloc("electra.folder", counts[0] + counts[1], sizeof *self->index);
    for (int half = HALF_COUNT - 1; half >= 0; half--)
        for (int64_t k = 0; k < counts[half] && err == BP_OK; k++) {
            int64_t other =
                half == GENERATOR
                    ? find_slice(slices[DISCRIMINATOR], counts[DISCRIMINATOR], slices[half][k].name)
                    : -1;
            if (other >= 0) {
                err =
                    compare(self, &slices[DISCRIMINATOR][other], other, &slices[half][k], k, path);
                continue;
            }
            self->slices[out->count] = slices[half][k];
            self->from[out->count] = half;
            self->index[out->count++] = k;
        }
    out->slices = self->slices;
    return err;
}

static bp_err read_shape(const reader *self, bp_model_folder *out, const bp_model_family *family,
                         const char *path)
{
    bp_hf_shape g = bp_hf_shape_of(self->half[GENERATOR]),
                d = bp_hf_shape_of(self->half[DISCRIMINATOR]);
    json_t *of = bp_hf_model_json(&g), *model = bp_hf_model_json(&d),
           *state = json_pack("{s:o}", "model", model);
    bp_err err = BP_OK;

    if (g.table == d.table || strcmp(g.table->kind, "electra") != 0 ||
        strcmp(d.table->kind, "electra") != 0 || g.table != bp_electra_huggingface[1])
        err = BP_FAIL(BP_ERR_FORMAT, "electra.other_halves",
                      "generator/ and discriminator/ are not a generator and a discriminator of "
                      "ELECTRA: at %s; give a folder that has both",
                      path);
    (void)json_object_set_new(model, "part", json_string("both"));
    for (size_t k = 0; k < OWN_COUNT; k++)
        (void)json_object_set(model, OWN[k][1], json_object_get(of, OWN[k][0]));
    if (err == BP_OK)
        err = bp_model_shape_read_as(&out->shape, family, state, path);
    json_decref(of);
    json_decref(state);
    return err;
}

/* The path of the folder itself, or of its discriminator. */
static bp_err read_tokenizer(bp_model_folder *out, const char *path)
{
    char *half = bp_path_join(path, HALVES[DISCRIMINATOR]);
    const char *const folders[] = {path, half};
    bp_err err = BP_OK;

    for (int k = 0; k < 2 && err == BP_OK && !out->tokenizer; k++) {
        char *file = bp_path_join(folders[k], "tokenizer.json");

        if (bp_path_exists(file))
            err = bp_tokenizer_load(&out->tokenizer, file);
        bp_free(file);
    }
    bp_free(half);
    return err;
}

bp_err bp_electra_folder_read(const bp_model_family *family, bp_model_folder *out, const char *path,
                              const bp_tokenizer *tokenizer)
{
    reader *self = bp_alloc("electra.folder", 1, sizeof *self);
    bp_err err = BP_OK;

    *out = (bp_model_folder){.fetch = fetch, .context = self, .close = close_reader};
    for (int half = 0; half < HALF_COUNT && err == BP_OK; half++) {
        char *folder = bp_path_join(path, HALVES[half]);

        err = bp_hf_open(&self->half[half], folder, bp_electra_huggingface);
        bp_free(folder);
    }
    if (err == BP_OK)
        err = read_shape(self, out, family, path);
    if (err == BP_OK)
        err = list_slices(self, out, path);
    if (err == BP_OK && !tokenizer)
        err = read_tokenizer(out, path);
    return err;
}
