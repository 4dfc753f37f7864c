/* The profile of a step's time: a table, and RUN/profile.json. Called by trace.c at the end. */
#include "train/parts/trace_priv.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"

#include <string.h>

#define CELL_BYTES 32
#define RANK_WIDTH 16 /* of a column that only several ranks have */

/* Validation and checkpoints are not part of a step. */
static bool is_apart(int kind)
{
    return kind >= BP_TRACE_CHECKPOINT;
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

/* ---- total time by kind of work ---- */

enum { COMPUTING, RANKS, INPUT, APART, REST, PARTS };

static const struct {
    const char *key, *text;
} PART_NAMES[PARTS] = {{"computing", "computing"},
                       {"ranks", "waiting for other ranks"},
                       {"input", "waiting for input"},
                       {"apart", "checkpoints and validation"},
                       {"other", "other"}};

static int part_of(int kind)
{
    if (is_apart(kind))
        return APART;
    if (kind == BP_TRACE_INPUT)
        return INPUT;
    if (kind >= BP_TRACE_REDUCE)
        return RANKS;
    return kind >= BP_TRACE_PRODUCT_FORWARD ? COMPUTING : REST;
}

/* Shares of all that was profiled: they add up to 1. */
static void find_shares(double shares[PARTS], const rank_trace *rank)
{
    memset(shares, 0, PARTS * sizeof *shares);
    for (int kind = 0; kind < BP_TRACE_KINDS; kind++)
        shares[part_of(kind)] += seconds_of(rank, kind) / (1e-9 * (double)rank->nanoseconds);
}

/* ---- the table ---- */

/* Speed "210.5 GFLOP/s" and its share of the ceiling "81 %", or "". *above: a share exceeds 100
 * %. */
static void say_speed(char speed[CELL_BYTES], char share[CELL_BYTES], const rank_trace *rank,
                      int kind, bool *above)
{
    const bp_trace_count *work = &rank->work[kind];
    bool computes = work->flops > 0;
    /* Communication between ranks has no ceiling here. */
    bool local = kind < BP_TRACE_REDUCE;
    double rate = computes ? work->flops : work->bytes, seconds = seconds_of(rank, kind);
    double ceiling = computes ? rank->peak_flops : local ? rank->bandwidth : 0;

    speed[0] = share[0] = '\0';
    if (rate <= 0 || seconds <= 0 || is_apart(kind))
        return;
    rate /= seconds;
    snprintf(speed, CELL_BYTES, "%.1f %-7s", rate / 1e9, computes ? "GFLOP/s" : "GB/s");
    if (ceiling > 0 && rate > ceiling)
        snprintf(share, CELL_BYTES, ">100 %%");
    else if (ceiling > 0)
        snprintf(share, CELL_BYTES, "%.0f %%", 100 * rate / ceiling);
    *above = *above || (ceiling > 0 && rate > ceiling);
}

/* Did no rank do work of this kind? */
static bool is_idle(const rank_trace *ranks, int size, int kind)
{
    for (int r = 0; r < size; r++)
        if (ranks[r].computes && ranks[r].work[kind].calls > 0)
            return false;
    return true;
}

static void print_row(const rank_trace *own, int kind, bool *above)
{
    char speed[CELL_BYTES], ceiling[CELL_BYTES], share[CELL_BYTES] = "";

    say_speed(speed, ceiling, own, kind, above);
    if (!is_apart(kind))
        snprintf(share, sizeof share, "%.1f %%", 100 * seconds_of(own, kind) / step_seconds(own));
    bp_log("  %-25s %7lld %8.3f %8s %14s %10s", bp_trace_name((bp_trace_kind)kind),
           (long long)own->work[kind].calls, seconds_of(own, kind), share, speed, ceiling);
}

/* For each kind of work, the computing ranks that took the least and the most seconds. */
static void print_spread(const rank_trace *ranks, int size)
{
    char least[CELL_BYTES], most[CELL_BYTES];
    int first = !ranks[0].computes;

    bp_log("  %-25s %*s %*s", "seconds of ranks", RANK_WIDTH, "least (rank)", RANK_WIDTH,
           "most (rank)");
    for (int kind = BP_TRACE_PRODUCT_FORWARD; kind < BP_TRACE_KINDS; kind++) {
        int low = first, high = first;

        if (is_idle(ranks, size, kind))
            continue;
        for (int r = first; r < size; r++) {
            low = seconds_of(&ranks[r], kind) < seconds_of(&ranks[low], kind) ? r : low;
            high = seconds_of(&ranks[r], kind) > seconds_of(&ranks[high], kind) ? r : high;
        }
        snprintf(least, CELL_BYTES, "%.3f (%d)", seconds_of(&ranks[low], kind), low);
        snprintf(most, CELL_BYTES, "%.3f (%d)", seconds_of(&ranks[high], kind), high);
        bp_log("  %-25s %*s %*s", bp_trace_name((bp_trace_kind)kind), RANK_WIDTH, least, RANK_WIDTH,
               most);
    }
}

static void print_shares(const rank_trace *own)
{
    double shares[PARTS];
    char line[256] = "";
    size_t bytes = 0;

    find_shares(shares, own);
    for (int part = 0; part < PARTS; part++)
        bytes += (size_t)snprintf(line + bytes, sizeof line - bytes, "%s%s %.1f %%",
                                  part > 0 ? ", " : "", PART_NAMES[part].text, 100 * shares[part]);
    bp_log("  %s", line);
}

static void print_table(const rank_trace *own, const rank_trace *ranks, int size)
{
    bool above = false;

    bp_log("profile of steps %lld to %lld, rank %d: %.3f ms a step; ceilings %.1f GFLOP/s and "
           "%.1f GB/s",
           (long long)own->first_step, (long long)(own->first_step + own->steps - 1),
           (int)(own - ranks), 1e3 * step_seconds(own) / (double)own->steps, own->peak_flops / 1e9,
           own->bandwidth / 1e9);
    bp_log("  %-25s %7s %8s %8s %14s %10s", "work", "calls", "seconds", "of steps", "speed",
           "of ceiling");
    for (int kind = BP_TRACE_PRODUCT_FORWARD; kind < BP_TRACE_KINDS; kind++)
        if (!is_idle(ranks, size, kind))
            print_row(own, kind, &above);
    print_row(own, BP_TRACE_OTHER, &above);
    if (size > 1 + !ranks[0].computes)
        print_spread(ranks, size);
    if (above)
        bp_log("  >100 %%: what was read lay in a cache, or something else used the processors or "
               "the memory while the ceilings were measured");
    print_shares(own);
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

        if (kind == BP_TRACE_STEP || kind == BP_TRACE_PASS_FORWARD ||
            kind == BP_TRACE_PASS_BACKWARD) /* its own time is counted as another's */
            continue;
        key_of(key, kind);
        json_object_set_new(work, key,
                            json_pack("{s:I, s:f, s:f, s:f}", "calls", (json_int_t)count->calls,
                                      "seconds", seconds_of(rank, kind), "flops", count->flops,
                                      "bytes", count->bytes));
    }
    return work;
}

