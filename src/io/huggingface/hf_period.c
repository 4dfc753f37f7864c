/* A list of config.json with an element a layer, of which each n-th is another one than the rest:
 * the number n. */
#include "base/config/json.h"
#include "io/huggingface/hf_config_priv.h"

#include <stdlib.h>
#include <string.h>

/* Word `second` of the two. New reference. */
static json_t *word_of(const bp_hf_size *size, bool second)
{
    const char *bar = strchr(size->words, '|');

    return second ? json_loads(bar + 1, JSON_DECODE_ANY, NULL)
                  : json_loadb(size->words, (size_t)(bar - size->words), JSON_DECODE_ANY, NULL);
}

/* Is layer k the other one in each group of n: the last of them, or the first where it leads? */
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

/* The usual number where it is that, else the least. 0: none is. */
static int64_t find_period(const bool *other, int64_t layers, int64_t usual, bool leads)
{
    if (has_period(other, layers, usual, leads))
        return usual;
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
    if (*out > 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "huggingface.unsupported",
                   "\"%s\" is no list for %lld layers in which each n-th is %s and the others are "
                   "%.*s, which is all that this program's %s knows: at %s; give another model",
                   size->theirs, (long long)layers, strchr(size->words, '|') + 1,
                   (int)strcspn(size->words, "|"), size->words, shape->table->kind, path);
}

json_t *hf_period_json(const bp_hf_shape *shape, const bp_hf_size *size, double n)
{
    json_t *list = json_array();
    int64_t layers = bp_hf_size_of(shape, "layers");

    for (int64_t k = 0; k < layers; k++)
        (void)json_array_append_new(list, word_of(size, is_other(k, (int64_t)n, size->leads)));
    return list;
}
