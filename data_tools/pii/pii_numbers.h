/* Numbers with check digits: cards, bank accounts, national numbers. Local: no MPI. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/** Texts need no terminating zero. Each function returns the end of the number that begins at
 * text[at], 0 if there is none. The caller checks the bytes before text[at]. */
size_t pii_card(const char *text, size_t bytes, size_t at);
/** Source: ISO 13616 (the registry's countries and lengths), ISO 7064 MOD 97-10. */
size_t pii_iban(const char *text, size_t bytes, size_t at);

typedef struct pii_country {
    const char *code;      /* of ISO 3166, lower case */
    const char *number;    /* the name of its number */
    const char *shapes[3]; /* 9 a digit, A a letter, X either, _ an optional separator (all the
                              same, or none), another character itself */
    bool (*holds)(const char *plain, int count); /* digits and upper-case letters */
    const char *check;                           /* in words */
    int trunk_least, trunk_most; /* digits of national phone numbers, with the leading 0; 0 if the
                                    country has no national form */
} pii_country;

/** Ended by a row without a code; at most 64. */
extern const pii_country pii_countries[];
/** The row; -1 if there is none. */
int pii_country_of(const char *code, size_t bytes);
size_t pii_national(const char *text, size_t bytes, size_t at, const pii_country *country);

/** Does the number end at `end`, that is, does the next byte neither continue it nor join a digit
 * to it? */
bool pii_ends(const char *text, size_t bytes, size_t end);

static inline bool pii_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool pii_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static inline bool pii_is_word(char c)
{
    return pii_is_digit(c) || pii_is_letter(c) || c == '_';
}

static inline bool pii_is_one_of(char c, const char *characters)
{
    return c != '\0' && strchr(characters, c) != NULL;
}

/** Luhn's formula (ISO/IEC 7812-1, annex B) over digits. */
bool pii_luhn(const char *digits, int count);
