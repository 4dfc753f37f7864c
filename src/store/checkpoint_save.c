/* Saving a checkpoint: into a hidden folder, flushed, hashed, listed, and only then renamed into
 * place. Which operation comes next, commit_steps.c decides; here they are done, and all ranks
 * agree on how each went. */
#include "base/fault.h"
#include "base/fs.h"
#include "base/mem.h"
#include "mesh/collective.h"
#include "store/checkpoint_priv.h"
#include "store/commit_steps.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAG_REQUEST 1
#define TAG_PART    2

typedef struct receipt {
    int64_t shard; /* -1: this rank wrote none */
    int64_t bytes;
    char sha256[BP_SHA256_HEX + 7];
} receipt;

/* What one save needs at hand. */
struct save {
    MPI_Comm comm;
    bp_commit steps;
    receipt mine;
    const json_t *state;
    bool root;
    const bp_checkpoint_commit *commit;
    const bp_box *boxes;
    int64_t count;
    bp_plan plan;
    char *hidden; /* PARENT/.tmp-NAME-TOKEN, on all ranks */
    char *final;  /* PARENT/NAME */
};

static bp_err get_data(const struct save *save, int64_t index, const float **data)
{
    *data = save->boxes[index].data;
    if (*data != NULL)
        return BP_OK;
    return save->commit->fetch(save->commit->context, &save->boxes[index], index, data);
}

/* ---- describing this rank's boxes ---- */

static bp_err describe(const struct save *save, int64_t index, bp_plan_box *out)
{
    const bp_box *box = &save->boxes[index];
    const float *data;
    bp_err err = get_data(save, index, &data);

    if (err != BP_OK)
        return err;
    if (!bp_box_is_finite(box, data))
        return BP_FAIL(BP_ERR_SOFTWARE,
                       "tensor '%s' holds a value that is not finite: no checkpoint is made "
                       "of it",
                       box->name);
    *out = (bp_plan_box){.dims = box->dims, .index = index};
    memcpy(out->name, box->name, strlen(box->name) + 1);
    for (int d = 0; d < box->dims; d++) {
        out->shape[d] = box->shape[d];
        out->offset[d] = box->offset[d];
        out->extent[d] = box->extent[d];
    }
    bp_box_digest(&out->digest, box, data);
    return BP_OK;
}

/* Empty boxes are left out. */
static bp_err describe_all(const struct save *save, bp_plan_box **out, int64_t *count)
{
    bp_err err = BP_OK;

    *count = 0;
    *out = bp_alloc("save.boxes", save->count, sizeof **out);
    if (*out == NULL)
        return bp_fail_memory("the boxes of a checkpoint", save->count, sizeof **out);
    for (int64_t k = 0; k < save->count && err == BP_OK; k++) {
        int64_t volume;

        err = bp_box_check(&save->boxes[k]);
        if (err != BP_OK)
            return bp_err_prefix(BP_ERR_SOFTWARE, "a box to save");
        (void)bp_box_volume(save->boxes[k].dims, save->boxes[k].extent, &volume);
        if (volume > 0)
            err = describe(save, k, &(*out)[(*count)++]);
    }
    return err;
}

static bp_err plan(struct save *save)
{
    bp_plan_box *boxes = NULL;
    int64_t count;
    bp_err err = bp_agree(save->comm, describe_all(save, &boxes, &count));

    if (err == BP_OK)
        err = bp_plan_init(&save->plan, save->comm, save->commit->writers, boxes, count);
    bp_free(boxes);
    if (err == BP_OK && save->root)
        bp_commit_expect(&save->steps, save->plan.manifest->file_count);
    return err;
}

/* ---- the hidden folder ---- */

static bp_err make_hidden(struct save *save)
{
    const bp_checkpoint_commit *commit = save->commit;
    char token[17];
    bp_err err;

    if (bp_path_exists(save->final))
        return BP_FAIL(BP_ERR_CREATE, "something is there already: at %s; move it away",
                       save->final);
    err = bp_token_new(token);
    if (err != BP_OK)
        return err;
    save->hidden = bp_sprintf("%s/.tmp-%s-%s", commit->parent, commit->name, token);
    if (save->hidden == NULL)
        return bp_fail_memory("a file name", 1, strlen(commit->parent));
    errno = EIO; /* of the fault; mkdir sets its own */
    if (bp_fault("ckpt.mkdir_tmp") || mkdir(save->hidden, 0777) != 0)
        return bp_fail_create("can't create the folder", save->hidden);
    return BP_OK;
}

