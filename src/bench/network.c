/* A bench's results for plans of larger jobs: RUN/network.ini. Called by job.c and model.c. */
#include "bench/bench_priv.h"

#include "base/buffer.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/scale/step_time.h"

#include <math.h>
#include <string.h>

#define FLOPS_LEAST 1e3
#define FLOPS_MOST  1e17
#define HALVINGS    60

/* The first and the last row of messages between pairs: the time of the shortest message is the
 * latency. */
static void read_pairs(const json_t *rows, double *latency, double *bandwidth)
{
    const json_t *first = json_array_get(rows, 0),
                 *last = json_array_get(rows, json_array_size(rows) - 1);
    double shortest =
        json_number_value(json_object_get(json_object_get(first, "seconds"), "median"));
    double seconds = json_number_value(json_object_get(json_object_get(last, "seconds"), "median"));
    double bytes = json_number_value(json_object_get(last, "bytes"));

    if (json_array_size(rows) < 2 || !(seconds > shortest))
        return;
    *latency = shortest;
    *bandwidth = bytes / (seconds - shortest);
}

/* The time of a pair's message while all pairs of a node send. */
static void read_rate(const json_t *row, int pairs, double *rate)
{
    double seconds = json_number_value(json_object_get(json_object_get(row, "seconds"), "median"));

    if (seconds > 0)
        *rate = pairs / seconds;
}

/* The time of a round beside compute beyond its message, which has half of the bytes in the first
 * round. If other processes use the cores, waiting ranks are slower than the message, and do not
 * measure it. */
static void read_pause(const json_t *rounds, bool across, bp_network_rates *rates)
{
    double beside = json_number_value(json_object_get(rounds, "beside_seconds")),
           alone = json_number_value(json_object_get(rounds, "alone_seconds")),
           bytes = json_number_value(json_object_get(rounds, "bytes")) / 2;
    double message = bp_message_seconds(rates, across ? 1 : 0, bytes);

    if (json_is_object(rounds))
        rates->round_pause = fmax(0, beside - fmin(alone, message));
}

void bench_read_rates(bench *self)
{
    bp_network_rates *rates = &self->rates;
    const json_t *exchange = json_object_get(self->result, "exchange"),
                 *triad = json_object_get(json_object_get(self->result, "memory"), "triad");
    double memory = json_number_value(json_object_get(triad, "median"));

    (void)bp_network_rates_read(rates, NULL); /* defaults */
    if (memory > 0)
        rates->memory_bandwidth = memory / (double)bench_ranks(self);
    read_pairs(json_object_get(exchange, "send_host"), &rates->inner_latency,
               &rates->inner_bandwidth);
    if (json_is_array(json_object_get(exchange, "send_across"))) {
        read_pairs(json_object_get(exchange, "send_across"), &rates->node_latency,
                   &rates->node_bandwidth);
        rates->node_bandwidth *= self->node_ranks; /* all pairs at once */
        read_rate(json_object_get(exchange, "rate_across"), self->node_ranks, &rates->message_rate);
    }
    read_pause(json_object_get(exchange, "rounds"),
               json_is_array(json_object_get(exchange, "send_across")), rates);
}

static double step_seconds(const bench *self, const bp_step_program *program, double flops)
{
    bp_network_rates rates = self->rates;
    int nodes = (int)((bench_ranks(self) + self->node_ranks - 1) / self->node_ranks);
    bp_step_time time;

    rates.flops = flops;
    bp_step_time_of(&time, program, &rates, nodes);
    return time.step;
}

/* The rate at which the plan's step takes as long as the measured one. */
void bench_fit_flops(bench *self, const bp_engine_spec *spec, const bp_model_shape *shape,
                     double seconds)
{
    bp_step_program *program;
    double low = FLOPS_LEAST, high = FLOPS_MOST;

    if (!(seconds > 0) || bp_step_program_new(&program, &self->mesh_shape, spec, shape) != BP_OK)
        return;
    for (int k = 0; k < HALVINGS; k++) {
        double middle = sqrt(low * high);

        if (step_seconds(self, program, middle) > seconds)
            low = middle;
        else
            high = middle;
    }
    bp_step_program_free(&program);
    /* a tiny model's messages may take longer by the plan than its whole step */
    self->rates.flops = high < FLOPS_MOST / 2
                            ? high
                            : (double)(spec->batch * shape->context) * bp_model_train_flops(shape) /
                                  (seconds * (double)bench_ranks(self));
}

bp_err bench_write_network(const bench *self)
{
    const bp_network_rates *r = &self->rates;
    char *path = bp_path_join(bp_run_keys_of(self->config)->dir, BP_NETWORK_FILE);
    bp_buffer text = {0};
    bp_err err;

    bp_buffer_printf(&text,
                     "; measured by bagpipe bench with %lld ranks, %d on a node: for bagpipe "
                     "pretrain CONFIG --plan --ranks N --nodes K --network THIS\n[network]\n",
                     (long long)bench_ranks(self), self->node_ranks);
    for (const bp_option *option = bp_network_options; option->key; option++) {
        double value = *(const double *)(const void *)((const char *)r + option->at - 1);

        if (option->at == BP_AT(bp_network_rates, flops))
            bp_buffer_printf(&text, "[compute]\n");
        bp_buffer_printf(&text, "%s = %.6g\n", strchr(option->key, '.') + 1, value);
    }
    err = bp_file_write(path, text.data, text.bytes);
    if (err == BP_OK)
        bp_log("%s is for --network of a plan", path);
    bp_buffer_clear(&text);
    bp_free(path);
    return err;
}
