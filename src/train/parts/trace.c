/* train.trace and train.profile: what is recorded, for which steps, and how it is gathered. Called
 * by jobs/ensemble.c, jobs/finetune.c and jobs/pretrain.c. */
#include "train/parts/trace_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "train/engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TAG_CLOCK       501
#define CLOCK_ROUNDS    16
#define CEILING_REPEATS 5
#define CEILING_SECONDS 0.08 /* of a repeat */

typedef struct trace_keys {
    bool profile;
    const char *path;
} trace_keys;

const bp_option training_trace_options[] = {
    {BP_BOOL_KEY("train.profile", "no"),
     .help =
         "a table of where time goes, from the third step of each start on; kept in profile.json",
     .at = BP_AT(trace_keys, profile)},
    {BP_STRING_KEY("train.trace", NULL),
     .help = "write a timeline of all ranks to this file, for Perfetto: steps 3 to 12; a later "
             "start keeps it and adds .start-N to the name",
     .at = BP_AT(trace_keys, path)},
    {.key = NULL},
};

static const trace_keys *keys_of(const trainer *self)
{
    return bp_config_bound(self->config, training_trace_options);
}

/* Capacity for events of the timeline on each rank; 0 without it. */
static int64_t capacity_of(const trainer *self)
{
    int64_t ranks =
        (int64_t)self->mesh_shape.pipeline * self->mesh_shape.data * self->mesh_shape.tensor;
    int64_t each = TRACE_ALL_EVENTS / ranks;

    if (!keys_of(self)->path)
        return 0;
    return each > TRACE_RANK_EVENTS    ? TRACE_RANK_EVENTS
           : each < TRACE_LEAST_EVENTS ? TRACE_LEAST_EVENTS
                                       : each;
}

/* Can the file be made? Fail now, not after hours. */
static bp_err try_path(const trainer *self, tracing *own)
{
    const char *path = keys_of(self)->path;
    int64_t start = bp_run_start_number(self->run);
    char word[32];
    bp_draft draft;

    if (!path || !self->mesh->coordinates)
        return BP_OK;
    /* a later start keeps an existing timeline and writes trace.start-2.json; a folder is
     * refused */
    snprintf(word, sizeof word, "start-%lld", (long long)start);
    own->path = start > 1 && bp_path_exists(path) && !bp_path_is_dir(path)
                    ? bp_path_insert(path, word)
                    : bp_strdup(path);
    bp_err err = bp_draft_open(&draft, own->path);
    if (err == BP_OK)
        bp_draft_drop(&draft);
    return err == BP_OK ? err : bp_err_prefix(err, "train.trace");
}

/* The offset of rank 0's clock, by the quickest of some round trips; 0 if it is within the error of
 * that trip, as on one host, whose ranks share a clock. */
static int64_t ask_clock(MPI_Comm world)
{
    int64_t best = INT64_MAX, offset = 0;

    for (int k = 0; k < CLOCK_ROUNDS; k++) {
        int64_t theirs = 0, before = bp_trace_clock();

        bp_send(&before, sizeof before, 0, TAG_CLOCK, world);
        bp_recv(&theirs, sizeof theirs, 0, TAG_CLOCK, world);
        int64_t after = bp_trace_clock(), trip = after - before;
        if (trip >= best)
            continue;
        best = trip;
        offset = theirs - (before + trip / 2);
    }
    return offset > best / 2 || offset < -best / 2 ? offset : 0;
}

/* Collective over world: rank 0 answers one rank after another. */
static int64_t align_clock(MPI_Comm world)
{
    int rank = bp_comm_rank(world), size = bp_comm_size(world);

    if (rank > 0)
        return ask_clock(world);
    for (int from = 1; from < size; from++)
        for (int k = 0; k < CLOCK_ROUNDS; k++) {
            int64_t word;

            bp_recv(&word, sizeof word, from, TAG_CLOCK, world);
            word = bp_trace_clock();
            bp_send(&word, sizeof word, from, TAG_CLOCK, world);
        }
    return 0;
}

static bool is_asked(const trainer *self)
{
    return keys_of(self)->profile || keys_of(self)->path;
}

static bp_err open_trace(trainer *self, void **own)
{
    *own = is_asked(self) ? bp_alloc("trace", 1, sizeof(tracing)) : NULL;
    return BP_OK;
}

