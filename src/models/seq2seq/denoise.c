/* The objective of encoder-decoders without pairs: a text given the same text with noise. Noises
 * are applied in the order of bp_noise; each is a function of (seed, member, step, slot) and
 * positions. Source: Lewis et al. 2020, BART, section 2.2; Raffel et al. 2020, T5, section 3.3.4,
 * as its program draws spans. */
#include "models/family.h"

#include "base/numbers.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

const bp_option bp_noise_options[] = {
    {BP_CHOICE_KEY("train.objective", NULL, BP_OBJECTIVES),
     .help = "what is learned, where a family has a choice: bart and t5 have seq2seq (a target "
             "given its source) and denoise (a text given the same with noise); if not given, "
             "seq2seq of pairs and denoise of other corpora",
     .at = BP_AT(bp_noise_keys, objective)},
    {BP_STRING_KEY("noise.kinds", BP_NOISE_KINDS),
     .help = "denoise: noises, with commas: permute (the order of sentences), mask (tokens), "
             "delete (tokens), infill (a mask for a span), rotate (where the text begins), applied "
             "in this order; or sentinels (T5's: the target is what is missing)",
     .at = BP_AT(bp_noise_keys, kinds)},
    {BP_REAL_KEY("noise.rate", "0.3", 0.001, 0.95),
     .help =
         "denoise: share of the tokens that mask, delete, infill and sentinels take, each of them",
     .at = BP_AT(bp_noise_keys, rate)},
    {BP_REAL_KEY("noise.span", "3", 1, 100), .unit = "tokens",
     .help = "denoise: mean length of the spans of infill, which Poisson's distribution has, and "
             "of sentinels",
     .at = BP_AT(bp_noise_keys, span)},
    {0},
};

const char *const bp_noise_names[BP_NOISES] = {"permute", "mask",   "delete",
                                               "infill",  "rotate", "sentinels"};

/* Draws of an example: each has its own keys. */
enum { PERMUTE, MASK, DELETE, LENGTH, PLACE, ROTATE, NOISE_PARTS, TEXT_PARTS, DRAWS };

/* The text of an example in progress. */
typedef struct noising {
    const bp_example_rules *rules;
    int64_t step, slot;
    int32_t *text, *other; /* [T]: the text, and a buffer for its result */
    int32_t *marks;        /* [T] of scratch */
    int64_t n, capacity;   /* tokens of text, and their maximum */
} noising;

static bp_rng_key key_of(const noising *w, int draw)
{
    return bp_rng_key_of(w->rules->seed, BP_RNG_NOISE, w->rules->member, w->step,
                         DRAWS * w->slot + draw);
}

static void swap_texts(noising *w)
{
    int32_t *text = w->text;

    w->text = w->other;
    w->other = text;
}

/* Sentences [starts[k], starts[k + 1]) of the text in another order. */
static void permute(noising *w, const bp_document *document)
{
    bp_rng_key key = key_of(w, PERMUTE);
    int64_t at = 0;

    for (int64_t k = 0; k < document->segments; k++) {
        int64_t from = bp_rng_permute(&key, k, document->segments),
                end = document->starts[from + 1];

        for (int64_t t = document->starts[from]; t < end && t < w->n; t++)
            w->other[at++] = w->text[t];
    }
    swap_texts(w);
}

static void mask_tokens(noising *w)
{
    bp_rng_key key = key_of(w, MASK);

    for (int64_t t = 0; t < w->n; t++)
        if (bp_rng_uniform(&key, (uint64_t)t) < w->rules->noise_rate)
            w->text[t] = (int32_t)w->rules->mask;
}

/* At least one token stays. */
static void delete_tokens(noising *w)
{
    bp_rng_key key = key_of(w, DELETE);
    int64_t kept = 0;

    for (int64_t t = 0; t < w->n; t++)
        if (bp_rng_uniform(&key, (uint64_t)t) >= w->rules->noise_rate)
            w->text[kept++] = w->text[t];
    w->n = kept > 0 ? kept : w->n > 0;
}

/* The Poisson distribution, by inversion. */
static int64_t poisson(double mean, double u)
{
    double p = exp(-mean), sum = p;
    int64_t k = 0;

    for (; u >= sum && k < BP_NOISE_SPAN_MOST; sum += p)
        p *= mean / (double)++k;
    return k;
}

