/* Rows of choices. Called by readers of choices and of question sets. */
#include "infer/score/candidates/candidates.h"

#include "base/buffer.h"
#include "base/mem.h"

#include <string.h>

void bp_candidates_add(bp_candidates *candidates, const bp_candidate_row *given, int64_t fed,
                       int64_t context)
{
    bp_candidate_row row = *given;

    row.count = candidates->ids.count - row.first;
    row.scored = row.count - fed;
    if (row.scored == row.count) /* the first token follows nothing */
        row.scored--;
    if (row.scored < 1 || row.scored > context)
        row.scored = row.count = 0;
    if (row.count > context + 1) {
        row.first += row.count - (context + 1);
        row.count = context + 1;
    }
    candidates->unscored += row.scored == 0;
    candidates->rows = bp_grow("score.candidates", candidates->rows, &candidates->capacity,
                               candidates->count + 1, sizeof *candidates->rows);
    candidates->rows[candidates->count++] = row;
    candidates->first[row.document + 1] = candidates->count;
}

bool bp_candidates_same_context(const bp_candidates *candidates, const bp_candidate_row *one,
                                const bp_candidate_row *other)
{
    int64_t fed = one->count - one->scored;

    return fed == other->count - other->scored &&
           memcmp(candidates->ids.data + one->first, candidates->ids.data + other->first,
                  (size_t)fed * sizeof *candidates->ids.data) == 0;
}

void bp_candidates_hash(const bp_candidates *candidates, char out[BP_SHA256_HEX])
{
    int64_t rows = candidates->first[candidates->documents];
    bp_buffer all = {0};

    if (candidates->answer)
        bp_buffer_add(&all, candidates->answer,
                      (size_t)candidates->documents * sizeof *candidates->answer);
    bp_buffer_add(&all, candidates->rows, (size_t)rows * sizeof *candidates->rows);
    bp_buffer_add(&all, candidates->ids.data,
                  (size_t)candidates->ids.count * sizeof *candidates->ids.data);
    bp_sha256_of(all.data ? all.data : "", all.bytes, out);
    bp_buffer_clear(&all);
}

void bp_candidates_clear(bp_candidates *candidates)
{
    bp_free(candidates->first);
    bp_free(candidates->answer);
    bp_free(candidates->quiet);
    bp_free(candidates->rows);
    bp_ids_clear(&candidates->ids);
    *candidates = (bp_candidates){0};
}
