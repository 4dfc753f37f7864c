/* Mean attributions of words over the corpus. Called by gather.c. */
#include "explain/pages/words.h"

#include "base/mem.h"
#include "statistics/ratio.h"
#include "text/unicode/strmap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct explain_words {
    int64_t groups;
    int matrices;
    bp_strmap map;    /* value: occurrences */
    bp_ratio *ratios; /* [map.count][groups][matrices] */
    double *open;     /* [map.count][1 + groups (1 + matrices)]: of the current document */
    int64_t ratio_capacity, open_capacity;
    int64_t *touched, touched_capacity; /* words of the current document */
};

explain_words *explain_words_new(int64_t groups)
{
    explain_words *words = bp_alloc("explain.words", 1, sizeof *words);

    words->groups = groups;
    return words;
}

void explain_words_free(explain_words **words)
{
    if (!*words)
        return;
    bp_strmap_clear(&(*words)->map);
    bp_free((*words)->ratios);
    bp_free((*words)->open);
    bp_free((*words)->touched);
    bp_free(*words);
    *words = NULL;
}

static int64_t open_size(const explain_words *self)
{
    return 1 + self->groups * (1 + self->matrices);
}

/* The sums of word `index` in the current document: whether it occurs, then for each group the
 * pairs of an occurrence and a target, and one sum per matrix. */
static double *open_of(const explain_words *self, int64_t index)
{
    return self->open + index * open_size(self);
}

static const bp_ratio *ratio_of(const explain_words *self, int64_t index, int64_t group, int m)
{
    return &self->ratios[(index * self->groups + group) * self->matrices + m];
}

/* Tokens [first, end) are a word. */
static void add_occurrence(explain_words *self, double *open, const bp_explain_settings *settings,
                           const bp_explained *document, const explain_matrix *matrices,
                           int64_t first, int64_t end)
{
    for (int64_t k = 0; k < document->K; k++) {
        int64_t group = self->groups > 1 ? document->targets[k] : 0;
        double *sums = open + 1 + group * (1 + self->matrices);

        if ((!matrices->of_source && bp_explain_length(settings, document, k) < end) ||
            group >= self->groups)
            continue;
        sums[0] += 1;
        for (int m = 0; m < self->matrices; m++) {
            const float *row = explain_matrix_row(&matrices[m], document, k);

            /* each place of a feature has the feature's value */
            for (int64_t t = first; t < (matrices[m].method->changes ? first + 1 : end); t++)
                sums[1 + m] += (double)row[t];
        }
    }
}

static void end_word(explain_words *self, int64_t index)
{
    double *open = open_of(self, index);

    for (int64_t g = 0; g < self->groups; g++) {
        const double *sums = open + 1 + g * (1 + self->matrices);

        for (int m = 0; m < self->matrices; m++)
            bp_ratio_add(&self->ratios[(index * self->groups + g) * self->matrices + m],
                         sums[1 + m], sums[0]);
    }
    memset(open, 0, (size_t)open_size(self) * sizeof *open);
}

/* The word of `text`, added if new. */
static bp_err find_word(explain_words *self, const bp_buffer *text, int64_t *index)
{
    bp_err err = bp_strmap_add(&self->map, text->data ? text->data : "", text->bytes, 1, index);

    if (err != BP_OK)
        return err;
    self->ratios = bp_grow("explain.words", self->ratios, &self->ratio_capacity,
                           self->map.count * self->groups * self->matrices, sizeof *self->ratios);
    self->open = bp_grow("explain.words", self->open, &self->open_capacity,
                         self->map.count * open_size(self), sizeof *self->open);
    return BP_OK;
}

bp_err explain_words_add(explain_words *self, const bp_explain_settings *settings,
                         const bp_explained *document, const explain_spans *spans,
                         const explain_matrix *matrices, int count)
{
    int64_t touched = 0, end;
    bp_buffer text = {0};
    bp_err err = BP_OK;

    self->matrices = count;
    for (int64_t s = 0; s < spans->count && count > 0 && err == BP_OK; s = end) {
        const explain_span *last;
        int64_t first = spans->list[s].first, index = 0;

        text.bytes = 0;
        explain_word_at(spans, s, &end, &text);
        if (text.bytes == 0 ||
            bp_explain_is_special(settings, matrices->of_source ? document->sources[first]
                                                                : document->inputs[first]))
            continue;
        err = find_word(self, &text, &index);
        if (err != BP_OK)
            break;
        last = &spans->list[end - 1];
        if (open_of(self, index)[0] == 0) {
            self->touched = bp_grow("explain.words", self->touched, &self->touched_capacity,
                                    touched + 1, sizeof *self->touched);
            self->touched[touched++] = index;
        }
        open_of(self, index)[0] = 1;
        add_occurrence(self, open_of(self, index), settings, document, matrices, first,
                       last->first + last->count);
    }
    for (int64_t n = 0; n < touched; n++)
        end_word(self, self->touched[n]);
    bp_buffer_clear(&text);
    return err;
}

/* ---- lists ---- */

typedef struct listed {
    double mean;
    int64_t index;
} listed;

static int by_mean(const void *a, const void *b)
{
    const listed *x = a, *y = b;

    if (x->mean < y->mean || x->mean > y->mean)
        return x->mean > y->mean ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static json_t *word_json(const explain_words *self, int m, int64_t group, const listed *one)
{
    const bp_ratio *ratio = ratio_of(self, one->index, group, m);
    const bp_strmap_entry *entry = &self->map.entries[one->index];

    return json_pack("{so sf so sI sI}", "word",
                     json_stringn(bp_strmap_key(&self->map, one->index), entry->bytes), "mean",
                     one->mean, "interval", bp_explain_interval(ratio), "occurrences",
                     (json_int_t)entry->value, "documents", (json_int_t)ratio->documents);
}

json_t *explain_words_json(const explain_words *self, int m, int64_t group, int64_t least)
{
    listed *all = bp_alloc("explain.words", self->map.count, sizeof *all);
    json_t *largest = json_array(), *smallest = json_array();
    int64_t found = 0;

    for (int64_t w = 0; w < self->map.count; w++) {
        const bp_ratio *ratio = ratio_of(self, w, group, m);

        if (ratio->documents >= (double)least && isfinite(bp_ratio_mean(ratio)))
            all[found++] = (listed){bp_ratio_mean(ratio), w};
    }
    qsort(all, (size_t)found, sizeof *all, by_mean);
    for (int64_t k = 0; k < found && k < EXPLAIN_WORDS_LISTED; k++) {
        if (all[k].mean > 0)
            (void)json_array_append_new(largest, word_json(self, m, group, &all[k]));
        if (all[found - 1 - k].mean < 0)
            (void)json_array_append_new(smallest, word_json(self, m, group, &all[found - 1 - k]));
    }
    bp_free(all);
    return json_pack("{so so}", "largest", largest, "smallest", smallest);
}
