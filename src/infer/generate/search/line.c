/* A sequence of a search, token by token. Used by search.c and beam.c. */
#include "infer/generate/search/search_priv.h"

#include "base/mem.h"

#include <string.h>

void search_line_new(search_line *line, const bp_search *search, bool statistics)
{
    int64_t capacity = search->tokens;

    line->tokens = bp_alloc("generate.search", search->prompt + capacity, sizeof *line->tokens);
    line->logprobs = bp_alloc("generate.search", capacity, sizeof *line->logprobs);
    line->statistics =
        statistics ? bp_alloc("generate.search", 2 * capacity, sizeof *line->statistics) : NULL;
}

void search_line_clear(search_line *line)
{
    bp_free(line->statistics);
    bp_free(line->logprobs);
    bp_free(line->tokens);
    *line = (search_line){0};
}

void search_line_copy(search_line *to, const search_line *from, const bp_search *search)
{
    search_line kept = *to;

    *to = *from;
    to->tokens = kept.tokens;
    to->logprobs = kept.logprobs;
    to->statistics = kept.statistics;
    memcpy(to->tokens, from->tokens, (size_t)(search->prompt + from->count) * sizeof *to->tokens);
    memcpy(to->logprobs, from->logprobs, (size_t)from->count * sizeof *to->logprobs);
    if (to->statistics)
        memcpy(to->statistics, from->statistics, (size_t)from->count * 2 * sizeof *to->statistics);
}

void search_line_add(search_line *line, const bp_search *search, const bp_search_rows *rows,
                     int64_t row, int32_t token)
{
    const bp_choice_rule *rule = &search->spec->choice;
    bp_sequence before = search_sequence(search, line);
    int64_t at = line->count++;

    line->tokens[search->prompt + at] = token;
    line->logprobs[at] =
        bp_choice_forced(rule, &before) >= 0
            ? 0 /* it is given */
            : (double)rows->logits[row * rule->vocab_size + token] - rows->log_sums[row];
    if (line->statistics)
        memcpy(line->statistics + 2 * at, rows->statistics + 2 * row, 2 * sizeof *line->statistics);
}

void search_line_update(search_line *line, const bp_search *search)
{
    const int32_t *output = line->tokens + search->prompt;

    line->ended = true;
    line->finish = BP_FINISH_LENGTH;
    if (bp_search_ends(search->spec, output[line->count - 1]))
        line->finish = BP_FINISH_EOD;
    else if (search->spec->stops && bp_stops_hit(search->spec->stops, output, line->count))
        line->finish = BP_FINISH_STOP;
    else
        line->ended = line->count == search->tokens;
}
