/* Writing the files of a checkpoint. Synchronously: the writer of a group requests the others'
 * slices, part by part, while all wait. Or asynchronously: a thread of the writer reads the
 * snapshots of its node's ranks, without MPI calls, and yields to compute threads. */
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/cores.h"
#include "base/process/heartbeat.h"
#include "base/process/thread.h"
#include "base/trace.h"
#include "io/checkpoint/checkpoint_save_priv.h"
#include "mesh/collective.h"

#include <stdio.h>
#include <stdlib.h>

#define TAG_REQUEST  1
#define TAG_PART     2
#define POLL_SECONDS 0.0005
/* During training: the share of one core for all helpers of a rank together (nice 19 guarantees
 * that share of a busy core, but time slices are longer); the initial allowance of each; and the
 * sleep before a helper polls again whether a rank waits. */
#define PACE_SHARE         0.015
#define PACE_FREE_SECONDS  0.01
#define PACE_SLEEP_SECONDS 0.05
#define PACE_MOST_SECONDS  60.0 /* then it is finished as fast as nice 19 allows */

/* Data of slice `index`, from memory or by commit.fetch. */
static bp_err find_data(const bp_async_checkpoint *pending, int64_t index, const float **data)
{
    const bp_checkpoint_commit *commit = &pending->commit;

    *data = pending->slices[index].data;
    if (*data)
        return BP_OK;
    return commit->fetch(commit->context, &pending->slices[index], index, data);
}

/* Notes progress. Errors: BP_ERR_STOPPED the checkpoint is given up. */
static bp_err go_on(bp_async_checkpoint *pending)
{
    (void)atomic_fetch_add(&pending->moved, 1);
    bp_heartbeat_progress();
    return atomic_load(&pending->given_up)
               ? BP_FAIL(BP_ERR_STOPPED, "checkpoint.cancelled", "a checkpoint is given up: at %s",
                         pending->name)
               : BP_OK;
}

/* ---- the parts of a piece ---- */

static bp_err ask_part(bp_async_checkpoint *pending, const bp_plan_slice *piece, int64_t k,
                       const bp_part *part, float *scratch)
{
    int64_t request[2] = {piece->index, k};
    MPI_Status status;
    int got;

    BP_MPI_WAIT("send", MPI_Send(request, 2, MPI_INT64_T, piece->group_rank, TAG_REQUEST,
                                 pending->plan.group));
    BP_MPI_WAIT("recv", MPI_Recv(scratch, bp_mpi_count(part->count), MPI_FLOAT, piece->group_rank,
                                 TAG_PART, pending->plan.group, &status));
    BP_MPI(MPI_Get_count(&status, MPI_FLOAT, &got));
    pending->refused = got != part->count;
    if (pending->refused)
        return BP_FAIL(BP_ERR_SYSTEM, "tensor.not_given",
                       "the rank that holds tensor '%s' can't give it", piece->slice.name);
    return BP_OK;
}

/* base: the data of a piece on this rank; NULL: on another rank. */
static bp_err get_part(bp_async_checkpoint *pending, const bp_plan_slice *piece, int64_t k,
                       const bp_part *part, const float *base, float *scratch, const float **values)
{
    bp_err err = go_on(pending);

    if (err != BP_OK)
        return err;
    if (pending->commit.snapshot)
        return bp_snapshot_read(pending->commit.snapshot, piece->group_rank,
                                piece->place + part->first, part->count, scratch, values);
    *values = base ? base + part->first : scratch;
    return base ? BP_OK : ask_part(pending, piece, k, part, scratch);
}

/* Adds data not seen before to the digest of its tensor, and checks that it is finite. */
static bp_err count_part(bp_plan_slice *piece, const bp_part *part, const float *values)
{
    bp_slice slice = bp_slice_of_part(&piece->slice, part);

    if (!bp_are_finite(values, part->count))
        return BP_FAIL(BP_ERR_SOFTWARE, "tensor.not_finite",
                       "tensor '%s' holds a value that is not finite: no checkpoint is made of it",
                       slice.name);
    bp_slice_digest(&piece->digest, &slice, values);
    return BP_OK;
}

/* ---- throttling ---- */

/* If every core computes, a step's threads wait for the one that a helper preempts. Throttling
 * spreads this over many steps, and avoids bursts on shared disks. */
static void keep_pace(bp_file_job *job)
{
    const bp_async_checkpoint *pending = job->pending;
    double share = PACE_SHARE / pending->plan.files;

    while (pending->commit.snapshot && !atomic_load(&pending->awaited) &&
           !atomic_load(&pending->given_up)) {
        double used = bp_clock_thread() - job->used - PACE_FREE_SECONDS;
        double since = bp_clock_now() - job->began;

        if (used / share < since + PACE_SLEEP_SECONDS || since > PACE_MOST_SECONDS)
            return;
        bp_clock_sleep(PACE_SLEEP_SECONDS);
        job->busy_seconds -= PACE_SLEEP_SECONDS;
    }
}

