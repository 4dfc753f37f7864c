/* The plan of a save: which rank writes which slices into which file; and a check that they tile
 * every tensor. */
#include "base/mem.h"
#include "io/checkpoint/checkpoint_priv.h"
#include "mesh/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES ((int64_t)512 << 20)

/* The ranks of one writer. */
static MPI_Comm split_groups(MPI_Comm comm, int writers, bp_plan_slice *slices, int64_t count)
{
    int rank = bp_comm_rank(comm), size = bp_comm_size(comm), writer = rank;
    MPI_Comm group;

    if (writers <= 0)
        BP_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &group));
    else
        BP_MPI(MPI_Comm_split(comm, (int)((int64_t)rank * (writers < size ? writers : size) / size),
                              rank, &group));
    BP_MPI_WAIT("bcast", MPI_Bcast(&writer, 1, MPI_INT, 0, group));
    for (int64_t k = 0; k < count; k++) {
        slices[k].writer = writer;
        slices[k].group_rank = bp_comm_rank(group);
    }
    return group;
}

/* ---- the root's part ---- */

/* All ranks' slices on the root, and the tables that gathering and scattering need (one entry per
 * rank). */
struct planner {
    bp_plan_slice *slices;
    int64_t count;
    int *counts, *offsets;
    int size; /* ranks */
    MPI_Datatype type;
};

static int by_tensor(const void *a, const void *b)
{
    const bp_plan_slice *p = a, *q = b;
    int order = strcmp(p->slice.name, q->slice.name);

    for (int d = 0; order == 0 && d < BP_TENSOR_DIMS; d++)
        order =
            (p->slice.offset[d] > q->slice.offset[d]) - (p->slice.offset[d] < q->slice.offset[d]);
    return order;
}

static int by_writer(const void *a, const void *b)
{
    const bp_plan_slice *p = a, *q = b;

    return p->writer != q->writer ? p->writer - q->writer
                                  : (p->piece > q->piece) - (p->piece < q->piece);
}

static bp_err add_piece(bp_manifest *manifest, bp_plan_slice *from)
{
    const bp_slice *slice = &from->slice;
    bp_manifest_tensor *tensor = manifest->tensors + manifest->tensor_count;
    bp_manifest_piece *piece = manifest->pieces + manifest->piece_count;

    if (manifest->tensor_count > 0 && strcmp(slice->name, tensor[-1].name) == 0) {
        tensor--;
    } else {
        manifest->tensor_count++;
        memcpy(tensor->name, slice->name, sizeof tensor->name);
        memcpy(tensor->shape, slice->shape, sizeof tensor->shape);
        tensor->dims = slice->dims;
        tensor->first = manifest->piece_count;
    }
    if (tensor->dims != slice->dims ||
        memcmp(tensor->shape, slice->shape, sizeof slice->shape) != 0)
        return BP_FAIL(BP_ERR_SOFTWARE, "tensor.wrong_slices",
                       "two ranks publish tensor '%s' with different shapes", slice->name);
    tensor->count++;
    from->tensor = manifest->tensor_count - 1;
    from->piece = manifest->piece_count++;
    memcpy(piece->offset, slice->offset, sizeof piece->offset);
    memcpy(piece->extent, slice->extent, sizeof piece->extent);
    return BP_OK;
}

/* Tensors and pieces, sorted, without digests. */
static bp_err make_manifest(bp_manifest **out, bp_plan_slice *slices, int64_t count)
{
    bp_manifest *manifest = bp_alloc("manifest", 1, sizeof *manifest);
    bp_err err = BP_OK;

    *out = manifest;
    qsort(slices, (size_t)count, sizeof *slices, by_tensor);
    manifest->tensors = bp_alloc("manifest.tensors", count, sizeof *manifest->tensors);
    manifest->pieces = bp_alloc("manifest.pieces", count, sizeof *manifest->pieces);
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        err = add_piece(manifest, &slices[k]);
    for (int64_t k = 0; k < manifest->tensor_count && err == BP_OK; k++) {
        const bp_manifest_tensor *tensor = &manifest->tensors[k];

        if (bp_manifest_check_tiles(tensor, manifest->pieces + tensor->first) != BP_OK)
            err = bp_err_prefix(BP_ERR_SOFTWARE, "the ranks' slices");
    }
    return err;
}

static int64_t volume_of(const bp_plan_slice *slice)
{
    return bp_checked_volume(slice->slice.dims, slice->slice.extent);
}

/* The number of files of `each` bytes that this needs. */
static int64_t files_of(int64_t all, int64_t each)
{
    int64_t wanted = (all + each - 1) / each;

    return wanted < BP_FILES_MOST ? wanted : BP_FILES_MOST;
}

/* Divides one writer's slices into files of equal length, without files in which no slice begins.
 * Returns the number of the next file. */
