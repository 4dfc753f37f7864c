/* A split model: for each place of a batch, the ranks look up their n-grams that end there, and
 * then combine the results as a lookup on one rank would. Called by ngram_model.c. */
#include "models/ngram/ngram_split_priv.h"

#include "base/mem.h"
#include "models/ngram/ngram_lookup_priv.h"

#include <math.h>
#include <string.h>

#define NOTHING (-1) /* instead of a word: before the first input */

struct ngram_split {
    ngram_file file;
    MPI_Comm comm;
    int64_t first, end; /* the words that this rank's n-grams begin with */
    int most;           /* words of the longest history */
    int width;          /* numbers of a place, see `found_at` */
    uint32_t *found;    /* [positions][width] */
    int64_t positions;
    int32_t *words; /* [most + length] of a window: <s> is V; what came before it first */
    int64_t words_capacity;
    int32_t *kept; /* [kept_count][most] the last words of windows of a batch that suspends */
    int64_t kept_count;
};

/* ---- results: 0 is nothing, so that "or" combines the ranks' numbers ---- */

/* No number of a file is the NaN whose bits are all 1. */
static uint32_t packed(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return ~bits;
}

static double unpacked(uint32_t found)
{
    float value;

    found = ~found;
    memcpy(&value, &found, sizeof value);
    return (double)value;
}

/* For the history of k words that ends at a place: its back-off weight, and after it the
 * probability of the target after that history. At the row's end: the target's probability without
 * history. */
static uint32_t *found_at(const ngram_split *self, int64_t place, int k)
{
    return self->found + place * self->width + 2 * (k - 1);
}

static float prob_of(const ngram_file *file, int order, uint32_t at)
{
    return order == file->order && order > 1 ? file->leaves[at].prob : file->nodes[order][at].prob;
}

/* N-grams from words[s] on, of a window whose first place is `place`; those that end before its
 * first input are only intermediate. */
static void follow(const ngram_split *self, const int32_t *targets, int64_t s, int64_t length,
                   int64_t place)
{
    const ngram_file *file = &self->file;
    uint32_t at = (uint32_t)self->words[s];

    for (int k = 1; k <= self->most; k++) {
        const ngram_node *node = &file->nodes[k][at];
        int64_t j = s + k - 1 - self->most;
        int32_t target = j >= 0 ? targets[j] : NOTHING, next;
        uint32_t found = NGRAM_NOWHERE;

        if (j >= 0)
            found_at(self, place + j, k)[0] = packed(node->left);
        if (target >= 0)
            found = ngram_find(file, k + 1, node, (uint32_t)target);
        if (found != NGRAM_NOWHERE)
            found_at(self, place + j, k)[1] = packed(prob_of(file, k + 1, found));
        if (k == self->most || j + 1 >= length)
            return;
        next = self->words[s + k];
        if (next == file->V)
            return; /* a document begins */
        if (next != target)
            found = ngram_find(file, k + 1, node, (uint32_t)next);
        if (found == NGRAM_NOWHERE)
            return;
        at = found;
    }
}

/* ---- a window ---- */

static void begin_window(const ngram_split *self, const bp_model_batch *batch, int64_t w,
                         int64_t eod)
{
    const int32_t *inputs = batch->inputs + w * batch->length;

    for (int k = 0; k < self->most; k++)
        self->words[k] =
            batch->resumes ? self->kept[(batch->first_window + w) * self->most + k] : NOTHING;
    for (int64_t j = 0; j < batch->length; j++)
        self->words[self->most + j] = inputs[j] == eod ? (int32_t)self->file.V : inputs[j];
}

static void find_window(const ngram_split *self, const bp_model_batch *batch, int64_t w)
{
    const int32_t *targets = batch->targets + w * batch->length;
    int64_t place = w * batch->length;

    for (int64_t s = 0; s < self->most + batch->length; s++)
        if (self->words[s] >= self->first && self->words[s] < self->end)
            follow(self, targets, s, batch->length, place);
    for (int64_t j = 0; j < batch->length; j++)
        if (targets[j] >= self->first && targets[j] < self->end)
            found_at(self, place + j, self->most + 1)[0] =
                packed(self->file.nodes[1][targets[j]].prob);
}

/* Words of the history that ends at input j: at most back to the document's start. */
static int history_at(const ngram_split *self, int64_t j)
{
    int words = 0;

    while (words < self->most && self->words[self->most + j - words] != NOTHING)
        if (self->words[self->most + j - words++] == self->file.V)
            break;
    return words;
}

