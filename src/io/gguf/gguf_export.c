/* Writing a model's tensors and sizes as a GGUF file. */
#include "io/gguf/gguf_export.h"

#include "base/files/fs.h"
#include "base/files/hidden.h"
#include "base/mem.h"
#include "io/gguf/gguf_config_priv.h"
#include "io/gguf/gguf_names_priv.h"
#include "io/gguf/gguf_priv.h"
#include "io/gguf/gguf_rotary_priv.h"
#include "io/gguf/gguf_tokenizer.h"
#include "io/huggingface/safetensors.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A tensor of the folder, and its conversion. */
typedef struct mine {
    bp_gguf_change change;
    bool left; /* has no counterpart */
    int64_t rows, row, heads;
} mine;

typedef struct export
{
    const char *path;
    const bp_gguf_options *options;
    const bp_gguf_family *family;
    json_t *keys;
    mine *list; /* [count] */
    char(*names)[GGUF_NAME_BYTES];
    bp_gguf_tensor *specs; /* [written] */
    int64_t written;
    gguf_rotary rotary; /* tensors after those */
    bp_gguf_writer *writer;
}
export;

/* ---- keys ---- */

static void set_key(export *self, const char *key, json_t *value)
{
    gguf_set_key(self->keys, self->family, key, value);
}

static bp_err find_family(export *self, const json_t *config)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));

    for (const bp_gguf_family *const *family = bp_gguf_families; *family; family++)
        if (strcmp(type, (*family)->model_type) == 0) {
            self->family = *family;
            return BP_OK;
        }
    return gguf_no_counterpart("a model of type ", type);
}

static bp_err put_sizes(export *self, const json_t *config)
{
    for (const bp_gguf_size *size = self->family->sizes; size->gguf; size++) {
        const json_t *value = json_object_get(config, size->huggingface);

        if (!json_is_number(value)) {
            if (!size->may_lack)
                return gguf_no_counterpart("a model without ", size->huggingface);
            continue;
        }
        for (int k = 0; k < 2 && (k == 0 || size->also); k++)
            set_key(self, k == 0 ? size->gguf : size->also,
                    size->is_real ? json_real(json_number_value(value))
                                  : json_integer(json_integer_value(value)));
    }
    return BP_OK;
}

/* llama.cpp's numbers of file types. */
static int file_type(bp_gguf_type type)
{
    return type == BP_GGUF_F32 ? 0 : type == BP_GGUF_F16 ? 1 : type == BP_GGUF_Q8_0 ? 7 : 32;
}

static bp_err put_keys(export *self, const json_t *config)
{
    bp_err err = find_family(self, config);

    if (err != BP_OK)
        return err;
    self->keys = json_pack("{s:s, s:s, s:o, s:i, s:i, s:i}", "general.architecture",
                           self->family->architecture, "general.type", "model", "general.name",
                           bp_json_string(self->options->name), "general.file_type",
                           file_type(self->options->type), "general.quantization_version", 2,
                           "general.alignment", 32);
    set_key(self, "vocab_size", json_incref(json_object_get(config, "vocab_size")));
    err = put_sizes(self, config);
    if (err == BP_OK && self->family->rotary)
        err = gguf_put_rotary(&self->rotary, self->keys, config, self->family);
    if (err == BP_OK)
        err = gguf_put_layers(self->keys, config, self->family);
    if (strcmp(self->family->architecture, "bert") == 0) {
        set_key(self, "attention.causal", json_false());
        set_key(self, "pooling_type", json_integer(self->options->pooling));
        (void)json_object_set(self->keys, "tokenizer.ggml.token_type_count",
                              json_object_get(config, "type_vocab_size"));
    }
    if (err != BP_OK)
        return err;
    if (self->options->tokenizer)
        return bp_gguf_put_tokenizer(self->keys, self->options->tokenizer,
                                     json_integer_value(json_object_get(config, "vocab_size")));
    (void)json_object_set_new(self->keys, "tokenizer.ggml.model", json_string("none"));
    return BP_OK;
}

/* ---- tensors ---- */

static bp_gguf_type type_of(const export *self, const bp_gguf_row *row, const bp_gguf_tensor *spec)
{
    if (spec->dims == 1 || row->plain)
        return BP_GGUF_F32;
    return self->options->type == BP_GGUF_Q8_0 && spec->shape[1] % BP_GGUF_BLOCK != 0
               ? BP_GGUF_F16
               : self->options->type;
}

static bp_err put_tensor(export *self, int64_t k, const bp_safetensor *theirs, const json_t *config)
{
    static const char *const LEFT[] = {"cls.", "bert.pooler.", "pooler."};
    mine *out = &self->list[k];
    bp_gguf_tensor *spec = &self->specs[self->written];
    char *name = self->names[self->written];
    const bp_gguf_row *row = gguf_of_huggingface(name, self->family, theirs->name);
    bool transposed;

    for (size_t i = 0; i < sizeof LEFT / sizeof *LEFT && !row; i++)
        out->left = out->left || strncmp(theirs->name, LEFT[i], strlen(LEFT[i])) == 0;
    if (!row && out->left) {
        (*self->options->left)++;
        return BP_OK;
    }
    if (!row)
        return gguf_no_counterpart("tensor ", theirs->name);
    transposed = row->change == BP_GGUF_TRANSPOSED && theirs->dims == 2;
    *spec = (bp_gguf_tensor){.name = name, .dims = theirs->dims};
    memcpy(spec->shape, theirs->shape, 2 * sizeof *spec->shape);
    if (transposed) {
        spec->shape[0] = theirs->shape[1];
        spec->shape[1] = theirs->shape[0];
    }
    spec->type = type_of(self, row, spec);
    out->change = row->change;
    out->rows = theirs->shape[0];
    out->row = theirs->dims == 2 ? theirs->shape[1] : 1;
    out->heads = json_integer_value(json_object_get(config, row->change == BP_GGUF_PERMUTE_KEYS
                                                                ? "num_key_value_heads"
                                                                : "num_attention_heads"));
    self->written++;
    return BP_OK;
}

