/* Choices as units of work: a unit is a batch of them, and the check whether the model itself would
 * write them. Called by ../candidate_units.c and by ../questions. */
#include "infer/score/candidates/choices.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "infer/score/unit.h"
#include "mesh/collective.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The limit for distributions of a batch: 64 MiB, or that of one place. */
#define WHOLE_FLOATS (INT64_C(16) << 20)

/* ---- batches ---- */

/* A row that is not scored wastes a place. */
static int64_t inputs_of(const bp_candidate_row *row)
{
    return row->count > 1 ? row->count - 1 : 1;
}

static const bp_candidate_row *row_at(const chooser *c, int64_t at)
{
    return &c->all->rows[chooser_row(c, at)];
}

/* Does this row, one token after the same context, have the inputs of the preceding row? Then its
 * token is in the same distribution. */
static bool repeats(const chooser *c, int64_t at)
{
    if (!c->whole || at == 0)
        return false;
    const bp_candidate_row *row = row_at(c, at), *before = row_at(c, at - 1);

    return row->document == before->document && row->scored == 1 && before->scored == 1 &&
           bp_candidates_same_context(c->all, row, before);
}

/* A lead's request: a batch of choices; or, with windows 0, whether the model would write the
 * choice of `count` tokens including its context. */
typedef struct header {
    int64_t windows, length, first;
    int64_t count, scored;
} header;

/* Scored positions of a batch whose distributions are kept. */
static int64_t most_positions(const chooser *c)
{
    int64_t vocab_size = c->job->info.vocab_size;

    return !c->whole ? INT64_MAX : vocab_size < WHOLE_FLOATS ? WHOLE_FLOATS / vocab_size : 1;
}

/* The rows of a batch from head->first on: the most whose windows, padded to the longest, fit in
 * BP_SCORE_BATCH_TOKENS, and whose positions fit in most_positions; at least one window. A function
 * of the choices only. */
static int64_t batch_rows(const chooser *c, header *head, int64_t *positions)
{
    int64_t count = 0, rows = c->all->count, most = most_positions(c);

    head->length = head->windows = *positions = 0;
    for (; head->first + count < rows; count++) {
        const bp_candidate_row *row = row_at(c, head->first + count);
        int64_t inputs = inputs_of(row), longest = inputs > head->length ? inputs : head->length;

        if (count > 0 && repeats(c, head->first + count))
            continue;
        if (count > 0 && ((head->windows + 1) * longest > BP_SCORE_BATCH_TOKENS ||
                          *positions + row->scored > most))
            break;
        head->length = longest;
        head->windows++;
        *positions += row->scored;
    }
    return count;
}

static bool scores_any(const chooser *c, int64_t first, int64_t rows)
{
    bool any = false;

    for (int64_t at = first; at < first + rows; at++)
        any = any || row_at(c, at)->scored > 0;
    return any;
}

static const int32_t *ids_of(const chooser *c, const bp_candidate_row *row)
{
    return (const int32_t *)c->all->ids.data + row->first;
}

static void fill_window(const chooser *c, int64_t at, int64_t window, int64_t length)
{
    const bp_candidate_row *row = row_at(c, at);
    const int32_t *ids = ids_of(c, row);
    int32_t *inputs = c->inputs + window * length, *targets = c->targets + window * length;
    int64_t last = row->count - 1;

    for (int64_t i = 0; i < length; i++) {
        inputs[i] = i < last ? ids[i] : 0;
        targets[i] = i < last && i >= last - row->scored ? ids[i + 1] : -1;
    }
}

static void fill_batch(const chooser *c, const header *head, int64_t rows)
{
    int64_t window = 0;

    for (int64_t at = head->first; at < head->first + rows; at++)
        if (at == head->first || !repeats(c, at))
            fill_window(c, at, window++, head->length);
}

bp_err chooser_answer(chooser *c, const void *what)
{
    const header *head = what;
    MPI_Comm comm = c->job->mesh->replica;
    int64_t bytes = head->windows * head->length * (int64_t)sizeof(int32_t);
    const bp_model_batch batch = {.windows = head->windows,
                                  .length = head->length,
                                  .inputs = c->inputs,
                                  .targets = c->targets,
                                  .first_slot = head->first};

    bp_heartbeat_progress();
    if (head->windows == 0) {
        c->is_greedy = greedy_walk(&c->walker, head->count, head->scored);
        return BP_OK;
    }
    bp_bcast_bytes(c->inputs, bytes, 0, comm);
    bp_bcast_bytes(c->targets, bytes, 0, comm);
    return c->whole ? bp_model_distribution(c->job->model, &batch, c->distribution, NULL)
                    : bp_model_score(c->job->model, &batch, c->values);
}

/* ---- results ---- */

/* Row `window` of a batch, one row per window. */
static void take_window(const chooser *c, const header *head, int64_t window)
{
    choice_result *result = &c->results[window];
    double *of_members = c->of_members + window * c->members;
    int64_t at = window * head->length, positions = head->windows * head->length;

    for (int64_t i = 0, seen = 0; i < head->length; i++) {
        double value = (double)c->values[at + i];

        if (c->targets[at + i] < 0)
            continue;
        result->logprob += value;
        result->first = seen++ == 0 ? value : result->first;
        result->sure += value > log(0.5);
        for (int64_t m = 0; m < c->members; m++)
            of_members[m] += (double)c->values[(BP_MODEL_MEMBER + m) * positions + at + i];
    }
}

