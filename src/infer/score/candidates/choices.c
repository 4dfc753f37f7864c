/* score.candidates in a scoring job: batches of choices over the data ranks, and their files. */
#include "infer/score/scorer_priv.h"

#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/run_options.h"
#include "infer/score/candidates/candidates.h"
#include "infer/score/candidates/greedy_priv.h"
#include "infer/score/score.h"
#include "infer/score/unit.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* What one rank holds while choices are scored. */
typedef struct chooser {
    scorer *self;
    const bp_candidates *all; /* on leads and the coordinator */
    int64_t rows;             /* choices of all documents; on all ranks */
    int32_t *inputs, *targets;
    float *values;
    double *logprobs; /* [rows] */
    double *firsts;   /* [rows] of a choice's first token ... */
    double *sures;    /* [rows] ... and how many of its tokens are more probable than all others */
    double *greedy;   /* [rows] 1: it is what the model would write */
    bool knows_greedy;
} chooser;

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
                       "score.candidates asks what follows a text, which causal models alone "
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

typedef struct header {
    int64_t windows, length, first;
} header;

/* A row that is not scored takes a place for nothing. */
static int64_t inputs_of(const bp_candidate_row *row)
{
    return row->count > 1 ? row->count - 1 : 1;
}

static bool scores_any(const chooser *c, const header *head)
{
    bool any = false;

    for (int64_t r = head->first; r < head->first + head->windows; r++)
        any = any || c->all->rows[r].scored > 0;
    return any;
}

/* The rows of a batch from `first` on: so many that their windows, as long as the longest of them,
 * are BP_SCORE_BATCH_TOKENS at most; one at least. A function of the choices alone. */
