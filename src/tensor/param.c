/* Parameters and groups of them: named slices of tensors, and their initial values. */
#include "tensor/param.h"

#include "base/err.h"
#include "base/files/hash.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdio.h>
#include <string.h>

int64_t bp_param_floats(const bp_param *param)
{
    return param->dims == 1 ? param->extent[0] : param->extent[0] * param->extent[1];
}

void bp_group_reserve(bp_group *group, int count)
{
    if (group->params)
        return;
    group->params = bp_alloc("nn.params", count, sizeof *group->params);
    group->capacity = count;
}

void bp_group_clear(bp_group *group)
{
    for (int k = 0; k < group->count; k++)
        bp_free(group->params[k].gain);
    bp_free(group->params);
    *group = (bp_group){0};
}

void bp_group_align(bp_group *group, int64_t multiple)
{
    group->floats = (group->floats + multiple - 1) / multiple * multiple;
}

static bp_param *append(bp_group *group, const char *name)
{
    bp_group_reserve(group, BP_GROUP_PARAMS);
    BP_ASSERT(group->count < group->capacity);
    bp_param *param = &group->params[group->count++];
    int length = snprintf(param->name, sizeof param->name, "%s", name);

    BP_ASSERT(length > 0 && (size_t)length < sizeof param->name);
    return param;
}

static bp_param *place_in_group(bp_group *group, bp_param *param)
{
    param->place = group->floats;
    group->floats += bp_param_floats(param);
    return param;
}

static bp_param *add_vector(bp_group *group, const char *name, int64_t n, int64_t first,
                            int64_t count, bp_init init)
{
    bp_param *param = append(group, name);

    param->dims = 1;
    param->shape[0] = n;
    param->offset[0] = first;
    param->extent[0] = count;
    param->init = init;
    return place_in_group(group, param);
}

bp_param *bp_group_add_vector(bp_group *group, const char *name, int64_t n, bp_init init)
{
    return add_vector(group, name, n, 0, n, init);
}

bp_param *bp_group_add_vector_part(bp_group *group, const char *name, int64_t n, int64_t first,
                                   int64_t count)
{
    return add_vector(group, name, n, first, count, BP_INIT_ZERO);
}

bp_param *bp_group_add_matrix_part(bp_group *group, const char *name, int64_t rows, int64_t columns,
                                   float init_std, int axis, int64_t first, int64_t count)
{
    bp_param *param = append(group, name);

    param->dims = 2;
    param->shape[0] = param->extent[0] = rows;
    param->shape[1] = param->extent[1] = columns;
    param->offset[axis] = first;
    param->extent[axis] = count;
    param->decays = true;
    param->init = BP_INIT_NORMAL;
    param->init_std = init_std;
    return place_in_group(group, param);
}

bp_param *bp_group_add_matrix(bp_group *group, const char *name, int64_t rows, int64_t columns,
                              float init_std)
{
    return bp_group_add_matrix_part(group, name, rows, columns, init_std, 0, 0, rows);
}

bool bp_params_take_fresh(bp_param *params, int count)
{
    bool fresh = params[0].fresh;

    for (int k = 0; k < count; k++) {
        BP_ASSERT(params[k].fresh == fresh);
        params[k].fresh = false;
    }
    return fresh;
}

static void initialise_random(bp_param *param, uint64_t seed)
{
    bool normal = param->init == BP_INIT_NORMAL;
    int64_t stream = (int64_t)bp_xxh3(param->name, strlen(param->name));
    bp_rng_key key = bp_rng_key_of(seed, BP_RNG_INIT, 0, 0, stream);
    int last = param->dims - 1;
    int64_t rows = last ? param->extent[0] : 1, columns = param->extent[last];

#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = last ? param->offset[0] + r : 0;
        int64_t first = row * param->shape[last] + param->offset[last];
        for (int64_t c = 0; c < columns; c++) {
            uint64_t at = (uint64_t)(first + c);
            double drawn = normal ? bp_rng_normal(&key, at) : 2 * bp_rng_uniform(&key, at) - 1;

            param->value[r * columns + c] = (float)(param->init_std * drawn);
        }
    }
}

static void take_given(bp_param *param)
{
    int last = param->dims - 1;
    int64_t rows = last ? param->extent[0] : 1, columns = param->extent[last];

    for (int64_t r = 0; r < rows; r++) {
        int64_t row = last ? param->offset[0] + r : 0;

        memcpy(param->value + r * columns,
               param->given + row * param->shape[last] + param->offset[last],
               (size_t)columns * sizeof *param->value);
    }
}

void bp_param_initialise(bp_param *param, uint64_t seed)
{
    int64_t n = bp_param_floats(param);

    if (param->init == BP_INIT_NORMAL || param->init == BP_INIT_UNIFORM) {
        initialise_random(param, seed);
        return;
    }
    if (param->init == BP_INIT_GIVEN && param->given) {
        take_given(param);
        return;
    }
    float value = param->init == BP_INIT_ONE        ? 1.0F
                  : param->init == BP_INIT_CONSTANT ? param->init_std
                                                    : 0.0F;
    for (int64_t i = 0; i < n; i++)
        param->value[i] = value;
    for (int64_t r = 0; r < param->extent[0] && param->init == BP_INIT_IDENTITY; r++) {
        int64_t column = param->offset[0] + r - param->offset[1];

        if (column >= 0 && column < param->extent[1])
            param->value[r * param->extent[1] + column] = 1;
    }
}
