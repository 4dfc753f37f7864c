/* E-mail and IP addresses, and phone numbers, around their first byte of interest. */
#include "pii_addresses.h"

#include <string.h>
#include <strings.h>

/* ---- e-mail ---- */

enum { LOCAL_MOST = 64, DOMAIN_MOST = 253, LABEL_MOST = 63 };

/* Of a letter of two bytes of UTF-8: Latin ones with accents (U+00C0 to U+024F), Greek and Cyrillic
 * ones (U+0388 to U+04FF). Scripts that are written without spaces are none of a name. */
static bool is_wide(const char *text)
{
    unsigned char lead = (unsigned char)text[0], next = (unsigned char)text[1];

    return ((lead >= 0xC3 && lead <= 0xC9) || (lead >= 0xCE && lead <= 0xD3)) &&
           (next & 0xC0) == 0x80 && !(lead == 0xCE && next < 0x88);
}

static bool is_local(char c)
{
    return pii_is_word(c) || pii_is_one_of(c, ".%+'-");
}

static bool among(const char *text, size_t bytes, const char *words)
{
    for (const char *word = words; *word; word += strlen(word) + 1)
        if (strlen(word) == bytes && strncasecmp(text, word, bytes) == 0)
            return true;
    return false;
}

/* Of two letters any; others those that are common, for code has words after a point too. */
static bool is_top_level(const char *text, size_t bytes)
{
    static const char names[] =
        "com\0org\0net\0edu\0gov\0mil\0int\0arpa\0info\0biz\0name\0pro\0mobi\0asia\0coop\0aero\0"
        "museum\0travel\0jobs\0tel\0cat\0post\0app\0dev\0xyz\0online\0site\0shop\0store\0tech\0"
        "club\0blog\0email\0cloud\0live\0life\0world\0space\0website\0news\0agency\0company\0"
        "solutions\0group\0team\0work\0design\0digital\0media\0studio\0network\0software\0"
        "systems\0services\0global\0today\0center\0science\0academy\0university\0health\0care\0"
        "law\0bank\0finance\0consulting\0education\0foundation\0institute\0international\0berlin\0"
        "london\0paris\0hamburg\0wien\0koeln\0tokyo\0nyc\0eus\0gmbh\0ltd\0inc\0page\0top\0icu\0"
        "vip\0win\0art\0film\0photo\0photography\0church\0community\0social\0support\0zone\0"
        "example\0test\0invalid\0"
        "рф\0рус\0укр\0бел\0бг\0срб\0мкд\0мон\0қаз\0ею\0ευ\0ελ\0сайт\0онлайн\0орг\0ком\0дети\0москв"
        "а\0";

    return (bytes == 2 && pii_is_letter(text[0]) && pii_is_letter(text[1])) ||
           (bytes > 4 && strncasecmp(text, "xn--", 4) == 0) || among(text, bytes, names);
}

/* Names of files, and what is called: icon@2x.js, a@b.to(c). */
static bool is_of_code(const char *text, size_t bytes, size_t top, size_t end)
{
    static const char files[] = "js\0ts\0";
    char next = end < bytes ? text[end] : '\0';

    return end - top == 2 && (next == '(' || next == '[' || among(text + top, end - top, files));
}

/* The last dot of a domain that begins at `from`; 0: it is not a domain. *end: of the domain. */
static size_t domain_of(const char *text, size_t bytes, size_t from, size_t *end)
{
    size_t label = from, at = from, dot = 0, good = 0, good_dot = 0;

    for (; at <= bytes && at - from <= DOMAIN_MOST; at++) {
        char c = at < bytes ? text[at] : '\0';

        if (at + 1 < bytes && is_wide(text + at)) {
            at++;
            continue;
        }
        if (pii_is_digit(c) || pii_is_letter(c) || (c == '-' && at > label))
            continue;
        if (at == label || at - label > LABEL_MOST || text[at - 1] == '-')
            break;
        if (dot > 0 && ((unsigned char)text[label] < 0x80 ||
                        is_top_level(text + label, at - label))) { /* else the next sentence */
            good = at;
            good_dot = dot;
        }
        if (c != '.')
            break;
        dot = at;
        label = at + 1;
    }
    *end = good;
    return good_dot;
}