/* Followed by those of rotary positions, which folders do not have. */
static void put_rotary_tensors(export *self)
{
    for (int k = 0; k < GGUF_ROTARY_TENSORS; k++) {
        char *name = self->names[self->written];
        int64_t count = self->rotary.factors[k].count;

        if (count == 0)
            continue;
        (void)snprintf(name, GGUF_NAME_BYTES, "%s", gguf_rotary_name(k));
        self->specs[self->written++] =
            (bp_gguf_tensor){.name = name, .dims = 1, .shape = {count}, .type = BP_GGUF_F32};
    }
}

static bp_err write_rotary_tensors(export *self)
{
    bp_err err = BP_OK;

    for (int k = 0; k < GGUF_ROTARY_TENSORS && err == BP_OK; k++)
        if (self->rotary.factors[k].count > 0)
            err = bp_gguf_write(self->writer, self->rotary.factors[k].values);
    return err;
}

static bp_err begin(void *context, const json_t *config, const bp_safetensor *tensors,
                    int64_t count)
{
    export *self = context;
    bp_err err = put_keys(self, config);

    self->list = bp_alloc("gguf.export", count, sizeof *self->list);
    self->names = bp_alloc("gguf.export", count + GGUF_ROTARY_TENSORS, sizeof *self->names);
    self->specs = bp_alloc("gguf.export", count + GGUF_ROTARY_TENSORS, sizeof *self->specs);
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        err = put_tensor(self, k, &tensors[k], config);
    if (err == BP_OK)
        put_rotary_tensors(self);
    return err == BP_OK
               ? bp_gguf_create(&self->writer, self->path, self->keys, self->specs, self->written)
               : err;
}

/* The values in the file's form, in `out`. */
static void change(float *out, const float *values, const mine *it)
{
    int64_t D = it->heads > 0 ? it->rows / it->heads : it->rows;

    for (int64_t r = 0; r < it->rows; r++) {
        const float *from = values + r * it->row;
        int64_t in = r % D, to = r - in + (in < D / 2 ? 2 * in : 2 * (in - D / 2) + 1);

        if (it->change == BP_GGUF_PERMUTE_QUERIES || it->change == BP_GGUF_PERMUTE_KEYS)
            memcpy(out + to * it->row, from, (size_t)it->row * sizeof *out);
        else
            for (int64_t c = 0; c < it->row; c++)
                if (it->change == BP_GGUF_TRANSPOSED && it->row > 1)
                    out[c * it->rows + r] = from[c];
                else
                    out[r * it->row + c] = from[c] + (it->change == BP_GGUF_ONE_MORE);
    }
}

static bp_err write_one(void *context, int64_t k, const float *values)
{
    export *self = context;
    const mine *it = &self->list[k];
    int64_t count = it->rows * it->row;
    float *changed;
    bp_err err;

    if (it->left)
        return BP_OK;
    if (it->change == BP_GGUF_SAME)
        return bp_gguf_write(self->writer, values);
    changed = bp_try_alloc("gguf.export", count, sizeof *changed);
    if (!changed)
        return bp_fail_memory("a tensor", count, sizeof *changed);
    change(changed, values, it);
    err = bp_gguf_write(self->writer, changed);
    bp_free(changed);
    return err;
}

static bp_err write_file(bp_checkpoint *checkpoint, export *self,
                         const bp_hf_export_options *huggingface, const bp_hf_table *const *tables)
{
    bp_hf_sink sink = {begin, write_one, self};
    bp_err err = bp_hf_export_to(checkpoint, &sink, huggingface, tables);

    if (err == BP_OK)
        err = write_rotary_tensors(self);
    if (err == BP_OK)
        err = bp_gguf_finish(&self->writer);
    bp_gguf_drop(&self->writer);
    bp_free(self->list);
    bp_free(self->names);
    bp_free(self->specs);
    json_decref(self->keys);
    return err;
}

bp_err bp_gguf_export(bp_checkpoint *checkpoint, const char *out, const bp_gguf_options *options,
                      const bp_hf_export_options *huggingface, const bp_hf_table *const *tables)
{
    export self = {.options = options};
    struct stat status;
    char *hidden = NULL;
    int lock = -1;
    bp_err err;

    if (lstat(out, &status) == 0)
        return BP_FAIL(BP_ERR_CREATE, "file.in_the_way",
                       "something is there already: at %s; move it away", out);
    bp_hidden_sweep(out, BP_HIDDEN_FILE);
    err = bp_hidden_make(out, BP_HIDDEN_FILE, &hidden, &lock);
    if (err != BP_OK)
        return err;
    self.path = hidden;
    err = write_file(checkpoint, &self, huggingface, tables);
    if (err == BP_OK)
        err = bp_rename_new(hidden, out);
    if (err != BP_OK)
        (void)unlink(hidden);
    if (lock >= 0)
        (void)close(lock);
    bp_free(hidden);
    return err;
}