static int64_t share_of(double rate, int64_t n)
{
    return (int64_t)floor(rate * (double)n + 0.5);
}

/* Draws lengths of spans, into w->other, until they sum to this many tokens; cuts the last one. A
 * span of 0 tokens that does not fit is omitted. Returns the number of spans. */
static int64_t draw_spans(noising *w, int64_t wanted)
{
    bp_rng_key key = key_of(w, LENGTH);
    int64_t spans = 0, taken = 0;

    for (uint64_t draw = 0; taken < wanted; draw++) {
        int64_t length = poisson(w->rules->noise_span, bp_rng_uniform(&key, draw));

        length = length < wanted - taken ? length : wanted - taken;
        if (length == 0 && w->n - taken + spans + 1 > w->capacity)
            continue;
        w->other[spans++] = (int32_t)length;
        taken += length;
    }
    return spans;
}

/* All orders of the spans and the tokens between them are equally likely; each span becomes one
 * mask. */
static void infill(noising *w)
{
    bp_rng_key key = key_of(w, PLACE);
    int64_t wanted = share_of(w->rules->noise_rate, w->n), spans = draw_spans(w, wanted),
            items = w->n - wanted + spans, at = 0;

    memset(w->marks, 0, (size_t)items * sizeof *w->marks);
    for (int64_t k = 0; k < spans; k++)
        w->marks[bp_rng_permute(&key, k, items)] = 1 + w->other[k];
    for (int64_t k = 0; k < items; k++) {
        w->other[k] = w->marks[k] > 0 ? (int32_t)w->rules->mask : w->text[at];
        at += w->marks[k] > 0 ? w->marks[k] - 1 : 1;
    }
    w->n = items;
    swap_texts(w);
}

static void rotate(noising *w)
{
    bp_rng_key key = key_of(w, ROTATE);
    int64_t first = bp_rng_below(&key, 0, w->n);

    memcpy(w->other, w->text + first, (size_t)(w->n - first) * sizeof *w->text);
    memcpy(w->other + w->n - first, w->text, (size_t)first * sizeof *w->text);
    swap_texts(w);
}

/* Divides `items` into `parts` parts of at least one item each: marks where a part begins, except
 * the first. All divisions are equally likely. */
static void cut_parts(const noising *w, int draw, int32_t *marks, int64_t items, int64_t parts)
{
    bp_rng_key key = key_of(w, draw);

    memset(marks, 0, (size_t)items * sizeof *marks);
    for (int64_t k = 0; k < parts - 1; k++)
        marks[1 + bp_rng_permute(&key, k, items - 1)] = 1;
}

/* Copies a part, which begins at item *at, and moves past it. */
static int64_t copy_part(int32_t *to, const int32_t *text, const int32_t *marks, int64_t *at,
                         int64_t items)
{
    int64_t n = 0;

    do
        to[n] = text[n];
    while (++n + *at < items && !marks[*at + n]);
    *at += n;
    return n;
}

/* Runs of text alternate with removed runs, text first. A sentinel replaces each removed run in the
 * source, and precedes it in target[T]. Returns the target's length. */
static int64_t take_out(noising *w, int32_t *target)
{
    const bp_example_rules *rules = w->rules;
    int64_t noise = share_of(rules->noise_rate, w->n), spans, text = 0, out = 0, from = 0, at = 0,
            to = 0;

    if (w->n < 2)
        return 0;
    noise = noise < 1 ? 1 : bp_min(noise, w->n - 1);
    spans = (int64_t)floor((double)noise / rules->noise_span + 0.5);
    spans = spans < 1 ? 1 : spans;
    spans = bp_min(bp_min(spans, rules->sentinel_count), bp_min(noise, w->n - noise));
    cut_parts(w, NOISE_PARTS, w->marks, noise, spans);
    cut_parts(w, TEXT_PARTS, w->marks + noise, w->n - noise, spans);
    for (int64_t k = 0; k < spans; k++) {
        int64_t n = copy_part(w->other + at, w->text + from, w->marks + noise, &text, w->n - noise);

        from += n;
        at += n;
        w->other[at++] = target[to++] = rules->sentinels[k];
        n = copy_part(target + to, w->text + from, w->marks, &out, noise);
        from += n;
        to += n;
    }
    w->n = at;
    swap_texts(w);
    return to;
}

