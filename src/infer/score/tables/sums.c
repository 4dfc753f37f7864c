/* Fixed-point sums, and figures. */
#include "infer/score/tables/sums.h"

#include <math.h>

bp_fixed bp_fixed_of(double value)
{
    return (bp_fixed)rint(value * 0x1p40);
}

double bp_fixed_real(bp_fixed value)
{
    return (double)value * 0x1p-40;
}

void bp_score_sums_add(bp_score_sums *into, const bp_score_sums *more)
{
    into->documents += more->documents;
    into->tokens += more->tokens;
    into->unscored += more->unscored;
    into->nll += more->nll;
    into->square += more->square;
    into->bytes += more->bytes;
    into->words += more->words;
    into->words_split += more->words_split;
    into->no_bytes = into->no_bytes || more->no_bytes;
    into->no_words = into->no_words || more->no_words;
    into->no_words_split = into->no_words_split || more->no_words_split;
    into->oov += more->oov;
    into->zeros += more->zeros;
    into->oov_zeros += more->oov_zeros;
    into->oov_nll += more->oov_nll;
    into->has_oov = into->has_oov || more->has_oov;
    into->has_zeros = into->has_zeros || more->has_zeros;
}

static double stderr_tokens(const bp_score_sums *sums, double mean)
{
    double n = (double)sums->tokens;
    double variance = bp_fixed_real(sums->square) / n - mean * mean;

    if (sums->tokens < 2 || sums->zeros > 0)
        return NAN;
    return variance > 0 ? sqrt(variance / (n - 1)) * exp(mean) : 0;
}

/* Infinite if a token has probability 0. */
static double total_nll(const bp_score_sums *sums)
{
    return sums->zeros > 0 ? INFINITY : bp_fixed_real(sums->nll);
}

static double perplexity_without_oov(const bp_score_sums *sums)
{
    double nll = bp_fixed_real(sums->nll - sums->oov_nll);

    return sums->zeros > sums->oov_zeros ? NAN : exp(nll / (double)(sums->tokens - sums->oov));
}

json_t *bp_score_figures(const bp_score_sums *sums, double stderr_documents)
{
    double nll = total_nll(sums);
    double mean = nll / (double)sums->tokens;
    bool whole = sums->unscored == 0;
    bool bytes = whole && !sums->no_bytes, words = whole && !sums->no_words;
    bool split = whole && !sums->no_words_split;
    double per_byte = bytes ? nll / (double)sums->bytes : NAN;
    double per_word = words ? nll / (double)sums->words : NAN;

    json_t *out = json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", /* in this order */
        "documents", (json_int_t)sums->documents, "tokens", (json_int_t)sums->tokens, "bytes",
        bytes ? json_integer(sums->bytes) : json_null(), "words",
        words ? json_integer(sums->words) : json_null(), "nll_nats", bp_json_real(nll),
        "perplexity", bp_json_real(exp(mean)), "perplexity_stderr",
        bp_json_real(stderr_tokens(sums, mean)), "perplexity_stderr_documents",
        bp_json_real(sums->zeros > 0 ? NAN : stderr_documents), "bits_per_byte",
        bp_json_real(per_byte / log(2)), "byte_perplexity", bp_json_real(exp(per_byte)),
        "word_perplexity", bp_json_real(exp(per_word)), "words_split",
        split ? json_integer(sums->words_split) : json_null());
    if (sums->has_oov) {
        (void)json_object_set_new(out, "oov", json_integer(sums->oov));
        (void)json_object_set_new(out, "perplexity_without_oov",
                                  bp_json_real(perplexity_without_oov(sums)));
    }
    if (sums->has_zeros)
        (void)json_object_set_new(out, "zero_probability", json_integer(sums->zeros));
    return out;
}
