/* Shared by the checkpoint's files: geometry of slices, the manifest, shards, folders. */
#pragma once

#include "base/files/hash.h"
#include "io/checkpoint/checkpoint.h"
#include "io/h5/h5.h"
#include "io/h5/user_block.h"
#include <stdbool.h>
#include <stdint.h>

#define BP_MANIFEST_FORMAT        "bagpipe checkpoint"
#define BP_MANIFEST_VERSION       4 /* with pieces as lists of integers */
#define BP_MANIFEST_VERSION_PART  3 /* contains only an adapter */
#define BP_MANIFEST_VERSION_WHOLE 2
#define BP_MANIFEST_FILE_NAME     24  /* "shard-00000.h5", "tokenizer.json" */
#define BP_PIECE_DATASET          160 /* "/h.0.attn.q.weight/p0" */
#define BP_PIECES_MAX             ((int64_t)1 << 22)
#define BP_FILES_MOST             8                   /* of one writer */
#define BP_PART_FLOATS            ((int64_t)64 << 10) /* a slice is sent in parts that fit caches */

/* ---- manifest.c ---- */

/** The longest manifest.json that is read or written, 64 MiB; and the most pieces written as
 * objects, 16,384: more are written as lists of integers. Tests set them. */
extern int64_t bp_manifest_limit_bytes, bp_manifest_plain_pieces;

typedef struct bp_manifest_file {
    char name[BP_MANIFEST_FILE_NAME];
    int64_t bytes;
    /* One of the two, the other is "": SHA-256 of the whole file; or, for our shards and
     * attachments, XXH3-128 of everything after the user block. */
    char sha256[BP_SHA256_HEX], xxh3[BP_USER_BLOCK_HASH];
} bp_manifest_file;

typedef struct bp_manifest_piece {
    int64_t file;    /* its index in `files` */
    int64_t dataset; /* k of /TENSOR/pk; below 0: -1 - the offset of another name in `names` */
    int64_t offset[BP_TENSOR_DIMS], extent[BP_TENSOR_DIMS];
} bp_manifest_piece;

typedef struct bp_manifest_tensor {
    char name[BP_TENSOR_NAME];
    int dims;
    int64_t shape[BP_TENSOR_DIMS];
    bp_digest digest;
    int64_t first, count; /* its run of `pieces` */
} bp_manifest_tensor;

typedef struct bp_manifest {
    bp_manifest_file *files; /* sorted by name */
    int64_t file_count;
    bp_manifest_tensor *tensors; /* sorted by name */
    int64_t tensor_count;
    bp_manifest_piece *pieces; /* by tensor, then by offset */
    int64_t piece_count;
    char *names; /* of datasets, each ended by a zero byte */
    int64_t name_bytes, name_capacity;
    json_t *state;
} bp_manifest;

/** Parse and check: names, files, pieces that tile every tensor exactly. `path` is for messages.
 *
 * Errors: BP_ERR_FORMAT; *foreign: only the version is unknown; BP_ERR_SYSTEM. *out is NULL then.
 */
bp_err bp_manifest_parse(bp_manifest **out, bool *foreign, const char *text, size_t bytes,
                         const char *path);
/** The canonical text. Free with bp_free().
 *
 * Errors: BP_ERR_SYSTEM; BP_ERR_FORMAT longer than the reader's limit. */
bp_err bp_manifest_text(const bp_manifest *manifest, char **text);
void bp_manifest_free(bp_manifest **manifest);
/** Broadcast the root's manifest to the others, whose *manifest is NULL before. Collective over
 * comm. */
void bp_manifest_share(bp_manifest **manifest, MPI_Comm comm);
/** "/TENSOR/pNUMBER". */
void bp_piece_dataset(char out[BP_PIECE_DATASET], const char *tensor, int64_t number);
/** The dataset of a piece. */
void bp_manifest_dataset(char out[BP_PIECE_DATASET], const bp_manifest *manifest,
                         const bp_manifest_tensor *tensor, const bp_manifest_piece *piece);