static int hex_of(char c)
{
    return pii_is_digit(c)                      ? c - '0'
           : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                : -1;
}

/* Does a byte of ASCII that a URL encodes, and that no address has, end at s? */
static bool follows_encoded(const char *text, size_t s, size_t floor)
{
    int high = s >= floor + 3 && text[s - 3] == '%' ? hex_of(text[s - 2]) : -1,
        low = high >= 0 ? hex_of(text[s - 1]) : -1;

    return low >= 0 && high < 8 && !is_local((char)(16 * high + low));
}

static size_t local_of(const char *text, size_t at, size_t floor)
{
    size_t s = at;

    while (s > floor && at - s <= LOCAL_MOST && !follows_encoded(text, s, floor)) {
        if (is_local(text[s - 1]))
            s--;
        else if (s >= floor + 2 && is_wide(text + s - 2))
            s -= 2;
        else
            break;
    }
    while (s < at && pii_is_one_of(text[s], ".%+'-")) /* what is before it, not of it */
        s++;
    return s;
}

/* Is the address at the beginning of a URL's host itself a user, before the host's '@'? */
static bool is_user(const char *text, size_t bytes, size_t end)
{
    while (end < bytes && (unsigned char)text[end] > ' ' && !pii_is_one_of(text[end], "/?#\"'<>@"))
        end++;
    return end < bytes && text[end] == '@';
}

/* Is it a part of a URL with a user, or of a repository's address? */
static bool is_of_url(const char *text, size_t bytes, size_t start, size_t at, size_t end)
{
    static const char users[] = "git\0hg\0svn\0";
    size_t s = start, e = end;

    if (end < bytes && text[end] == ':' && among(text + start, at - start, users))
        return true;
    while (s > 2 && start - s < 128 && (unsigned char)text[s - 1] > ' ' &&
           !pii_is_one_of(text[s - 1], "\"'<>()[]{},;|")) {
        s--;
        if (text[s] == '/')
            return s >= 2 && text[s - 1] == '/' && text[s - 2] == ':' && !is_user(text, bytes, end);
    }
    if (end + 1 >= bytes || text[end] != ':') /* user@host.org:path/file */
        return false;
    while (e < bytes && e - end < 128 && (unsigned char)text[e] > ' ')
        if (text[e++] == '/')
            return true;
    return false;
}

static bool is_reserved_domain(const char *text, size_t bytes)
{
    static const char tops[] = "example\0test\0invalid\0localhost\0",
                      domains[] = "example.com\0example.net\0example.org\0";
    size_t dots = 0, at = bytes;

    while (at > 0 && (text[at - 1] != '.' || ++dots < 2)) {
        at--;
        if (dots == 0 && (at == 0 || text[at - 1] == '.') && among(text + at, bytes - at, tops))
            return true;
    }
    return among(text + at, bytes - at, domains);
}

size_t pii_email(const char *text, size_t bytes, size_t at, size_t floor, size_t *start,
                 bool *reserved)
{
    size_t s = local_of(text, at, floor), end, dot = domain_of(text, bytes, at + 1, &end);

    if (s == at || at - s > LOCAL_MOST || dot == 0 || text[at - 1] == '.' ||
        !is_top_level(text + dot + 1, end - dot - 1) || is_of_code(text, bytes, dot + 1, end) ||
        (end < bytes && (text[end] == '@' || text[end] == '_')))
        return 0;
    for (size_t k = s; k + 1 < at; k++)
        if (text[k] == '.' && text[k + 1] == '.')
            return 0;
    if (pii_is_digit(text[at + 1]) && pii_is_one_of(text[at + 2], ".x"))
        return 0; /* package@1.2.0-beta.rc, icon@2x.io */
    if (is_of_url(text, bytes, s, at, end))
        return 0;
    *start = s;
    *reserved = is_reserved_domain(text + at + 1, end - at - 1);
    return end;
}

/* ---- IPv4 ---- */

