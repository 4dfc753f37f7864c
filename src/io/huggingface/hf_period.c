/* Lists of config.json with one word per layer, where every n-th differs from the rest: the number
 * n. Or lists of the layers that differ: one word per layer, or the layers themselves. */
#include "base/config/json.h"
#include "io/huggingface/hf_config_priv.h"

#include <string.h>

/* Word `second` of the two. New reference. */
static json_t *word_of(const bp_hf_size *size, bool second)
{
    const char *bar = strchr(size->words, '|');

    return second ? json_loads(bar + 1, JSON_DECODE_ANY, NULL)
                  : json_loadb(size->words, (size_t)(bar - size->words), JSON_DECODE_ANY, NULL);
}

/* Is layer k the other one in each group of n: the last of them, or the first if it leads? */
static bool is_other(int64_t k, int64_t n, bool leads)
{
    return k % n == (leads ? 0 : n - 1);
}

static bool has_period(const bool *other, int64_t layers, int64_t n, bool leads)
{
    for (int64_t k = 0; k < layers; k++)
        if (other[k] != is_other(k, n, leads))
            return false;
    return true;
}

/* The usual number if it fits, else the smallest that fits; 0 if there is none, or if the usual
 * number is 0 and no layer differs. */
static int64_t find_period(const bool *other, int64_t layers, int64_t usual, bool leads)
{
    if (usual > 0 && has_period(other, layers, usual, leads))
        return usual;
    if (usual == 0 && has_period(other, layers, layers + 1, false))
        return 0;
    for (int64_t n = 1; n <= layers + 1; n++)
        if (has_period(other, layers, n, leads))
            return n;
    return 0;
}

static bool take_words(bool *other, const json_t *list, int64_t layers, const bp_hf_size *size)
{
    json_t *one = word_of(size, false), *two = word_of(size, true);
    bool known = json_is_array(list) && (int64_t)json_array_size(list) >= layers;

    for (int64_t k = 0; k < layers && known; k++) {
        const json_t *word = json_array_get(list, (size_t)k);

        other[k] = json_equal(word, two);
        known = other[k] || json_equal(word, one);
    }
    json_decref(one);
    json_decref(two);
    return known;
}

bp_err hf_period_read(double *out, const bp_hf_shape *shape, const bp_hf_size *size,
                      const json_t *list, const char *path)
{
    bool other[HF_MAX_LAYERS] = {false};
    int64_t layers = bp_hf_size_of(shape, "layers"), usual = bp_hf_size_of(shape, size->otherwise);
    bool known = take_words(other, list, layers, size);

    *out = known ? (double)find_period(other, layers, usual, size->leads) : 0;
    if (*out > 0 || (known && usual == 0 && has_period(other, layers, layers + 1, false)))
        return BP_OK;
    return BP_FAIL(
        BP_ERR_FORMAT, "huggingface.unsupported",
        "\"%s\" is not a list for %lld layers in which each n-th is %s and the others are "
        "%.*s, which is all that this program's %s knows: at %s; give another model",
        size->theirs, (long long)layers, strchr(size->words, '|') + 1,
        (int)strcspn(size->words, "|"), size->words, shape->table->kind, path);
}

json_t *hf_period_json(const bp_hf_shape *shape, const bp_hf_size *size, double n)
{
    json_t *list = json_array();
    int64_t layers = bp_hf_size_of(shape, "layers");

    for (int64_t k = 0; k < layers; k++)
        (void)json_array_append_new(list,
                                    word_of(size, n > 0 && is_other(k, (int64_t)n, size->leads)));
    return list;
}

static bp_err read_words(bp_hf_shape *shape, int k, const json_t *list, const char *path)
{
    const bp_hf_size *size = &shape->table->sizes[k];
    bool other[HF_MAX_LAYERS] = {false};
    int64_t layers = bp_hf_size_of(shape, "layers"), count = 0;
    double *numbers = hf_list_of(shape, k);
    bool known = take_words(other, list, layers, size);

    for (int64_t i = 0; i < layers && known; i++) {
        if (other[i] && count < BP_HF_LIST)
            numbers[count] = (double)(i + 1);
        count += other[i];
    }
    shape->sizes[k] = (double)count;
    if (known && count <= BP_HF_LIST)
        return BP_OK;
    return BP_FAIL(
        BP_ERR_FORMAT, "huggingface.unsupported",
        "\"%s\" is not a list for %lld layers of %.*s and, %d times at most, %s, which is "
        "all that this program's %s knows: at %s; give another model",
        size->theirs, (long long)layers, (int)strcspn(size->words, "|"), size->words, BP_HF_LIST,
        strchr(size->words, '|') + 1, shape->table->kind, path);
}

static bp_err read_numbers(bp_hf_shape *shape, int k, const json_t *list, const char *path)
{
    int64_t layers = bp_hf_size_of(shape, "layers");
    size_t many = json_array_size(list);
    double *numbers = hf_list_of(shape, k);
    bool taken = json_is_array(list) && many <= BP_HF_LIST;

    for (size_t i = 0; i < many && taken; i++) {
        const json_t *one = json_array_get(list, i);

        taken = json_is_integer(one) && json_integer_value(one) >= 0 &&
                json_integer_value(one) < layers;
        numbers[i] = (double)json_integer_value(one) + 1;
    }
    shape->sizes[k] = (double)many;
    return taken ? BP_OK
                 : BP_FAIL(BP_ERR_FORMAT, "huggingface.bad_size",
                           "\"%s\" is not a list of up to %d of the layers 0 to %lld: at %s",
                           shape->table->sizes[k].theirs, BP_HF_LIST, (long long)layers - 1, path);
}

bp_err hf_layers_read(bp_hf_shape *shape, int k, const json_t *list, const char *path)
{
    return shape->table->sizes[k].words ? read_words(shape, k, list, path)
                                        : read_numbers(shape, k, list, path);
}

json_t *hf_layers_json(const bp_hf_shape *shape, int k)
{
    const bp_hf_size *size = &shape->table->sizes[k];
    json_t *list = json_array();

    for (int64_t i = 0; size->words && i < bp_hf_size_of(shape, "layers"); i++)
        (void)json_array_append_new(list, word_of(size, bp_hf_list_has(shape, size->ours, i)));
    for (int64_t i = 0; !size->words && i < (int64_t)shape->sizes[k]; i++)
        (void)json_array_append_new(list, json_integer((json_int_t)bp_hf_list_of(shape, k)[i] - 1));
    return list;
}