static bp_err make_and_share_hidden(struct save *save)
{
    bp_err err;

    save->final = bp_path_join(save->commit->parent, save->commit->name);
    if (save->final == NULL)
        err = bp_fail_memory("a file name", 1, strlen(save->commit->parent));
    else
        err = save->root ? make_hidden(save) : BP_OK;
    err = bp_agree(save->comm, err);
    if (err == BP_OK)
        bp_bcast_text(&save->hidden, 0, save->comm);
    return err;
}

/* ---- writing: the writer of a group asks the others for their boxes, part by part ---- */

static bp_err ask_part(const struct save *save, const bp_plan_box *piece, int64_t k,
                       const bp_part *part, float *room)
{
    int64_t request[2] = {piece->index, k};
    MPI_Status status;
    int got;

    BP_MPI_WAIT("send", MPI_Send(request, 2, MPI_INT64_T, piece->group_rank, TAG_REQUEST,
                                 save->plan.group));
    BP_MPI_WAIT("recv", MPI_Recv(room, bp_mpi_count(part->count), MPI_FLOAT, piece->group_rank,
                                 TAG_PART, save->plan.group, &status));
    BP_MPI(MPI_Get_count(&status, MPI_FLOAT, &got));
    if (got != part->count)
        return BP_FAIL(BP_ERR_SYSTEM, "the rank that holds tensor '%s' can't give it", piece->name);
    return BP_OK;
}

static bp_err write_piece(const struct save *save, bp_shard *shard, const bp_plan_box *piece,
                          float *room)
{
    bp_box box = {.dims = piece->dims};
    bool mine = piece->group_rank == 0;
    const float *data = room;
    bp_part part;
    bp_err err = mine ? get_data(save, piece->index, &data) : BP_OK;

    memcpy(box.extent, piece->extent, sizeof box.extent);
    if (err == BP_OK)
        err = bp_shard_begin(shard, piece);
    for (int64_t k = 0; err == BP_OK && bp_box_part(&part, &box, BP_PART_FLOATS, k); k++) {
        if (!mine)
            err = ask_part(save, piece, k, &part, room);
        if (err == BP_OK)
            err = bp_shard_write(shard, &part, mine ? data + part.first : room);
    }
    return err == BP_OK ? bp_shard_end(shard) : err;
}

static bp_err write_shard(const struct save *save, const char *path)
{
    bp_shard *shard = NULL;
    float *room = bp_alloc("save.part", BP_PART_FLOATS, sizeof *room);
    bp_err err;

    if (room == NULL)
        err = bp_fail_memory("a part of a checkpoint", BP_PART_FLOATS, sizeof *room);
    else
        err = bp_shard_create(&shard, path);
    for (int64_t k = 0; k < save->plan.count && err == BP_OK; k++)
        err = write_piece(save, shard, &save->plan.pieces[k], room);
    if (err == BP_OK)
        err = bp_shard_commit(&shard);
    bp_shard_discard(&shard);
    bp_free(room);
    return err;
}

static void end_requests(const struct save *save)
{
    const int64_t end[2] = {-1, 0};

    for (int rank = 1; rank < bp_comm_size(save->plan.group); rank++)
        BP_MPI_WAIT("send", MPI_Send(end, 2, MPI_INT64_T, rank, TAG_REQUEST, save->plan.group));
}

/* Give parts until the writer has enough. A part that can't be had goes as an empty message. */
static bp_err serve_requests(const struct save *save)
{
    bp_err err = BP_OK;

    for (;;) {
        int64_t request[2];
        const float *data = NULL;
        bp_part part;
        int count = 0;

        BP_MPI_WAIT("recv", MPI_Recv(request, 2, MPI_INT64_T, 0, TAG_REQUEST, save->plan.group,
                                     MPI_STATUS_IGNORE));
        if (request[0] < 0)
            return err;
        if (err == BP_OK)
            err = get_data(save, request[0], &data);
        if (err == BP_OK) {
            BP_ASSERT(bp_box_part(&part, &save->boxes[request[0]], BP_PART_FLOATS, request[1]));
            count = bp_mpi_count(part.count);
            data += part.first;
        }
        BP_MPI_WAIT("send", MPI_Send(data, count, MPI_FLOAT, 0, TAG_PART, save->plan.group));
    }
}

/* ---- size and hash of the closed files, to the root ---- */

static bp_err write_files(struct save *save)
{
    receipt *mine = &save->mine;
    char *path =
        bp_sprintf("%s/shard-%05d.h5", save->hidden, save->plan.shard < 0 ? 0 : save->plan.shard);
    bp_err err = BP_OK;

    *mine = (receipt){.shard = save->plan.shard};
    if (bp_comm_rank(save->plan.group) != 0) {
        bp_free(path);
        return serve_requests(save);
    }
    if (path == NULL)
        err = bp_fail_memory("a file name", 1, strlen(save->hidden));
    if (err == BP_OK && mine->shard >= 0)
        err = write_shard(save, path);
    end_requests(save);
    if (err == BP_OK && mine->shard >= 0)
        err = bp_sha256_of_file(path, mine->sha256, &mine->bytes);
    bp_free(path);
    return err;
}

