/* Slices of logical tensors: what they cover, where they meet, and how they are laid out in memory.
 */
#include "tensor/slice.h"

#include <stdio.h>
#include <string.h>

/* Parts become HDF5 groups: "." has a special meaning there, and pieces are named "p0".
 */
static bool part_is_valid(const char *part, size_t length)
{
    size_t dots = 0;

    if (length > 1 && part[0] == 'p' && strspn(part + 1, "0123456789") == length - 1)
        return false;

    for (size_t k = 0; k < length; k++)
        dots += part[k] == '.';
    return length > 0 && dots < length;
}

bool bp_tensor_name_is_valid(const char *name)
{
    size_t length = strnlen(name, BP_TENSOR_NAME);

    if (length == 0 || length >= BP_TENSOR_NAME)
        return false;
    if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_./") != length)
        return false;
    for (const char *part = name;; part++) {
        size_t run = strcspn(part, "/");

        if (!part_is_valid(part, run))
            return false;
        part += run;
        if (*part == '\0')
            return true;
    }
}

bool bp_slice_volume(int dims, const int64_t *extent, int64_t *volume)
{
    int64_t product = 1;

    for (int d = 0; d < dims; d++) {
        if (extent[d] < 0 || __builtin_mul_overflow(product, extent[d], &product))
            return false;
        if (product > BP_TENSOR_MAX_VOLUME)
            return false;
    }
    *volume = product;
    return true;
}

bp_err bp_slice_check(const bp_slice *slice)
{
    int64_t volume;

    if (!bp_tensor_name_is_valid(slice->name))
        return BP_FAIL(BP_ERR_FORMAT, "tensor.bad_name",
                       "'%.120s' is not a tensor name: letters of [a-z0-9_.], parts "
                       "joined by '/', 1 to 120 in all",
                       slice->name);
    if (slice->dims < 1 || slice->dims > BP_TENSOR_DIMS)
        return BP_FAIL(BP_ERR_FORMAT, "tensor.bad_shape",
                       "tensor '%s' has %d dimensions; 1 to %d are possible", slice->name,
                       slice->dims, BP_TENSOR_DIMS);
    for (int d = 0; d < slice->dims; d++) {
        if (slice->shape[d] < 1 || slice->shape[d] > BP_TENSOR_MAX_EXTENT)
            return BP_FAIL(BP_ERR_FORMAT, "tensor.bad_shape",
                           "tensor '%s' has %lld for dimension %d; 1 to 2^31 are "
                           "possible",
                           slice->name, (long long)slice->shape[d], d);
        if (slice->offset[d] < 0 || slice->extent[d] < 0 || slice->offset[d] > slice->shape[d] ||
            slice->extent[d] > slice->shape[d] - slice->offset[d])
            return BP_FAIL(BP_ERR_FORMAT, "tensor.bad_shape",
                           "a piece of tensor '%s' covers %lld + %lld of dimension %d, which has "
                           "%lld",
                           slice->name, (long long)slice->offset[d], (long long)slice->extent[d], d,
                           (long long)slice->shape[d]);
    }
    if (!bp_slice_volume(slice->dims, slice->shape, &volume))
        return BP_FAIL(BP_ERR_FORMAT, "tensor.bad_shape", "tensor '%s' has more than 2^40 elements",
                       slice->name);
    return BP_OK;
}

void bp_shape_text(char *out, size_t out_bytes, int dims, const int64_t *shape)
{
    size_t used = 0;

    for (int d = 0; d < dims && used < out_bytes; d++)
        used += (size_t)snprintf(out + used, out_bytes - used, "%s%lld", d == 0 ? "(" : ", ",
                                 (long long)shape[d]);
    if (used < out_bytes)
        (void)snprintf(out + used, out_bytes - used, ")");
}

bool bp_slice_intersect(int dims, const int64_t *offset_a, const int64_t *extent_a,
                        const int64_t *offset_b, const int64_t *extent_b, int64_t *offset,
                        int64_t *extent)
{
    for (int d = 0; d < dims; d++) {
        int64_t end_a = offset_a[d] + extent_a[d], end_b = offset_b[d] + extent_b[d];
        int64_t end = end_a < end_b ? end_a : end_b;

        offset[d] = offset_a[d] > offset_b[d] ? offset_a[d] : offset_b[d];
        extent[d] = end - offset[d];
        if (extent[d] <= 0)
            return false;
    }
    return true;
}

