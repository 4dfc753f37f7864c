/* Answers to question sets as a table. */
#pragma once

#include "file_tool.h"

/** Print the figures of models on tasks and groups, with 95 % intervals; --figure: acc (default) or
 * another one of summary.json. Errors: those of answers_load; BP_ERR_USAGE another form or figure,
 * two models of one name. */
bp_err table_of_questions(char *const *folders, int count, const file_options *options);
