/* The objective of masked language models, and its keys. */
#include "models/bert/bert.h"

#include "base/rng.h"
#include "nn/core/layers.h"

#include <math.h>
#include <string.h>

const bp_option bp_mask_options[] = {
    {BP_REAL_KEY("mask.rate", "0.15", 0.001, 0.95),
     .help = "masked models: share of the tokens that are to be found",
     .at = BP_AT(bp_mask_keys, rate)},
    {BP_REAL_KEY("mask.keep", "0.1", 0, 1),
     .help = "masked models: share of these that stay as they are",
     .at = BP_AT(bp_mask_keys, keep)},
    {BP_REAL_KEY("mask.random", "0.1", 0, 1),
     .help = "masked models: share of these that become another token",
     .at = BP_AT(bp_mask_keys, random)},
    {BP_REAL_KEY("mask.span", "0", 0, 100),
     .help = "masked models: spans are masked, whose length is geometric with p = 1 over this, 1 "
             "to 10; 0: none are",
     .at = BP_AT(bp_mask_keys, span)},
    {BP_BOOL_KEY("mask.whole_words", "no"),
     .help = "masked models: all tokens of a word are masked together",
     .at = BP_AT(bp_mask_keys, whole_words)},
    {BP_BOOL_KEY("mask.next_sentence", NULL),
     .help = "bert: half of the examples have a second part that does not follow the first, which "
             "is to be predicted; yes of bert if not given, no of others",
     .at = BP_AT(bp_mask_keys, next_sentence)},
    {0},
};

#define SPAN_MOST 10

/* The text of an example, and its masks on the way. */
typedef struct masking {
    const bp_example_rules *rules;
    bp_rng_key order, kind, token; /* in which order units are taken; what becomes of a token; which
                                      other one */
    const int32_t *text;           /* [n] */
    int32_t *inputs, *targets;     /* [n] */
    int64_t n, wanted;
} masking;

enum { ORDER, KIND, TOKEN, LENGTH, DRAWS };

static bp_rng_key key_of(const bp_example_rules *rules, int64_t step, int64_t slot, int draw)
{
    return bp_rng_key_of(rules->seed, BP_RNG_MASK, rules->member, step, DRAWS * slot + draw);
}

static bool may_be_masked(const masking *m, int64_t t)
{
    int32_t id = m->text[t];

    return id != m->rules->sep && id != m->rules->cls && id != m->rules->eod;
}

/* Does the unit of the token before t hold t too? A token that begins or ends a text is its own
 * unit. */
static bool goes_on(const masking *m, int64_t t)
{
    const bool *continues = m->rules->continues;

    return continues && t > 0 && t < m->n && may_be_masked(m, t - 1) && may_be_masked(m, t) &&
           continues[m->text[t]];
}

/* After the unit that begins at t: a token, or a word. */
static int64_t unit_end(const masking *m, int64_t t)
{
    for (t++; goes_on(m, t);)
        t++;
    return t;
}

/* Units of a span: geometric with p = 1 / span, of 1 to 10. Source: Joshi et al. 2020. */
static int64_t span_units(const bp_example_rules *rules, const bp_rng_key *key, int64_t t)
{
    double stay = 1 - 1 / rules->span, all = 1 - pow(stay, SPAN_MOST), sum = 0,
           u = bp_rng_uniform(key, (uint64_t)t);
    int64_t units = 1;

    if (rules->span <= 1)
        return 1;
    for (; units < SPAN_MOST; units++) {
        sum += (1 - stay) * pow(stay, (double)(units - 1)) / all;
        if (u < sum)
            break;
    }
    return units;
}

/* Tokens [first, end) are to be predicted, masked by the draw at place `by`. */
static void mask(masking *m, int64_t first, int64_t end, int64_t by)
{
    const bp_example_rules *rules = m->rules;

    for (int64_t t = first; t < end && m->wanted > 0; t++) {
        double u = bp_rng_uniform(&m->kind, (uint64_t)(by >= 0 ? by : t));

        if (m->targets[t] >= 0)
            continue;
        m->targets[t] = m->text[t];
        m->wanted--;
        if (u < rules->random)
            m->inputs[t] = (int32_t)bp_rng_below(&m->token, (uint64_t)t, rules->vocab_size);
        else if (u >= rules->random + rules->keep)
            m->inputs[t] = (int32_t)rules->mask;
    }
}

/* Masks the span of `units` units that begins at t; the text's end or another text cuts it short.
 * What becomes of its tokens is drawn once. */
