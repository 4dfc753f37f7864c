/* Lookups: from the longest known history to shorter ones, until the word is found after one of
 * them. Called by ngram_model.c and ngram_validate.c. */
#include "models/ngram/ngram_lookup_priv.h"

#include <math.h>

static inline int longest_history(const ngram_file *file)
{
    return file->order - 1;
}

ngram_state ngram_start(const ngram_file *file)
{
    if (file->order == 1)
        return (ngram_state){0};
    return (ngram_state){.at = (uint32_t)file->V, .order = 1, .history = 1};
}

/* The state after n-gram `at` of `order`. */
static inline ngram_state state_after(const ngram_file *file, int order, uint32_t at, int history)
{
    if (order == file->order) {
        if (order == 1)
            return (ngram_state){0};
        at = file->leaves[at].link;
        order--;
    }
    history = history < longest_history(file) ? history + 1 : history;
    return (ngram_state){.at = at, .order = (uint16_t)order, .history = (uint16_t)history};
}

/* ---- one word, in three parts ---- */

static inline void begin_lookup(ngram_lookup *self, const ngram_file *file, ngram_state state,
                                uint32_t word)
{
    *self = (ngram_lookup){.state = state, .at = state.at, .order = state.order, .word = word};
    self->found = state.order == 0 ? word : NGRAM_NOWHERE;
    if (state.order != state.history)
        self->fixed = (double)file->header.unseen;
}

/* After the history of the current order; false if the next shorter one must be tried. */
static inline bool try_order(ngram_lookup *self, const ngram_file *file)
{
    const ngram_node *node;

    if (self->order == 0)
        return true;
    node = &file->nodes[self->order][self->at];
    self->found = ngram_find(file, self->order + 1, node, self->word);
    if (self->found != NGRAM_NOWHERE)
        return true;
    self->sum += (double)node->left;
    if (self->order == self->state.history)
        self->fixed = (double)node->left;
    self->at = node->link;
    self->order--;
    if (self->order > 0)
        return false;
    self->found = self->word;
    return true;
}

static inline double end_lookup(const ngram_lookup *self, const ngram_file *file,
                                ngram_state *state)
{
    bool leaf = self->order + 1 == file->order && self->order > 0;
    double sum = self->sum + (double)(leaf ? file->leaves[self->found].prob
                                           : file->nodes[self->order + 1][self->found].prob);

    if (!file->backs_off && self->order != self->state.history)
        sum = self->fixed;
    *state = state_after(file, self->order + 1, self->found, self->state.history);
    return sum;
}

double ngram_step(const ngram_file *file, ngram_state *state, uint32_t word, int *matched)
{
    ngram_lookup lookup;

    begin_lookup(&lookup, file, *state, word);
    while (!try_order(&lookup, file)) {
    }
    if (matched)
        *matched = lookup.order + 1;
    return end_lookup(&lookup, file, state);
}

/* ---- sequences side by side ---- */

typedef enum stage { AT_NODE, AT_WORDS, AT_PROBABILITY, ENDED } stage;

/* A sequence that is being looked up. While its memory is fetched, the others proceed. */
typedef struct walk {
    ngram_sequence *of;
    int64_t at;  /* the input */
    bool scores; /* its target is looked up; else the input itself */
    stage stage;
    ngram_lookup lookup;
} walk;

static void look_up(walk *self, const ngram_file *file, int32_t word)
{
    begin_lookup(&self->lookup, file, self->of->state, (uint32_t)word);
    self->stage = self->lookup.order > 0 ? AT_NODE : AT_WORDS;
    if (self->lookup.order > 0)
        __builtin_prefetch(&file->nodes[self->lookup.order][self->lookup.at]);
}

/* The state is that after input `at`: proceeds to its target, or to the next input. */
static void have_read(walk *self, const ngram_file *file)
{
    const ngram_sequence *of = self->of;

    while (self->at < of->first || of->targets[self->at] < 0) {
        if (self->at >= of->first)
            of->values[self->at] = NAN;
        if (++self->at == of->length) {
            self->stage = ENDED;
            return;
        }
        if (of->inputs[self->at] != of->eod) {
            self->scores = false;
            look_up(self, file, of->inputs[self->at]);
            return;
        }
        self->of->state = ngram_start(file);
    }
    self->scores = true;
    look_up(self, file, of->targets[self->at]);
}

static void read_input(walk *self, const ngram_file *file)
{
    if (self->of->inputs[self->at] == self->of->eod) {
        self->of->state = ngram_start(file);
        have_read(self, file);
        return;
    }
    self->scores = false;
    look_up(self, file, self->of->inputs[self->at]);
}

