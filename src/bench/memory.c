/* Bandwidth of memory: STREAM's copy and triad on all threads of all ranks at once.
 * Source: McCalpin 1995; bytes are counted as in that paper: reads and writes of the program,
 * without write-allocate traffic. */
#include "bench/bench_priv.h"

#include "base/mem.h"
#include "base/process/cores.h"
#include "mesh/collective.h"

#define CACHES      4.0 /* an array of a host's ranks together, in sizes of its last-level caches */
#define LEAST_BYTES ((double)(64 << 20))
#define MOST_SHARE  0.2 /* of a rank's memory, an array */

typedef struct stream {
    double *a, *b, *c;
    int64_t n;
} stream;

/* First touched by the threads that use them, so that pages are on those threads' NUMA nodes. */
static void touch(stream *s)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < s->n; i++) {
        s->a[i] = 1;
        s->b[i] = 2;
        s->c[i] = 0;
    }
}

static void copy(void *context)
{
    stream *s = context;
    const double *restrict a = s->a;
    double *restrict c = s->c;

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < s->n; i++)
        c[i] = a[i];
}

static void triad(void *context)
{
    stream *s = context;
    const double *restrict b = s->b, *restrict c = s->c;
    double *restrict a = s->a;

#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < s->n; i++)
        a[i] = b[i] + 3.0 * c[i];
}

static int64_t array_length(const bench *self)
{
    double bytes = CACHES * bp_cores_cache_bytes() / self->node_ranks;
    double most = MOST_SHARE * self->rank_bytes;

    bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes;
    if (most > 0 && bytes > most)
        bytes = most;
    return bp_all_max_int((int64_t)(bytes / sizeof(double)), self->mesh->world);
}

bp_err bench_memory(bench *self)
{
    int64_t n = array_length(self);
    stream s = {.n = n};
    json_t *memory = self->result ? json_object() : NULL;
    bp_err err = BP_OK;

    if (self->mesh->computes) {
        s.a = bp_try_alloc("bench.stream", n, sizeof(double));
        s.b = bp_try_alloc("bench.stream", n, sizeof(double));
        s.c = bp_try_alloc("bench.stream", n, sizeof(double));
        if (!s.a || !s.b || !s.c)
            err = bp_fail_memory("arrays whose bandwidth is measured", 3 * n, sizeof(double));
        else
            touch(&s);
    }
    err = bp_agree(self->mesh->world, err);
    if (err == BP_OK) {
        bench_task copies = {copy, &s, 2.0 * (double)n * sizeof(double)};
        bench_task triads = {triad, &s, 3.0 * (double)n * sizeof(double)};
        bench_put(memory, "array_bytes", json_integer((json_int_t)(n * (int64_t)sizeof(double))));
        bench_put(memory, "copy", bench_everywhere(self, bench_task_meter, &copies, "B/s", NULL));
        bench_put(memory, "triad", bench_everywhere(self, bench_task_meter, &triads, "B/s", NULL));
        bench_put(self->result, "memory", memory);
    } else {
        json_decref(memory);
    }
    bp_free(s.a);
    bp_free(s.b);
    bp_free(s.c);
    return err;
}