static bp_err start(trainer *self, void *part)
{
    tracing *own = part;
    bool profiles = keys_of(self)->profile;
    bool traces = keys_of(self)->path != NULL;
    bp_err err;

    if (!own)
        return BP_OK;
    err = bp_agree(self->mesh->world, try_path(self, own));
    if (err != BP_OK)
        return err;
    own->begin = self->progress.step;
    own->origin = bp_trace_clock();
    if (traces)
        own->clock_offset = align_clock(self->mesh->world);
    /* in turns: other load then disturbs some repeats, not all of one kind */
    for (int k = 0; profiles && self->mesh->computes && k < CEILING_REPEATS; k++) {
        own->peak_flops =
            fmax(own->peak_flops, bp_math_peak(self->spec.precision, CEILING_SECONDS));
        own->bandwidth = fmax(own->bandwidth, bp_math_bandwidth(CEILING_SECONDS));
    }
    if (profiles && self->mesh->computes)
        bp_mem_resident_peak_reset(); /* its memory is freed */
    if (self->mesh->computes)
        bp_trace_start(capacity_of(self));
    return bp_agree(self->mesh->world, err);
}

static bp_err next(trainer *self, void *part)
{
    tracing *own = part;
    int64_t steps, warm, done;

    if (!own || !bp_trace_is_on())
        return BP_OK;
    steps = self->spec.rate.steps - own->begin;
    warm = steps > TRACE_WARM_STEPS ? TRACE_WARM_STEPS : 0;
    done = self->progress.step - own->begin;
    if (done == warm) {
        bp_trace_reset();
        bp_trace_record(true);
        own->first = self->progress.step + 1;
    } else if (done == warm + TRACE_STEPS) {
        bp_trace_record(false);
    }
    return BP_OK;
}

static double seconds_of(bp_trace_track track, bp_trace_kind kind)
{
    bp_trace_count counts[BP_TRACE_KINDS];
    int64_t nanoseconds;

    bp_trace_counts(track, counts, &nanoseconds);
    return 1e-9 * (double)counts[kind].nanoseconds;
}

static void describe(const trainer *self, const tracing *own, rank_trace *mine)
{
    const bp_mesh *mesh = self->mesh;

    memset(mine, 0, sizeof *mine);
    bp_host_name(mine->host, sizeof mine->host);
    mine->computes = mesh->computes;
    mine->pipeline_at = mesh->pipeline_rank;
    mine->data_at = mesh->data_rank;
    mine->tensor_at = mesh->tensor_rank;
    mine->clock_offset = own->clock_offset;
    mine->peak_flops = own->peak_flops;
    mine->bandwidth = own->bandwidth;
    if (!bp_trace_is_on() || own->first == 0)
        return;
    bp_trace_record(false);
    bp_trace_counts(BP_TRACE_COMPUTE, mine->work, &mine->nanoseconds);
    mine->first_step = own->first;
    mine->steps = self->progress.step - own->first + 1;
    mine->reader_seconds = seconds_of(BP_TRACE_READER, BP_TRACE_INPUT);
    mine->writer_seconds = seconds_of(BP_TRACE_WRITER, BP_TRACE_CHECKPOINT);
    (void)bp_trace_events(&mine->events, &mine->dropped);
}

/* Gather, print, write. */
static bp_err stop(trainer *self, void *part)
{
    const tracing *own = part;
    const bp_mesh *mesh = self->mesh;
    bool traces = keys_of(self)->path != NULL;
    rank_trace mine, *ranks = NULL;
    bp_err err = BP_OK;

    if (!own)
        return BP_OK;
    describe(self, own, &mine);
    if (mesh->coordinates)
        ranks = bp_alloc("trace.ranks", mesh->size, sizeof *ranks);
    BP_MPI_WAIT("gather", MPI_Gather(&mine, (int)sizeof mine, MPI_BYTE, ranks, (int)sizeof mine,
                                     MPI_BYTE, 0, mesh->world));
    if (mesh->coordinates && keys_of(self)->profile)
        err = profile_report(self, ranks);
    if (traces) {
        bp_err wrote = timeline_write(self, own, capacity_of(self), &mine, ranks);
        err = err == BP_OK ? wrote : err;
    }
    bp_free(ranks);
    return bp_agree(mesh->world, err);
}

static bp_err bytes_of(const trainer *self, const void *own, const bp_mesh_shape *mesh, int stage,
                       size_t *bytes)
{
    (void)own;
    (void)mesh;
    (void)stage;
    *bytes = 2 * bp_trace_bytes(capacity_of(self)); /* twice on the coordinator */
    return BP_OK;
}

static void close_trace(void *own)
{
    bp_free(((tracing *)own)->path);
    bp_free(own);
}

static const char *const MAY_CHANGE[] = {"train.trace", "train.profile", NULL};

const bp_training_part training_trace = {
    .name = "trace",
    .may_change = MAY_CHANGE,
    .memory = "events of the timeline",
    .open = open_trace,
    .bytes = bytes_of,
    .at = {[PART_START] = start, [PART_NEXT] = next, [PART_STOP] = stop},
    .close = close_trace,
};
