/* Their tensors and ours, by a family's table. */
#include "io/huggingface/hf_config_priv.h"
#include "io/huggingface/hf_model_priv.h"

#include "base/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 32 /* transposition proceeds by squares, so that both sides stay in the cache */

/* Length of the text before '*'; 0 if the row is not a layer's. */
static size_t stack_bytes(const bp_hf_row *row)
{
    const char *star = strchr(row->theirs, '*');

    return star ? (size_t)(star - row->theirs) : 0;
}

bool hf_is_set(const bp_hf_shape *shape, const char *flag)
{
    if (!flag)
        return true;
    return flag[0] == '!' ? bp_hf_size_of(shape, flag + 1) == 0 : bp_hf_size_of(shape, flag) != 0;
}

bool hf_name_is_bare(const bp_hf_table *table, const char *name)
{
    for (const char *const *bare = table->bare; bare && *bare; bare++)
        if (strncmp(name, *bare, strlen(*bare)) == 0)
            return true;
    return false;
}

const bp_hf_alias *hf_alias_of(const bp_hf_table *table, const char *name)
{
    size_t bytes = strlen(name), end;

    for (const bp_hf_alias *alias = table->aliases; alias && alias->name; alias++) {
        end = strlen(alias->name);
        if (bytes >= end && strcmp(name + bytes - end, alias->name) == 0)
            return alias;
    }
    return NULL;
}

void hf_other_name(char other[2 * HF_NAME], const bp_hf_alias *alias, const char *name)
{
    (void)snprintf(other, 2 * HF_NAME, "%.*s%s", (int)(strlen(name) - strlen(alias->name)), name,
                   alias->other);
}

bool hf_has_copy(char other[2 * HF_NAME], const bp_hf_shape *shape, const char *name)
{
    const bp_hf_alias *alias = hf_alias_of(shape->table, name);

    if (!alias || !alias->computes || hf_is_tied(shape))
        return false;
    hf_other_name(other, alias, name);
    return true;
}

bool hf_is_tied(const bp_hf_shape *shape)
{
    for (const bp_hf_size *size = shape->table->sizes; size->ours; size++)
        if (strcmp(size->ours, "tied") == 0)
            return bp_hf_size_of(shape, "tied") != 0;
    return true; /* a table without the choice */
}

static bool is_in_layer(const bp_hf_shape *shape, const bp_hf_row *row, int64_t layer)
{
    bool sparse = !shape->table->is_sparse || shape->table->is_sparse(shape, layer);
    const char *list = row->of_layers;

    if (list && bp_hf_list_has(shape, list + (list[0] == '!'), layer) == (list[0] == '!'))
        return false;
    return row->in == BP_HF_ALL || sparse == (row->in == BP_HF_SPARSE);
}

/* Does a model of this shape have it, for a row of layers in this layer? */
static bool is_there(const bp_hf_shape *shape, const bp_hf_row *row, int64_t layer)
{
    return hf_is_set(shape, row->only_if) && !(layer == 0 ? row->not_first : row->only_first) &&
           (stack_bytes(row) == 0 || is_in_layer(shape, row, layer)) &&
           !(shape->headless && hf_name_is_bare(shape->table, row->theirs));
}

/* Its number of tensors in a layer that has it. */
static int64_t experts_of(const bp_hf_shape *shape, const bp_hf_row *row)
{
    return row->experts ? bp_hf_size_of(shape, row->experts) : 1;
}

/* Rows from `row` on that are one layer's. */
static int rows_of_layer(const bp_hf_row *row)
{
    size_t bytes = stack_bytes(row);
    int count = 1;

    while (row[count].theirs && stack_bytes(&row[count]) == bytes &&
           strncmp(row[count].theirs, row->theirs, bytes) == 0)
        count++;
    return count;
}

static int64_t layers_of(const bp_hf_shape *shape, const bp_hf_row *row)
{
    return row->only_first ? 1 : bp_hf_size_of(shape, row->layers ? row->layers : "layers");
}

