/* score.candidates as units of work: a unit is a batch of choices, and what the model would write
 * instead of them. */
#include "infer/score/candidates/choices_priv.h"

#include "base/config/run_options.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "infer/score/unit.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- the file ---- */

/* That of the corpora, else of tokenizer.path. */
static bp_err open_tokenizer(bp_tokenizer **out, const scorer *self)
{
    const bp_corpus *corpus = self->corpus;
    const char *path = bp_run_keys_of(self->config)->tokenizer_path;
    const char *hash = bp_corpus_tokenizer_hash(corpus);
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = BP_OK;

    for (int64_t k = 0; err == BP_OK && !text && k < bp_corpus_files(corpus); k++)
        err = bp_corpus_file_tokenizer(bp_corpus_file_at(corpus, k), &text, &bytes);
    if (err == BP_OK && text)
        err = bp_tokenizer_parse(out, text, bytes, "the corpus's tokenizer");
    else if (err == BP_OK && path)
        err = bp_tokenizer_load(out, path);
    else if (err == BP_OK)
        err = BP_FAIL(BP_ERR_CONFIG, "choices.no_tokenizer",
                      "score.candidates needs a tokenizer, and the corpora keep none: at "
                      "tokenizer.path; set it");
    if (err == BP_OK && hash[0] && !bp_tokenizer_same_hash(hash, bp_tokenizer_hash(*out)))
        err = BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                      "the tokenizer is not that of the corpora, %s and %s: at %s; give the "
                      "corpora's",
                      bp_tokenizer_hash(*out), hash, path);
    bp_free(text);
    return err;
}

/* With score.prefix = auto what the model's tokenizer puts before a text; a context without text is
 * the prefix of a document. */
static bp_err read_choices(scorer *self, const char *path, const bp_tokenizer *tokenizer)
{
    const char *key = bp_score_rule_keys_of(self->config)->prefix;
    bool as_texts = strcmp(key, "auto") == 0;
    int64_t lead = self->rule.lead;
    const bp_candidates_prefix prefix = {.before = as_texts ? bp_model_first(&self->info) : lead,
                                         .alone = lead,
                                         .bos = bp_model_bos(&self->info)};
    bp_err err =
        as_texts ? bp_tokenizer_check_first(tokenizer, prefix.before, "score.prefix") : BP_OK;

    return err == BP_OK
               ? bp_candidates_read(&self->candidates, path, &self->plan, tokenizer, &prefix)
               : err;
}

bp_err scorer_open_candidates(scorer *self)
{
    const char *path = bp_score_keys_of(self->config)->candidates;
    bp_tokenizer *tokenizer = NULL;
    bp_err err;

    if (!path)
        return BP_OK;
    if (self->info.masks || self->info.reads_source)
        return BP_FAIL(BP_ERR_CONFIG, "score.other_convention",
                       "score.candidates asks what follows a text, which only causal models "
                       "answer: at score.candidates; leave it out, or take a causal model");
    err = open_tokenizer(&tokenizer, self);
    if (err == BP_OK)
        err = read_choices(self, path, tokenizer);
    bp_tokenizer_free(&tokenizer);
    if (err == BP_OK && self->mesh->coordinates && self->candidates.unscored > 0)
        BP_WARN("choices.unscored",
                "%" PRId64 " of %" PRId64 " choices have no log-probability, being empty or longer "
                "than score.context = %" PRId64 ": at %s; their lines say null",
                self->candidates.unscored, self->candidates.first[self->candidates.documents],
                self->rule.context, path);
    if (err == BP_OK)
        bp_candidates_hash(&self->candidates, self->candidates_hash);
    return err;
}

/* ---- batches ---- */

/* A row that is not scored takes a place for nothing. */
static int64_t inputs_of(const bp_candidate_row *row)
{
    return row->count > 1 ? row->count - 1 : 1;
}

/* The rows of a batch from `first` on: as many as keep their windows, as long as the longest of
 * them, within BP_SCORE_BATCH_TOKENS; one at least. A function of the choices only. */
static int64_t batch_rows(const bp_candidates *all, int64_t first, int64_t *length)
{
    int64_t count = 0, rows = all->first[all->documents];

    *length = 0;
    for (; first + count < rows; count++) {
        int64_t inputs = inputs_of(&all->rows[first + count]);
        int64_t longest = inputs > *length ? inputs : *length;

        if (count > 0 && (count + 1) * longest > BP_SCORE_BATCH_TOKENS)
            break;
        *length = longest;
    }
    return count;
}

/* A batch, from the lead to its group; windows 0: there is none. */
typedef struct header {
    int64_t windows, length, first;
} header;

static bool scores_any(const bp_candidates *all, const header *head)
{
    bool any = false;

    for (int64_t r = head->first; r < head->first + head->windows; r++)
        any = any || all->rows[r].scored > 0;
    return any;
}

static void fill_window(const chooser *c, const bp_candidate_row *row, int64_t window,
                        int64_t length)
{
    const int32_t *ids = (const int32_t *)c->all->ids.data + row->first;
    int32_t *inputs = c->inputs + window * length, *targets = c->targets + window * length;
    int64_t last = row->count - 1;

    for (int64_t i = 0; i < length; i++) {
        inputs[i] = i < last ? ids[i] : 0;
        targets[i] = i < last && i >= last - row->scored ? ids[i + 1] : -1;
    }
}

/* On all ranks of a group; false: there is no batch. */
static bool score_batch(chooser *c, header *head, bp_err *err)
{
    MPI_Comm comm = c->self->mesh->ensemble;

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
    *err = bp_model_score(c->self->lm, &batch, c->values);
    return *err == BP_OK;
}

