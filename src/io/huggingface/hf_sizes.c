/* The sizes of a table's model: by name, and as expressions of each other. */
#include "base/err.h"
#include "io/huggingface/hf_config_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A number, or one of the table's sizes. */
static double factor_of(const bp_hf_shape *shape, const char *name, size_t bytes)
{
    char *end;
    double number = strtod(name, &end);

    if (end == name + bytes)
        return number;
    for (int k = 0; shape->table->sizes[k].ours; k++)
        if (strlen(shape->table->sizes[k].ours) == bytes &&
            strncmp(shape->table->sizes[k].ours, name, bytes) == 0)
            return shape->sizes[k];
    BP_ASSERT(!"a size of the table");
    return 0;
}

double bp_hf_value_of(const bp_hf_shape *shape, const char *expression)
{
    double value = 1, sum = 0;

    for (char sign = '*'; sign != '\0';) {
        size_t bytes = strcspn(expression, "*/+");
        double factor = factor_of(shape, expression, bytes);

        if (sign == '+') {
            sum += value;
            value = 1;
        }
        value = sign == '/' ? value / factor : value * factor;
        sign = expression[bytes];
        expression += bytes + (sign != '\0');
    }
    return sum + value;
}

int64_t bp_hf_size_of(const bp_hf_shape *shape, const char *name)
{
    return (int64_t)bp_hf_value_of(shape, name);
}

static int find_size(const bp_hf_table *table, const char *name)
{
    for (int k = 0; table->sizes[k].ours; k++)
        if (strcmp(table->sizes[k].ours, name) == 0)
            return k;
    return -1;
}

bool bp_hf_has_size(const bp_hf_table *table, const char *name)
{
    return find_size(table, name) >= 0;
}

void bp_hf_set_size(bp_hf_shape *shape, const char *name, double value)
{
    int k = find_size(shape->table, name);

    if (k >= 0)
        shape->sizes[k] = value;
}

bool hf_is_list(const bp_hf_size *size)
{
    return size->type == BP_HF_REALS || size->type == BP_HF_LAYERS || size->type == BP_HF_PAIRS;
}

double *hf_list_of(bp_hf_shape *shape, int k)
{
    int list = 0;

    for (int before = 0; before < k; before++)
        list += hf_is_list(&shape->table->sizes[before]);
    BP_ASSERT(list < BP_HF_LISTS);
    return shape->lists[list];
}

const double *bp_hf_list_of(const bp_hf_shape *shape, int k)
{
    return hf_list_of((bp_hf_shape *)(uintptr_t)shape, k);
}

bool bp_hf_list_has(const bp_hf_shape *shape, const char *name, int64_t number)
{
    int k = find_size(shape->table, name);

    BP_ASSERT(k >= 0);
    for (int64_t i = 0; i < (int64_t)shape->sizes[k]; i++)
        if ((int64_t)bp_hf_list_of(shape, k)[i] == number + 1)
            return true;
    return false;
}

double hf_otherwise(const bp_hf_shape *shape, const bp_hf_size *size)
{
    double value = bp_hf_value_of(shape, size->otherwise);

    return size->type == BP_HF_COUNT || size->type == BP_HF_PERIOD ? floor(value) : value;
}

bool bp_hf_is_given(const bp_hf_shape *shape, int k)
{
    const bp_hf_size *size = &shape->table->sizes[k];

    return !size->only_theirs && (!size->quiet || shape->sizes[k] != hf_otherwise(shape, size));
}

bp_err bp_hf_check_divides(const bp_hf_shape *shape, const char *count, const char *other,
                           const char *path)
{
    const bp_hf_size *sizes = shape->table->sizes;
    int one = find_size(shape->table, count), all = find_size(shape->table, other);
    int64_t part = (int64_t)shape->sizes[one], whole = (int64_t)shape->sizes[all];

    if (whole % part == 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "huggingface.not_dividing",
                   "\"%s\" %lld does not divide \"%s\" %lld: at %s", sizes[one].theirs,
                   (long long)part, sizes[all].theirs, (long long)whole, path);
}

bp_err bp_hf_check_heads(const bp_hf_shape *shape, const char *path)
{
    return bp_hf_check_divides(shape, "heads", "width", path);
}
