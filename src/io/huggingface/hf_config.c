/* config.json by a family's table: what of it this program's models have, and what must be as it is
 * there. */
#include "io/huggingface/hf_config_priv.h"

#include "base/buffer.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIZE ((int64_t)1 << 31)

/* A number, or one of the table's sizes. */
static double factor_of(const bp_hf_shape *shape, const char *name, size_t bytes)
{
    char *end;
    double number = strtod(name, &end);

    if (end == name + bytes)
        return number;
    for (int k = 0; shape->table->sizes[k].ours != NULL; k++)
        if (strlen(shape->table->sizes[k].ours) == bytes &&
            strncmp(shape->table->sizes[k].ours, name, bytes) == 0)
            return shape->sizes[k];
    BP_ASSERT(!"a size of the table");
    return 0;
}

int64_t bp_hf_size_of(const bp_hf_shape *shape, const char *name)
{
    double value = 1;

    for (char sign = '*'; sign != '\0';) {
        size_t bytes = strcspn(name, "*/");
        double factor = factor_of(shape, name, bytes);

        value = sign == '*' ? value * factor : value / factor;
        sign = name[bytes];
        name += bytes + (sign != '\0');
    }
    return (int64_t)value;
}

/* 1 .. 2^31 */
static bp_err read_count(const json_t *config, const bp_hf_size *size, const char *name,
                         double *out, const char *path)
{
    int64_t count = 0;
    bp_err err = bp_json_get_int(config, name, &count, path);

    if (err == BP_OK && (count < 1 || count > MAX_SIZE))
        err = BP_FAIL(BP_ERR_FORMAT, "\"%s\" is %" PRId64 "; 1 to 2^31 are possible: at %s", name,
                      count, path);
    if (err == BP_OK && strcmp(size->ours, "layers") == 0 && count > HF_MAX_LAYERS)
        err = BP_FAIL(BP_ERR_FORMAT, "\"%s\" is %" PRId64 "; %d are possible: at %s", name, count,
                      HF_MAX_LAYERS, path);
    *out = (double)count;
    return err;
}

static bp_err read_size(const bp_hf_shape *shape, const json_t *config, const bp_hf_size *size,
                        double *out, const char *path)
{
    bool other = size->also != NULL && json_object_get(config, size->theirs) == NULL, flag = false;
    const char *name = other ? size->also : size->theirs;
    const json_t *value = name != NULL ? json_object_get(config, name) : NULL;
    bp_err err = BP_OK;

    if (size->theirs == NULL ||
        (size->otherwise != NULL && (value == NULL || json_is_null(value)))) {
        *out = factor_of(shape, size->otherwise, strlen(size->otherwise));
    } else if (size->type == BP_HF_FLAG) {
        err = bp_json_get_bool(config, name, &flag, path);
        *out = flag;
    } else if (size->type == BP_HF_REAL) {
        err = bp_json_get_real(config, name, out, path);
        if (err == BP_OK && !(*out > 0 && *out < 1e15))
            err =
                BP_FAIL(BP_ERR_FORMAT, "\"%s\" is %g; it must be above 0: at %s", name, *out, path);
    } else {
        err = read_count(config, size, name, out, path);
    }
    return err;
}

json_t *hf_size_json(const bp_hf_shape *shape, int k)
{
    return shape->table->sizes[k].type == BP_HF_REAL   ? json_real(shape->sizes[k])
           : shape->table->sizes[k].type == BP_HF_FLAG ? json_boolean(shape->sizes[k] != 0)
                                                       : json_integer((json_int_t)shape->sizes[k]);
}

/* What config.json says: null of a count of nothing. */
static json_t *told(const bp_hf_shape *shape, int k)
{
    bool nothing = shape->table->sizes[k].type == BP_HF_COUNT && shape->sizes[k] == 0;

    return nothing ? json_null() : hf_size_json(shape, k);
}

/* A value of a setting's list, of `bytes`. New reference. */
static json_t *value_of(const bp_hf_shape *shape, const char *text, size_t bytes)
{
    char name[64];
    json_t *value = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);

    if (value != NULL)
        return value;
    BP_ASSERT(bytes < sizeof name);
    memcpy(name, text, bytes);
    name[bytes] = '\0';
    return json_integer(bp_hf_size_of(shape, name));
}

static bool are_equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return fabs(json_number_value(a) - json_number_value(b)) < 1e-11;
    return json_equal(a, b);
}

