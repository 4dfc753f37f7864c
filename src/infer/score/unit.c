/* A unit's windows, sorted by length into batches: the same on all ranks. Called by loop.c and
 * each.c. */
#include "infer/score/unit.h"

#include "base/mem.h"
#include "base/sort.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A window of the unit, and where its scored values go. */
typedef struct unit_row {
    bp_score_window window;
    int64_t part;   /* index of its document in `parts` */
    int64_t value;  /* index of its first value */
    int64_t source; /* for a pair: inputs of its source; else 0 */
} unit_row;

/* A document of the unit, or a piece of one. */
typedef struct unit_part {
    int64_t number; /* of the document */
    bp_score_document document;
    int64_t line;
    int64_t first_row, rows;
    bool opens; /* its first unit */
} unit_part;

/* Inputs [begin, begin + length) of rows order[first .. first + count), or as many as they have. */
typedef struct unit_batch {
    int64_t first, count, length, begin;
    int64_t source_length; /* of pairs */
    int64_t slot;          /* of its first row, among the rows of all batches */
    bool suspends;         /* the next batch continues with the rows' inputs */
} unit_batch;

struct bp_score_unit {
    const bp_score_plan *plan;
    int64_t statistics;
    int64_t longest; /* most inputs of a row of a batch */
    int64_t piece;   /* a window of more is cut */
    int64_t number;  /* of the current unit */
    int64_t row_count, part_count, order_count, batch_count, batch_capacity, value_count;
    int64_t slot_count;        /* rows of all batches */
    unit_row *rows;            /* [BP_SCORE_UNIT_INPUTS] */
    unit_part *parts;          /* [BP_SCORE_UNIT_INPUTS] */
    int64_t *order;            /* [BP_SCORE_UNIT_INPUTS]: rows that score, longest class first */
    unit_batch *batches;       /* [batch_capacity] */
    int64_t capacity;          /* the most values of a statistic, including the last window's */
    float *values;             /* [statistics][capacity] in the order of rows */
    bool *unknown;             /* [capacity]: the value is of a word out of the vocabulary */
    int32_t *inputs, *targets; /* [max(BP_SCORE_BATCH_TOKENS, piece)] */
    int32_t *line;             /* [piece + 1] */
    int32_t *sources;          /* as inputs, of pairs; else NULL */
    int32_t *source_lengths;   /* [BP_SCORE_BATCH_TOKENS] */
};

size_t bp_score_unit_bytes(int64_t longest, int64_t statistics)
{
    size_t row = sizeof(unit_row) + sizeof(unit_part) + sizeof(unit_batch) + sizeof(int64_t);

    return BP_SCORE_UNIT_INPUTS * row + (size_t)(BP_SCORE_UNIT_INPUTS + longest) *
                                            ((size_t)statistics * sizeof(float) + sizeof(bool));
}

bp_err bp_score_unit_new(bp_score_unit **out, const bp_score_plan *plan, int64_t statistics)
{
    bp_score_unit *unit = bp_alloc("score.unit", 1, sizeof(*unit));
    int64_t P = bp_score_piece_inputs(&plan->rule), most = BP_SCORE_UNIT_INPUTS;
    int64_t batch_tokens = bp_score_batch_tokens(P);

    unit->plan = plan;
    unit->statistics = statistics;
    unit->capacity = most + plan->longest;
    unit->piece = P;
    bool pairs = plan->rule.convention == BP_SCORE_PAIRS;
    bool whole =
        plan->rule.convention == BP_SCORE_ROLLING || bp_score_masks(plan->rule.convention) || pairs;
    unit->longest = P < plan->rule.context || whole ? P : P - 1;
    unit->batch_capacity = most;
    unit->rows = bp_alloc("score.unit", most, sizeof(*unit->rows));
    unit->parts = bp_alloc("score.unit", most, sizeof(*unit->parts));
    unit->order = bp_alloc("score.unit", most, sizeof(*unit->order));
    unit->batches = bp_alloc("score.unit", most, sizeof(*unit->batches));
    unit->values = bp_try_alloc("score.unit", statistics * unit->capacity, sizeof(*unit->values));
    unit->unknown = bp_try_alloc("score.unit", unit->capacity, sizeof(*unit->unknown));
    unit->inputs = bp_alloc("score.unit", batch_tokens, sizeof(*unit->inputs));
    unit->targets = bp_alloc("score.unit", batch_tokens, sizeof(*unit->targets));
    unit->line = bp_alloc("score.unit", P + 1, sizeof(*unit->line));
    if (pairs) {
        unit->sources = bp_alloc("score.unit", batch_tokens, sizeof(*unit->sources));
        unit->source_lengths =
            bp_alloc("score.unit", BP_SCORE_BATCH_TOKENS, sizeof(*unit->source_lengths));
    }
    *out = unit;
    if (unit->values && unit->unknown)
        return BP_OK;
    bp_score_unit_free(out);
    return bp_fail_memory("the scores of a unit (of its longest document)",
                          statistics * (most + plan->longest), sizeof(float));
}

