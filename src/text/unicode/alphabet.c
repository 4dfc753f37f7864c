/* The alphabet that GPT-2's vocabulary spells bytes in. */
#include "text/unicode/alphabet.h"
#include "base/err.h"
#include "text/unicode/unicode.h"

#include <pthread.h>

#define OWN_LETTERS    188 /* bytes that stand for themselves */
#define BEYOND_LETTERS (256 + 256 - OWN_LETTERS)

static uint16_t letters[256];                /* of each byte */
static uint8_t in_order[256];                /* bytes in the order of their letters */
static int16_t letter_bytes[BEYOND_LETTERS]; /* byte of each letter, -1: no letter */
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static bool is_its_own_letter(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

static void fill_tables(void)
{
    uint16_t next = 256;
    int own = 0, others = OWN_LETTERS;

    for (int letter = 0; letter < BEYOND_LETTERS; letter++)
        letter_bytes[letter] = -1;
    for (int byte = 0; byte < 256; byte++) {
        bool itself = is_its_own_letter(byte);

        letters[byte] = itself ? (uint16_t)byte : next++;
        in_order[itself ? own++ : others++] = (uint8_t)byte;
        letter_bytes[letters[byte]] = (int16_t)byte;
    }
    BP_ASSERT(own == OWN_LETTERS && next == BEYOND_LETTERS);
}

static void need_tables(void)
{
    BP_CHECK(pthread_once(&tables_once, fill_tables) == 0);
}

uint32_t bp_byte_letter(uint8_t byte)
{
    need_tables();
    return letters[byte];
}

uint8_t bp_byte_of_rank(int rank)
{
    need_tables();
    return in_order[rank];
}

int64_t bp_bytes_of_name(uint8_t *out, const char *name, size_t bytes)
{
    const uint8_t *p = (const uint8_t *)name;
    const uint8_t *end = p + bytes;
    int64_t count = 0;

    need_tables();
    while (p < end) {
        uint32_t letter = 0;
        size_t length = bp_utf8_decode(p, (size_t)(end - p), &letter);

        if (length == 0 || letter >= BEYOND_LETTERS || letter_bytes[letter] < 0)
            return -1;
        out[count++] = (uint8_t)letter_bytes[letter];
        p += length;
    }
    return count;
}

size_t bp_name_of_bytes(char *out, const uint8_t *text, size_t bytes)
{
    size_t used = 0;

    for (size_t k = 0; k < bytes; k++)
        used += bp_utf8_encode((uint8_t *)out + used, bp_byte_letter(text[k]));
    return used;
}
