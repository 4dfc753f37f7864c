/* Data derived from the counts of words: subsampling, the noise distribution, and the Huffman tree.
 * Called by word2vec_learner.c before the first step. */
#include "models/word2vec/word2vec_priv.h"

#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define NOISE_POWER 0.75

typedef struct ranked_word {
    int64_t count;
    int32_t id;
} ranked_word;

static int by_count(const void *a, const void *b)
{
    const ranked_word *x = a, *y = b;

    return x->count != y->count ? (x->count > y->count ? -1 : 1)
                                : (x->id > y->id) - (x->id < y->id);
}

static void rank_words(w2v_vocabulary *self, int64_t eod_id)
{
    ranked_word *list = bp_alloc("word2vec.ranks", self->V, sizeof *list);

    for (int64_t id = 0; id < self->V; id++)
        if (id != eod_id && self->counts[id] > 0) {
            list[self->words++] = (ranked_word){self->counts[id], (int32_t)id};
            self->total += self->counts[id];
        }
    qsort(list, (size_t)self->words, sizeof *list, by_count);
    self->ranked = bp_alloc("word2vec.vocabulary", self->words, sizeof *self->ranked);
    for (int64_t k = 0; k < self->words; k++)
        self->ranked[k] = list[k].id;
    bp_free(list);
}

/* Source: the original tool's (sqrt(z / sample) + 1) sample / z, z the word's share. The paper has
 * sqrt(sample / z). */
static void find_kept(w2v_vocabulary *self, double sample)
{
    self->kept = bp_alloc("word2vec.vocabulary", self->V, sizeof *self->kept);
    for (int64_t k = 0; k < self->words; k++) {
        int32_t id = self->ranked[k];
        double ratio = sample * (double)self->total / (double)self->counts[id];
        double kept = sample > 0 ? sqrt(ratio) + ratio : 1;

        self->kept[id] = kept < 1 ? (float)kept : 1;
    }
}

/* Cells with less than their share are filled up from those with more. */
static void make_noise(w2v_vocabulary *self)
{
    int64_t n = self->words, few = 0, many = n;
    double *share = bp_alloc("word2vec.noise", n, sizeof *share), sum = 0;
    int32_t *work = bp_alloc("word2vec.noise", n, sizeof *work);

    self->noise = bp_alloc("word2vec.vocabulary", n, sizeof *self->noise);
    for (int64_t k = 0; k < n; k++)
        sum += share[k] = pow((double)self->counts[self->ranked[k]], NOISE_POWER);
    for (int64_t k = 0; k < n; k++) {
        share[k] *= (double)n / sum;
        work[share[k] < 1 ? few++ : --many] = (int32_t)k;
        self->noise[k] = (w2v_noise_cell){UINT32_MAX, {self->ranked[k], self->ranked[k]}};
    }
    while (few > 0 && many < n) { /* work[0, few) lack, work[many, n) have more */
        int32_t low = work[--few], high = work[many];

        self->noise[low].threshold = (uint32_t)(share[low] * 4294967295.0);
        self->noise[low].ids[1] = self->ranked[high];
        share[high] -= 1 - share[low];
        if (share[high] < 1) {
            many++;
            work[few++] = high;
        }
    }
    bp_free(work);
    bp_free(share);
}

/* ---- the Huffman tree ---- */

/* Nodes [0, n) are words, the least frequent last; n + k is the k-th inner node. */
typedef struct huffman {
    int64_t n;
    int64_t *counts; /* [2n - 1] */
    int32_t *parent;
    uint8_t *bit;
} huffman;

/* Source: the original tool's: two queues, words from the least frequent on, and inner nodes in the
 * order of creation; a tie takes the inner node. */
static void grow(huffman *tree)
{
    int64_t n = tree->n, leaf = n - 1, inner = n;

    for (int64_t made = n; made < 2 * n - 1; made++) {
        int64_t low[2];

        for (int k = 0; k < 2; k++) {
            bool word = leaf >= 0 && (inner >= made || tree->counts[leaf] < tree->counts[inner]);

            low[k] = word ? leaf-- : inner++;
            tree->parent[low[k]] = (int32_t)made;
            tree->bit[low[k]] = (uint8_t)k;
        }
        tree->counts[made] = tree->counts[low[0]] + tree->counts[low[1]];
    }
}

