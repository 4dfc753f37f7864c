/* The model's file: its layout, and opening one that need not be trusted. */
#include "models/ngram/ngram_file_priv.h"

#include "base/files/fs.h"
#include "base/numbers.h"
#include "base/process/heartbeat.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ALIGNMENT 64

_Static_assert(sizeof(ngram_header) == 240, "the header has no padding");

ngram_layout ngram_layout_of(const ngram_header *header)
{
    ngram_layout out = {.bytes =
                            bp_round_up(BP_USER_BLOCK_BYTES + (int64_t)sizeof *header, ALIGNMENT)};
    int order = (int)header->order;

    for (int k = 1; k <= order; k++) {
        int64_t count = (int64_t)header->count[k - 1];
        bool leaves = k == order && k > 1;

        out.nodes[k] = out.bytes;
        out.bytes += bp_round_up(leaves ? count * (int64_t)sizeof(ngram_leaf)
                                        : (count + 1) * (int64_t)sizeof(ngram_node),
                                 ALIGNMENT);
        out.words[k] = out.bytes;
        out.bytes += k > 1 ? bp_round_up(count * header->word_bytes, ALIGNMENT) : 0;
    }
    return out;
}

static bool is_sane(const ngram_header *h, int64_t bytes)
{
    if (h->order < 1 || h->order > NGRAM_ORDER_MOST || h->backs_off > 1 ||
        (h->word_bytes != 2 && h->word_bytes != 4) || h->vocab_size < 1 ||
        h->vocab_size > INT32_MAX - 1 || h->count[0] != h->vocab_size + 1)
        return false;
    if ((h->word_bytes == 2) != (h->vocab_size < UINT16_MAX))
        return false;
    for (int k = 0; k < 8; k++) /* also: no product below overflows */
        if (h->count[k] >= UINT32_MAX || (k >= (int)h->order && h->count[k] != 0))
            return false;
    return ngram_layout_of(h).bytes == bytes;
}

/* N-grams of one order. */
typedef struct ngram_range {
    int64_t first, end;
} ngram_range;

/* A pass over a large order takes longer than the watchdog's timeout. */
static void report_pass(int64_t i)
{
    if (i % ((int64_t)1 << 20) == 0)
        bp_heartbeat_progress();
}

static bool prob_is_sane(float value)
{
    return value <= 1e-5F && value >= -1e6F; /* rounding may go above 0 */
}

/* Followers of each history ascend, and are contiguous. */
static bool nodes_are_sane(const ngram_file *file, int k, ngram_range part)
{
    const ngram_node *nodes = file->nodes[k];
    uint64_t above = k < file->order ? file->header.count[k] : 0;

    for (int64_t i = part.first; i < part.end; i++) {
        const ngram_node *node = &nodes[i];

        report_pass(i);
        if (!prob_is_sane(node->prob) || !(fabsf(node->left) <= 1e6F) ||
            node[1].begin < node->begin || node[1].begin > above ||
            (k > 1 && node->link >= file->header.count[k - 2]))
            return false;
        for (uint32_t j = node->begin; k < file->order && j < node[1].begin; j++) {
            uint32_t word = ngram_word(file, k + 1, j);

            if (word >= (uint64_t)file->V ||
                (j > node->begin && word <= ngram_word(file, k + 1, j - 1)))
                return false;
        }
    }
    return true;
}

static bool leaves_are_sane(const ngram_file *file, ngram_range part)
{
    for (int64_t i = part.first; file->order > 1 && i < part.end; i++) {
        report_pass(i);
        if (!prob_is_sane(file->leaves[i].prob) ||
            file->leaves[i].link >= file->header.count[file->order - 2])
            return false;
    }
    return true;
}

/* The n-grams of a part, except for their links. */
static bool part_is_sound(const ngram_file *file, const ngram_range *parts)
{
    for (int k = 1; k < file->order || k == 1; k++)
        if (!nodes_are_sane(file, k, parts[k]))
            return false;
    return leaves_are_sane(file, parts[file->order]);
}

/* A link leads to an n-gram that ends with the same word: a walk along links meets the words of the
 * history. */
static bool links_are_sane(const ngram_file *file)
{
    for (int k = 2; k <= file->order; k++)
        for (uint32_t i = 0; i < file->header.count[k - 1]; i++) {
            uint32_t link = k == file->order ? file->leaves[i].link : file->nodes[k][i].link;

            report_pass(i);
            if ((k == 2 ? link : ngram_word(file, k - 1, link)) != ngram_word(file, k, i))
                return false;
        }
    return true;
}

static void find_parts(ngram_file *file)
{
    ngram_layout layout = ngram_layout_of(&file->header);

    for (int k = 1; k <= file->order; k++) {
        const char *at = file->map + layout.nodes[k];

        if (k == file->order && k > 1)
            file->leaves = (const void *)at;
        else
            file->nodes[k] = (const void *)at;
        file->words[k] = file->map + layout.words[k];
    }
}