static void mask_span(masking *m, int64_t t, int64_t units)
{
    int64_t end = t;

    for (; units > 0 && end < m->n && may_be_masked(m, end); units--)
        end = unit_end(m, end);
    mask(m, t, end, t);
}

/* A word longer than the remaining budget is skipped: BERT's rule. The first one is not skipped, so
 * that each example has something to find: ours. */
static void mask_word(masking *m, int64_t t, bool first)
{
    int64_t end = unit_end(m, t);

    if (first && end - t > m->wanted)
        m->wanted = end - t;
    if (end - t <= m->wanted)
        mask(m, t, end, -1);
}

static void mask_text(masking *m, const bp_rng_key *length)
{
    int64_t eligible = 0, all;

    for (int64_t t = 0; t < m->n; t++) {
        m->targets[t] = -1;
        eligible += may_be_masked(m, t);
    }
    memcpy(m->inputs, m->text, (size_t)m->n * sizeof *m->inputs);
    m->wanted = (int64_t)floor(m->rules->rate * (double)eligible + 0.5);
    m->wanted = m->wanted > 0 ? m->wanted : 1;
    all = m->wanted;
    for (int64_t k = 0; k < m->n && m->wanted > 0; k++) {
        int64_t t = bp_rng_permute(&m->order, k, m->n);

        if (!may_be_masked(m, t) || m->targets[t] >= 0 || goes_on(m, t))
            continue;
        if (m->rules->span > 0)
            mask_span(m, t, span_units(m->rules, length, t));
        else
            mask_word(m, t, m->wanted == all);
    }
}

/* Predict words from their span's boundaries, but for those far from the span's start. */
static void ask_boundaries(const int32_t *targets, int32_t *boundaries, int64_t T)
{
    int64_t number = 0;

    for (int64_t t = 0; t < T; t++) {
        boundaries[t] = targets[t] >= 0 && number < BP_BOUNDARY_POSITIONS ? targets[t] : -1;
        number = targets[t] >= 0 ? number + 1 : 0;
    }
}

/* [CLS], T - 2 consecutive tokens, texts separated by their end-of-document tokens, [SEP]. */
void bp_masked_make(const bp_example_maker *self, const int32_t *tokens, int64_t step, int64_t slot,
                    bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    int64_t T = self->form.stream[0].T;
    bp_rng_key length = key_of(rules, step, slot, LENGTH);
    masking m = {.rules = rules,
                 .order = key_of(rules, step, slot, ORDER),
                 .kind = key_of(rules, step, slot, KIND),
                 .token = key_of(rules, step, slot, TOKEN),
                 .text = tokens,
                 .inputs = out->inputs[0] + 1,
                 .targets = out->targets[0] + 1,
                 .n = T - 2};

    out->inputs[0][0] = (int32_t)rules->cls;
    out->inputs[0][T - 1] = (int32_t)rules->sep;
    out->targets[0][0] = out->targets[0][T - 1] = -1;
    mask_text(&m, &length);
    if (out->segments[0])
        memset(out->segments[0], 0, (size_t)T * sizeof *out->segments[0]);
    if (out->targets[BP_BERT_NEXT_SENTENCE])
        out->targets[BP_BERT_NEXT_SENTENCE][0] = -1;
    if (out->targets[BP_BERT_BOUNDARY_WORDS])
        ask_boundaries(out->targets[0], out->targets[BP_BERT_BOUNDARY_WORDS], T);
}

/* ---- pairs ---- */

enum { PAIR_RANDOM, PAIR_END, PAIR_START, PAIR_SHORTER, PAIR_CUT }; /* draws; those of cuts go on */

/* The two sides of an example. */
typedef struct pair {
    const int32_t *side[2];
    int64_t count[2];
    int32_t target; /* 0: the second follows; 1: it does not; -1: one is empty */
} pair;

/* Where B begins in `other`: a sentence with `wanted` tokens from there on, or the first. */
static const int32_t *draw_start(const bp_document *other, const bp_rng_key *key, int64_t wanted,
                                 int64_t *there)
{
    int64_t fit = 0, first, all = other->starts[other->segments];

    while (fit < other->segments && all - other->starts[fit] >= wanted)
        fit++;
    first = fit > 0 ? bp_rng_below(key, PAIR_START, fit) : 0;
    *there = all - other->starts[first];
    return other->tokens + other->starts[first];
}

/* Lengths must not say whether B follows: both kinds of B begin with a sentence, are cut inside
 * one, and have the same length, which both texts can provide. (In BERT's own program both kinds go
 * beyond the window, and are cut to it.) A run of one sentence is followed by nothing. */
