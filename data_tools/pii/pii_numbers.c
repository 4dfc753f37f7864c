/* Cards, accounts and national numbers: fixed forms, and check digits. */
#include "pii_numbers.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

bool pii_ends(const char *text, size_t bytes, size_t end)
{
    if (end >= bytes)
        return true;
    if (pii_is_word(text[end]))
        return false;
    return !(pii_is_one_of(text[end], "-./") && end + 1 < bytes && pii_is_digit(text[end + 1]));
}

/* ---- check digits ---- */

bool pii_luhn(const char *digits, int count)
{
    int sum = 0;

    for (int k = 0; k < count; k++) {
        int digit = digits[count - 1 - k] - '0';

        digit *= k % 2 == 1 ? 2 : 1;
        sum += digit > 9 ? digit - 9 : digit;
    }
    return sum % 10 == 0;
}

static int weighted(const char *digits, const int *weights, int count)
{
    int sum = 0;

    for (int k = 0; k < count; k++)
        sum += weights[k] * (digits[k] - '0');
    return sum;
}

static int64_t value_of(const char *digits, int count)
{
    int64_t value = 0;

    for (int k = 0; k < count; k++)
        value = 10 * value + (digits[k] - '0');
    return value;
}

static bool all_equal(const char *digits, int count)
{
    for (int k = 1; k < count; k++)
        if (digits[k] != digits[0])
            return false;
    return true;
}

/* Day and month, of 1 to 31 and 1 to 12, at two places. */
static bool is_date(const char *digits, int day, int month)
{
    int64_t d = value_of(digits + day, 2), m = value_of(digits + month, 2);

    return d >= 1 && d <= 31 && m >= 1 && m <= 12;
}

/* ---- cards ---- */

/* Of issuers: numbers that begin with low to high, of `digits` digits, have lengths of the bits. */
typedef struct card_range {
    int digits, low, high;
    uint32_t lengths;
} card_range;

#define LENGTH(n) (UINT32_C(1) << (n))
static const card_range CARDS[] = {{1, 4, 4, LENGTH(13) | LENGTH(16) | LENGTH(19)},
                                   {2, 51, 55, LENGTH(16)},
                                   {4, 2221, 2720, LENGTH(16)},
                                   {2, 34, 34, LENGTH(15)},
                                   {2, 37, 37, LENGTH(15)},
                                   {4, 6011, 6011, LENGTH(16) | LENGTH(19)},
                                   {3, 644, 659, LENGTH(16) | LENGTH(19)},
                                   {3, 300, 305, LENGTH(14) | LENGTH(16) | LENGTH(19)},
                                   {2, 36, 36, LENGTH(14) | LENGTH(16) | LENGTH(19)},
                                   {2, 38, 39, LENGTH(14) | LENGTH(16) | LENGTH(19)},
                                   {4, 3528, 3589, LENGTH(16) | LENGTH(19)},
                                   {2, 62, 62, LENGTH(16) | LENGTH(17) | LENGTH(18) | LENGTH(19)},
                                   {4, 5018, 5018, LENGTH(16) | LENGTH(18) | LENGTH(19)},
                                   {4, 5020, 5020, LENGTH(16) | LENGTH(18) | LENGTH(19)},
                                   {4, 5038, 5038, LENGTH(16) | LENGTH(18) | LENGTH(19)},
                                   {4, 6304, 6304, LENGTH(16) | LENGTH(18) | LENGTH(19)},
                                   {4, 6759, 6763, LENGTH(16) | LENGTH(18) | LENGTH(19)},
                                   {4, 9792, 9792, LENGTH(16)}};

static bool is_issued(const char *digits, int count)
{
    for (size_t k = 0; k < sizeof CARDS / sizeof CARDS[0]; k++) {
        int64_t first = value_of(digits, CARDS[k].digits);

        if (first >= CARDS[k].low && first <= CARDS[k].high &&
            (CARDS[k].lengths & LENGTH(count)) != 0)
            return true;
    }
    return false;
}

