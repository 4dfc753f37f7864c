/* Personal data in a text by its form: e-mail addresses, phone, card and account numbers, IP
 * addresses, national numbers. Local: no MPI. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum pii_kind {
    PII_EMAIL,
    PII_PHONE,
    PII_CARD,
    PII_IBAN,
    PII_IPV4,
    PII_IPV6,
    PII_NATIONAL,
    PII_KINDS
} pii_kind;

/** "email", "phone" and so on. */
const char *pii_kind_name(pii_kind kind);

/** Upper bound of the distance of the bytes of a find, and of all bytes that decide it, from the
 * byte that made it a candidate. */
#define PII_REACH 512

/** A find at bytes [start, end) of a text. */
typedef struct pii_find {
    size_t start, end;
    pii_kind kind;
    int country;   /* for national numbers, an index of pii_countries; else -1 */
    bool reserved; /* an address that RFC 2606, 5735, 6890 and the like reserve */
} pii_find;

/** The state of a scan of text[bytes). Lines are scanned one by one: the finds of a line do not
 * depend on other lines. */
typedef struct pii_scan {
    const char *text;
    size_t bytes, at, end; /* candidates are those in [at, end) */
    size_t floor;          /* no find begins before it */
    uint64_t countries; /* bit k: national numbers of country k, and its forms of phone numbers */
} pii_scan;

/** The next find, in ascending order without overlaps; false if there is none. */
bool pii_scan_next(pii_scan *scan, pii_find *find);
