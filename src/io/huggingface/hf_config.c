/* config.json by a family's table: sizes, and required settings. */
#include "io/huggingface/hf_config_priv.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/config/pairs.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIZE ((int64_t)1 << 31)

/* ---- members ---- */

/* "a" of config.json, or "a.b" of its object "a", or deeper. */
typedef struct member {
    const json_t *object; /* NULL if there is none */
    char key[64];
    const json_t *value; /* NULL if absent or null. Borrowed */
    bool is_null;
} member;

static member member_of(const json_t *config, const char *name, size_t bytes)
{
    const char *dot;
    member out = {.object = config};

    while ((dot = memchr(name, '.', bytes)) != NULL) {
        size_t parent = (size_t)(dot - name);

        out.object = json_object_getn(out.object, name, parent);
        bytes -= parent + 1;
        name = dot + 1;
    }
    BP_ASSERT(bytes < sizeof out.key);
    memcpy(out.key, name, bytes);
    out.value = json_object_get(out.object, out.key);
    out.is_null = json_is_null(out.value);
    if (out.is_null)
        out.value = NULL;
    return out;
}

/* The value under any of its names; two names must agree. */
static bp_err find_member(member *out, const json_t *config, const bp_hf_size *size,
                          const char *path)
{
    *out = member_of(config, size->theirs, strlen(size->theirs));
    for (const char *at = size->older; at && *at; at += strcspn(at, "|"), at += *at == '|') {
        member other = member_of(config, at, strcspn(at, "|"));

        if (other.value && out->value && size->type == BP_HF_PERIOD)
            continue; /* the list has it for each layer */
        if (other.value && out->value && !json_equal(other.value, out->value))
            return BP_FAIL(BP_ERR_FORMAT, "huggingface.contradiction",
                           "\"%s\" and \"%.*s\" say different things: at %s", size->theirs,
                           (int)strcspn(at, "|"), at, path);
        if (other.value || (other.is_null && !out->value))
            *out = other;
    }
    return BP_OK;
}

static int number_of(const char *words, const char *word)
{
    const char *at = words;

    for (int k = 0;; k++, at++) {
        size_t bytes = strcspn(at, "|");

        if (bytes == strlen(word) && strncmp(at, word, bytes) == 0)
            return k;
        at += bytes;
        if (*at == '\0')
            return -1;
    }
}

int hf_choice_of(const bp_hf_size *size, const char *word)
{
    int theirs = size->written ? number_of(size->written, word) : -1;

    return theirs >= 0 ? theirs : number_of(size->words, word);
}

static bp_err read_choice(double *out, const member *found, const bp_hf_size *size,
                          const bp_hf_table *table, const char *path)
{
    const char *word;
    bp_err err = bp_json_get_string(found->object, found->key, &word, path);

    if (err != BP_OK)
        return err;
    *out = strcmp(word, "default") == 0 ? 0 : hf_choice_of(size, word);
    if (*out < 0)
        err = BP_FAIL(
            BP_ERR_FORMAT, "huggingface.unsupported",
            "\"%s\" is \"%.40s\"; this program's %s knows only %s: at %s; give another model",
            size->theirs, word, table->kind, size->written ? size->written : size->words, path);
    return err;
}

int64_t hf_surplus(const bp_hf_shape *shape, const bp_hf_size *size)
{
    return size->plus ? bp_hf_size_of(shape, size->plus) : 0;
}

/* our range: 1 .. 2^31 */
static bp_err read_count(const member *found, const bp_hf_size *size, int64_t surplus, double *out,
                         const char *path)
{
    const char *name = found->key;
    int64_t count = 0;
    bp_err err = BP_OK;

    if (found->value)
        err = bp_json_get_int(found->object, name, &count, path);
    else
        count = (int64_t)*out + surplus; /* default of an absent one */
    if (err == BP_OK && size->or_none && count < 1) {
        *out = 0;
        return BP_OK;
    }
    if (err == BP_OK && (count <= surplus || count > MAX_SIZE))
        err = BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_size",
                      "\"%s\" is %" PRId64 "; %" PRId64 " to 2^31 are possible: at %s", name, count,
                      surplus + 1, path);
    if (err == BP_OK && strstr(size->ours, "layers") && count > HF_MAX_LAYERS)
        err = BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_size",
                      "\"%s\" is %" PRId64 "; %d are possible: at %s", name, count, HF_MAX_LAYERS,
                      path);
    *out = (double)(count - surplus);
    return err;
}

static bp_err read_real(double *out, const member *found, bool zero, const char *path)
{
    bp_err err = bp_json_get_real(found->object, found->key, out, path);

    if (err == BP_OK && !(*out > 0 && *out < 1e15) && !(zero && *out == 0))
        err = BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_size",
                      "\"%s\" is %g; it must be above 0: at %s", found->key, *out, path);
    return err;
}

