/* Counting: reads, sorts, combines and spills ranges of the stream that no run holds yet. The first
 * step of ngram.c; then ngram_merge.c. */
#include "models/ngram/ngram_count_priv.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"

#include <inttypes.h>
#include <string.h>

#define READ_TOKENS ((int64_t)1 << 16)

typedef struct range {
    int64_t first, end;
} range;

/* The counting state of a rank. */
typedef struct counter {
    const bp_counting *counting;
    const ngram_spec *spec;
    const char *work;
    int64_t capacity; /* n-grams of a run, before they are combined */
    ngram_item *items, *scratch;
    int32_t *tokens;  /* [READ_TOKENS] */
    int64_t done, of; /* tokens of this rank */
} counter;

/* ---- one run ---- */

/* Ids come in one by one; the key holds the last ones, the newest in the highest slot. */
static ngram_key push(const ngram_spec *spec, ngram_key key, int64_t id)
{
    return (key >> spec->bits) |
           ((ngram_key)(uint64_t)(id + 1) << (spec->bits * (spec->order - 1)));
}

/* After <s>, which has no history. */
static ngram_key begin_document(const ngram_spec *spec)
{
    return push(spec, 0, spec->vocab_size);
}

/* N-grams that end at tokens [first, end): earlier tokens are the first ones' histories. */
static bp_err read_range(counter *self, range part, int64_t *count)
{
    const ngram_spec *spec = self->spec;
    int64_t before = part.first < spec->order ? part.first : spec->order;
    int64_t at = part.first - before;
    ngram_key key = at == 0 ? begin_document(spec) : 0;
    bp_err err = BP_OK;

    *count = 0;
    while (at < part.end && err == BP_OK) {
        int64_t now = part.end - at < READ_TOKENS ? part.end - at : READ_TOKENS;

        err = self->counting->read(self->counting->context, at, now, self->tokens);
        for (int64_t k = 0; k < now && err == BP_OK; k++) {
            key = push(spec, key, self->tokens[k]);
            if (at + k >= part.first)
                self->items[(*count)++] = ngram_item_of(key, 1);
            if (self->tokens[k] == spec->eod_id)
                key = begin_document(spec);
        }
        at += now;
        bp_heartbeat_progress();
        self->counting->progress(self->counting->context, "counting", self->done + at - part.first,
                                 self->of);
    }
    return err;
}

static bp_err make_run(counter *self, range part)
{
    const ngram_spec *spec = self->spec;
    int64_t count;
    bp_err err = read_range(self, part, &count);

    if (err != BP_OK)
        return err;
    ngram_sort(self->items, self->scratch, count, spec->bits * spec->order);
    count = ngram_combine(self->items, count);
    err = ngram_run_write(self->counting->folder, self->work, part.first, part.end, self->items,
                          count);
    self->done += part.end - part.first;
    bp_fault_point("count.run");
    return err;
}

bp_err ngram_read_sample(const bp_counting *counting, const ngram_spec *spec, int64_t tokens,
                         ngram_item *items)
{
    counter self = {.counting = counting, .spec = spec, .items = items, .of = tokens};
    int64_t count;
    bp_err err;

    self.tokens = bp_alloc("ngram.count", READ_TOKENS, sizeof *self.tokens);
    err = read_range(&self, (range){0, tokens}, &count);
    bp_free(self.tokens);
    return err;
}

/* ---- missing ranges, and their ranks ---- */

/* The ranges of [0, tokens) that no run holds; returns their number. */
static int64_t find_gaps(range **gaps, const ngram_run *runs, int64_t count, int64_t tokens)
{
    int64_t found = 0, at = 0;

    *gaps = bp_alloc("ngram.count", count + 1, sizeof **gaps);
    for (int64_t r = 0; r <= count; r++) {
        int64_t first = r < count ? runs[r].first : tokens;

        if (first > at)
            (*gaps)[found++] = (range){at, first};
        at = r < count ? runs[r].end : at;
    }
    return found;
}

