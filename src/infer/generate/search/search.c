/* Texts that grow token by token: greedy and sampled ones here, beams in beam.c. Called by units.c,
 * on the rank that chooses. */
#include "infer/generate/search/search_priv.h"

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

/* ---- the search ---- */

static void new_lines(search_line **out, const bp_search *search, int64_t count, bool statistics)
{
    *out = bp_alloc("generate.search", count, sizeof **out);
    for (int64_t k = 0; k < count; k++)
        search_line_new(&(*out)[k], search, statistics);
}

static void free_lines(search_line *lines, int64_t count)
{
    for (int64_t k = 0; lines && k < count; k++)
        search_line_clear(&lines[k]);
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

/* A sample's token. At the first step all continue from the row of slot 0. */
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
    search_line_update(line, search);
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

/* ---- results ---- */

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
