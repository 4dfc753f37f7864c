/* Probabilities of all n-grams, one order after another: records go from their owners in suffix
 * order to their owners in context order, where words that follow one history are adjacent. They
 * come back with their places and probabilities, which the next order needs. Called by ngram.c
 * after ngram_merge.c. */
#include "models/ngram/ngram_estimate_priv.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "base/sort.h"
#include "mesh/collective.h"
#include "models/ngram/ngram_exchange_priv.h"

#include <string.h>

#define DROPPED (-1) /* the place of an n-gram that is not kept */

/* Data passed from order to order, in suffix order: for the n-grams of the order below. */
typedef struct order_below {
    int64_t *place;
    double *prob;
} order_below;

static void order_below_clear(order_below *below)
{
    bp_free(below->place);
    bp_free(below->prob);
    *below = (order_below){0};
}

typedef struct estimator {
    const bp_counting *counting;
    ngram_spec *spec;
    ngram_counts *counts;
    ngram_levels *out;
    int rank, size;
    int64_t
        *cuts; /* [size + 1] rank r owns the n-grams whose first word is in [cuts[r], cuts[r+1]) */
    double *word_prob; /* [V + 1] */
} estimator;

/* ---- discounts ---- */

static bool starts(const ngram_spec *spec, ngram_key suffix)
{
    return (int64_t)ngram_slot(suffix, spec->bits, 0) - 1 == spec->vocab_size;
}

static int64_t count_at(const estimator *self, int order, int64_t k)
{
    const ngram_suffixes *list = &self->counts->of[order];

    return ngram_count_of(self->spec, order, starts(self->spec, list->key[k]),
                          list->tally[k].is.seen, list->tally[k].is.left);
}

static void fit(estimator *self, int order, const int64_t counts[NGRAM_COUNTS])
{
    char warning[400];

    ngram_rule_fit(&self->spec->rule, order, counts, warning, sizeof warning);
    if (warning[0] && self->rank == 0)
        BP_WARN("ngram.no_discounts", "%s", warning);
}

static void fit_order(estimator *self, int order)
{
    int64_t counts[NGRAM_COUNTS] = {0};

    for (int64_t k = 0; k < self->counts->of[order].count; k++) {
        int64_t count = count_at(self, order, k);

        if (count < NGRAM_COUNTS)
            counts[count]++;
    }
    BP_MPI_WAIT("all_sum", MPI_Allreduce(MPI_IN_PLACE, counts, NGRAM_COUNTS, MPI_INT64_T, MPI_SUM,
                                         self->counting->comm));
    fit(self, order, counts);
}

/* ---- words ---- */

static void estimate_words(estimator *self)
{
    const ngram_spec *spec = self->spec;
    int64_t V = spec->vocab_size, counts[NGRAM_COUNTS] = {0};
    int64_t *count = spec->rule.smoothing == NGRAM_KNESER_NEY && spec->order > 1
                         ? self->counts->word_left
                         : self->counts->word_seen;

    for (int64_t w = 0; w < V; w++)
        if (count[w] > 0 && count[w] < NGRAM_COUNTS)
            counts[count[w]]++;
    fit(self, 1, counts);
    self->word_prob = bp_alloc("ngram.levels", V + 1, sizeof *self->word_prob);
    ngram_smooth_words(&spec->rule, count, self->word_prob);
}

/* Assigns whole words to ranks, by the number of n-grams that begin with them. */
static void cut_words(estimator *self)
{
    const ngram_spec *spec = self->spec;
    int64_t ids = spec->vocab_size + 1, all = 0, sum = 0;
    int64_t *begins = bp_alloc("ngram.levels", ids, sizeof *begins);

    for (int k = 2; k <= spec->order; k++)
        for (int64_t i = 0; i < self->counts->of[k].count; i++)
            begins[ngram_slot(self->counts->of[k].key[i], spec->bits, 0) - 1]++;
    BP_MPI_WAIT("all_sum", MPI_Allreduce(MPI_IN_PLACE, begins, bp_mpi_count(ids), MPI_INT64_T,
                                         MPI_SUM, self->counting->comm));
    for (int64_t w = 0; w < ids; w++)
        all += begins[w] + 1;
    self->cuts = bp_alloc("ngram.levels", self->size + 1, sizeof *self->cuts);
    for (int64_t w = 0, rank = 1; w < ids; w++) {
        sum += begins[w] + 1;
        while (rank < self->size && sum >= all * rank / self->size)
            self->cuts[rank++] = w + 1;
    }
    self->cuts[self->size] = ids;
    bp_free(begins);
}

