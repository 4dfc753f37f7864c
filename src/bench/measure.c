/* Repeating, timing, and combining the ranks' figures. */
#include "bench/bench_priv.h"

#include "base/config/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "base/process/signals.h"
#include "base/sort.h"
#include "mesh/collective.h"
#include "run/stop_request.h"
#include "statistics/resample.h"

#define REPEATS_MOST  2000 /* of which quantiles are taken */
#define REPEATS_LEAST 3
#define WARM_MOST     3
#define TOO_LONG      10.0 /* most time of the fewest repeats, in bench.seconds */

bp_spread bp_spread_of(double *values, int64_t n)
{
    if (n <= 0)
        return (bp_spread){0};
    bp_sort_reals(values, n);
    return (bp_spread){.median = bp_quantile(values, n, 0.5),
                       .low = bp_quantile(values, n, 0.1),
                       .high = bp_quantile(values, n, 0.9),
                       .repeats = n};
}

bp_spread bp_spread_rate(const bp_spread *seconds, double amount)
{
    if (seconds->repeats == 0)
        return (bp_spread){0};
    return (bp_spread){.median = amount / seconds->median,
                       .low = amount / seconds->high,
                       .high = amount / seconds->low,
                       .repeats = seconds->repeats};
}

bp_err bench_next(bench *self, const char *what)
{
    const bp_mesh *mesh = self->mesh;

    if (bp_all_max_int(bp_signals_stop_asked(), mesh->world) != 0)
        return bp_stop_request_stopped("before %s was measured", what);
    if (mesh->coordinates)
        bp_log_progress("measuring %s", what);
    return BP_OK;
}

static double time_once(const bench_task *task)
{
    double start = bp_clock_now();

    task->run(task->context);
    bp_heartbeat_progress();
    return bp_clock_now() - start;
}

/* The number of repeats of work that takes `each` seconds. */
static int64_t repeats_of(double each, double seconds)
{
    double fit = seconds / (each > 1e-9 ? each : 1e-9);

    if (fit >= REPEATS_MOST)
        return REPEATS_MOST;
    if (fit >= REPEATS_LEAST)
        return (int64_t)fit;
    fit *= TOO_LONG; /* long work: as often as needed, if that can be */
    return fit >= REPEATS_LEAST ? REPEATS_LEAST : fit >= 2 ? 2 : 1;
}

bp_spread bench_repeat(const bench_task *task, double seconds)
{
    double took[REPEATS_MOST], each = time_once(task), end = bp_clock_now() + seconds;
    int64_t n = 0, least = repeats_of(each, seconds);

    least = least < REPEATS_LEAST ? least : REPEATS_LEAST;
    while (n < REPEATS_MOST && (n < least || bp_clock_now() < end))
        took[n++] = time_once(task);
    return bp_spread_of(took, n);
}

static void barrier(MPI_Comm comm)
{
    BP_MPI_WAIT("barrier", MPI_Barrier(comm));
}

/* Seconds of one run when it is warm, equal on all ranks. */
static double warm_up(const bench_task *task, double seconds, MPI_Comm comm)
{
    double spent = 0, each = 0;

    for (int k = 0; k < WARM_MOST && spent <= seconds / 4; k++) {
        each = 1e-9 * (double)bp_all_max_int((int64_t)(1e9 * time_once(task)), comm);
        spent += each;
    }
    return each;
}

bp_spread bench_together(const bench_task *task, double seconds, bool aligned, MPI_Comm comm)
{
    double took[REPEATS_MOST];
    int64_t n = repeats_of(warm_up(task, seconds, comm), seconds);

    for (int64_t k = 0; k < n; k++) {
        if (aligned)
            barrier(comm);
        took[k] = time_once(task);
    }
    return bp_spread_of(took, n);
}

/* ---- of all ranks ---- */

json_t *bench_spread_json(const bp_spread *spread)
{
    if (spread->repeats == 0)
        return json_null();
    return json_pack("{s:o, s:o, s:o, s:I}", "median", bp_json_real(spread->median), "low",
                     bp_json_real(spread->low), "high", bp_json_real(spread->high), "repeats",
                     (json_int_t)spread->repeats);
}

void bench_put(json_t *object, const char *key, json_t *value)
{
    if (object)
        BP_CHECK(json_object_set_new(object, key, value) == 0);
    else
        json_decref(value);
}

static json_t *rank_json(const bench *self, const bp_spread *ranks, int rank)
{
    return json_pack("{s:i, s:s, s:o}", "rank", rank, "host", self->hosts[rank], "median",
                     bp_json_real(ranks[rank].median));
}

static json_t *figure_json(const bench *self, const bp_spread *ranks, const bp_spread *sum,
                           const char *unit)
{
    json_t *figure = bench_spread_json(sum), *each = json_array();
    int slowest = -1, fastest = -1;

    for (int r = 0; r < self->mesh->size; r++) {
        if (ranks[r].repeats == 0)
            continue;
        (void)json_array_append_new(each, bp_json_real(ranks[r].median));
        if (slowest < 0 || ranks[r].median < ranks[slowest].median)
            slowest = r;
        if (fastest < 0 || ranks[r].median > ranks[fastest].median)
            fastest = r;
    }
    if (json_is_null(figure)) {
        json_decref(each);
        return figure;
    }
    bench_put(figure, "unit", bp_json_string(unit));
    bench_put(figure, "ranks", each);
    bench_put(figure, "slowest", rank_json(self, ranks, slowest));
    bench_put(figure, "fastest", rank_json(self, ranks, fastest));
    bench_put(figure, "one", json_null());
    return figure;
}

json_t *bench_gather(const bench *self, const bp_spread *rate, const char *unit, bp_spread *total)
{
    const bp_mesh *mesh = self->mesh;
    bp_spread sum = {0}, *ranks = bp_alloc("bench.ranks", mesh->size, sizeof *ranks);
    json_t *figure = NULL;
    BP_MPI_WAIT("all_gather", MPI_Allgather(rate, sizeof *rate, MPI_BYTE, ranks, sizeof *rate,
                                            MPI_BYTE, mesh->world));
    for (int r = 0; r < mesh->size; r++) {
        sum.median += ranks[r].median;
        sum.low += ranks[r].low;
        sum.high += ranks[r].high;
        if (ranks[r].repeats > 0 && (sum.repeats == 0 || ranks[r].repeats < sum.repeats))
            sum.repeats = ranks[r].repeats;
    }
    if (total)
        *total = sum;
    if (mesh->coordinates)
        figure = figure_json(self, ranks, &sum, unit);
    bp_free(ranks);
    return figure;
}

bp_spread bench_task_meter(void *task, double seconds)
{
    const bench_task *one = task;
    bp_spread took = bench_repeat(one, seconds);

    return bp_spread_rate(&took, one->amount);
}

json_t *bench_everywhere(const bench *self, bench_meter meter, void *context, const char *unit,
                         bp_spread *total)
{
    const bp_mesh *mesh = self->mesh;
    int first = mesh->dedicated ? 1 : 0, ranks = mesh->size - first;
    bp_spread rate = {0}, one = {0};
    json_t *figure;

    if (mesh->computes) {
        barrier(mesh->compute);
        rate = meter(context, self->seconds);
    }
    figure = bench_gather(self, &rate, unit, total);
    if (ranks == 1)
        return figure;
    if (mesh->rank == first)
        one = meter(context, self->seconds / 2);
    bp_barrier_asleep("bench.alone", mesh->world);
    bp_bcast_bytes(&one, sizeof one, first, mesh->world);
    if (json_is_object(figure))
        bench_put(figure, "one", bench_spread_json(&one));
    return figure;
}