void bp_score_unit_free(bp_score_unit **unit)
{
    if (!*unit)
        return;
    bp_free((*unit)->source_lengths);
    bp_free((*unit)->sources);
    bp_free((*unit)->line);
    bp_free((*unit)->targets);
    bp_free((*unit)->inputs);
    bp_free((*unit)->values);
    bp_free((*unit)->unknown);
    bp_free((*unit)->batches);
    bp_free((*unit)->order);
    bp_free((*unit)->parts);
    bp_free((*unit)->rows);
    bp_free(*unit);
    *unit = NULL;
}

/* Lengths are padded to 2^k or 3 * 2^(k-1), at least 16, so that kernels see few shapes. */
static int64_t length_class(const bp_score_unit *unit, int64_t inputs)
{
    int64_t length = 16;

    while (length < inputs)
        length = (length & (length - 1)) == 0 ? length / 2 * 3 : length / 3 * 4;
    return length < unit->longest ? length : unit->longest;
}

/* Rows of a document's windows [first, end), end cut to the existing ones. */
static void add_rows(bp_score_unit *unit, const unit_part *owner, int64_t first, int64_t end)
{
    const bp_score_rule *rule = &unit->plan->rule;
    int64_t count = bp_score_window_count(rule, owner->line);

    for (int64_t w = first; w < end && w < count; w++) {
        unit_row *to = &unit->rows[unit->row_count];

        BP_ASSERT(unit->row_count < BP_SCORE_UNIT_INPUTS);
        to->window = bp_score_window_at(rule, owner->line, w);
        to->part = unit->part_count - 1;
        to->value = unit->value_count;
        to->source = unit->sources ? bp_score_plan_source(unit->plan, &owner->document) : 0;
        unit->value_count += to->window.scored;
        if (to->window.scored > 0)
            unit->order[unit->order_count++] = unit->row_count;
        unit->row_count++;
    }
}

static bp_err add_part(bp_score_unit *unit, int64_t number, int64_t first, int64_t end)
{
    unit_part *to = &unit->parts[unit->part_count];

    BP_ASSERT(unit->part_count < BP_SCORE_UNIT_INPUTS);
    bp_err err = bp_score_plan_document(unit->plan, number, &to->document);
    if (err != BP_OK)
        return err;
    to->number = number;
    to->line = bp_score_plan_line(unit->plan, &to->document);
    to->opens = first == 0;
    to->first_row = unit->row_count;
    unit->part_count++;
    add_rows(unit, to, first, end);
    to->rows = unit->row_count - to->first_row;
    return BP_OK;
}

/* Positions of row i in the order of batches; for a pair, those of its longer text. */
static int64_t inputs_of(const bp_score_unit *unit, int64_t i)
{
    const unit_row *row = &unit->rows[unit->order[i]];

    return row->window.inputs > row->source ? row->window.inputs : row->source;
}

static unit_batch *add_batch(bp_score_unit *unit, int64_t first)
{
    if (unit->batch_count == unit->batch_capacity) {
        unit->batch_capacity *= 2;
        unit->batches =
            bp_realloc("score.unit", unit->batches, unit->batch_capacity, sizeof(*unit->batches));
    }
    unit->batches[unit->batch_count] = (unit_batch){.first = first, .slot = unit->slot_count};
    return &unit->batches[unit->batch_count++];
}