bp_err hf_read_list(double *list, double *count, const json_t *array, const char *name,
                    const char *path)
{
    const json_t *one;
    size_t k, many = json_array_size(array);
    bool taken = json_is_array(array) && many > 0 && many <= BP_HF_LIST;

    for (k = 0; k < many && taken; k++) {
        one = json_array_get(array, k);
        taken = json_is_number(one) && json_number_value(one) > 0 && json_number_value(one) < 1e15;
        list[k] = json_number_value(one);
    }
    *count = (double)many;
    return taken ? BP_OK
                 : BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_size",
                           "\"%s\" is not a list of 1 to %d numbers above 0: at %s", name,
                           BP_HF_LIST, path);
}

bp_err hf_read_pairs(double *list, double *count, const bp_hf_size *size, const json_t *text,
                     const char *path)
{
    int64_t pairs[HF_PAIRS];

    if (!json_is_string(text) ||
        !bp_pairs_read(pairs, HF_PAIRS, json_string_value(text), size->words))
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_size",
                       "\"%s\" is not a text of up to %d pairs of a word (%s) and a number: at %s",
                       size->theirs, HF_PAIRS, size->words, path);
    *count = 0;
    for (int k = 0; k < HF_PAIRS; k++) {
        list[k] = (double)pairs[k];
        *count += pairs[k] != 0;
    }
    return BP_OK;
}

json_t *hf_pairs_json(const bp_hf_size *size, const double *list)
{
    int64_t pairs[HF_PAIRS];
    char text[HF_PAIRS * 32];

    for (int k = 0; k < HF_PAIRS; k++)
        pairs[k] = (int64_t)list[k];
    bp_pairs_write(text, sizeof text, pairs, HF_PAIRS, size->words);
    return bp_json_string(text);
}

/* The value of a key that is absent, or null. */
static bp_err read_nothing(const bp_hf_shape *shape, const member *found, const bp_hf_size *size,
                           double *out, const char *path)
{
    const char *is = size->absent ? size->absent : size->otherwise;

    if (found->is_null && size->type != BP_HF_LABELS)
        is = size->null_is ? size->null_is : size->type == BP_HF_FLAG && !size->words ? "0" : NULL;
    if (!is && found->is_null)
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.null",
                       "\"%s\" is null: at %s; write its value into config.json", found->key, path);
    if (!is) /* which fails */
        return bp_json_get_real(found->object, found->key, out, path);
    *out = bp_hf_value_of(shape, is);
    if (size->type != BP_HF_COUNT && size->type != BP_HF_PERIOD)
        return BP_OK;
    *out = floor(*out);
    return size->absent && !found->is_null && *out != 0
               ? read_count(found, size, hf_surplus(shape, size), out, path)
               : BP_OK;
}

/* If classes have no names, config.json may give their number. */
static bp_err read_labels(const bp_hf_shape *shape, const json_t *config, const member *found,
                          const bp_hf_size *size, double *out, const char *path)
{
    member number = member_of(config, "num_labels", sizeof "num_labels" - 1);

    if (found->value)
        return hf_labels_count(out, found->value, size->theirs, path);
    return number.value ? read_count(&number, size, 0, out, path)
                        : read_nothing(shape, found, size, out, path);
}

static bp_err read_size(bp_hf_shape *shape, const json_t *config, int k, const char *path)
{
    const bp_hf_size *size = &shape->table->sizes[k];
    double *out = &shape->sizes[k];
    member found = {0};
    bool flag = false;
    bp_err err = size->theirs ? find_member(&found, config, size, path) : BP_OK;

    if (err != BP_OK)
        return err;
    if (size->automatic && json_is_string(found.value) &&
        strcmp(json_string_value(found.value), "auto") == 0)
        found.value = NULL;
    if (!size->theirs) {
        *out = hf_otherwise(shape, size);
    } else if (size->type == BP_HF_LABELS) {
        err = read_labels(shape, config, &found, size, out, path);
    } else if (!found.value) {
        err = read_nothing(shape, &found, size, out, path);
    } else if (size->type == BP_HF_PERIOD && !json_is_integer(found.value)) {
        err = hf_period_read(out, shape, size, found.value, path);
    } else if (size->type == BP_HF_LAYERS) {
        err = hf_layers_read(shape, k, found.value, path);
    } else if (size->type == BP_HF_CHOICE || (size->type == BP_HF_FLAG && size->words)) {
        err = read_choice(out, &found, size, shape->table, path);
    } else if (size->type == BP_HF_FLAG) {
        err = bp_json_get_bool(found.object, found.key, &flag, path);
        *out = flag;
    } else if (size->type == BP_HF_REAL) {
        err = read_real(out, &found, size->zero, path);
    } else if (size->type == BP_HF_PAIRS) {
        err = hf_read_pairs(hf_list_of(shape, k), out, size, found.value, path);
    } else if (size->type == BP_HF_REALS) {
        err = hf_read_list(hf_list_of(shape, k), out, found.value, found.key, path);
    } else {
        err = read_count(&found, size, hf_surplus(shape, size), out, path);
    }
    return err;
}

