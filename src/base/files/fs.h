/* Files: whole reads, atomic writes, folders. */
#pragma once

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Open a regular file for reading; never waits (a FIFO is refused). `*size_bytes` may be NULL. The
 * caller closes it.
 *
 * Errors: BP_ERR_INPUT missing, a folder, or not a regular file; BP_ERR_DENIED.
 */
bp_err bp_file_open(const char *path, int *fd, int64_t *size_bytes);

/** The whole of a regular file with a zero byte after it; longer than `limit_bytes` is
 * BP_ERR_FORMAT. Free with bp_free().
 *
 * Errors: those of bp_file_open; BP_ERR_FORMAT too long; BP_ERR_IO; BP_ERR_SYSTEM no memory.
 * `*data` is NULL then.
 */
bp_err bp_file_read(const char *path, int64_t limit_bytes, char **data, size_t *bytes);

/** The length of the byte order mark at the start of a UTF-8 text, BP_MARK_BYTES or 0: U+FEFF
 * there belongs to the encoding, not to the text. */
#define BP_MARK_BYTES 3
size_t bp_mark_bytes(const char *text, size_t bytes);

/** Is it a Git LFS pointer, which a clone has instead of a file that was not fetched? `bytes`: at
 * least the pointer's first line. */
bool bp_is_lfs_pointer(const char *text, size_t bytes);
/** Fail for a file that is such a pointer: BP_ERR_FORMAT. */
bp_err bp_fail_lfs_pointer(const char *path);

/** Open a file that a job keeps for itself, in a run folder: only a plain file. It follows no link
 * (the write would go to another file) and waits for no FIFO. `flags`: of open(2), and mode 0666.
 * The caller closes *fd; -1 after an error.
 *
 * Errors: BP_ERR_INPUT it is missing; BP_ERR_FORMAT it is not a plain file; BP_ERR_DENIED;
 *         BP_ERR_CREATE, where it can't be made; BP_ERR_IO.
 */
bp_err bp_plain_open(const char *path, int flags, int *fd);
/** Read such a file whole, as bp_file_read. Errors: of both. */
bp_err bp_plain_read(const char *path, int64_t limit_bytes, char **data, size_t *bytes);

/** Replace or create a file: temporary file in the same folder, write, fsync, rename, fsync of the
 * folder. All of it or nothing.
 *
 * Errors: BP_ERR_CREATE no such folder, or `path` is not a regular file (devices and folders are
 * not replaced); BP_ERR_DENIED; BP_ERR_IO (disk full). The old file, if any, is then untouched.
 */
bp_err bp_file_write(const char *path, const void *data, size_t bytes);
/** The same without fsync: for files that are written often and may be lost in a power failure.
 * The caller checks the fence first (files/fence.h). */
bp_err bp_file_write_lightly(const char *path, const void *data, size_t bytes);

/** The same for a file that is written in parts. drop or commit ends it; a commit that fails drops
 * it. A draft of zeros may be dropped. Its name ends in a token that no other process has, and
 * commit checks the fence (files/fence.h): an owner of a run that was replaced changes nothing of
 * its successor's.
 *
 * Errors: those of bp_file_write: open CREATE and DENIED, with nothing left; write and commit IO;
 *         commit those of the fence.
 */
typedef struct bp_draft {
    char *path, *temporary;
    int fd;
    bool lightly; /* commit does not bring it to disk */
} bp_draft;
bp_err bp_draft_open(bp_draft *draft, const char *path);
bp_err bp_draft_write(bp_draft *draft, const void *data, size_t bytes);
bp_err bp_draft_commit(bp_draft *draft);
void bp_draft_drop(bp_draft *draft);
/** Commit if `err` is BP_OK, and drop otherwise; returns the error. */
bp_err bp_draft_end(bp_draft *draft, bp_err err);

/** Is it a temporary name of bp_file_write, ".bp-TOKEN.tmp"? Such a file is garbage once no
 * process writes it. */
bool bp_is_temporary_name(const char *name);

/** 16 hexadecimal digits that no other process has. */
#define BP_TOKEN_BYTES 17
void bp_token_new(char out[BP_TOKEN_BYTES]);
/** Make "FOLDER/BEFORE TOKEN AFTER" (no spaces) in the folder of `path`: there, so that rename
 * never crosses a file system; with a token, since process ids recur: in a container the next job
 * may have the id of the killed one. `make` sets *fd and returns 0, or returns -1 with errno;
 * EEXIST makes it try another name.
 *
 * Returns 0, and *name is the caller's, bp_free(); or -1 with errno, NULL and *fd -1. */
int bp_path_try_names(const char *path, const char *before, const char *after,
                      int (*make)(const char *name, int *fd), char **name, int *fd);

/** write(2), pwrite(2) and pread(2) until all is out, EINTR and short writes handled; errno set on
 * failure (ENODATA: the file ends before). 0 or -1. Injected faults: base.write, of bp_write_all.
 */
int bp_write_all(int fd, const void *data, size_t bytes);
int bp_pwrite_all(int fd, const void *data, size_t bytes, int64_t offset);
int bp_pread_all(int fd, void *data, size_t bytes, int64_t offset);

/** Let the system begin to write bytes [first, first + bytes) to disk, so that a later fsync waits
 * less. Best effort: no error is reported, fsync reports it. Writes may wait in the disk's queue.
 */
void bp_file_begin_sync(int fd, int64_t first, int64_t bytes);

bool bp_path_exists(const char *path);
bool bp_path_is_dir(const char *path);
int64_t bp_file_size(const char *path); /* -1 if there is no such file */

/** mkdir -p, mode 0777 less the umask; each new folder's name is on the disk.
 *
 * Errors: BP_ERR_DENIED; BP_ERR_CREATE; BP_ERR_IO. */
bp_err bp_dir_make(const char *path);
/** Rename a folder without replacing another: BP_ERR_CREATE where the target exists; BP_ERR_IO. */
bp_err bp_rename_new(const char *from, const char *to);
/** fsync a folder or a file by path. */
bp_err bp_path_sync(const char *path);
/** fsync the folder that `path` is in, so that its name survives a power cut. */
bp_err bp_path_sync_parent(const char *path);
/** Remove a folder and all in it; a missing one is fine. */
bp_err bp_dir_remove(const char *path);
/** Make the next listing of a folder come from the server: an NFS client may show names cached a
 * minute ago. Best effort: no error is reported. */
void bp_dir_refresh(const char *path);
/** Remove the drafts that a job left in a folder when it was killed, unless the fence refuses;
 * files that can't be removed stay. After it no earlier owner of the run can commit a draft that it
 * had opened there.
 */
void bp_dir_sweep(const char *path);
/** Names in a folder, sorted by strcmp, without . and ..; free each and the list with bp_free(). */
bp_err bp_dir_list(const char *path, char ***names, int64_t *count);
void bp_names_free(char ***names, int64_t count);

/** "a/b" from "a" and "b" (an absolute b is returned as it is). Free with bp_free(). */
char *bp_path_join(const char *folder, const char *name);
/** The same as a value: bp_path_in(folder, "run.json").text. A path longer than the system's limit
 * names no file: every call with it fails (ENAMETOOLONG). */
typedef struct bp_path {
    char text[4352];
} bp_path;
bp_path bp_path_in(const char *folder, const char *name);
/** The part after the last '/'. Borrowed. */
const char *bp_path_base(const char *path);
/** The part before it, "." if there is no '/'. Free with bp_free(). */
char *bp_path_folder(const char *path);
/** "folder/trace.json" with "m03" in it: "folder/trace.m03.json". Free with bp_free(). */
char *bp_path_insert(const char *path, const char *word);
