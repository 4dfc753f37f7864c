/* Seeds of a Unigram vocabulary: repeated substrings, from a suffix array. */
#include "base/mem.h"
#include "text/train/train_unigram_priv.h"
#include "text/unicode/regex.h"
#include "text/unicode/unicode.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- scripts ---- */

#define HAN 1
/* Those of Unicode 14 with letters that text has; a script that Oniguruma does not know is Common.
 */
static const char *const SCRIPTS[] = {
    "Han",
    "Hiragana",
    "Katakana",
    "Latin",
    "Greek",
    "Cyrillic",
    "Armenian",
    "Hebrew",
    "Arabic",
    "Syriac",
    "Thaana",
    "Devanagari",
    "Bengali",
    "Gurmukhi",
    "Gujarati",
    "Oriya",
    "Tamil",
    "Telugu",
    "Kannada",
    "Malayalam",
    "Sinhala",
    "Thai",
    "Lao",
    "Tibetan",
    "Myanmar",
    "Georgian",
    "Hangul",
    "Ethiopic",
    "Cherokee",
    "Canadian_Aboriginal",
    "Ogham",
    "Runic",
    "Khmer",
    "Mongolian",
    "Bopomofo",
    "Yi",
    "Old_Italic",
    "Gothic",
    "Deseret",
    "Inherited",
    "Tagalog",
    "Hanunoo",
    "Buhid",
    "Tagbanwa",
    "Limbu",
    "Tai_Le",
    "Linear_B",
    "Ugaritic",
    "Shavian",
    "Osmanya",
    "Cypriot",
    "Braille",
    "Buginese",
    "Coptic",
    "New_Tai_Lue",
    "Glagolitic",
    "Tifinagh",
    "Syloti_Nagri",
    "Old_Persian",
    "Kharoshthi",
    "Balinese",
    "Cuneiform",
    "Phoenician",
    "Phags_Pa",
    "Nko",
    "Sundanese",
    "Lepcha",
    "Ol_Chiki",
    "Vai",
    "Saurashtra",
    "Kayah_Li",
    "Rejang",
    "Lycian",
    "Carian",
    "Lydian",
    "Cham",
    "Tai_Tham",
    "Tai_Viet",
    "Avestan",
    "Egyptian_Hieroglyphs",
    "Samaritan",
    "Lisu",
    "Bamum",
    "Javanese",
    "Meetei_Mayek",
    "Imperial_Aramaic",
    "Old_South_Arabian",
    "Batak",
    "Brahmi",
    "Mandaic",
    "Adlam",
    "Chakma",
    "Newa",
    "Tirhuta",
    "Khudawadi",
};

static void mark_script(const char *script, uint8_t number, const uint32_t *codes, int64_t count,
                        uint8_t *scripts)
{
    char pattern[64];
    bp_regex *regex;
    bp_regex_work *work;

    snprintf(pattern, sizeof pattern, "\\p{%s}", script);
    if (bp_regex_new(&regex, pattern, script) != BP_OK)
        return;
    work = bp_regex_work_new();
    for (int64_t k = 0; k < count; k++) {
        uint8_t text[4];
        size_t bytes = bp_utf8_encode(text, codes[k]);
        bp_regex_matches matches = bp_regex_matches_of(regex, work, (char *)text, bytes);
        bool found;

        if (bp_regex_next(&matches, &found) == BP_OK && found)
            scripts[k] = number;
    }
    bp_regex_work_free(&work);
    bp_regex_free(&regex);
}

/* Number of the script of each code point in `codes` (sorted), to scripts[count]: 0 is Common,
 * Hiragana and Katakana count as Han. */
static void scripts_of(const uint32_t *codes, int64_t count, uint8_t *scripts)
{
    memset(scripts, 0, (size_t)count);
    for (size_t k = 0; k < sizeof SCRIPTS / sizeof *SCRIPTS; k++)
        mark_script(SCRIPTS[k], k < 3 ? HAN : (uint8_t)(k + 1), codes, count, scripts);
    for (int64_t k = 0; k < count; k++)
        if (codes[k] == 0x30FC) /* the sign of long vowels */
            scripts[k] = HAN;
}

/* ---- the suffix array ---- */

typedef struct suffixes {
    uint32_t *text; /* [length]: code points of the words, each with 0 after it */
    uint32_t *sorted;
    int64_t *times; /* [length]: how often the word of each code point is there ... */
    int64_t *ends;  /* ... and how often at the end of a line */
    uint32_t length;
    const bp_letters *letters;
    uint8_t *scripts; /* [letters->count] */
} suffixes;

/* So many code points at most, each word with its end. */
static int64_t most_codes(const bp_strmap *words)
{
    return (int64_t)words->key_bytes + words->count;
}