/* Fours, or an American Express card's 4, 6, 5 and a Diners Club card's 4, 6, 4. */
static bool are_groups(const int *sizes, int count)
{
    if (count == 1)
        return true;
    if (count == 3 && sizes[0] == 4 && sizes[1] == 6)
        return sizes[2] == 5 || sizes[2] == 4;
    for (int k = 0; k + 1 < count; k++)
        if (sizes[k] != 4)
            return false;
    return count >= 4 && sizes[count - 1] <= 4;
}

/* The end of the longest number of an issuer that begins at text[at]; 0 if none does. */
static size_t issued_end(const char *text, size_t bytes, size_t at, bool *fours)
{
    char digits[20], separator = '\0';
    int count = 0, sizes[5] = {0}, groups = 0;
    size_t end = at, best = 0;

    while (groups < 5) {
        size_t first = end;

        while (end < bytes && pii_is_digit(text[end])) {
            if (count == 19)
                return best;
            digits[count++] = text[end++];
        }
        sizes[groups++] = (int)(end - first);
        if (count >= 13 && are_groups(sizes, groups) && pii_ends(text, bytes, end) &&
            is_issued(digits, count) && pii_luhn(digits, count) && !all_equal(digits, count)) {
            best = end;
            *fours = groups > 3;
        }
        if (end + 1 >= bytes || !pii_is_one_of(text[end], " -") || !pii_is_digit(text[end + 1]) ||
            (groups > 1 && text[end] != separator) || sizes[0] != 4)
            break;
        separator = text[end++];
    }
    return best;
}

/* Groups of four digits after a number's end. */
static int fours_after(const char *text, size_t bytes, size_t end)
{
    int count = 0;

    for (; end + 5 <= bytes && text[end] == ' ' && count < 2; end += 5, count++) {
        for (size_t k = 1; k < 5; k++)
            if (!pii_is_digit(text[end + k]))
                return count;
        if (end + 5 < bytes && pii_is_digit(text[end + 5]))
            return count;
    }
    return count;
}

/* After it there may be another number, a year or a code; more groups of four are a table. */
size_t pii_card(const char *text, size_t bytes, size_t at)
{
    bool fours = false, other;
    size_t end = issued_end(text, bytes, at, &fours);

    if (end > 0 && fours && fours_after(text, bytes, end) > 1 &&
        issued_end(text, bytes, end + 1, &other) == 0)
        return 0;
    return end;
}

/* ---- IBAN ---- */

static int iban_length(const char *country)
{
    static const char lengths[] =
        "AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29"
        "ES24FI18FK18FO18FR27GB22GE22GI23GL18GR27GT28HN28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20"
        "LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22MK19MN20MR27MT31MU30NI28NL18NO15OM23PK24PL28PS29"
        "PT25QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27SO23ST25SV28TL23TN24TR26UA29VA22VG24XK20"
        "YE30";

    for (const char *row = lengths; *row; row += 4)
        if (strncasecmp(row, country, 2) == 0)
            return (int)value_of(row + 2, 2);
    return 0;
}

size_t pii_iban(const char *text, size_t bytes, size_t at)
{
    int length, count = 0, rest = 0;
    char plain[40], separator = '\0';
    size_t end = at;

    if (bytes - at < 15 || (length = iban_length(text + at)) == 0)
        return 0;
    while (count < length && end < bytes) {
        char c = text[end];

        if (pii_is_digit(c) || pii_is_letter(c)) {
            plain[count++] = (char)(pii_is_letter(c) ? c & ~32 : c);
        } else if (count % 4 == 0 && count > 0 && (c == ' ' || c == '-') &&
                   (count == 4 || c == separator)) {
            separator = c;
        } else {
            return 0;
        }
        end++;
    }
    if (count < length || !pii_is_digit(plain[2]) || !pii_is_digit(plain[3]) ||
        !pii_ends(text, bytes, end))
        return 0;
    for (int k = 0; k < length; k++) {
        char c = plain[(k + 4) % length];

        rest = pii_is_digit(c) ? (10 * rest + (c - '0')) % 97 : (100 * rest + (c - 'A' + 10)) % 97;
    }
    return rest == 1 ? end : 0;
}

/* ---- national numbers ---- */

static bool holds_us(const char *p, int count)
{
    int64_t area = value_of(p, 3);

    (void)count;
    return area != 0 && area != 666 && area < 900 && value_of(p + 3, 2) != 0 &&
           value_of(p + 5, 4) != 0;
}

