/* Advice: what is far off in a result, and what helps. A function of the result alone. */
#include "base/mem.h"
#include "bench/bench_priv.h"

#include <string.h>

#define SLOW_RANK 0.8 /* of the fastest rank's matrix products */
#define SLOW_WIRE 0.1 /* of what a rank copies in memory, between neighbours on a host */
#define SHARED    0.7 /* of its speed alone, that a rank has among the others */
#define SWING     0.1 /* to both sides, of a peak that nothing but the processor decides */

static const json_t *at(const json_t *object, const char *a, const char *b, const char *c)
{
    const json_t *value = json_object_get(object, a);

    value = b ? json_object_get(value, b) : value;
    return c ? json_object_get(value, c) : value;
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Takes the line. */
static void say(json_t *lines, char *line)
{
    (void)json_array_append_new(lines, json_string(line));
    bp_free(line);
}

static void judge_threads(json_t *lines, const json_t *result)
{
    const json_t *machine = json_object_get(result, "machine");
    int threads = (int)number(machine, "threads"), cores = (int)number(machine, "cores");

    int used = threads * (int)number(machine, "ranks_a_host");
    int processors = (int)number(machine, "host_cpus");

    if (threads > cores)
        say(lines,
            bp_sprintf("a rank has %d threads and may use %d core%s: bind fewer ranks to a host, "
                       "give each more cores (--cpus-per-task, --map-by slot:PE=N), or set "
                       "math.threads",
                       threads, cores, cores == 1 ? "" : "s"));
    if (used > processors)
        say(lines, bp_sprintf("%d threads share %d processors of a host: start fewer ranks there, "
                              "or set math.threads",
                              used, processors));
    if (2 * used < processors)
        say(lines, bp_sprintf("%d of %d processors of a host are used: start more ranks there, or "
                              "give each more threads (--cpus-per-task, math.threads)",
                              used, processors));
    if (!json_is_true(json_object_get(machine, "bf16")))
        say(lines,
            bp_sprintf("these CPUs have neither AMX nor AVX512_BF16, or this build's library "
                       "does not use them: models are trained in float32"));
}

/* The matrix peak of the models' precision. */
static const json_t *peak_of(const json_t *result)
{
    return at(result, "silicon", json_string_value(json_object_get(result, "precision")), NULL);
}

static void judge_noise(json_t *lines, const json_t *result)
{
    const json_t *peak = peak_of(result);
    double half = (number(peak, "high") - number(peak, "low")) / 2;

    if (half > SWING * number(peak, "median"))
        say(lines,
            bp_sprintf("repeats of the matrix peak differ by +- %.0f %%: something else uses "
                       "these processors, and all figures suffer; look what it is (bagpipe "
                       "doctor), and measure again",
                       100 * half / number(peak, "median")));
}

/* The slowest rank. */
static void judge_ranks(json_t *lines, const json_t *result)
{
    const json_t *peak = peak_of(result);
    const json_t *slow = json_object_get(peak, "slowest"), *fast = json_object_get(peak, "fastest");
    const json_t *one = json_object_get(peak, "one");

    if (number(slow, "median") < SLOW_RANK * number(fast, "median"))
        say(lines,
            bp_sprintf("rank %d on %s has %.2f of the matrix speed of rank %d on %s, and all "
                       "wait for it: look what else runs there (bagpipe doctor), or leave "
                       "the host out",
                       (int)number(slow, "rank"), json_string_value(json_object_get(slow, "host")),
                       number(slow, "median") / number(fast, "median"), (int)number(fast, "rank"),
                       json_string_value(json_object_get(fast, "host"))));
    if (json_is_object(one) && number(fast, "median") < SHARED * number(one, "median"))
        say(lines, bp_sprintf("beside the others a rank has %.2f of the matrix speed that it has "
                              "alone: ranks share cores, or the processor slows down; bind ranks "
                              "to cores of their own",
                              number(fast, "median") / number(one, "median")));
}

/* Neighbours on a host exchange through its memory: much slower is something else. */
static void judge_wires(json_t *lines, const json_t *result)
{
    const json_t *rows = at(result, "exchange", "send_host", NULL);
    const json_t *row = json_array_get(rows, json_array_size(rows) - (json_array_size(rows) > 0));
    const json_t *copy = at(result, "memory", "copy", "slowest");
    double wire = number(row, "bytes_per_second"), memory = number(copy, "median");

    if (row && memory > 0 && wire < SLOW_WIRE * memory)
        say(lines,
            bp_sprintf("neighbours on a host send %.2f GB/s, %.2f of what a rank copies in memory: "
                       "look whether MPI uses shared memory (ompi_info, ucx_info), and at rank %d "
                       "on %s",
                       wire / 1e9, wire / memory, (int)number(row, "slowest_rank"),
                       json_string_value(json_object_get(row, "slowest_host"))));
}

json_t *bench_advice(const json_t *result)
{
    json_t *lines = json_array();
    judge_threads(lines, result);
    judge_noise(lines, result);
    bench_judge_doubts(lines, result);
    judge_ranks(lines, result);
    judge_wires(lines, result);
    return lines;
}