bool bp_unigram_fits(const bp_strmap *words)
{
    return most_codes(words) < UINT32_MAX;
}

static void fill_text(suffixes *self, const bp_strmap *words, const bp_strmap *line_ends)
{
    int64_t length = most_codes(words);

    BP_ASSERT(bp_unigram_fits(words));
    self->text = bp_alloc("text.seed", length, sizeof *self->text);
    self->times = bp_alloc("text.seed", length, sizeof *self->times);
    self->ends = bp_alloc("text.seed", length, sizeof *self->ends);
    for (int64_t k = 0; k < words->count; k++) {
        const uint8_t *word = (const uint8_t *)bp_strmap_key(words, k);
        size_t bytes = words->entries[k].bytes;
        const bp_strmap_entry *end = bp_strmap_find(line_ends, (const char *)word, bytes);
        uint32_t first = self->length;

        for (size_t at = 0; at < bytes;)
            at += bp_utf8_decode(word + at, bytes - at, &self->text[self->length++]);
        self->text[self->length++] = 0;
        for (uint32_t at = first; at < self->length; at++) {
            self->times[at] = words->entries[k].value;
            self->ends[at] = !end ? 0 : end->value;
        }
    }
}

/* Suffixes are compared so far: pieces are shorter, so the order of what follows does not matter
 * except for ties, and a text of one repeated word takes no longer than another. */
#define DEPTH 64
_Static_assert(DEPTH > BP_UNIGRAM_LONGEST + 1, "pieces, with the end of their word");

/* Suffixes end with their words; equal ones are in order. */
static int compare_suffixes(const void *left, const void *right, void *context)
{
    const uint32_t *text = context, *a = text + *(const uint32_t *)left,
                   *b = text + *(const uint32_t *)right;

    int k = 0;

    for (; k < DEPTH && *a == *b && *a != 0; k++, a++, b++)
        ;
    if (k < DEPTH && *a != *b)
        return *a < *b ? -1 : 1;
    return *(const uint32_t *)left < *(const uint32_t *)right ? -1 : 1;
}

/* Code points that two suffixes share, the end of a word among them. */
static uint32_t shared(const uint32_t *a, const uint32_t *b)
{
    uint32_t count = 0;

    for (; count < DEPTH && a[count] == b[count]; count++)
        if (a[count] == 0)
            return count + 1;
    return count;
}

/* ---- pieces ---- */

typedef struct seed {
    uint32_t start, length;
    uint64_t score;
} seed;

typedef struct seeds {
    seed *data;
    int64_t count, capacity;
} seeds;

