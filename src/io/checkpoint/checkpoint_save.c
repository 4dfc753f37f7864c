/* Saving a checkpoint: into a hidden folder, flushed, hashed, listed, and only then renamed into
 * place. commit_steps.c decides the next operation; this file executes it, and all ranks agree on
 * its result. */
#include "base/fault.h"
#include "base/files/fence.h"
#include "base/files/fs.h"
#include "base/files/hidden.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "io/checkpoint/checkpoint_save_priv.h"
#include "mesh/collective.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAG_TALLIES 3

/* ---- the plan: this rank's slices, described ---- */

/* Empty slices are omitted. */
static bp_err describe_slices(const bp_async_checkpoint *pending, bp_plan_slice *out,
                              int64_t *count)
{
    const bp_checkpoint_commit *commit = &pending->commit;

    *count = 0;
    for (int64_t k = 0; k < pending->count; k++) {
        const bp_slice *slice = &pending->slices[k];

        if (bp_slice_check(slice) != BP_OK)
            return bp_err_prefix(BP_ERR_SOFTWARE, "a slice to save");
        if (bp_checked_volume(slice->dims, slice->extent) == 0)
            continue;
        bp_plan_slice *one = &out[(*count)++];

        *one = (bp_plan_slice){.slice = {.dims = slice->dims}, .index = k};
        memcpy(one->slice.name, slice->name, strlen(slice->name) + 1);
        for (int d = 0; d < slice->dims; d++) {
            one->slice.shape[d] = slice->shape[d];
            one->slice.offset[d] = slice->offset[d];
            one->slice.extent[d] = slice->extent[d];
        }
        if (commit->snapshot) {
            one->place = bp_snapshot_place(commit->snapshot, slice->data);
            one->digest = commit->digests[k];
        }
    }
    return BP_OK;
}

/* Each rank writes its own copy if other ranks can't read it. */
static int writers_of(const bp_async_checkpoint *pending)
{
    const bp_checkpoint_commit *commit = &pending->commit;

    if (!commit->snapshot)
        return commit->writers;
    BP_ASSERT(commit->writers == 0); /* which ranks can read which copies is already known */
    return bp_snapshot_is_shared(commit->snapshot) ? 0 : bp_comm_size(pending->comm);
}

static bp_err plan(bp_async_checkpoint *pending)
{
    bp_plan_slice *slices = bp_alloc("save.slices", pending->count, sizeof *slices);
    int64_t count;
    bp_err err = bp_agree(pending->comm, describe_slices(pending, slices, &count));

    if (err == BP_OK)
        err = bp_plan_init(&pending->plan, pending->comm, writers_of(pending),
                           pending->commit.file_bytes, slices, count);
    bp_free(slices);
    if (err == BP_OK && pending->root)
        bp_commit_expect(&pending->steps, pending->plan.manifest->file_count);
    return err;
}

/* By its whole text, with at least as many digits as the final one. */
static bp_err check_length(bp_manifest *manifest)
{
    char *text = NULL;
    bp_err err;

    for (int64_t k = 0; k < manifest->file_count; k++) {
        manifest->files[k].bytes = INT64_MAX;
        memset(manifest->files[k].sha256, '0', BP_SHA256_HEX - 1);
    }
    manifest->state = json_object();
    err = bp_manifest_text(manifest, &text);
    bp_free(text);
    return err == BP_OK
               ? err
               : BP_FAIL(BP_ERR_CONFIG, "checkpoint.too_many_pieces",
                         "a checkpoint of this mesh has %lld pieces in %lld files, and its "
                         "manifest.json would be longer than %lld MiB: at mesh.data; use "
                         "fewer data ranks, or more mesh.tensor or mesh.pipeline",
                         (long long)manifest->piece_count, (long long)manifest->file_count,
                         (long long)(bp_manifest_limit_bytes >> 20));
}

bp_err bp_checkpoint_check_size(MPI_Comm comm, const bp_checkpoint_commit *commit,
                                const bp_slice *slices, int64_t count)
{
    bp_digest *digests = bp_alloc("save.digests", count, sizeof *digests);
    bp_async_checkpoint tried = {.comm = comm, .slices = slices, .count = count, .commit = *commit};
    bp_err err;

    tried.commit.digests = digests;
    tried.plan.group = MPI_COMM_NULL;
    err = plan(&tried);
    if (err == BP_OK)
        err = bp_agree(comm, tried.plan.manifest ? check_length(tried.plan.manifest) : BP_OK);
    bp_plan_clear(&tried.plan);
    bp_free(digests);
    return err;
}

/* ---- the hidden folder ---- */