const bp_manifest_tensor *bp_manifest_find(const bp_manifest *manifest, const char *name);
/** The index of a file in the list; -1 if not listed. */
int64_t bp_manifest_find_file(const bp_manifest *manifest, const char *name);
/** A piece of a tensor as a slice, or the whole tensor if `piece` is NULL; without data. */
bp_slice bp_manifest_slice(const bp_manifest_tensor *tensor, const bp_manifest_piece *piece);

/** Check that the pieces of one tensor, sorted by offset, tile its shape.
 *
 * Errors: BP_ERR_FORMAT hole, overlap. */
bp_err bp_manifest_check_tiles(const bp_manifest_tensor *tensor, const bp_manifest_piece *pieces);

void bp_digest_text(char out[33], const bp_digest *digest);

/* --- checkpoint_plan.c: who writes what --------------------------------------------------------
 */

/** One slice of one rank, as sent to the root and to the writers. */
typedef struct bp_plan_slice {
    bp_slice slice; /* its data are only on its holder */
    int64_t index;  /* in its holder's list */
    int64_t place;  /* in its holder's snapshot, if there is one */
    int writer;     /* rank of its writer in the communicator of the save */
    int group_rank; /* rank of its holder among the ranks of that writer */
    int shard;      /* the number of the file; set by the plan, as are the next three */
    int64_t tensor; /* index in the manifest, */
    int64_t piece;  /* and its piece there, which slices of one file may share, */
    int64_t number; /* whose dataset is /NAME/pNUMBER, */
    int64_t extent[BP_TENSOR_DIMS]; /* of this size, */
    int64_t before;                 /* with this many values before those of the slice */
    int64_t address;                /* address of its values in the file; set by its writer */
    bp_digest digest; /* digest of the part seen by its writer, or of the whole slice when its
                         snapshot was taken */
} bp_plan_slice;

typedef struct bp_plan {
    MPI_Comm group;        /* the ranks of one writer, which is its rank 0 */
    int shard;             /* the first file that this rank writes; -1 if none */
    int files;             /* number of its files */
    bp_plan_slice *pieces; /* in them, by file, tensor and offset; by address once laid out */
    int64_t count;
    /* on the root: tensors without digest, pieces, files without size and hash; NULL elsewhere */
    bp_manifest *manifest;
} bp_plan;

/** Assign the writing to ranks, and check that the slices of all ranks tile every tensor.
 *
 * writers:      0: one per node, else the number of groups of neighbouring ranks.
 * file_bytes:   as in bp_checkpoint_commit.
 * slices[count]: this rank's, with slice, index, place and digest.
 * Collective:   over `comm`; writers and file_bytes are equal on all ranks.
 * Errors:       BP_ERR_SOFTWARE slices that don't tile: the same on all ranks, *plan is cleared.
 */
bp_err bp_plan_init(bp_plan *plan, MPI_Comm comm, int writers, int64_t file_bytes,
                    bp_plan_slice *slices, int64_t count);
void bp_plan_clear(bp_plan *plan);
/** The local part: makes *out from the slices of all `ranks`, whose writers are set. Sorts them by
 * writer, file and place in it; rank r writes counts[r] from offsets[r] on. Adjacent slices of one
 * file form one piece. Errors: as bp_plan_init; *out is NULL then. */
bp_err bp_plan_make(bp_manifest **out, bp_plan_slice *slices, int64_t count, int ranks,
                    int64_t file_floats, int *counts, int *offsets);

/* --- shard.c: one HDF5 file of pieces -----------------------------------------------------------
 */

/** Memory of a shard while it is written. */
#define BP_SHARD_BLOCK_BYTES ((size_t)8 << 20)

/* create, add..., lay_out, write..., seal, read_back..., free. Errors: BP_ERR_IO, and create's
 * BP_ERR_CREATE and BP_ERR_DENIED. */
typedef struct bp_shard bp_shard;
bp_err bp_shard_create(bp_shard **out, const char *path);
/** Make the dataset of a piece, with the first of its slices; the slice's address is set. */
bp_err bp_shard_add(bp_shard *shard, bp_plan_slice *slice);
/** Call after adding all pieces: gives the file its full length, and closes it in HDF5. */
bp_err bp_shard_lay_out(bp_shard *shard);
/** Write a part of a piece in its place, by ascending address. Writes are buffered, so a later call
 * may report a full disk. */
