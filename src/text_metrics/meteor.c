/* METEOR: words aligned exactly, then by their stems, then as synonyms. */
#include "base/files/hash.h"
#include "base/mem.h"
#include "text/unicode/characters.h"
#include "text_metrics/porter_priv.h"
#include "text_metrics/words_priv.h"

#include <math.h>
#include <string.h>

#define ALPHA 0.9
#define BETA  3.0
#define GAMMA 0.5

const bp_metric bp_metric_meteor = {
    .kind = "meteor", .width = 1, .names = {"meteor"}, .figures = bp_text_means};

/* One side of a pair: words, stems, and what each is aligned with (-1: nothing). */
typedef struct side {
    bp_words words;
    bp_line *stems;   /* text of each is bp_free()'s */
    uint64_t *hashes; /* of stems */
    int64_t *partner;
} side;

static void side_clear(side *s)
{
    for (int64_t k = 0; k < s->words.count && s->stems; k++)
        bp_free((char *)s->stems[k].text);
    bp_free(s->stems);
    bp_free(s->hashes);
    bp_free(s->partner);
    bp_words_clear(&s->words);
    *s = (side){0};
}

static bp_line stem_of(const char *text, size_t bytes)
{
    uint32_t *letters = bp_alloc("metrics.stem", (int64_t)bytes + 1, sizeof *letters);
    bp_buffer out = {0};
    int64_t count = 0;

    for (size_t at = 0; at < bytes; count++)
        at += bp_character_at(text + at, bytes - at, &letters[count]);
    count = bp_porter_stem(letters, count);
    for (int64_t k = 0; k < count; k++)
        bp_character_add(&out, letters[k]);
    bp_free(letters);
    size_t kept = out.bytes;

    return (bp_line){bp_buffer_take(&out), kept};
}

static void side_read(side *s, bp_line line, bp_bleu_words how)
{
    bp_buffer lower = {0};

    bp_text_lowercase(&lower, line.text, line.bytes);
    s->words.spans = true;
    bp_words_of_bleu(&s->words, (bp_line){lower.data, lower.bytes}, how);
    s->stems = bp_alloc("metrics.stem", s->words.count, sizeof *s->stems);
    s->hashes = bp_alloc("metrics.stem", s->words.count, sizeof *s->hashes);
    s->partner = bp_alloc("metrics.stem", s->words.count, sizeof *s->partner);
    for (int64_t k = 0; k < s->words.count; k++) {
        s->stems[k] = stem_of(s->words.places[k].text, s->words.places[k].bytes);
        s->hashes[k] = bp_xxh3(s->stems[k].text, s->stems[k].bytes);
        s->partner[k] = -1;
    }
    bp_buffer_clear(&lower);
}

/* From the last words to the first, as nltk does. */
static void align(side *hypothesis, side *reference, const uint64_t *own, const uint64_t *theirs)
{
    for (int64_t i = hypothesis->words.count - 1; i >= 0; i--)
        for (int64_t j = reference->words.count - 1; j >= 0 && hypothesis->partner[i] < 0; j--)
            if (reference->partner[j] < 0 && own[i] == theirs[j]) {
                hypothesis->partner[i] = j;
                reference->partner[j] = i;
            }
}

static void add_synonym(void *context, const char *word, size_t bytes)
{
    bp_words_add(context, bp_xxh3(word, bytes));
}

static void align_synonyms(side *hypothesis, side *reference, const bp_wordnet *wordnet)
{
    bp_words known = {0};

    for (int64_t i = hypothesis->words.count - 1; i >= 0; i--) {
        if (hypothesis->partner[i] >= 0)
            continue;
        known.count = 0;
        bp_wordnet_synonyms(wordnet, hypothesis->stems[i].text, hypothesis->stems[i].bytes,
                            add_synonym, &known);
        for (int64_t j = reference->words.count - 1; j >= 0 && hypothesis->partner[i] < 0; j--)
            for (int64_t k = 0; k < known.count && reference->partner[j] < 0; k++)
                if (known.list[k] == reference->hashes[j]) {
                    hypothesis->partner[i] = j;
                    reference->partner[j] = i;
                }
    }
    bp_words_clear(&known);
}

static double score_of(const side *hypothesis, int64_t reference_length)
{
    double matches = 0, chunks = 0, precision, recall;
    int64_t before = -1; /* the last word that is aligned */

    for (int64_t i = 0; i < hypothesis->words.count; i++) {
        if (hypothesis->partner[i] < 0)
            continue;
        matches++;
        chunks += before < 0 || before + 1 != i ||
                  hypothesis->partner[before] + 1 != hypothesis->partner[i];
        before = i;
    }
    if (matches == 0)
        return 0;
    precision = matches / (double)hypothesis->words.count;
    recall = matches / (double)reference_length;
    return (1 - GAMMA * pow(chunks / matches, BETA)) * precision * recall /
           (ALPHA * precision + (1 - ALPHA) * recall);
}

static double score_pair(bp_line label, bp_line said, bp_bleu_words how, const bp_wordnet *wordnet)
{
    side hypothesis = {0}, reference = {0};
    double score;

    side_read(&hypothesis, said, how);
    side_read(&reference, label, how);
    align(&hypothesis, &reference, hypothesis.words.list, reference.words.list);
    align(&hypothesis, &reference, hypothesis.hashes, reference.hashes);
    if (wordnet)
        align_synonyms(&hypothesis, &reference, wordnet);
    score = score_of(&hypothesis, reference.words.count);
    side_clear(&hypothesis);
    side_clear(&reference);
    return score;
}

bp_err bp_meteor_count(bp_text_answers *out, const bp_text_pairs *pairs, bp_bleu_words how,
                       const bp_wordnet *wordnet)
{
    double *counts = bp_try_alloc("metrics.counts", pairs->documents, sizeof *counts);

    *out = (bp_text_answers){pairs->documents, 1, counts};
    if (!counts)
        return bp_fail_memory("counts of documents", pairs->documents, sizeof *counts);
    for (int64_t d = 0; d < pairs->documents; d++)
        for (int64_t r = 0; r < pairs->references; r++) {
            double score = score_pair(pairs->reference[r][d], pairs->hypothesis[d], how, wordnet);

            counts[d] = score > counts[d] ? score : counts[d];
        }
    return BP_OK;
}
