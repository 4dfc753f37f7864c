/* The parts of bagpipe-data leakage: what a model reveals of its training text. Prompts cut from
 * the text and their continuations; canaries and their exposure. */
#pragma once

#include "arguments.h"
#include "document_texts.h"

#include <stdint.h>

#define LEAKAGE_LENGTHS_MOST 16

typedef struct leakage_arguments {
    tool_files files; /* after the action */
    const char *out, *lengths, *position, *prompts, *pattern, *copies, *canaries, *format, *field;
    tool_texts outputs, scores;
    int64_t continuation, count, references, seed;
} leakage_arguments;

/** Numbers of a comma-separated list, ascending: list[*count]. `option`: for messages. Errors:
 * BP_ERR_USAGE none, too many, one below 1 or above `most`, or not ascending. */
bp_err leakage_numbers(int64_t *list, int *count, const char *text, int64_t most,
                       const char *option);

/** The actions. Collective over MPI_COMM_WORLD; errors are the same on all ranks. */
bp_err leakage_canaries(const leakage_arguments *arguments);
bp_err leakage_exposure(const leakage_arguments *arguments);
bp_err leakage_prompts(const leakage_arguments *arguments);
bp_err leakage_measure(const leakage_arguments *arguments);

/** The upper bound of groups by copies: 1, 2, 4, 8... */
#define LEAKAGE_COPIES 12
int leakage_copies_group(int64_t copies);
