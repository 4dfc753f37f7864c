/* Numbers with check digits: cards, bank accounts, national numbers. Local: no MPI. */
#ifndef BP_DATA_TOOLS_PII_NUMBERS_H
#define BP_DATA_TOOLS_PII_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/** Texts end where their bytes do. Each returns the end of what begins at text[at], 0: nothing of
 * the kind does. What is before text[at] is the caller's to look at. */
size_t pii_card(const char *text, size_t bytes, size_t at);
/** Source: ISO 13616 (the registry's countries and lengths), ISO 7064 MOD 97-10. */
size_t pii_iban(const char *text, size_t bytes, size_t at);

typedef struct pii_country {
    const char *code;      /* of ISO 3166, lower case */
    const char *number;    /* what its number is called */
    const char *shapes[3]; /* 9 a digit, A a letter, X either, _ perhaps a separator (all of them or
                              none, and equal), another character itself */
    bool (*holds)(const char *plain, int count); /* digits and upper-case letters */
    const char *check;                           /* in words */
    int trunk_least, trunk_most; /* digits of phone numbers as they are written in the country, with
                                    the 0 before them; 0: they have no form of their own */
} pii_country;

/** Ended by a row without a code; at most 64. */
extern const pii_country pii_countries[];
/** The row; -1: there is none. */
int pii_country_of(const char *code, size_t bytes);
size_t pii_national(const char *text, size_t bytes, size_t at, const pii_country *country);

/** Is the byte at `end` no part of a number that ended there, and no digit joined to it? */
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

#endif
