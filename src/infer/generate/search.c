/* Texts that grow token by token: greedy and sampled ones here, beams in beam.c. Called by units.c,
 * on the rank that chooses. */
#include "infer/generate/search_priv.h"

#include "base/mem.h"

#include <string.h>

const char *bp_finish_name(bp_finish finish)
{
    static const char *const NAMES[] = {"length", "eod", "stop"};

    return NAMES[finish];
}

int64_t bp_search_slots(const bp_search_spec *spec)
{
    return spec->beams > 0 ? spec->beams : spec->texts;
}

/* ---- lines ---- */

static void line_new(search_line *line, const bp_search *search, bool statistics)
{
    int64_t capacity = search->tokens;

    line->tokens = bp_alloc("generate.search", search->prompt + capacity, sizeof *line->tokens);
    line->logprobs = bp_alloc("generate.search", capacity, sizeof *line->logprobs);
    line->statistics =
        statistics ? bp_alloc("generate.search", 2 * capacity, sizeof *line->statistics) : NULL;
}

static void line_clear(search_line *line)
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

void search_line_look(search_line *line, const bp_search *search)
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

/* ---- the search ---- */

static void new_lines(search_line **out, const bp_search *search, int64_t count, bool statistics)
{
    *out = bp_alloc("generate.search", count, sizeof **out);
    for (int64_t k = 0; k < count; k++)
        line_new(&(*out)[k], search, statistics);
}

static void free_lines(search_line *lines, int64_t count)
{
    for (int64_t k = 0; lines && k < count; k++)
        line_clear(&lines[k]);
    bp_free(lines);
}

void bp_search_new(bp_search **out, const bp_search_spec *spec, const int32_t *prompt,
                   int64_t length, int64_t number, int64_t tokens, bool statistics)
{
    bp_search *search = bp_alloc("generate.search", 1, sizeof *search);

    *search = (bp_search){.spec = spec,
                          .number = number,
                          .prompt = length,
                          .tokens = tokens,
                          .slots = bp_search_slots(spec)};
    search->counts = bp_alloc("generate.search", search->slots, sizeof *search->counts);
    search->fed = bp_alloc("generate.search", search->slots, sizeof *search->fed);
    search->parents = bp_alloc("generate.search", search->slots, sizeof *search->parents);
    new_lines(&search->lines, search, search->slots, statistics);
    for (int64_t k = 0; k < search->slots; k++)
        memcpy(search->lines[k].tokens, prompt, (size_t)length * sizeof *prompt);
    search->live = 1; /* beam 0 is the prompt */
    if (spec->beams > 0) {
        new_lines(&search->spare, search, spec->beams, statistics);
        new_lines(&search->closed, search, spec->beams + 1, statistics);
        search->best =
            bp_alloc("generate.search", search_continuations(spec), sizeof *search->best);
    }
    *out = search;
}

void bp_search_free(bp_search **search)
{
    bp_search *old = *search;

    if (!old)
        return;
    free_lines(old->lines, old->slots);
    free_lines(old->spare, old->spec->beams);
    free_lines(old->closed, old->spec->beams + 1);
    bp_free(old->best);
    bp_free(old->parents);
    bp_free(old->fed);
    bp_free(old->counts);
    bp_free(old);
    *search = NULL;
}

/* A sample's token. At the first step all go on from the row of slot 0. */
static void choose(bp_search *search, bp_choice *choice, const bp_search_rows *rows, int64_t k)
{
    const bp_search_spec *spec = search->spec;
    search_line *line = &search->lines[k];
    int64_t row = search->steps == 0 ? 0 : k;
    const bp_sequence sequence = search_sequence(search, line);
    int32_t token = bp_choice_next(
        choice, &sequence, rows->logits + row * spec->choice.vocab_size,
        spec->choice.samples ? bp_choice_uniform(spec->choice.seed, search->number, k, line->count)
                             : 0);

    if (token < 0) { /* no token is left: as when the sequence is full */
        line->ended = true;
        line->finish = BP_FINISH_LENGTH;
        return;
    }
    search_line_add(line, search, rows, row, token);
    search_line_look(line, search);
    search->fed[k] = token;
}

static bool sample_step(bp_search *search, bp_choice *choice, const bp_search_rows *rows)
{
    bool goes_on = false;

    for (int64_t k = 0; k < search->slots; k++) {
        if (!search->lines[k].ended)
            choose(search, choice, rows, k);
        search->counts[k] = !search->lines[k].ended;
        search->parents[k] = search->steps == 0 ? 0 : (int32_t)k;
        goes_on = goes_on || !search->lines[k].ended;
    }
    return goes_on;
}

bool bp_search_step(bp_search *search, bp_choice *choice, const bp_search_rows *rows,
                    bp_search_next *next)
{
    bool goes_on = search->spec->beams > 0 ? search_beam_step(search, choice, rows)
                                           : sample_step(search, choice, rows);

    search->steps++;
    *next = (bp_search_next){
        .counts = search->counts, .tokens = search->fed, .parents = search->parents};
    return goes_on;
}

/* ---- what comes of it ---- */

int64_t bp_search_texts(const bp_search *search)
{
    int64_t there = search->spec->beams > 0 ? search->closed_count : search->slots;

    return there < search->spec->texts ? there : search->spec->texts;
}

bp_search_text bp_search_text_at(const bp_search *search, int64_t k)
{
    const search_line *line = search->spec->beams > 0 ? &search->closed[k] : &search->lines[k];

    return (bp_search_text){.tokens = line->tokens + search->prompt,
                            .logprobs = line->logprobs,
                            .statistics = line->statistics,
                            .count = line->count,
                            .finish = line->finish,
                            .score = line->score};
}
