/* Lines of generate's outputs.jsonl, read back: by its page, and by tools. Local: no MPI. */
#pragma once

#include "base/config/json.h"

/** A text of a prompt. Members are borrowed from `line`, which has more (docs/formats.md). */
typedef struct bp_output {
    const json_t *line;
    int64_t index;               /* of its prompt */
    bool left_out;               /* the prompt was too long: there is no text */
    const json_t *prompt, *text; /* strings; NULL if missing */
    const json_t *tokens;        /* of the text: ids */
} bp_output;

/** `line` is line `number` (from 1) of `path`; before: the index of the previous line, -1 for the
 * first line. Errors: BP_ERR_FORMAT generate does not write such a line: prompts come without gaps,
 * and once per text. */
bp_err bp_output_read(bp_output *out, const json_t *line, int64_t before, const char *path,
                      int64_t number);
/** Returns BP_ERR_FORMAT, with the message that member `key` of that line is missing or of another
 * type. */
bp_err bp_output_fail(const char *path, int64_t number, const char *key);
/** How sure the model is of the line's text, order 0 or 1 of BP_CERTAINTIES
 * (statistics/metric_coverage.h): the mean log-probability of its tokens, or minus their mean
 * mutual information. -INFINITY for a text without tokens; NaN if the line does not say. */
double bp_output_certainty(const json_t *line, int order);
