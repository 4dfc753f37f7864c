/* Saving a checkpoint: into a hidden folder, flushed, hashed, listed, and only then renamed into
 * place. Which operation comes next, commit_steps.c decides; here they are done, and all ranks
 * agree on how each went. */
#include "base/fault.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint_save_priv.h"
#include "io/checkpoint/hidden_folder.h"
#include "mesh/collective.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAG_TALLIES 3

/* ---- describing this rank's slices ---- */

static bp_plan_slice describe(const bp_async_checkpoint *saving, int64_t index)
{
    const bp_slice *slice = &saving->slices[index];
    bp_plan_slice out = {.dims = slice->dims, .index = index};

    memcpy(out.name, slice->name, strlen(slice->name) + 1);
    for (int d = 0; d < slice->dims; d++) {
        out.shape[d] = slice->shape[d];
        out.offset[d] = slice->offset[d];
        out.extent[d] = slice->extent[d];
    }
    if (saving->commit.snapshot != NULL) {
        out.place = bp_snapshot_place(saving->commit.snapshot, slice->data);
        out.digest = saving->commit.digests[index];
    }
    return out;
}

/* Empty slices are left out. */
static bp_err describe_all(const bp_async_checkpoint *saving, bp_plan_slice **out, int64_t *count)
{
    bp_err err = BP_OK;

    *count = 0;
    *out = bp_alloc("save.slices", saving->count, sizeof **out);
    for (int64_t k = 0; k < saving->count && err == BP_OK; k++) {
        const bp_slice *slice = &saving->slices[k];
        int64_t volume;

        err = bp_slice_check(slice);
        if (err != BP_OK)
            return bp_err_prefix(BP_ERR_SOFTWARE, "a slice to save");
        (void)bp_slice_volume(slice->dims, slice->extent, &volume);
        if (volume > 0)
            (*out)[(*count)++] = describe(saving, k);
    }
    return err;
}

/* From copies that nobody else can read each rank writes itself. */
static int writers_of(const bp_async_checkpoint *saving)
{
    const bp_checkpoint_commit *commit = &saving->commit;

    if (commit->snapshot == NULL)
        return commit->writers;
    BP_ASSERT(commit->writers == 0); /* who can read whose copy is settled already */
    return bp_snapshot_is_shared(commit->snapshot) ? 0 : bp_comm_size(saving->comm);
}

static bp_err plan(bp_async_checkpoint *saving)
{
    bp_plan_slice *slices = NULL;
    int64_t count;
    bp_err err = bp_agree(saving->comm, describe_all(saving, &slices, &count));

    if (err == BP_OK)
        err = bp_plan_init(
            &saving->plan, saving->comm,
            &(bp_plan_spec){.writers = writers_of(saving), .file_bytes = saving->commit.file_bytes},
            slices, count);
    bp_free(slices);
    if (err == BP_OK && saving->root)
        bp_commit_expect(&saving->steps, saving->plan.manifest->file_count);
    return err;
}

/* ---- the hidden folder ---- */

static bp_err make_hidden(bp_async_checkpoint *saving)
{
    if (bp_path_exists(saving->final))
        return BP_FAIL(BP_ERR_CREATE, "something is there already: at %s; move it away",
                       saving->final);
    errno = EIO;
    if (bp_fault("ckpt.mkdir_tmp"))
        return bp_fail_create("can't create the folder", saving->final);
    return bp_hidden_make(saving->final, &saving->hidden, &saving->lock);
}

static bp_err make_and_share_hidden(bp_async_checkpoint *saving)
{
    bp_err err;

    saving->final = bp_path_join(saving->parent, saving->name);
    err = saving->root ? make_hidden(saving) : BP_OK;
    err = bp_agree(saving->comm, err);
    if (err == BP_OK)
        bp_bcast_text(&saving->hidden, 0, saving->comm);
    return err;
}

/* ---- size and hash of the closed files, and digests of what is in them, to the root ---- */

/* The digest of a piece, and the tensor in the manifest that it belongs to. */
typedef struct tally {
    int64_t tensor;
    bp_digest digest;
} tally;

