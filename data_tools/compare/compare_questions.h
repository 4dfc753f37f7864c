/* Answers of two models to the same questions. */
#pragma once

#include "base/err.h"

/** Print the accuracies of two runs of score.questions by task and group, their difference with its
 * 95 % interval, McNemar's exact p, and Holm's adjustment for the number of tasks and groups.
 * Questions of which one side has ties are left out. figure: acc, acc_norm, acc_token; NULL: acc.
 * csv: write the table there too; NULL: do not. Local.
 *
 * Errors:     those of answers_load; BP_ERR_USAGE another figure; BP_ERR_FORMAT other questions,
 * the first that differs is named, or none that both can be compared on; those of table_file_save.
 */
bp_err compare_questions(const char *const *sides, const char *figure, const char *csv);
