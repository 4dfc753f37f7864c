/* The module Dense of sentence-transformers, read by import.c and written by export.c. */
#include "sentence_map.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "io/huggingface/hf_model.h"
#include "io/huggingface/safetensors.h"
#include "models/task/vectors.h"

#include <stdio.h>
#include <string.h>

#define CONFIG_LIMIT ((int64_t)1 << 20)
#define TORCH        "torch.nn.modules."

/* Torch's classes, by the number of an activation. */
static const char *const CLASSES[] = {TORCH "linear.Identity", TORCH "activation.Tanh",
                                      TORCH "activation.GELU", TORCH "activation.ReLU"};

static bp_err refuse(const char *what, const char *value, const char *path)
{
    return BP_FAIL(BP_ERR_FORMAT, "import.other_module",
                   "%s is '%.80s', which score.vectors does not compute: at %s; import the folder "
                   "of the model itself, without modules.json",
                   what, value, path);
}

/* ---- config.json ---- */

static bp_err read_activation(const char **out, const json_t *config, const char *path)
{
    const json_t *given = json_object_get(config, "activation_function");
    const char *name = given ? json_string_value(given) : CLASSES[1];

    for (int k = 0; name && bp_task_vector_activation(k + 1); k++)
        if (strcmp(name, CLASSES[k]) == 0) {
            *out = bp_task_vector_activation(k + 1);
            return BP_OK;
        }
    return refuse("\"activation_function\"", name ? name : "no text", path);
}

/* Other modules' outputs that it may read or write, in place of the vector. */
static bp_err check_names(const json_t *config, const char *path)
{
    static const char *const KEYS[] = {"module_input_name", "module_output_name"};
    bp_err err = BP_OK;

    for (int k = 0; k < 2 && err == BP_OK; k++) {
        const json_t *name = json_object_get(config, KEYS[k]);
        const char *word = json_string_value(name);

        if (name && !json_is_null(name) && (!word || strcmp(word, "sentence_embedding") != 0))
            err = refuse(KEYS[k], word ? word : "no text", path);
    }
    return err;
}

static bp_err read_config(sentence_map *out, json_t *vectors, const json_t *config,
                          const char *path)
{
    const json_t *biased = json_object_get(config, "bias");
    const char *activation = NULL;
    bp_err err = bp_json_get_int(config, "in_features", &out->width, path);

    if (err == BP_OK)
        err = bp_json_get_int(config, "out_features", &out->columns, path);
    if (err == BP_OK &&
        (out->width < 1 || out->columns < 1 || out->width > INT32_MAX || out->columns > INT32_MAX))
        err = refuse("\"in_features\" or \"out_features\"", "no number of columns", path);
    if (err == BP_OK)
        err = check_names(config, path);
    if (err == BP_OK)
        err = read_activation(&activation, config, path);
    if (err == BP_OK)
        (void)json_object_set_new(vectors, "map",
                                  json_pack("{s:I, s:s, s:b}", "columns", (json_int_t)out->columns,
                                            "activation", activation, "bias",
                                            !biased || json_is_true(biased)));
    return err;
}

json_t *sentence_map_config(const json_t *vectors, int64_t width)
{
    const json_t *map = json_object_get(vectors, "map");
    const char *activation = json_string_value(json_object_get(map, "activation"));
    int number = 0;

    while (bp_task_vector_activation(number + 1) &&
           strcmp(bp_task_vector_activation(number + 1), activation ? activation : "") != 0)
        number++;
    return json_pack("{s:I, s:O, s:O, s:s}", "in_features", (json_int_t)width, "out_features",
                     json_object_get(map, "columns"), "bias", json_object_get(map, "bias"),
                     "activation_function",
                     bp_task_vector_activation(number + 1) ? CLASSES[number] : activation);
}

/* ---- model.safetensors ---- */

static bp_err read_tensor(float **out, bp_safetensors *file, const char *name, int dims,
                          const int64_t *shape)
{
    const bp_safetensor *tensor = bp_safetensors_find(file, name);
    bool fits = tensor && tensor->dims == dims;

    for (int k = 0; fits && k < dims; k++)
        fits = tensor->shape[k] == shape[k];
    if (!fits)
        return BP_FAIL(BP_ERR_FORMAT, "import.dense_shape",
                       "%s of the module Dense is missing, or has another shape than config.json "
                       "says: at %s; save the model again",
                       name, bp_safetensors_path(file));
    *out = bp_try_alloc("import.map", tensor->count, sizeof **out);
    return *out ? bp_safetensors_read(file, tensor, 0, tensor->count, *out)
                : bp_fail_memory("a tensor", tensor->count, sizeof **out);
}

