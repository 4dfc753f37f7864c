/* Lookups: from the longest known history to shorter ones, until a word is found behind one. */
#include "models/ngram/ngram_lookup_priv.h"

#include <math.h>

#define NOWHERE UINT32_MAX

/* A word among those that stand at [begin, end), which ascend. The loops have no branch to guess.
 */
static inline uint32_t find_narrow(const uint16_t *words, uint32_t begin, uint32_t end,
                                   uint32_t word)
{
    const uint16_t *at = words + begin;
    uint32_t count = end - begin;

    while (count > 1) {
        uint32_t half = count / 2;

        at += at[half] <= word ? half : 0;
        count -= half;
    }
    return count == 1 && *at == word ? (uint32_t)(at - words) : NOWHERE;
}

static inline uint32_t find_wide(const uint32_t *words, uint32_t begin, uint32_t end, uint32_t word)
{
    const uint32_t *at = words + begin;
    uint32_t count = end - begin;

    while (count > 1) {
        uint32_t half = count / 2;

        at += at[half] <= word ? half : 0;
        count -= half;
    }
    return count == 1 && *at == word ? (uint32_t)(at - words) : NOWHERE;
}

/* The place of the n-gram of `order` that is `word` behind `node`. */
static inline uint32_t find(const ngram_file *file, int order, const ngram_node *node,
                            uint32_t word)
{
    return file->word_bytes == 2
               ? find_narrow(file->words[order], node[0].begin, node[1].begin, word)
               : find_wide(file->words[order], node[0].begin, node[1].begin, word);
}

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

/* The state behind n-gram `at` of `order`. */
static inline ngram_state state_behind(const ngram_file *file, int order, uint32_t at, int history)
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

double ngram_step(const ngram_file *file, ngram_state *state, uint32_t word, int *matched)
{
    int order = state->order;
    uint32_t at = state->at, found = NOWHERE;
    double sum = 0, fixed = 0; /* fixed: what the probability is without back-off */
    bool whole = order == state->history;

    if (!whole)
        fixed = (double)file->header.unseen;
    for (; order > 0; order--) {
        const ngram_node *node = &file->nodes[order][at];

        found = find(file, order + 1, node, word);
        if (found != NOWHERE)
            break;
        sum += (double)node->left;
        if (whole && order == state->history)
            fixed = (double)node->left;
        at = node->link;
    }
    if (found == NOWHERE)
        found = word;
    sum += (double)(order + 1 == file->order && order > 0 ? file->leaves[found].prob
                                                          : file->nodes[order + 1][found].prob);
    if (!file->backs_off && (!whole || order != state->history))
        sum = fixed;
    if (matched)
        *matched = order + 1;
    *state = state_behind(file, order + 1, found, state->history);
    return sum;
}

/* ---- all words at once ---- */

/* Words behind one history; `factor` is what longer histories leave. */
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

/* From no history to the longest: what is known of a longer one replaces what was there. */
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