static int64_t batch_rows(const bp_candidates *all, int64_t first, int64_t rows, int64_t *length)
{
    int64_t count = 0;

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

/* On all ranks of a group; windows 0: the end. */
static bp_err score_batch(chooser *c, const header *head)
{
    MPI_Comm comm = c->self->mesh->ensemble;
    int64_t bytes = head->windows * head->length * (int64_t)sizeof(int32_t);
    const bp_model_batch batch = {.windows = head->windows,
                                  .length = head->length,
                                  .inputs = c->inputs,
                                  .targets = c->targets,
                                  .first_slot = head->first};

    bp_heartbeat_progress();
    if (bp_comm_size(comm) > 1) {
        bp_bcast_bytes(c->inputs, bytes, 0, comm);
        bp_bcast_bytes(c->targets, bytes, 0, comm);
    }
    return bp_model_score(c->self->lm, &batch, c->values);
}

static void take_values(chooser *c, const header *head)
{
    for (int64_t w = 0; w < head->windows; w++) {
        int64_t r = head->first + w, seen = 0;

        for (int64_t i = 0; i < head->length; i++) {
            double value = (double)c->values[w * head->length + i];

            if (c->targets[w * head->length + i] < 0)
                continue;
            c->logprobs[r] += value;
            c->firsts[r] = seen++ == 0 ? value : c->firsts[r];
            c->sures[r] += value > log(0.5);
        }
    }
}

static void share_header(const chooser *c, header *head)
{
    if (bp_comm_size(c->self->mesh->ensemble) > 1)
        bp_bcast_bytes(head, sizeof *head, 0, c->self->mesh->ensemble);
}

/* Batch b goes to data rank b mod their number. */
static bp_err lead(chooser *c)
{
    const bp_mesh *mesh = c->self->mesh;
    int64_t first = 0;
    bp_err err = BP_OK;

    for (int64_t b = 0; err == BP_OK && first < c->rows; b++) {
        header head = {.first = first};

        head.windows = batch_rows(c->all, first, c->rows, &head.length);
        first += head.windows;
        if (b % mesh->datas != mesh->data_at || !scores_any(c, &head))
            continue;
        for (int64_t w = 0; w < head.windows; w++)
            fill_window(c, &c->all->rows[head.first + w], w, head.length);
        share_header(c, &head);
        err = score_batch(c, &head);
        if (err == BP_OK)
            take_values(c, &head);
    }
    if (err == BP_OK)
        share_header(c, &(header){.windows = 0});
    return err;
}

static bp_err follow(chooser *c)
{
    bp_err err = BP_OK;

    while (err == BP_OK) {
        header head;

        share_header(c, &head);
        if (head.windows == 0)
            break;
        err = score_batch(c, &head);
    }
    return err;
}

/* ---- what the model would write ---- */

/* Choices of which it is not yet known: those whose first token is no less probable than that of
 * another choice of the document, and that are not surely it. */
static bool is_open(const chooser *c, int64_t document, int64_t r)
{
    const bp_candidates *all = c->all;
    const bp_candidate_row *row = &all->rows[r];
    bool open = row->scored > 0 && c->sures[r] < (double)row->scored;

    for (int64_t k = all->first[document]; k < all->first[document + 1]; k++) {
        const bp_candidate_row *other = &all->rows[k];

        /* behind the same context: it was not cut */
        if (other->scored > 0 && other->count - other->scored == row->count - row->scored)
            open = open && c->firsts[k] <= c->firsts[r];
    }
    return open;
}

static bp_err find_greedy(chooser *c, int64_t longest)
{
    const scorer *self = c->self;
    const bp_candidates *all = c->all;
    bool *asked = bp_alloc("score.candidates", c->rows, sizeof *asked);
    bp_err err;

    for (int64_t d = 0; self->leads && d < all->documents; d++)
        for (int64_t r = all->first[d]; r < all->first[d + 1]; r++)
            asked[r] = is_open(c, d, r);
    err = candidates_greedy(c->greedy, &c->knows_greedy, self, asked, longest);
    bp_all_sum_double(c->greedy, c->rows, self->mesh->world); /* of one rank each, else 0 */
    for (int64_t r = 0; (self->leads || self->mesh->coordinates) && r < c->rows; r++)
        if (all->rows[r].scored > 0 && c->sures[r] >= (double)all->rows[r].scored)
            c->greedy[r] = 1;
    bp_free(asked);
    return err;
}

static bp_err score_all(chooser *c)
{
    scorer *self = c->self;
    int64_t longest = 0;
    bp_err err = BP_OK;

    for (int64_t r = 0; self->leads && r < c->rows; r++)
        longest = c->all->rows[r].count > longest ? c->all->rows[r].count : longest;
    longest = bp_all_max_int(longest, self->mesh->world);
    int64_t tokens = bp_score_batch_tokens(longest);

    c->inputs = bp_alloc("score.candidates", tokens, sizeof *c->inputs);
    c->targets = bp_alloc("score.candidates", tokens, sizeof *c->targets);
    c->values = bp_alloc("score.candidates", self->statistics.count * tokens, sizeof *c->values);
    if (self->mesh->computes)
        err = self->leads ? lead(c) : follow(c);
    err = bp_agree(self->mesh->world, err);
    bp_all_sum_double(c->logprobs, c->rows, self->mesh->world); /* of one rank each, else 0 */
    bp_all_sum_double(c->firsts, c->rows, self->mesh->world);
    bp_all_sum_double(c->sures, c->rows, self->mesh->world);
    return err == BP_OK && longest > 1 ? find_greedy(c, longest) : err;
}

/* ---- results ---- */

static json_t *line_of(const chooser *c, int64_t document)
{
    const bp_candidates *all = c->all;
    json_t *logprobs = json_array(), *tokens = json_array(), *bytes = json_array(),
           *greedy = json_array();
    int64_t best = bp_candidates_best(all, c->logprobs, document);
    json_t *line =
        json_pack("{s:I, s:o, s:o, s:o, s:o, s:o}", "document", (json_int_t)document, "logprobs",
                  logprobs, "tokens", tokens, "bytes", bytes, "greedy", greedy, "best",
                  best >= 0 ? json_integer((json_int_t)best) : json_null());

    for (int64_t r = all->first[document]; r < all->first[document + 1]; r++) {
        (void)json_array_append_new(logprobs, bp_json_real(c->logprobs[r]));
        (void)json_array_append_new(tokens, json_integer((json_int_t)all->rows[r].scored));
        (void)json_array_append_new(greedy, c->knows_greedy && all->rows[r].scored > 0
                                                ? json_boolean(c->greedy[r] > 0)
                                                : json_null());
        (void)json_array_append_new(bytes, json_integer((json_int_t)all->rows[r].bytes));
    }
    (void)json_object_set_new(
        line, "answer",
        all->answer[document] >= 0 ? json_integer((json_int_t)all->answer[document]) : json_null());
    return line;
}

/* score/candidates.jsonl, and the figures for summary.json. */
static bp_err write_choices(chooser *c)
{
    scorer *self = c->self;

    for (int64_t r = 0; r < c->rows; r++)
        if (c->all->rows[r].scored == 0)
            c->logprobs[r] = NAN;

    char *path = bp_path_join(self->folder, "candidates.jsonl");
    bp_draft draft;
    bp_err err = bp_run_check_owner(self->job->run);

    if (err == BP_OK)
        err = bp_dir_make(self->folder);
    if (err == BP_OK)
        err = bp_draft_open(&draft, path);
    if (err == BP_OK) {
        for (int64_t d = 0; err == BP_OK && d < c->all->documents; d++) {
            json_t *line = line_of(c, d);
            char *text = bp_json_line(line);

            err = bp_draft_write(&draft, text, strlen(text));
            bp_free(text);
            json_decref(line);
        }
        if (err == BP_OK)
            err = bp_draft_commit(&draft);
        else
            bp_draft_drop(&draft);
    }
    if (err == BP_OK) {
        self->choices = bp_candidates_summary(c->all, c->logprobs,
                                              (uint64_t)bp_run_keys_of(self->config)->seed);
        (void)json_object_set_new(self->choices, "documents",
                                  json_integer((json_int_t)c->all->documents));
        (void)json_object_set_new(self->choices, "choices", json_integer((json_int_t)c->rows));
        if (c->all->unscored > 0)
            (void)json_object_set_new(self->choices, "unscored",
                                      json_integer((json_int_t)c->all->unscored));
    }
    bp_free(path);
    return err;
}

bp_err scorer_run_candidates(scorer *self)
{
    const bp_candidates *all = &self->candidates;
    chooser c = {.self = self, .all = all, .rows = all->first ? all->first[all->documents] : 0};
    bp_phase before;
    bp_err err;

    if (!bp_score_keys_of(self->config)->candidates)
        return BP_OK;
    before = bp_heartbeat_phase(BP_PHASE_SCORE);
    c.rows = bp_all_max_int(c.rows, self->mesh->world);
    c.logprobs = bp_alloc("score.candidates", c.rows, sizeof *c.logprobs);
    c.firsts = bp_alloc("score.candidates", c.rows, sizeof *c.firsts);
    c.sures = bp_alloc("score.candidates", c.rows, sizeof *c.sures);
    c.greedy = bp_alloc("score.candidates", c.rows, sizeof *c.greedy);
    err = score_all(&c);
    if (err == BP_OK)
        err = bp_agree(self->mesh->world, self->mesh->coordinates ? write_choices(&c) : BP_OK);
    bp_free(c.values);
    bp_free(c.targets);
    bp_free(c.inputs);
    bp_free(c.greedy);
    bp_free(c.sures);
    bp_free(c.firsts);
    bp_free(c.logprobs);
    (void)bp_heartbeat_phase(before);
    return err;
}