static int64_t number_files(bp_plan_slice *slices, int64_t count, int64_t file, int64_t file_floats,
                            bp_manifest_piece *pieces)
{
    int64_t floats = 0, passed = 0, share = -1, most;

    for (int64_t k = 0; k < count; k++)
        floats += volume_of(&slices[k]);
    most = files_of(floats, file_floats);
    for (int64_t k = 0; k < count; k++) {
        int64_t now = (int64_t)((double)passed / (double)floats * (double)most);

        file += now > share;
        share = now;
        slices[k].shard = (int)file - 1;
        pieces[slices[k].piece].file = file - 1;
        passed += volume_of(&slices[k]);
    }
    return file;
}

/* Files are numbered in the order of their writers' ranks, and within a writer's by tensor; a
 * writer without a slice has none. counts and offsets: for MPI_Scatterv. */
static void share_out(bp_manifest *manifest, bp_plan_slice *slices, int64_t count, int ranks,
                      int64_t file_floats, int *counts, int *offsets)
{
    int64_t place = 0, files = 0;

    qsort(slices, (size_t)count, sizeof *slices, by_writer);
    for (int rank = 0; rank < ranks; rank++) {
        offsets[rank] = (int)place;
        while (place < count && slices[place].writer == rank)
            place++;
        counts[rank] = (int)place - offsets[rank];
        files = number_files(slices + offsets[rank], counts[rank], files, file_floats,
                             manifest->pieces);
    }
    manifest->files =
        bp_alloc("manifest.files", files + 2, /* + tokenizer.json, or the attachment too */
                 sizeof *manifest->files);
    for (int64_t k = 0; k < files; k++)
        (void)snprintf(manifest->files[k].name, BP_MANIFEST_FILE_NAME, "shard-%05d.h5", (int)k);
    manifest->file_count = files;
}

/* ---- adjacent slices of one file ---- */

/* True if b's values follow a's in memory, and both form one box. */
static bool joins(const bp_manifest_piece *a, const bp_manifest_piece *b)
{
    int at = -1;

    for (int d = 0; d < BP_TENSOR_DIMS; d++) {
        if (a->offset[d] == b->offset[d] && a->extent[d] == b->extent[d])
            continue;
        if (at >= 0)
            return false;
        at = d;
    }
    for (int d = 0; d < at; d++)
        if (a->extent[d] != 1)
            return false;
    return at >= 0 && b->offset[at] == a->offset[at] + a->extent[at];
}

/* Sorted slices: a box grows while the next one is adjacent, and may then join the previous one. */
static void join_slices(bp_manifest *manifest, bp_plan_slice *slices, int64_t count)
{
    bp_manifest_piece *pieces = manifest->pieces;
    int64_t *first = bp_alloc("plan.boxes", count + 1, sizeof *first); /* slices of open boxes */
    int64_t boxes = 0;

    for (int64_t k = 0; k < count; k++) {
        first[boxes++] = k;
        while (boxes > 1) {
            const bp_plan_slice *one = &slices[first[boxes - 2]], *next = &slices[first[boxes - 1]];
            bp_manifest_piece *a = &pieces[one->piece], *b = &pieces[next->piece];

            if (one->tensor != next->tensor || one->shard != next->shard || !joins(a, b))
                break;
            for (int d = 0; d < BP_TENSOR_DIMS; d++)
                if (a->offset[d] != b->offset[d])
                    a->extent[d] += b->extent[d];
            b->file = -1; /* merged into another */
            boxes--;
        }
    }
    first[boxes] = count;
    for (int64_t box = 0; box < boxes; box++)
        for (int64_t k = first[box], before = 0; k < first[box + 1]; k++) {
            slices[k].before = before;
            slices[k].piece = slices[first[box]].piece;
            before += volume_of(&slices[k]);
        }
    bp_free(first);
}

/* Removes merged pieces, and numbers the rest by tensor. */
static void renumber(bp_manifest *manifest, bp_plan_slice *slices, int64_t count)
{
    int64_t *now = bp_alloc("plan.pieces", manifest->piece_count, sizeof *now), kept = 0;

    for (int64_t t = 0; t < manifest->tensor_count; t++) {
        bp_manifest_tensor *tensor = &manifest->tensors[t];
        int64_t first = kept;

        for (int64_t p = tensor->first; p < tensor->first + tensor->count; p++) {
            if (manifest->pieces[p].file < 0)
                continue;
            now[p] = kept;
            manifest->pieces[kept] = manifest->pieces[p];
            manifest->pieces[kept].dataset = kept - first;
            kept++;
        }
        tensor->first = first;
        tensor->count = kept - first;
    }
    manifest->piece_count = kept;
    for (int64_t k = 0; k < count; k++) {
        const bp_manifest_piece *piece = &manifest->pieces[now[slices[k].piece]];

        slices[k].piece = now[slices[k].piece];
        slices[k].number = piece->dataset;
        memcpy(slices[k].extent, piece->extent, sizeof slices[k].extent);
    }
    bp_free(now);
}

