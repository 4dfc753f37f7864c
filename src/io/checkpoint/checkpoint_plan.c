/* The plan of a save: which rank writes which slices into which file, and do they tile every
 * tensor.
 */
#include "base/mem.h"
#include "io/checkpoint/checkpoint_priv.h"
#include "io/checkpoint/direct_writer.h"
#include "mesh/collective.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES ((int64_t)512 << 20)

/* ---- groups: the ranks of one writer ---- */

static void split_groups(MPI_Comm comm, int writers, MPI_Comm *group, bp_plan_slice *slices,
                         int64_t count)
{
    int rank = bp_comm_rank(comm), size = bp_comm_size(comm), writer = rank, group_rank;

    if (writers <= 0)
        BP_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, group));
    else
        BP_MPI(MPI_Comm_split(comm, (int)((int64_t)rank * (writers < size ? writers : size) / size),
                              rank, group));
    BP_MPI_WAIT("bcast", MPI_Bcast(&writer, 1, MPI_INT, 0, *group));
    group_rank = bp_comm_rank(*group);
    for (int64_t k = 0; k < count; k++) {
        slices[k].writer = writer;
        slices[k].group_rank = group_rank;
    }
}

/* ---- the root's part ---- */

/* All ranks' slices on the root, and the tables that gathering and scattering need (one entry a
 * rank). */
struct planner {
    bp_plan_slice *slices;
    int64_t count;
    int *counts, *places;
};

static void planner_clear(struct planner *planner)
{
    bp_free(planner->slices);
    bp_free(planner->counts);
    bp_free(planner->places);
}

static int compare_slices(const void *a, const void *b)
{
    const bp_plan_slice *p = a, *q = b;
    int order = strcmp(p->name, q->name);

    if (order != 0)
        return order;
    for (int d = 0; d < BP_TENSOR_DIMS; d++)
        if (p->offset[d] != q->offset[d])
            return p->offset[d] < q->offset[d] ? -1 : 1;
    return 0;
}

/* What one writer has. */
typedef struct writer_load {
    int64_t floats, passed;
    int64_t files, first; /* the number of its first file */
    int64_t share;        /* of its floats, in files' lengths, that `passed` lies in */
} writer_load;

static int64_t volume_of(const bp_plan_slice *slice)
{
    return bp_checked_volume(slice->dims, slice->extent);
}

/* Into how many files so much goes, of `each`. */
static int64_t files_of(int64_t all, int64_t each)
{
    int64_t wanted = (all + each - 1) / each;

    return wanted < BP_FILES_MOST ? wanted : BP_FILES_MOST;
}

/* Which of its writer's files a slice comes into: shares of equal length, without those that no
 * slice begins in. */
static int64_t next_file(writer_load *load, const bp_plan_slice *slice, int64_t file_floats)
{
    int64_t most = files_of(load->floats, file_floats);
    int64_t share = (int64_t)((double)load->passed / (double)load->floats * (double)most);

    if (load->files == 0 || share > load->share)
        load->files++;
    load->share = share;
    load->passed += volume_of(slice);
    return load->files - 1;
}

/* Files are numbered in the order of their writers' ranks, and within a writer's by tensor; a
 * writer without a slice has none. */
static void number_shards(struct planner *planner, int size, int64_t file_floats, int64_t *files)
{
    writer_load *loads = bp_alloc("plan.loads", size, sizeof *loads);

    *files = 0;
    for (int rank = 0; rank < size; rank++)
        planner->counts[rank] = 0;
    for (int64_t k = 0; k < planner->count; k++) {
        planner->counts[planner->slices[k].writer]++;
        loads[planner->slices[k].writer].floats += volume_of(&planner->slices[k]);
    }
    for (int64_t k = 0; k < planner->count; k++)
        planner->slices[k].shard =
            (int32_t)next_file(&loads[planner->slices[k].writer], &planner->slices[k], file_floats);
    for (int rank = 0; rank < size; rank++) {
        loads[rank].first = *files;
        *files += loads[rank].files;
    }
    for (int64_t k = 0; k < planner->count; k++)
        planner->slices[k].shard += (int32_t)loads[planner->slices[k].writer].first;
    bp_free(loads);
}