bp_err bp_shard_write(bp_shard *shard, const bp_plan_slice *piece, const bp_part *part,
                      const float *values);
/** Write the user block, sync and close the file: bytes that were never written keep their
 * contents. */
bp_err bp_shard_seal(bp_shard *shard);
/** Read the next part of a sealed shard. With the last one, *more is false, and *bytes and `hash`
 * (that of its user block) are the file's. Errors: BP_ERR_IO unreadable, or different from what was
 * written. */
bp_err bp_shard_read_back(bp_shard *shard, bool *more, char hash[BP_USER_BLOCK_HASH],
                          int64_t *bytes);
/** Check that a closed shard of ours is whole, and that `hash` is that of its user block.
 *
 * Errors: BP_ERR_FORMAT; BP_ERR_IO, BP_ERR_DENIED, BP_ERR_INPUT, BP_ERR_SYSTEM. */
bp_err bp_shard_verify(const char *path, const char hash[BP_USER_BLOCK_HASH]);
/** Closes the file and leaves it on disk; an unsealed one is not to be kept. */
void bp_shard_free(bp_shard **shard);

/** Read the part of a piece that a slice needs (both relative to their own start) into the slice's
 * memory. */
bp_err bp_shard_read(bp_h5 *file, const bp_manifest *manifest, const bp_manifest_tensor *tensor,
                     const bp_manifest_piece *piece, const bp_slice *slice);

/* ---- copy_x86.c, for CPUs that write past their caches, or copy_any.c ---- */

/** to[count] = from[count], with nontemporal stores where possible; false if a value is not finite.
 * The copy is visible to threads that synchronise with this one afterwards. */
bool bp_copy_finite(float *to, const float *from, int64_t count);

/* ---- checkpoint_open.c ---- */

struct bp_checkpoint {
    MPI_Comm comm; /* borrowed: must outlive the handle */
    char *folder;
    char *tokenizer;  /* path; NULL if there is none */
    char *attachment; /* the same */
    bp_manifest *manifest;
    bp_checkpoint *base;                /* has the tensors missing here; NULL if there is none */
    const bp_manifest_tensor **tensors; /* [tensor_count] of both checkpoints, sorted by name */
    int64_t tensor_count;
    char digest[BP_SHA256_HEX];
};

/** As bp_checkpoint_open; *foreign, on all ranks: only the format version is unknown, or the
 * checkpoint is whole and its base is missing or another one. */
bp_err bp_checkpoint_open_folder(MPI_Comm comm, const char *folder, bp_checkpoint **out,
                                 bool *foreign);
/** The same without its base, if it has one. */
bp_err bp_checkpoint_open_without_base(MPI_Comm comm, const char *folder, bp_checkpoint **out,
                                       bool *foreign);

/* ---- checkpoint_base.c ---- */

/** Records where the tokenizer of a checkpoint's "tokenizer_hash" is (bp_tokenizer_hash_is_of). */
void bp_checkpoint_note_tokenizer(const json_t *state, const char *path);

/** Opens the state's "base", if there is one. Collective over the checkpoint's communicator.
 * Errors: BP_ERR_INPUT missing; BP_ERR_FORMAT another checkpoint; those of bp_checkpoint_open: the
 * same on all ranks. */
bp_err bp_checkpoint_open_base(bp_checkpoint *checkpoint);
/** Fills in checkpoint->tensors. Local. */
void bp_checkpoint_list_tensors(bp_checkpoint *checkpoint);
/** Is the tensor read from the base? Local. */
bool bp_checkpoint_is_of_base(const bp_checkpoint *checkpoint, const char *tensor);

/* ---- checkpoint_load.c ---- */

/** Check that every tensor in the files has the manifest's digest; files are divided over the
 * ranks. Collective: over the communicator of open. Errors: as bp_checkpoint_check_digests. */
bp_err bp_checkpoint_verify_digests(const bp_checkpoint *checkpoint);

/* ---- checkpoint_folder.c ---- */

/** True for "step-" and 12 digits; *step is the number. */
bool bp_step_of_name(const char *name, int64_t *step);