/* The rows from `first` on that are cut, as many as fit side by side, the longest first, so that
 * continuing rows are the first ones. Returns the row after them. */
static int64_t cut_pieces(bp_score_unit *unit, int64_t first)
{
    int64_t P = unit->piece, side = bp_score_batch_windows(P), end = first;

    while (end < unit->order_count && end < first + side && inputs_of(unit, end) > P)
        end++;
    for (int64_t begin = 0; begin < inputs_of(unit, first); begin += P) {
        unit_batch *to = add_batch(unit, first);
        int64_t left = inputs_of(unit, first) - begin;

        to->begin = begin;
        to->length = left < P ? length_class(unit, left) : P;
        to->suspends = left > P;
        while (first + to->count < end && inputs_of(unit, first + to->count) > begin)
            to->count++;
        unit->slot_count += to->count;
    }
    return end;
}

/* Each text of a batch's pairs takes as many positions as the longest of them. */
static void fit_pairs(const bp_score_unit *unit, unit_batch *to)
{
    int64_t inputs = 0, source = 0;

    for (int64_t i = to->first; i < to->first + to->count; i++) {
        const unit_row *row = &unit->rows[unit->order[i]];

        inputs = row->window.inputs > inputs ? row->window.inputs : inputs;
        source = row->source > source ? row->source : source;
    }
    to->length = length_class(unit, inputs);
    to->source_length = length_class(unit, source);
}

/* The rows from `first` on of one length class. Returns the row after them. */
static int64_t cut_batch(bp_score_unit *unit, int64_t first)
{
    unit_batch *to = add_batch(unit, first);
    int64_t i = first, most;

    to->length = length_class(unit, inputs_of(unit, first));
    most = BP_SCORE_BATCH_TOKENS / to->length;
    for (; i < unit->order_count && (to->count == 0 || to->count < most); i++, to->count++) {
        if (length_class(unit, inputs_of(unit, i)) != to->length)
            break;
    }
    unit->slot_count += to->count;
    if (unit->sources)
        fit_pairs(unit, to);
    return i;
}

static void cut_batches(bp_score_unit *unit)
{
    for (int64_t i = 0; i < unit->order_count;)
        i = inputs_of(unit, i) > unit->piece ? cut_pieces(unit, i) : cut_batch(unit, i);
}

/* qsort has no context, so an entry has its sort key in the bits above its row: the length class
 * or, for a row that is cut, the length. */
#define ROW_BITS 20

static void sort_rows(bp_score_unit *unit)
{
    for (int64_t i = 0; i < unit->order_count; i++) {
        int64_t inputs = inputs_of(unit, i);
        int64_t length = inputs > unit->piece ? inputs : length_class(unit, inputs);

        unit->order[i] |= (unit->longest + unit->plan->longest - length) << ROW_BITS;
    }
    qsort(unit->order, (size_t)unit->order_count, sizeof(*unit->order), bp_by_int64);
    for (int64_t i = 0; i < unit->order_count; i++)
        unit->order[i] &= (INT64_C(1) << ROW_BITS) - 1;
}

bp_err bp_score_unit_load(bp_score_unit *unit, int64_t number)
{
    bp_score_cut from = unit->plan->cuts[number], to = unit->plan->cuts[number + 1];
    bp_err err = BP_OK;

    unit->number = number;
    unit->row_count = unit->part_count = unit->order_count = 0;
    unit->batch_count = unit->value_count = unit->slot_count = 0;
    for (int64_t d = from.document; err == BP_OK && d <= to.document; d++) {
        if (d == to.document && to.window == 0)
            break;
        if (!bp_score_plan_has(unit->plan, d))
            continue;
        err = add_part(unit, d, d == from.document ? from.window : 0,
                       d == to.document ? to.window : INT64_MAX);
    }
    if (err != BP_OK)
        return err;
    sort_rows(unit);
    cut_batches(unit);
    return BP_OK;
}

int64_t bp_score_unit_batches(const bp_score_unit *unit)
{
    return unit->batch_count;
}

