/* A bench from end to end. */
#include "bench/bench_priv.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "bench/bench.h"
#include "math/math.h"
#include "mesh/collective.h"

#include <errno.h>
#include <unistd.h>

#define RESULT_FORMAT  "bagpipe bench"
#define RESULT_VERSION 1
#define RESULT_MOST    (64 << 20) /* bytes of a bench.json that is read */
#define START_SECONDS  2.0        /* estimated: starting, files, models made */

/* ---- opening ---- */

static bp_err open_mesh(bench *self, MPI_Comm world, const bp_planned_world *plan)
{
    bool alone = plan && bp_comm_size(world) == 1;
    bp_err err = bp_mesh_open(&self->mesh, &self->mesh_shape, self->config, world, plan);

    if (err == BP_OK && !alone)
        bp_math_warn_of_threads(self->mesh->world, self->mesh->computes);
    return err;
}

/* config.ini has every key as resolved; ranks on different CPUs use the precision that all
 * support. */
static bp_err resolve_keys(bench *self)
{
    bp_config *config = self->config;
    bool dedicated = self->mesh_shape.coordinator == BP_COORDINATOR_DEDICATED;
    bp_err err = bp_agree(self->mesh->world, bp_math_precision(config, &self->precision));

    if (err != BP_OK)
        return err;
    if (bp_all_max_int(self->precision == BP_F32, self->mesh->world) != 0)
        self->precision = BP_F32;
    err = bp_config_set(config, "math.precision", self->precision == BP_BF16 ? "bf16" : "f32");
    if (err == BP_OK)
        err = bp_config_set_int(config, "mesh.data", self->mesh_shape.data);
    if (err == BP_OK)
        err = bp_config_set_int(config, "math.threads", bp_math_threads());
    if (err == BP_OK)
        err = bp_config_set(config, "mesh.coordinator", dedicated ? "dedicated" : "shared");
    return bp_agree(self->mesh->world, err);
}

static bp_err open_bench(bench *self, MPI_Comm world, bp_config *config,
                         const bp_planned_world *plan)
{
    const char *wrong;
    bp_err err;

    *self = (bench){.config = config, .seconds = bp_bench_keys_of(config)->seconds};
    (void)bp_bench_models_named(bp_bench_keys_of(config)->models, self->named, &wrong);
    bp_math_set_threads(
        bp_math_threads_planned(world, (int)bp_math_keys_of(config)->threads, plan));
    err = bp_agree(world, open_mesh(self, world, plan));
    if (err == BP_OK)
        err = resolve_keys(self);
    return err == BP_OK ? bench_plan_models(self) : err;
}

static void close_bench(bench *self)
{
    json_decref(self->result);
    bp_free(self->hosts);
    bp_mesh_free(&self->mesh);
}

/* A repeated measurement is a new bench of the same machine: every key may change. */
static bp_err open_run(bench *self)
{
    static const char *const MAY_CHANGE[] = {"run.*",  "bench.*",        "mesh.*",
                                             "math.*", "tokenizer.path", NULL};
    json_t *extra = json_pack("{s:s, s:s, s:i}", "math_library", bp_math_library(), "cpu",
                              bp_math_cpu(), "threads", bp_math_threads());
    bp_run_spec spec = {.job = "bench", .may_change = MAY_CHANGE, .extra = extra};
    bp_err err = bp_run_open(&self->run, self->mesh, self->config, &spec);

    json_decref(extra);
    return err;
}

/* ---- measuring ---- */

static json_t *new_result(const bench *self)
{
    const bp_mesh *mesh = self->mesh;

    return json_pack("{s:s, s:i, s:s, s:o, s:s, s:{s:i, s:i, s:i, s:b}}", "format", RESULT_FORMAT,
                     "format_version", RESULT_VERSION, "time", bp_clock_stamp().text, "seconds",
                     bp_json_real(self->seconds), "precision",
                     self->precision == BP_BF16 ? "bf16" : "f32", "mesh", "pipeline",
                     mesh->pipeline_ranks, "data", mesh->data_ranks, "tensor", mesh->tensor_ranks,
                     "coordinator", (int)mesh->dedicated);
}

static const struct {
    const char *name;
    bp_err (*measure)(bench *self);
} PARTS[] = {{"matrix products", bench_products},
             {"the bandwidth of memory", bench_memory},
             {"reading a corpus", bench_reading},
             {"tokenizing", bench_tokenizing},
             {"counting n-grams", bench_counting},
             {"messages between ranks", bench_exchange},
             {"models", bench_models}};