/* The target is usually the next input: then its state is already known. */
static void have_looked_up(walk *self, const ngram_file *file)
{
    ngram_sequence *of = self->of;
    ngram_state next;
    double log10_prob = end_lookup(&self->lookup, file, &next);
    int32_t target = of->targets[self->at];

    if (!self->scores) {
        of->state = next;
        have_read(self, file);
        return;
    }
    of->values[self->at] = (float)(log10_prob * M_LN10);
    if (++self->at == of->length) {
        self->stage = ENDED;
    } else if (target == of->inputs[self->at] && target != of->eod) {
        of->state = next;
        have_read(self, file);
    } else {
        read_input(self, file);
    }
}

static inline void prefetch_words(const ngram_lookup *lookup, const ngram_file *file)
{
    const ngram_node *node = &file->nodes[lookup->order][lookup->at];
    uint32_t middle = node[0].begin + (node[1].begin - node[0].begin) / 2;

    __builtin_prefetch((const char *)file->words[lookup->order + 1] +
                       (size_t)middle * (size_t)file->word_bytes);
}

static inline void prefetch_probability(const ngram_lookup *lookup, const ngram_file *file)
{
    if (lookup->order + 1 == file->order && lookup->order > 0)
        __builtin_prefetch(&file->leaves[lookup->found]);
    else
        __builtin_prefetch(&file->nodes[lookup->order + 1][lookup->found]);
}

/* Proceeds by one memory access. */
static inline void move(walk *self, const ngram_file *file)
{
    switch (self->stage) {
    case AT_NODE:
        prefetch_words(&self->lookup, file);
        self->stage = AT_WORDS;
        break;
    case AT_WORDS:
        if (try_order(&self->lookup, file)) {
            prefetch_probability(&self->lookup, file);
            self->stage = AT_PROBABILITY;
        } else {
            __builtin_prefetch(&file->nodes[self->lookup.order][self->lookup.at]);
            self->stage = AT_NODE;
        }
        break;
    case AT_PROBABILITY:
        have_looked_up(self, file);
        break;
    case ENDED:
        break;
    }
}

void ngram_walk(const ngram_file *file, ngram_sequence *sequences, int64_t count)
{
    walk walks[NGRAM_WALKS];
    int64_t next = 0;
    int live = 0;

    for (; live < NGRAM_WALKS && next < count; live++, next++) {
        walks[live] = (walk){.of = &sequences[next]};
        read_input(&walks[live], file);
    }
    while (live > 0)
        for (int k = 0; k < live; k++) {
            move(&walks[k], file);
            if (walks[k].stage != ENDED)
                continue;
            if (next < count) {
                walks[k] = (walk){.of = &sequences[next++]};
                read_input(&walks[k], file);
            } else {
                walks[k--] = walks[--live];
            }
        }
}

/* ---- all words at once ---- */

/* Words after one history; `factor` is the back-off weight of longer histories. */
static void set_followers(const ngram_file *file, ngram_state history, double factor,
                          float *log_prob)
{
    const ngram_node *node = &file->nodes[history.order][history.at];
    int order = history.order + 1;

    for (uint32_t i = node[0].begin; i < node[1].begin; i++) {
        float prob = order == file->order ? file->leaves[i].prob : file->nodes[order][i].prob;

        log_prob[ngram_word(file, order, i)] = (float)((factor + (double)prob) * M_LN10);
    }
}

static void set_all(const ngram_file *file, double value, float *log_prob)
{
    for (int64_t w = 0; w < file->V; w++)
        log_prob[w] = (float)(value * M_LN10);
}

static void set_words(const ngram_file *file, double factor, float *log_prob)
{
    for (int64_t w = 0; w < file->V; w++)
        log_prob[w] = (float)((factor + (double)file->nodes[1][w].prob) * M_LN10);
}

/* From no history to the longest: the probabilities of a longer one replace earlier ones. */
static void back_off(const ngram_file *file, ngram_state state, float *log_prob)
{
    ngram_state histories[NGRAM_ORDER_MOST];
    double factors[NGRAM_ORDER_MOST + 1] = {0};
    int count = state.order;

    for (int k = count; k > 0; k--) {
        const ngram_node *node = &file->nodes[k][state.at];

        histories[k - 1] = state;
        factors[k - 1] = factors[k] + (double)node->left;
        state = (ngram_state){.at = node->link, .order = (uint16_t)(k - 1)};
    }
    set_words(file, factors[0], log_prob);
    for (int k = 1; k <= count; k++)
        set_followers(file, histories[k - 1], factors[k], log_prob);
}

void ngram_distribution(const ngram_file *file, ngram_state state, float *log_prob)
{
    if (file->backs_off) {
        back_off(file, state, log_prob);
    } else if (state.order < state.history) {
        set_all(file, (double)file->header.unseen, log_prob);
    } else if (state.order == 0) {
        set_words(file, 0, log_prob);
    } else {
        set_all(file, (double)file->nodes[state.order][state.at].left, log_prob);
        set_followers(file, state, 0, log_prob);
    }
}