/* The name with these numbers for its '*' and '#'. */
static void set_name(char name[HF_NAME], const char *pattern, int64_t layer, int64_t expert)
{
    size_t used = 0;

    for (const char *at = pattern; *at != '\0' && used + 20 < HF_NAME; at++) {
        if (*at == '*' || *at == '#')
            used += (size_t)snprintf(name + used, HF_NAME - used, "%" PRId64,
                                     *at == '*' ? layer : expert);
        else
            name[used++] = *at;
    }
    name[used] = '\0';
}

static void fill(hf_tensor *out, const bp_hf_shape *shape, const bp_hf_row *row, int64_t layer,
                 int64_t expert)
{
    const char *columns = row->first_columns && layer == 0 ? row->first_columns : row->columns;

    set_name(out->name, row->theirs, layer, expert);
    out->dims = !row->columns ? 1 : 2;
    out->shape[0] = bp_hf_size_of(shape, row->rows);
    out->shape[1] = !row->columns ? 0 : bp_hf_size_of(shape, columns);
    out->transposed = row->transposed;
    out->parts = row->parts;
    out->or_zero = row->or_zero;
    out->blocks = row->blocks ? bp_hf_size_of(shape, row->blocks) : 0;
    out->middle = row->middle ? bp_hf_size_of(shape, row->middle) : 0;
    out->shape[1] *= out->middle > 0 ? out->middle : 1;
    out->pairs = row->pairs ? bp_hf_size_of(shape, row->pairs) : 0;
    out->head = row->head ? bp_hf_size_of(shape, row->head) : 0;
    BP_ASSERT(out->blocks == 0 || !out->transposed);
    BP_ASSERT(out->pairs == 0 || (out->blocks == 0 && !out->transposed));
    for (int p = 0; p < row->parts; p++) {
        set_name(out->ours[p], row->ours[p], layer, expert);
        if (out->blocks > 0)
            out->part_rows[p] = row->part_rows[p] ? bp_hf_size_of(shape, row->part_rows[p])
                                                  : out->shape[0] / out->blocks / row->parts;
    }
}

/* Rows from `row` on, of `rows`, that are ordered expert by expert; 0 if this one is not. */
static int rows_of_expert(const bp_hf_row *row, int rows)
{
    int count = 0;

    while (count < rows && row[count].experts)
        count++;
    return count;
}

static int64_t count_layer(const bp_hf_shape *shape, const bp_hf_row *row, int rows, int64_t layer)
{
    int64_t count = 0;

    for (int k = 0; k < rows; k++)
        count += is_there(shape, &row[k], layer) ? experts_of(shape, &row[k]) : 0;
    return count;
}

/* Tensor k of a layer, of these rows. */
static void fill_of_layer(hf_tensor *out, const bp_hf_shape *shape, const bp_hf_row *row, int rows,
                          int64_t layer, int64_t k)
{
    for (int r = 0; r < rows;) {
        int group = rows_of_expert(&row[r], rows - r);

        if (!is_there(shape, &row[r], layer)) {
            r++;
        } else if (group == 0) {
            if (k-- == 0) {
                fill(out, shape, &row[r], layer, 0);
                return;
            }
            r++;
        } else {
            int64_t all = group * experts_of(shape, &row[r]);

            if (k < all) {
                fill(out, shape, &row[r + k % group], layer, k / group);
                return;
            }
            k -= all;
            r += group;
        }
    }
}

int64_t hf_tensor_count(const bp_hf_shape *shape)
{
    int64_t count = 0;

    for (const bp_hf_row *row = shape->table->rows; row->theirs; row++) {
        int64_t layers = stack_bytes(row) > 0 ? layers_of(shape, row) : 1;

        for (int64_t layer = 0; layer < layers; layer++)
            count += count_layer(shape, row, 1, layer);
    }
    return count;
}

