/* Where a step's time goes: a table, and RUN/profile.json. */
#include "train/tracing_priv.h"

#include "base/fs.h"
#include "base/log.h"

#include <string.h>

/* Validation and checkpoints are no part of a step. */
static bool is_apart(int kind)
{
    return kind >= BP_TRACE_CHECKPOINT;
}

/* Its own time is counted as another's. */
static bool is_nested(int kind)
{
    return kind == BP_TRACE_STEP || kind == BP_TRACE_PASS_FORWARD || kind == BP_TRACE_PASS_BACKWARD;
}

static double seconds_of(const rank_trace *rank, int kind)
{
    return 1e-9 * (double)rank->work[kind].nanoseconds;
}

static double step_seconds(const rank_trace *rank)
{
    double seconds = 1e-9 * (double)rank->nanoseconds;

    for (int kind = 0; kind < BP_TRACE_KINDS; kind++)
        seconds -= is_apart(kind) ? seconds_of(rank, kind) : 0;
    return seconds;
}

/* ---- the table ---- */

/* "210.5 GFLOP/s 81 %", "9.1 GB/s 74 %", or blanks. */
static void say_speed(char *out, size_t bytes, const rank_trace *rank, int kind)
{
    const bp_trace_count *work = &rank->work[kind];
    bool computes = work->flops > 0;
    /* What travels between ranks has no ceiling here. */
    bool local = kind < BP_TRACE_REDUCE;
    double rate = computes ? work->flops : work->bytes, seconds = seconds_of(rank, kind);
    double ceiling = computes ? rank->silicon : local ? rank->bandwidth : 0;
    char share[16] = "";

    if (rate <= 0 || seconds <= 0 || is_apart(kind)) {
        snprintf(out, bytes, "%21s", "");
        return;
    }
    rate /= seconds;
    if (ceiling > 0)
        snprintf(share, sizeof share, "%.0f %%", 100 * rate / ceiling);
    snprintf(out, bytes, "%8.1f %-7s %5s", rate / 1e9, computes ? "GFLOP/s" : "GB/s", share);
}

/* The fastest and the slowest of the ranks that compute. */
static void say_spread(char *out, size_t bytes, const rank_trace *ranks, int size, int kind)
{
    int fast = -1, slow = -1, computing = 0;

    for (int r = 0; r < size; r++) {
        if (!ranks[r].computes)
            continue;
        computing++;
        if (fast < 0 || ranks[r].work[kind].nanoseconds < ranks[fast].work[kind].nanoseconds)
            fast = r;
        if (slow < 0 || ranks[r].work[kind].nanoseconds > ranks[slow].work[kind].nanoseconds)
            slow = r;
    }
    out[0] = '\0';
    if (computing > 1)
        snprintf(out, bytes, " %10.3f (%d) %10.3f (%d)", seconds_of(&ranks[fast], kind), fast,
                 seconds_of(&ranks[slow], kind), slow);
}

static void print_row(const rank_trace *own, const rank_trace *ranks, int size, int kind)
{
    char speed[64], spread[96], share[16] = "";

    say_speed(speed, sizeof speed, own, kind);
    say_spread(spread, sizeof spread, ranks, size, kind);
    if (!is_apart(kind))
        snprintf(share, sizeof share, "%.1f %%", 100 * seconds_of(own, kind) / step_seconds(own));
    bp_log("  %-26s %9lld %10.3f %8s %s%s", bp_trace_name((bp_trace_kind)kind),
           (long long)own->work[kind].calls, seconds_of(own, kind), share, speed, spread);
}

static void print_table(const rank_trace *own, const rank_trace *ranks, int size)
{
    bool several = size > 1 + !ranks[0].computes;

    bp_log("profile of steps %lld to %lld, rank %d: %.3f ms a step; ceilings %.1f GFLOP/s and "
           "%.1f GB/s",
           (long long)own->first_step, (long long)(own->first_step + own->steps - 1),
           (int)(own - ranks), 1e3 * step_seconds(own) / (double)own->steps, own->silicon / 1e9,
           own->bandwidth / 1e9);
    bp_log("  %-26s %9s %10s %8s %21s%s", "work", "calls", "seconds", "of steps",
           "speed, of the ceiling", several ? "     fastest (rank) slowest (rank)" : "");
    for (int kind = BP_TRACE_PRODUCT_FORWARD; kind < BP_TRACE_KINDS; kind++)
        print_row(own, ranks, size, kind);
    print_row(own, ranks, size, BP_TRACE_OTHER);
    bp_log("  waiting for input: %.2f %% of the steps' time",
           100 * seconds_of(own, BP_TRACE_INPUT) / step_seconds(own));
}

/* ---- the file ---- */

/* "products, input gradient" as a key: products_input_gradient */
static void key_of(char *out, int kind)
{
    for (const char *name = bp_trace_name((bp_trace_kind)kind); *name != '\0'; name++)
        if (*name != ',')
            *out++ = *name == ' ' ? '_' : *name;
    *out = '\0';
}

static json_t *work_of(const rank_trace *rank)
{
    json_t *work = json_object();

    for (int kind = 0; kind < BP_TRACE_KINDS; kind++) {
        const bp_trace_count *count = &rank->work[kind];
        char key[64];

        if (is_nested(kind))
            continue;
        key_of(key, kind);
        json_object_set_new(work, key,
                            json_pack("{s:I, s:f, s:f, s:f}", "calls", (json_int_t)count->calls,
                                      "seconds", seconds_of(rank, kind), "flops", count->flops,
                                      "bytes", count->bytes));
    }
    return work;
}

static json_t *rank_json(const rank_trace *rank, int number)
{
    return json_pack("{s:i, s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:o, s:{s:f, s:f}}", "rank", number,
                     "host", rank->host, "pipeline", rank->pipeline_at, "data", rank->data_at,
                     "tensor", rank->tensor_at, "seconds", 1e-9 * (double)rank->nanoseconds,
                     "silicon_flops", rank->silicon, "memory_bytes", rank->bandwidth, "work",
                     work_of(rank), "beside", "input", rank->reader_seconds, "checkpoint",
                     rank->writer_seconds);
}

static bp_err save(const trainer *self, const rank_trace *own, const rank_trace *ranks)
{
    char *path = bp_path_join(bp_config_string(self->config, "run.dir"), "profile.json");
    json_t *list = json_array();
    json_t *root = json_pack("{s:i, s:I, s:I, s:f, s:f, s:o}", "format_version", 1, "first_step",
                             (json_int_t)own->first_step, "steps", (json_int_t)own->steps,
                             "step_seconds", step_seconds(own) / (double)own->steps, "input_wait",
                             seconds_of(own, BP_TRACE_INPUT) / step_seconds(own), "ranks", list);

    BP_NEED_MEMORY(path && root);
    for (int r = 0; r < self->mesh->size; r++)
        if (ranks[r].computes)
            json_array_append_new(list, rank_json(&ranks[r], r));
    bp_err err = bp_json_save(path, root);
    json_decref(root);
    bp_free(path);
    return err;
}

bp_err profile_report(const trainer *self, const rank_trace *ranks)
{
    const rank_trace *own = ranks[0].computes ? &ranks[0] : &ranks[1];

    if (own->steps <= 0 || !bp_run_still_owner(self->run))
        return BP_OK;
    print_table(own, ranks, self->mesh->size);
    return save(self, own, ranks);
}