static int64_t first_best(const float *log_p, int64_t count)
{
    int64_t best = 0;

    for (int64_t v = 1; v < count; v++)
        best = log_p[v] > log_p[best] ? v : best;
    return best;
}

/* Positions of a unit whose distributions are computed now: all, or some of one long row. */
typedef struct piece {
    int64_t first, end;
} piece;

/* Only these positions of the one window have targets. */
static void limit_targets(const chooser *c, const header *head, piece of)
{
    for (int64_t i = 0, place = 0; i < head->length; i++)
        if (c->targets[i] >= 0) {
            c->targets[i] = place >= of.first && place < of.end ? c->targets[i] : -1;
            place++;
        }
}

/* Score tokens of a row from the distributions of their positions, beginning with token `first`.
 * The distributions also show the tokens that the model would write. */
static void take_row(const chooser *c, choice_result *result, const bp_candidate_row *row,
                     int64_t place, piece of)
{
    const int32_t *tokens = ids_of(c, row) + row->count - row->scored;

    for (int64_t i = of.first; i < of.end; i++, place++) {
        double value = (double)c->distribution[place * c->job->info.vocab_size + tokens[i]];

        result->logprob += value;
        result->first = i == 0 ? value : result->first;
        result->sure += value > log(0.5);
        result->greedy = (i == 0 || result->greedy) && c->best[place] == tokens[i];
    }
}

static void take_whole(const chooser *c, const header *head, int64_t rows, piece of)
{
    int64_t columns = c->job->info.vocab_size, place = 0, end = 0;

    for (int64_t p = 0; p < of.end - of.first; p++)
        c->best[p] = (int32_t)first_best(c->distribution + p * columns, columns);
    if (head->windows == 1 && rows == 1) {
        take_row(c, c->results, row_at(c, head->first), 0, of);
        return;
    }
    for (int64_t k = 0; k < rows; k++) {
        const bp_candidate_row *row = row_at(c, head->first + k);

        if (k == 0 || !repeats(c, head->first + k)) {
            place = end;
            end += row->scored;
        }
        take_row(c, &c->results[k], row, place, (piece){0, row->scored});
    }
}

/* ---- a unit ---- */

static bool is_quiet(const bp_candidates *all, int64_t r)
{
    return all->quiet && all->quiet[all->rows[r].document];
}

/* Choices not yet decided. A document's other choices may be in another unit. Choices that these
 * would exclude are decoded needlessly, and the merge decides by all of them. */
static bp_err walk_all(chooser *c, int64_t first, int64_t rows, bool *stopped)
{
    const choice_results here = {c->results, first, first + rows};
    bp_err err = BP_OK;

    for (int64_t r = here.first; r < here.end && err == BP_OK; r++) {
        const bp_candidate_row *row = &c->all->rows[r];
        header head = {.count = row->count, .scored = row->scored};

        if (is_quiet(c->all, r))
            continue;
        *stopped = bp_work_between(c->job);
        if (*stopped)
            break;
        if (!choice_is_open(c->all, &here, r))
            continue;
        memcpy(c->walker.tokens, ids_of(c, row), (size_t)row->count * sizeof(int32_t));
        err = bp_request(&c->job->requests, &head, sizeof head);
        c->results[r - here.first].greedy = c->is_greedy;
    }
    return err;
}

/* Run the unit's batch; for a long row, several times with fewer positions. */
static bp_err score_all(chooser *c, const header *head, int64_t rows, int64_t positions)
{
    int64_t most = most_positions(c);
    piece of = {0, 0};
    bp_err err = BP_OK;

    do {
        of = (piece){of.end, positions - of.end > most ? of.end + most : positions};
        fill_batch(c, head, rows);
        if (of.end - of.first < positions)
            limit_targets(c, head, of);
        err = bp_request(&c->job->requests, head, sizeof *head);
        for (int64_t w = 0; err == BP_OK && w < head->windows && !c->whole; w++)
            take_window(c, head, w);
        if (err == BP_OK && c->whole)
            take_whole(c, head, rows, of);
    } while (err == BP_OK && of.end < positions);
    return err;
}

bp_err chooser_run(chooser *c, int64_t unit, bp_buffer *out, bool *stopped)
{
    header head = {.first = c->starts[unit]};
    int64_t positions, rows = batch_rows(c, &head, &positions);
    bp_err err = BP_OK;

    memset(c->results, 0, (size_t)rows * sizeof *c->results);
    memset(c->of_members, 0, (size_t)(rows * c->members) * sizeof *c->of_members);
    for (int64_t w = 0; w < rows; w++)
        c->results[w].greedy = c->whole || c->walker.decoding ? 0 : GREEDY_UNKNOWN;
    *stopped = bp_work_between(c->job);
    bp_work_ask_next(c->job);
    if (!*stopped && scores_any(c, head.first, rows)) {
        err = score_all(c, &head, rows, positions);
        if (err == BP_OK && c->walker.decoding)
            err = walk_all(c, head.first, rows, stopped);
    }
    bp_buffer_add(out, c->results, (size_t)rows * sizeof *c->results);
    bp_buffer_add(out, c->of_members, (size_t)(rows * c->members) * sizeof *c->of_members);
    return err;
}

