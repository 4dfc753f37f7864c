/* The results of choices from part files. Called by merges, on the coordinator. */
#include "infer/score/candidates/choices.h"

#include <string.h>

bool choice_is_open(const bp_candidates *all, const choice_results *results, int64_t r)
{
    const bp_candidate_row *row = &all->rows[r];
    const choice_result *own = &results->of[r - results->first];
    int64_t first = all->first[row->document], end = all->first[row->document + 1];
    bool open = row->scored > 0 && own->sure < row->scored;

    first = first > results->first ? first : results->first;
    end = end < results->end ? end : results->end;
    for (int64_t k = first; k < end; k++) {
        const bp_candidate_row *other = &all->rows[k];

        if (other->scored > 0 && bp_candidates_same_context(all, row, other))
            open = open && results->of[k - results->first].first <= own->first;
    }
    return open;
}

/* ---- from the parts ---- */

static bp_err take_unit(const chooser *c, const bp_part_result *part, choice_result *results,
                        double *of_members)
{
    int64_t first = c->starts[part->unit], rows = chooser_amount(c, part->unit);
    size_t bytes = (size_t)rows * sizeof *results,
           more = (size_t)(rows * c->members) * sizeof *of_members;
    bp_err err = bp_part_result_expect(part, bytes + more);

    if (err != BP_OK)
        return err;
    for (int64_t k = 0; k < rows; k++)
        memcpy(&results[chooser_row(c, first + k)], part->data + (size_t)k * sizeof *results,
               sizeof *results);
    if (more > 0) /* for an ensemble: row by row */
        memcpy(of_members + first * c->members, part->data + bytes, more);
    return BP_OK;
}

/* Decide the cases that the units left uncertain, now that all choices of a document are known. */
static void decide_greedy(const bp_candidates *all, choice_result *results)
{
    const choice_results whole = {results, 0, all->first[all->documents]};

    for (int64_t r = 0; r < whole.end; r++) {
        const bp_candidate_row *row = &all->rows[r];

        if (results[r].greedy == GREEDY_UNKNOWN)
            continue;
        if (row->scored > 0 && results[r].sure >= row->scored)
            results[r].greedy = 1;
        else if (!choice_is_open(all, &whole, r))
            results[r].greedy = 0;
    }
}

bp_err chooser_take(const chooser *c, bp_parts *parts, choice_result *results, double *of_members)
{
    bp_part_result part = {0};
    bp_err err = BP_OK;

    while (bp_parts_next(parts, &part, &err))
        err = take_unit(c, &part, results, of_members);
    if (err == BP_OK)
        decide_greedy(c->all, results);
    return err;
}
