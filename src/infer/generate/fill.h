/* Iterated filling: a few rounds fill in the masks of a prompt, or masks after it. */
#pragma once

#include "base/buffer.h"
#include "infer/generate/plan.h"

/** Memory of units that follow each other. */
typedef struct bp_fill bp_fill;

/** As bp_unit_new. Errors: BP_ERR_SYSTEM, the same on all ranks of mesh->replica. */
bp_err bp_fill_new(bp_fill **out, const bp_unit_spec *spec);
void bp_fill_free(bp_fill **fill);
/** Bytes that it takes on a rank of the last stage, for windows of T tokens with states of `width`
 * columns. Local. */
int64_t bp_fill_bytes(const bp_generate_plan *plan, int64_t T, int64_t width, int64_t vocab_size);

/** As bp_unit_run, for a model of masked tokens. All masks are open at first. In each round the
 * model sees the tokens filled in so far. A prompt has m open masks: its own or, if it has none,
 * bp_generate_tokens_left after it. A round fills in m / (rounds left) of them, rounded up: those
 * with the highest probabilities, the first of equal ones. A mask never becomes a framing token or
 * another mask. A token's log-probability is from its round. With fill.remask each round fills in
 * all open masks. Before it, the least probable of the n masks' tokens are opened again: n (rounds
 * left) / rounds, rounded down. Source: Ghazvininejad et al. 2019, section 3; without fill.remask,
 * except that tokens filled in stay. */
bp_err bp_fill_run(bp_fill *fill, int64_t number, bp_buffer *result, bool *stopped);