/* Removes temporary files that a killed bench left. On the coordinator. */
static bp_err sweep(const bench *self)
{
    static const char *const NAMES[] = {"bench-corpus.h5", "bench-text.txt"};
    bp_err err = BP_OK;

    for (size_t k = 0; k < sizeof NAMES / sizeof *NAMES && err == BP_OK; k++) {
        char *path = bp_path_join(bp_run_keys_of(self->config)->dir, NAMES[k]);
        if (unlink(path) != 0 && errno != ENOENT)
            err = bp_fail_errno(BP_ERR_IO, "can't remove", path);
        bp_free(path);
    }
    char *counts = bp_path_join(bp_run_keys_of(self->config)->dir, "bench-counts");
    err = err == BP_OK ? bp_dir_remove(counts) : err;
    bp_free(counts);
    return err;
}

static bp_err measure(bench *self)
{
    bp_err err = bp_agree(self->mesh->world, self->mesh->coordinates ? sweep(self) : BP_OK);

    if (err != BP_OK)
        return err;
    if (self->mesh->coordinates)
        self->result = new_result(self);
    bench_find_machine(self);
    for (size_t k = 0; k < sizeof PARTS / sizeof *PARTS && err == BP_OK; k++) {
        err = bench_next(self, PARTS[k].name);
        if (err == BP_OK)
            err = PARTS[k].measure(self);
    }
    return err;
}

/* On the coordinator. */
static bp_err report(bench *self)
{
    char *path = bp_path_join(bp_run_keys_of(self->config)->dir, "bench.json");
    bp_err err = bp_json_save(path, self->result);

    if (err == BP_OK)
        err = bench_write_network(self);
    if (err == BP_OK) {
        bench_print(self->result);
        bp_log("the figures are in %s", path);
    }
    bp_free(path);
    return err;
}

static bp_err run(bench *self)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_BENCH);
    bp_err err = measure(self);

    (void)bp_heartbeat_phase(before);
    if (err == BP_OK)
        err = bp_agree(self->mesh->world, self->mesh->coordinates ? report(self) : BP_OK);
    return err;
}

/* Prints the table of a finished bench with the same keys again. *there: its file exists. */
static void print_again(bench *self, bool *there)
{
    bool read = false;

    if (self->mesh->coordinates) {
        char *path = bp_path_join(bp_run_keys_of(self->config)->dir, "bench.json");
        json_t *before = NULL;

        read = bp_json_load_plain(&before, path, RESULT_MOST) == BP_OK;
        if (read) {
            bench_print(before);
            bp_log("the run is finished: this was measured before, another run.dir measures anew");
        }
        json_decref(before);
        bp_free(path);
    }
    *there = bp_all_max_int(read, self->mesh->world) != 0;
}

bp_err bp_bench(MPI_Comm world, bp_config *config)
{
    bench self;
    bp_err err = open_bench(&self, world, config, NULL);

    if (err == BP_OK)
        err = bp_agree(world, self.mesh->coordinates ? bench_check_tokenizer(&self) : BP_OK);
    if (err == BP_OK)
        err = open_run(&self);
    if (err == BP_OK) {
        bool there = false;
        if (bp_run_is_finished(self.run))
            print_again(&self, &there);
        if (err == BP_OK && !there)
            err = run(&self);
        err = bp_run_close(&self.run, err);
    }
    close_bench(&self);
    return err;
}

/* ---- estimating ---- */

/* Measurements of bench.seconds each, roughly: a long step of a large model takes longer. */
static double count_measurements(const bench *self)
{
    double everywhere = bench_ranks(self) > 1 ? 1.5 : 1; /* all ranks, then only one */
    double count = 2 * (2 * everywhere + 3) + 4 * everywhere, sizes = 0;

    for (int64_t bytes = 1024; bytes <= bp_bench_keys_of(self->config)->message; bytes *= 16)
        sizes++;
    for (int k = 0; k < BP_BENCH_MODELS; k++)
        count += self->named[k] && self->plan_bytes[k] > 0 ? 2 : 0;
    return count + (bench_ranks(self) > 1 ? sizes + 1.25 : 0); /* rates, and rounds */
}

bp_err bp_bench_estimate(MPI_Comm world, bp_config *config, const bp_planned_world *asked)
{
    bench self;
    char time[64];
    bp_err err = open_bench(&self, world, config, asked);

    if (err == BP_OK) {
        bench_find_memory(&self, bp_comm_size(world) == 1 ? asked : NULL);
        for (int k = 0; k < BP_BENCH_MODELS; k++)
            if (self.named[k])
                bench_log_model(&self, k);
        bp_clock_duration(time, sizeof time,
                          START_SECONDS + self.seconds * count_measurements(&self));
        bp_log("time: about %s at bench.seconds = %g; more where a step takes longer than that",
               time, self.seconds);
    }
    close_bench(&self);
    return err;
}