static bool holds_luhn(const char *p, int count)
{
    return p[0] != '0' && !all_equal(p, count) && pii_luhn(p, count);
}

static bool holds_fr(const char *p, int count)
{
    char digits[16];
    int64_t shift = 0, month;

    memcpy(digits, p, (size_t)count);
    if (p[5] == '2' && (p[6] == 'A' || p[6] == 'B')) { /* Corsica */
        shift = p[6] == 'A' ? 1000000 : 2000000;
        digits[6] = '0';
    }
    for (int k = 0; k < count; k++)
        if (!pii_is_digit(digits[k]))
            return false;
    month = value_of(digits + 3, 2);
    if (!pii_is_one_of(p[0], "123478") || month == 0 || (month > 12 && month < 20) ||
        (month > 42 && month < 50))
        return false;
    return 97 - (value_of(digits, 13) - shift) % 97 == value_of(digits + 13, 2);
}

static bool holds_de(const char *p, int count)
{
    int seen[10] = {0}, twice = 0, thrice = 0, product = 10;

    for (int k = 0; k < count - 1; k++) {
        int sum = (p[k] - '0' + product) % 10;

        product = (sum == 0 ? 10 : sum) * 2 % 11;
        seen[p[k] - '0']++;
    }
    for (int k = 0; k < 10; k++) {
        twice += seen[k] == 2;
        thrice += seen[k] == 3;
        if (seen[k] > 3)
            return false;
    }
    return p[0] != '0' && twice + thrice == 1 && (11 - product) % 10 == p[count - 1] - '0';
}

static bool holds_nl(const char *p, int count)
{
    static const int weights[] = {9, 8, 7, 6, 5, 4, 3, 2, -1};
    int sum = weighted(p, weights, 9);

    return !all_equal(p, count) && sum % 11 == 0;
}

static bool holds_be(const char *p, int count)
{
    int64_t nine = value_of(p, 9), check = value_of(p + 9, 2), month = value_of(p + 2, 2) % 20;

    (void)count;
    if (month > 12 || value_of(p + 4, 2) > 31)
        return false;
    return check == 97 - nine % 97 || check == 97 - (nine + INT64_C(2000000000)) % 97;
}

static bool holds_es(const char *p, int count)
{
    static const char letters[] = "TRWAGMYFPDXBNJZSQVHLCKE";
    char digits[9];

    memcpy(digits, p, 8);
    if (p[0] >= 'X' && p[0] <= 'Z') /* of a foreigner */
        digits[0] = (char)('0' + (p[0] - 'X'));
    for (int k = 0; k < 8; k++)
        if (!pii_is_digit(digits[k]))
            return false;
    return letters[value_of(digits, 8) % 23] == p[count - 1];
}

static bool holds_se(const char *p, int count)
{
    const char *ten = p + (count - 10);
    char day[2] = {ten[4], ten[5]};

    if (day[0] >= '6') /* a coordination number */
        day[0] = (char)(day[0] - 6);
    return value_of(ten + 2, 2) >= 1 && value_of(ten + 2, 2) <= 12 && value_of(day, 2) >= 1 &&
           value_of(day, 2) <= 31 && pii_luhn(ten, 10);
}

static bool holds_fi(const char *p, int count)
{
    static const char letters[] = "0123456789ABCDEFHJKLMNPRSTUVWXY";
    char digits[9];

    memcpy(digits, p, 6);
    memcpy(digits + 6, p + count - 4, 3); /* before it a letter may say which century */
    for (int k = 0; k < 9; k++)
        if (!pii_is_digit(digits[k]))
            return false;
    return is_date(digits, 0, 2) && letters[value_of(digits, 9) % 31] == p[count - 1];
}

static bool holds_no(const char *p, int count)
{
    static const int one[] = {3, 7, 6, 1, 8, 9, 4, 5, 2, 1},
                     two[] = {5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 1};
    char day[2] = {p[0], p[1]};

    (void)count;
    if (day[0] >= '4') /* a D number */
        day[0] = (char)(day[0] - 4);
    return value_of(day, 2) >= 1 && value_of(day, 2) <= 31 && value_of(p + 2, 2) >= 1 &&
           value_of(p + 2, 2) <= 12 && weighted(p, one, 10) % 11 == 0 &&
           weighted(p, two, 11) % 11 == 0;
}

