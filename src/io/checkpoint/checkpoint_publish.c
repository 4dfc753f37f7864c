/* A checkpoint whose files are written: looked at, listed, and put in place by the root. */
#include "base/fault.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint_save_priv.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The root sees what the writers wrote, from its own node: every shard, whole, a plain file. */
bp_err bp_async_checkpoint_recheck(const bp_async_checkpoint *saving)
{
    const bp_manifest *manifest = saving->plan.manifest;

    if (bp_fault("ckpt.verify"))
        return bp_fail_errno(BP_ERR_IO, "can't look at what was just written", saving->hidden);
    for (int64_t k = 0; k < manifest->file_count; k++) {
        const bp_manifest_file *file = &manifest->files[k];
        char *path = bp_path_join(saving->hidden, file->name);
        struct stat status;
        bp_err err = BP_OK;

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

static bp_err write_beside(const bp_async_checkpoint *saving, const char *name, const char *text,
                           char sha256[BP_SHA256_HEX])
{
    char *path = bp_path_join(saving->hidden, name);
    bp_err err = BP_OK;

    err = bp_sha256_of(text, strlen(text), sha256);
    if (err == BP_OK)
        err = bp_file_write(path, text, strlen(text));
    bp_free(path);
    return err;
}

static bp_err write_tokenizer(const bp_async_checkpoint *saving)
{
    bp_manifest *manifest = saving->plan.manifest;
    bp_manifest_file *file =
        &manifest->files[manifest->file_count]; /* make_manifest left room for it */
    const char *text = saving->commit.tokenizer;

    if (text == NULL)
        return BP_OK;
    (void)snprintf(file->name, sizeof file->name, "tokenizer.json");
    file->bytes = (int64_t)strlen(text);
    manifest->file_count++;
    return write_beside(saving, file->name, text, file->sha256);
}

static bp_err write_manifest(const bp_async_checkpoint *saving)
{
    char *text = NULL, sha256[BP_SHA256_HEX], line[BP_SHA256_HEX + 20], ignored[BP_SHA256_HEX];
    bp_err err;

    saving->plan.manifest->state = json_incref(saving->state);
    err = bp_manifest_text(saving->plan.manifest, &text);
    if (err == BP_OK)
        err = write_beside(saving, "manifest.json", text, sha256);
    if (err == BP_OK && bp_fault("ckpt.manifest_half"))
        err = bp_fail_errno(BP_ERR_IO, "can't write", saving->hidden);
    if (err == BP_OK) {
        (void)snprintf(line, sizeof line, "%s  manifest.json\n", sha256);
        err = write_beside(saving, "manifest.sha256", line, ignored);
    }
    bp_free(text);
    if (err == BP_OK && bp_fault("ckpt.manifest_fsync"))
        err = bp_fail_errno(BP_ERR_IO, "can't bring to disk", saving->hidden);
    return err == BP_OK ? bp_path_sync(saving->hidden) : err;
}

bp_err bp_async_checkpoint_list(const bp_async_checkpoint *saving)
{
    bp_err err = write_tokenizer(saving);

    return err == BP_OK ? write_manifest(saving) : err;
}

static bp_err ask_owner(const bp_async_checkpoint *saving)
{
    const bp_checkpoint_commit *commit = &saving->commit;

    return commit->check_owner == NULL ? BP_OK : commit->check_owner(commit->context);
}

bp_err bp_async_checkpoint_check_owner(const bp_async_checkpoint *saving)
{
    if (bp_fault("ckpt.fence_check"))
        return bp_fail_errno(BP_ERR_IO, "can't look at the lock", saving->parent);
    return ask_owner(saving);
}

bp_err bp_async_checkpoint_place(const bp_async_checkpoint *saving)
{
    return bp_fault("ckpt.rename") ? BP_FAIL(BP_ERR_IO, "can't rename (fault injected)")
                                   : bp_rename_new(saving->hidden, saving->final);
}

bp_err bp_async_checkpoint_sync_placed(const bp_async_checkpoint *saving)
{
    return bp_fault("ckpt.fsync_dir")
               ? BP_FAIL(BP_ERR_IO, "can't bring the folder to disk (fault injected)")
               : bp_path_sync(saving->parent);
}

/* ---- after a failure ---- */

bp_err bp_async_checkpoint_remove(const bp_async_checkpoint *saving)
{
    char message[BP_ERR_MESSAGE_BYTES];
    bp_err err;

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    err = bp_dir_remove(saving->hidden);
    if (err != BP_OK)
        bp_warn("what is left of a checkpoint stays: %s", bp_err_message());
    bp_err_set_message(message);
    return err;
}

bp_err bp_async_checkpoint_explain(const bp_async_checkpoint *saving, bp_err err)
{
    bool at_files = saving->steps.step > BP_COMMIT_MAKE && saving->steps.step != BP_COMMIT_OWNER;
    char message[BP_ERR_MESSAGE_BYTES];

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    if (at_files) {
        bp_err lost = ask_owner(saving);

        if (lost != BP_OK)
            return lost;
    }
    bp_err_set_message(message);
    return err;
}