static int owner_of(const estimator *self, int64_t word)
{
    return (int)bp_stretch_of(self->cuts, self->size, word);
}

static double unseen_history(const ngram_rule *rule)
{
    if (ngram_backs_off(rule->smoothing))
        return 1;
    return rule->smoothing == NGRAM_MLE ? 0 : 1 / (double)rule->outcomes;
}

static bp_err make_level(const estimator *self, int order, int64_t count)
{
    ngram_level *level = &self->out->of[order];
    bool has_followers = order < self->spec->order || order == 1;
    double unseen = unseen_history(&self->spec->rule);

    level->count = count;
    level->prob = bp_try_alloc("ngram.levels", count, sizeof *level->prob);
    level->left = bp_try_alloc("ngram.levels", count, sizeof *level->left);
    level->begin = bp_try_alloc("ngram.levels", count + 1, sizeof *level->begin);
    level->link = bp_try_alloc("ngram.levels", count, sizeof *level->link);
    if (self->spec->entropy > 0)
        level->shorter = bp_try_alloc("ngram.levels", count, sizeof *level->shorter);
    if (!level->prob || !level->left || !level->begin || !level->link ||
        (self->spec->entropy > 0 && !level->shorter))
        return bp_fail_memory("the n-grams' probabilities", count, 5 * sizeof(double));
    for (int64_t k = 0; k < count && has_followers; k++) /* else the pages are never touched */
        level->left[k] = unseen;
    return BP_OK;
}

static bp_err make_words(estimator *self)
{
    ngram_level *level = &self->out->of[1];
    int64_t first = self->cuts[self->rank], end = self->cuts[self->rank + 1];
    bp_err err = make_level(self, 1, end - first);

    level->first = first;
    self->out->total[1] = self->spec->vocab_size + 1;
    if (err == BP_OK && end > first)
        memcpy(level->prob, self->word_prob + first, (size_t)(end - first) * sizeof *level->prob);
    return bp_agree(self->counting->comm, err);
}

/* ---- records to their owners, and replies ---- */

/* N-grams of one order, with their keys in context order beside them: `value` is the place of the
 * tally. A single rank sends nothing: it keeps its own records. */
typedef struct exchange {
    int64_t *counts[2]; /* [size] sent, received; in n-grams */
    int64_t sent, received;
    int64_t *slot; /* [sent] the place of n-gram k among those sent; NULL: k */
    ngram_tally *out, *in;
    ngram_item *out_keys, *keys;
} exchange;

static void exchange_clear(exchange *x)
{
    for (int side = 0; side < 2; side++)
        bp_free(x->counts[side]);
    bp_free(x->slot);
    bp_free(x->out);
    bp_free(x->in);
    bp_free(x->out_keys);
    bp_free(x->keys);
    *x = (exchange){0};
}

static int64_t first_word(const estimator *self, ngram_key suffix)
{
    return (int64_t)ngram_slot(suffix, self->spec->bits, 0) - 1;
}

static bp_err alloc_out(const estimator *self, ngram_suffixes *list, exchange *x)
{
    x->out_keys = bp_try_alloc("ngram.exchange", list->count, sizeof *x->out_keys);
    if (self->size == 1 && list->tally != NULL) { /* in place */
        x->out = list->tally;
        list->tally = NULL;
    } else {
        x->out = bp_try_alloc("ngram.exchange", list->count, sizeof *x->out);
        x->slot = bp_try_alloc("ngram.exchange", list->count, sizeof *x->slot);
    }
    if (!x->out_keys || !x->out || (self->size > 1 && !x->slot))
        return bp_fail_memory("the exchange of n-grams", list->count, sizeof *x->out_keys);
    return BP_OK;
}