static bp_err write_piece(bp_file_job *job, bp_shard *shard, bp_plan_slice *piece, float *scratch)
{
    bp_async_checkpoint *pending = job->pending;
    const float *base = NULL, *values;
    bp_part part;
    bp_err err = BP_OK;

    if (!pending->commit.snapshot && piece->group_rank == 0)
        err = find_data(pending, piece->index, &base);
    for (int64_t k = 0; err == BP_OK && bp_slice_part(&part, &piece->slice, BP_PART_FLOATS, k);
         k++) {
        err = get_part(pending, piece, k, &part, base, scratch, &values);
        if (err == BP_OK && !pending->commit.snapshot)
            err = count_part(piece, &part, values);
        if (err == BP_OK)
            err = bp_shard_write(shard, piece, &part, values);
        if (err == BP_OK)
            keep_pace(job);
    }
    return err;
}

/* ---- a file ---- */

static int by_address(const void *a, const void *b)
{
    const bp_plan_slice *p = a, *q = b;

    return (p->address > q->address) - (p->address < q->address);
}

/* HDF5 lays out the file under its lock, which the corpus reader needs too: without throttling. */
static bp_err lay_out(bp_file_job *job, bp_shard *shard)
{
    bp_err err = BP_OK;

    for (int64_t k = 0; k < job->count && err == BP_OK; k++) {
        bp_plan_slice *slice = &job->pieces[k];

        if (slice->before == 0)
            err = bp_shard_add(shard, slice);
        else
            slice->address =
                slice[-1].address + (slice->before - slice[-1].before) * (int64_t)sizeof(float);
    }
    if (err == BP_OK)
        err = bp_shard_lay_out(shard);
    qsort(job->pieces, (size_t)job->count, sizeof *job->pieces, by_address);
    if (job->pending->commit.snapshot) {
        bp_cores_step_aside();
        job->began = bp_clock_now();
        job->used = bp_clock_thread();
    }
    return err;
}

/* Compares the data read back from disk with what was written. */
static bp_err read_back(bp_file_job *job, bp_shard *shard)
{
    bool more = true;
    bp_err err = BP_OK;

    while (err == BP_OK && more) {
        err = go_on(job->pending);
        if (err == BP_OK)
            err = bp_shard_read_back(shard, &more, job->receipt->xxh3, &job->receipt->bytes);
        if (err == BP_OK)
            keep_pace(job);
    }
    return err;
}

static bp_err write_file(bp_file_job *job)
{
    const bp_async_checkpoint *pending = job->pending;
    char *path = bp_sprintf("%s/shard-%05d.h5", pending->hidden, pending->plan.shard + job->number);
    bp_shard *shard = NULL;
    float *scratch = bp_alloc("save.part", BP_PART_FLOATS, sizeof *scratch);
    bp_err err = bp_shard_create(&shard, path);

    if (err == BP_OK)
        err = lay_out(job, shard);
    for (int64_t k = 0; k < job->count && err == BP_OK; k++)
        err = write_piece(job, shard, &job->pieces[k], scratch);
    if (err == BP_OK)
        err = bp_shard_seal(shard);
    if (err == BP_OK)
        err = read_back(job, shard);
    bp_shard_free(&shard);
    bp_free(scratch);
    bp_free(path);
    return err;
}

/* One job per file, with its run of the pieces. */
static void list_jobs(bp_async_checkpoint *pending)
{
    const bp_plan *plan = &pending->plan;
    int64_t k = 0;

    pending->mine = (bp_receipt){.shard = plan->shard, .files = plan->files, .pieces = plan->count};
    for (int number = 0; number < plan->files; number++) {
        bp_file_job *job = &pending->jobs[number];

        job->pending = pending;
        job->number = number;
        job->receipt = &pending->mine.file[number];
        job->pieces = plan->pieces + k;
        while (k < plan->count && plan->pieces[k].shard == plan->shard + number)
            k++;
        job->count = plan->pieces + k - job->pieces;
    }
}

/* ---- synchronous ---- */

