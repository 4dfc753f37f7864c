/* Opening a checkpoint: data is used only after its hash was checked, and HDF5 reads no unhashed
 * byte. */
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint_priv.h"
#include "mesh/collective.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the manifest, on the root ---- */

/* A required file: if it is missing, the checkpoint is damaged. */
static bp_err read_member(const char *folder, const char *name, int64_t limit, char **text,
                          size_t *bytes)
{
    char *path = bp_path_join(folder, name);
    bp_err err = bp_plain_read(path, limit, text, bytes);

    if (err == BP_ERR_INPUT)
        err = BP_FAIL(BP_ERR_FORMAT, "checkpoint.not_whole", "%s is missing: in %s", name, folder);
    bp_free(path);
    return err;
}

static bp_err check_manifest_hash(const char *folder, const char *text, size_t bytes)
{
    char *line, expected[BP_SHA256_HEX + 20], sha256[BP_SHA256_HEX];
    size_t line_bytes;
    bp_err err = read_member(folder, "manifest.sha256", 4096, &line, &line_bytes);

    bp_sha256_of(text, bytes, sha256);
    if (err == BP_OK) {
        int length = snprintf(expected, sizeof expected, "%s  manifest.json\n", sha256);

        if (line_bytes != (size_t)length || memcmp(line, expected, line_bytes) != 0)
            err = BP_FAIL(BP_ERR_FORMAT, "manifest.damaged",
                          "manifest.sha256 is not that of manifest.json: in %s", folder);
    }
    bp_free(line);
    return err;
}

/* Names that begin with a dot (.nfs0001...) belong to the file system, and are never read. */
static bp_err check_listing(const bp_manifest *manifest, const char *folder)
{
    char **names;
    int64_t count;
    bp_err err = bp_dir_list(folder, &names, &count);

    for (int64_t k = 0; k < count && err == BP_OK; k++)
        if (names[k][0] != '.' && strcmp(names[k], "manifest.json") != 0 &&
            strcmp(names[k], "manifest.sha256") != 0 &&
            bp_manifest_find_file(manifest, names[k]) < 0)
            err = BP_FAIL(BP_ERR_FORMAT, "checkpoint.unlisted_file",
                          "'%.80s' is not listed in the manifest: in %s", names[k], folder);
    bp_names_free(&names, count);
    return err;
}

/* "step-000000001200" must hold step 1200. */
static bp_err check_step(const bp_manifest *manifest, const char *folder)
{
    const json_t *value = json_object_get(manifest->state, "step");
    int64_t step;

    if (!json_is_integer(value) || !bp_step_of_name(bp_path_base(folder), &step))
        return BP_OK;
    if (json_integer_value(value) != step)
        return BP_FAIL(BP_ERR_FORMAT, "checkpoint.wrong_step", "it holds step %lld: at %s",
                       (long long)json_integer_value(value), folder);
    return BP_OK;
}

static bp_err read_manifest(const char *folder, bp_manifest **out, bool *foreign)
{
    bp_manifest *manifest = NULL;
    char *text = NULL;
    int64_t step;
    size_t bytes;
    bp_err err;

    if (!bp_path_exists(folder))
        return BP_FAIL(BP_ERR_INPUT, "checkpoint.missing", "there is no such checkpoint: at %s",
                       folder);
    if (!bp_path_is_dir(folder)) /* a step of a run has been tampered with */
        return BP_FAIL(bp_step_of_name(bp_path_base(folder), &step) ? BP_ERR_FORMAT : BP_ERR_INPUT,
                       "checkpoint.not_a_folder",
                       "a checkpoint is a folder, and this is not: at %s", folder);
    err = read_member(folder, "manifest.json", bp_manifest_limit_bytes, &text, &bytes);
    if (err == BP_OK)
        err = check_manifest_hash(folder, text, bytes);
    if (err == BP_OK && memchr(text, '\0', bytes))
        err = BP_FAIL(BP_ERR_FORMAT, "manifest.damaged", "manifest.json has a zero byte: in %s",
                      folder);
    if (err == BP_OK)
        err = bp_manifest_parse(&manifest, foreign, text, bytes, "manifest.json");
    if (err == BP_OK)
        err = check_listing(manifest, folder);
    if (err == BP_OK)
        err = check_step(manifest, folder);
    bp_free(text);
    if (err != BP_OK)
        bp_manifest_free(&manifest);
    *out = manifest;
    return err;
}

static bp_err call_damaged(bp_err err, const char *folder)
{
    return err == BP_ERR_FORMAT
               ? bp_err_prefix(err, "checkpoint %s is damaged", bp_path_base(folder))
               : err;
}

