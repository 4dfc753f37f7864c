/* Reads the results of `bagpipe generate`: outputs.jsonl and summary.json. Local: no MPI. */
#pragma once

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/err.h"

#include <stdint.h>

typedef struct output_line {
    int64_t index;              /* of its prompt */
    int64_t first_token, count; /* of outputs.tokens */
    int64_t prompt_at, text_at; /* of outputs.text: strings; -1 if it has none */
} output_line;

typedef struct outputs {
    const char *run;                  /* as given; borrowed */
    json_t *model;                    /* {"digest", "step", "members"} */
    output_line *lines;               /* [count], in the file's order, with ascending prompts */
    int64_t count, capacity, prompts; /* prompts: the largest index plus one */
    int32_t *tokens;
    int64_t token_count, token_capacity;
    bp_buffer text;
} outputs;

/** Read RUN/generate. Owns: outputs_clear(), after an error too.
 * Errors: BP_ERR_INPUT no outputs; BP_ERR_FORMAT a line not written by generate. */
bp_err outputs_load(outputs *out, const char *run);
void outputs_clear(outputs *self);

/** bp_json_lines for a file. */
bp_err json_lines_each(const char *path,
                       bp_err (*each)(void *context, const json_t *line, int64_t number),
                       void *context);