json_t *hf_setting_value(const bp_hf_shape *shape, const char *text, size_t bytes)
{
    char name[64];
    json_t *value = json_loadb(text, bytes, JSON_DECODE_ANY, NULL);

    if (value)
        return value;
    BP_ASSERT(bytes < sizeof name);
    memcpy(name, text, bytes);
    name[bytes] = '\0';
    return bp_hf_value_of(shape, name) == (double)bp_hf_size_of(shape, name)
               ? json_integer(bp_hf_size_of(shape, name))
               : json_real(bp_hf_value_of(shape, name));
}

static bool are_equal(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return fabs(json_number_value(a) - json_number_value(b)) < 1e-11;
    return json_equal(a, b);
}

/* Is it in the list? */
static bool is_one_of(const bp_hf_shape *shape, const char *is, const json_t *value)
{
    bool taken = false;

    for (const char *at = is; *at != '\0' && !taken;) {
        size_t bytes = strcspn(at, "|");
        json_t *one = hf_setting_value(shape, at, bytes);

        taken = are_equal(one, value) ||
                (json_is_null(value) &&
                 (json_is_false(one) || (json_is_object(one) && json_object_size(one) == 0)));
        json_decref(one);
        at += bytes + (at[bytes] == '|');
    }
    return taken;
}

static bool is_taken(const bp_hf_shape *shape, const bp_hf_setting *setting, const json_t *value)
{
    const json_t *element;
    size_t k;
    bool taken = true;

    if (setting->is[0] != '*')
        return is_one_of(shape, setting->is, value);
    if (!json_is_array(value))
        return json_is_null(value);
    json_array_foreach((json_t *)value, k, element)
    {
        taken = taken && is_one_of(shape, setting->is + 1, element);
    }
    return taken;
}

static bp_err check_setting(const bp_hf_shape *shape, const bp_hf_setting *setting,
                            const json_t *config, const char *path)
{
    member found = member_of(config, setting->key, strlen(setting->key));
    const json_t *given = json_object_get(found.object, found.key);
    json_t *value = NULL;
    int is_list = setting->is[0] == '*';
    bp_err err = BP_OK;

    if (given)
        value = json_incref((json_t *)given);
    else if (setting->absent)
        value = hf_setting_value(shape, setting->absent, strlen(setting->absent));
    if (value && !is_taken(shape, setting, value)) {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));

        err = BP_FAIL(
            BP_ERR_FORMAT, "huggingface.unsupported",
            "\"%s\" is %s%.80s; this program's %s knows only %s%s: at %s; give another model",
            setting->key, given ? "" : "missing, which means ", text ? text : "",
            shape->table->kind, is_list ? "lists of " : "", setting->is + is_list, path);
        free(text); /* of jansson */
    }
    json_decref(value);
    return err;
}

static bp_err check_settings(const bp_hf_shape *shape, const bp_hf_setting *setting,
                             const json_t *config, const char *path)
{
    bp_err err = BP_OK;

    for (; setting->key && err == BP_OK; setting++)
        if (hf_is_set(shape, setting->only_if))
            err = check_setting(shape, setting, config, path);
    return err;
}

/* "gpt2, llama" */
static void name_types(bp_buffer *out, const bp_hf_table *const *tables)
{
    for (const bp_hf_table *const *table = tables; *table; table++)
        if (table == tables || strcmp((*table)->model_type, table[-1]->model_type) != 0)
            bp_buffer_printf(out, "%s%s", table == tables ? "" : ", ", (*table)->model_type);
}

/* The table's task; NULL if it has none. */
static const char *task_of(const bp_hf_table *table)
{
    for (const bp_hf_size *size = table->sizes; size->ours; size++)
        if (strcmp(size->ours, "task") == 0)
            return size->otherwise;
    return NULL;
}

#define TASK_CLASSES "1"
#define TASK_VALUE   "2"

/* A head with one outcome is a regression, unless config.json has "problem_type". */
static bool is_regression(const json_t *config)
{
    const char *type = json_string_value(json_object_get(config, "problem_type"));
    const json_t *labels = json_object_get(config, "id2label");

    if (type)
        return strcmp(type, "regression") == 0;
    return json_is_object(labels) ? json_object_size(labels) == 1
                                  : json_integer_value(json_object_get(config, "num_labels")) == 1;
}

