/* Finished work units on disk: a killed job, run again, does only what is missing.
 *
 * Each lead appends its units to its own part file, RUN/JOB/parts/START-RANK.part. A file begins
 * with a 128-byte text block that names its work. A record is a header {magic, unit, bytes, XXH3 of
 * the result, XXH3 of the preceding header fields} and the unit's result. Records are fsynced
 * within a second or two. An incomplete record at the end of a file is dropped when files are read:
 * a kill or a lost page costs units, but results stay correct. Local: no MPI. */
#pragma once

#include "base/err.h"
#include "base/files/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bp_part_writer bp_part_writer;

/** A new file; `key` (64 digits) names the work. Errors: BP_ERR_CREATE, BP_ERR_DENIED,
 * BP_ERR_IO. */
bp_err bp_part_writer_new(bp_part_writer **out, const char *path, const char *key);
/** Errors: BP_ERR_IO (disk full). After an error the writer accepts no more. */
bp_err bp_part_writer_add(bp_part_writer *writer, int64_t unit, const void *result, size_t bytes);
/** fsync and close; *writer is NULL afterwards in any case. Errors: BP_ERR_IO. */
bp_err bp_part_writer_close(bp_part_writer **writer);

typedef struct bp_part_place {
    int64_t file, offset; /* of the record */
} bp_part_place;

/** What the files of a folder hold. */
typedef struct bp_parts {
    int64_t units;
    uint8_t *done; /* [units]: 1 if there is a result */
    int64_t done_count;
    int64_t foreign; /* files with another key: another model, rule or mesh */
    int64_t damaged; /* files with a damaged record, after which nothing is read */
    int64_t start;   /* number of this start, which names its files */

    bp_part_place *places; /* [units]; this and the following members are private to parts.c */
    char **paths;          /* [files] */
    int64_t files;
    int64_t open;                         /* the file of the last record, or -1 */
    int *fds;                             /* [files]; -1 if not open */
    int64_t *kept, kept_count, kept_next; /* the files that are open */
    char *buffer;
    size_t capacity_bytes;
} bp_parts;

/** Read all part files of `folder` (a missing folder holds none) whose key is `key`. If `merging`,
 * only headers are read of the newest start's files: results are checked against their hashes when
 * they are read.
 *
 * Owns:       *out is the caller's, bp_parts_free(); NULL after an error.
 * Errors:     BP_ERR_IO, BP_ERR_DENIED, BP_ERR_SYSTEM. Torn or damaged records are not errors:
 *             their units are missing. */
bp_err bp_parts_open(bp_parts **out, const char *folder, const char *key, int64_t units,
                     bool merging);
void bp_parts_free(bp_parts **parts);
/** Does the folder have a part file whose key is `key`? Unreadable files are ignored. */
bool bp_parts_has(const char *folder, const char *key);
/** The result of a unit, valid until the next call. Errors: BP_ERR_FORMAT it is missing, or was
 * damaged since; BP_ERR_IO. */
bp_err bp_parts_read(bp_parts *parts, int64_t unit, const char **result, size_t *bytes,
                     const char **path);

typedef struct bp_part_result {
    int64_t unit;
    const char *data; /* its result */
    size_t bytes;
    const char *path; /* of its file, for messages */
    int64_t next;
} bp_part_result;

/** The result of each unit in turn, in their order; *part is {0} before the first one. Updates the
 * heartbeat. Returns false after the last one, or if *err is an error, from before the call or from
 * bp_parts_read.
 *
 *     bp_part_result part = {0};
 *     while (bp_parts_next(parts, &part, &err))
 *         err = ...;
 */
bool bp_parts_next(bp_parts *parts, bp_part_result *part, bp_err *err);
/** Errors: BP_ERR_FORMAT its result does not have `want` bytes. */
bp_err bp_part_result_expect(const bp_part_result *part, size_t want);
