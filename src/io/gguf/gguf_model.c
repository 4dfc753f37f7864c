/* A GGUF file's keys as config.json, and its tensors under Hugging Face's names. */
#include "io/gguf/gguf_model.h"

#include "base/mem.h"
#include "io/gguf/gguf_config_priv.h"
#include "io/gguf/gguf_family.h"
#include "io/gguf/gguf_names_priv.h"
#include "io/gguf/gguf_priv.h"
#include "io/gguf/gguf_rotary_priv.h"
#include "io/huggingface/safetensors.h"

#include <stdio.h>
#include <string.h>

/* ---- keys ---- */

static bp_err find_family(const bp_gguf_family **out, const bp_gguf *file)
{
    const char *architecture =
                   json_string_value(json_object_get(file->keys, "general.architecture")),
               *type = json_string_value(json_object_get(file->keys, "general.type"));

    if (json_integer_value(json_object_get(file->keys, "split.count")) > 1)
        return BP_FAIL(
            BP_ERR_FORMAT, "gguf.split",
            "the file is one of %lld parts: at %s; make one file of them (llama-gguf-split "
            "--merge)",
            (long long)json_integer_value(json_object_get(file->keys, "split.count")), file->path);
    if (type && strcmp(type, "model") != 0)
        return BP_FAIL(BP_ERR_FORMAT, "gguf.no_model",
                       "the file holds no model, but general.type '%.40s': at %s; give a model's",
                       type, file->path);
    for (const bp_gguf_family *const *family = bp_gguf_families; *family; family++)
        if (architecture && strcmp(architecture, (*family)->architecture) == 0) {
            *out = *family;
            return BP_OK;
        }
    return BP_FAIL(BP_ERR_FORMAT, "gguf.unknown_architecture",
                   "the architecture is '%.40s', which is not read: at %s; give the folder with "
                   "safetensors that it was made from",
                   architecture ? architecture : "", file->path);
}

static bp_err take_size(json_t *config, const bp_gguf *file, const bp_gguf_family *family,
                        const bp_gguf_size *size)
{
    const json_t *value = gguf_key_of(file->keys, family, size->gguf),
                 *also = size->also ? gguf_key_of(file->keys, family, size->also) : NULL;

    if (!value && size->may_lack && !also)
        return BP_OK;
    if (size->zero_lacks && json_is_integer(value) && json_integer_value(value) == 0)
        return BP_OK;
    if (!json_is_number(value) || (!size->is_real && !json_is_integer(value)))
        return BP_FAIL(BP_ERR_FORMAT, "gguf.bad_key", "key %s.%s is %s: at %s",
                       family->architecture, size->gguf,
                       !value                 ? "missing"
                       : json_is_array(value) ? "a list, and layers of different sizes are not read"
                                              : "no number",
                       file->path);
    if (also && !json_equal(also, value))
        return BP_FAIL(BP_ERR_FORMAT, "gguf.bad_key", "key %s.%s is not %s: at %s",
                       family->architecture, size->also, size->gguf, file->path);
    (void)json_object_set_new(config, size->huggingface,
                              size->is_real ? gguf_short_real(json_number_value(value))
                                            : json_integer(json_integer_value(value)));
    return BP_OK;
}

static bool names_key(const char *text, const char *key)
{
    size_t bytes = strlen(key);

    return strncmp(text, key, bytes) == 0 && (text[bytes] == '\0' || text[bytes] == '=');
}

static bool is_size(const bp_gguf_family *family, const char *key)
{
    for (const bp_gguf_size *size = family->sizes; size->gguf; size++)
        if (strcmp(key, size->gguf) == 0 || (size->also && strcmp(key, size->also) == 0))
            return true;
    return strcmp(key, "vocab_size") == 0 ||
           (family->has_period_key && strcmp(key, "attention.sliding_window_pattern") == 0) ||
           (family->rotary && gguf_is_rotary_key(key));
}

