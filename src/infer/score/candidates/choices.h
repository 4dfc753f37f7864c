/* Choices as units of work, for score.candidates and score.questions. A unit is a batch of choices,
 * and the check whether the model itself would write them. */
#pragma once

#include "infer/score/candidates/candidates.h"
#include "infer/score/candidates/greedy.h"

#define GREEDY_UNKNOWN (-1) /* the model can't write */

/** A part file's record of a choice, in the byte order of the host. */
typedef struct choice_result {
    double logprob, first; /* of all its tokens; of the first one */
    int64_t sure;          /* tokens that are more probable than all others together */
    int64_t greedy;        /* 1: the model would write this choice */
} choice_result;

typedef struct choice_results {
    const choice_result *of; /* [end - first]: of the rows [first, end) */
    int64_t first, end;
} choice_results;

/** A caller fills in the first part. */
typedef struct chooser {
    bp_work_job *job;         /* borrowed, as `all` */
    const bp_candidates *all; /* on leads and the coordinator */
    int64_t statistics;       /* per token (bp_model_info), on the computing ranks */
    int64_t members; /* members whose log-probabilities are kept too, for an ensemble; else 0 */
    bool whole;      /* whole distributions are computed (chooser_gives_whole): choices of one token
                        after one context share one window, and the model's own token is known without
                        decoding. On all ranks */

    int64_t count;   /* units, on leads and the coordinator, as `starts` */
    int64_t *starts; /* [count + 1]: unit u has the rows at positions [starts[u], starts[u + 1]) */
    int64_t *order;  /* [rows]: the row at each place, if `whole`; NULL: row by row */
    /* of a unit, on the computing ranks */
    int32_t *inputs, *targets;
    float *values;
    float *distribution; /* [positions of a batch][vocab_size], if `whole`, */
    int32_t *best;       /* and [scored positions] the first most probable token of each */
    choice_result *results;
    double *of_members; /* [rows of a unit][members] */
    greedy_walker walker;
    bool is_greedy; /* the last choice decoded */
} chooser;

/** Upper bound of the bytes of a unit, without the model; vocab_size 0: no whole distributions.
 * Pure.
 */
int64_t chooser_bytes(int64_t longest, int64_t statistics, int64_t vocab_size);
/** Can whole distributions be computed? On the computing ranks, local. */
bool chooser_gives_whole(const bp_model *model);
/** The part of the work's key (bp_work_key) that describes how units are cut. Pure. */
#define CHOOSER_KEY_BYTES 64
const char *chooser_key(char text[CHOOSER_KEY_BYTES], const chooser *c);
/** Cut the rows into units, a function of the choices, `whole` and the vocabulary. Local; on leads
 * and the coordinator. */
void chooser_cut(chooser *c);
void chooser_clear(chooser *c);
static inline int64_t chooser_row(const chooser *c, int64_t place)
{
    return c->order ? c->order[place] : place;
}

/** bp_work_units.prepare, .run, .answer, .amount_of and .release. */
bp_err chooser_prepare(chooser *c);
bp_err chooser_run(chooser *c, int64_t unit, bp_buffer *out, bool *stopped);
bp_err chooser_answer(chooser *c, const void *what);
static inline int64_t chooser_amount(const chooser *c, int64_t unit)
{
    return c->starts[unit + 1] - c->starts[unit];
}
void chooser_release(chooser *c);
/** Read all parts: results[rows], of_members[rows][members], and decide the cases that the units
 * left uncertain. On the coordinator. Errors: those of bp_parts_next. */
bp_err chooser_take(const chooser *c, bp_parts *parts, choice_result *results, double *of_members);

/** Is it unknown whether the model would write choice r? True if the result is uncertain and no
 * choice among the results that follows the same context begins with a more probable token. */
bool choice_is_open(const bp_candidates *all, const choice_results *results, int64_t r);
