/* Templates of prompts. Local: no MPI. */
#pragma once

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/err.h"

/** Read a template. Owns: *text is the caller's, bp_free(). Errors: those of bp_file_read;
 * BP_ERR_FORMAT it is empty, or a brace is not closed, with its line. */
bp_err bp_prompt_template_read(char **text, const char *path);

/** The names of a template's fields, some perhaps twice. Owns: bp_names_free(). */
void bp_prompt_template_names(const char *text, char ***names, int64_t *count);

/** Append the text for an object. Errors: BP_ERR_FORMAT a field that the object lacks, or that is
 * not a string, number or boolean. */
bp_err bp_prompt_template_fill(bp_buffer *out, const char *text, const json_t *object);
