/* Lines of CoNLL files that are not words; documents.c and bagpipe-data metrics ask. */
#include "text/documents/conll.h"

#include <string.h>

#define UNIVERSAL_COLUMNS 10

static bool is_white(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static size_t field_bytes(const char *line, size_t bytes)
{
    size_t n = 0;

    while (n < bytes && !is_white(line[n]))
        n++;
    return n;
}

bool bp_conll_is_gap(const char *line, size_t bytes)
{
    static const char mark[] = "-DOCSTART-", boundary[] = "-X-";
    size_t first = field_bytes(line, bytes), blank = 0;

    while (blank < bytes && is_white(line[blank]))
        blank++;
    return blank == bytes ||
           (bytes >= sizeof mark - 1 && memcmp(line, mark, sizeof mark - 1) == 0) ||
           (first == sizeof boundary - 1 && memcmp(line, boundary, first) == 0);
}

int bp_conll_columns(const char *line, size_t bytes)
{
    bool tabs;
    int fields = 0;

    while (bytes > 0 && is_white(line[bytes - 1]))
        bytes--;
    tabs = bytes > 0 && memchr(line, '\t', bytes);
    for (size_t at = 0; at < bytes; fields++) {
        while (at < bytes && (tabs ? line[at] != '\t' : !is_white(line[at])))
            at++;
        while (at < bytes && (tabs ? line[at] == '\t' : is_white(line[at])))
            at++;
    }
    return 2 * fields + tabs + 1;
}

bool bp_conll_is_comment(const char *line, size_t bytes, int columns)
{
    return bytes > 0 && line[0] == '#' && bp_conll_columns(line, bytes) != columns;
}

bool bp_conll_is_universal(const char *line, size_t bytes)
{
    size_t first = 0;

    while (first < bytes && line[first] != '\t')
        if (!strchr("0123456789-.", line[first++]))
            return false;
    return first > 0 && line[0] >= '0' && line[0] <= '9' &&
           bp_conll_columns(line, bytes) == 2 * UNIVERSAL_COLUMNS + 2;
}