/* A key of the architecture without a size: it must be known, with a supported value. */
static bp_err check_key(const bp_gguf *file, const bp_gguf_family *family, const char *key,
                        const json_t *value)
{
    for (const char *const *only = family->only; *only; only++) {
        const char *is = strchr(*only, '=');
        json_t *wanted = is ? json_loads(is + 1, JSON_DECODE_ANY, NULL) : NULL;
        bool known = names_key(*only, key) && (!is || json_equal(wanted, value));

        json_decref(wanted);
        if (known)
            return BP_OK;
        if (names_key(*only, key))
            break;
    }
    return BP_FAIL(
        BP_ERR_FORMAT, "gguf.unknown_key",
        "key '%s.%.80s' is not known, or has another value than the one that is, and may "
        "change what the model computes: at %s; give the folder with safetensors that it "
        "was made from",
        family->architecture, key, file->path);
}

static bp_err check_keys(const bp_gguf *file, const bp_gguf_family *family)
{
    size_t bytes = strlen(family->architecture);
    const char *key;
    json_t *value;

    json_object_foreach(file->keys, key, value)
    {
        if (strncmp(key, family->architecture, bytes) != 0 || key[bytes] != '.' ||
            is_size(family, key + bytes + 1))
            continue;
        if (check_key(file, family, key + bytes + 1, value) != BP_OK)
            return BP_ERR_FORMAT;
    }
    return BP_OK;
}

static bp_err take_rows(json_t *config, const bp_gguf *file, const bp_gguf_family *family)
{
    const json_t *vocab_size = gguf_key_of(file->keys, family, "vocab_size");

    for (int k = 0; k < 2 && family->rows_of[k][0]; k++) {
        const bp_gguf_tensor *tensor = bp_gguf_find(file, family->rows_of[k][1]);

        if (!tensor)
            return BP_FAIL(BP_ERR_FORMAT, "huggingface.tensor_missing",
                           "tensor '%s' is missing: in %s", family->rows_of[k][1], file->path);
        (void)json_object_set_new(config, family->rows_of[k][0], json_integer(tensor->shape[0]));
    }
    if (vocab_size && !json_equal(vocab_size, json_object_get(config, "vocab_size")))
        return BP_FAIL(BP_ERR_FORMAT, "gguf.bad_key",
                       "key %s.vocab_size is not the number of rows of token_embd.weight: at %s",
                       family->architecture, file->path);
    return BP_OK;
}

/* Has output.weight the values of the table of tokens? */
static bp_err is_table(bool *out, const bp_gguf *file, const bp_gguf_tensor *head)
{
    enum { VALUES = 1 << 16 };
    const bp_gguf_tensor *table = bp_gguf_find(file, "token_embd.weight");
    float *values = bp_alloc("gguf.head", 2 * VALUES, sizeof *values);
    bp_err err = BP_OK;

    *out = table && table->count == head->count && table->type == head->type;
    for (int64_t done = 0; err == BP_OK && *out && done < head->count; done += VALUES) {
        int64_t count = head->count - done < VALUES ? head->count - done : VALUES;

        err = bp_gguf_read(file, table, done, count, values);
        if (err == BP_OK)
            err = bp_gguf_read(file, head, done, count, values + VALUES);
        *out = memcmp(values, values + VALUES, (size_t)count * sizeof *values) == 0;
    }
    bp_free(values);
    return err;
}

static bp_err take_head(json_t *config, const bp_gguf *file, const bp_gguf_family *family)
{
    const bp_gguf_tensor *head = bp_gguf_find(file, "output.weight");
    bool tied = !head;
    bp_err err = head && family->repeats ? is_table(&tied, file, head) : BP_OK;

    (void)json_object_set_new(config, "tie_word_embeddings", json_boolean(tied));
    return err;
}