static bp_err collect_receipts(struct save *save)
{
    int size = bp_comm_size(save->comm);
    receipt *all = save->root ? bp_alloc("save.receipts", size, sizeof *all) : NULL;
    bp_err err = save->root && all == NULL ? bp_fail_memory("receipts", size, sizeof *all) : BP_OK;

    err = bp_agree(save->comm, err);
    if (err == BP_OK)
        BP_MPI_WAIT("gather", MPI_Gather(&save->mine, (int)sizeof *all, MPI_BYTE, all,
                                         (int)sizeof *all, MPI_BYTE, 0, save->comm));
    for (int rank = 0; err == BP_OK && save->root && rank < size; rank++) {
        bp_manifest_file *file;

        if (all[rank].shard < 0)
            continue;
        file = &save->plan.manifest->files[all[rank].shard];
        file->bytes = all[rank].bytes;
        memcpy(file->sha256, all[rank].sha256, BP_SHA256_HEX);
        bp_commit_report(&save->steps);
    }
    bp_free(all);
    if (err == BP_OK && !bp_commit_is_reported(&save->steps))
        err = BP_FAIL(BP_ERR_SOFTWARE, "%lld of %lld writers of a checkpoint have reported",
                      (long long)save->steps.reports, (long long)save->steps.writers);
    return err;
}

/* ---- the root commits ---- */

/* The root sees what the writers wrote, from its own node: every shard, whole, a plain file. */
static bp_err recheck_files(const struct save *save)
{
    const bp_manifest *manifest = save->plan.manifest;

    if (bp_fault("ckpt.verify"))
        return bp_fail_errno(BP_ERR_IO, "can't look at what was just written", save->hidden);
    for (int64_t k = 0; k < manifest->file_count; k++) {
        const bp_manifest_file *file = &manifest->files[k];
        char *path = bp_path_join(save->hidden, file->name);
        struct stat status;
        bp_err err = BP_OK;

        if (path == NULL)
            return bp_fail_memory("a file name", 1, strlen(save->hidden));
        if (lstat(path, &status) != 0)
            err = bp_fail_errno(BP_ERR_IO, "a file that was just written can't be seen", path);
        else if (!S_ISREG(status.st_mode) || status.st_nlink != 1 || status.st_size != file->bytes)
            err = BP_FAIL(BP_ERR_IO,
                          "a file that was just written has %lld bytes instead of %lld: at %s",
                          (long long)status.st_size, (long long)file->bytes, path);
        bp_free(path);
        if (err != BP_OK)
            return err;
    }
    return BP_OK;
}

static bp_err write_beside(const struct save *save, const char *name, const char *text,
                           char sha256[BP_SHA256_HEX])
{
    char *path = bp_path_join(save->hidden, name);
    bp_err err = path == NULL ? bp_fail_memory("a file name", 1, strlen(save->hidden)) : BP_OK;

    if (err == BP_OK)
        err = bp_sha256_of(text, strlen(text), sha256);
    if (err == BP_OK)
        err = bp_file_write(path, text, strlen(text));
    bp_free(path);
    return err;
}

static bp_err write_tokenizer(const struct save *save)
{
    bp_manifest *manifest = save->plan.manifest;
    bp_manifest_file *file =
        &manifest->files[manifest->file_count]; /* make_manifest left room for it */
    const char *text = save->commit->tokenizer;

    if (text == NULL)
        return BP_OK;
    (void)snprintf(file->name, sizeof file->name, "tokenizer.json");
    file->bytes = (int64_t)strlen(text);
    manifest->file_count++;
    return write_beside(save, file->name, text, file->sha256);
}

static bp_err write_manifest(const struct save *save)
{
    char *text = NULL, sha256[BP_SHA256_HEX], line[BP_SHA256_HEX + 20], ignored[BP_SHA256_HEX];
    bp_err err;

    save->plan.manifest->state =
        json_incref((json_t *)save->state); /* a count: the content stays as it is */
    err = bp_manifest_text(save->plan.manifest, &text);
    if (err == BP_OK)
        err = write_beside(save, "manifest.json", text, sha256);
    if (err == BP_OK && bp_fault("ckpt.manifest_half"))
        err = bp_fail_errno(BP_ERR_IO, "can't write", save->hidden);
    if (err == BP_OK) {
        (void)snprintf(line, sizeof line, "%s  manifest.json\n", sha256);
        err = write_beside(save, "manifest.sha256", line, ignored);
    }
    bp_free(text);
    if (err == BP_OK && bp_fault("ckpt.manifest_fsync"))
        err = bp_fail_errno(BP_ERR_IO, "can't bring to disk", save->hidden);
    return err == BP_OK ? bp_path_sync(save->hidden) : err;
}