/* The records to send of the n-grams of an order, which are used up. */
static bp_err fill_out(estimator *self, int order, const order_below *below, exchange *x)
{
    ngram_suffixes *list = &self->counts->of[order];
    const ngram_tally *tally = list->tally;
    int64_t *next = bp_alloc("ngram.exchange", self->size, sizeof *next);
    bp_err err = alloc_out(self, list, x);

    for (int r = 1; r < self->size; r++)
        next[r] = next[r - 1] + x->counts[0][r - 1];
    for (int64_t k = 0; k < list->count && err == BP_OK; k++) {
        int64_t slot = next[owner_of(self, first_word(self, list->key[k]))]++;
        int64_t shorter = tally[k].is.shorter, seen = tally[k].is.seen;
        int64_t count = ngram_count_of(self->spec, order, starts(self->spec, list->key[k]), seen,
                                       tally[k].is.left);
        ngram_key key = ngram_reverse(list->key[k], self->spec->bits, order);

        if (x->slot)
            x->slot[k] = slot;
        x->out_keys[slot] = (ngram_item){(uint64_t)(key >> 64), (uint64_t)key, slot};
        x->out[slot].reply.count = seen > self->spec->prune[order] ? count : -count;
        x->out[slot].reply.prob = order == 2 ? self->word_prob[shorter] : below->prob[shorter];
        x->out[slot].reply.place = order == 2 ? shorter : below->place[shorter];
    }
    bp_free(next);
    ngram_suffixes_clear(list);
    return err;
}

static bp_err alloc_in(exchange *x)
{
    x->in = bp_try_alloc("ngram.exchange", x->received, sizeof *x->in);
    x->keys = bp_try_alloc("ngram.exchange", x->received, sizeof *x->keys);
    return x->in && x->keys
               ? BP_OK
               : bp_fail_memory("the exchange of n-grams", x->received, sizeof *x->keys);
}

static void send_out(exchange *x, MPI_Comm comm)
{
    ngram_exchange_rows(x->keys, x->counts[1], x->out_keys, x->counts[0], sizeof *x->keys, comm);
    bp_free(x->out_keys);
    x->out_keys = NULL;
    ngram_exchange_rows(x->in, x->counts[1], x->out, x->counts[0], sizeof *x->in, comm);
    for (int64_t k = 0; k < x->received; k++)
        x->keys[k].value = k;
}

static bp_err send_ngrams(estimator *self, int order, order_below *below, exchange *x)
{
    MPI_Comm comm = self->counting->comm;
    const ngram_suffixes *list = &self->counts->of[order];
    bp_err err;

    for (int side = 0; side < 2; side++)
        x->counts[side] = bp_alloc("ngram.exchange", self->size, sizeof *x->counts[side]);
    for (int64_t k = 0; k < list->count; k++)
        x->counts[0][owner_of(self, first_word(self, list->key[k]))]++;
    x->sent = list->count;
    x->received = ngram_exchange_counts(x->counts[1], x->counts[0], comm);
    err = fill_out(self, order, below, x);
    order_below_clear(below);
    if (err == BP_OK && self->size > 1)
        err = alloc_in(x);
    err = bp_agree(comm, err);
    if (err != BP_OK)
        return err;
    bp_fault_point("count.exchange");
    if (self->size > 1) {
        send_out(x, comm);
        return BP_OK;
    }
    x->in = x->out;
    x->keys = x->out_keys;
    x->out = NULL;
    x->out_keys = NULL;
    return BP_OK;
}

/* Sends places and probabilities back, in `out`. */
static void send_replies(estimator *self, exchange *x)
{
    if (self->size == 1) {
        x->out = x->in;
        x->in = NULL;
        return;
    }
    ngram_exchange_rows(x->out, x->counts[0], x->in, x->counts[1], sizeof *x->out,
                        self->counting->comm);
}

/* ---- one order, in context order ---- */

/* Arrays for the words that follow one history. */
typedef struct group {
    int64_t capacity;
    int64_t *count;
    bool *dropped;
    double *shorter, *prob;
} group;

static void group_clear(group *g)
{
    bp_free(g->count);
    bp_free(g->dropped);
    bp_free(g->shorter);
    bp_free(g->prob);
}