static bp_err make_config(json_t **out, const bp_gguf *file, const bp_gguf_family *family)
{
    static const char *const IDS[] = {"bos_token_id", "eos_token_id"};
    json_t *config = json_pack("{s:s}", "model_type", family->model_type);
    bp_err err = check_keys(file, family);

    *out = config;
    for (const bp_gguf_size *size = family->sizes; size->gguf && err == BP_OK; size++)
        err = take_size(config, file, family, size);
    if (err == BP_OK)
        err = take_rows(config, file, family);
    if (err == BP_OK && family->rotary)
        err = gguf_take_rotary(config, file, family);
    if (err == BP_OK)
        err = gguf_take_layers(config, file->keys, family, file->path);
    if (err == BP_OK && family->ties)
        err = take_head(config, file, family);
    for (int k = 0; k < 2; k++) {
        char key[GGUF_KEY_BYTES];
        json_t *id;

        (void)snprintf(key, sizeof key, "tokenizer.ggml.%s", IDS[k]);
        id = json_object_get(file->keys, key);
        if (json_is_integer(id))
            (void)json_object_set(config, IDS[k], id);
    }
    return err;
}

/* ---- tensors ---- */

typedef struct theirs {
    const bp_gguf_tensor *tensor;
    bp_gguf_change change;
    int64_t heads; /* of rows that are permuted */
    char name[GGUF_NAME_BYTES];
} theirs;

typedef struct given {
    const bp_gguf *file;
    theirs *list; /* [count] */
} given;

/* Rows of the file's [rows][row] in Hugging Face's order: row r of a head is the file's 2r, or
 * 2(r - half) + 1. */
static int64_t permuted_row(int64_t r, int64_t rows, int64_t heads)
{
    int64_t D = rows / heads, in = r % D, half = D / 2;

    return r - in + (in < half ? 2 * in : 2 * (in - half) + 1);
}

static bp_err read_permuted(const given *self, const theirs *it, int64_t first, int64_t count,
                            float *out)
{
    const bp_gguf_tensor *tensor = it->tensor;
    int64_t rows = tensor->shape[0], row = tensor->dims == 2 ? tensor->row : 1;
    bp_err err = BP_OK;

    for (int64_t done = 0, take; done < count && err == BP_OK; done += take) {
        int64_t r = (first + done) / row, in = (first + done) % row;

        take = row - in < count - done ? row - in : count - done;
        err = bp_gguf_read(self->file, tensor, permuted_row(r, rows, it->heads) * row + in, take,
                           out + done);
    }
    return err;
}

/* Values [first, first + count) of the transposed matrix. */
static bp_err read_transposed(const given *self, const theirs *it, int64_t first, int64_t count,
                              float *out)
{
    int64_t rows = it->tensor->shape[0], row = it->tensor->row;
    float *values = bp_alloc("gguf.row", row, sizeof *values);
    bp_err err = BP_OK;

    for (int64_t r = 0; r < rows && err == BP_OK; r++) {
        err = bp_gguf_read(self->file, it->tensor, r * row, row, values);
        for (int64_t c = 0; c < row && err == BP_OK; c++) {
            int64_t at = c * rows + r - first;

            if (at >= 0 && at < count)
                out[at] = values[c];
        }
    }
    bp_free(values);
    return err;
}

static bp_err read_theirs(void *context, const bp_safetensor *wanted, int64_t first, int64_t count,
                          float *out)
{
    const given *self = context;
    const theirs *it = &self->list[wanted->first];
    bp_err err;

    if (it->change == BP_GGUF_PERMUTE_QUERIES || it->change == BP_GGUF_PERMUTE_KEYS)
        return read_permuted(self, it, first, count, out);
    if (it->change == BP_GGUF_TRANSPOSED && it->tensor->dims == 2)
        return read_transposed(self, it, first, count, out);
    err = bp_gguf_read(self->file, it->tensor, first, count, out);
    for (int64_t k = 0; it->change == BP_GGUF_ONE_MORE && k < count && err == BP_OK; k++)
        out[k] -= 1;
    return err;
}

static void close_theirs(void *context)
{
    given *self = context;

    bp_free(self->list);
    bp_free(self);
}

