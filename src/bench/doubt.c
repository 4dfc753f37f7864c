/* Which figures of a result are not to be trusted: their repeats or their ranks lie far apart. */
#include "base/buffer.h"
#include "base/mem.h"
#include "bench/bench_priv.h"

#include <string.h>

#define SPREAD_MOST 0.2 /* to both sides, of a figure's repeats */
#define RANK_LEAST  0.7 /* of the median rank's speed */
#define NAMED_MOST  4   /* figures that the advice names */
#define NAME_BYTES  64

static const json_t *get(const json_t *object, const char *key)
{
    return json_object_get(object, key);
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(get(object, key));
}

/* The slowest rank's speed, of the median rank's; 1 where ranks are not told apart. */
static double slowest_share(const json_t *figure)
{
    const json_t *ranks = get(figure, "ranks"), *rank;
    int64_t n = (int64_t)json_array_size(ranks);
    double *rates = n > 1 ? bp_alloc("bench.ranks", n, sizeof *rates) : NULL, share = 1;
    size_t k;

    if (!rates)
        return 1;
    json_array_foreach(ranks, k, rank) rates[k] = json_number_value(rank);
    bp_spread spread = bp_spread_of(rates, n);
    if (spread.median > 0)
        share = rates[0] / spread.median; /* they are sorted */
    bp_free(rates);
    return share;
}

bool bench_doubts(const json_t *figure, char *why, size_t room)
{
    double median = number(figure, "median"), share = slowest_share(figure);
    double half = (number(figure, "high") - number(figure, "low")) / 2;

    why[0] = '\0';
    if (number(figure, "repeats") > 1 && half > SPREAD_MOST * median)
        (void)snprintf(why, room, "+- %.0f %%", 100 * half / median);
    else if (share < RANK_LEAST)
        (void)snprintf(why, room, "rank %d at %.2f of the median rank",
                       (int)number(get(figure, "slowest"), "rank"), share);
    return why[0] != '\0';
}

/* ---- all figures of a result ---- */

typedef struct doubts {
    bp_buffer names;
    int count;
} doubts;

static void look_at(doubts *self, const char *name, const json_t *figure)
{
    char why[64];

    if (!bench_doubts(figure, why, sizeof why))
        return;
    if (self->count < NAMED_MOST)
        bp_buffer_printf(&self->names, "%s%s: %s", self->count > 0 ? "; " : "", name, why);
    self->count++;
}

static void look_at_products(doubts *self, const json_t *result, const char *precision)
{
    const json_t *products = get(get(result, "products"), precision);
    char name[NAME_BYTES];

    (void)snprintf(name, sizeof name, "the peak in %s", precision);
    look_at(self, name, get(get(result, "silicon"), precision));
    (void)snprintf(name, sizeof name, "one large product in %s", precision);
    look_at(self, name, get(get(result, "gemm"), precision));
    for (size_t k = 0; k < BENCH_FORM_ROWS; k++) {
        (void)snprintf(name, sizeof name, "%s in %s", bench_forms[k][1], precision);
        look_at(self, name, get(products, bench_forms[k][0]));
    }
}

static void look_at_messages(doubts *self, const json_t *rows, const char *kind)
{
    size_t k;
    const json_t *row;

    json_array_foreach(rows, k, row)
    {
        char name[NAME_BYTES];

        (void)snprintf(name, sizeof name, "%s of %.0f bytes", kind, number(row, "bytes"));
        look_at(self, name, get(row, "seconds"));
    }
}

static void look_at_models(doubts *self, const json_t *models)
{
    size_t k;
    const json_t *model;

    json_array_foreach(models, k, model)
    {
        const char *which = json_string_value(get(model, "name"));
        char name[NAME_BYTES];

        (void)snprintf(name, sizeof name, "training of %s", which ? which : "?");
        look_at(self, name, get(model, "train"));
        (void)snprintf(name, sizeof name, "scoring with %s", which ? which : "?");
        look_at(self, name, get(model, "score"));
    }
}

static void look_at_all(doubts *self, const json_t *result)
{
    const json_t *memory = get(result, "memory"), *exchange = get(result, "exchange");

    look_at_products(self, result, "f32");
    look_at_products(self, result, "bf16");
    look_at(self, "copy", get(memory, "copy"));
    look_at(self, "triad", get(memory, "triad"));
    look_at(self, "reading a corpus", get(get(result, "corpus"), "read"));
    look_at(self, "tokenizing", get(get(result, "tokenizer"), "encode"));
    look_at_messages(self, get(exchange, "all_sum"), "all-reduce");
    look_at_messages(self, get(exchange, "shards"), "scatter and gather");
    look_at_messages(self, get(exchange, "send_host"), "send on a host");
    look_at_messages(self, get(exchange, "send_across"), "send across hosts");
    look_at_models(self, get(result, "models"));
}

void bench_judge_doubts(json_t *lines, const json_t *result)
{
    doubts self = {0};
    char more[32] = "", *text, *line;

    look_at_all(&self, result);
    if (self.count > NAMED_MOST)
        (void)snprintf(more, sizeof more, "; and %d more", self.count - NAMED_MOST);
    text = bp_buffer_take(&self.names);
    if (self.count > 0) {
        line = bp_sprintf("%d figure%s marked '?' %s not to be trusted (%s%s): something else used "
                          "these processors or links meanwhile; look what it is (bagpipe doctor), "
                          "and measure again, for longer (bench.seconds)",
                          self.count, self.count > 1 ? "s" : "", self.count > 1 ? "are" : "is",
                          text, more);
        (void)json_array_append_new(lines, json_string(line));
        bp_free(line);
    }
    bp_free(text);
}
