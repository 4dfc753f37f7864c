/* Finds in texts with full-width forms, and texts with their finds masked. Local: no MPI. */
#ifndef BP_DATA_TOOLS_PII_MASK_H
#define BP_DATA_TOOLS_PII_MASK_H

#include "pii_scan.h"

/** A text with full-width digits, letters and signs of them (U+FF01 to U+FF5E, U+3000) as ASCII.
 * Signs but the @ count only beside a digit or a letter that is full-width too. */
typedef struct pii_folded {
    const char *text; /* [bytes]: the text itself where it has none of them */
    size_t bytes;
    size_t *at;   /* [bytes + 1]: where a byte was; NULL: where it is */
    char *folded; /* its own copy; NULL: none */
} pii_folded;

/** Owns: pii_folded_clear(); `text` is borrowed until then. */
void pii_fold(pii_folded *out, const char *text, size_t bytes);
void pii_folded_clear(pii_folded *folded);
/** Where byte k of the folded text was. */
static inline size_t pii_unfolded(const pii_folded *folded, size_t k)
{
    return folded->at ? folded->at[k] : k;
}
/** The first byte of it that was at `at` or behind. */
size_t pii_folded_at(const pii_folded *folded, size_t at);

/** The shape of text[bytes]: letters as x, digits as 9, cut with "..." to fit. */
void pii_shape(char *shape, size_t capacity, const char *text, size_t bytes);

/** A name or an id with all that the rules find in it as its shape. Of a name of a file the last
 * extensions count, too, as what is behind a find. Free with bp_free(). */
char *pii_masked(const char *text, uint64_t countries);

#endif