int64_t bp_score_unit_inputs(const bp_score_unit *unit)
{
    int64_t inputs = 0;

    for (int64_t r = 0; r < unit->row_count; r++)
        inputs += unit->rows[r].window.inputs;
    return inputs;
}

int64_t bp_score_unit_scored(const bp_score_unit *unit)
{
    return unit->value_count;
}

/* unit->line = z[first .. first + inputs] of the row's document, `first` counted in the window. */
static bp_err read_line(bp_score_unit *unit, const unit_row *row, int64_t first, int64_t inputs)
{
    const bp_score_rule *rule = &unit->plan->rule;
    const unit_part *owner = &unit->parts[row->part];
    int64_t begin = row->window.first + first - owner->document.lead; /* in the text */
    int64_t end = begin + inputs + 1;
    int64_t text_begin = begin < 0 ? 0 : begin;
    int64_t text_end = end > owner->document.text ? owner->document.text : end;

    if (begin < 0)
        unit->line[0] = (int32_t)(unit->sources ? rule->start : rule->lead);
    if (end > owner->document.text)
        unit->line[end - 1 - begin] = (int32_t)rule->eod;
    if (text_end <= text_begin)
        return BP_OK;
    return bp_corpus_file_read(bp_corpus_file_at(unit->plan->corpus, owner->document.file),
                               owner->document.start + text_begin, text_end - text_begin,
                               unit->line + (text_begin - begin));
}

/* A row of a masked model: the scored token is masked, alone or with the rest of its word. Entries
 * after the inputs are not positions (bp_model_info.masks). */
static bp_err fill_masked(bp_score_unit *unit, const unit_row *row, int64_t length, int32_t *inputs,
                          int32_t *targets)
{
    const bp_score_rule *rule = &unit->plan->rule;
    const unit_part *owner = &unit->parts[row->part];
    const bool *continues = unit->plan->continues;
    int64_t n = row->window.inputs, at = row->window.masked;
    bp_err err = bp_corpus_file_read(bp_corpus_file_at(unit->plan->corpus, owner->document.file),
                                     owner->document.start + row->window.first, n - 2, inputs + 1);

    if (err != BP_OK)
        return err;
    inputs[0] = (int32_t)rule->cls;
    inputs[n - 1] = (int32_t)rule->sep;
    for (int64_t j = 0; j < length; j++)
        targets[j] = j == at ? inputs[j] : -1;
    for (int64_t j = n; j < length; j++)
        inputs[j] = -1;
    for (int64_t j = at; j < n - 1 && (j == at || (continues && continues[inputs[j]])); j++)
        inputs[j] = (int32_t)rule->mask;
    return BP_OK;
}

/* The source of row i of a batch of pairs, with its end token. */
static bp_err fill_source(bp_score_unit *unit, const unit_row *row, int64_t i, int64_t length)
{
    const bp_score_rule *rule = &unit->plan->rule;
    const bp_score_document *document = &unit->parts[row->part].document;
    int64_t n = row->source - (rule->eod >= 0);
    int32_t *to = unit->sources + i * length;
    bp_err err = n > 0 ? bp_corpus_file_read(bp_corpus_file_at(unit->plan->corpus, document->file),
                                             document->start - document->source, n, to)
                       : BP_OK;

    memset(to + n, 0, (size_t)(length - n) * sizeof *to);
    if (rule->eod >= 0)
        to[n] = (int32_t)rule->eod;
    unit->source_lengths[i] = (int32_t)row->source;
    return err;
}

/* Inputs of the row in the batch. */
static int64_t piece_of(const unit_batch *batch, const unit_row *row)
{
    int64_t left = row->window.inputs - batch->begin;

    return left < batch->length ? left : batch->length;
}