/* Does each text have one of several classes? */
static bp_err check_problem(const bp_hf_shape *shape, const json_t *config, const char *path)
{
    const char *task = task_of(shape->table),
               *type = json_string_value(json_object_get(config, "problem_type"));

    if (task && strcmp(task, TASK_VALUE) == 0 && bp_hf_size_of(shape, "outcomes") != 1)
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.unsupported",
                       "\"problem_type\" is \"regression\" with more than one outcome; this "
                       "program's %s knows only one: at %s; give another model",
                       shape->table->kind, path);
    if (task && strcmp(task, TASK_CLASSES) == 0 && type &&
        strcmp(type, "single_label_classification") != 0)
        return BP_FAIL(
            BP_ERR_FORMAT, "huggingface.unsupported",
            "\"problem_type\" is \"%.40s\"; this program's %s knows only "
            "\"single_label_classification\" and \"regression\": at %s; give another model",
            type, shape->table->kind, path);
    return BP_OK;
}

/* Can the table's task be that of config.json? */
static bool fits_problem(const json_t *config, const bp_hf_table *table)
{
    const char *task = task_of(table);

    return !task || strcmp(task, is_regression(config) ? TASK_CLASSES : TASK_VALUE) != 0;
}

static bp_err find_table(const bp_hf_table **out, const json_t *config,
                         const bp_hf_table *const *tables, const char *path)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    bp_buffer types = {0};
    bp_err err;

    *out = NULL;
    for (const bp_hf_table *const *table = tables; *table; table++)
        if (type && strcmp(type, (*table)->model_type) == 0 &&
            (!*out || (hf_config_names(config, *table) && fits_problem(config, *table))))
            *out = *table;
    if (*out)
        return BP_OK;
    name_types(&types, tables);
    err = BP_FAIL(
        BP_ERR_FORMAT, "huggingface.unknown_type",
        "\"model_type\" is \"%.40s\", and only %s can be imported: at %s; give another model",
        !type ? "" : type, types.data, path);
    bp_buffer_clear(&types);
    return err;
}

/* An id below 0, or beyond the vocabulary, is no token. */
static void read_pad(bp_hf_shape *out, const json_t *config)
{
    const json_t *pad = json_object_get(config, "pad_token_id");
    const char *absent = out->table->pad;
    int64_t id = !pad && absent         ? strtoll(absent, NULL, 10)
                 : json_is_integer(pad) ? json_integer_value(pad)
                                        : -1;

    out->no_pad = id < 0 || id >= bp_hf_size_of(out, "vocab_size");
    if (!out->no_pad)
        out->pad_id = id;
}

static bp_err read_config(bp_hf_shape *out, json_t *config, const bp_hf_table *const *tables,
                          const char *path)
{
    const json_t *eos = json_object_get(config, "eos_token_id");
    bp_err err;

    *out = (bp_hf_shape){.eos_id = -1, .bos_id = -1, .pad_id = -1};
    err = find_table(&out->table, config, tables, path);
    for (int k = 0; err == BP_OK && out->table->sizes[k].ours; k++)
        err = read_size(out, config, k, path);
    for (int k = 0; err == BP_OK && out->table->sizes[k].ours; k++)
        if (out->table->sizes[k].type == BP_HF_LABELS)
            out->labels = hf_labels_read(json_object_get(config, out->table->sizes[k].theirs));
    if (err == BP_OK && out->table->derive)
        out->table->derive(out, false);
    if (err == BP_OK)
        err = hf_config_check_members(out->table, config, path);
    if (err == BP_OK)
        err = check_settings(out, out->table->settings, config, path);
    for (const bp_hf_setting *one = hf_common_settings; err == BP_OK && one->key; one++)
        if (!hf_is_set_by(out->table->settings, one->key))
            err = check_settings(out, (bp_hf_setting[]){*one, {0}}, config, path);
    if (err == BP_OK)
        err = check_problem(out, config, path);
    if (err == BP_OK)
        err = hf_config_check_unknown(out->table, config, path);
    if (err == BP_OK)
        err = out->table->check(out, path);
    if (err == BP_OK && json_is_integer(eos) && json_integer_value(eos) >= 0 &&
        json_integer_value(eos) < bp_hf_size_of(out, "vocab_size"))
        out->eos_id = json_integer_value(eos);
    if (err == BP_OK && out->table->trims)
        read_pad(out, config);
    return bp_err_advise(err, "export the model again");
}

bp_err hf_config_read(bp_hf_shape *out, json_t *config, const bp_hf_table *const *tables,
                      const char *path)
{
    json_t *text = hf_text_config(config, tables);
    bp_err err = read_config(out, text, tables, path);

    json_decref(text);
    return err;
}