/* log10, added up as ngram_step does. */
static double put_together(const ngram_split *self, int64_t place, int history)
{
    double sum = 0, fixed = (double)self->file.header.unseen;
    int known = history;

    while (known > 0 && found_at(self, place, known)[0] == 0)
        known--;
    if (known == history)
        fixed = 0;
    for (int k = known; k > 0; k--) {
        const uint32_t *found = found_at(self, place, k);

        if (found[1] != 0)
            return self->file.backs_off || k == history ? sum + unpacked(found[1]) : fixed;
        sum += unpacked(found[0]);
        if (k == history)
            fixed = unpacked(found[0]);
    }
    if (!self->file.backs_off && history > 0)
        return fixed;
    return sum + unpacked(found_at(self, place, self->most + 1)[0]);
}

static void end_window(const ngram_split *self, const bp_model_batch *batch, int64_t w,
                       float *values)
{
    const int32_t *targets = batch->targets + w * batch->length;

    for (int64_t j = 0; j < batch->length; j++)
        values[j] =
            targets[j] < 0
                ? NAN
                : (float)(put_together(self, w * batch->length + j, history_at(self, j)) * M_LN10);
    if (batch->suspends && self->most > 0)
        memcpy(self->kept + (batch->first_window + w) * self->most, self->words + batch->length,
               (size_t)self->most * sizeof *self->kept);
}

/* ---- all of it ---- */

static bp_err reserve(ngram_split *self, const bp_model_batch *batch)
{
    int64_t positions = batch->windows * batch->length, words = self->most + batch->length;
    int64_t windows = batch->suspends ? batch->first_window + batch->windows : 0;
    void *found = self->found, *list = self->words, *kept = self->kept;

    if (positions > self->positions)
        found = bp_try_realloc("ngram.split", found, positions * self->width, sizeof *self->found);
    if (found)
        self->found = found;
    if (words > self->words_capacity)
        list = bp_try_realloc("ngram.split", list, words, sizeof *self->words);
    if (list)
        self->words = list;
    if (windows > self->kept_count)
        kept = bp_try_realloc("ngram.split", kept, windows * self->most, sizeof *self->kept);
    if (kept)
        self->kept = kept;
    if (!found || !list || (windows > 0 && !kept))
        return bp_fail_memory("a batch", positions * self->width, sizeof *self->found);
    self->positions = positions > self->positions ? positions : self->positions;
    self->words_capacity = words > self->words_capacity ? words : self->words_capacity;
    self->kept_count = windows > self->kept_count ? windows : self->kept_count;
    return BP_OK;
}

bp_err ngram_split_score(ngram_split *self, const bp_model_batch *batch, int64_t eod, float *values)
{
    int64_t numbers = batch->windows * batch->length * self->width;
    bp_err err = bp_agree(self->comm, reserve(self, batch));

    if (err != BP_OK)
        return err;
    memset(self->found, 0, (size_t)numbers * sizeof *self->found);
    for (int64_t w = 0; w < batch->windows; w++) {
        begin_window(self, batch, w, eod);
        find_window(self, batch, w);
    }
    BP_MPI_WAIT("lookups", MPI_Allreduce(MPI_IN_PLACE, self->found, bp_mpi_count(numbers),
                                         MPI_UINT32_T, MPI_BOR, self->comm));
    for (int64_t w = 0; w < batch->windows; w++) {
        begin_window(self, batch, w, eod);
        end_window(self, batch, w, values + w * batch->length);
    }
    return BP_OK;
}

bp_err ngram_split_open(ngram_split **out, const char *path, MPI_Comm comm)
{
    ngram_split *self = bp_alloc("ngram.split", 1, sizeof *self);
    int rank = bp_comm_rank(comm), size = bp_comm_size(comm);
    bp_err err = bp_agree(comm, ngram_file_open_part(&self->file, path, rank, size));

    *out = self;
    self->comm = comm;
    if (err != BP_OK) {
        ngram_split_free(out);
        return err;
    }
    self->most = self->file.order - 1;
    self->width = 2 * self->most + 1;
    self->first = ngram_file_cut(&self->file, rank, size);
    self->end = ngram_file_cut(&self->file, rank + 1, size);
    return BP_OK;
}

void ngram_split_free(ngram_split **split)
{
    ngram_split *self = *split;

    if (!self)
        return;
    ngram_file_close(&self->file);
    bp_free(self->found);
    bp_free(self->words);
    bp_free(self->kept);
    bp_free(self);
    *split = NULL;
}

const ngram_file *ngram_split_file(const ngram_split *split)
{
    return &split->file;
}