/* Sends parts until the writer has enough. An unavailable part is sent as an empty message. */
static bp_err serve_requests(const bp_async_checkpoint *pending)
{
    bp_err err = BP_OK;

    for (;;) {
        int64_t request[2];
        const float *data = NULL;
        bp_part part;
        int count = 0;

        BP_MPI_WAIT("recv", MPI_Recv(request, 2, MPI_INT64_T, 0, TAG_REQUEST, pending->plan.group,
                                     MPI_STATUS_IGNORE));
        if (request[0] < 0)
            return err;
        if (err == BP_OK)
            err = find_data(pending, request[0], &data);
        if (err == BP_OK) {
            BP_ASSERT(
                bp_slice_part(&part, &pending->slices[request[0]], BP_PART_FLOATS, request[1]));
            count = bp_mpi_count(part.count);
            data += part.first;
        }
        BP_MPI_WAIT("send", MPI_Send(data, count, MPI_FLOAT, 0, TAG_PART, pending->plan.group));
    }
}

bp_err bp_async_checkpoint_write(bp_async_checkpoint *pending)
{
    const int64_t end[2] = {-1, 0};
    bp_err err = BP_OK;

    list_jobs(pending);
    if (bp_comm_rank(pending->plan.group) != 0)
        return serve_requests(pending);
    for (int k = 0; k < pending->plan.files && err == BP_OK; k++)
        err = write_file(&pending->jobs[k]);
    for (int rank = 1; rank < bp_comm_size(pending->plan.group); rank++)
        BP_MPI_WAIT("send", MPI_Send(end, 2, MPI_INT64_T, rank, TAG_REQUEST, pending->plan.group));
    return pending->refused ? BP_OK : err; /* the owner reports why */
}

/* ---- asynchronous ---- */

/* After one failure the others' work is useless. */
static void ended(bp_file_job *job, bp_err err)
{
    bp_async_checkpoint *pending = job->pending;
    int writes = BP_ASYNC_CHECKPOINT_WRITES;

    job->err = err;
    if (err != BP_OK) {
        (void)snprintf(job->message, sizeof job->message, "%s", bp_err_message());
        atomic_store(&pending->given_up, true);
        atomic_store(&pending->writing, BP_ASYNC_CHECKPOINT_FAILED);
    }
    if (atomic_fetch_sub(&pending->left, 1) == 1) /* no failure is overwritten */
        (void)atomic_compare_exchange_strong(&pending->writing, &writes, BP_ASYNC_CHECKPOINT_DONE);
}

/* A timeline shows the first file. */
static void *run_helper(void *argument)
{
    bp_file_job *job = argument;

    bp_heartbeat_beside();
    if (job->number == 0) {
        bp_trace_thread(BP_TRACE_WRITER);
        bp_trace_begin(BP_TRACE_CHECKPOINT, 0, 0);
    }
    double began = bp_clock_now();
    bp_err err = write_file(job);
    job->busy_seconds += bp_clock_now() - began;
    if (job->number == 0) {
        bp_trace_end();
        bp_trace_thread_end();
    }
    ended(job, err);
    return NULL;
}

void bp_async_checkpoint_start(bp_async_checkpoint *pending)
{
    list_jobs(pending);
    atomic_store(&pending->left, pending->plan.files);
    atomic_store(&pending->writing,
                 pending->plan.files > 0 ? BP_ASYNC_CHECKPOINT_WRITES : BP_ASYNC_CHECKPOINT_DONE);
    for (int k = 0; k < pending->plan.files; k++) {
        bp_file_job *job = &pending->jobs[k];
        bp_err err = bp_thread_start(&job->helper, "checkpoint", run_helper, job);

        job->helped = err == BP_OK;
        if (err != BP_OK)
            ended(job, bp_err_wrap(err, "%s, or set checkpoint.async=no", bp_err_text()));
    }
}

/* The helpers' progress counts as this rank's progress only while it waits, so a rank whose step
 * hangs is detected whatever its helpers do. */
bp_err bp_async_checkpoint_wait(bp_async_checkpoint *pending)
{
    const bp_file_job *worst = NULL;
    long seen = -1;

    BP_TRACE(BP_TRACE_WRITER_WAIT, 0, 0);
    atomic_store(&pending->awaited, true);
    while (atomic_load(&pending->left) > 0) {
        long moved = atomic_load(&pending->moved);

        if (moved != seen)
            bp_heartbeat_progress();
        seen = moved;
        bp_clock_sleep(POLL_SECONDS);
    }
    for (int k = 0; k < pending->plan.files; k++) {
        bp_file_job *job = &pending->jobs[k];

        if (job->helped)
            BP_CHECK(pthread_join(job->helper, NULL) == 0);
        job->helped = false;
        if (!worst || bp_err_severity(job->err) > bp_err_severity(worst->err))
            worst = job;
    }
    if (!worst || worst->err == BP_OK)
        return BP_OK;
    bp_err_set_message(worst->message);
    return worst->err;
}