static bp_err read_tensors(sentence_map *out, bool biased, const char *folder)
{
    const int64_t shape[] = {out->columns, out->width};
    char *path = bp_path_join(folder, "model.safetensors");
    bp_safetensors *file = NULL;
    bp_err err = BP_OK;

    if (!bp_path_exists(path))
        err = BP_FAIL(BP_ERR_INPUT, "import.dense_missing",
                      "there is no model.safetensors: in %s; if it has pytorch_model.bin, in that "
                      "folder run " BP_HF_CONVERT,
                      folder);
    if (err == BP_OK)
        err = bp_safetensors_open(&file, path);
    if (err == BP_OK)
        err = read_tensor(&out->weight, file, "linear.weight", 2, shape);
    if (err == BP_OK && biased)
        err = read_tensor(&out->bias, file, "linear.bias", 1, shape);
    bp_safetensors_close(&file);
    bp_free(path);
    return err;
}

bp_err sentence_map_read(sentence_map *out, json_t *vectors, const char *folder)
{
    char *path = bp_path_join(folder, "config.json");
    json_t *config = NULL;
    bp_err err = bp_json_load(&config, path, CONFIG_LIMIT);

    if (err == BP_OK)
        err = read_config(out, vectors, config, path);
    if (err == BP_OK)
        err = read_tensors(
            out, json_is_true(json_object_get(json_object_get(vectors, "map"), "bias")), folder);
    json_decref(config);
    bp_free(path);
    return err;
}

void sentence_map_clear(sentence_map *map)
{
    bp_free(map->weight);
    bp_free(map->bias);
    *map = (sentence_map){0};
}

/* ---- the checkpoint's tensors ---- */

static bp_slice slice_of(const char *name, int dims, int64_t columns, int64_t width, float *data)
{
    bp_slice slice = {.dims = dims, .shape = {columns, width}, .data = data};

    (void)snprintf(slice.name, sizeof slice.name, "%s", name);
    memcpy(slice.extent, slice.shape, sizeof slice.extent);
    return slice;
}

int sentence_map_slices(const sentence_map *map, bp_slice slices[SENTENCE_MAP_TENSORS])
{
    if (!map->weight)
        return 0;
    slices[0] = slice_of(BP_VECTOR_WEIGHT, 2, map->columns, map->width, map->weight);
    slices[1] = slice_of(BP_VECTOR_BIAS, 1, map->columns, 0, map->bias);
    return 1 + (map->bias != NULL);
}

static bp_err load_map(sentence_map *out, bp_checkpoint *checkpoint)
{
    const json_t *state = bp_checkpoint_state(checkpoint),
                 *map = json_object_get(json_object_get(state, "vectors"), "map");
    bp_slice slices[SENTENCE_MAP_TENSORS];
    int count;

    out->columns = json_integer_value(json_object_get(map, "columns"));
    out->width = json_integer_value(json_object_get(json_object_get(state, "model"), "width"));
    if (out->columns < 1 || out->width < 1 || out->columns > INT32_MAX || out->width > INT32_MAX)
        return BP_FAIL(BP_ERR_FORMAT, "export.bad_map",
                       "the map of the model's vectors is [%lld][%lld]: at %s; the checkpoint was "
                       "not written by bagpipe",
                       (long long)out->columns, (long long)out->width,
                       bp_checkpoint_folder(checkpoint));
    out->weight = bp_try_alloc("export.map", out->columns * out->width, sizeof *out->weight);
    if (json_is_true(json_object_get(map, "bias")))
        out->bias = bp_alloc("export.map", out->columns, sizeof *out->bias);
    if (!out->weight)
        return bp_fail_memory("a tensor", out->columns * out->width, sizeof *out->weight);
    count = sentence_map_slices(out, slices);
    bp_err err = bp_checkpoint_load(checkpoint, slices, count);
    return err == BP_OK ? bp_checkpoint_check_digests(checkpoint, slices, count) : err;
}

bp_err sentence_map_write(bp_checkpoint *checkpoint, const char *dtype, const char *folder)
{
    sentence_map map = {0};
    bp_safetensors_writer *writer = NULL;
    char *path = bp_path_join(folder, "model.safetensors");
    bp_err err = load_map(&map, checkpoint);
    const bp_safetensor tensors[] = {
        {.name = "linear.weight", .dtype = dtype, .dims = 2, .shape = {map.columns, map.width}},
        {.name = "linear.bias", .dtype = dtype, .dims = 1, .shape = {map.columns}}};

    if (err == BP_OK)
        err = bp_safetensors_create(&writer, path, tensors, 1 + (map.bias != NULL), "pt");
    if (err == BP_OK)
        err = bp_safetensors_write(writer, map.weight, map.columns * map.width);
    if (err == BP_OK && map.bias)
        err = bp_safetensors_write(writer, map.bias, map.columns);
    if (err == BP_OK)
        err = bp_safetensors_finish(&writer);
    bp_safetensors_drop(&writer);
    sentence_map_clear(&map);
    bp_free(path);
    return err;
}