void hf_tensor_of(hf_tensor *out, const bp_hf_shape *shape, int64_t k)
{
    const bp_hf_row *row = shape->table->rows;

    *out = (hf_tensor){0};
    while (row->theirs) {
        int rows = stack_bytes(row) > 0 ? rows_of_layer(row) : 1;
        int64_t layers = stack_bytes(row) > 0 ? layers_of(shape, row) : 1;

        for (int64_t layer = 0; layer < layers; layer++) {
            int64_t count = count_layer(shape, row, rows, layer);

            if (k < count) {
                fill_of_layer(out, shape, row, rows, layer, k);
                return;
            }
            k -= count;
        }
        row += rows;
    }
    BP_ASSERT(!"a tensor of the table");
}

/* The number at `text`, in canonical form (not "01"), and the text after it; -1 if there is none.
 */
static int64_t number_at(const char *text, const char **rest)
{
    size_t digits = strspn(text, "0123456789");

    if (digits == 0 || digits > 9 || (text[0] == '0' && digits > 1))
        return -1;
    *rest = text + digits;
    return strtoll(text, NULL, 10);
}

int64_t hf_layer_of(const bp_hf_shape *shape, const char *name, const char **rest, int64_t *layers)
{
    for (const bp_hf_row *row = shape->table->rows; row->theirs; row++) {
        size_t bytes = stack_bytes(row);
        int64_t layer = -1;

        if (bytes > 0 && strncmp(name, row->theirs, bytes) == 0)
            layer = number_at(name + bytes, rest);
        if (layer < 0 || (**rest != '.' && **rest != '\0'))
            continue;
        *rest += **rest == '.';
        *layers = layers_of(shape, row);
        return layer;
    }
    return -1;
}

/* Does `name` equal the text after '*' in the row's name, with an expert's number for '#'? */
static bool is_rest_of(const bp_hf_shape *shape, const bp_hf_row *row, const char *pattern,
                       const char *name)
{
    const char *hash = row->experts ? strchr(pattern, '#') : NULL, *rest;
    size_t bytes = hash ? (size_t)(hash - pattern) : 0;
    int64_t expert;

    if (!hash)
        return strcmp(name, pattern) == 0;
    if (strncmp(name, pattern, bytes) != 0)
        return false;
    expert = number_at(name + bytes, &rest);
    return expert >= 0 && expert < experts_of(shape, row) && strcmp(rest, hash + 1) == 0;
}

static bool is_name_of(const bp_hf_shape *shape, const bp_hf_row *row, const char *name)
{
    size_t bytes = stack_bytes(row);
    const char *rest;
    int64_t layer;

    if (bytes == 0)
        return is_there(shape, row, 0) && strcmp(row->theirs, name) == 0;
    if (strncmp(name, row->theirs, bytes) != 0)
        return false;
    layer = number_at(name + bytes, &rest);
    return layer >= 0 && layer < layers_of(shape, row) &&
           is_there(shape, row, row->only_first ? 0 : layer) &&
           is_rest_of(shape, row, row->theirs + bytes + 1, rest);
}

bool hf_name_is_known(const bp_hf_shape *shape, const char *name)
{
    for (const bp_hf_row *row = shape->table->rows; row->theirs; row++)
        if (is_name_of(shape, row, name))
            return true;
    return false;
}

void hf_part_shape(const hf_tensor *tensor, int part, int64_t shape[2])
{
    int64_t rows = tensor->dims == 2 ? tensor->shape[0] : 1;
    int64_t width = (tensor->dims == 2 ? tensor->shape[1] : tensor->shape[0]) / tensor->parts;

    shape[0] = tensor->dims == 1 || tensor->transposed ? width : rows;
    shape[1] = tensor->dims == 1 ? 0 : tensor->transposed ? rows : width;
    if (tensor->blocks > 0) {
        shape[0] = tensor->blocks * tensor->part_rows[part];
        shape[1] = tensor->shape[1];
    }
}

