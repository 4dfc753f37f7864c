/* Batches: where their arrays are in one block of bytes, and how examples are filled in. */
#include "tensor/batch.h"

#include "base/err.h"

#include <string.h>

/* Order of the arrays: inputs, lengths and segments of each stream, then each term's targets.
 */
typedef struct layout {
    int64_t inputs[BP_STREAMS], lengths[BP_STREAMS], segments[BP_STREAMS], targets[BP_TERMS];
    int64_t values; /* all together */
} layout;

static int64_t place(layout *at, int64_t values)
{
    int64_t first = at->values;

    at->values += values;
    return first;
}

static layout layout_of(const bp_batch_form *form, int64_t B)
{
    layout at = {0};

    for (int s = 0; s < BP_STREAMS; s++) {
        int64_t T = form->stream[s].T;

        at.inputs[s] = place(&at, B * T);
        at.lengths[s] = place(&at, form->stream[s].has_lengths ? B : 0);
        at.segments[s] = place(&at, form->stream[s].has_segments ? B * T : 0);
    }
    for (int t = 0; t < BP_TERMS; t++)
        at.targets[t] = place(&at, B * form->targets[t]);
    return at;
}

size_t bp_batch_bytes(const bp_batch_form *form, int64_t B)
{
    return (size_t)layout_of(form, B).values * sizeof(int32_t);
}

bp_batch bp_batch_over(const bp_batch_form *form, int64_t B, const void *bytes)
{
    const int32_t *values = bytes;
    layout at = layout_of(form, B);
    bp_batch batch = {.B = B};

    for (int s = 0; s < BP_STREAMS; s++) {
        batch.stream[s].T = form->stream[s].T;
        batch.stream[s].inputs = form->stream[s].T > 0 ? values + at.inputs[s] : NULL;
        batch.stream[s].lengths = form->stream[s].has_lengths ? values + at.lengths[s] : NULL;
        batch.stream[s].segments = form->stream[s].has_segments ? values + at.segments[s] : NULL;
    }
    for (int t = 0; t < BP_TERMS; t++) {
        batch.term[t].count = form->targets[t];
        batch.term[t].targets = form->targets[t] > 0 ? values + at.targets[t] : NULL;
    }
    return batch;
}

static const int32_t *skip(const int32_t *values, int64_t count)
{
    return values ? values + count : NULL;
}

static void fit(bp_batch *part, const int64_t *fits)
{
    for (int t = 0; t < BP_TERMS; t++)
        if (part->term[t].count == part->stream[0].T)
            part->term[t].count = fits[0];
    for (int s = 0; s < BP_STREAMS; s++)
        part->stream[s].T = fits[s];
    part->fits = NULL;
}

bp_batch bp_batch_part(const bp_batch *all, int64_t first, int64_t count)
{
    bp_batch part = *all;

    part.B = count;
    for (int s = 0; s < BP_STREAMS; s++) {
        int64_t T = all->stream[s].T;

        part.stream[s].inputs = skip(all->stream[s].inputs, first * T);
        part.stream[s].lengths = skip(all->stream[s].lengths, first);
        part.stream[s].segments = skip(all->stream[s].segments, first * T);
    }
    for (int t = 0; t < BP_TERMS; t++)
        part.term[t].targets = skip(all->term[t].targets, first * all->term[t].count);
    if (all->fits)
        fit(&part, all->fits + first / all->fit_rows * BP_STREAMS);
    return part;
}

/* Positions of an example that count. */
static int64_t length_of(const bp_batch *all, int stream, int64_t b)
{
    int64_t T = all->stream[stream].T, length = T;

    if (all->stream[stream].lengths)
        return all->stream[stream].lengths[b];
    if (stream == 0 && all->term[0].count == T)
        while (length > 1 && all->term[0].targets[b * T + length - 1] < 0)
            length--;
    return length;
}

int64_t bp_batch_filled(const bp_batch *batch)
{
    int64_t sum = 0;

    for (int s = 0; s < BP_STREAMS; s++)
        for (int64_t b = 0; batch->stream[s].T > 0 && b < batch->B; b++)
            sum += length_of(batch, s, b);
    return sum;
}

/* Rows of T values become rows of `fits` values; the space left is filled with `rest`. */
static void move_rows(int32_t *to, const int32_t *from, int64_t rows, int64_t T, int64_t fits,
                      int32_t rest)
{
    for (int64_t b = 0; b < rows; b++)
        memmove(to + b * fits, from + b * T, (size_t)fits * sizeof *to);
    for (int64_t k = rows * fits; k < rows * T; k++)
        to[k] = rest;
}

static void move_part(const bp_batch_form *form, const bp_batch *all, int64_t first, int64_t rows,
                      const int64_t *fits, bp_batch *out)
{
    for (int s = 0; s < BP_STREAMS; s++) {
        int64_t T = form->stream[s].T;

        if (T == 0)
            continue;
        move_rows((int32_t *)out->stream[s].inputs + first * T, all->stream[s].inputs + first * T,
                  rows, T, fits[s], 0);
        if (form->stream[s].has_segments)
            move_rows((int32_t *)out->stream[s].segments + first * T,
                      all->stream[s].segments + first * T, rows, T, fits[s], 0);
        if (form->stream[s].has_lengths)
            memmove((int32_t *)out->stream[s].lengths + first, all->stream[s].lengths + first,
                    (size_t)rows * sizeof(int32_t));
    }
    for (int t = 0; t < BP_TERMS; t++) {
        int64_t count = form->targets[t], left = count == form->stream[0].T ? fits[0] : count;

        if (count > 0)
            move_rows((int32_t *)out->term[t].targets + first * count,
                      all->term[t].targets + first * count, rows, count, left, -1);
    }
}

