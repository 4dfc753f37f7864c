/* Finds in texts with full-width forms, and texts with their finds masked. Local: no MPI. */
#pragma once

#include "pii_scan.h"

/** A text with its full-width digits, letters and signs (U+FF01 to U+FF5E, U+3000) as ASCII, and
 * with an '@' for the %40 of a URL between two bytes that an address may have there. A sign other
 * than @ is converted only next to a full-width digit or letter. */
typedef struct pii_folded {
    const char *text; /* [bytes]: the text itself if it has none of them */
    size_t bytes;
    size_t *at;   /* [bytes + 1]: the original place of a byte; NULL if unchanged */
    char *folded; /* owned copy; NULL if there is none */
} pii_folded;

/** Owns: pii_folded_clear(); `text` is borrowed until then. */
void pii_fold(pii_folded *out, const char *text, size_t bytes);
void pii_folded_clear(pii_folded *folded);
/** The original place of byte k of the folded text. */
static inline size_t pii_unfolded(const pii_folded *folded, size_t k)
{
    return folded->at ? folded->at[k] : k;
}
/** The first byte of the folded text whose original place is `at` or later. */
size_t pii_folded_at(const pii_folded *folded, size_t at);

/** The shape of text[bytes]: letters as x, digits as 9, cut with "..." to fit. */
void pii_shape(char *shape, size_t capacity, const char *text, size_t bytes);

/** A name or an id, with everything that the rules find in it replaced by its shape. In a file
 * name, a find may also be followed by the last extensions. Free with bp_free(). */
char *pii_masked(const char *text, uint64_t countries);