static int64_t depth(const huffman *tree, int64_t node)
{
    int64_t bits = 0;

    for (; node < 2 * tree->n - 2; node = tree->parent[node])
        bits++;
    return bits;
}

static void read_codes(w2v_vocabulary *self, const huffman *tree)
{
    int64_t n = self->words, bits = 0;

    self->code_start = bp_alloc("word2vec.vocabulary", self->V + 1, sizeof *self->code_start);
    for (int64_t k = 0; k < n; k++)
        self->code_start[self->ranked[k] + 1] = depth(tree, k);
    for (int64_t id = 0; id < self->V; id++)
        self->code_start[id + 1] += self->code_start[id];
    bits = self->code_start[self->V];
    self->points = bp_alloc("word2vec.vocabulary", bits, sizeof *self->points);
    self->codes = bp_alloc("word2vec.vocabulary", bits, sizeof *self->codes);
    for (int64_t k = 0; k < n; k++) {
        int64_t at = self->code_start[self->ranked[k] + 1];

        for (int64_t node = k; node < 2 * n - 2; node = tree->parent[node]) {
            self->points[--at] = tree->parent[node] - (int32_t)n;
            self->codes[at] = tree->bit[node];
        }
    }
}

static void make_tree(w2v_vocabulary *self)
{
    int64_t nodes = 2 * self->words - 1;
    huffman tree = {.n = self->words,
                    .counts = bp_alloc("word2vec.tree", nodes, sizeof *tree.counts),
                    .parent = bp_alloc("word2vec.tree", nodes, sizeof *tree.parent),
                    .bit = bp_alloc("word2vec.tree", nodes, sizeof *tree.bit)};

    for (int64_t k = 0; k < self->words; k++)
        tree.counts[k] = self->counts[self->ranked[k]];
    grow(&tree);
    read_codes(self, &tree);
    bp_free(tree.counts);
    bp_free(tree.parent);
    bp_free(tree.bit);
}

bp_err w2v_vocabulary_make(w2v_vocabulary *out, int64_t *counts, const bp_model_shape *shape,
                           int64_t eod_id, double sample, const char *where)
{
    *out = (w2v_vocabulary){.V = shape->vocab_size, .counts = counts};
    rank_words(out, eod_id);
    if (out->words < 2)
        return BP_FAIL(BP_ERR_FORMAT, "word2vec.no_words",
                       "the corpus has %" PRId64 " different word%s, and vectors need two: at %s; "
                       "give one with text",
                       out->words, out->words == 1 ? "" : "s", where);
    find_kept(out, sample);
    if (w2v_sizes_of(shape)->output == W2V_HIERARCHICAL)
        make_tree(out);
    else
        make_noise(out);
    return BP_OK;
}

size_t w2v_vocabulary_bytes(const bp_model_shape *shape)
{
    w2v_vocabulary *v = NULL; /* for the sizes of what it points to */
    size_t word = sizeof *v->counts + sizeof *v->ranked + sizeof *v->kept;

    if (w2v_sizes_of(shape)->output == W2V_HIERARCHICAL)
        word += sizeof *v->code_start + W2V_CODE_BITS * (sizeof *v->points + sizeof *v->codes);
    else
        word += sizeof *v->noise;
    return (size_t)shape->vocab_size * word;
}

void w2v_vocabulary_clear(w2v_vocabulary *vocabulary)
{
    bp_free(vocabulary->counts);
    bp_free(vocabulary->ranked);
    bp_free(vocabulary->kept);
    bp_free(vocabulary->noise);
    bp_free(vocabulary->code_start);
    bp_free(vocabulary->points);
    bp_free(vocabulary->codes);
    *vocabulary = (w2v_vocabulary){0};
}
