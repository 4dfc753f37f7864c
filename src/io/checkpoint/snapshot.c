/* The copy is in a file without a name (memfd), so that another rank of the node can open it by
 * process id and descriptor. A killed process leaves nothing of it. */
#include "io/checkpoint/snapshot.h"

#include "base/fault.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint_priv.h"

#include <fcntl.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE_FLOATS  1024
#define CHUNK_FLOATS 4096 /* copied and then digested, from the nearest cache */

struct bp_snapshot {
    float *copy;
    int64_t floats;
    int own;    /* the descriptor of the copy; -1: plain memory */
    int *files; /* on rank 0 of a node: the descriptors of its ranks' copies */
    int ranks;  /* of the node */
    bool shared;
};

/* The data that another rank of the node needs to open a copy, and to identify it. */
typedef struct snapshot_address {
    int64_t process, descriptor;
    uint64_t device, inode;
} snapshot_address;

/* ---- memory ---- */

static size_t mapped_bytes(const bp_snapshot *snapshot)
{
    return (size_t)(snapshot->floats > 0 ? snapshot->floats : 1) * sizeof(float);
}

/* If the kernel provides no such file, plain memory suffices for this rank. */
static bp_err map(bp_snapshot *snapshot)
{
    size_t bytes = mapped_bytes(snapshot);
    void *at = MAP_FAILED;

    snapshot->own = bp_fault("ckpt.share") ? -1 : memfd_create("bagpipe-checkpoint", MFD_CLOEXEC);
    if (snapshot->own >= 0 && ftruncate(snapshot->own, (off_t)bytes) == 0)
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, snapshot->own, 0);
    if (at == MAP_FAILED) {
        if (snapshot->own >= 0)
            (void)close(snapshot->own); /* nothing was written */
        snapshot->own = -1;
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (at == MAP_FAILED)
        return bp_fail_memory("the copy that a checkpoint is written from", snapshot->floats,
                              sizeof(float));
    (void)madvise(at, bytes, MADV_HUGEPAGE); /* a hint: most kernels ignore it for such files */
    snapshot->copy = at;
    return BP_OK;
}

/* The range of a thread among the floats of all slices, concatenated. Whole pages, the same at
 * every call. */
static void own_floats(int64_t all, int64_t *first, int64_t *end)
{
    int64_t pages = (all + PAGE_FLOATS - 1) / PAGE_FLOATS;
    int64_t thread = omp_get_thread_num(), threads = omp_get_num_threads();

    *first = pages * thread / threads * PAGE_FLOATS;
    *end = pages * (thread + 1) / threads * PAGE_FLOATS;
    *end = *end < all ? *end : all;
}

/* ---- the ranks of a node ---- */

static snapshot_address address_of(const bp_snapshot *snapshot)
{
    snapshot_address address = {.process = (int64_t)getpid(), .descriptor = snapshot->own};
    struct stat status = {0};

    if (snapshot->own >= 0 && fstat(snapshot->own, &status) != 0)
        address.descriptor = -1;
    address.device = (uint64_t)status.st_dev;
    address.inode = (uint64_t)status.st_ino;
    return address;
}

/* -1 if it can't be opened, or is another file. */
static int open_copy(const snapshot_address *address)
{
    char path[64];
    struct stat status;
    int fd;

    if (address->descriptor < 0)
        return -1;
    (void)snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)address->process,
                   (long long)address->descriptor);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &status) != 0 || (uint64_t)status.st_dev != address->device ||
                    (uint64_t)status.st_ino != address->inode)) {
        (void)close(fd); /* only opened */
        fd = -1;
    }
    return fd;
}

static bool open_copies(bp_snapshot *snapshot, const snapshot_address *addresses)
{
    bool all = true;

    for (int rank = 0; rank < snapshot->ranks; rank++) {
        snapshot->files[rank] = rank == 0 ? -1 : open_copy(&addresses[rank]);
        all = all && (rank == 0 || snapshot->files[rank] >= 0);
    }
    return all;
}

static void share(bp_snapshot *snapshot, MPI_Comm comm)
{
    snapshot_address mine = address_of(snapshot), *addresses = NULL;
    MPI_Comm node;
    int good = 1, all_good = 0;

    BP_MPI(
        MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, bp_comm_rank(comm), MPI_INFO_NULL, &node));
    snapshot->ranks = bp_comm_size(node);
    addresses = bp_alloc("snapshot.addresses", snapshot->ranks, sizeof *addresses);
    snapshot->files = bp_alloc("snapshot.files", snapshot->ranks, sizeof *snapshot->files);
    BP_MPI_WAIT("gather", MPI_Gather(&mine, (int)sizeof mine, MPI_BYTE, addresses, (int)sizeof mine,
                                     MPI_BYTE, 0, node));
    if (bp_comm_rank(node) == 0)
        good = open_copies(snapshot, addresses);
    else
        snapshot->ranks = 0; /* it reads only its own */
    BP_MPI_WAIT("allreduce", MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_MIN, comm));
    snapshot->shared = all_good != 0;
    BP_MPI(MPI_Comm_free(&node));
    bp_free(addresses);
}