int64_t bp_checked_volume(int dims, const int64_t *extent)
{
    int64_t volume = 1;

    for (int d = 0; d < dims; d++)
        volume *= extent[d];
    return volume;
}

/* The longest run that is contiguous both in the slice and in the whole tensor: the last
 * dimension, and those before it as long as all later ones are covered whole. Returns the
 * dimension where the run begins. */
static int run_dimension(const bp_slice *slice, int64_t *run)
{
    int d = slice->dims - 1;

    *run = slice->extent[d];
    while (d > 0 && slice->extent[d] == slice->shape[d]) {
        d--;
        *run *= slice->extent[d];
    }
    return d;
}

/* Where a run, counted over dimensions [0, outer), begins in the whole tensor. */
static int64_t place_of_run(const bp_slice *slice, int outer, int64_t number)
{
    int64_t at[BP_TENSOR_DIMS] = {0}, place = 0;

    for (int d = outer - 1; d >= 0; d--) {
        at[d] = number % slice->extent[d];
        number /= slice->extent[d];
    }
    for (int d = 0; d < slice->dims; d++)
        place = place * slice->shape[d] + slice->offset[d] + at[d];
    return place;
}

void bp_slice_digest_part(bp_digest *digest, const bp_slice *slice, int64_t first,
                          const float *values, int64_t count)
{
    int64_t run, now;
    int outer = run_dimension(slice, &run);

    for (int64_t done = 0; done < count; done += now) {
        int64_t number = (first + done) / run, skipped = (first + done) % run;

        now = run - skipped < count - done ? run - skipped : count - done;
        bp_digest_add(digest, values + done, place_of_run(slice, outer, number) + skipped, now);
    }
}

void bp_slice_digest(bp_digest *digest, const bp_slice *slice, const float *data)
{
    bp_slice_digest_part(digest, slice, 0, data, bp_checked_volume(slice->dims, slice->extent));
}

/* An all-ones exponent is an infinity or NaN. Integers, so that compilers vectorise it. */
bool bp_are_finite(const float *values, int64_t count)
{
    const uint32_t exponent = UINT32_C(0x7f800000);
    uint32_t bad = 0;

    for (int64_t k = 0; k < count; k++) {
        uint32_t bits;

        memcpy(&bits, &values[k], sizeof bits);
        bad |= (bits & exponent) == exponent;
    }
    return bad == 0;
}

bool bp_slice_part(bp_part *part, const bp_slice *slice, int64_t limit, int64_t k)
{
    int64_t inner = 1, outer = 1, step, per_row, rest;
    int cut = slice->dims -
              1; /* the dimension that is cut: later ones are whole, earlier ones have extent 1 */

    for (int d = 0; d < slice->dims; d++)
        if (slice->extent[d] == 0)
            return false;
    while (cut > 0 && inner * slice->extent[cut] <= limit)
        inner *= slice->extent[cut--];
    step = limit / inner < slice->extent[cut] ? limit / inner : slice->extent[cut];
    for (int d = 0; d < cut; d++)
        outer *= slice->extent[d];
    per_row = (slice->extent[cut] + step - 1) / step;
    if (k >= outer * per_row)
        return false;
    rest = k / per_row;
    for (int d = slice->dims - 1; d >= 0; d--) {
        part->start[d] = 0;
        part->size[d] = slice->extent[d];
        if (d < cut) {
            part->start[d] = rest % slice->extent[d];
            part->size[d] = 1;
            rest /= slice->extent[d];
        }
    }
    part->start[cut] = k % per_row * step;
    part->size[cut] = slice->extent[cut] - part->start[cut];
    if (part->size[cut] > step)
        part->size[cut] = step;
    part->first = (k / per_row * slice->extent[cut] + part->start[cut]) * inner;
    part->count = part->size[cut] * inner;
    return true;
}

bp_slice bp_slice_of_part(const bp_slice *slice, const bp_part *part)
{
    bp_slice out = *slice;

    out.data = NULL;
    for (int d = 0; d < slice->dims; d++) {
        out.offset[d] += part->start[d];
        out.extent[d] = part->size[d];
    }
    return out;
}