static bp_err list_files(const struct save *save)
{
    bp_err err = write_tokenizer(save);

    return err == BP_OK ? write_manifest(save) : err;
}

static bool is_ours(const struct save *save)
{
    const bp_checkpoint_commit *commit = save->commit;

    return commit->still_owner == NULL || commit->still_owner(commit->context);
}

static bp_err fail_lost(const struct save *save)
{
    return BP_FAIL(BP_ERR_BUSY, "another job holds the run folder now: at %s; this one stops",
                   save->commit->parent);
}

static bp_err check_owner(const struct save *save)
{
    if (bp_fault("ckpt.fence_check"))
        return bp_fail_errno(BP_ERR_IO, "can't look at the lock", save->commit->parent);
    return is_ours(save) ? BP_OK : fail_lost(save);
}

static bp_err put_in_place(const struct save *save)
{
    return bp_fault("ckpt.rename") ? BP_FAIL(BP_ERR_IO, "can't rename (fault injected)")
                                   : bp_rename_new(save->hidden, save->final);
}

static bp_err sync_placed(const struct save *save)
{
    return bp_fault("ckpt.fsync_dir")
               ? BP_FAIL(BP_ERR_IO, "can't bring the folder to disk (fault injected)")
               : bp_path_sync(save->commit->parent);
}

/* ---- after a failure: nothing hidden is left. What can't be removed now goes at the next start
 * (bp_checkpoints_clean). The first failure is the one to tell ---- */

static bp_err remove_hidden(const struct save *save)
{
    char message[BP_ERR_MESSAGE_BYTES];
    bp_err err;

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    err = bp_dir_remove(save->hidden);
    if (err != BP_OK)
        bp_warn("what is left of a checkpoint stays: %s", bp_err_message());
    bp_err_set_message(message);
    return err;
}

/* Of a job that has lost the run the next owner sweeps the files away: that is what to tell. */
static bp_err explain(const struct save *save, bp_err err)
{
    bool at_files = save->steps.step > BP_COMMIT_MAKE && save->steps.step != BP_COMMIT_FENCE;
    char message[BP_ERR_MESSAGE_BYTES];

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    if (at_files && !is_ours(save))
        return fail_lost(save);
    bp_err_set_message(message);
    return err;
}

/* ---- all of it ---- */

static bp_err take_step(struct save *save)
{
    bool root = save->root;

    switch (save->steps.step) {
    case BP_COMMIT_PLAN:
        return plan(save);
    case BP_COMMIT_MAKE:
        return make_and_share_hidden(save);
    case BP_COMMIT_SYNC_MADE:
        return root ? bp_path_sync(save->commit->parent) : BP_OK;
    case BP_COMMIT_WRITE:
        return write_files(save);
    case BP_COMMIT_REPORTS:
        return collect_receipts(save);
    case BP_COMMIT_RECHECK:
        return root ? recheck_files(save) : BP_OK;
    case BP_COMMIT_LIST:
        return root ? list_files(save) : BP_OK;
    case BP_COMMIT_FENCE:
        return root ? check_owner(save) : BP_OK;
    case BP_COMMIT_PLACE:
        return root ? put_in_place(save) : BP_OK;
    case BP_COMMIT_SYNC_PLACED:
        return root ? sync_placed(save) : BP_OK;
    default:
        return root ? remove_hidden(save) : BP_OK;
    }
}

bp_err bp_checkpoint_save(MPI_Comm comm, const bp_checkpoint_commit *commit, const bp_box *boxes,
                          int64_t count, const json_t *state)
{
    struct save save = {.comm = comm,
                        .root = bp_comm_is_root(comm),
                        .commit = commit,
                        .boxes = boxes,
                        .count = count,
                        .state = state};
    bp_err first = BP_OK;

    save.plan.group = MPI_COMM_NULL;
    bp_commit_begin(&save.steps);
    while (!bp_commit_is_over(&save.steps)) {
        bp_err err = bp_agree(comm, take_step(&save));

        if (err != BP_OK && first == BP_OK)
            first = bp_agree(comm, save.root ? explain(&save, err) : BP_OK);
        bp_commit_next(&save.steps, err == BP_OK);
    }
    bp_plan_clear(&save.plan);
    bp_free(save.hidden);
    bp_free(save.final);
    return first;
}
