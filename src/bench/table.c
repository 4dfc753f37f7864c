/* A result as a table for people. A function of the result alone. */
#include "base/log.h"
#include "bench/bench_priv.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CELL_BYTES 48

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

/* "205.3 GFLOP/s" */
static void say_quantity(char out[CELL_BYTES], double value, const char *unit)
{
    static const char *const PREFIXES[] = {"", "k", "M", "G", "T", "P"};
    int k = 0;

    if (strcmp(unit, "tokens/s") == 0 && value >= 10 && value < 1e6) {
        (void)snprintf(out, CELL_BYTES, "%.0f tokens/s", value);
        return;
    }
    for (; value >= 1000 && k < 5; k++)
        value /= 1000;
    (void)snprintf(out, CELL_BYTES, "%.*f %s%s",
                   value < 10    ? 2
                   : value < 100 ? 1
                                 : 0,
                   value, PREFIXES[k], unit);
}

static void say_bytes(char out[CELL_BYTES], double bytes)
{
    static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int k = 0;

    for (; bytes >= 1024 && k < 4; k++)
        bytes /= 1024;
    (void)snprintf(out, CELL_BYTES, "%.*f %s", bytes == floor(bytes) ? 0 : 1, bytes, UNITS[k]);
}

static void say_time(char out[CELL_BYTES], double seconds)
{
    double us = 1e6 * seconds;

    if (us < 1000)
        (void)snprintf(out, CELL_BYTES, us < 10 ? "%.2f us" : "%.1f us", us);
    else
        (void)snprintf(out, CELL_BYTES, us < 1e4 ? "%.2f ms" : "%.1f ms", us / 1000);
}

/* Half of where eight in ten repeats lie. */
static void say_spread(char out[CELL_BYTES], const json_t *figure)
{
    double half = (number(figure, "high") - number(figure, "low")) / 2;
    double percent = 100 * half / number(figure, "median");

    if (number(figure, "repeats") < 2)
        (void)snprintf(out, CELL_BYTES, "-");
    else if (percent < 99.5)
        (void)snprintf(out, CELL_BYTES, "%.0f %%", percent);
    else
        (void)snprintf(out, CELL_BYTES, "> 99 %%");
}

/* Before a row's name: can its figure be trusted? */
static char mark(const json_t *figure)
{
    char why[CELL_BYTES];

    return bench_doubts(figure, why, sizeof why) ? '?' : ' ';
}

static void print_head(const char *title, const char *last)
{
    bp_log("%-24s %12s %6s %12s %12s%s%s", title, "all ranks", "+-", "slowest rank", "one alone",
           last[0] ? "  " : "", last);
}

static void print_figure(const char *name, const json_t *figure, const char *last)
{
    char all[CELL_BYTES], spread[CELL_BYTES], slowest[CELL_BYTES], one[CELL_BYTES] = "-";
    const char *unit = text(figure, "unit");

    if (!json_is_object(figure)) {
        bp_log("  %-22s %12s", name, "-");
        return;
    }
    say_quantity(all, number(figure, "median"), unit);
    say_spread(spread, figure);
    say_quantity(slowest, number(get(figure, "slowest"), "median"), unit);
    if (json_is_object(get(figure, "one")))
        say_quantity(one, number(get(figure, "one"), "median"), unit);
    bp_log("%c %-22s %12s %6s %12s %12s%s%s", mark(figure), name, all, spread, slowest, one,
           last[0] ? "  " : "", last);
}

static void print_machine(const json_t *result)
{
    const json_t *machine = get(result, "machine"), *mesh = get(result, "mesh");
    size_t hosts = json_array_size(get(machine, "hosts"));
    char memory[CELL_BYTES];

    say_bytes(memory, number(machine, "memory_bytes"));
    bp_log(
        "%d rank%s of %d thread%s on %zu host%s, pipeline %d x data %d x tensor %d; models in %s",
        (int)number(machine, "ranks"), number(machine, "ranks") > 1 ? "s" : "",
        (int)number(machine, "threads"), number(machine, "threads") > 1 ? "s" : "", hosts,
        hosts > 1 ? "s" : "", (int)number(mesh, "pipeline"), (int)number(mesh, "data"),
        (int)number(mesh, "tensor"), text(result, "precision"));
    bp_log("%s, %s, %s, %s", text(machine, "cpu"), memory, text(machine, "math_library"),
           text(machine, "mpi"));
    bp_log(
        "all ranks: their sum, measured at the same time; +-: half of where eight in ten repeats "
        "lie; one alone: the first rank while the others sleep; ?: not to be trusted, see the "
        "advice");
}

const char *const bench_forms[BENCH_FORM_ROWS][2] = {{"forward", "forward"},
                                                     {"input", "gradient of the input"},
                                                     {"weight", "gradient of weights"},
                                                     {"step", "a step together"}};

