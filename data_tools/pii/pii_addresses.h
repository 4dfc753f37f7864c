/* Addresses: e-mail, IP, and phone numbers. Local: no MPI. */
#pragma once

#include "pii_numbers.h"

#include <stdint.h>

/** An e-mail address around the '@' at `at`, which does not begin before `floor`. Sets *start;
 * returns its end, 0 if there is none.
 * Source: RFC 5321 section 4.1.2 without quoted local parts and addresses in brackets; top-level
 *         domains of two letters or of a list; accented letters of RFC 6531. */
size_t pii_email(const char *text, size_t bytes, size_t at, size_t floor, size_t *start,
                 bool *reserved);
/** Source: RFC 3986 section 3.2.2 (four decimal octets); RFC 6890 (which are reserved). */
size_t pii_ipv4(const char *text, size_t bytes, size_t at, bool *reserved);
/** Source: RFC 4291 section 2.2, with at least two groups. */
size_t pii_ipv6(const char *text, size_t bytes, size_t at, bool *reserved);

/** A phone number whose first digit is at `at`; *start may be before it, at a '+' or '('. Forms of
 * E.164, of North America, and of the countries whose bits are set.
 * Source: ITU-T E.164 and its list of country codes. */
size_t pii_phone(const char *text, size_t bytes, size_t at, size_t floor, uint64_t countries,
                 size_t *start);
