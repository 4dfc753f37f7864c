/* Decimal numbers of texts that others wrote: tables, vectors, ARPA files, keys. Local. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/** text[bytes], all of it, as the nearest double (float): an optional sign, digits with at most
 * one point among them, and an optional exponent. Nothing else is a number: no blank, no "0x10",
 * "inf" or "nan", and no comma, in any locale. false, with *value 0, if it is not a number or
 * exceeds the largest finite one. */
bool bp_decimal(double *value, const char *text, size_t bytes);
bool bp_decimal_float(float *value, const char *text, size_t bytes);