static void print_products(const json_t *result, const char *precision)
{
    const json_t *products = get(get(result, "products"), precision);
    const json_t *silicon = get(get(result, "silicon"), precision);
    const json_t *gemm = get(get(result, "gemm"), precision);
    char title[CELL_BYTES], last[CELL_BYTES];

    if (!json_is_object(silicon))
        return;
    (void)snprintf(title, sizeof title, "matrix products, %s", precision);
    print_head(title, "of peak");
    print_figure("in registers: the peak", silicon, "");
    (void)snprintf(last, sizeof last, "%.2f", number(gemm, "median") / number(silicon, "high"));
    print_figure("one large product", gemm, last);
    for (size_t k = 0; k < BENCH_FORM_ROWS; k++) {
        const json_t *figure = get(products, bench_forms[k][0]);
        (void)snprintf(last, sizeof last, "%.2f", number(figure, "share"));
        print_figure(bench_forms[k][1], figure, last);
    }
}

static void print_memory(const json_t *result)
{
    const json_t *memory = get(result, "memory");

    print_head("memory (STREAM)", "");
    print_figure("copy", get(memory, "copy"), "");
    print_figure("triad", get(memory, "triad"), "");
}

static void print_text(const json_t *result)
{
    const json_t *corpus = get(result, "corpus"), *tokenizer = get(result, "tokenizer");
    char name[CELL_BYTES], last[CELL_BYTES] = "";

    print_head("text", "");
    if (json_is_string(get(corpus, "reason")))
        bp_log("  %-22s not measured: %s", "reading a corpus", text(corpus, "reason"));
    else {
        say_quantity(last, number(get(corpus, "read"), "median") / number(corpus, "token_bytes"),
                     "tokens/s");
        print_figure("reading a corpus", get(corpus, "read"), "");
        bp_log("    of tokens %25s", last);
    }
    (void)snprintf(name, sizeof name, "tokenizing, %s of %d", text(tokenizer, "kind"),
                   (int)number(tokenizer, "size"));
    print_figure(name, get(tokenizer, "encode"), "");
    bp_log("    (tokenizing: one thread of each rank)");
}

static void print_sizes(const char *name, const json_t *rows)
{
    size_t k;
    const json_t *row;

    json_array_foreach(rows, k, row)
    {
        char bytes[CELL_BYTES], time[CELL_BYTES], speed[CELL_BYTES], spread[CELL_BYTES];
        const json_t *seconds = get(row, "seconds");

        say_bytes(bytes, number(row, "bytes"));
        say_quantity(speed, number(row, "bytes_per_second"), "B/s");
        say_spread(spread, seconds);
        say_time(time, number(seconds, "median"));
        bp_log("%c %-18s %8s %10s %6s %10s  %d on %.12s", mark(seconds), k == 0 ? name : "", bytes,
               time, spread, speed, (int)number(row, "slowest_rank"), text(row, "slowest_host"));
    }
}

static void print_exchange(const json_t *result)
{
    const json_t *exchange = get(result, "exchange");

    if (!json_is_object(exchange)) {
        bp_log("messages between ranks: not measured, there is one rank");
        return;
    }
    bp_log("%-20s %8s %10s %6s %10s  %s", "messages", "bytes", "a message", "+-", "a link",
           "slowest rank");
    print_sizes("all-reduce", get(exchange, "all_sum"));
    print_sizes("scatter and gather", get(exchange, "shards"));
    print_sizes("send on a host", get(exchange, "send_host"));
    print_sizes("send across hosts", get(exchange, "send_across"));
}

static void print_work(const json_t *model, const char *key)
{
    const json_t *figure = get(model, key);
    char speed[CELL_BYTES], spread[CELL_BYTES], share[CELL_BYTES] = "-", memory[CELL_BYTES] = "";

    if (!json_is_object(figure))
        return;
    say_quantity(speed, number(figure, "median"), "tokens/s");
    say_spread(spread, figure);
    if (json_is_number(get(figure, "mfu")))
        (void)snprintf(share, sizeof share, "%.2f", number(figure, "mfu"));
    if (strcmp(key, "train") == 0)
        (void)snprintf(memory, sizeof memory, "%.2f of %.0f MiB",
                       number(model, "peak_bytes") / number(model, "plan_bytes"),
                       number(model, "plan_bytes") / 1048576);
    bp_log("%c %-8s %6.1f M  %-5s %16s %6s %8s  %s", mark(figure), text(model, "name"),
           number(model, "parameters") / 1e6, key, speed, spread, share, memory);
}

static void print_models(const json_t *result)
{
    size_t k;
    const json_t *model;

    if (json_array_size(get(result, "models")) > 0)
        bp_log("%-25s %16s %6s %8s  %s", "models", "all ranks", "+-", "of peak", "memory, of plan");
    json_array_foreach(get(result, "models"), k, model)
    {
        if (json_is_string(get(model, "skipped")))
            bp_log("  %-8s %6.1f M  left out: %s", text(model, "name"),
                   number(model, "parameters") / 1e6, text(model, "skipped"));
        print_work(model, "train");
        print_work(model, "score");
    }
}

void bench_print(const json_t *result)
{
    size_t k;
    const json_t *line;

    print_machine(result);
    print_products(result, "f32");
    print_products(result, "bf16");
    print_memory(result);
    print_text(result);
    print_exchange(result);
    print_models(result);
    json_array_foreach(get(result, "advice"), k, line)
        bp_log("advice: %s", json_string_value(line));
}
