/* Choices as units of work: a unit is a batch of them, and what the model would write instead.
 * Called by candidates.c and by ../questions. */
#include "infer/score/candidates/choices.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "infer/score/unit.h"
#include "mesh/collective.h"

#include <math.h>
#include <string.h>

/* Of the distributions of a batch whose windows are shared: 16 MiB, or those of one window. */
#define SHARED_FLOATS (INT64_C(4) << 20)

/* ---- batches ---- */

/* A row that is not scored takes a place for nothing. */
static int64_t inputs_of(const bp_candidate_row *row)
{
    return row->count > 1 ? row->count - 1 : 1;
}

/* Has row r, one token behind the same context, the inputs of the row before it? */
static bool repeats(const chooser *c, int64_t r)
{
    const bp_candidate_row *row = &c->all->rows[r], *before = row - 1;

    return c->shares && r > c->all->first[row->document] && row->scored == 1 &&
           before->scored == 1 && row->count == before->count;
}

/* Does a window begin with row r that others share? */
static bool is_shared(const chooser *c, int64_t r)
{
    return repeats(c, r) || (r + 1 < c->all->first[c->all->documents] && repeats(c, r + 1));
}

/* A batch, from the lead to its group; windows 0: there is none. */
typedef struct header {
    int64_t windows, length, first;
    bool shared; /* whole distributions are computed, of the last place of each window */
} header;

static int64_t most_shared(int64_t vocab_size)
{
    return vocab_size < SHARED_FLOATS ? SHARED_FLOATS / vocab_size : 1;
}

/* The rows of a batch from head->first on: as many as keep their windows, as long as the longest of
 * them, within BP_SCORE_BATCH_TOKENS; one window at least. A function of the choices only. */
static int64_t batch_rows(const chooser *c, header *head)
{
    const bp_candidates *all = c->all;
    int64_t count = 0, rows = all->first[all->documents],
            most = most_shared(c->job->info.vocab_size);

    head->length = head->windows = 0;
    head->shared = is_shared(c, head->first);
    for (; head->first + count < rows; count++) {
        int64_t r = head->first + count;

        if (count > 0 && repeats(c, r))
            continue;
        int64_t inputs = inputs_of(&all->rows[r]);
        int64_t longest = inputs > head->length ? inputs : head->length;

        if (count > 0 &&
            ((head->windows + 1) * longest > BP_SCORE_BATCH_TOKENS ||
             is_shared(c, r) != head->shared || (head->shared && head->windows == most)))
            break;
        head->length = longest;
        head->windows++;
    }
    return count;
}

static bool scores_any(const bp_candidates *all, int64_t first, int64_t rows)
{
    bool any = false;

    for (int64_t r = first; r < first + rows; r++)
        any = any || all->rows[r].scored > 0;
    return any;
}

static const int32_t *ids_of(const chooser *c, int64_t r)
{
    return (const int32_t *)c->all->ids.data + c->all->rows[r].first;
}

static void fill_window(const chooser *c, int64_t r, int64_t window, int64_t length)
{
    const bp_candidate_row *row = &c->all->rows[r];
    const int32_t *ids = ids_of(c, r);
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

    for (int64_t r = head->first; r < head->first + rows; r++)
        if (r == head->first || !repeats(c, r))
            fill_window(c, r, window++, head->length);
}

/* On all ranks of a group; false: there is no batch. */
static bool score_batch(chooser *c, header *head, bp_err *err)
{
    MPI_Comm comm = c->job->mesh->ensemble;

    bp_heartbeat_progress();
    bp_bcast_bytes(head, sizeof *head, 0, comm);
    if (head->windows == 0)
        return false;

    int64_t bytes = head->windows * head->length * (int64_t)sizeof(int32_t);
    const bp_model_batch batch = {.windows = head->windows,
                                  .length = head->length,
                                  .inputs = c->inputs,
                                  .targets = c->targets,
                                  .first_slot = head->first};

    bp_bcast_bytes(c->inputs, bytes, 0, comm);
    bp_bcast_bytes(c->targets, bytes, 0, comm);
    *err = head->shared ? bp_model_distribution(c->job->lm, &batch, c->distribution, NULL)
                        : bp_model_score(c->job->lm, &batch, c->values);
    return *err == BP_OK;
}

/* ---- results ---- */

/* Row `window` of a batch that is not shared. */
static void take_window(const chooser *c, const header *head, int64_t window)
{
    choice_result *result = &c->results[window];
    double *of_members = c->of_members + window * c->members;
    int64_t at = window * head->length, places = head->windows * head->length;

    for (int64_t i = 0, seen = 0; i < head->length; i++) {
        double value = (double)c->values[at + i];

        if (c->targets[at + i] < 0)
            continue;
        result->logprob += value;
        result->first = seen++ == 0 ? value : result->first;
        result->sure += value > log(0.5);
        for (int64_t m = 0; m < c->members; m++)
            of_members[m] += (double)c->values[(BP_MODEL_MEMBER + m) * places + at + i];
    }
}

static int64_t first_best(const float *log_p, int64_t count)
{
    int64_t best = 0;

    for (int64_t v = 1; v < count; v++)
        best = log_p[v] > log_p[best] ? v : best;
    return best;
}

