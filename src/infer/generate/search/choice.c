/* Penalties, temperature, top-k, top-p, and the draw. Called by search.c and beam.c, on the rank
 * that chooses. */
#include "infer/generate/search/choice.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

void bp_choice_init(bp_choice *choice, const bp_choice_rule *rule)
{
    *choice = (bp_choice){.rule = rule};
    choice->scores = bp_alloc("generate.choice", rule->vocab_size, sizeof *choice->scores);
    choice->seen = bp_alloc("generate.choice", rule->vocab_size, sizeof *choice->seen);
    choice->candidates = bp_alloc("generate.choice", rule->vocab_size, sizeof *choice->candidates);
}

void bp_choice_clear(bp_choice *choice)
{
    bp_free(choice->candidates);
    bp_free(choice->seen);
    bp_free(choice->scores);
    *choice = (bp_choice){0};
}

int64_t bp_choice_bytes(int64_t vocab_size)
{
    return vocab_size * (int64_t)(sizeof(double) + sizeof(int32_t) + sizeof(bp_candidate));
}

/* ---- penalties ---- */

/* Each token of prompt and output, once. */
static void penalise_repetition(bp_choice *choice, const bp_sequence *sequence, double *scores)
{
    double penalty = choice->rule->repetition_penalty;

    for (int64_t i = 0; i < sequence->count; i++) {
        int32_t token = sequence->tokens[i];

        if (choice->seen[token]++ == 0)
            scores[token] = scores[token] > 0 ? scores[token] / penalty : scores[token] * penalty;
    }
    for (int64_t i = 0; i < sequence->count; i++)
        choice->seen[sequence->tokens[i]] = 0;
}

static void penalise_output(bp_choice *choice, const bp_sequence *sequence, double *scores)
{
    for (int64_t i = sequence->prompt; i < sequence->count; i++)
        choice->seen[sequence->tokens[i]]++;
    for (int64_t i = sequence->prompt; i < sequence->count; i++) {
        int32_t token = sequence->tokens[i], times = choice->seen[token];

        if (times > 0)
            scores[token] -=
                choice->rule->presence_penalty + choice->rule->frequency_penalty * times;
        choice->seen[token] = 0;
    }
}

/* Ban each token that follows an earlier occurrence of the last n - 1 tokens. */
static void ban_ngrams(const bp_choice *choice, const bp_sequence *sequence, double *scores)
{
    int64_t before = choice->rule->no_repeat_ngram - 1, count = sequence->count;
    const int32_t *tokens = sequence->tokens, *last;

    if (count <= before)
        return;
    last = tokens + (count - before);
    for (int64_t i = 0; i + before < count; i++)
        if (memcmp(tokens + i, last, (size_t)before * sizeof *tokens) == 0)
            scores[tokens[i + before]] = -INFINITY;
}

int64_t bp_choice_forced(const bp_choice_rule *rule, const bp_sequence *sequence)
{
    const bp_forced *forced = rule->forced;

    if (forced && forced->has_last && sequence->count + 1 == sequence->most)
        return forced->last;
    return forced && forced->has_first && sequence->count == sequence->prompt ? forced->first : -1;
}

static void force(const bp_choice_rule *rule, const bp_sequence *sequence, double *scores)
{
    int64_t token = bp_choice_forced(rule, sequence);

    for (int k = 0; rule->forced && k < rule->forced->never.count; k++)
        scores[rule->forced->never.ids[k]] = -INFINITY;
    for (int64_t v = 0; token >= 0 && v < rule->vocab_size; v++)
        scores[v] = v == token ? 0 : -INFINITY;
}

void bp_choice_penalise(bp_choice *choice, const bp_sequence *sequence, double *scores)
{
    const bp_choice_rule *rule = choice->rule;

    if (rule->repetition_penalty != 1)
        penalise_repetition(choice, sequence, scores);
    if (rule->presence_penalty != 0 || rule->frequency_penalty != 0)
        penalise_output(choice, sequence, scores);
    if (rule->no_repeat_ngram > 0)
        ban_ngrams(choice, sequence, scores);
    force(rule, sequence, scores);
}

/* ---- top-k and top-p: a heap returns the best ones, as many as requested ---- */

static bool is_better(const bp_candidate *a, const bp_candidate *b)
{
    return a->score != b->score ? a->score > b->score : a->token < b->token;
}

static void swap(bp_candidate *a, bp_candidate *b)
{
    bp_candidate kept = *a;

    *a = *b;
    *b = kept;
}

