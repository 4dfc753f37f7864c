/* Critical words of scored texts, and the paired test of them by items. */
#pragma once

#include "table/scores.h"
#include "table/words.h"

/** Words [*first, *end) of the current document that `value` names: "4" the fourth word, "4-6" the
 * fourth to the sixth, else the word itself, with or without punctuation after it.
 *
 * Errors:     BP_ERR_FORMAT it has no such word, or several. */
bp_err critical_find(const scored_words *words, const char *value, int64_t document, int64_t *first,
                     int64_t *end);

/** Words [first, end) of the current document, at least one, in lower case and without punctuation,
 * unless there is nothing else. bp_free(). */
char *critical_text(const scored_words *words, int64_t first, int64_t end);

/** What a test by items compares. */
typedef struct critical_test {
    const score_label *between, *items;
    const double *const *values; /* [models][documents]: NaN: not in the test */
    const char *const *names;    /* [models] */
    char *const *words;          /* [documents]: critical_text; NULL: none */
    int64_t models, documents;
} critical_test;

/** Are there few enough conditions, and two labels? Call it first. Errors: BP_ERR_USAGE one label
 * twice; BP_ERR_FORMAT a label of very many values. */
bp_err critical_check(const critical_test *test);
/** Print CSV, a row for each model and pair of values of `between`: the mean over items of the
 * difference of the item's means, with Student's t, its 95 % interval and p, and p by Holm over all
 * rows; from BP_FEW_DOCUMENTS items on. Warns of items that lack a value and are
 * left out, and of items whose critical words differ between two values.
 *
 * Errors:     BP_ERR_FORMAT fewer than two values of `between` have documents; BP_ERR_SYSTEM
 *             memory. */
bp_err critical_print(const critical_test *test);
