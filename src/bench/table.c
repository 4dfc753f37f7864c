/* A result as one table: every figure of bench.json, a row each. A function only of the result. */
#include "base/log.h"
#include "bench/bench_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 64
#define CELL_BYTES 32

static const json_t *get(const json_t *object, const char *key)
{
    return json_object_get(object, key);
}

static double number(const json_t *object, const char *key)
{
    return json_number_value(get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    const char *value = json_string_value(get(object, key));

    return value ? value : "?";
}

/* "205 GFLOP/s": four characters of a number at most, as rounded; "" without a value. */
static void write_quantity(char out[CELL_BYTES], double value, const char *unit)
{
    static const char *const PREFIXES[] = {"", "k", "M", "G", "T", "P"};
    int k = 0;

    out[0] = '\0';
    if (!(value > 0))
        return;
    for (; value >= 999.5 && k < 5; k++)
        value /= 1000;
    (void)snprintf(out, CELL_BYTES, "%.*f %s%s",
                   value < 9.995   ? 2
                   : value < 99.95 ? 1
                                   : 0,
                   value, PREFIXES[k], unit);
}

/* Half of the range of the middle 80 % of repeats, relative to the median. */
static void write_spread(char out[CELL_BYTES], const json_t *figure)
{
    double half = (number(figure, "high") - number(figure, "low")) / 2;
    double percent = 100 * half / number(figure, "median");

    if (number(figure, "repeats") < 2 || isnan(percent))
        (void)snprintf(out, CELL_BYTES, "-");
    else if (percent < 999.5)
        (void)snprintf(out, CELL_BYTES, "%.0f %%", percent);
    else
        (void)snprintf(out, CELL_BYTES, ">999%%");
}

/* "all_sum 64 MiB" */
static void write_size(char out[NAME_BYTES], const char *name, double bytes)
{
    bool small = bytes < 1048576;

    (void)snprintf(out, NAME_BYTES, "%s %.0f %s", name, bytes / (small ? 1024 : 1048576),
                   small ? "KiB" : "MiB");
}

static void print_figure(const char *name, const json_t *figure)
{
    const char *unit = text(figure, "unit");
    const json_t *of_peak = get(figure, "mfu") ? get(figure, "mfu") : get(figure, "share");
    char all[CELL_BYTES], spread[CELL_BYTES], slowest[CELL_BYTES], one[CELL_BYTES],
        share[CELL_BYTES] = "";

    write_quantity(all, number(figure, "median"), unit);
    write_spread(spread, figure);
    write_quantity(slowest, number(get(figure, "slowest"), "median"), unit);
    write_quantity(one, number(get(figure, "one"), "median"), unit);
    if (json_is_number(of_peak))
        (void)snprintf(share, sizeof share, "%.2f", json_number_value(of_peak));
    bp_log("%-21s %14s %5s %14s %14s%s%s", name, all, spread, slowest, one, *share ? "    " : "",
           share);
}

/* Messages of one size: the slowest rank's. */
static void print_message(const char *name, const json_t *row)
{
    const json_t *seconds = get(row, "seconds");
    char link[CELL_BYTES], spread[CELL_BYTES], where[NAME_BYTES];

    write_quantity(link, number(row, "bytes_per_second"), "B/s");
    write_spread(spread, seconds);
    (void)snprintf(where, sizeof where, "rank %d on %.12s", (int)number(row, "slowest_rank"),
                   text(row, "slowest_host"));
    bp_log("%-21s %14s %5s %11.1f us  %.21s", name, link, spread, 1e6 * number(seconds, "median"),
           where);
}

static void print_rounds(const char *name, const json_t *rounds)
{
    bp_log("%-21s %11.1f us alone, %.1f us beside compute: a round of %d sums of %.0f KiB", name,
           1e6 * number(rounds, "alone_seconds"), 1e6 * number(rounds, "beside_seconds"),
           (int)number(rounds, "sums"), number(rounds, "bytes") / 1024);
}

/* Prints the figures below `name`, recursively. */
static void print_all(const char *name, const json_t *value)
{
    char below[NAME_BYTES];
    const char *key;
    json_t *member;
    size_t k;

    if (json_is_string(get(value, "skipped"))) {
        bp_log("%-21s left out: %s", name, text(value, "skipped"));
    } else if (json_is_object(get(value, "seconds"))) {
        print_message(name, value);
    } else if (json_is_number(get(value, "median"))) {
        print_figure(name, value);
    } else if (json_is_number(get(value, "beside_seconds"))) {
        print_rounds(name, value);
    } else if (json_is_object(value)) {
        json_object_foreach((json_t *)value, key, member)
        {
            (void)snprintf(below, sizeof below, "%s%s%s", name, name[0] ? " " : "", key);
            print_all(below, member);
        }
    } else if (json_is_array(value)) {
        json_array_foreach(value, k, member)
        {
            if (get(member, "bytes"))
                write_size(below, name, number(member, "bytes"));
            else
                (void)snprintf(below, sizeof below, "%s", text(member, "name"));
            if (json_is_object(member))
                print_all(below, member);
        }
    }
}

void bench_print(const json_t *result)
{
    static const char *const KEYS[] = {"silicon",   "gemm",  "products", "memory", "corpus",
                                       "tokenizer", "ngram", "exchange", "models"};
    const json_t *machine = get(result, "machine"), *mesh = get(result, "mesh");

    bp_log("ranks %d, threads %d, hosts %zu; pipeline %d x data %d x tensor %d; models in %s",
           (int)number(machine, "ranks"), (int)number(machine, "threads"),
           json_array_size(get(machine, "hosts")), (int)number(mesh, "pipeline"),
           (int)number(mesh, "data"), (int)number(mesh, "tensor"), text(result, "precision"));
    bp_log("%s, %.1f GiB, %s, %s", text(machine, "cpu"),
           number(machine, "memory_bytes") / 1073741824, text(machine, "math_library"),
           text(machine, "mpi"));
    bp_log("%-21s %14s %5s %14s %14s %7s", "", "all ranks", "+-", "slowest rank", "one alone",
           "of peak");
    for (size_t k = 0; k < sizeof KEYS / sizeof *KEYS; k++) {
        const char *name = strcmp(KEYS[k], "exchange") == 0  ? ""
                           : strcmp(KEYS[k], "silicon") == 0 ? "peak in registers"
                                                             : KEYS[k];
        if (json_is_string(get(get(result, KEYS[k]), "reason")))
            bp_log("%-21s not measured: %s", name, text(get(result, KEYS[k]), "reason"));
        else
            print_all(name, get(result, KEYS[k]));
    }
    bp_log("+-: half the range of eight in ten repeats; one alone: while the others sleep");
}