static void take_receipt(bp_async_checkpoint *saving, const bp_receipt *receipt)
{
    for (int64_t k = 0; k < receipt->files; k++) {
        bp_manifest_file *file = &saving->plan.manifest->files[receipt->shard + k];

        file->bytes = receipt->file[k].bytes;
        memcpy(file->xxh3, receipt->file[k].xxh3, sizeof file->xxh3);
        bp_commit_report(&saving->steps);
    }
}

/* One writer after the other: there is one a node. */
static bp_err collect_tallies(bp_async_checkpoint *saving, const bp_receipt *all)
{
    bp_manifest *manifest = saving->plan.manifest;
    int64_t pieces = saving->plan.count;
    tally *list;

    for (int rank = 0; saving->root && rank < bp_comm_size(saving->comm); rank++)
        pieces = all[rank].pieces > pieces ? all[rank].pieces : pieces;
    list = bp_alloc("save.tallies", pieces, sizeof *list);
    bp_err err = bp_agree(saving->comm, BP_OK);
    for (int64_t k = 0; err == BP_OK && k < saving->plan.count; k++)
        list[k] = (tally){saving->plan.pieces[k].tensor, saving->plan.pieces[k].digest};
    if (err == BP_OK && !saving->root && saving->plan.count > 0)
        bp_send(list, saving->plan.count * (int64_t)sizeof *list, 0, TAG_TALLIES, saving->comm);
    for (int rank = 0; err == BP_OK && saving->root && rank < bp_comm_size(saving->comm); rank++) {
        if (rank > 0 && all[rank].pieces > 0)
            bp_recv(list, all[rank].pieces * (int64_t)sizeof *list, rank, TAG_TALLIES,
                    saving->comm);
        for (int64_t k = 0; k < all[rank].pieces; k++)
            bp_digest_merge(&manifest->tensors[list[k].tensor].digest, &list[k].digest);
    }
    bp_free(list);
    return err;
}

static bp_err collect_receipts(bp_async_checkpoint *saving)
{
    int size = bp_comm_size(saving->comm);
    bp_receipt *all = saving->root ? bp_alloc("save.receipts", size, sizeof *all) : NULL;
    bp_err err = BP_OK;

    err = bp_agree(saving->comm, err);
    if (err == BP_OK) {
        BP_MPI_WAIT("gather", MPI_Gather(&saving->mine, (int)sizeof *all, MPI_BYTE, all,
                                         (int)sizeof *all, MPI_BYTE, 0, saving->comm));
        for (int rank = 0; saving->root && rank < size; rank++)
            take_receipt(saving, &all[rank]);
        err = collect_tallies(saving, all);
    }
    bp_free(all);
    if (err == BP_OK && !bp_commit_is_reported(&saving->steps))
        err = BP_FAIL(BP_ERR_SOFTWARE, "%lld of %lld files of a checkpoint were reported",
                      (long long)saving->steps.reports, (long long)saving->steps.writers);
    return err;
}

/* ---- all of it ---- */

static bp_err end_writing(bp_async_checkpoint *saving)
{
    if (saving->commit.snapshot == NULL)
        return bp_async_checkpoint_write(saving);
    bp_err err = bp_async_checkpoint_wait(saving);
    bp_barrier_asleep("barrier", saving->comm); /* helpers of low priority need cores */
    return err;
}

static bp_err take_step(bp_async_checkpoint *saving)
{
    bool root = saving->root;

    switch (saving->steps.step) {
    case BP_COMMIT_PLAN:
        return plan(saving);
    case BP_COMMIT_MAKE:
        return make_and_share_hidden(saving);
    case BP_COMMIT_SYNC_MADE:
        return root ? bp_path_sync(saving->parent) : BP_OK;
    case BP_COMMIT_WRITE:
        return end_writing(saving);
    case BP_COMMIT_REPORTS:
        return collect_receipts(saving);
    case BP_COMMIT_RECHECK:
        return root ? bp_async_checkpoint_recheck(saving) : BP_OK;
    case BP_COMMIT_LIST:
        return root ? bp_async_checkpoint_list(saving) : BP_OK;
    case BP_COMMIT_OWNER:
        return root ? bp_async_checkpoint_check_owner(saving) : BP_OK;
    case BP_COMMIT_PLACE:
        return root ? bp_async_checkpoint_place(saving) : BP_OK;
    case BP_COMMIT_SYNC_PLACED:
        return root ? bp_async_checkpoint_sync_placed(saving) : BP_OK;
    default:
        return root ? bp_async_checkpoint_remove(saving) : BP_OK;
    }
}