/* This rank's share of the gaps' tokens: [first, end) of them, one gap after the other. */
static bp_err count_share(counter *self, const range *gaps, int64_t count, range share)
{
    int64_t passed = 0;
    bp_err err = BP_OK;

    self->of = share.end - share.first;
    for (int64_t g = 0; g < count && err == BP_OK; g++) {
        int64_t tokens = gaps[g].end - gaps[g].first;
        int64_t from = share.first > passed ? share.first - passed : 0;
        int64_t to = share.end - passed < tokens ? share.end - passed : tokens;

        passed += tokens;
        while (from < to && err == BP_OK) {
            int64_t now = to - from < self->capacity ? to - from : self->capacity;

            err = bp_counting_check_stop(self->counting, "counting");
            if (err == BP_OK)
                err = make_run(self, (range){gaps[g].first + from, gaps[g].first + from + now});
            from += now;
        }
    }
    return err;
}

static bp_err reserve(counter *self, int64_t share)
{
    int64_t most = self->spec->memory_bytes / (2 * (int64_t)sizeof *self->items);

    self->capacity = share < most ? share : most;
    self->items = bp_try_alloc("ngram.count", self->capacity, sizeof *self->items);
    self->scratch = bp_try_alloc("ngram.count", self->capacity, sizeof *self->scratch);
    self->tokens = bp_alloc("ngram.count", READ_TOKENS, sizeof *self->tokens);
    return self->items && self->scratch ? BP_OK
                                        : bp_fail_memory("n-grams to be sorted (ngram.memory)",
                                                         2 * self->capacity, sizeof *self->items);
}

static bp_err count_gaps(const bp_counting *counting, const ngram_spec *spec, const char *work,
                         const range *gaps, int64_t count)
{
    int64_t rank = bp_comm_rank(counting->comm), size = bp_comm_size(counting->comm), all = 0;
    counter self = {.counting = counting, .spec = spec, .work = work};
    range share;
    bp_err err;

    for (int64_t g = 0; g < count; g++)
        all += gaps[g].end - gaps[g].first;
    share = (range){(int64_t)((double)all * (double)rank / (double)size),
                    (int64_t)((double)all * (double)(rank + 1) / (double)size)};
    share.end = rank == size - 1 ? all : share.end;
    err = reserve(&self, share.end - share.first);
    if (err == BP_OK)
        err = count_share(&self, gaps, count, share);
    bp_free(self.items);
    bp_free(self.scratch);
    bp_free(self.tokens);
    return err;
}

/* All ranks see the runs as the root saw them: it has removed the unusable ones. The root alone has
 * their lists of blocks: of 10^12 tokens they are 10 GB. */
static bp_err open_runs(ngram_run **runs, int64_t *count, const bp_counting *counting,
                        const char *work, bool verify)
{
    bool root = bp_comm_is_root(counting->comm);
    bp_err err = BP_OK;

    *runs = NULL;
    *count = 0;
    if (root)
        err = ngram_runs_open(runs, count, counting->folder, work,
                              NGRAM_LISTS | (verify ? NGRAM_VERIFY : 0));
    err = bp_agree(counting->comm, err);
    if (err == BP_OK && !root)
        err = ngram_runs_open(runs, count, counting->folder, work, 0);
    return bp_agree(counting->comm, err);
}

static bp_err check_whole(const ngram_run *runs, int64_t count, const bp_counting *counting)
{
    range *gaps;
    int64_t found = find_gaps(&gaps, runs, count, counting->tokens);

    bp_free(gaps);
    return found == 0 ? BP_OK
                      : BP_FAIL(BP_ERR_IO, "ngram.unseen_counts",
                                "runs of counts that were just written can't be seen: at %s; all "
                                "ranks must see run.dir",
                                counting->folder);
}

bp_err ngram_count_stream(ngram_run **runs, int64_t *count, const bp_counting *counting,
                          const ngram_spec *spec, const char *work)
{
    range *gaps;
    int64_t found;
    bp_err err = open_runs(runs, count, counting, work, true);

    if (err != BP_OK)
        return err;
    if (*count > 0 && bp_comm_is_root(counting->comm))
        bp_log("going on: %" PRId64 " runs of counts are whole", *count);
    found = find_gaps(&gaps, *runs, *count, counting->tokens);
    ngram_runs_free(runs, *count);
    err = bp_agree(counting->comm, count_gaps(counting, spec, work, gaps, found));
    bp_free(gaps);
    if (err == BP_OK)
        err = open_runs(runs, count, counting, work, false);
    if (err == BP_OK)
        err = bp_agree(counting->comm, check_whole(*runs, *count, counting));
    return err;
}