static void make_manifest(bp_manifest **out, int64_t files, int64_t pieces)
{
    bp_manifest *manifest = bp_alloc("manifest", 1, sizeof *manifest);

    *out = manifest;
    manifest->files =
        bp_alloc("manifest.files", files + 1, sizeof *manifest->files); /* + tokenizer.json */
    manifest->tensors = bp_alloc("manifest.tensors", pieces, sizeof *manifest->tensors);
    manifest->pieces = bp_alloc("manifest.pieces", pieces, sizeof *manifest->pieces);
    for (int64_t k = 0; k < files; k++)
        (void)snprintf(manifest->files[k].name, BP_MANIFEST_FILE_NAME, "shard-%05d.h5", (int)k);
    manifest->file_count = files;
}

static void start_tensor(bp_manifest *manifest, const bp_plan_slice *slice)
{
    bp_manifest_tensor *tensor = &manifest->tensors[manifest->tensor_count++];

    memcpy(tensor->name, slice->name, sizeof tensor->name);
    memcpy(tensor->shape, slice->shape, sizeof tensor->shape);
    tensor->dims = slice->dims;
    tensor->first = manifest->piece_count;
}

static bp_err add_piece(bp_manifest *manifest, bp_plan_slice *slice)
{
    bp_manifest_tensor *tensor = &manifest->tensors[manifest->tensor_count - 1];
    bp_manifest_piece *piece = &manifest->pieces[manifest->piece_count++];

    if (tensor->dims != slice->dims ||
        memcmp(tensor->shape, slice->shape, sizeof slice->shape) != 0)
        return BP_FAIL(BP_ERR_SOFTWARE, "two ranks publish tensor '%s' with different shapes",
                       slice->name);
    slice->number = tensor->count++;
    slice->tensor = manifest->tensor_count - 1;
    piece->file = slice->shard;
    bp_piece_dataset(piece->dataset, slice->name, slice->number);
    memcpy(piece->offset, slice->offset, sizeof piece->offset);
    memcpy(piece->extent, slice->extent, sizeof piece->extent);
    return BP_OK;
}

static bp_err fill_manifest(bp_manifest *manifest, struct planner *planner)
{
    for (int64_t k = 0; k < planner->count; k++) {
        bp_plan_slice *slice = &planner->slices[k];

        if (k == 0 || strcmp(slice->name, slice[-1].name) != 0)
            start_tensor(manifest, slice);
        if (add_piece(manifest, slice) != BP_OK)
            return BP_ERR_SOFTWARE;
    }
    for (int64_t k = 0; k < manifest->tensor_count; k++) {
        const bp_manifest_tensor *tensor = &manifest->tensors[k];

        if (bp_manifest_check_tiles(tensor, manifest->pieces + tensor->first) != BP_OK)
            return bp_err_prefix(BP_ERR_SOFTWARE, "the ranks' slices");
    }
    return BP_OK;
}

/* Sort the slices by writer, each writer's by tensor and offset as they were; counts and places for
 * MPI_Scatterv. */
static void order_by_writer(struct planner *planner, int size)
{
    bp_plan_slice *sorted = bp_alloc("plan.slices", planner->count, sizeof *sorted);
    int64_t place = 0;

    for (int rank = 0; rank < size; rank++) {
        planner->places[rank] = (int)place;
        place += planner->counts[rank];
        planner->counts[rank] = 0;
    }
    for (int64_t k = 0; k < planner->count; k++) {
        int writer = planner->slices[k].writer;

        sorted[planner->places[writer] + planner->counts[writer]++] = planner->slices[k];
    }
    bp_free(planner->slices);
    planner->slices = sorted;
}

static bp_err plan_on_root(bp_plan *plan, struct planner *planner, int size, int64_t file_floats)
{
    int64_t files;
    bp_err err;

    if (planner->count > 0)
        qsort(planner->slices, (size_t)planner->count, sizeof *planner->slices, compare_slices);
    number_shards(planner, size, file_floats, &files);
    make_manifest(&plan->manifest, files, planner->count);
    err = fill_manifest(plan->manifest, planner);
    if (err == BP_OK)
        order_by_writer(planner, size);
    return err;
}

/* ---- the collective part ---- */