static bool holds_dk(const char *p, int count)
{
    (void)count;
    return is_date(p, 0, 2);
}

static bool holds_it(const char *p, int count)
{
    static const char odd[] = "BAKPLCQDREVOSFTGUHMINJWZYX"; /* its letter k has the value k */
    int sum = 0;

    for (int k = 0; k < count; k++)
        if (pii_is_digit(p[k]) != (k == 6 || k == 7 || k == 9 || k == 10 || (k > 11 && k < 15)) &&
            !(pii_is_one_of(p[k], "LMNPQRSTUV") && k != 15))
            return false;
    for (int k = 0; k < 15; k++) {
        int value = pii_is_digit(p[k]) ? p[k] - '0' : p[k] - 'A';

        sum += k % 2 == 1 ? value : (int)(strchr(odd, 'A' + value) - odd);
    }
    return pii_is_one_of(p[8], "ABCDEHLMPRST") && 'A' + sum % 26 == p[15];
}

static bool holds_pl(const char *p, int count)
{
    static const int weights[] = {1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1};
    int64_t month = value_of(p + 2, 2) % 20, day = value_of(p + 4, 2);

    (void)count;
    return month >= 1 && month <= 12 && day >= 1 && day <= 31 && weighted(p, weights, 11) % 10 == 0;
}

static bool holds_pt(const char *p, int count)
{
    static const int weights[] = {9, 8, 7, 6, 5, 4, 3, 2};
    int check = 11 - weighted(p, weights, 8) % 11;

    (void)count;
    return pii_is_one_of(p[0], "123") && (check > 9 ? 0 : check) == p[8] - '0';
}

static bool holds_gb(const char *p, int count)
{
    static const char barred[] = "BG GB KN NK NT TN ZZ";
    char two[3] = {p[0], p[1], '\0'};

    return !pii_is_one_of(p[0], "DFIQUV") && !pii_is_one_of(p[1], "DFIQUVO") &&
           !strstr(barred, two) && pii_is_one_of(p[count - 1], "ABCD");
}

static bool holds_ch(const char *p, int count)
{
    int sum = 0;

    for (int k = 0; k < count; k++)
        sum += (k % 2 == 1 ? 3 : 1) * (p[k] - '0');
    return strncmp(p, "756", 3) == 0 && sum % 10 == 0;
}

static bool holds_br(const char *p, int count)
{
    for (int digit = 9; digit < 11; digit++) {
        int sum = 0;

        for (int k = 0; k < digit; k++)
            sum += (digit + 1 - k) * (p[k] - '0');
        if (sum * 10 % 11 % 10 != p[digit] - '0')
            return false;
    }
    return !all_equal(p, count);
}

static bool holds_in(const char *p, int count)
{
    static const char product[10][11] = {"0123456789", "1234067895", "2340178956", "3401289567",
                                         "4012395678", "5987604321", "6598710432", "7659821043",
                                         "8765932104", "9876543210"},
                      turned[8][11] = {"0123456789", "1576283094", "5803796142", "8916043527",
                                       "9453126870", "4286573901", "2793806415", "7046913258"};
    int check = 0;

    for (int k = 0; k < count; k++) /* Verhoeff's */
        check = product[check][turned[k % 8][p[count - 1 - k] - '0'] - '0'] - '0';
    return p[0] > '1' && check == 0;
}

static bool holds_cn(const char *p, int count)
{
    int sum = 0;
    int64_t year = value_of(p + 6, 4);

    for (int k = 0; k < count - 1; k++) {
        if (!pii_is_digit(p[k]))
            return false;
        sum = (sum + (p[k] - '0')) * 2 % 11; /* ISO 7064 MOD 11-2 */
    }
    return year >= 1900 && year < 2100 && is_date(p, 12, 10) && "10X98765432"[sum] == p[count - 1];
}

#define TRUNK(least, most) .trunk_least = (least), .trunk_most = (most)

