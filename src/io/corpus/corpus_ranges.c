/* Divides files of lines into ranges of bytes, which rank 0 hands out in order: one rank reads
 * each. Called by corpus_build.c. */
#include "corpus_build_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "mesh/collective.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define RANGE_BYTES ((int64_t)128 << 10)

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

bp_err bp_ranges_find(bp_ranges *out, MPI_Comm comm, const bp_corpus_build *build)
{
    bool plain = true;
    bp_err err = BP_OK;

    *out = (bp_ranges){.each = build->range_bytes > 0 ? build->range_bytes : RANGE_BYTES};
    if (!may_have_ranges(build, bp_comm_size(comm)))
        return BP_OK;
    if (bp_comm_rank(comm) == 0) {
        out->sizes = bp_alloc("io.ranges", build->path_count, sizeof *out->sizes);
        for (int file = 0; err == BP_OK && plain && file < build->path_count; file++) {
            err = look_at(build->paths[file], &out->sizes[file], &plain);
            out->left += (out->sizes[file] + out->each - 1) / out->each;
        }
        out->left *= plain;
        out->are_used = out->left > 0;
    }
    err = bp_agree(comm, err);
    bp_bcast_bytes(&out->are_used, sizeof out->are_used, 0, comm);
    return err;
}

void bp_ranges_next(bp_ranges *ranges, bp_text_range *out)
{
    int64_t left;

    BP_ASSERT(ranges->left > 0);
    while (ranges->first >= ranges->sizes[ranges->file]) {
        ranges->file++;
        ranges->first = 0;
    }
    left = ranges->sizes[ranges->file] - ranges->first;
    *out = (bp_text_range){ranges->file, ranges->first,
                           ranges->first + (left < ranges->each ? left : ranges->each)};
    ranges->first = out->end;
    ranges->left--;
}