/* Step after step up to `until`, or to the end. */
static bp_err advance(bp_async_checkpoint *saving, bp_commit_step until)
{
    bp_err first = BP_OK;

    while (!bp_commit_is_over(&saving->steps) && saving->steps.step != until) {
        bp_err err = bp_agree(saving->comm, take_step(saving));

        if (err != BP_OK && first == BP_OK)
            first = bp_agree(saving->comm,
                             saving->root ? bp_async_checkpoint_explain(saving, err) : BP_OK);
        bp_commit_next(&saving->steps, err == BP_OK);
    }
    return first;
}

static void free_saving(bp_async_checkpoint **at)
{
    bp_async_checkpoint *saving = *at;

    *at = NULL;
    if (saving == NULL)
        return;
    BP_ASSERT(atomic_load(&saving->left) == 0);
    bp_plan_clear(&saving->plan);
    json_decref(saving->state);
    bp_free(saving->parent);
    bp_free(saving->name);
    if (saving->lock >= 0)
        (void)close(saving->lock);
    bp_free(saving->hidden);
    bp_free(saving->final);
    bp_free(saving);
}

static void new_saving(bp_async_checkpoint **out, MPI_Comm comm, const bp_checkpoint_commit *commit)
{
    bp_async_checkpoint *saving = bp_alloc("save", 1, sizeof *saving);

    *out = saving;
    saving->comm = comm;
    saving->lock = -1;
    saving->root = bp_comm_is_root(comm);
    saving->commit = *commit;
    saving->plan.group = MPI_COMM_NULL;
    saving->commit.parent = saving->parent = bp_strdup(commit->parent);
    saving->commit.name = saving->name = bp_strdup(commit->name);
    bp_commit_begin(&saving->steps);
}

bp_err bp_checkpoint_begin(bp_async_checkpoint **out, MPI_Comm comm,
                           const bp_checkpoint_commit *commit, const bp_slice *slices,
                           int64_t count, const json_t *state)
{
    bp_async_checkpoint *saving = NULL;
    bp_err err = BP_OK;

    BP_ASSERT(commit->snapshot == NULL || commit->digests != NULL || count == 0);
    new_saving(&saving, comm, commit);
    saving->slices = slices;
    saving->count = count;
    saving->state = json_incref((json_t *)state); /* a count: the content stays as it is */
    err = advance(saving, BP_COMMIT_WRITE);
    if (err != BP_OK)
        free_saving(&saving);
    else if (commit->snapshot != NULL)
        bp_async_checkpoint_start(saving);
    *out = saving;
    return err;
}

bp_async_checkpoint_state bp_checkpoint_poll(const bp_async_checkpoint *saving)
{
    return (bp_async_checkpoint_state)atomic_load(&saving->look);
}

void bp_checkpoint_cancel(bp_async_checkpoint *saving)
{
    atomic_store(&saving->given_up, true);
}

/* Whoever counts on what a checkpoint takes can't count on naps, which end when somebody waits. */
static void tell_worked(const bp_async_checkpoint *saving)
{
    float worked = 0;

    for (int k = 0; k < saving->plan.files; k++)
        worked = fmaxf(worked, (float)saving->jobs[k].worked);
    bp_all_max(&worked, 1, saving->comm);
    *saving->commit.worked = (double)worked;
}

bp_err bp_checkpoint_finish(bp_async_checkpoint **saving)
{
    bp_err err = advance(*saving, BP_COMMIT_DONE);

    if ((*saving)->commit.worked != NULL)
        tell_worked(*saving);
    free_saving(saving);
    return err;
}

bp_err bp_checkpoint_save(MPI_Comm comm, const bp_checkpoint_commit *commit, const bp_slice *slices,
                          int64_t count, const json_t *state)
{
    bp_async_checkpoint *saving;
    bp_checkpoint_commit at_once = *commit;

    at_once.snapshot = NULL;
    bp_err err = bp_checkpoint_begin(&saving, comm, &at_once, slices, count, state);
    return err == BP_OK ? bp_checkpoint_finish(&saving) : err;
}
