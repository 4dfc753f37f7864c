/* The state of a bench, shared by the files of this folder. */
#pragma once

#include "base/config/json.h"
#include "bench/bench.h"
#include "bench/models.h"
#include "math/math.h"
#include "mesh/mesh.h"
#include "run/run_folder.h"
#include "train/engine/engine.h"
#include "train/scale/network_file.h"

#define BENCH_HOST_BYTES 64
#define BENCH_PRECISIONS 2

typedef struct bench {
    bp_config *config; /* borrowed */
    bp_mesh_shape mesh_shape;
    bp_mesh *mesh;
    bp_run *run;
    double seconds;                  /* of a measurement */
    bool named[BP_BENCH_MODELS];     /* models to train and score */
    bp_precision precision;          /* of the models */
    bool bf16;                       /* all ranks support it */
    char (*hosts)[BENCH_HOST_BYTES]; /* [mesh->size], on all ranks */
    int node_ranks;                  /* computing ranks of the fullest host */
    double rank_bytes; /* memory that each rank may use on the host with least; 0: not known */
    double plan_bytes[BP_BENCH_MODELS];  /* of a training, on the rank that needs most; 0 if not
                                            named, or if it does not fit the mesh */
    double peak_flops[BENCH_PRECISIONS]; /* peak FLOP/s of all ranks; 0: not measured */
    bp_network_rates rates;              /* on the coordinator, after messages are measured */
    json_t *result;                      /* on the coordinator; NULL elsewhere */
} bench;

/* ---- measure.c ---- */

/** The median of repeats, and the range of the middle 80 %. */
typedef struct bp_spread {
    double median, low, high;
    int64_t repeats; /* 0: not measured */
} bp_spread;

/** Median, and the quantiles 0.1 and 0.9, of n values, which it sorts; all 0 for n = 0. */
bp_spread bp_spread_of(double *values, int64_t n);
/** Converts seconds for `amount` to amount a second: `low` is from the slowest. */
bp_spread bp_spread_rate(const bp_spread *seconds, double amount);

/** Work that is repeated and timed. */
typedef struct bench_task {
    void (*run)(void *context);
    void *context;
    double amount; /* of work in one run: FLOPs, bytes, tokens */
} bench_task;

/** Before a measurement: logs its name. Collective over world. Errors: BP_ERR_STOPPED some rank was
 * asked to stop. */
bp_err bench_next(bench *self, const char *what);

/** Run once to warm up, then for `seconds`, at least three times (once if that would take ten times
 * as long). Returns the seconds of a run. Local. */
bp_spread bench_repeat(const bench_task *task, double seconds);

/** The same for work that ranks of `comm` do together, with equal repeats on all of them.
 * `barrier`: they begin each run together. Collective over `comm`. */
bp_spread bench_together(const bench_task *task, double seconds, bool barrier, MPI_Comm comm);

/** One figure of all computing ranks: their sum, the slowest and the fastest, and each. *total (may
 * be NULL) is the sum, on all ranks. Collective over world.
 *
 * Owns: a new reference on the coordinator, NULL elsewhere. */
json_t *bench_gather(const bench *self, const bp_spread *rate, const char *unit, bp_spread *total);

/** Measures for about `seconds` seconds: amounts a second. */
typedef bp_spread (*bench_meter)(void *context, double seconds);

/** The meter for a bench_task, which is its context. */
bp_spread bench_task_meter(void *task, double seconds);

/** Measure on all computing ranks at once; then, if there are several, on the first one while the
 * others sleep ("one"; else null). Collective over world. Owns: as bench_gather. */
json_t *bench_everywhere(const bench *self, bench_meter meter, void *context, const char *unit,
                         bp_spread *total);

/** {"median", "low", "high", "repeats"}; null if not measured. */
json_t *bench_spread_json(const bp_spread *spread);
/** Put `value` under `key` of the object on the coordinator; both NULL elsewhere. Steals `value`.
 */
void bench_put(json_t *object, const char *key, json_t *value);

/* ---- job.c ---- */

/** Ranks that compute. Pure. */
int64_t bench_ranks(const bench *self);

/* ---- machine.c ---- */

/** Hosts, memory, CPU features common to all ranks; "machine" of the result. Collective over
 * world. */
void bench_find_machine(bench *self);
/** node_ranks and rank_bytes; plan: of a planned job, which this one rank represents. Collective
 * over world. */
void bench_find_memory(bench *self, const bp_planned_world *plan);

/* ---- the measurements: collective over world; errors are the same on all ranks ---- */

/** "silicon", "products". Errors: BP_ERR_SYSTEM. */
bp_err bench_products(bench *self);
/** "memory". Errors: BP_ERR_SYSTEM. */
bp_err bench_memory(bench *self);
/** "corpus". Errors: BP_ERR_SYSTEM; BP_ERR_IO, BP_ERR_CREATE, BP_ERR_DENIED it can't be written.
 * "reason" names ranks that can't read it. */
bp_err bench_reading(bench *self);
/** Checks that tokenizer.path, if given, can be read, before anything is measured. Local. Errors:
 * those of bp_tokenizer_load. */
bp_err bench_check_tokenizer(const bench *self);
/** "tokenizer". Errors: BP_ERR_SYSTEM; those of bp_tokenizer_load; BP_ERR_IO. */
bp_err bench_tokenizing(bench *self);
/** "ngram". Errors: BP_ERR_SYSTEM, BP_ERR_STOPPED. "reason" names ranks that can't share a
 * folder. */
bp_err bench_counting(bench *self);
/** "exchange": null for one rank. Errors: BP_ERR_SYSTEM. */
bp_err bench_exchange(bench *self);
/** "rounds" of `into` (NULL except on the coordinator): the time that rounds of sums oversleep
 * beside compute, for several ranks. Errors: BP_ERR_SYSTEM. */
bp_err bench_rounds(bench *self, json_t *into);
/** Finds the memory of each model's training, in a process before any measurement, so that a plan
 * and its run agree. Collective over world. Errors: BP_ERR_SYSTEM. */
bp_err bench_plan_models(bench *self);
/** "models". Errors: BP_ERR_SYSTEM, BP_ERR_STOPPED. */
bp_err bench_models(bench *self);
/** Sets `why` to the reason why a model of this many bytes on a rank (0: not yet known) is left
 * out, or "". Pure. */
void bench_check_fit(const bench *self, const bp_engine_spec *spec, const bp_model_shape *shape,
                     double bytes, char *why, size_t why_bytes);

/* ---- network.c: the input of plans of larger jobs; on the coordinator ---- */

/** Fills self->rates from measurements of memory and messages, else from defaults. Local. */
void bench_read_rates(bench *self);
/** Sets rates.flops to the FLOP/s of a rank at which a plan of this model's step takes `seconds`.
 * Local. */
void bench_fit_flops(bench *self, const bp_engine_spec *spec, const bp_model_shape *shape,
                     double seconds);
/** RUN/network.ini. Local. Errors: BP_ERR_IO, BP_ERR_CREATE. */
bp_err bench_write_network(const bench *self);

/** Prints a line about a model: the memory of its training on the rank that needs most, or why it
 * is left out. Local. */
void bench_log_model(const bench *self, int number);

/** The result as a table for people, line by line, through bp_log. Pure. */
void bench_print(const json_t *result);