static void group_make_capacity(group *g, int64_t words)
{
    if (words <= g->capacity)
        return;
    g->capacity = 2 * words;
    g->count = bp_realloc("ngram.group", g->count, g->capacity, sizeof *g->count);
    g->dropped = bp_realloc("ngram.group", g->dropped, g->capacity, sizeof *g->dropped);
    g->shorter = bp_realloc("ngram.group", g->shorter, g->capacity, sizeof *g->shorter);
    g->prob = bp_realloc("ngram.group", g->prob, g->capacity, sizeof *g->prob);
}

/* The place of a history among this rank's n-grams of the order below, at `from` or after it; that
 * order's count if it was not kept. Both are sorted. */
static int64_t find_history(const estimator *self, int order, ngram_key history, int64_t from)
{
    const ngram_level *level = &self->out->of[order - 1];

    if (order == 2)
        return (int64_t)history - 1 - level->first;
    while (from < level->count && level->key[from] < history)
        from++;
    return from;
}

/* Computes the probabilities of sorted[0 .. words), which have one history, and the history's
 * `left` (ngram_smooth). */
static void smooth(estimator *self, int order, const exchange *x, const ngram_item *sorted,
                   int64_t words, group *g, double *left)
{
    ngram_followers followers = {.order = order, .words = words};
    bool any = false;

    group_make_capacity(g, words);
    for (int64_t k = 0; k < words; k++) {
        const ngram_tally *from = &x->in[sorted[k].value];

        g->count[k] = from->reply.count < 0 ? -from->reply.count : from->reply.count;
        g->dropped[k] = from->reply.count < 0;
        g->shorter[k] = from->reply.prob;
        any = any || g->dropped[k];
    }
    followers.count = g->count;
    followers.dropped = any ? g->dropped : NULL;
    followers.shorter = g->shorter;
    ngram_smooth(&self->spec->rule, &followers, g->prob, left);
}

/* Appends the n-grams that are kept to the level; the reply to each has its place. */
static void keep(estimator *self, int order, exchange *x, const ngram_item *sorted, int64_t words,
                 const group *g)
{
    ngram_level *level = &self->out->of[order];

    for (int64_t k = 0; k < words; k++) {
        ngram_tally *to = &x->in[sorted[k].value];
        int64_t at = level->count, link = to->reply.place;

        to->reply.prob = g->prob[k];
        to->reply.place = g->dropped[k] ? DROPPED : at; /* among this rank's, for now */
        if (g->dropped[k])
            continue;
        level->key[at] = ngram_item_key(&sorted[k]);
        level->prob[at] = g->prob[k];
        if (level->shorter)
            level->shorter[at] = g->shorter[k];
        level->link[at] = link;
        level->count++;
    }
}

static void estimate_order(estimator *self, int order, exchange *x)
{
    const ngram_item *sorted = x->keys;
    ngram_level *level = &self->out->of[order], *histories = &self->out->of[order - 1];
    int64_t history = 0, next = 0;
    group g = {0};

    level->count = 0;
    for (int64_t begin = 0, end; begin < x->received; begin = end) {
        ngram_key key = ngram_item_key(&sorted[begin]) >> self->spec->bits;
        double left;

        for (end = begin + 1; end < x->received; end++)
            if (ngram_item_key(&sorted[end]) >> self->spec->bits != key)
                break;
        smooth(self, order, x, sorted + begin, end - begin, &g, &left);
        history = find_history(self, order, key, history);
        for (; next <= history; next++)
            histories->begin[next] = level->count;
        if (order == 2 || (history < histories->count && histories->key[history] == key))
            histories->left[history] = left;
        keep(self, order, x, sorted + begin, end - begin, &g);
    }
    for (; next <= histories->count; next++)
        histories->begin[next] = level->count;
    group_clear(&g);
}