bp_err bp_score_unit_batch(bp_score_unit *unit, int64_t b, bp_model_batch *out)
{
    const unit_batch *batch = &unit->batches[b];

    *out = (bp_model_batch){.windows = batch->count,
                            .length = batch->length,
                            .inputs = unit->inputs,
                            .targets = unit->targets,
                            .first_slot = unit->number * BP_SCORE_UNIT_INPUTS + batch->slot,
                            .resumes = batch->begin > 0,
                            .suspends = batch->suspends,
                            .source_length = batch->source_length,
                            .sources = unit->sources,
                            .source_lengths = unit->source_lengths};
    for (int64_t i = 0; i < batch->count; i++) {
        const unit_row *row = &unit->rows[unit->order[batch->first + i]];
        int32_t *inputs = unit->inputs + i * batch->length;
        int32_t *targets = unit->targets + i * batch->length;
        int64_t n = piece_of(batch, row), unscored = bp_score_window_target(&row->window);
        bool masks = row->window.masked > 0;
        bp_err err = masks ? fill_masked(unit, row, batch->length, inputs, targets)
                           : read_line(unit, row, batch->begin, n);

        if (err == BP_OK && unit->sources)
            err = fill_source(unit, row, i, batch->source_length);
        if (err != BP_OK)
            return err;
        if (masks)
            continue;
        memset(inputs, 0, (size_t)batch->length * sizeof(*inputs));
        memcpy(inputs, unit->line, (size_t)n * sizeof(*inputs));
        if (unit->plan->rule.every && batch->begin == 0 && n > 0)
            inputs[0] = (int32_t)unit->plan->rule.lead;
        for (int64_t j = 0; j < batch->length; j++)
            targets[j] = j < n && batch->begin + j >= unscored ? unit->line[j + 1] : -1;
    }
    return BP_OK;
}

static bp_err not_finite(const bp_score_unit *unit, const unit_row *row, int64_t statistic,
                         int64_t j, float value)
{
    int64_t place = bp_score_window_place(&row->window) + j - bp_score_window_target(&row->window);
    const char *what = statistic == 0                           ? "log-probability"
                       : unit->statistics <= BP_MODEL_ALONE + 2 ? "log-probability or entropy"
                       : statistic < BP_MODEL_MEMBER            ? bp_model_statistic_name(statistic)
                                                     : "statistic of a member or of sets";

    return BP_FAIL(BP_ERR_SOFTWARE, "model.not_finite",
                   "the model gives a %s of %g: at place %" PRId64 " of document %" PRId64
                   "; its weights are not sound",
                   what, (double)value, place, unit->parts[row->part].number);
}

bp_err bp_score_unit_take(bp_score_unit *unit, int64_t b, const float *values)
{
    const unit_batch *batch = &unit->batches[b];

    for (int64_t c = 0; c < unit->statistics; c++) {
        for (int64_t i = 0; i < batch->count; i++) {
            const unit_row *row = &unit->rows[unit->order[batch->first + i]];
            int64_t unscored = bp_score_window_target(&row->window);
            int64_t end = batch->begin + piece_of(batch, row), last = unscored + row->window.scored;
            const float *from = values + (c * batch->count + i) * batch->length;
            float *to = unit->values + c * unit->capacity + row->value;

            end = end < last ? end : last;
            for (int64_t j = batch->begin > unscored ? batch->begin : unscored; j < end; j++) {
                float value = from[j - batch->begin];

                if (!isfinite(value))
                    return not_finite(unit, row, c, j, value);
                to[j - unscored] = value;
                if (c > 0)
                    continue;
                unit->unknown[row->value + j - unscored] =
                    unit->targets[i * batch->length + j - batch->begin] == unit->plan->unknown;
                if (unit->plan->may_be_zero && value < BP_MODEL_ZERO)
                    to[j - unscored] = -INFINITY;
            }
        }
    }
    return BP_OK;
}

void bp_score_unit_take_rows(const bp_score_unit *unit, int64_t b, const float *rows,
                             int64_t columns, float *to)
{
    const unit_batch *batch = &unit->batches[b];

    for (int64_t i = 0; i < batch->count; i++) {
        const unit_row *row = &unit->rows[unit->order[batch->first + i]];
        int64_t unscored = bp_score_window_target(&row->window);
        int64_t first = batch->begin > unscored ? batch->begin : unscored;
        int64_t end = batch->begin + piece_of(batch, row), last = unscored + row->window.scored;

        end = end < last ? end : last;
        if (first < end)
            memcpy(to + (row->value + first - unscored) * columns,
                   rows + (i * batch->length + first - batch->begin) * columns,
                   (size_t)((end - first) * columns) * sizeof *to);
    }
}