bp_err bp_snapshot_new(bp_snapshot **out, MPI_Comm comm, int64_t floats)
{
    bp_snapshot *snapshot = bp_alloc("snapshot", 1, sizeof *snapshot);
    bp_err err;

    *snapshot = (bp_snapshot){.floats = floats, .own = -1};
    err = bp_agree(comm, map(snapshot));
    if (err == BP_OK) {
/* each page is touched by the thread that will copy to it, so it is resident and near its cores */
#pragma omp parallel
        {
            int64_t first, end;

            own_floats(floats, &first, &end);
            for (int64_t k = first; k < end; k += PAGE_FLOATS)
                snapshot->copy[k] = 0;
        }
        share(snapshot, comm);
    } else {
        bp_snapshot_free(&snapshot);
    }
    *out = snapshot;
    return err;
}

void bp_snapshot_free(bp_snapshot **at)
{
    bp_snapshot *snapshot = *at;

    *at = NULL;
    if (!snapshot)
        return;
    for (int rank = 1; snapshot->files && rank < snapshot->ranks; rank++)
        if (snapshot->files[rank] > 0)
            (void)close(snapshot->files[rank]); /* only read from */
    if (snapshot->copy)
        (void)munmap(snapshot->copy, mapped_bytes(snapshot)); /* as it was mapped */
    if (snapshot->own >= 0)
        (void)close(snapshot->own); /* the unnamed file ends with this */
    bp_free(snapshot->files);
    bp_free(snapshot);
}

/* ---- copying ---- */

static int64_t floats_of(const bp_slice *slice)
{
    return bp_checked_volume(slice->dims, slice->extent);
}

/* `count` values of a slice from `first` on. False if one is not finite. */
static bool copy_part(float *to, const bp_slice *slice, int64_t first, int64_t count,
                      bp_digest *digest)
{
    bp_digest mine = {{0}};
    bool finite = true;

    for (int64_t k = 0; k < count; k += CHUNK_FLOATS) {
        int64_t now = count - k < CHUNK_FLOATS ? count - k : CHUNK_FLOATS;
        const float *values = slice->data + first + k;

        finite = bp_copy_finite(to + k, values, now) && finite;
        bp_slice_digest_part(&mine, slice, first + k, values, now);
    }
    for (int lane = 0; lane < 2; lane++)
#pragma omp atomic
        digest->lane[lane] += mine.lane[lane];
    return finite;
}

/* Processes floats [first, end) of all slices, concatenated. copy: destination, or NULL to only
 * check them. Returns the first slice with a value that is not finite, or `count`. */
static int64_t pass_range(float *copy, const bp_slice *slices, int64_t count, bp_digest *digests,
                          int64_t first, int64_t end)
{
    int64_t at = 0, bad = count;

    for (int64_t k = 0; k < count && at < end; k++) {
        int64_t floats = floats_of(&slices[k]);
        int64_t begin = first > at ? first - at : 0;
        int64_t n = (end < at + floats ? end - at : floats) - begin;
        bool finite =
            n <= 0 || (copy ? copy_part(copy + at + begin, &slices[k], begin, n, &digests[k])
                            : bp_are_finite(slices[k].data + begin, n));

        bad = finite || bad < count ? bad : k;
        at += floats;
    }
    return bad;
}

/* One region for all slices: the threads synchronise once, and have equal work. */
static int64_t pass(float *copy, const bp_slice *slices, int64_t count, bp_digest *digests)
{
    int64_t all = bp_slices_floats(slices, count), bad = count;

#pragma omp parallel reduction(min : bad)
    {
        int64_t first, end;

        own_floats(all, &first, &end);
        bad = pass_range(copy, slices, count, digests, first, end);
    }
    return bad < count ? bad : -1;
}

int64_t bp_snapshot_take(bp_snapshot *snapshot, bp_slice *slices, int64_t count, bp_digest *digests)
{
    int64_t at = 0, bad;

    BP_ASSERT(bp_slices_floats(slices, count) <= snapshot->floats);
    for (int64_t k = 0; k < count; k++)
        digests[k] = (bp_digest){{0}};
    bad = pass(snapshot->copy, slices, count, digests);
    for (int64_t k = 0; k < count; k++) {
        slices[k].data = snapshot->copy + at;
        at += floats_of(&slices[k]);
    }
    return bad;
}

int64_t bp_slices_floats(const bp_slice *slices, int64_t count)
{
    int64_t floats = 0;

    for (int64_t k = 0; k < count; k++)
        floats += floats_of(&slices[k]);
    return floats;
}

int64_t bp_slices_not_finite(const bp_slice *slices, int64_t count)
{
    return pass(NULL, slices, count, NULL);
}

/* ---- reading ---- */

bool bp_snapshot_is_shared(const bp_snapshot *snapshot)
{
    return snapshot->shared;
}

int64_t bp_snapshot_place(const bp_snapshot *snapshot, const float *data)
{
    return data - snapshot->copy;
}

bp_err bp_snapshot_read(const bp_snapshot *snapshot, int rank, int64_t place, int64_t count,
                        float *scratch, const float **values)
{
    *values = rank == 0 ? snapshot->copy + place : scratch;
    if (rank > 0 && bp_pread_all(snapshot->files[rank], scratch, (size_t)count * sizeof *scratch,
                                 place * (int64_t)sizeof *scratch) != 0)
        return bp_fail_errno(BP_ERR_SYSTEM, "can't read a neighbour's copy of its state",
                             "/proc/PID/fd");
    return BP_OK;
}