/* ---- the files, divided over the ranks ---- */

/* The caller that opens the file checks its kind. */
static bp_err verify_attachment(const bp_manifest_file *file, const char *path)
{
    bp_user_block block;
    bp_err err = bp_user_block_verify(&block, path);

    if (err == BP_ERR_FORMAT || (err == BP_OK && strcmp(block.hash, file->xxh3) != 0))
        err = BP_FAIL(BP_ERR_FORMAT, "checkpoint.damaged",
                      "the XXH3-128 of %s is not that of the manifest: at %s", file->name, path);
    return err;
}

/* By SHA-256: a tokenizer, and a shard of version 1 or of another program. */
static bp_err verify_file(const bp_manifest_file *file, const char *path)
{
    char sha256[BP_SHA256_HEX];
    struct stat status;
    bp_err err;

    if (lstat(path, &status) != 0)
        return errno == ENOENT ? BP_FAIL(BP_ERR_FORMAT, "checkpoint.not_whole",
                                         "%s is missing: at %s", file->name, path)
                               : bp_fail_errno(BP_ERR_IO, "can't look at", path);
    if (!S_ISREG(status.st_mode))
        return BP_FAIL(BP_ERR_FORMAT, "checkpoint.not_whole", "%s is not a regular file: at %s",
                       file->name, path);
    if (status.st_size != file->bytes)
        return BP_FAIL(BP_ERR_FORMAT, "checkpoint.wrong_bytes",
                       "%s has %lld bytes, and the manifest says %lld: at %s", file->name,
                       (long long)status.st_size, (long long)file->bytes, path);
    if (strcmp(file->name, BP_CHECKPOINT_ATTACHMENT) == 0)
        return verify_attachment(file, path);
    if (file->xxh3[0] != '\0')
        return bp_shard_verify(path, file->xxh3);
    err = bp_sha256_of_file(path, sha256, NULL);
    if (err == BP_OK && strcmp(sha256, file->sha256) != 0)
        err = BP_FAIL(BP_ERR_FORMAT, "checkpoint.damaged",
                      "the SHA-256 of %s is not that of the manifest: at %s", file->name, path);
    return err;
}

static bp_err verify_share(const bp_checkpoint *checkpoint)
{
    int size = bp_comm_size(checkpoint->comm);
    bp_err err = BP_OK;

    for (int64_t k = bp_comm_rank(checkpoint->comm);
         k < checkpoint->manifest->file_count && err == BP_OK; k += size) {
        const bp_manifest_file *file = &checkpoint->manifest->files[k];
        char *path = bp_path_join(checkpoint->folder, file->name);

        err = verify_file(file, path);
        bp_free(path);
    }
    return call_damaged(err, checkpoint->folder);
}

/* ---- the handle ---- */

static void digest_model(bp_checkpoint *checkpoint)
{
    const bp_manifest *manifest = checkpoint->manifest;
    bp_sha256 *hash = bp_sha256_new();

    bp_checkpoint_list_tensors(checkpoint);
    for (int64_t k = 0; k < checkpoint->tensor_count; k++) {
        const bp_manifest_tensor *tensor = checkpoint->tensors[k];
        char line[BP_TENSOR_NAME + 160], digest[33];
        int used = snprintf(line, sizeof line, "%s float32", tensor->name);

        if (strchr(tensor->name, '/'))
            continue;
        for (int d = 0; d < tensor->dims; d++)
            used += snprintf(line + used, sizeof line - (size_t)used, " %lld",
                             (long long)tensor->shape[d]);
        bp_digest_text(digest, &tensor->digest);
        used += snprintf(line + used, sizeof line - (size_t)used, " %s\n", digest);
        bp_sha256_update(hash, line, (size_t)used);
    }
    for (int64_t k = 0; k < manifest->file_count; k++) {
        const bp_manifest_file *file = &manifest->files[k];

        if (strcmp(file->name, BP_CHECKPOINT_ATTACHMENT) != 0)
            continue;
        bp_sha256_update(hash, file->name, strlen(file->name));
        bp_sha256_update(hash, file->xxh3, strlen(file->xxh3));
    }
    bp_sha256_finish(&hash, checkpoint->digest);
}