static bp_err make_hidden(bp_async_checkpoint *pending)
{
    bp_err err = BP_OK;

    if (pending->root && bp_path_exists(pending->final))
        err = BP_FAIL(BP_ERR_CREATE, "file.in_the_way",
                      "something is there already: at %s; move it away", pending->final);
    else if (pending->root && bp_fault("ckpt.mkdir_tmp"))
        err = bp_fail_create("can't create the folder", pending->final);
    else if (pending->root)
        err = bp_hidden_make(pending->final, BP_HIDDEN_FOLDER, &pending->hidden, &pending->lock);
    err = bp_agree(pending->comm, err);
    if (err == BP_OK)
        bp_bcast_text(&pending->hidden, 0, pending->comm);
    return err;
}

/* ---- size and hash of the closed files, and digests of their contents, to the root ---- */

static bp_err end_writing(bp_async_checkpoint *pending)
{
    if (!pending->commit.snapshot)
        return bp_async_checkpoint_write(pending);
    bp_err err = bp_async_checkpoint_wait(pending);
    bp_barrier_asleep("barrier", pending->comm); /* helpers of low priority need cores */
    return err;
}

/* The digest of a piece, and the tensor in the manifest that it belongs to. */
typedef struct tally {
    int64_t tensor;
    bp_digest digest;
} tally;

static void take_report(bp_async_checkpoint *pending, const bp_receipt *receipt, const tally *list)
{
    bp_manifest *manifest = pending->plan.manifest;

    for (int64_t k = 0; k < receipt->files; k++) {
        bp_manifest_file *file = &manifest->files[receipt->shard + k];

        file->bytes = receipt->file[k].bytes;
        memcpy(file->xxh3, receipt->file[k].xxh3, sizeof file->xxh3);
        bp_commit_report(&pending->steps);
    }
    for (int64_t k = 0; k < receipt->pieces; k++)
        bp_digest_merge(&manifest->tensors[list[k].tensor].digest, &list[k].digest);
}

/* One writer after the other: there is one per node. */
static bp_err collect_reports(bp_async_checkpoint *pending)
{
    const bp_plan *plan = &pending->plan;
    int size = pending->root ? bp_comm_size(pending->comm) : 0;
    bp_receipt *all = bp_alloc("save.receipts", size, sizeof *all);
    tally *list = bp_alloc("save.tallies", plan->count, sizeof *list);

    for (int64_t k = 0; k < plan->count; k++)
        list[k] = (tally){plan->pieces[k].tensor, plan->pieces[k].digest};
    BP_MPI_WAIT("gather", MPI_Gather(&pending->mine, (int)sizeof *all, MPI_BYTE, all,
                                     (int)sizeof *all, MPI_BYTE, 0, pending->comm));
    if (!pending->root && plan->count > 0)
        bp_send(list, plan->count * (int64_t)sizeof *list, 0, TAG_TALLIES, pending->comm);
    for (int rank = 0; rank < size; rank++) {
        if (rank > 0 && all[rank].pieces > 0) {
            list = bp_realloc("save.tallies", list, all[rank].pieces, sizeof *list);
            bp_recv(list, all[rank].pieces * (int64_t)sizeof *list, rank, TAG_TALLIES,
                    pending->comm);
        }
        take_report(pending, &all[rank], list);
    }
    bp_free(list);
    bp_free(all);
    if (!bp_commit_is_reported(&pending->steps))
        return BP_FAIL(BP_ERR_SOFTWARE, "checkpoint.lost_report",
                       "%lld of %lld files of a checkpoint were reported",
                       (long long)pending->steps.reports, (long long)pending->steps.writers);
    return BP_OK;
}

/* ---- the root: files checked, listed, and put in place ---- */

/* Checks from its own node that every shard is a complete, regular file. */
static bp_err recheck(const bp_async_checkpoint *pending)
{
    const bp_manifest *manifest = pending->plan.manifest;
    bp_err err = BP_OK;

    if (bp_fault("ckpt.verify"))
        return bp_fail_errno(BP_ERR_IO, "can't look at what was just written", pending->hidden);
    for (int64_t k = 0; k < manifest->file_count && err == BP_OK; k++) {
        const bp_manifest_file *file = &manifest->files[k];
        char *path = bp_path_join(pending->hidden, file->name);
        struct stat status;

        if (lstat(path, &status) != 0)
            err = bp_fail_errno(BP_ERR_IO, "a file that was just written can't be seen", path);
        else if (!S_ISREG(status.st_mode) || status.st_nlink != 1 || status.st_size != file->bytes)
            err = BP_FAIL(BP_ERR_IO, "checkpoint.not_written",
                          "a file that was just written has %lld bytes instead of %lld: at %s",
                          (long long)status.st_size, (long long)file->bytes, path);
        bp_free(path);
    }
    return err;
}

