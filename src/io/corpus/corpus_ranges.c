/* Files of lines cut into ranges of bytes, which ranks read in turn: each its part of the input.
 * The numbers of lines are known when all have counted the newlines of theirs. Called by
 * corpus_build.c. */
#include "corpus_build_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "mesh/collective.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define RANGE_BYTES ((int64_t)256 << 10)

static int64_t range_bytes_of(const bp_corpus_build *build)
{
    return build->range_bytes > 0 ? build->range_bytes : RANGE_BYTES;
}

/* What a range has besides its place. */
typedef struct range_lines {
    int64_t newlines; /* in it; */
    int64_t ends;     /* 1: the last byte is one */
} range_lines;

/* Can a file be read from any byte on? */
static bp_err look_at(const char *path, int64_t *bytes, bool *plain)
{
    bp_text_source *source = NULL;
    int fd;
    bp_err err = bp_file_open(path, &fd, bytes);

    if (err != BP_OK)
        return err;
    *plain = lseek(fd, 0, SEEK_END) == (off_t)*bytes; /* no pipe */
    (void)close(fd);
    if (*plain && *bytes > 0)
        err = bp_text_source_open(&source, path);
    if (err == BP_OK && source)
        *plain = bp_text_source_is_plain(source);
    bp_text_source_close(&source);
    return err;
}

static bool may_have_ranges(const bp_corpus_build *build, int ranks)
{
    if (ranks == 1 || (build->format != BP_TEXT_LINES && build->format != BP_TEXT_JSONL))
        return false;
    for (int k = 0; k < build->path_count; k++)
        if (strcmp(build->paths[k], BP_TEXT_STDIN) == 0)
            return false;
    return true;
}

static bp_err count_newlines(range_lines *out, int fd, const bp_text_range *range, char *block,
                             const char *path)
{
    int64_t bytes = range->end - range->first;
    const char *at = block, *end = block + bytes;

    if (bp_pread_all(fd, block, (size_t)bytes, range->first) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't read", path);
    for (; (at = memchr(at, '\n', (size_t)(end - at))); at++)
        out->newlines++;
    out->ends = end[-1] == '\n';
    return BP_OK;
}

/* This rank's ranges, and what they have; sizes[files]. */
static bp_err count_mine(bp_ranges *out, range_lines *lines, const bp_corpus_build *build,
                         const int64_t *sizes, int rank, int ranks)
{
    const int64_t each = range_bytes_of(build);
    char *block = bp_alloc("io.ranges", each, 1);
    int64_t k = 0, before = 0;
    bp_err err = BP_OK;

    for (int file = 0; err == BP_OK && file < build->path_count; before += sizes[file++]) {
        int fd = -1;

        err = bp_file_open(build->paths[file], &fd, NULL);
        for (int64_t first = 0; err == BP_OK && first < sizes[file]; first += each, k++) {
            int64_t left = sizes[file] - first;
            const bp_text_range range = {file, first, first + (left < each ? left : each), 0,
                                         before + first};

            if (k % ranks != rank)
                continue;
            out->mine[out->count++] = range;
            err = count_newlines(&lines[k], fd, &range, block, build->paths[file]);
        }
        if (fd >= 0)
            (void)close(fd);
    }
    bp_free(block);
    return err;
}

/* A line begins at the begin of a file and after each newline. */
static void number_lines(bp_ranges *out, const range_lines *lines, const bp_corpus_build *build,
                         const int64_t *sizes)
{
    const int64_t each = range_bytes_of(build);
    int64_t k = 0, mine = 0;

    for (int file = 0; file < build->path_count; file++) {
        int64_t begun = 0; /* before the range */

        for (int64_t first = 0; first < sizes[file]; first += each, k++) {
            bp_text_range *range = mine < out->count ? &out->mine[mine] : NULL;

            if (range && range->file == file && range->first == first) {
                range->line = begun;
                mine++;
            }
            begun += lines[k].newlines - lines[k].ends + (first == 0);
            begun += first > 0 ? lines[k - 1].ends : 0;
        }
    }
}

/* sizes[files]; how many ranges there are, 0: ranks take pieces in turn. */
static bp_err count_ranges(int64_t *all, int64_t *sizes, const bp_corpus_build *build)
{
    const int64_t each = range_bytes_of(build);
    bool plain = true;
    bp_err err = BP_OK;

    *all = 0;
    for (int file = 0; err == BP_OK && plain && file < build->path_count; file++) {
        err = look_at(build->paths[file], &sizes[file], &plain);
        *all += (sizes[file] + each - 1) / each;
    }
    *all *= plain;
    return err;
}

bp_err bp_ranges_find(bp_ranges *out, MPI_Comm comm, const bp_corpus_build *build)
{
    int rank = bp_comm_rank(comm), ranks = bp_comm_size(comm);
    int64_t *sizes;
    range_lines *lines;
    bp_err err = BP_OK;

    *out = (bp_ranges){0};
    if (!may_have_ranges(build, ranks))
        return BP_OK;
    sizes = bp_alloc("io.ranges", build->path_count, sizeof *sizes);
    if (rank == 0)
        err = count_ranges(&out->all, sizes, build);
    err = bp_agree(comm, err);
    bp_bcast_bytes(&out->all, sizeof out->all, 0, comm);
    bp_bcast_bytes(sizes, build->path_count * (int64_t)sizeof *sizes, 0, comm);
    lines = bp_alloc("io.ranges", out->all, sizeof *lines);
    if (err == BP_OK && out->all > 0) {
        out->mine = bp_alloc("io.ranges", out->all / ranks + 1, sizeof *out->mine);
        err = bp_agree(comm, count_mine(out, lines, build, sizes, rank, ranks));
    }
    if (err == BP_OK && out->all > 0) {
        BP_MPI_WAIT("all_sum", MPI_Allreduce(MPI_IN_PLACE, lines, bp_mpi_count(2 * out->all),
                                             MPI_INT64_T, MPI_SUM, comm));
        number_lines(out, lines, build, sizes);
    }
    bp_free(lines);
    bp_free(sizes);
    if (err != BP_OK)
        bp_free(out->mine);
    if (err != BP_OK)
        *out = (bp_ranges){0};
    return err;
}
