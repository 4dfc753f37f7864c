/* Places where a long text may be cut so that its pieces have the token ids of the whole. Local: no
 * MPI. */
#pragma once

#include <stddef.h>

/** Where a long document may be cut so that its pieces have the ids of the whole (bp_tokenizer_cut
 * decides). */
typedef enum bp_cut {
    BP_CUT_SPACE = 0, /* before a White_Space run: right for every kind but those of
                         BP_CUT_BLANK and BP_CUT_NEVER */
    BP_CUT_PATTERN,   /* also where GPT-2's pattern surely ends a piece */
    BP_CUT_BLANK,     /* before a White_Space run that begins with a space (Llama 3's pattern) */
    BP_CUT_CHAR,      /* between any two code points */
    BP_CUT_NEVER      /* documents whole */
} bp_cut;

/** The largest n <= bytes such that text may be cut at n whatever follows it; 0 if nowhere. */
size_t bp_text_cut(bp_cut cut, const char *text, size_t bytes);