/* Is the last scored target of the row the end-of-document token after the text? */
static bool scores_end(const bp_score_unit *unit, const unit_row *row)
{
    return unit->plan->rule.end && row->window.scored > 0 &&
           row->window.first + row->window.inputs == unit->parts[row->part].line - 1;
}

/* The sum of one statistic over a part's values, except logarithms of 0. */
static bp_fixed sum_values(const bp_score_unit *unit, const unit_part *part, int64_t statistic)
{
    bp_fixed sum = 0;

    for (int64_t r = part->first_row; r < part->first_row + part->rows; r++) {
        const float *from = unit->values + statistic * unit->capacity + unit->rows[r].value;

        for (int64_t j = 0; j < unit->rows[r].window.scored; j++)
            sum += isfinite(from[j]) ? bp_fixed_of((double)from[j]) : 0;
    }
    return sum;
}

static bp_score_piece sum_part(const bp_score_unit *unit, const unit_part *part)
{
    bp_score_piece piece = {.document = part->number,
                            .text = part->opens ? part->document.text : 0,
                            .nll = -sum_values(unit, part, 0)};

    for (int64_t r = part->first_row; r < part->first_row + part->rows; r++) {
        const unit_row *row = &unit->rows[r];

        for (int64_t j = 0; j < row->window.scored; j++) {
            double x = (double)unit->values[row->value + j];
            bool oov = unit->unknown[row->value + j], zero = !isfinite(x);

            piece.oov += oov;
            piece.zeros += zero;
            piece.oov_zeros += oov && zero;
            piece.square += zero ? 0 : bp_fixed_of(x * x);
            piece.oov_nll -= oov && !zero ? bp_fixed_of(x) : 0;
        }
        piece.tokens += row->window.scored;
        piece.text_scored += row->window.scored - scores_end(unit, row);
    }
    return piece;
}

/* The entries of /tokens that a row scores; an end-of-document token that is in no file has
 * none. */
static bp_score_run run_of(const bp_score_unit *unit, const unit_row *row)
{
    const unit_part *part = &unit->parts[row->part];
    bool held = part->document.stored > part->document.text;
    int64_t in_text = bp_score_window_place(&row->window) - part->document.lead;

    return (bp_score_run){.first = unit->plan->first_token[part->document.file] +
                                   part->document.start + in_text,
                          .count = row->window.scored - (scores_end(unit, row) && !held)};
}

int64_t bp_score_unit_capacity(const bp_score_unit *unit)
{
    return unit->capacity;
}

int64_t bp_score_unit_windows(const bp_score_unit *unit)
{
    return unit->row_count;
}

bp_score_run bp_score_unit_run(const bp_score_unit *unit, int64_t window, int64_t *value)
{
    *value = unit->rows[window].value;
    return run_of(unit, &unit->rows[window]);
}

void bp_score_unit_pack(const bp_score_unit *unit, bool tokens, bp_buffer *out)
{
    int64_t counts[4] = {unit->part_count, tokens ? unit->row_count : 0, 0, unit->statistics};

    for (int64_t r = 0; r < counts[1]; r++)
        counts[2] += run_of(unit, &unit->rows[r]).count;
    bp_buffer_add(out, counts, sizeof(counts));
    for (int64_t i = 0; i < unit->part_count; i++) {
        bp_score_piece piece = sum_part(unit, &unit->parts[i]);

        bp_buffer_add(out, &piece, sizeof(piece));
        for (int64_t c = 1; c < unit->statistics; c++) {
            bp_fixed sum = sum_values(unit, &unit->parts[i], c);

            bp_buffer_add(out, &sum, sizeof(sum));
        }
    }
    for (int64_t r = 0; r < counts[1]; r++) {
        bp_score_run run = run_of(unit, &unit->rows[r]);

        bp_buffer_add(out, &run, sizeof(run));
    }
    for (int64_t c = 0; c < unit->statistics; c++) {
        for (int64_t r = 0; r < counts[1]; r++)
            bp_buffer_add(out, unit->values + c * unit->capacity + unit->rows[r].value,
                          (size_t)run_of(unit, &unit->rows[r]).count * sizeof(float));
    }
}