/* The decoder reads the start, and the target without its end; later positions are ignored. */
static void ask(const bp_example_maker *self, int64_t count, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    int64_t T = self->form.stream[0].T;

    if (rules->eod >= 0)
        out->targets[0][count++] = (int32_t)rules->eod;
    memset(out->inputs[0], 0, (size_t)T * sizeof(int32_t));
    out->inputs[0][0] = (int32_t)rules->start;
    if (count > 0)
        memcpy(out->inputs[0] + 1, out->targets[0], (size_t)(count - 1) * sizeof(int32_t));
    for (int64_t t = count; t < T; t++)
        out->targets[0][t] = -1;
}

/* Source: the noised text, and its end. */
static void give(const bp_example_maker *self, const noising *w, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    int64_t S = self->form.stream[1].T, n = w->n;

    if (w->text != out->inputs[1])
        memcpy(out->inputs[1], w->text, (size_t)n * sizeof(int32_t));
    if (rules->eod >= 0)
        out->inputs[1][n++] = (int32_t)rules->eod;
    memset(out->inputs[1] + n, 0, (size_t)(S - n) * sizeof(int32_t));
    out->length[1][0] = (int32_t)n;
}

static int64_t capacity_of(const bp_example_maker *self)
{
    const bp_example_rules *rules = self->rules;

    return self->form.stream[0].T - (rules->eod >= 0);
}

static bool has(const bp_example_rules *rules, bp_noise noise)
{
    return (rules->noises >> noise & 1) != 0;
}

static void make_text(const bp_example_maker *self, const bp_document *document, int64_t step,
                      int64_t slot, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    int64_t capacity = capacity_of(self), n = bp_min(document->count, capacity), count = n;
    noising w = {.rules = rules,
                 .step = step,
                 .slot = slot,
                 .text = out->inputs[1],
                 .other = out->inputs[0],
                 .marks = out->targets[0],
                 .n = n,
                 .capacity = capacity};

    memcpy(w.text, document->tokens, (size_t)n * sizeof *w.text);
    if (has(rules, BP_NOISE_SENTINELS)) {
        /* the target grows over the text, which is read ahead of it */
        count = take_out(&w, w.text);
        memcpy(w.marks, w.other, (size_t)count * sizeof *w.marks);
        give(self, &w, out);
        ask(self, count, out);
        return;
    }
    if (has(rules, BP_NOISE_PERMUTE))
        permute(&w, document);
    if (has(rules, BP_NOISE_MASK))
        mask_tokens(&w);
    if (has(rules, BP_NOISE_DELETE))
        delete_tokens(&w);
    if (has(rules, BP_NOISE_INFILL))
        infill(&w);
    if (has(rules, BP_NOISE_ROTATE) && w.n > 0)
        rotate(&w);
    give(self, &w, out);
    memcpy(out->targets[0], document->tokens, (size_t)n * sizeof *w.text);
    ask(self, count, out);
}

/* The next window begins after this one's tokens; ends of documents are tokens like others. */
static void make_window(const bp_example_maker *self, const int32_t *tokens, int64_t step,
                        int64_t slot, bp_example *out)
{
    make_text(self, &(bp_document){.tokens = tokens, .count = self->window - 1}, step, slot, out);
}

static bp_example_maker denoise_maker(const bp_model_shape *shape, int64_t T,
                                      const bp_example_rules *rules)
{
    bool runs = rules && rules->has_sentences;
    int64_t capacity = T - (!rules || rules->eod >= 0);

    (void)shape;
    return (bp_example_maker){
        .form = {.stream = {{.T = T}, {.T = T, .has_lengths = true}}, .targets = {T}},
        .feed = runs ? BP_FEED_RUNS : BP_FEED_WINDOWS,
        .window = runs ? capacity : capacity + 1,
        .rules = rules,
        .make = make_window,
        .make_document = make_text};
}

const bp_objective bp_objective_denoise = {
    .name = "denoise", .terms = 1, .weight = {1}, .noises = true, .maker = denoise_maker};