static void sift_down(bp_candidate *heap, int64_t count, int64_t at)
{
    for (;;) {
        int64_t child = 2 * at + 1;

        if (child >= count)
            return;
        if (child + 1 < count && is_better(&heap[child + 1], &heap[child]))
            child++;
        if (!is_better(&heap[child], &heap[at]))
            return;
        swap(&heap[at], &heap[child]);
        at = child;
    }
}

/* Weights of all candidates, the best one's being 1; their sum. */
static double weigh(bp_candidate *candidates, int64_t count)
{
    double sum = 0;

    for (int64_t i = 0; i < count; i++)
        sum += candidates[i].probability = exp(candidates[i].score);
    return sum;
}

/* Move the best ones to the end of the array, best last: top_k of them, or the fewest with total
 * weight `mass`. Returns how many. */
static int64_t take_best(bp_candidate *candidates, int64_t count, int64_t most, double mass)
{
    double taken = 0;
    int64_t left = count;

    for (int64_t at = count / 2; at-- > 0;)
        sift_down(candidates, count, at);
    while (left > 0 && count - left < most && (taken < mass || left == count)) {
        taken += candidates[0].probability;
        swap(&candidates[0], &candidates[--left]);
        sift_down(candidates, left, 0);
    }
    return count - left;
}

/* Best first at the beginning of the array. */
static void bring_forward(bp_candidate *candidates, int64_t count, int64_t taken)
{
    for (int64_t i = 0; i < taken && i < count - 1 - i; i++)
        swap(&candidates[i], &candidates[count - 1 - i]);
}

static int64_t keep_best(bp_candidate *candidates, int64_t count, int64_t most, double mass)
{
    int64_t taken = take_best(candidates, count, most, mass);

    bring_forward(candidates, count, taken);
    return taken;
}

void bp_choice_candidates(bp_choice *choice, const double *scores)
{
    const bp_choice_rule *rule = choice->rule;
    bp_candidate *candidates = choice->candidates;
    double most = -INFINITY, sum;
    int64_t count = 0;

    for (int64_t v = 0; v < rule->vocab_size; v++)
        most = fmax(most, scores[v]);
    for (int32_t v = 0; v < rule->vocab_size;
         v++) /* the best is 0, however small the temperature */
        if (scores[v] > -INFINITY)
            candidates[count++] =
                (bp_candidate){.score = (scores[v] - most) / rule->temperature, .token = v};
    if (rule->top_k > 0 && rule->top_k < count)
        count = keep_best(candidates, count, rule->top_k, INFINITY);
    sum = weigh(candidates, count);
    if (rule->top_p < 1) {
        count = keep_best(candidates, count, count, rule->top_p * sum);
        sum = weigh(candidates, count);
    }
    for (int64_t i = 0; i < count; i++)
        candidates[i].probability /= sum;
    choice->count = count;
}

/* ---- the draw ---- */

int32_t bp_choice_draw(const bp_choice *choice, double u)
{
    double sum = 0;

    for (int64_t i = 0; i < choice->count; i++) {
        sum += choice->candidates[i].probability;
        if (u < sum)
            return choice->candidates[i].token;
    }
    return choice->count > 0 ? choice->candidates[choice->count - 1].token : -1;
}

/* The token with the highest score, the lowest id of equal ones; -1 if all are -infinity. */
static int32_t best_of(const double *scores, int64_t vocab_size)
{
    int32_t best = -1;
    double most = -INFINITY;

    for (int32_t v = 0; v < vocab_size; v++)
        if (scores[v] > most) {
            most = scores[v];
            best = v;
        }
    return best;
}

double bp_choice_uniform(uint64_t seed, int64_t prompt, int64_t sample, int64_t position)
{
    bp_rng_key key = bp_rng_key_of(seed, BP_RNG_GENERATE, prompt, sample, 0);

    return bp_rng_uniform(&key, (uint64_t)position);
}

int32_t bp_choice_next(bp_choice *choice, const bp_sequence *sequence, const float *logits,
                       double u)
{
    const bp_choice_rule *rule = choice->rule;

    for (int64_t v = 0; v < rule->vocab_size; v++)
        choice->scores[v] = logits[v];
    bp_choice_penalise(choice, sequence, choice->scores);
    if (!rule->samples)
        return best_of(choice->scores, rule->vocab_size);
    bp_choice_candidates(choice, choice->scores);
    return bp_choice_draw(choice, u);
}