/* Each row's token from its window's distribution, which also says what the model would write. */
static void take_shared(const chooser *c, const header *head, int64_t rows)
{
    int64_t columns = c->job->info.vocab_size, window = -1, best = 0;
    const float *log_p = NULL;

    for (int64_t k = 0; k < rows; k++) {
        int64_t r = head->first + k;
        choice_result *result = &c->results[k];
        int32_t token = ids_of(c, r)[c->all->rows[r].count - 1];

        if (k == 0 || !repeats(c, r)) {
            log_p = c->distribution + ++window * columns;
            best = first_best(log_p, columns);
        }
        result->logprob = result->first = (double)log_p[token];
        result->sure = result->logprob > log(0.5);
        if (c->walker.decoding)
            result->greedy = token == best;
    }
}

/* ---- a unit ---- */

static bool is_quiet(const bp_candidates *all, int64_t r)
{
    return all->quiet && all->quiet[all->rows[r].document];
}

/* Choices of which it is not yet known. A document's other choices may be in another unit; what
 * these would exclude is walked for nothing, and the merge decides by all of them. */
static void lead_walks(chooser *c, const header *head, int64_t rows, bool *stopped)
{
    const choice_results here = {c->results, head->first, head->first + rows};

    for (int64_t r = here.first; r < here.end && !*stopped && !head->shared; r++) {
        if (is_quiet(c->all, r))
            continue;
        *stopped = bp_work_between(c->job);
        if (!*stopped && choice_is_open(c->all, &here, r))
            c->results[r - here.first].greedy =
                greedy_walk(&c->walker, ids_of(c, r), &c->all->rows[r]);
    }
    greedy_end(&c->walker);
}

static bp_err lead(chooser *c, int64_t unit, bp_buffer *out, bool *stopped)
{
    header head = {.first = c->starts[unit]};
    int64_t rows = batch_rows(c, &head);
    bp_err err = BP_OK;

    memset(c->results, 0, (size_t)rows * sizeof *c->results);
    memset(c->of_members, 0, (size_t)(rows * c->members) * sizeof *c->of_members);
    for (int64_t w = 0; w < rows; w++)
        c->results[w].greedy = c->walker.decoding ? 0 : GREEDY_UNKNOWN;
    *stopped = bp_work_between(c->job);
    if (*stopped || !scores_any(c->all, head.first, rows))
        head.windows = 0;
    else
        fill_batch(c, &head, rows);
    bp_work_ask_next(c->job);
    if (score_batch(c, &head, &err)) {
        for (int64_t w = 0; w < head.windows && !head.shared; w++)
            take_window(c, &head, w);
        if (head.shared)
            take_shared(c, &head, rows);
        if (c->walker.decoding)
            lead_walks(c, &head, rows, stopped);
    }
    bp_buffer_add(out, c->results, (size_t)rows * sizeof *c->results);
    bp_buffer_add(out, c->of_members, (size_t)(rows * c->members) * sizeof *c->of_members);
    return err;
}

bp_err chooser_run(chooser *c, int64_t unit, bp_buffer *out, bool *stopped)
{
    bp_err err = BP_OK;

    if (c->job->leads)
        return lead(c, unit, out, stopped);
    if (score_batch(c, &(header){0}, &err) && c->walker.decoding)
        greedy_follow(&c->walker);
    return err;
}

int64_t chooser_amount(const chooser *c, int64_t unit)
{
    return c->starts[unit + 1] - c->starts[unit];
}

/* ---- before and after ---- */

bool chooser_may_share(const bp_model *lm)
{
    return lm->ops->distribution && lm->info.members == 0 && !lm->info.log_probabilities;
}

void chooser_cut(chooser *c)
{
    int64_t rows = c->all->first[c->all->documents];
    header head = {0};

    c->starts = bp_alloc("score.candidates", rows + 1, sizeof *c->starts);
    for (; head.first < rows; c->starts[++c->count] = head.first)
        head.first += batch_rows(c, &head);
}

void chooser_clear(chooser *c)
{
    bp_free(c->starts);
    c->starts = NULL;
}

bp_err chooser_prepare(chooser *c)
{
    const bp_mesh *mesh = c->job->mesh;
    int64_t most[] = {1, 1}; /* tokens of a row, rows of a unit */

    for (int64_t r = 0; c->job->leads && r < c->all->first[c->all->documents]; r++)
        most[0] = c->all->rows[r].count > most[0] ? c->all->rows[r].count : most[0];
    for (int64_t u = 0; c->job->leads && u < c->count; u++)
        most[1] = chooser_amount(c, u) > most[1] ? chooser_amount(c, u) : most[1];
    bp_bcast_bytes(most, sizeof most, 0, mesh->ensemble);
    int64_t tokens = bp_score_batch_tokens(most[0]), vocab_size = c->job->info.vocab_size;

    c->inputs = bp_alloc("score.candidates", tokens, sizeof *c->inputs);
    c->targets = bp_alloc("score.candidates", tokens, sizeof *c->targets);
    c->values = bp_alloc("score.candidates", c->statistics * tokens, sizeof *c->values);
    c->results = bp_alloc("score.candidates", most[1], sizeof *c->results);
    c->of_members = bp_alloc("score.candidates", most[1] * c->members + 1, sizeof *c->of_members);
    if (c->shares)
        c->distribution = bp_alloc("score.candidates", most_shared(vocab_size) * vocab_size,
                                   sizeof *c->distribution);
    return most[0] > 1 ? greedy_open(&c->walker, c->job, most[0]) : BP_OK;
}

void chooser_release(chooser *c)
{
    greedy_close(&c->walker);
    bp_free(c->distribution);
    bp_free(c->of_members);
    bp_free(c->results);
    bp_free(c->values);
    bp_free(c->targets);
    bp_free(c->inputs);
    c->distribution = NULL;
}