static MPI_Datatype slice_type(void)
{
    MPI_Datatype type;

    BP_MPI(MPI_Type_contiguous((int)sizeof(bp_plan_slice), MPI_BYTE, &type));
    BP_MPI(MPI_Type_commit(&type));
    return type;
}

static void room_for_counts(struct planner *planner, int size)
{
    planner->counts = bp_alloc("plan.counts", size, sizeof *planner->counts);
    planner->places = bp_alloc("plan.places", size, sizeof *planner->places);
}

static bp_err room_for_slices(struct planner *planner, int size)
{
    for (int rank = 0; rank < size; rank++) {
        planner->places[rank] = (int)planner->count;
        planner->count += planner->counts[rank];
        if (planner->count > BP_PIECES_MAX)
            return BP_FAIL(BP_ERR_SOFTWARE, "the ranks publish more than %lld slices",
                           (long long)BP_PIECES_MAX);
    }
    planner->slices = bp_alloc("plan.slices", planner->count, sizeof *planner->slices);
    return BP_OK;
}

static bp_err gather_slices(struct planner *planner, MPI_Comm comm, const bp_plan_slice *slices,
                            int64_t count)
{
    int size = bp_comm_size(comm), mine = bp_mpi_count(count);
    bool root = bp_comm_is_root(comm);
    MPI_Datatype type;
    bp_err err = BP_OK;

    if (root)
        room_for_counts(planner, size);

    BP_MPI_WAIT("gather", MPI_Gather(&mine, 1, MPI_INT, planner->counts, 1, MPI_INT, 0, comm));
    err = bp_agree(comm, root ? room_for_slices(planner, size) : BP_OK);
    if (err != BP_OK)
        return err;
    type = slice_type();
    BP_MPI_WAIT("gather", MPI_Gatherv(slices, mine, type, planner->slices, planner->counts,
                                      planner->places, type, 0, comm));
    BP_MPI(MPI_Type_free(&type));
    return BP_OK;
}

static void scatter_pieces(bp_plan *plan, const struct planner *planner, MPI_Comm comm)
{
    MPI_Datatype type;
    int mine = 0;

    BP_MPI_WAIT("scatter", MPI_Scatter(planner->counts, 1, MPI_INT, &mine, 1, MPI_INT, 0, comm));
    plan->count = mine;
    plan->pieces = bp_alloc("plan.pieces", mine, sizeof *plan->pieces);
    type = slice_type();
    BP_MPI_WAIT("scatter", MPI_Scatterv(planner->slices, planner->counts, planner->places, type,
                                        plan->pieces, mine, type, 0, comm));
    BP_MPI(MPI_Type_free(&type));
    plan->shard = mine > 0 ? plan->pieces[0].shard : -1;
    plan->files = mine > 0 ? plan->pieces[mine - 1].shard - plan->shard + 1 : 0;
}

/* Files that are written one after another, where training waits, take less. */
size_t bp_checkpoint_writer_bytes(int64_t bytes)
{
    int64_t files = files_of(bytes, FILE_BYTES);

    return (size_t)files * (BP_DIRECT_BYTES + (size_t)BP_PART_FLOATS * sizeof(float));
}

bp_err bp_plan_init(bp_plan *plan, MPI_Comm comm, const bp_plan_spec *spec, bp_plan_slice *slices,
                    int64_t count)
{
    int64_t file_floats =
        (spec->file_bytes > 0 ? spec->file_bytes : FILE_BYTES) / (int64_t)sizeof(float);
    struct planner planner = {NULL, 0, NULL, NULL};
    bp_err err;

    *plan = (bp_plan){.group = MPI_COMM_NULL, .shard = -1};
    split_groups(comm, spec->writers, &plan->group, slices, count);
    err = gather_slices(&planner, comm, slices, count);
    if (err == BP_OK)
        err = bp_agree(comm, bp_comm_is_root(comm)
                                 ? plan_on_root(plan, &planner, bp_comm_size(comm), file_floats)
                                 : BP_OK);
    if (err == BP_OK)
        scatter_pieces(plan, &planner, comm);
    planner_clear(&planner);
    if (err != BP_OK)
        bp_plan_clear(plan);
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