int64_t bp_letter_of(const bp_letters *letters, uint32_t code)
{
    int64_t low = 0, high = letters->count;

    while (low < high) {
        int64_t middle = (low + high) / 2;

        if (letters->codes[middle] < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < letters->count && letters->codes[low] == code ? low : -1;
}

/* U+2581 only at the start; characters of one script, numbers and punctuation apart. */
static bool is_piece(const suffixes *self, const uint32_t *text, uint32_t length)
{
    int script = -1;

    for (uint32_t k = 0; k < length; k++) {
        int64_t letter = text[k] == 0 ? -1 : bp_letter_of(self->letters, text[k]);

        if (text[k] == BP_UNIGRAM_MARK_CODE && k == 0)
            continue;
        if (letter < 0 || text[k] == BP_UNIGRAM_MARK_CODE ||
            (script >= 0 && script != self->scripts[letter]))
            return false;
        script = self->scripts[letter];
    }
    return true;
}

static void add_seed(seeds *out, const suffixes *self, uint32_t start, uint32_t length,
                     int64_t times)
{
    if (times < 2 || length < 2 || length > BP_UNIGRAM_LONGEST ||
        !is_piece(self, self->text + start, length))
        return;
    out->data = bp_grow("text.seed", out->data, &out->capacity, out->count + 1, sizeof *out->data);
    out->data[out->count++] =
        (seed){start, length, (uint64_t)times * length}; /* characters covered */
}

typedef struct interval {
    uint32_t depth, left;
} interval;

/* A substring at the end of words goes on in two ways if it does so to another word and to the end
 * of a line; or if longer words begin with it, which a shorter `parent` shows. */
static void add_repeat(seeds *out, const suffixes *self, interval repeat, uint32_t parent,
                       int64_t times, int64_t at_ends)
{
    uint32_t start = self->sorted[repeat.left];
    bool ends = self->text[start + repeat.depth - 1] == 0;
    uint32_t length = repeat.depth - ends;

    if (!ends || (parent < length && at_ends > 0 && at_ends < times))
        add_seed(out, self, start, length, times);
}

/* The same for a suffix that is there once. */
static void add_single(seeds *out, const suffixes *self, uint32_t at, uint32_t before,
                       uint32_t after)
{
    uint32_t start = self->sorted[at], length = 0;

    while (length <= BP_UNIGRAM_LONGEST && self->text[start + length] != 0)
        length++;
    if (before < length && after < length && self->ends[start] > 0 &&
        self->ends[start] < self->times[start])
        add_seed(out, self, start, length, self->times[start]);
}

/* Every substring that goes on in two ways, once: the inner nodes of the suffix tree of the text.
 */
static void find_repeats(const suffixes *self, seeds *out)
{
    interval *stack = bp_alloc("text.seed", (int64_t)self->length + 1, sizeof *stack);
    int64_t *before = bp_alloc("text.seed", (int64_t)self->length + 1, sizeof *before);
    int64_t *ends = bp_alloc("text.seed", (int64_t)self->length + 1, sizeof *ends);
    int64_t top = 0;

    for (uint32_t k = 0; k < self->length; k++) { /* occurrences of all suffixes before this one */
        before[k + 1] = before[k] + self->times[self->sorted[k]];
        ends[k + 1] = ends[k] + self->ends[self->sorted[k]];
    }
    for (uint32_t k = 1, last = 0, depth; k <= self->length; k++, last = depth) {
        uint32_t left = k - 1;

        depth = k == self->length
                    ? 0
                    : shared(self->text + self->sorted[k - 1], self->text + self->sorted[k]);
        add_single(out, self, k - 1, last, depth);
        for (; top > 0 && stack[top - 1].depth > depth; top--) {
            uint32_t below = top > 1 ? stack[top - 2].depth : 0;

            left = stack[top - 1].left;
            add_repeat(out, self, stack[top - 1], below > depth ? below : depth,
                       before[k] - before[left], ends[k] - ends[left]);
        }
        if (depth > 0 && (top == 0 || stack[top - 1].depth < depth))
            stack[top++] = (interval){depth, left};
    }
    bp_free(stack);
    bp_free(before);
    bp_free(ends);
}

static int by_score(const void *left, const void *right)
{
    const seed *a = left, *b = right;

    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return a->start != b->start ? (a->start < b->start ? -1 : 1)
                                : (a->length > b->length) - (a->length < b->length);
}

static void take_seeds(bp_unigrams *out, const suffixes *self, const seeds *found, int64_t most)
{
    for (int64_t k = 0; k < found->count && k < most; k++) {
        const seed *one = &found->data[k];
        uint8_t name[4 * BP_UNIGRAM_LONGEST];
        size_t bytes = 0;

        for (uint32_t at = 0; at < one->length; at++)
            bytes += bp_utf8_encode(name + bytes, self->text[one->start + at]);
        bp_unigrams_add(out, (char *)name, bytes, (double)one->score);
    }
}

static void to_logarithms(bp_unigrams *pieces)
{
    double sum = 0;

    for (int64_t k = 0; k < pieces->names.count; k++)
        sum += pieces->scores[k];
    for (int64_t k = 0; k < pieces->names.count; k++)
        pieces->scores[k] = log(pieces->scores[k]) - log(sum);
}

int64_t bp_unigram_most_seeds(const bp_strmap *words, int64_t size)
{
    int64_t different = 0, all = 0, most = BP_UNIGRAM_SEED_SHARE * size;

    for (int64_t k = 0; k < words->count; k++) {
        different += words->entries[k].bytes;
        all += words->entries[k].bytes * words->entries[k].value;
    }
    return 2 * different > all && most < BP_UNIGRAM_SEEDS ? most : BP_UNIGRAM_SEEDS;
}

void bp_unigram_seed(bp_unigrams *out, const bp_strmap *words, const bp_strmap *line_ends,
                     const bp_letters *letters, int64_t most)
{
    suffixes self = {.letters = letters};
    seeds found = {0};

    self.scripts = bp_alloc("text.seed", letters->count, 1);
    scripts_of(letters->codes, letters->count, self.scripts);
    fill_text(&self, words, line_ends);
    self.sorted = bp_alloc("text.seed", self.length, sizeof *self.sorted);
    for (uint32_t k = 0; k < self.length; k++)
        self.sorted[k] = k;
    qsort_r(self.sorted, self.length, sizeof *self.sorted, compare_suffixes, self.text);
    find_repeats(&self, &found);
    if (found.count > 0)
        qsort(found.data, (size_t)found.count, sizeof *found.data, by_score);
    for (int64_t k = 0; k < letters->count; k++) {
        uint8_t name[4];

        bp_unigrams_add(out, (char *)name, bp_utf8_encode(name, letters->codes[k]),
                        (double)letters->counts[k]);
    }
    take_seeds(out, &self, &found, most);
    to_logarithms(out);
    bp_free(found.data);
    bp_free(self.sorted);
    bp_free(self.text);
    bp_free(self.times);
    bp_free(self.ends);
    bp_free(self.scripts);
}