/* Four octets at text[at]; 0: there are none. */
static size_t octets(const char *text, size_t bytes, size_t at, int out[4])
{
    for (int k = 0; k < 4; k++) {
        size_t first = at;

        if (k > 0 && (at >= bytes || text[at++] != '.'))
            return 0;
        first = at;
        out[k] = 0;
        while (at < bytes && pii_is_digit(text[at]) && at - first < 4)
            out[k] = 10 * out[k] + (text[at++] - '0');
        if (at == first || at - first > 3 || out[k] > 255 || (text[first] == '0' && at - first > 1))
            return 0;
    }
    return at;
}

static bool is_reserved_ipv4(const int o[4])
{
    return o[0] == 0 || o[0] == 10 || o[0] == 127 || o[0] >= 224 ||
           (o[0] == 100 && o[1] >= 64 && o[1] < 128) || (o[0] == 169 && o[1] == 254) ||
           (o[0] == 172 && o[1] >= 16 && o[1] < 32) || (o[0] == 192 && o[1] == 168) ||
           (o[0] == 192 && o[1] == 0 && (o[2] == 0 || o[2] == 2)) ||
           (o[0] == 198 && (o[1] == 18 || o[1] == 19 || (o[1] == 51 && o[2] == 100))) ||
           (o[0] == 203 && o[1] == 0 && o[2] == 113);
}

/* "version 1.2.3.4", "Firefox/1.2.3.4", "foo-1.2.3.4", "section 1.2.3.4": the word before it. */
static bool is_numbered(const char *text, size_t at)
{
    static const char words[] =
        "ver\0v\0release\0releases\0rev\0revision\0build\0firmware\0kernel\0"
        "section\0sections\0sec\0chapter\0clause\0paragraph\0table\0figure\0fig\0eq\0equation\0"
        "theorem\0lemma\0appendix\0article\0rule\0step\0upgrade\0upgraded\0oid\0requires\0"
        "python\0linux\0windows\0android\0java\0chrome\0firefox\0";
    size_t end = at, first;

    if (at > 0 && text[at - 1] == '/' && !(at > 1 && text[at - 2] == '/'))
        return at > 1 && pii_is_word(text[at - 2]);
    if (at > 1 && text[at - 1] == '.' && pii_is_word(text[at - 2]))
        return true; /* libx.so.1.2.3.4 */
    if (at > 0 && (pii_is_one_of(text[at - 1], "-+~^") ||
                   (text[at - 1] == '=' && at > 1 && pii_is_one_of(text[at - 2], "=<>~!"))))
        return true;
    if (at > 1 && (unsigned char)text[at - 2] == 0xC2 && (unsigned char)text[at - 1] == 0xA7)
        return true; /* the sign of a section */
    while (end > 0 && pii_is_one_of(text[end - 1], " \t:=.\"'(#") && at - end < 8)
        end--;
    first = end;
    while (first > 0 && pii_is_letter(text[first - 1]) && end - first < 24)
        first--;
    for (size_t k = first; k + 7 <= end; k++) /* versionadded, ObjectIdentifier */
        if (strncasecmp(text + k, "version", 7) == 0 ||
            (k + 10 <= end && strncasecmp(text + k, "identifier", 10) == 0))
            return true;
    return among(text + first, end - first, words);
}

/* A heading: at a line's start, of single digits, with a capital after it. */
static bool is_heading(const char *text, size_t bytes, size_t at, size_t end)
{
    return (at == 0 || text[at - 1] == '\n') && end - at == 7 && end + 1 < bytes &&
           text[end] == ' ' && text[end + 1] >= 'A' && text[end + 1] <= 'Z';
}

size_t pii_ipv4(const char *text, size_t bytes, size_t at, bool *reserved)
{
    int octet[4];
    size_t end = octets(text, bytes, at, octet);
    char next = end > 0 && end < bytes ? text[end] : '\0',
         after = end > 0 && end + 1 < bytes ? text[end + 1] : '\0';

    if (end == 0 || pii_is_word(next) || ((next == '.' || next == '-') && pii_is_word(after)) ||
        next == '%' || is_numbered(text, at) || is_heading(text, bytes, at, end))
        return 0;
    *reserved = is_reserved_ipv4(octet);
    return end;
}