static pair choose_pair(const bp_document *run, const bp_rng_key *key, int64_t most)
{
    int64_t n = run->segments;
    int64_t end = n > 1 ? 1 + bp_rng_below(key, PAIR_END, n - 1) : 1, split = run->starts[end];
    pair out = {.side = {run->tokens, run->tokens + split}, .count = {split, run->count - split}};

    if (run->other) {
        int64_t last = n > 1 ? run->starts[n] - run->starts[n - 1] : 0, there;
        const int32_t *begin;

        if (n == 1)
            out.count[1] = most > split ? most - split : 1;
        else if (last > 1)
            out.count[1] -= bp_rng_below(key, PAIR_SHORTER, last);
        begin = draw_start(run->other, key, out.count[1], &there);
        out.count[1] = there < out.count[1] ? there : out.count[1];
        if (n == 1 || bp_rng_uniform(key, PAIR_RANDOM) < 0.5) {
            out.side[1] = begin;
            out.target = 1;
        }
    }
    if (out.count[0] == 0 || out.count[1] <= 0)
        out.target = -1;
    return out;
}

static void cut_pair(pair *p, const bp_rng_key *key, int64_t most)
{
    for (uint64_t cut = PAIR_CUT; p->count[0] + p->count[1] > most; cut++) {
        int longer = p->count[1] >= p->count[0];

        p->side[longer] += bp_rng_uniform(key, cut) < 0.5;
        p->count[longer]--;
    }
}

static void make_pair(const bp_example_maker *self, const bp_document *run, int64_t step,
                      int64_t slot, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    int64_t T = self->form.stream[0].T, most = T - 3, all;
    bp_rng_key key = bp_rng_key_of(rules->seed, BP_RNG_PAIR, rules->member, step, slot),
               length = key_of(rules, step, slot, LENGTH);
    int32_t *text = out->segments[0]; /* until it is masked */
    pair p = choose_pair(run, &key, most);

    cut_pair(&p, &key, most);
    all = p.count[0] + 1 + p.count[1]; /* between the first and the last place */
    memcpy(text, p.side[0], (size_t)p.count[0] * sizeof *text);
    text[p.count[0]] = (int32_t)rules->sep;
    memcpy(text + p.count[0] + 1, p.side[1], (size_t)p.count[1] * sizeof *text);
    for (int64_t t = 0; t < T; t++) {
        out->inputs[0][t] = (int32_t)rules->pad;
        out->targets[0][t] = -1;
    }
    out->inputs[0][0] = (int32_t)rules->cls;
    mask_text(&(masking){.rules = rules,
                         .order = key_of(rules, step, slot, ORDER),
                         .kind = key_of(rules, step, slot, KIND),
                         .token = key_of(rules, step, slot, TOKEN),
                         .text = text,
                         .inputs = out->inputs[0] + 1,
                         .targets = out->targets[0] + 1,
                         .n = all},
              &length);
    out->inputs[0][all + 1] = (int32_t)rules->sep;
    for (int64_t t = 0; t < T; t++)
        out->segments[0][t] = t > p.count[0] + 1 && t < all + 2;
    out->length[0][0] = (int32_t)all + 2;
    out->targets[BP_BERT_NEXT_SENTENCE][0] = p.target;
    if (out->targets[BP_BERT_BOUNDARY_WORDS])
        ask_boundaries(out->targets[0], out->targets[BP_BERT_BOUNDARY_WORDS], T);
}

static bp_example_maker masked_maker(const bp_model_shape *shape, int64_t T,
                                     const bp_example_rules *rules)
{
    bool pooler = bp_bert_has_pooler(shape), boundary = bp_bert_sizes_of(shape)->boundary != 0;
    bool pairs = rules && rules->pairs;
    int64_t framed = pairs ? 3 : 1; /* the next example begins after the T - 2 tokens of this one */

    return (bp_example_maker){
        .form = {.stream = {{.T = T, .has_lengths = pairs, .has_segments = pooler}},
                 .targets = {T, pooler ? 1 : 0, boundary ? T : 0}},
        .feed = pairs ? BP_FEED_RUNS : BP_FEED_WINDOWS,
        .window = T - framed,
        .rules = rules,
        .make = bp_masked_make,
        .make_document = make_pair};
}

const bp_objective bp_objective_masked = {.name = "masked",
                                          .terms = 3,
                                          .weight = {1, 1, 1},
                                          .term = {"masked", "next_sentence", "boundary"},
                                          .masks = true,
                                          .maker = masked_maker};
