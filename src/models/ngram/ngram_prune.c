/* Pruning by entropy: an n-gram is removed if the model hardly changes without it. Called by
 * ngram.c after ngram_estimate.c.
 *
 * From the longest n-grams to pairs of words, each n-gram of a history is tested by the cost of
 * its own removal. An n-gram that a longer one begins or ends with stays while the longer one
 * stays: it is the longer one's history or suffix. So no kept probability depends on another
 * decision, and only the back-off weights are recomputed. */
#include "models/ngram/ngram_prune_priv.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "base/sort.h"
#include "mesh/collective.h"
#include "models/ngram/ngram_exchange_priv.h"

#include <math.h>
#include <string.h>

typedef struct pruner {
    const bp_counting *counting;
    const ngram_spec *spec;
    ngram_levels *levels;
    int rank, size;
    int64_t *firsts[NGRAM_ORDERS]; /* [size + 1] the ranks' first places of an order */
    double *joint[NGRAM_ORDERS];   /* [count] probability of all words of an n-gram */
    uint8_t *needed[NGRAM_ORDERS]; /* [count] a longer one that is kept begins or ends with it */
    int64_t *place[NGRAM_ORDERS];  /* [count] among those that are kept, of all ranks; GONE */
} pruner;

#define GONE (-1)

/* Followers of history i of an order among this rank's n-grams of the next: [*begin, *end). */
static void followers_of(const pruner *self, int order, int64_t i, int64_t *begin, int64_t *end)
{
    const ngram_level *level = &self->levels->of[order];

    *begin = level->begin[i] - self->levels->of[order + 1].first;
    *end = level->begin[i + 1] - self->levels->of[order + 1].first;
}

/* ---- the cost of removing an n-gram ---- */

/* <s> is where a document begins, as often as </s> where one ends. */
static double start_probability(const pruner *self)
{
    const ngram_level *words = &self->levels->of[1];
    int64_t at = self->spec->eod_id - words->first;
    double own = at >= 0 && at < words->count ? words->prob[at] : 0;

    bp_all_sum_double(&own, 1, self->counting->comm);
    return own;
}

static bp_err make_joint(pruner *self)
{
    const ngram_level *words = &self->levels->of[1];
    double start = start_probability(self);
    bp_err err = BP_OK;

    for (int k = 1; k <= self->spec->order; k++) {
        int64_t count = self->levels->of[k].count;

        self->joint[k] = bp_try_alloc("ngram.prune", count, sizeof(double));
        self->needed[k] = bp_try_alloc("ngram.prune", count, 1);
        self->place[k] = bp_try_alloc("ngram.prune", count, sizeof(int64_t));
        if (err == BP_OK && (!self->joint[k] || !self->needed[k] || !self->place[k]))
            err = bp_fail_memory("n-grams that are pruned", count, 17);
    }
    for (int64_t w = 0; w < words->count && err == BP_OK; w++)
        self->joint[1][w] = words->first + w == self->spec->vocab_size ? start : words->prob[w];
    for (int k = 1; k < self->spec->order && err == BP_OK; k++)
        for (int64_t i = 0, begin, end; i < self->levels->of[k].count; i++) {
            followers_of(self, k, i, &begin, &end);
            for (int64_t c = begin; c < end; c++)
                self->joint[k + 1][c] = self->joint[k][i] * self->levels->of[k + 1].prob[c];
        }
    return bp_agree(self->counting->comm, err);
}

/* The mass that the followers of a history leave, and that which they leave of the shorter
 * history's. */
typedef struct rest {
    double mass, shorter;
} rest;

static rest rest_of(const ngram_level *level, const int64_t *place, int64_t begin, int64_t end)
{
    rest out = {1, 1};

    for (int64_t c = begin; c < end; c++)
        if (!place || place[c] != GONE) {
            out.mass -= level->prob[c];
            out.shorter -= level->shorter[c];
        }
    out.mass = out.mass > 0 ? out.mass : 0; /* below it is rounding */
    return out;
}

/* The relative increase of the model's perplexity without n-gram c of a history: Stolcke's exp(D(p
 * || p')) - 1. */
static double loss_without(const ngram_level *level, int64_t c, rest left, double weight,
                           double history)
{
    double p = level->prob[c], q = level->shorter[c];
    double other = (left.mass + p) / (left.shorter + q);
    double change = p * (log(q) + log(other) - log(p));

    if (left.mass > 0 && weight > 0)
        change += left.mass * (log(other) - log(weight));
    return expm1(-history * change);
}