/* All orders begin at their first followers, and end at their last ones. */
static bool is_sound(const ngram_file *file)
{
    ngram_range all[NGRAM_ORDER_MOST + 1] = {{0}};

    for (int k = 1; k <= file->order; k++) {
        uint64_t above = k < file->order ? file->header.count[k] : 0;

        all[k].end = (int64_t)file->header.count[k - 1];
        if ((k < file->order || k == 1) &&
            (file->nodes[k][0].begin != 0 || file->nodes[k][all[k].end].begin != above))
            return false;
    }
    return part_is_sound(file, all) && links_are_sane(file);
}

/* ---- parts ---- */

/* Where the n-grams that begin with `word` or a later one begin, in each order; false if outside
 * the file. */
static bool find_places(const ngram_file *file, int64_t word, int64_t *places)
{
    places[1] = word;
    for (int k = 1; k < file->order; k++) {
        places[k + 1] = (int64_t)file->nodes[k][places[k]].begin;
        if (places[k + 1] > (int64_t)file->header.count[k])
            return false;
    }
    return true;
}

static int64_t bytes_before(const ngram_file *file, int64_t word)
{
    int64_t places[NGRAM_ORDER_MOST + 1] = {0}, sum = 0;

    (void)find_places(file, word, places);
    for (int k = 1; k <= file->order; k++)
        sum += places[k] * ((k == file->order && k > 1 ? (int64_t)sizeof(ngram_leaf)
                                                       : (int64_t)sizeof(ngram_node)) +
                            (k > 1 ? file->word_bytes : 0));
    return sum;
}

int64_t ngram_file_cut(const ngram_file *file, int part, int parts)
{
    int64_t low = 0, high = file->V + 1;
    double before = (double)bytes_before(file, high) * part / parts;

    while (part < parts && low < high) {
        int64_t middle = low + (high - low) / 2;

        if ((double)bytes_before(file, middle) < before)
            low = middle + 1;
        else
            high = middle;
    }
    return high;
}

static bool has_sound_part(const ngram_file *file, int part, int parts)
{
    int64_t first[NGRAM_ORDER_MOST + 1], end[NGRAM_ORDER_MOST + 1];
    ngram_range own[NGRAM_ORDER_MOST + 1] = {{0}};

    if (!find_places(file, ngram_file_cut(file, part, parts), first) ||
        !find_places(file, ngram_file_cut(file, part + 1, parts), end))
        return false;
    for (int k = 1; k <= file->order; k++) {
        own[k] = (ngram_range){first[k], end[k]};
        if (first[k] > end[k])
            return false;
    }
    return part_is_sound(file, own);
}

static bp_err damaged(const char *path)
{
    return BP_FAIL(BP_ERR_FORMAT, "ngram.damaged", "damaged: at %s, in its n-grams; make it anew",
                   path);
}

static bp_err map_file(ngram_file *file, int fd, const char *path, int part, int parts)
{
    bp_user_block block;
    void *map;
    bp_err err = bp_user_block_read_fd(&block, fd, path);

    if (err == BP_OK)
        err = bp_user_block_expect(&block, NGRAM_FILE_KIND, NGRAM_FILE_VERSION, path);
    if (err != BP_OK)
        return err;
    if (block.bytes < BP_USER_BLOCK_BYTES + (int64_t)sizeof file->header)
        return damaged(path);
    map = mmap(NULL, (size_t)block.bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return bp_fail_errno(BP_ERR_SYSTEM, "can't map", path);
    file->map = map;
    file->bytes = block.bytes;
    memcpy(file->detail, block.detail, sizeof file->detail);
    memcpy(&file->header, file->map + BP_USER_BLOCK_BYTES, sizeof file->header);
    if (!is_sane(&file->header, block.bytes))
        return damaged(path);
    file->order = (int)file->header.order;
    file->word_bytes = (int)file->header.word_bytes;
    file->backs_off = file->header.backs_off != 0;
    file->V = (int64_t)file->header.vocab_size;
    find_parts(file);
    return (parts == 1 ? is_sound(file) : has_sound_part(file, part, parts)) ? BP_OK
                                                                             : damaged(path);
}

bp_err ngram_file_open_part(ngram_file *file, const char *path, int part, int parts)
{
    int fd;
    bp_err err = bp_file_open(path, &fd, NULL);

    *file = (ngram_file){0};
    if (err != BP_OK)
        return err;
    err = map_file(file, fd, path, part, parts);
    (void)close(fd);
    return err;
}

bp_err ngram_file_open(ngram_file *file, const char *path)
{
    return ngram_file_open_part(file, path, 0, 1);
}

void ngram_file_close(ngram_file *file)
{
    if (file->map)
        (void)munmap((void *)file->map, (size_t)file->bytes);
    *file = (ngram_file){0};
}