static bp_err take_tensor(theirs *out, bp_safetensor *spec, const bp_gguf *file,
                          const bp_gguf_family *family, const json_t *config)
{
    const bp_gguf_tensor *tensor = out->tensor;
    const bp_gguf_row *row = gguf_to_huggingface(out->name, family, tensor->name);
    const char *heads =
        row && row->change == BP_GGUF_PERMUTE_KEYS && json_object_get(config, "num_key_value_heads")
            ? "num_key_value_heads"
            : "num_attention_heads";

    if (!row)
        return BP_FAIL(BP_ERR_FORMAT, "gguf.unknown_tensor",
                       "tensor '%.80s' of a %s is not known, and may change what the model "
                       "computes: at %s; give the folder with safetensors that it was made from",
                       tensor->name, family->architecture, file->path);
    out->change = row->change;
    out->heads = json_integer_value(json_object_get(config, heads));
    spec->name = out->name;
    spec->dtype = "F32";
    spec->dims = tensor->dims;
    memcpy(spec->shape, tensor->shape, sizeof tensor->shape);
    spec->count = tensor->count;
    if (row->change == BP_GGUF_TRANSPOSED && tensor->dims == 2) {
        spec->shape[0] = tensor->shape[1];
        spec->shape[1] = tensor->shape[0];
    }
    if ((row->change == BP_GGUF_PERMUTE_QUERIES || row->change == BP_GGUF_PERMUTE_KEYS) &&
        (out->heads <= 0 || tensor->dims > 2 || tensor->shape[0] % (2 * out->heads) != 0))
        return BP_FAIL(BP_ERR_FORMAT, "gguf.bad_tensor",
                       "tensor '%.80s' has rows that are not pairs of %lld heads: at %s",
                       tensor->name, (long long)out->heads, file->path);
    return BP_OK;
}

static bp_err take_tensors(bp_safetensors **out, const bp_gguf *file, const bp_gguf_family *family,
                           const json_t *config)
{
    given *self = bp_alloc("gguf.given", 1, sizeof *self);
    bp_safetensor *specs = bp_alloc("gguf.given", file->count, sizeof *specs);
    int64_t count = 0;
    bp_err err = BP_OK;

    self->file = file;
    self->list = bp_alloc("gguf.given", file->count, sizeof *self->list);
    for (int64_t k = 0; k < file->count && err == BP_OK; k++) {
        if (gguf_is_rotary(family, file->tensors[k].name))
            continue;
        self->list[count].tensor = &file->tensors[k];
        specs[count].first = count;
        err = take_tensor(&self->list[count], &specs[count], file, family, config);
        count++;
    }
    if (err == BP_OK)
        *out = bp_safetensors_of(file->path, specs, count,
                                 (bp_safetensors_source){read_theirs, close_theirs, self});
    else
        close_theirs(self);
    bp_free(specs);
    return err;
}

bp_err bp_gguf_model_open(bp_hf_model **out, const bp_gguf *file, const bp_hf_table *const *tables)
{
    const bp_gguf_family *family = NULL;
    bp_safetensors *tensors = NULL;
    json_t *config = NULL;
    bp_err err = find_family(&family, file);

    *out = NULL;
    if (err == BP_OK)
        err = make_config(&config, file, family);
    if (err == BP_OK)
        err = take_tensors(&tensors, file, family, config);
    if (err == BP_OK)
        err = bp_hf_open_as(out, file->path, config, tensors, tables);
    json_decref(config);
    if (err == BP_OK && bp_hf_report_of(*out).left > 0) {
        err =
            BP_FAIL(BP_ERR_FORMAT, "gguf.unknown_tensor",
                    "tensor '%.80s' is not known of a %s, and may change what the model computes: "
                    "at %s; give the folder with safetensors that it was made from",
                    bp_hf_left(*out, 0), family->model_type, file->path);
        bp_hf_close(out);
    }
    return err;
}