/* place[order][c]: 0 or GONE, for now. */
static void choose_entries(pruner *self, int order)
{
    const ngram_level *histories = &self->levels->of[order - 1], *level = &self->levels->of[order];

    for (int64_t i = 0, begin, end; i < histories->count; i++) {
        followers_of(self, order - 1, i, &begin, &end);
        rest left = rest_of(level, NULL, begin, end);

        if (i % ((int64_t)1 << 20) == 0)
            bp_heartbeat_progress();
        for (int64_t c = begin; c < end; c++) {
            if (!self->needed[order][c] &&
                loss_without(level, c, left, histories->left[i], self->joint[order - 1][i]) <
                    self->spec->entropy)
                self->place[order][c] = GONE;
            else
                self->needed[order - 1][i] = 1;
        }
    }
}

/* ---- suffixes, which other ranks may own ---- */

typedef struct links {
    int64_t *counts[2]; /* [size] sent, received */
    int64_t *slot;      /* [count] where the link of n-gram c is sent; GONE if it is not sent */
    int64_t *out, *in;
    int64_t sent, received;
} links;

static void links_clear(links *x)
{
    bp_free(x->counts[0]);
    bp_free(x->counts[1]);
    bp_free(x->slot);
    bp_free(x->out);
    bp_free(x->in);
    *x = (links){0};
}

static int owner_of(const pruner *self, int order, int64_t place)
{
    return (int)bp_stretch_of(self->firsts[order], self->size, place);
}

/* Slots of the n-grams that are kept, in the order of their owners. */
static bp_err fill_links(const pruner *self, int order, links *x)
{
    const ngram_level *level = &self->levels->of[order];
    int64_t *next = bp_alloc("ngram.prune", self->size + 1, sizeof *next);

    for (int64_t c = 0; c < level->count; c++)
        if (self->place[order][c] != GONE)
            x->counts[0][owner_of(self, order - 1, level->link[c])]++;
    for (int r = 0; r < self->size; r++)
        next[r + 1] = next[r] + x->counts[0][r];
    x->sent = next[self->size];
    x->slot = bp_try_alloc("ngram.prune", level->count, sizeof *x->slot);
    x->out = bp_try_alloc("ngram.prune", x->sent, sizeof *x->out);
    for (int64_t c = 0; c < level->count && x->slot && x->out; c++) {
        x->slot[c] = GONE;
        if (self->place[order][c] == GONE)
            continue;
        x->slot[c] = next[owner_of(self, order - 1, level->link[c])]++;
        x->out[x->slot[c]] = level->link[c];
    }
    bp_free(next);
    return x->slot && x->out
               ? BP_OK
               : bp_fail_memory("n-grams that are pruned", level->count, 2 * sizeof *x->out);
}

/* Sends the owners of suffixes the places asked for: x->in, as their own places. */
static bp_err send_links(const pruner *self, int order, links *x)
{
    MPI_Comm comm = self->counting->comm;
    bp_err err;

    x->counts[0] = bp_alloc("ngram.prune", self->size, sizeof *x->counts[0]);
    x->counts[1] = bp_alloc("ngram.prune", self->size, sizeof *x->counts[1]);
    err = fill_links(self, order, x);
    x->received = ngram_exchange_counts(x->counts[1], x->counts[0], comm);
    x->in = bp_try_alloc("ngram.prune", x->received, sizeof *x->in);
    if (err == BP_OK && !x->in)
        err = bp_fail_memory("n-grams that are pruned", x->received, sizeof *x->in);
    err = bp_agree(comm, err);
    if (err != BP_OK)
        return err;
    ngram_exchange_rows(x->in, x->counts[1], x->out, x->counts[0], sizeof *x->out, comm);
    for (int64_t k = 0; k < x->received; k++)
        x->in[k] -= self->levels->of[order - 1].first;
    return BP_OK;
}

static bp_err mark_suffixes(pruner *self, int order)
{
    links x = {0};
    bp_err err = send_links(self, order, &x);

    for (int64_t k = 0; k < x.received && err == BP_OK; k++)
        self->needed[order - 1][x.in[k]] = 1;
    links_clear(&x);
    return err;
}

/* Updates links to the new places of suffixes. */
static bp_err renew_links(pruner *self, int order)
{
    ngram_level *level = &self->levels->of[order];
    links x = {0};
    bp_err err = send_links(self, order, &x);

    for (int64_t k = 0; k < x.received && err == BP_OK; k++)
        x.in[k] = self->place[order - 1][x.in[k]];
    if (err == BP_OK)
        ngram_exchange_rows(x.out, x.counts[0], x.in, x.counts[1], sizeof *x.out,
                            self->counting->comm);
    for (int64_t c = 0; c < level->count && err == BP_OK; c++)
        if (x.slot[c] != GONE)
            level->link[c] = x.out[x.slot[c]];
    links_clear(&x);
    return err;
}

/* ---- the remaining n-grams ---- */

