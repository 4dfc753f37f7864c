/* The scan of a state-space layer: each head's state decays, takes an input and is read, place by
 * place. Computed in chunks, with products of small matrices within a chunk.
 *
 * Source: Dao and Gu 2024, "Transformers are SSMs" (Mamba-2), section 6. */
#pragma once

#include "base/mem.h"
#include <stdbool.h>
#include <stdint.h>

/** S = exp(-rate dt) S + dt b x^T, y = S^T c + skip x, of B sequences of T positions; S is [N][P]
 * for each of H heads, initially zero. `share` heads read the same b and c: head h reads number
 * (first_head + h) / share. */
typedef struct bp_scan {
    int64_t B, T, H, P, N, share, first_head;
    const float *x, *b, *c; /* [B * T] rows: H heads of P, groups of N, groups of N */
    int64_t x_row, bc_row;  /* floats from row to row of x, and of b and c */
    const float *dt;        /* [B * T][H] */
    const float *rate;      /* [H], above 0 */
    const float *skip;      /* [H] */
} bp_scan;

/** y[B * T][H P]. before, after: [B][H][N][P] the initial states of sequences (NULL: zeros), and
 * their final states (NULL: not wanted); they may be the same. scratch: bp_scan_scratch. */
void bp_scan_forward(float *y, const bp_scan *of, const float *before, float *after,
                     bp_arena *scratch);

/** Gradients from dy[B * T][H P], for a scan from zero states whose final states are unused: dx,
 * db, dc (laid out like x, b, c) and ddt are written, drate[H] and dskip[H] are added to. */
typedef struct bp_scan_gradients {
    float *dx, *db, *dc, *ddt, *drate, *dskip;
} bp_scan_gradients;
void bp_scan_backward(const bp_scan_gradients *to, const bp_scan *of, const float *dy,
                      bp_arena *scratch);

/** Scratch of one of them, for sequences of at most `T` positions. An arena without a base is only
 * counted. */
size_t bp_scan_scratch_bytes(int64_t T, int64_t H, int64_t P, int64_t N, bool backward);
