/* Which documents have most of their passages, runs of BP_PASSAGE tokens, in another text too. A
 * passage is known by a hash of 64 bits. Local. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define BP_PASSAGE 24 /* tokens: 13 words and more */

typedef struct bp_passages bp_passages;

/** An empty set, for documents of `tokens` tokens in all. Owns: bp_passages_free(). */
bp_passages *bp_passages_new(int64_t tokens);
void bp_passages_free(bp_passages **passages);
/** Shapes: tokens[count]. Add the passages of the next document. */
void bp_passages_add(bp_passages *self, const int32_t *tokens, int64_t count);
/** Look for them in a document of the other text; after the last bp_passages_add. */
void bp_passages_find(bp_passages *self, const int32_t *tokens, int64_t count);
/** Shapes: found[documents added] becomes true where half or more of a document's passages were
 * found; where it has none it is left as it is. */
void bp_passages_mark(const bp_passages *self, bool *found);
