/* What families of Transformers have in common: their sizes, and which go together. */
#include "models/family.h"

#include <stdio.h>
#include <string.h>

/* "1, 2, 4, 8": divisors of n, at most twelve of them, those near `wish`. */
static void list_divisors(char *out, size_t bytes, int64_t n, int64_t wish, int64_t multiple_of)
{
    int64_t near[12];
    int count = 0;
    size_t used = 0;

    for (int64_t d = multiple_of; d <= n; d += multiple_of) {
        if (n % d != 0)
            continue;
        if (count == 12) {
            if (d > 4 * wish)
                break;
            memmove(near, near + 1, 11 * sizeof near[0]);
            count = 11;
        }
        near[count++] = d;
    }
    out[0] = '\0';
    for (int k = 0; k < count; k++)
        used +=
            (size_t)snprintf(out + used, bytes - used, "%s%lld", k ? ", " : "", (long long)near[k]);
}

void bp_transformer_check(const bp_model_shape *shape, int tensors, bp_config *config)
{
    char fits[512];

    if (shape->width % shape->heads != 0) {
        list_divisors(fits, sizeof fits, shape->width, shape->heads, 1);
        bp_config_fault(config,
                        "model.heads = %lld does not divide model.width = %lld: at model.heads; "
                        "heads that fit: %s",
                        (long long)shape->heads, (long long)shape->width, fits);
    }
    if (shape->heads % tensors != 0) {
        list_divisors(fits, sizeof fits, shape->heads, tensors, 1);
        bp_config_fault(config,
                        "mesh.tensor = %d does not divide model.heads = %lld: at mesh.tensor; "
                        "tensor ranks that fit: %s",
                        tensors, (long long)shape->heads, fits);
    }
}

bp_err bp_transformer_check_read(const bp_model_shape *shape, const char *where)
{
    if (shape->width % shape->heads == 0)
        return BP_OK;
    return BP_FAIL(
        BP_ERR_FORMAT,
        "the model's %lld heads do not divide its width %lld: at %s; the checkpoint is wrong",
        (long long)shape->heads, (long long)shape->width, where);
}

const bp_model_size bp_transformer_sizes[] = {{.name = "layers", .at = BP_SIZE_AT(layers)},
                                              {.name = "width", .at = BP_SIZE_AT(width)},
                                              {.name = "heads", .at = BP_SIZE_AT(heads)},
                                              {.name = "context", .at = BP_SIZE_AT(context)},
                                              {0}};