static void take_values(chooser *c, const header *head)
{
    for (int64_t w = 0; w < head->windows; w++) {
        choice_result *result = &c->results[w];

        for (int64_t i = 0, seen = 0; i < head->length; i++) {
            double value = (double)c->values[w * head->length + i];

            if (c->targets[w * head->length + i] < 0)
                continue;
            result->logprob += value;
            result->first = seen++ == 0 ? value : result->first;
            result->sure += value > log(0.5);
        }
    }
}

/* ---- a unit ---- */

/* Choices of which it is not yet known. A document's other choices may be in another unit; what
 * these would exclude is walked for nothing, and the merge decides by all of them. */
static void lead_walks(chooser *c, const header *head, bool *stopped)
{
    const choice_results here = {c->results, head->first, head->first + head->windows};

    for (int64_t r = here.first; r < here.end && !*stopped; r++) {
        const bp_candidate_row *row = &c->all->rows[r];
        const int32_t *ids = (const int32_t *)c->all->ids.data + row->first;

        *stopped = bp_work_between(c->self->job);
        if (!*stopped && choice_is_open(c->all, &here, r))
            c->results[r - here.first].greedy = greedy_walk(&c->walker, ids, row);
    }
    greedy_end(&c->walker);
}

static bp_err lead(chooser *c, int64_t unit, bp_buffer *out, bool *stopped)
{
    header head = {.first = c->starts[unit]};
    int64_t rows = batch_rows(c->all, head.first, &head.length);
    bp_err err = BP_OK;

    memset(c->results, 0, (size_t)rows * sizeof *c->results);
    for (int64_t w = 0; w < rows; w++)
        c->results[w].greedy = c->walker.decoding ? 0 : GREEDY_UNKNOWN;
    *stopped = bp_work_between(c->self->job);
    head.windows = rows;
    if (*stopped || !scores_any(c->all, &head))
        head.windows = 0;
    for (int64_t w = 0; w < head.windows; w++)
        fill_window(c, &c->all->rows[head.first + w], w, head.length);
    bp_work_ask_next(c->self->job);
    if (score_batch(c, &head, &err)) {
        take_values(c, &head);
        if (c->walker.decoding)
            lead_walks(c, &head, stopped);
    }
    bp_buffer_add(out, c->results, (size_t)rows * sizeof *c->results);
    return err;
}

static bp_err run_unit(void *context, int64_t number, bp_buffer *out, bool *stopped)
{
    const scorer *self = context;
    chooser *c = self->chooser;
    bp_err err = BP_OK;

    if (self->leads)
        return lead(c, number, out, stopped);
    if (score_batch(c, &(header){0}, &err) && c->walker.decoding)
        greedy_follow(&c->walker);
    return err;
}

static int64_t count_choices(const void *context, int64_t number)
{
    const chooser *c = ((const scorer *)context)->chooser;

    return c->starts[number + 1] - c->starts[number];
}

/* ---- before and after ---- */

static bp_err prepare(void *context)
{
    scorer *self = context;
    chooser *c = self->chooser;
    const bp_candidates *all = c->all;
    int64_t longest = 0;

    for (int64_t r = 0; self->leads && r < all->first[all->documents]; r++)
        longest = all->rows[r].count > longest ? all->rows[r].count : longest;
    bp_bcast_bytes(&longest, sizeof longest, 0, self->mesh->ensemble);
    int64_t tokens = bp_score_batch_tokens(longest);

    c->inputs = bp_alloc("score.candidates", tokens, sizeof *c->inputs);
    c->targets = bp_alloc("score.candidates", tokens, sizeof *c->targets);
    c->values = bp_alloc("score.candidates", self->statistics.count * tokens, sizeof *c->values);
    c->results = bp_alloc("score.candidates", tokens, sizeof *c->results);
    return longest > 1 ? greedy_open(&c->walker, self, longest) : BP_OK;
}

static void release(void *context)
{
    chooser *c = ((scorer *)context)->chooser;

    greedy_close(&c->walker);
    bp_free(c->results);
    bp_free(c->values);
    bp_free(c->targets);
    bp_free(c->inputs);
}

/* Which rows are a unit, and what a result's bits depend on: on leads and the coordinator. */
static void cut_units(chooser *c)
{
    const scorer *self = c->self;
    int64_t rows = c->all->first[c->all->documents], length;

    bp_work_key(c->key, "candidates 1 %s %s", self->key, self->candidates_hash);
    c->starts = bp_alloc("score.candidates", rows + 1, sizeof *c->starts);
    for (int64_t first = 0; first < rows; c->starts[++c->count] = first)
        first += batch_rows(c->all, first, &length);
}

const bp_work_units *scorer_candidates(scorer *self)
{
    chooser *c = self->chooser;

    if (!c) {
        c = self->chooser = bp_alloc("score.candidates", 1, sizeof *c);
        c->self = self;
        c->all = &self->candidates;
        if (self->leads || self->mesh->coordinates)
            cut_units(c);
    }
    c->units = (bp_work_units){.parts = "candidates-parts",
                               .key = c->key,
                               .count = c->count,
                               .mesh_keys = "mesh.tensor, mesh.members",
                               .again = "scored",
                               .amount = c->starts ? (double)c->starts[c->count] : 0,
                               .noun = "choices",
                               .prepare = prepare,
                               .run = run_unit,
                               .amount_of = count_choices,
                               .release = release,
                               .merge = choices_merge};
    return &c->units;
}

void scorer_clear_candidates(scorer *self)
{
    if (self->chooser)
        bp_free(self->chooser->starts);
    bp_free(self->chooser);
    bp_candidates_clear(&self->candidates);
}
