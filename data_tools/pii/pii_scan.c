/* Candidates by their bytes: digits, '@' and ':'; then each kind's own rules. */
#include "pii_scan.h"

#include "pii_addresses.h"

#define TOKEN_MOST 40 /* bytes before the first digit of a token that has letters */

const char *pii_kind_name(pii_kind kind)
{
    static const char *const names[PII_KINDS] = {"email", "phone", "card",    "iban",
                                                 "ipv4",  "ipv6",  "national"};

    return names[kind];
}

static const bool INTERESTING[256] = {
    ['0'] = true, ['1'] = true, ['2'] = true, ['3'] = true, ['4'] = true, ['5'] = true,
    ['6'] = true, ['7'] = true, ['8'] = true, ['9'] = true, ['@'] = true, [':'] = true};

/* Where the letters and digits that text[at] is among begin. */
static size_t token_start(const pii_scan *scan, size_t at)
{
    size_t s = at;

    while (s > scan->floor && at - s < TOKEN_MOST && pii_is_word(scan->text[s - 1]))
        s--;
    return s;
}

/* Does a number begin at s: is it not joined to a digit before it? */
static bool begins(const pii_scan *scan, size_t s)
{
    const char *text = scan->text;

    if (s == 0)
        return true;
    if (pii_is_word(text[s - 1]) || text[s - 1] == '$')
        return false;
    return s < 2 || !pii_is_one_of(text[s - 1], ".-/") || !pii_is_digit(text[s - 2]);
}

static bool take(pii_find *find, size_t start, size_t end, pii_kind kind)
{
    find->start = start;
    find->end = end;
    find->kind = kind;
    find->country = -1;
    return end > 0;
}

/* Where one or two letters are, which a separator joins to a number at s (AB 12 34 56 C); s: none
 * are. */
static size_t letters_before(const pii_scan *scan, size_t s)
{
    size_t first = s - 1;

    if (s < 2 || !pii_is_one_of(scan->text[s - 1], " -."))
        return s;
    while (first > scan->floor && s - first < 4 && pii_is_letter(scan->text[first - 1]))
        first--;
    return first + 1 < s && s - first < 4 && begins(scan, first) ? first : s;
}

static bool find_national(const pii_scan *scan, size_t s, pii_find *find)
{
    for (int k = 0; pii_countries[k].code; k++)
        if ((scan->countries >> k & 1) != 0 &&
            take(find, s, pii_national(scan->text, scan->bytes, s, &pii_countries[k]),
                 PII_NATIONAL)) {
            find->country = k;
            return true;
        }
    return false;
}

/* The first digit of a run is at `at`. */
static bool find_number(const pii_scan *scan, size_t at, pii_find *find)
{
    const char *text = scan->text;
    size_t bytes = scan->bytes, s = token_start(scan, at), start;

    if (at - s < TOKEN_MOST && begins(scan, s)) {
        if (s + 2 == at && take(find, s, pii_iban(text, bytes, s), PII_IBAN))
            return true;
        if (scan->countries != 0 &&
            (find_national(scan, s, find) || find_national(scan, letters_before(scan, s), find)))
            return true;
    }
    if (s != at)
        return false;
    if (take(find, 0, pii_phone(text, bytes, at, scan->floor, scan->countries, &start),
             PII_PHONE)) {
        find->start = start;
        return true;
    }
    return begins(scan, at) &&
           (take(find, at, pii_card(text, bytes, at), PII_CARD) ||
            take(find, at, pii_ipv6(text, bytes, at, &find->reserved), PII_IPV6) ||
            take(find, at, pii_ipv4(text, bytes, at, &find->reserved), PII_IPV4));
}

/* An address whose first group ends at the ':', or that begins with it. */
static bool find_colon(const pii_scan *scan, size_t at, pii_find *find)
{
    size_t s = token_start(scan, at);

    if (at - s > 4 || (s < at && !begins(scan, s)))
        return false;
    return take(find, s, pii_ipv6(scan->text, scan->bytes, s, &find->reserved), PII_IPV6);
}

static bool find_at(const pii_scan *scan, size_t at, pii_find *find)
{
    char c = scan->text[at];
    size_t start;

    find->reserved = false;
    if (c == '@') {
        size_t end = pii_email(scan->text, scan->bytes, at, scan->floor, &start, &find->reserved);

        return take(find, end > 0 ? start : 0, end, PII_EMAIL);
    }
    return c == ':' ? find_colon(scan, at, find) : find_number(scan, at, find);
}

bool pii_scan_next(pii_scan *scan, pii_find *find)
{
    const char *text = scan->text;
    size_t at = scan->at, end = scan->end;

    while (at < end) {
        while (at < end && !INTERESTING[(unsigned char)text[at]])
            at++;
        if (at == end)
            break;
        if (find_at(scan, at, find)) {
            scan->at = find->end > at ? find->end : at + 1;
            scan->floor = find->end;
            return true;
        }
        if (pii_is_digit(text[at]))
            while (at + 1 < end && pii_is_digit(text[at + 1]))
                at++;
        at++;
    }
    scan->at = end;
    return false;
}