bp_err bp_plan_make(bp_manifest **out, bp_plan_slice *slices, int64_t count, int ranks,
                    int64_t file_floats, int *counts, int *offsets)
{
    bp_err err = make_manifest(out, slices, count);

    if (err != BP_OK) {
        bp_manifest_free(out);
        return err;
    }
    share_out(*out, slices, count, ranks, file_floats, counts, offsets);
    join_slices(*out, slices, count);
    renumber(*out, slices, count);
    return BP_OK;
}

/* ---- the collective part ---- */

static bp_err space_for_slices(struct planner *planner)
{
    for (int rank = 0; rank < planner->size; rank++) {
        planner->offsets[rank] = (int)planner->count;
        planner->count += planner->counts[rank];
        if (planner->count > BP_PIECES_MAX)
            return BP_FAIL(BP_ERR_SOFTWARE, "tensor.wrong_slices",
                           "the ranks publish more than %lld slices", (long long)BP_PIECES_MAX);
    }
    planner->slices = bp_alloc("plan.slices", planner->count, sizeof *planner->slices);
    return BP_OK;
}

static bp_err gather_slices(struct planner *planner, MPI_Comm comm, const bp_plan_slice *slices,
                            int64_t count)
{
    int mine = bp_mpi_count(count);
    bool root = bp_comm_is_root(comm);
    bp_err err;

    if (root) {
        planner->counts = bp_alloc("plan.counts", planner->size, sizeof *planner->counts);
        planner->offsets = bp_alloc("plan.places", planner->size, sizeof *planner->offsets);
    }
    BP_MPI_WAIT("gather", MPI_Gather(&mine, 1, MPI_INT, planner->counts, 1, MPI_INT, 0, comm));
    err = bp_agree(comm, root ? space_for_slices(planner) : BP_OK);
    if (err == BP_OK)
        BP_MPI_WAIT("gather",
                    MPI_Gatherv(slices, mine, planner->type, planner->slices, planner->counts,
                                planner->offsets, planner->type, 0, comm));
    return err;
}

static void scatter_pieces(bp_plan *plan, const struct planner *planner, MPI_Comm comm)
{
    int mine = 0;

    BP_MPI_WAIT("scatter", MPI_Scatter(planner->counts, 1, MPI_INT, &mine, 1, MPI_INT, 0, comm));
    plan->count = mine;
    plan->pieces = bp_alloc("plan.pieces", mine, sizeof *plan->pieces);
    BP_MPI_WAIT("scatter", MPI_Scatterv(planner->slices, planner->counts, planner->offsets,
                                        planner->type, plan->pieces, mine, planner->type, 0, comm));
    plan->shard = mine > 0 ? plan->pieces[0].shard : -1;
    plan->files = mine > 0 ? plan->pieces[mine - 1].shard - plan->shard + 1 : 0;
}

/* Synchronous writes, one file after another, need less. */
size_t bp_checkpoint_writer_bytes(int64_t bytes)
{
    int64_t files = files_of(bytes, FILE_BYTES);

    return (size_t)files * (BP_SHARD_BLOCK_BYTES + (size_t)BP_PART_FLOATS * sizeof(float));
}

bp_err bp_plan_init(bp_plan *plan, MPI_Comm comm, int writers, int64_t file_bytes,
                    bp_plan_slice *slices, int64_t count)
{
    int64_t file_floats = (file_bytes > 0 ? file_bytes : FILE_BYTES) / (int64_t)sizeof(float);
    struct planner planner = {.size = bp_comm_size(comm)};
    bool root = bp_comm_is_root(comm);
    bp_err err;

    *plan = (bp_plan){.group = split_groups(comm, writers, slices, count), .shard = -1};
    BP_MPI(MPI_Type_contiguous((int)sizeof *slices, MPI_BYTE, &planner.type));
    BP_MPI(MPI_Type_commit(&planner.type));
    err = gather_slices(&planner, comm, slices, count);
    if (err == BP_OK)
        err = bp_agree(comm, root ? bp_plan_make(&plan->manifest, planner.slices, planner.count,
                                                 planner.size, file_floats, planner.counts,
                                                 planner.offsets)
                                  : BP_OK);
    if (err == BP_OK)
        scatter_pieces(plan, &planner, comm);
    else
        bp_plan_clear(plan);
    BP_MPI(MPI_Type_free(&planner.type));
    bp_free(planner.slices);
    bp_free(planner.counts);
    bp_free(planner.offsets);
    return err;
}

void bp_plan_clear(bp_plan *plan)
{
    if (plan->group != MPI_COMM_NULL)
        BP_MPI(MPI_Comm_free(&plan->group));
    bp_free(plan->pieces);
    bp_manifest_free(&plan->manifest);
    *plan = (bp_plan){.group = MPI_COMM_NULL, .shard = -1};
}