static bool is_taken(const bp_hf_shape *shape, const bp_hf_setting *setting, const json_t *value)
{
    bool taken = value == NULL || json_is_null(value);

    for (const char *at = setting->is; *at != '\0' && !taken;) {
        size_t bytes = strcspn(at, "|");
        json_t *one = value_of(shape, at, bytes);

        taken = are_equal(one, value);
        json_decref(one);
        at += bytes + (at[bytes] == '|');
    }
    return taken;
}

static bp_err check_settings(const bp_hf_shape *shape, const json_t *config, const char *path)
{
    for (const bp_hf_setting *setting = shape->table->settings; setting->key; setting++) {
        const json_t *value = json_object_get(config, setting->key);

        if (is_taken(shape, setting, value))
            continue;
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        bp_err err = BP_FAIL(BP_ERR_FORMAT,
                             "\"%s\" is %.40s; this program's %s knows %s alone: at %s; give "
                             "another model",
                             setting->key, text ? text : "", shape->table->kind, setting->is, path);
        free(text); /* of jansson */
        return err;
    }
    return BP_OK;
}

/* "gpt2, llama" */
static void name_types(bp_buffer *out, const bp_hf_table *const *tables)
{
    for (const bp_hf_table *const *table = tables; *table != NULL; table++)
        bp_buffer_printf(out, "%s%s", table == tables ? "" : ", ", (*table)->model_type);
}

static bp_err find_table(const bp_hf_table **out, const json_t *config,
                         const bp_hf_table *const *tables, const char *path)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    bp_buffer types = {0};
    bp_err err;

    for (const bp_hf_table *const *table = tables; *table != NULL; table++)
        if (type != NULL && strcmp(type, (*table)->model_type) == 0) {
            *out = *table;
            return BP_OK;
        }
    name_types(&types, tables);
    err = BP_FAIL(
        BP_ERR_FORMAT,
        "\"model_type\" is \"%.40s\", and only %s can be imported: at %s; give another model",
        type == NULL ? "" : type, types.data, path);
    bp_buffer_clear(&types);
    return err;
}

bp_err hf_config_read(bp_hf_shape *out, const json_t *config, const bp_hf_table *const *tables,
                      const char *path)
{
    const json_t *eos = json_object_get(config, "eos_token_id");
    bp_err err;

    *out = (bp_hf_shape){.eos_id = -1};
    err = find_table(&out->table, config, tables, path);
    for (int k = 0; err == BP_OK && out->table->sizes[k].ours; k++)
        err = read_size(out, config, &out->table->sizes[k], &out->sizes[k], path);
    if (err == BP_OK)
        err = check_settings(out, config, path);
    if (err == BP_OK)
        err = out->table->check(out, path);
    if (err == BP_OK && json_is_integer(eos) && json_integer_value(eos) >= 0 &&
        json_integer_value(eos) < bp_hf_size_of(out, "vocab_size"))
        out->eos_id = json_integer_value(eos);
    return bp_err_advise(err, "export the model again");
}

/* As save_pretrained writes it; members that say what the defaults say anyway are there for other
 * readers. The default of eos_token_id may be one that other vocabularies don't have: so null is
 * said. */
json_t *hf_config_json(const bp_hf_shape *shape)
{
    const bp_hf_table *table = shape->table;
    json_t *config = json_loads(table->more, 0, NULL),
           *eos = shape->eos_id < 0 ? json_null() : json_integer(shape->eos_id);

    BP_ASSERT(config != NULL);
    (void)json_object_set_new(config, "model_type", json_string(table->model_type));
    (void)json_object_set_new(config, "architectures", json_pack("[s]", table->architecture));
    for (int k = 0; table->sizes[k].ours; k++) {
        json_t *size = told(shape, k);

        if (table->sizes[k].theirs)
            (void)json_object_set(config, table->sizes[k].theirs, size);
        if (table->sizes[k].also)
            (void)json_object_set(config, table->sizes[k].also, size);
        json_decref(size);
    }
    for (const bp_hf_setting *setting = table->settings; setting->key; setting++)
        (void)json_object_set_new(config, setting->key,
                                  value_of(shape, setting->is, strcspn(setting->is, "|")));
    (void)json_object_set(config, "bos_token_id", eos);
    (void)json_object_set(config, "eos_token_id", eos);
    json_decref(eos);
    return config;
}