static bp_err save(const trainer *self, const rank_trace *own, const rank_trace *ranks)
{
    char *path = bp_path_join(bp_run_keys_of(self->config)->dir, "profile.json");
    json_t *list = json_array(), *part_shares = json_object();
    double shares[PARTS];

    find_shares(shares, own);
    for (int part = 0; part < PARTS; part++)
        json_object_set_new(part_shares, PART_NAMES[part].key, json_real(shares[part]));
    json_t *root = json_pack(
        "{s:i, s:I, s:I, s:f, s:f, s:o, s:o}", "format_version", 1, "first_step",
        (json_int_t)own->first_step, "steps", (json_int_t)own->steps, "step_seconds",
        step_seconds(own) / (double)own->steps, "input_wait",
        seconds_of(own, BP_TRACE_INPUT) / step_seconds(own), "shares", part_shares, "ranks", list);
    for (int r = 0; r < self->mesh->size; r++) {
        const rank_trace *rank = &ranks[r];

        if (rank->computes)
            json_array_append_new(
                list, json_pack("{s:i, s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:o, s:{s:f, s:f}}",
                                "rank", r, "host", rank->host, "pipeline", rank->pipeline_at,
                                "data", rank->data_at, "tensor", rank->tensor_at, "seconds",
                                1e-9 * (double)rank->nanoseconds, "silicon_flops", rank->peak_flops,
                                "memory_bytes", rank->bandwidth, "work", work_of(rank), "beside",
                                "input", rank->reader_seconds, "checkpoint", rank->writer_seconds));
    }
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
