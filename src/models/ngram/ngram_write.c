/* Writing the model's file: each rank writes its n-grams at their places, then one writes the user
 * block. Called by ngram.c. */
#include "models/ngram/ngram_write_priv.h"

#include "base/fault.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "base/process/signals.h"
#include "models/ngram/ngram_file_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PART ((int64_t)1 << 16) /* n-grams assembled at a time */

typedef struct writer {
    int fd;
    const char *path;
    const ngram_spec *spec;
    const ngram_levels *levels;
    ngram_header header;
    ngram_layout layout;
    void *scratch; /* [PART] nodes */
} writer;

static float log10_of(double value)
{
    return value > 0 ? (float)log10(value) : NGRAM_ZERO;
}

static bp_err put(const writer *self, const void *data, int64_t bytes, int64_t offset)
{
    if (bp_fault("count.write") || bp_pwrite_all(self->fd, data, (size_t)bytes, offset) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't write the model", self->path);
    return BP_OK;
}

static void set_nodes(const writer *self, int k, int64_t first, int64_t count)
{
    const ngram_level *level = &self->levels->of[k];
    ngram_node *nodes = self->scratch;

    for (int64_t i = 0; i < count; i++)
        nodes[i] = (ngram_node){.prob = log10_of(level->prob[first + i]),
                                .left = log10_of(level->left[first + i]),
                                .begin = (uint32_t)level->begin[first + i],
                                .link = (uint32_t)level->link[first + i]};
}

static void set_leaves(const writer *self, int k, int64_t first, int64_t count)
{
    const ngram_level *level = &self->levels->of[k];
    ngram_leaf *leaves = self->scratch;

    for (int64_t i = 0; i < count; i++)
        leaves[i] =
            (ngram_leaf){log10_of(level->prob[first + i]), (uint32_t)level->link[first + i]};
}

static void set_words(const writer *self, int k, int64_t first, int64_t count)
{
    const ngram_level *level = &self->levels->of[k];
    uint16_t *narrow = self->scratch;
    uint32_t *wide = self->scratch;

    for (int64_t i = 0; i < count; i++) {
        uint32_t word = (uint32_t)ngram_slot(level->key[first + i], self->spec->bits, 0) - 1;

        if (self->header.word_bytes == 2)
            narrow[i] = (uint16_t)word;
        else
            wide[i] = word;
    }
}

static bp_err put_part(const writer *self, int k, int64_t first, int64_t count)
{
    const ngram_level *level = &self->levels->of[k];
    bool leaves = k == self->spec->order && k > 1;
    int64_t each = leaves ? (int64_t)sizeof(ngram_leaf) : (int64_t)sizeof(ngram_node);
    int64_t at = level->first + first;
    bp_err err;

    if (leaves)
        set_leaves(self, k, first, count);
    else
        set_nodes(self, k, first, count);
    err = put(self, self->scratch, count * each, self->layout.nodes[k] + at * each);
    if (err == BP_OK && k > 1) {
        set_words(self, k, first, count);
        err = put(self, self->scratch, count * self->header.word_bytes,
                  self->layout.words[k] + at * self->header.word_bytes);
    }
    return err;
}

/* The node after the last one, for an order that has followers. */
static bp_err put_end(const writer *self, int k)
{
    ngram_node end = {.begin = k < self->spec->order ? (uint32_t)self->levels->total[k + 1] : 0};

    return put(self, &end, sizeof end,
               self->layout.nodes[k] + self->levels->total[k] * (int64_t)sizeof end);
}

static bp_err put_share(const writer *self)
{
    bp_err err = BP_OK;

    for (int k = 1; k <= self->spec->order; k++) {
        int64_t count = self->levels->of[k].count;

        for (int64_t first = 0; first < count && err == BP_OK; first += PART) {
            if (bp_signals_stop_asked())
                return bp_fail_stopped("while writing, at %s; the same command goes on",
                                       self->path);
            bp_heartbeat_progress();
            err = put_part(self, k, first, count - first < PART ? count - first : PART);
        }
    }
    return err;
}

static bp_err put_frame(const writer *self)
{
    bp_err err = put(self, &self->header, sizeof self->header, BP_USER_BLOCK_BYTES);

    for (int k = 1; (k < self->spec->order || k == 1) && err == BP_OK; k++)
        err = put_end(self, k);
    return err;
}

static double unseen(const ngram_rule *rule)
{
    return rule->smoothing == NGRAM_MLE ? 0 : 1 / (double)rule->outcomes;
}

static bp_err make_header(writer *self)
{
    const ngram_spec *spec = self->spec;

    self->header = (ngram_header){.order = (uint32_t)spec->order,
                                  .backs_off = ngram_backs_off(spec->rule.smoothing),
                                  .word_bytes = ngram_word_bytes(spec->vocab_size),
                                  .vocab_size = (uint64_t)spec->vocab_size,
                                  .unseen = log10_of(unseen(&spec->rule))};
    for (int k = 1; k <= spec->order; k++) {
        if (self->levels->total[k] >= UINT32_MAX)
            return BP_FAIL(BP_ERR_CONFIG, "ngram.too_many",
                           "there are %" PRId64 " n-grams of order %d, and a model holds %" PRIu32
                           " of each at most: at ngram.order; use a smaller order, or ngram.prune",
                           self->levels->total[k], k, UINT32_MAX - 1);
        self->header.count[k - 1] = (uint64_t)self->levels->total[k];
    }
    self->layout = ngram_layout_of(&self->header);
    return BP_OK;
}

/* The root allocates the whole file, so that a full disk is found before any work. */
static bp_err make_file(writer *self)
{
    int failed;

    self->fd = open(self->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (self->fd < 0)
        return bp_fail_create("can't create the model", self->path);
    failed = posix_fallocate(self->fd, 0, self->layout.bytes);
    if (failed == EOPNOTSUPP || failed == EINVAL)
        failed = ftruncate(self->fd, self->layout.bytes) == 0 ? 0 : errno;
    if (failed == 0)
        return BP_OK;
    errno = failed;
    return bp_fail_errno(BP_ERR_IO, "can't reserve space for the model", self->path);
}

static bp_err open_file(writer *self)
{
    self->fd = open(self->path, O_RDWR | O_CLOEXEC);
    return self->fd < 0 ? bp_fail_errno(BP_ERR_IO, "can't open the model", self->path) : BP_OK;
}

static bp_err seal(writer *self, const char *detail)
{
    bp_user_block block = {.kind = NGRAM_FILE_KIND, .version = NGRAM_FILE_VERSION};

    (void)snprintf(block.detail, sizeof block.detail, "%s", detail);
    return bp_user_block_seal_fd(&block, self->fd, self->path);
}

bp_err ngram_write(const char *path, MPI_Comm comm, const ngram_spec *spec,
                   const ngram_levels *levels, const char *detail)
{
    writer self = {.fd = -1, .path = path, .spec = spec, .levels = levels};
    bool root = bp_comm_is_root(comm);
    bp_err err = bp_agree(comm, make_header(&self));

    if (err != BP_OK)
        return err;
    self.scratch = bp_alloc("ngram.write", PART, sizeof(ngram_node));
    err = bp_agree(comm, root ? make_file(&self) : BP_OK);
    if (err == BP_OK)
        err = bp_agree(comm, root ? BP_OK : open_file(&self));
    if (err == BP_OK)
        err = put_share(&self);
    if (err == BP_OK && root)
        err = put_frame(&self);
    if (self.fd >= 0 && !root && fsync(self.fd) != 0 && err == BP_OK)
        err = bp_fail_errno(BP_ERR_IO, "can't bring the model to disk", path);
    err = bp_agree(comm, err);
    if (err == BP_OK)
        err = bp_agree(comm, root ? seal(&self, detail) : BP_OK);
    if (self.fd >= 0)
        (void)close(self.fd);
    bp_free(self.scratch);
    return err;
}
