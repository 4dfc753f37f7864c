/* Beam search. Called by search.c after each step of a prompt. */
#include "infer/generate/search/search_priv.h"

#include <math.h>

static bool is_better(const search_continuation *a, const search_continuation *b)
{
    if (a->score != b->score)
        return a->score > b->score;
    return a->beam != b->beam ? a->beam < b->beam : a->token < b->token;
}

/* Keep `one` among the `most` best, the best first. */
static void keep(search_continuation *best, int64_t *count, int64_t most, search_continuation one)
{
    int64_t at = *count;

    if (at == most) {
        if (!is_better(&one, &best[at - 1]))
            return;
        at--;
    } else {
        ++*count;
    }
    for (; at > 0 && is_better(&one, &best[at - 1]); at--)
        best[at] = best[at - 1];
    best[at] = one;
}

/* The log-probabilities of a beam's next token, changed by the penalties. */
static void score_row(const bp_search *search, bp_choice *choice, const bp_search_rows *rows,
                      int64_t beam)
{
    int64_t V = search->spec->choice.vocab_size;
    const float *logits = rows->logits + beam * V;
    const bp_sequence sequence = search_sequence(search, &search->lines[beam]);

    for (int64_t v = 0; v < V; v++)
        choice->scores[v] = (double)logits[v] - rows->log_sums[beam];
    bp_choice_penalise(choice, &sequence, choice->scores);
}

int64_t search_continuations(const bp_search_spec *spec)
{
    int64_t ends = spec->ends.count > 1 ? spec->ends.count : 1;

    return (1 + ends) * spec->beams;
}

/* The best continuations of all live beams, in search->best. */
static int64_t rank(bp_search *search, bp_choice *choice, const bp_search_rows *rows)
{
    int64_t count = 0, most = search_continuations(search->spec),
            V = search->spec->choice.vocab_size;

    for (int32_t b = 0; b < search->live; b++) {
        score_row(search, choice, rows, b);
        for (int32_t v = 0; v < V; v++) {
            double score = search->lines[b].score + choice->scores[v];

            if (score > -INFINITY && (count < most || score >= search->best[most - 1].score))
                keep(search->best, &count, most, (search_continuation){score, b, v});
        }
    }
    return count;
}

static double by_length(const bp_search *search, double sum, int64_t n)
{
    return n > 0 ? sum / pow((double)n, search->spec->length_penalty) : sum;
}

/* A hypothesis: the line with its sum as score. The worst of more than `beams` is dropped. */
static void close_line(bp_search *search, const search_line *line)
{
    double score = by_length(search, line->score, line->count);
    int64_t beams = search->spec->beams, at = search->closed_count;
    search_line last = search->closed[at];

    if (at == beams && !(score > search->closed[at - 1].score))
        return;
    for (; at > 0 && score > search->closed[at - 1].score; at--)
        search->closed[at] = search->closed[at - 1];
    search->closed[at] = last;
    search_line_copy(&search->closed[at], line, search);
    search->closed[at].score = score;
    search->closed_count += search->closed_count < beams;
}

/* The continuations in order: those that end are closed, the others are the next beams. */
static void share_out(bp_search *search, const bp_search_rows *rows, int64_t count)
{
    int64_t beams = search->spec->beams, live = 0;

    for (int64_t r = 0; r < count && live < beams; r++) {
        const search_continuation *one = &search->best[r];
        search_line *line = &search->spare[live];

        search_line_copy(line, &search->lines[one->beam], search);
        search_line_add(line, search, rows, one->beam, one->token);
        line->score = one->score;
        search_line_update(line, search);
        if (line->ended && line->finish != BP_FINISH_LENGTH) {
            if (r < beams)
                close_line(search, line);
            continue;
        }
        search->fed[live] = one->token;
        search->parents[live++] = one->beam;
    }
    search->live = live;
}

/* After a step that found continuations. */
static bool is_over(const bp_search *search)
{
    int64_t n = search->steps + 1, beams = search->spec->beams;

    if (search->live == 0 || n == search->tokens)
        return true;
    return search->closed_count == beams &&
           search->closed[beams - 1].score >= by_length(search, search->best[0].score, n);
}

bool search_beam_step(bp_search *search, bp_choice *choice, const bp_search_rows *rows)
{
    int64_t count = rank(search, choice, rows);
    bool last = search->steps + 1 == search->tokens;

    if (count > 0) {
        share_out(search, rows, count);
        search_line *lines = search->lines;

        search->lines = search->spare;
        search->spare = lines;
    }
    for (int64_t k = 0; k < search->slots; k++) {
        search->counts[k] = k < search->live;
        if (k >= search->live)
            search->parents[k] = 0;
    }
    if (count > 0 && !is_over(search))
        return true;
    /* a search that ends early has all its hypotheses: its beams are dropped */
    if (last || count == 0)
        for (int64_t k = 0; k < search->live; k++)
            close_line(search, &search->lines[k]);
    return false;
}
