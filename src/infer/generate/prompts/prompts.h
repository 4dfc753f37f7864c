/* The prompts of a file, as ids of tokens. Local: no MPI. */
#pragma once

#include "base/buffer.h"
#include "base/err.h"
#include "base/files/hash.h"
#include "text/pipeline/ids.h"
#include "text/tokenizer/tokenizer.h"

#include <stdint.h>

#define BP_PROMPTS_LIMIT_BYTES ((size_t)1 << 30) /* of a file, decompressed */

typedef struct bp_prompts_spec {
    const char *path;
    const char *template_path;     /* NULL if there is none */
    const bp_tokenizer *tokenizer; /* NULL if prompts are ids */
    int64_t vocab_size, context;   /* of the model */
    int64_t reserved; /* positions of the context reserved for framing tokens and a token to fill
                         in; 0 for sources */
    int64_t mask; /* a prompt with this token (to be filled in) may have one more place; -1: no such
                     token */
    bool are_sources; /* for encoder-decoders: */
    bool cut; /* a prompt that is too long loses its last tokens but keeps its end token; else it is
                 skipped */
    int64_t end;     /* token put after the texts of sources; -1 if there is none */
    int64_t first;   /* token put before texts that do not begin with it; -1 if there is none */
    int64_t after;   /* token put after the end of texts of sources; -1 if there is none */
    bool before_ids; /* and before prompts of ids */
} bp_prompts_spec;

typedef struct bp_prompts {
    int64_t count;
    int64_t *starts; /* [count + 1] in ids */
    bp_ids ids;
    int64_t longest;
    int64_t *excess; /* [count] for sources: tokens beyond the context; else NULL. A skipped source
                        keeps its first token, so that the numbers of the others do not change */
    bool cut;
    int64_t too_long;     /* number of sources beyond the context */
    int64_t not_utf8;     /* number of prompts that are not UTF-8 ... */
    int64_t invalid_line; /* ... and the line of the first one */
    int64_t *text_starts; /* [count + 1] in text */
    bp_buffer text;       /* of all prompts, one after another, as given or made; empty for a prompt
                             of ids */
} bp_prompts;

/** The maximum of prompts in a file, and of tokens in a prompt. */
typedef struct bp_prompts_most {
    int64_t count, length;
} bp_prompts_most;

/** Upper bounds without a tokenizer: each line may be a prompt, and each byte a token, plus the
 * tokens put before and after. No bound for a file that cannot be read twice, or at all. */
bp_prompts_most bp_prompts_most_of(const char *path, const char *template_path);

/** Read a file (plain, gzip, zstd). It is JSON Lines if its name contains ".jsonl", or there is a
 * template, or its first line is a JSON object with "prompt" or "tokens"; then an object has
 * "prompt", a text, or "tokens", a list of ids. Else each line is a prompt, without its end.
 *
 * With a template the prompt is its text, where {NAME} is the object's field NAME (a string, a
 * number or a boolean), {{ and }} are braces, and a newline at its end does not count.
 *
 * Owns:    clear it with bp_prompts_clear, after an error too.
 * Errors:  BP_ERR_INPUT, BP_ERR_DENIED the file, or the template; BP_ERR_FORMAT, with file and
 *          line: no prompts, an empty one, one without tokens or (not for sources) longer than the
 *          context allows, a line that is not a JSON object, neither "prompt" nor "tokens", or
 *          both, an id outside the vocabulary, a field that the object lacks, a template without
 *          its closing brace; a file beyond BP_PROMPTS_LIMIT_BYTES; BP_ERR_CONFIG texts, and no
 *          tokenizer; BP_ERR_IO. */
bp_err bp_prompts_read(bp_prompts *prompts, const bp_prompts_spec *spec);
void bp_prompts_clear(bp_prompts *prompts);

static inline int64_t bp_prompts_length(const bp_prompts *prompts, int64_t k)
{
    return prompts->starts[k + 1] - prompts->starts[k];
}

/** Is prompt k skipped because its source is too long? */
static inline bool bp_prompts_left_out(const bp_prompts *prompts, int64_t k)
{
    return prompts->excess && prompts->excess[k] > 0 && !prompts->cut;
}

static inline const int32_t *bp_prompts_ids(const bp_prompts *prompts, int64_t k)
{
    return (const int32_t *)prompts->ids.data + prompts->starts[k];
}