/* Turns places into places among all ranks, in replies and histories' followers. */
static void number_places(estimator *self, int order, exchange *x)
{
    ngram_level *level = &self->out->of[order], *histories = &self->out->of[order - 1];
    int64_t first = 0;

    BP_MPI_WAIT("scan",
                MPI_Exscan(&level->count, &first, 1, MPI_INT64_T, MPI_SUM, self->counting->comm));
    level->first = self->rank == 0 ? 0 : first;
    self->out->total[order] = bp_all_sum_int(level->count, self->counting->comm);
    for (int64_t k = 0; k < x->received; k++)
        if (x->in[k].reply.place != DROPPED)
            x->in[k].reply.place += level->first;
    for (int64_t k = 0; k <= histories->count; k++)
        histories->begin[k] += level->first;
}

static bp_err sort_keys(const exchange *x, int key_bits)
{
    ngram_item *scratch = bp_try_alloc("ngram.exchange", x->received, sizeof *scratch);

    if (!scratch)
        return bp_fail_memory("the n-grams to sort", x->received, sizeof *scratch);
    ngram_sort(x->keys, scratch, x->received, key_bits);
    bp_free(scratch);
    return BP_OK;
}

static bp_err make_order(estimator *self, int order, exchange *x)
{
    ngram_level *level = &self->out->of[order];
    bp_err err = make_level(self, order, x->received);

    level->key = bp_try_alloc("ngram.levels", x->received, sizeof *level->key);
    if (err == BP_OK && !level->key)
        err = bp_fail_memory("the n-grams", x->received, sizeof *level->key);
    if (err == BP_OK)
        err = sort_keys(x, self->spec->bits * order);
    err = bp_agree(self->counting->comm, err);
    if (err == BP_OK) {
        estimate_order(self, order, x);
        number_places(self, order, x);
    }
    bp_free(x->keys);
    x->keys = NULL;
    return err;
}

/* Keeps the data that the next order needs. */
static bp_err take_replies(const exchange *x, order_below *below)
{
    below->place = bp_try_alloc("ngram.exchange", x->sent, sizeof *below->place);
    below->prob = bp_try_alloc("ngram.exchange", x->sent, sizeof *below->prob);
    if (!below->place || !below->prob)
        return bp_fail_memory("the n-grams' places", x->sent, sizeof *below->prob);
    for (int64_t k = 0; k < x->sent; k++) {
        const ngram_tally *reply = &x->out[x->slot ? x->slot[k] : k];

        below->place[k] = reply->reply.place;
        below->prob[k] = reply->reply.prob;
    }
    return BP_OK;
}

static bp_err pass_order(estimator *self, int order, order_below *below)
{
    exchange x = {0};
    bp_err err =
        bp_agree(self->counting->comm, bp_counting_check_stop(self->counting, "estimating"));

    if (err != BP_OK)
        return err;
    bp_heartbeat_progress();
    self->counting->progress(self->counting->context, "estimating", order, self->spec->order);
    fit_order(self, order);
    err = send_ngrams(self, order, below, &x);
    if (err == BP_OK)
        err = make_order(self, order, &x);
    if (err == BP_OK && order < self->spec->order) {
        send_replies(self, &x);
        err = bp_agree(self->counting->comm, take_replies(&x, below));
    }
    exchange_clear(&x);
    return err;
}

bp_err ngram_estimate(ngram_levels *out, const bp_counting *counting, ngram_spec *spec,
                      ngram_counts *counts)
{
    estimator self = {.counting = counting,
                      .spec = spec,
                      .counts = counts,
                      .out = out,
                      .rank = bp_comm_rank(counting->comm),
                      .size = bp_comm_size(counting->comm)};
    order_below below = {0};
    bp_err err;

    *out = (ngram_levels){0};
    estimate_words(&self);
    cut_words(&self);
    err = make_words(&self);
    for (int k = 2; k <= spec->order && err == BP_OK; k++)
        err = pass_order(&self, k, &below);
    order_below_clear(&below);
    bp_free(self.cuts);
    bp_free(self.word_prob);
    return err;
}

void ngram_levels_clear(ngram_levels *levels)
{
    for (int k = 0; k < NGRAM_ORDERS; k++) {
        ngram_level *level = &levels->of[k];

        bp_free(level->key);
        bp_free(level->prob);
        bp_free(level->left);
        bp_free(level->shorter);
        bp_free(level->begin);
        bp_free(level->link);
    }
    *levels = (ngram_levels){0};
}