static bp_err write_beside(const bp_async_checkpoint *pending, const char *name, const char *text,
                           char sha256[BP_SHA256_HEX])
{
    char *path = bp_path_join(pending->hidden, name);
    bp_err err = bp_file_write(path, text, strlen(text));

    bp_sha256_of(text, strlen(text), sha256);
    bp_free(path);
    return err;
}

static bp_err write_tokenizer(const bp_async_checkpoint *pending)
{
    bp_manifest *manifest = pending->plan.manifest;
    bp_manifest_file *file =
        &manifest->files[manifest->file_count]; /* the plan left an entry for it */
    const char *text = pending->commit.tokenizer;

    if (!text)
        return BP_OK;
    (void)snprintf(file->name, sizeof file->name, "tokenizer.json");
    file->bytes = (int64_t)strlen(text);
    manifest->file_count++;
    return write_beside(pending, file->name, text, file->sha256);
}

/* The file's new name is on disk only once the hidden folder is. */
static bp_err take_attachment(const bp_async_checkpoint *pending)
{
    bp_manifest *manifest = pending->plan.manifest;
    bp_manifest_file *file = &manifest->files[manifest->file_count];
    bp_user_block block;
    bp_err err;

    if (!pending->commit.attachment)
        return BP_OK;
    BP_ASSERT(manifest->file_count == 0); /* files are listed by name */
    err = bp_user_block_read(&block, pending->commit.attachment);
    if (err == BP_OK)
        err = bp_rename_new(pending->commit.attachment,
                            bp_path_in(pending->hidden, BP_CHECKPOINT_ATTACHMENT).text);
    if (err != BP_OK)
        return err;
    (void)snprintf(file->name, sizeof file->name, "%s", BP_CHECKPOINT_ATTACHMENT);
    file->bytes = block.bytes;
    memcpy(file->xxh3, block.hash, sizeof file->xxh3);
    manifest->file_count++;
    return BP_OK;
}

static bp_err write_manifest(const bp_async_checkpoint *pending)
{
    char *text = NULL, sha256[BP_SHA256_HEX], line[BP_SHA256_HEX + 20], ignored[BP_SHA256_HEX];
    bp_err err;

    pending->plan.manifest->state = json_incref(pending->state);
    err = bp_manifest_text(pending->plan.manifest, &text);
    if (err == BP_OK)
        err = write_beside(pending, "manifest.json", text, sha256);
    if (err == BP_OK && bp_fault("ckpt.manifest_half"))
        err = bp_fail_errno(BP_ERR_IO, "can't write", pending->hidden);
    if (err == BP_OK) {
        (void)snprintf(line, sizeof line, "%s  manifest.json\n", sha256);
        err = write_beside(pending, "manifest.sha256", line, ignored);
    }
    bp_free(text);
    if (err == BP_OK && bp_fault("ckpt.manifest_fsync"))
        err = bp_fail_errno(BP_ERR_IO, "can't bring to disk", pending->hidden);
    return err == BP_OK ? bp_path_sync(pending->hidden) : err;
}

/* ---- after a failure ---- */

/* Removes hidden files. Those that can't be removed now are removed at the next start
 * (bp_checkpoints_clean). The first failure is the one to report. */
static bp_err remove_hidden(const bp_async_checkpoint *pending)
{
    char message[BP_ERR_MESSAGE_BYTES];
    bp_err err;

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    err = bp_dir_remove(pending->hidden);
    if (err != BP_OK)
        bp_warn_failure("what is left of a checkpoint stays: %s", bp_err_text());
    bp_err_set_message(message);
    return err;
}

/* If a job has lost the run, the next owner removes its files: report that instead of `err`. */
static bp_err explain(const bp_async_checkpoint *pending, bp_err err)
{
    bool at_files = pending->steps.step > BP_COMMIT_MAKE && pending->steps.step != BP_COMMIT_OWNER;
    char message[BP_ERR_MESSAGE_BYTES];
    bp_err lost;

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    lost = at_files ? bp_fence_check() : BP_OK;
    if (lost == BP_OK)
        bp_err_set_message(message);
    return lost == BP_OK ? err : lost;
}

/* ---- all of it ---- */

static bp_err take_step_of_root(const bp_async_checkpoint *pending)
{
    bp_err err;

    switch (pending->steps.step) {
    case BP_COMMIT_SYNC_MADE:
        return bp_path_sync(pending->parent);
    case BP_COMMIT_RECHECK:
        return recheck(pending);
    case BP_COMMIT_LIST:
        err = take_attachment(pending);
        if (err == BP_OK)
            err = write_tokenizer(pending);
        return err == BP_OK ? write_manifest(pending) : err;
    case BP_COMMIT_OWNER:
        return bp_fault("ckpt.fence_check")
                   ? bp_fail_errno(BP_ERR_IO, "can't look at the lock", pending->parent)
                   : bp_fence_check();
    case BP_COMMIT_PLACE:
        return bp_fault("ckpt.rename")
                   ? BP_FAIL(BP_ERR_IO, "fault.injected", "can't rename (fault injected)")
                   : bp_rename_new(pending->hidden, pending->final);
    case BP_COMMIT_SYNC_PLACED:
        return bp_fault("ckpt.fsync_dir")
                   ? BP_FAIL(BP_ERR_IO, "fault.injected",
                             "can't bring the folder to disk (fault injected)")
                   : bp_path_sync(pending->parent);
    default:
        return remove_hidden(pending);
    }
}