/* Back-off weights of histories that lost a follower. */
static void renew_weights(pruner *self, int order)
{
    ngram_level *histories = &self->levels->of[order - 1];

    for (int64_t i = 0, begin, end; i < histories->count; i++) {
        bool lost = false;

        followers_of(self, order - 1, i, &begin, &end);
        for (int64_t c = begin; c < end; c++)
            lost = lost || self->place[order][c] == GONE;
        if (lost) {
            rest left = rest_of(&self->levels->of[order], self->place[order], begin, end);

            histories->left[i] = left.mass / left.shorter;
        }
    }
}

/* Places, among all ranks, of the n-grams that are kept; returns the rank's first one. */
static int64_t number_places(pruner *self, int order, int64_t *kept)
{
    int64_t first = 0;

    *kept = 0;
    for (int64_t c = 0; c < self->levels->of[order].count; c++)
        *kept += self->place[order][c] != GONE;
    BP_MPI_WAIT("scan", MPI_Exscan(kept, &first, 1, MPI_INT64_T, MPI_SUM, self->counting->comm));
    first = self->rank == 0 ? 0 : first;
    for (int64_t c = 0, at = first; c < self->levels->of[order].count; c++)
        if (self->place[order][c] != GONE)
            self->place[order][c] = at++;
    return first;
}

/* Where the followers of each history begin now; `first` and `kept` are of their order. */
static void renew_begins(pruner *self, int order, int64_t first, int64_t kept)
{
    ngram_level *histories = &self->levels->of[order - 1];
    int64_t next = first + kept, c = self->levels->of[order].count;

    for (int64_t i = histories->count; i >= 0; i--) {
        int64_t begin = histories->begin[i] - self->levels->of[order].first;

        for (; c > begin; c--)
            if (self->place[order][c - 1] != GONE)
                next = self->place[order][c - 1];
        histories->begin[i] = next;
    }
}

/* Compacts the n-grams that are kept. */
static void close_up(pruner *self, int order, int64_t first, int64_t kept)
{
    ngram_level *level = &self->levels->of[order];
    int64_t at = 0;

    for (int64_t c = 0; c < level->count; c++) {
        if (self->place[order][c] == GONE)
            continue;
        level->key[at] = level->key[c];
        level->prob[at] = level->prob[c];
        level->left[at] = level->left[c];
        level->shorter[at] = level->shorter[c];
        level->link[at] = level->link[c];
        level->begin[at] = level->begin[c];
        at++;
    }
    level->begin[kept] = level->begin[level->count];
    level->count = kept;
    level->first = first;
    self->levels->total[order] = bp_all_sum_int(kept, self->counting->comm);
}

static bp_err decide(pruner *self)
{
    bp_err err = BP_OK;

    for (int k = self->spec->order; k >= 2 && err == BP_OK; k--) {
        err = bp_agree(self->counting->comm, bp_counting_check_stop(self->counting, "pruning"));
        if (err != BP_OK)
            break;
        bp_heartbeat_progress();
        self->counting->progress(self->counting->context, "pruning", self->spec->order - k + 1,
                                 self->spec->order);
        choose_entries(self, k);
        if (k > 2)
            err = mark_suffixes(self, k);
    }
    return err;
}

/* Links are updated while the old places are valid, then everything else. */
static bp_err carry_out(pruner *self)
{
    int64_t first[NGRAM_ORDERS], kept[NGRAM_ORDERS];
    bp_err err = BP_OK;

    for (int k = 2; k <= self->spec->order; k++) {
        renew_weights(self, k);
        first[k] = number_places(self, k, &kept[k]);
    }
    for (int k = 3; k <= self->spec->order && err == BP_OK; k++)
        err = renew_links(self, k);
    for (int k = 2; k <= self->spec->order && err == BP_OK; k++) {
        bp_heartbeat_progress();
        renew_begins(self, k, first[k], kept[k]);
    }
    for (int k = 2; k <= self->spec->order && err == BP_OK; k++) {
        bp_heartbeat_progress();
        close_up(self, k, first[k], kept[k]);
    }
    return err;
}

bp_err ngram_prune(ngram_levels *levels, const bp_counting *counting, const ngram_spec *spec)
{
    pruner self = {.counting = counting,
                   .spec = spec,
                   .levels = levels,
                   .rank = bp_comm_rank(counting->comm),
                   .size = bp_comm_size(counting->comm)};
    bp_err err;

    for (int k = 1; k <= spec->order; k++) {
        self.firsts[k] = bp_alloc("ngram.prune", self.size, sizeof *self.firsts[k]);
        BP_MPI_WAIT("all_gather", MPI_Allgather(&levels->of[k].first, 1, MPI_INT64_T,
                                                self.firsts[k], 1, MPI_INT64_T, counting->comm));
    }
    err = make_joint(&self);
    if (err == BP_OK)
        err = decide(&self);
    if (err == BP_OK)
        err = carry_out(&self);
    for (int k = 1; k <= spec->order; k++) {
        bp_free(self.firsts[k]);
        bp_free(self.joint[k]);
        bp_free(self.needed[k]);
        bp_free(self.place[k]);
    }
    return err;
}