const pii_country pii_countries[] = {
    {"us",
     "Social Security number",
     {"999-99-9999", "999 99 9999"},
     holds_us,
     "areas and groups in use"},
    {"ca", "Social Insurance Number", {"999_999_999"}, holds_luhn, "Luhn"},
    {"fr",
     "NIR (INSEE)",
     {"9_99_99_9X_999_999_99"},
     holds_fr,
     "97 less the rest by 97",
     TRUNK(10, 10)},
    {"de",
     "Steuer-ID",
     {"99_999_999_999"},
     holds_de,
     "ISO 7064 MOD 11,10, one digit repeated",
     TRUNK(9, 12)},
    {"nl",
     "BSN",
     {"999999999", "9999.99.999"},
     holds_nl,
     "weights 9 to 2 and -1, by 11",
     TRUNK(10, 10)},
    {"be",
     "Rijksregisternummer",
     {"99.99.99-999.99", "99999999999"},
     holds_be,
     "97 less the rest by 97",
     TRUNK(9, 10)},
    {"es", "DNI, NIE", {"99999999_A", "A_9999999_A"}, holds_es, "letter by 23"},
    {"se",
     "personnummer",
     {"999999-9999", "99999999-9999", "9999999999"},
     holds_se,
     "date, Luhn",
     TRUNK(8, 10)},
    {"fi",
     "henkilotunnus",
     {"999999-999X", "999999A999X"},
     holds_fi,
     "date, letter by 31",
     TRUNK(7, 10)},
    {"no", "fodselsnummer", {"999999_99999"}, holds_no, "date, two digits by 11"},
    {"dk", "CPR", {"999999-9999"}, holds_dk, "date"},
    {"it", "codice fiscale", {"AAAAAAXXAXXAXXXA"}, holds_it, "letter by 26", TRUNK(9, 11)},
    {"pl", "PESEL", {"99999999999"}, holds_pl, "date, weights 1 3 7 9"},
    {"pt", "NIF", {"999_999_999"}, holds_pt, "weights 9 to 2, by 11"},
    {"gb",
     "National Insurance number",
     {"AA_99_99_99_A"},
     holds_gb,
     "prefixes and suffixes in use",
     TRUNK(10, 11)},
    {"ch",
     "AHV number",
     {"999.9999.9999.99", "9999999999999"},
     holds_ch,
     "EAN-13, 756 before it",
     TRUNK(10, 10)},
    {"br", "CPF", {"999.999.999-99", "99999999999"}, holds_br, "two digits by 11"},
    {"in", "Aadhaar", {"9999_9999_9999"}, holds_in, "Verhoeff"},
    {"cn", "resident identity number", {"99999999999999999X"}, holds_cn, "date, ISO 7064 MOD 11-2"},
    {0}};

int pii_country_of(const char *code, size_t bytes)
{
    for (int k = 0; pii_countries[k].code; k++)
        if (strlen(pii_countries[k].code) == bytes &&
            strncasecmp(pii_countries[k].code, code, bytes) == 0)
            return k;
    return -1;
}

static size_t fits(const char *shape, const char *text, size_t bytes, size_t at, char *plain,
                   int *count)
{
    char separator = '\0'; /* of the first place for one; '\1': there it had none */

    *count = 0;
    for (; *shape; shape++) {
        char c = at < bytes ? text[at] : '\0';

        if (*shape == '_') {
            bool is = pii_is_one_of(c, " -.");

            if (separator == '\0')
                separator = is ? c : '\1';
            else if (separator != (is ? c : '\1'))
                return 0;
            at += is;
            continue;
        }
        if (*shape == '9'   ? !pii_is_digit(c)
            : *shape == 'X' ? !pii_is_digit(c) && !pii_is_letter(c)
            : *shape == 'A' ? !pii_is_letter(c)
                            : c != *shape)
            return 0;
        if (pii_is_digit(c) || pii_is_letter(c))
            plain[(*count)++] = (char)(pii_is_letter(c) ? c & ~32 : c);
        at++;
    }
    return at;
}

size_t pii_national(const char *text, size_t bytes, size_t at, const pii_country *country)
{
    char plain[24];
    int count;

    for (int k = 0; k < 3 && country->shapes[k]; k++) {
        size_t end = fits(country->shapes[k], text, bytes, at, plain, &count);

        if (end > 0 && pii_ends(text, bytes, end) && country->holds(plain, count))
            return end;
    }
    return 0;
}