/* ---- before and after ---- */

int64_t chooser_bytes(int64_t longest, int64_t statistics, int64_t vocab_size)
{
    int64_t tokens = bp_score_batch_tokens(longest);

    return tokens * (int64_t)(2 * sizeof(int32_t) + sizeof(choice_result)) +
           (int64_t)sizeof(float) *
               (vocab_size > 0 ? WHOLE_FLOATS + vocab_size : statistics * tokens);
}

bool chooser_gives_whole(const bp_model *model)
{
    return model->ops->distribution && model->info.members == 0 && !model->info.log_probabilities;
}

/* Sort entry: long rows first, equal ones in their order. */
typedef struct place {
    int64_t inputs, row;
} place;

static int compare_positions(const void *a, const void *b)
{
    const place *one = a, *other = b;
    int by_inputs = (one->inputs < other->inputs) - (one->inputs > other->inputs);

    return by_inputs ? by_inputs : (one->row > other->row) - (one->row < other->row);
}

/* Windows of a batch are padded to the longest of them. */
static void sort_rows(chooser *c)
{
    int64_t rows = c->all->count;
    place *positions = bp_alloc("score.candidates", rows, sizeof *positions);

    for (int64_t r = 0; r < rows; r++)
        positions[r] = (place){inputs_of(&c->all->rows[r]), r};
    qsort(positions, (size_t)rows, sizeof *positions, compare_positions);
    c->order = bp_alloc("score.candidates", rows, sizeof *c->order);
    for (int64_t at = 0; at < rows; at++)
        c->order[at] = positions[at].row;
    bp_free(positions);
}

const char *chooser_key(char text[CHOOSER_KEY_BYTES], const chooser *c)
{
    (void)snprintf(text, CHOOSER_KEY_BYTES, "%d %d %lld", c->whole, BP_SCORE_BATCH_TOKENS,
                   (long long)WHOLE_FLOATS);
    return text;
}

void chooser_cut(chooser *c)
{
    int64_t rows = c->all->count, positions;
    header head = {0};

    if (c->whole)
        sort_rows(c);

    c->starts = bp_alloc("score.candidates", rows + 1, sizeof *c->starts);
    for (; head.first < rows; c->starts[++c->count] = head.first)
        head.first += batch_rows(c, &head, &positions);
}

void chooser_clear(chooser *c)
{
    bp_free(c->starts);
    bp_free(c->order);
    c->starts = c->order = NULL;
}

/* The maximum of a row, and of a unit. */
typedef struct sizes {
    int64_t tokens, rows, positions;
} sizes;

static sizes sizes_of(const chooser *c)
{
    sizes most = {1, 1, 1};

    for (int64_t r = 0; r < c->all->count; r++)
        most.tokens = c->all->rows[r].count > most.tokens ? c->all->rows[r].count : most.tokens;
    for (int64_t u = 0; u < c->count; u++) {
        header head = {.first = c->starts[u]};
        int64_t positions, rows = batch_rows(c, &head, &positions);

        most.rows = rows > most.rows ? rows : most.rows;
        if (positions > most_positions(c))
            positions = most_positions(c);
        most.positions = positions > most.positions ? positions : most.positions;
    }
    return most;
}

bp_err chooser_prepare(chooser *c)
{
    sizes most = c->job->leads ? sizes_of(c) : (sizes){0};

    bp_bcast_bytes(&most, sizeof most, 0, c->job->mesh->replica);
    int64_t tokens = bp_score_batch_tokens(most.tokens);

    c->inputs = bp_alloc("score.candidates", tokens, sizeof *c->inputs);
    c->targets = bp_alloc("score.candidates", tokens, sizeof *c->targets);
    c->results = bp_alloc("score.candidates", most.rows, sizeof *c->results);
    c->of_members = bp_alloc("score.candidates", most.rows * c->members + 1, sizeof *c->of_members);
    if (!c->whole) {
        c->values = bp_alloc("score.candidates", c->statistics * tokens, sizeof *c->values);
        return most.tokens > 1 ? greedy_open(&c->walker, c->job, most.tokens) : BP_OK;
    }
    c->best = bp_alloc("score.candidates", most.positions, sizeof *c->best);
    c->distribution = bp_alloc("score.candidates", most.positions * c->job->info.vocab_size,
                               sizeof *c->distribution);
    return BP_OK;
}

void chooser_release(chooser *c)
{
    greedy_close(&c->walker);
    bp_free(c->distribution);
    bp_free(c->best);
    bp_free(c->of_members);
    bp_free(c->results);
    bp_free(c->values);
    bp_free(c->targets);
    bp_free(c->inputs);
}