static bp_err take_step(bp_async_checkpoint *pending)
{
    switch (pending->steps.step) {
    case BP_COMMIT_PLAN:
        return plan(pending);
    case BP_COMMIT_MAKE:
        return make_hidden(pending);
    case BP_COMMIT_WRITE:
        return end_writing(pending);
    case BP_COMMIT_REPORTS:
        return collect_reports(pending);
    default:
        return pending->root ? take_step_of_root(pending) : BP_OK;
    }
}

/* Executes steps up to `until`, or to the end. */
static bp_err advance(bp_async_checkpoint *pending, bp_commit_step until)
{
    bp_err first = BP_OK;

    while (!bp_commit_is_over(&pending->steps) && pending->steps.step != until) {
        bp_err err = bp_agree(pending->comm, take_step(pending));

        if (err != BP_OK && first == BP_OK)
            first = bp_agree(pending->comm, pending->root ? explain(pending, err) : BP_OK);
        bp_commit_next(&pending->steps, err == BP_OK);
    }
    return first;
}

static void free_pending(bp_async_checkpoint **at)
{
    bp_async_checkpoint *pending = *at;

    *at = NULL;
    BP_ASSERT(atomic_load(&pending->left) == 0);
    bp_plan_clear(&pending->plan);
    json_decref(pending->state);
    bp_free(pending->parent);
    bp_free(pending->name);
    if (pending->lock >= 0)
        (void)close(pending->lock);
    bp_free(pending->hidden);
    bp_free(pending->final);
    bp_free(pending);
}

bp_err bp_checkpoint_begin(bp_async_checkpoint **out, MPI_Comm comm,
                           const bp_checkpoint_commit *commit, const bp_slice *slices,
                           int64_t count, const json_t *state)
{
    bp_async_checkpoint *pending = bp_alloc("save", 1, sizeof *pending);
    bp_err err;

    BP_ASSERT(!commit->snapshot || commit->digests || count == 0);
    pending->comm = comm;
    pending->lock = -1;
    pending->root = bp_comm_is_root(comm);
    pending->commit = *commit;
    pending->plan.group = MPI_COMM_NULL;
    pending->commit.parent = pending->parent = bp_strdup(commit->parent);
    pending->commit.name = pending->name = bp_strdup(commit->name);
    pending->final = bp_path_join(pending->parent, pending->name);
    pending->slices = slices;
    pending->count = count;
    pending->state = json_incref((json_t *)state); /* a count: the content stays as it is */
    bp_commit_begin(&pending->steps);
    err = advance(pending, BP_COMMIT_WRITE);
    if (err != BP_OK)
        free_pending(&pending);
    else if (commit->snapshot)
        bp_async_checkpoint_start(pending);
    *out = pending;
    return err;
}

bp_async_checkpoint_state bp_checkpoint_poll(const bp_async_checkpoint *pending)
{
    return (bp_async_checkpoint_state)atomic_load(&pending->writing);
}

void bp_checkpoint_cancel(bp_async_checkpoint *pending)
{
    atomic_store(&pending->given_up, true);
}

/* busy_seconds excludes sleeps: they end when a rank waits, so estimates can't use them. */
bp_err bp_checkpoint_finish(bp_async_checkpoint **at)
{
    bp_async_checkpoint *pending = *at;
    bp_err err = advance(pending, BP_COMMIT_DONE);

    if (pending->commit.busy_seconds) {
        float busy_seconds = 0;

        for (int k = 0; k < pending->plan.files; k++)
            busy_seconds = fmaxf(busy_seconds, (float)pending->jobs[k].busy_seconds);
        bp_all_max(&busy_seconds, 1, pending->comm);
        *pending->commit.busy_seconds = (double)busy_seconds;
    }
    free_pending(at);
    return err;
}

bp_err bp_checkpoint_save(MPI_Comm comm, const bp_checkpoint_commit *commit, const bp_slice *slices,
                          int64_t count, const json_t *state)
{
    bp_async_checkpoint *pending;
    bp_checkpoint_commit at_once = *commit;

    at_once.snapshot = NULL;
    bp_err err = bp_checkpoint_begin(&pending, comm, &at_once, slices, count, state);
    return err == BP_OK ? bp_checkpoint_finish(&pending) : err;
}