int hf_file_shape(const hf_tensor *tensor, int64_t shape[3])
{
    shape[0] = tensor->shape[0];
    shape[1] = tensor->middle > 0 ? tensor->middle : tensor->shape[1];
    shape[2] = tensor->middle > 0 ? tensor->shape[1] / tensor->middle : 0;
    return tensor->dims + (tensor->middle > 0);
}

/* For a tensor in blocks: floats of a part's run, and the place of block b's run. */
static int64_t run_floats(const hf_tensor *tensor, int part)
{
    return tensor->part_rows[part] * (tensor->dims == 2 ? tensor->shape[1] : 1);
}

static int64_t run_at(const hf_tensor *tensor, int64_t b, int part)
{
    int64_t before = 0, all = 0;

    for (int p = 0; p < tensor->parts; p++) {
        before += p < part ? run_floats(tensor, p) : 0;
        all += run_floats(tensor, p);
    }
    return b * all + before;
}

/* Their row for our row r. */
static int64_t their_row(const hf_tensor *tensor, int64_t r)
{
    int64_t half = tensor->pairs / 2, i = tensor->pairs > 0 ? r % tensor->head : 0;

    return i >= tensor->pairs ? r : r - i + (i < half ? 2 * i : 2 * (i - half) + 1);
}

/* out[c][r] = in[r][c] for a matrix of rows x columns; `in_stride` and `out_stride` floats from row
 * to row. */
static void transpose(float *out, int64_t out_stride, const float *in, int64_t in_stride,
                      int64_t rows, int64_t columns)
{
    for (int64_t r0 = 0; r0 < rows; r0 += BLOCK)
        for (int64_t c0 = 0; c0 < columns; c0 += BLOCK)
            for (int64_t r = r0; r < rows && r < r0 + BLOCK; r++)
                for (int64_t c = c0; c < columns && c < c0 + BLOCK; c++)
                    out[c * out_stride + r] = in[r * in_stride + c];
}

void hf_take_part(float *ours, const float *theirs, const hf_tensor *tensor, int part)
{
    int64_t rows = tensor->dims == 2 ? tensor->shape[0] : 1;
    int64_t columns = tensor->dims == 2 ? tensor->shape[1] : tensor->shape[0];
    int64_t width = columns / tensor->parts;
    const float *from = theirs + part * width;

    for (int64_t b = 0; b < tensor->blocks; b++)
        memcpy(ours + b * run_floats(tensor, part), theirs + run_at(tensor, b, part),
               (size_t)run_floats(tensor, part) * sizeof *ours);
    if (tensor->blocks > 0)
        return;
    if (tensor->transposed)
        transpose(ours, rows, from, columns, rows, width);
    else
        for (int64_t r = 0; r < rows; r++)
            memcpy(ours + r * width, from + their_row(tensor, r) * columns,
                   (size_t)width * sizeof *ours);
}

void hf_put_part(float *theirs, const float *ours, const hf_tensor *tensor, int part)
{
    int64_t rows = tensor->dims == 2 ? tensor->shape[0] : 1;
    int64_t columns = tensor->dims == 2 ? tensor->shape[1] : tensor->shape[0];
    int64_t width = columns / tensor->parts;
    float *to = theirs + part * width;

    for (int64_t b = 0; b < tensor->blocks; b++)
        memcpy(theirs + run_at(tensor, b, part), ours + b * run_floats(tensor, part),
               (size_t)run_floats(tensor, part) * sizeof *ours);
    if (tensor->blocks > 0)
        return;
    if (tensor->transposed)
        transpose(to, columns, ours, rows, width, rows);
    else
        for (int64_t r = 0; r < rows; r++)
            memcpy(to + their_row(tensor, r) * columns, ours + r * width,
                   (size_t)width * sizeof *ours);
}