bp_batch bp_batch_shorten(const bp_batch_form *form, const bp_batch *all, int64_t rows, void *bytes,
                          int64_t *fits, int64_t counts[2])
{
    bp_batch out = bp_batch_over(form, all->B, bytes);

    for (int64_t first = 0; first < all->B; first += rows) {
        int64_t count = first + rows < all->B ? rows : all->B - first;
        int64_t *own = fits + first / rows * BP_STREAMS;

        for (int s = 0; s < BP_STREAMS; s++) {
            int64_t T = form->stream[s].T, step = bp_batch_fit_step(T), most = 1;

            for (int64_t b = first; T > 0 && b < first + count; b++) {
                int64_t length = length_of(all, s, b);

                most = length > most ? length : most;
                counts[1] += length;
            }
            most = (most + step - 1) / step * step;
            own[s] = most < T ? most : T;
            counts[0] += count * own[s];
        }
        move_part(form, all, first, count, own, &out);
    }
    out.fit_rows = rows;
    out.fits = fits;
    return out;
}

int64_t bp_batch_scored(const bp_batch *batch, int term)
{
    int64_t scored = 0;

    for (int64_t k = 0; k < batch->B * batch->term[term].count; k++)
        scored += batch->term[term].targets[k] >= 0;
    return scored;
}

bp_batch bp_batch_of_positions(int64_t B, int64_t T, const int32_t *inputs, const int32_t *targets)
{
    return (bp_batch){
        .B = B, .stream = {{.T = T, .inputs = inputs}}, .term = {{.count = T, .targets = targets}}};
}

/* One pass without a branch: it costs as much as a copy of the ids. */
void bp_ids_within(const char *what, const int32_t *ids, int64_t count, int64_t first,
                   int64_t bound)
{
    int32_t low = INT32_MAX, high = INT32_MIN;

    for (int64_t k = 0; ids && k < count; k++) {
        low = ids[k] < low ? ids[k] : low;
        high = ids[k] > high ? ids[k] : high;
    }
    if (ids && count > 0 && (low < first || high >= bound))
        bp_id_ended(what, low < first ? low : high, first, bound);
}

/* In the order of the values, without the last bit. */
int32_t bp_target_of_value(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | 0x80000000U;
    return (int32_t)(bits >> 1);
}

float bp_target_value(int32_t target)
{
    uint32_t bits = (uint32_t)target << 1;
    float value;

    bits = bits >> 31 ? bits & 0x7FFFFFFFU : ~bits;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static bp_example example_in(const bp_batch_form *form, void *bytes, int64_t B, int64_t b)
{
    int32_t *values = bytes;
    layout at = layout_of(form, B);
    bp_example out = {0};

    for (int s = 0; s < BP_STREAMS; s++) {
        int64_t T = form->stream[s].T;

        out.inputs[s] = T > 0 ? values + at.inputs[s] + b * T : NULL;
        out.length[s] = form->stream[s].has_lengths ? values + at.lengths[s] + b : NULL;
        out.segments[s] = form->stream[s].has_segments ? values + at.segments[s] + b * T : NULL;
    }
    for (int t = 0; t < BP_TERMS; t++)
        out.targets[t] =
            form->targets[t] > 0 ? values + at.targets[t] + b * form->targets[t] : NULL;
    return out;
}

/* Positions that the question leaves, and the distance to the next window. */
static int64_t capacity_of(const bp_window_rule *rule, int64_t *question, int64_t *step)
{
    int64_t most = rule->positions / 2, capacity;

    *question = *question < most ? *question : most;
    capacity = rule->positions - *question;
    *step = rule->stride < capacity ? rule->stride : capacity;
    return capacity;
}

int64_t bp_windows_count(const bp_window_rule *rule, int64_t question, int64_t context)
{
    int64_t step, capacity = capacity_of(rule, &question, &step), more = context - capacity;

    return more <= 0 ? 1 : 1 + (more + step - 1) / step;
}

bp_text_window bp_window_at(const bp_window_rule *rule, int64_t question, int64_t context,
                            int64_t number)
{
    int64_t step, capacity = capacity_of(rule, &question, &step), first = number * step,
                  left = context - first;

    return (bp_text_window){question, first, left < capacity ? left : capacity};
}

void bp_example_make(const bp_example_maker *maker, const int32_t *tokens, int64_t step,
                     int64_t slot, void *bytes, int64_t B, int64_t b)
{
    bp_example out = example_in(&maker->form, bytes, B, b);

    maker->make(maker, tokens, step, slot, &out);
}

void bp_example_make_document(const bp_example_maker *maker, const bp_document *document,
                              int64_t step, int64_t slot, void *bytes, int64_t B, int64_t b)
{
    bp_example out = example_in(&maker->form, bytes, B, b);

    maker->make_document(maker, document, step, slot, &out);
}