/* Takes the manifest. */
static void make_handle(bp_checkpoint **out, MPI_Comm comm, const char *folder,
                        bp_manifest *manifest)
{
    bp_checkpoint *checkpoint = bp_alloc("checkpoint", 1, sizeof *checkpoint);

    *out = checkpoint;
    checkpoint->comm = comm;
    checkpoint->folder = bp_strdup(folder);
    checkpoint->manifest = manifest;
    if (bp_manifest_find_file(manifest, "tokenizer.json") >= 0) {
        checkpoint->tokenizer = bp_path_join(folder, "tokenizer.json");
        bp_checkpoint_note_tokenizer(manifest->state, checkpoint->tokenizer);
    }
    if (bp_manifest_find_file(manifest, BP_CHECKPOINT_ATTACHMENT) >= 0)
        checkpoint->attachment = bp_path_join(folder, BP_CHECKPOINT_ATTACHMENT);
    digest_model(checkpoint);
}

bp_err bp_checkpoint_open_without_base(MPI_Comm comm, const char *given, bp_checkpoint **out,
                                       bool *foreign)
{
    char *folder = bp_strdup(given);
    bp_manifest *manifest = NULL;
    bp_err err = BP_OK;

    for (size_t length = strlen(folder); length > 1 && folder[length - 1] == '/'; length--)
        folder[length - 1] = '\0';
    *out = NULL;
    *foreign = false;
    if (bp_comm_is_root(comm)) {
        err = read_manifest(folder, &manifest, foreign);
        if (!*foreign)
            err = call_damaged(err, folder);
    }
    err = bp_agree(comm, err);
    BP_MPI_WAIT("bcast", MPI_Bcast(foreign, 1, MPI_C_BOOL, 0, comm));
    if (err == BP_OK) {
        bp_manifest_share(&manifest, comm);
        make_handle(out, comm, folder, manifest);
        err = bp_agree(comm, verify_share(*out));
    }
    if (err == BP_OK)
        err = call_damaged(bp_checkpoint_verify_digests(*out), folder);
    if (err != BP_OK)
        bp_checkpoint_close(out);
    bp_free(folder);
    return err;
}

bp_err bp_checkpoint_open_folder(MPI_Comm comm, const char *folder, bp_checkpoint **out,
                                 bool *foreign)
{
    bp_err err = bp_checkpoint_open_without_base(comm, folder, out, foreign);

    if (err != BP_OK || !json_object_get((*out)->manifest->state, "base"))
        return err;
    err = bp_checkpoint_open_base(*out);
    if (err == BP_OK) {
        digest_model(*out);
        return BP_OK;
    }
    *foreign = true;
    bp_checkpoint_close(out);
    return err;
}

bp_err bp_checkpoint_open(MPI_Comm comm, const char *folder, bp_checkpoint **out)
{
    bool foreign;

    return bp_checkpoint_open_folder(comm, folder, out, &foreign);
}

void bp_checkpoint_close(bp_checkpoint **checkpoint)
{
    if (!*checkpoint)
        return;
    bp_checkpoint_close(&(*checkpoint)->base);
    bp_manifest_free(&(*checkpoint)->manifest);
    bp_free((*checkpoint)->tensors);
    bp_free((*checkpoint)->folder);
    bp_free((*checkpoint)->tokenizer);
    bp_free((*checkpoint)->attachment);
    bp_free(*checkpoint);
    *checkpoint = NULL;
}

const json_t *bp_checkpoint_state(const bp_checkpoint *checkpoint)
{
    return checkpoint->manifest->state;
}

MPI_Comm bp_checkpoint_comm(const bp_checkpoint *checkpoint)
{
    return checkpoint->comm;
}

const char *bp_checkpoint_folder(const bp_checkpoint *checkpoint)
{
    return checkpoint->folder;
}

const char *bp_checkpoint_digest(const bp_checkpoint *checkpoint)
{
    return checkpoint->digest;
}

bool bp_checkpoint_has(const bp_checkpoint *checkpoint, const char *tensor)
{
    return bp_manifest_find(checkpoint->manifest, tensor) ||
           bp_checkpoint_is_of_base(checkpoint, tensor);
}

const char *bp_checkpoint_tokenizer(const bp_checkpoint *checkpoint)
{
    return checkpoint->tokenizer;
}

const char *bp_checkpoint_attachment(const bp_checkpoint *checkpoint)
{
    return checkpoint->attachment;
}

int64_t bp_checkpoint_tensors(const bp_checkpoint *checkpoint)
{
    return checkpoint->tensor_count;
}

bp_slice bp_checkpoint_tensor(const bp_checkpoint *checkpoint, int64_t k)
{
    BP_ASSERT(k >= 0 && k < checkpoint->tensor_count);
    return bp_manifest_slice(checkpoint->tensors[k], NULL);
}