/* ---- IPv6 ---- */

static bool is_hex(char c)
{
    return hex_of(c) >= 0;
}

typedef struct groups {
    int count, twos; /* groups of 16 bits; written ones of two digits */
    int gap;         /* groups before "::"; -1: there is none */
    bool digit;      /* one of the digits is decimal */
    unsigned first, last;
} groups;

static size_t read_groups(const char *text, size_t bytes, size_t at, groups *g)
{
    *g = (groups){.gap = -1};
    while (at < bytes && g->count < 8) {
        size_t first = at;
        unsigned value = 0;
        int octet[4];
        size_t four = g->count > 0 || g->gap >= 0 ? octets(text, bytes, at, octet) : 0;

        if (four > 0 && g->count <= 6 && !(four < bytes && pii_is_word(text[four]))) {
            g->count += 2;
            g->digit = true;
            return four;
        }
        while (at < bytes && is_hex(text[at]) && at - first < 5) {
            char c = text[at++];

            g->digit |= pii_is_digit(c);
            value = 16 * value + (unsigned)(pii_is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
        }
        if (at - first > 4)
            return 0;
        if (at > first) {
            g->first = g->count == 0 && g->gap < 0 ? value : g->first;
            g->last = value;
            g->count++;
            g->twos += at - first == 2;
        }
        if (at + 1 < bytes && text[at] == ':' && text[at + 1] == ':' && g->gap < 0) {
            g->gap = g->count;
            at += 2;
        } else if (at > first && g->count < 8 && at + 1 < bytes && text[at] == ':' &&
                   is_hex(text[at + 1])) {
            at++;
        } else {
            break;
        }
    }
    return at;
}

size_t pii_ipv6(const char *text, size_t bytes, size_t at, bool *reserved)
{
    groups g;
    size_t end = read_groups(text, bytes, at, &g);
    char before = at > 0 ? text[at - 1] : ' ';

    if (end == 0 || (g.gap < 0 ? g.count != 8 || g.twos == 8 : g.count > 7))
        return 0;
    if ((end < bytes && (pii_is_word(text[end]) || text[end] == ':')) || before == ':' ||
        pii_is_word(before) || !g.digit)
        return 0;
    /* a[1::2] and a::b of code: a short address begins with a whole group, or is ::1 */
    if (g.gap == 0 && g.count < 2)
        return g.count == 1 && g.last == 1 && pii_is_one_of(before, " \t\n\"'(,=")
                   ? (*reserved = true, end)
                   : 0;
    if (g.gap > 0 && (g.count < 3 || g.gap == g.count) && g.first < 0x1000)
        return 0;
    *reserved = g.gap == 0 || (g.first & 0xFE00) == 0xFC00 || (g.first & 0xFFC0) == 0xFE80 ||
                g.first >= 0xFF00;
    if (g.first == 0x2001 && at + 9 <= bytes && strncasecmp(text + at + 5, "db8:", 4) == 0)
        *reserved = true;
    return end;
}

/* ---- phone numbers ---- */

static bool is_separator(char c)
{
    return c == ' ' || c == '-' || c == '.' || c == '/';
}

/* Digits from text[at] on in groups: their number, that of groups, and where the last one ends. */
typedef struct digit_groups {
    int digits, groups, sizes[8];
    int dots, slashes; /* separators that are these */
    size_t end;
} digit_groups;

/* Digits that may be of the number; a short group after a space is of it only where others are.
 * `bracket`: one that was opened before the first group ends after it. */
static digit_groups read_digits(const char *text, size_t bytes, size_t at, int most, bool bracket)
{
    digit_groups g = {.end = at};

    while (at < bytes && g.groups < 8) {
        size_t first = at;

        while (at < bytes && pii_is_digit(text[at]))
            at++;
        if (at == first || g.digits + (int)(at - first) > most ||
            (g.digits > 9 && at - first < 3 && text[first - 1] == ' ' &&
             g.sizes[g.groups - 1] != 2))
            break;
        g.digits += (int)(at - first);
        g.sizes[g.groups++] = (int)(at - first);
        if (bracket && (at == bytes || text[at++] != ')'))
            break;
        g.end = at;
        if (at < bytes && (is_separator(text[at]) || bracket)) {
            bool is = is_separator(text[at]);

            g.dots += text[at] == '.';
            g.slashes += text[at] == '/';
            at += is;
        }
        bracket = at < bytes && text[at] == '(' && g.digits < 5;
        at += bracket;
    }
    return g;
}

static bool is_country_code(const char *text)
{
    static const char two[] =
        "20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 "
        "56 57 58 60 61 62 63 64 65 66 81 82 84 86 90 91 92 93 94 95 98",
                      three[] = "21 22 23 24 25 26 29 35 37 38 42 50 59 67 68 69 80 85 87 88 96 97 "
                                "99";
    char start[3] = {text[0], text[1], '\0'};

    return text[0] == '1' || text[0] == '7' || strstr(two, start) || strstr(three, start);
}

static bool joined_before(const char *text, size_t at)
{
    if (at == 0)
        return false;
    return pii_is_word(text[at - 1]) || text[at - 1] == '+' ||
           (pii_is_one_of(text[at - 1], text[at] == '+' ? ".-" : ".-/") && at > 1 &&
            pii_is_digit(text[at - 2]));
}

/* As pii_ends, or an extension (x12) follows. */
static bool phone_ends(const char *text, size_t bytes, size_t end)
{
    return pii_ends(text, bytes, end) ||
           (text[end] == 'x' && end + 1 < bytes && pii_is_digit(text[end + 1]));
}

/* The most digits at text[8], of the countries whose numbers have one length; a trunk's (0) is
 * more. */
static int digits_of(const char *text)
{
    static const char eleven[] = "31 32 33 34 41 48";
    char start[3] = {text[0], text[1], '\0'};
    int trunk = 0;

    for (int k = 1; k < 5; k++)
        trunk |= strncmp(text + k, "(0)", 3) == 0;
    return (text[0] == '1' || text[0] == '7' || strstr(eleven, start) ? 11 : 15) + trunk;
}

/* +40.7128-74.0060 is a place on a map. */
static bool are_coordinates(const char *text, size_t bytes)
{
    char separators[4] = "";
    int count = 0;

    for (size_t k = 0; k < bytes; k++)
        if (!pii_is_digit(text[k])) {
            if (count == 3)
                return false;
            separators[count++] = text[k];
        }
    return strcmp(separators, ".-.") == 0;
}

/* Country codes 1 and 7 are followed by ten digits, North America's from 2 to 9 on. */
static bool is_whole(const digit_groups *g, const char *text)
{
    size_t next = 1;

    if (text[0] != '1' && text[0] != '7')
        return true;
    while (!pii_is_digit(text[next]))
        next++;
    return g->digits == 11 && (text[0] == '7' || text[next] > '1');
}

static size_t international(const char *text, size_t bytes, size_t at, bool bracket)
{
    digit_groups g;

    if (bytes - at < 8)
        return 0;
    g = read_digits(text, bytes, at, digits_of(text + at), bracket);
    if (g.digits < 8 || (g.groups == 1 && g.digits < 10) || !is_country_code(text + at) ||
        !is_whole(&g, text + at) || are_coordinates(text + at, g.end - at) ||
        !phone_ends(text, bytes, g.end))
        return 0;
    return g.end;
}

/* NXX-NXX-XXXX of North America from its first digit on, N from 2 to 9, and no N11. */
static size_t north_american(const char *text, size_t bytes, size_t at, bool bracket, bool spaces)
{
    size_t p = at;

    if (p + 12 > bytes || text[p] < '2' || !pii_is_digit(text[p + 1]) ||
        !pii_is_digit(text[p + 2]) || (text[p + 1] == '1' && text[p + 2] == '1'))
        return 0;
    p += 3;
    if (bracket && text[p++] != ')')
        return 0;
    if (is_separator(text[p]) && (text[p] != ' ' || bracket || spaces) && text[p] != '/')
        p++;
    else if (!bracket)
        return 0;
    if (p + 8 > bytes || text[p] < '2' || text[p] > '9' || !pii_is_digit(text[p + 1]) ||
        !pii_is_digit(text[p + 2]) || (text[p + 1] == '1' && text[p + 2] == '1') ||
        !is_separator(text[p + 3]) || text[p + 3] == '/' ||
        (text[p + 3] == ' ' && !bracket && !spaces))
        return 0;
    p += 4;
    for (int k = 0; k < 4; k++)
        if (!pii_is_digit(text[p + (size_t)k]))
            return 0;
    return phone_ends(text, bytes, p + 4) ? p + 4 : 0;
}

/* Numbers with dots are pairs, a slash follows the first group, and 02110-1301 is a postcode. */
static bool are_trunk_groups(const digit_groups *g, const char *text)
{
    bool pairs = true;

    for (int k = 0; k < g->groups; k++)
        pairs &= g->sizes[k] == 2;
    return (g->dots == 0 || pairs) && g->slashes <= 1 &&
           (g->slashes == 0 || text[g->sizes[0]] == '/') &&
           !(g->groups == 2 && g->sizes[0] == 5 && g->sizes[1] == 4 && text[5] == '-') &&
           strncmp(text, "0123456789", 10) != 0;
}

/* As it is written in one of the countries. */
static size_t trunk(const char *text, size_t bytes, size_t at, uint64_t countries, bool bracket)
{
    for (int k = 0; pii_countries[k].code; k++) {
        const pii_country *country = &pii_countries[k];
        digit_groups g;

        if ((countries >> k & 1) == 0 || country->trunk_most == 0 || text[at] != '0' ||
            at + 1 >= bytes || text[at + 1] == '0' || !pii_is_digit(text[at + 1]))
            continue;
        g = read_digits(text, bytes, at, country->trunk_most, bracket);
        if (g.digits >= country->trunk_least && (g.groups > 1 || g.digits == country->trunk_most) &&
            are_trunk_groups(&g, text + at) && pii_ends(text, bytes, g.end))
            return g.end;
    }
    return 0;
}

size_t pii_phone(const char *text, size_t bytes, size_t at, size_t floor, uint64_t countries,
                 size_t *start)
{
    bool bracket = at > floor && text[at - 1] == '(',
         plus = at > floor + bracket && text[at - bracket - 1] == '+';
    int us = pii_country_of("us", 2), ca = pii_country_of("ca", 2);
    bool spaces = ((countries >> us | countries >> ca) & 1) != 0;
    size_t end;

    *start = at - bracket - plus;
    if (joined_before(text, *start))
        return 0;
    if (plus && (end = international(text, bytes, at, false)) > 0)
        return end;
    if (plus) { /* (+49) 30 901820 */
        bracket = *start > floor && text[*start - 1] == '(';
        *start -= bracket;
        return bracket ? international(text, bytes, at, true) : 0;
    }
    if (bracket && ((end = north_american(text, bytes, at, true, spaces)) > 0 ||
                    (end = trunk(text, bytes, at, countries, true)) > 0))
        return end;
    *start = at; /* the bracket is of the sentence */
    if (bytes - at > 10 && text[at] == '0' && text[at + 1] == '0' && text[at + 2] != '0' &&
        !(pii_is_one_of(text[at + 4], " -") && text[at + 5] == '0' && text[at + 2] != '3') &&
        (end = international(text, bytes, at + 2, false)) > 0)
        return end;
    if ((end = north_american(text, bytes, at, false, spaces)) > 0)
        return end;
    if (bytes - at > 2 && text[at] == '1' && is_separator(text[at + 1])) {
        bool inner = text[at + 2] == '(';

        if ((end = north_american(text, bytes, at + 2 + inner, inner, true)) > 0)
            return end;
    }
    if (countries == 0 || (at > 1 && text[at - 1] == ' ' && pii_is_digit(text[at - 2])))
        return 0; /* of another number's groups */
    return trunk(text, bytes, at, countries, false);
}
