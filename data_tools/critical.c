/* Critical words: which one a label names, and the test of items in several conditions. Called by
 * surprisal.c. */
#include "critical.h"

#include "base/log.h"
#include "base/mem.h"
#include "file_tool.h"
#include "statistics/inference.h"
#include "text/unicode/characters.h"
#include "text/unicode/plain_words.h"
#include "text/unicode/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONDITIONS_MOST 1000     /* half a million pairs */
#define CELLS_MOST      10000000 /* of items and conditions */
#define ROUNDING        1e-9     /* of surprisals: what sums in another order may differ by */

/* ---- the word that a label names ---- */

/* Is it the value, with or without characters after it that are not of words? */
static bool is_word(const scored_words *words, const scored_word *word, const char *value)
{
    const char *text = words->text.data + word->at;
    size_t bytes = strlen(value);

    if (bytes == 0 || word->bytes < bytes || memcmp(text, value, bytes) != 0)
        return false;
    for (size_t at = bytes; at < word->bytes;) {
        uint32_t c = 0;
        size_t length = bp_utf8_decode((const uint8_t *)text + at, word->bytes - at, &c);

        if (length == 0 || bp_character_is_word(c))
            return false;
        at += length;
    }
    return true;
}

/* "4" or "4-6": positions from 1 on. */
static bool read_positions(const char *value, int64_t *first, int64_t *last)
{
    char *after;

    if (value[0] < '1' || value[0] > '9')
        return false;
    *first = *last = strtoll(value, &after, 10);
    if (*after == '-' && after[1] >= '1' && after[1] <= '9')
        *last = strtoll(after + 1, &after, 10);
    return *after == '\0';
}

static bp_err find_text(const scored_words *words, const char *value, int64_t document,
                        int64_t *first)
{
    int64_t found = 0;

    for (int64_t w = 0; w < words->word_count; w++)
        if (is_word(words, &words->words[w], value) && found++ == 0)
            *first = w;
    if (found == 1)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "surprisal.no_critical_word",
                   "the critical word '%.100s' is in document %" PRId64 " %" PRId64
                   " times: at --critical; the label names a word that is there once, or its "
                   "position (4, or 4-6 for several words)",
                   value, document, found);
}

bp_err critical_find(const scored_words *words, const char *value, int64_t document, int64_t *first,
                     int64_t *end)
{
    int64_t last = 0;
    bp_err err;

    if (read_positions(value, first, &last)) {
        *first -= 1;
        *end = last;
        if (*first < *end && *end <= words->word_count)
            return BP_OK;
        return BP_FAIL(BP_ERR_FORMAT, "surprisal.no_critical_word",
                       "there is no position %.100s in document %" PRId64 ", which has %" PRId64
                       " words: at --critical; positions are counted from 1",
                       value, document, words->word_count);
    }
    err = find_text(words, value, document, first);
    *end = *first + 1;
    return err;
}

char *critical_text(const scored_words *words, int64_t first, int64_t end)
{
    bp_buffer all = {0}, word = {0};

    for (int64_t w = first; w < end; w++) {
        const char *text = words->text.data + words->words[w].at;
        size_t bytes = words->words[w].bytes, at = 0;

        while (bp_plain_word(text, bytes, &at, &word))
            bp_buffer_printf(&all, "%s%.*s", all.bytes > 0 ? " " : "", (int)word.bytes, word.data);
    }
    if (all.bytes == 0)
        bp_buffer_add(&all, words->text.data + words->words[first].at, words->words[first].bytes);
    bp_buffer_add(&all, "", 1);
    bp_buffer_clear(&word);
    return bp_buffer_take(&all);
}

/* ---- the test ---- */

/* Of the documents of an item in a condition. */
typedef struct cell {
    double sum;
    int64_t count;
} cell;

typedef struct paired_row {
    int64_t model, one, other; /* values of `between` */
    int64_t items, unpaired;
    double mean_one, mean_other, difference, t, p, p_holm;
    bp_interval interval;
} paired_row;

/* cells[items][conditions] of a model. */
static void fill_cells(const critical_test *test, int64_t model, cell *cells)
{
    int64_t conditions = test->between->value_count;

    memset(cells, 0, (size_t)(test->items->value_count * conditions) * sizeof *cells);
    for (int64_t d = 0; d < test->documents; d++) {
        int64_t item = test->items->codes[d], condition = test->between->codes[d];
        double value = test->values[model][d];

        if (item < 0 || condition < 0 || isnan(value))
            continue;
        cells[item * conditions + condition].sum += value;
        cells[item * conditions + condition].count++;
    }
}

/* The critical words of an item in a condition, sorted: [first, end) of `all`. */
typedef struct cell_word {
    int64_t cell;
    const char *word; /* borrowed */
} cell_word;

static int by_cell_and_word(const void *a, const void *b)
{
    const cell_word *one = a, *other = b;

    if (one->cell != other->cell)
        return one->cell < other->cell ? -1 : 1;
    return strcmp(one->word, other->word);
}

/* Do two cells that both have documents differ in their words, in any order? So an item that has
 * `was` and `were` in both conditions is balanced. The first words that differ are in shown[2]. */
static bool is_different(const cell_word *all, const int64_t *starts, int64_t one, int64_t other,
                         const char **shown)
{
    int64_t a = starts[one], b = starts[other];

    if (a == starts[one + 1] || b == starts[other + 1])
        return false;
    while (a < starts[one + 1] && b < starts[other + 1] && strcmp(all[a].word, all[b].word) == 0) {
        a++;
        b++;
    }
    if (a == starts[one + 1] && b == starts[other + 1])
        return false;
    shown[0] = all[a < starts[one + 1] ? a : starts[one]].word;
    shown[1] = all[b < starts[other + 1] ? b : starts[other]].word;
    return strcmp(shown[0], shown[1]) != 0; /* not one word more often */
}

/* Warns of the two conditions in which most items have different critical words: positions that
 * punctuation or an added word shifts. */
static void warn_of_words(const critical_test *test, const int64_t *used, int64_t used_count)
{
    int64_t conditions = test->between->value_count, cells = test->items->value_count * conditions;
    int64_t most = 0, pair[2] = {0}, item = 0, count = 0;
    int64_t *starts = bp_alloc("tool.words", cells + 1, sizeof *starts);
    cell_word *all = bp_alloc("tool.words", test->documents, sizeof *all);
    const char *words[2] = {"", ""}, *shown[2] = {"", ""};

    for (int64_t d = 0; d < test->documents; d++)
        if (test->words[d] && test->items->codes[d] >= 0 && test->between->codes[d] >= 0) {
            int64_t at = test->items->codes[d] * conditions + test->between->codes[d];

            all[count++] = (cell_word){at, test->words[d]};
            starts[at + 1]++;
        }
    if (count > 0)
        qsort(all, (size_t)count, sizeof *all, by_cell_and_word);
    for (int64_t k = 0; k < cells; k++)
        starts[k + 1] += starts[k];
    for (int64_t a = 0; a < used_count; a++)
        for (int64_t b = a + 1; b < used_count; b++) {
            const char *first[2] = {"", ""};
            int64_t different = 0, at = 0;

            for (int64_t i = test->items->value_count; i-- > 0;)
                if (is_different(all, starts, i * conditions + used[a], i * conditions + used[b],
                                 words)) {
                    different++;
                    at = i;
                    memcpy(first, words, sizeof first);
                }
            if (different > most) {
                most = different;
                item = at;
                memcpy(shown, first, sizeof shown);
                pair[0] = used[a];
                pair[1] = used[b];
            }
        }
    if (most > 0)
        BP_WARN("surprisal.different_words",
                "%" PRId64 " items have different critical words in '%.100s' and '%.100s', such as "
                "'%.100s' and '%.100s' of item '%.100s': at --critical; their own probabilities "
                "are part of the difference: if one word is meant, mend the positions, and count "
                "punctuation that stands apart as a word",
                most, test->between->values[pair[0]], test->between->values[pair[1]], shown[0],
                shown[1], test->items->values[item]);
    bp_free(starts);
    bp_free(all);
}

static double mean_of(const cell *one)
{
    return one->sum / (double)one->count;
}

static void compare_pair(const critical_test *test, const cell *cells, paired_row *row)
{
    int64_t conditions = test->between->value_count;
    double squares = 0, deviation, rounding;

    row->interval = (bp_interval){NAN, NAN};
    row->t = row->p = NAN;
    for (int64_t i = 0; i < test->items->value_count; i++) {
        const cell *one = &cells[i * conditions + row->one],
                   *other = &cells[i * conditions + row->other];

        row->unpaired += (one->count > 0) != (other->count > 0);
        if (one->count == 0 || other->count == 0)
            continue;
        row->items++;
        row->mean_one += (mean_of(one) - row->mean_one) / (double)row->items;
        row->mean_other += (mean_of(other) - row->mean_other) / (double)row->items;
    }
    row->difference = row->mean_one - row->mean_other;
    rounding = ROUNDING * (fabs(row->mean_one) + fabs(row->mean_other));
    if (fabs(row->difference) <= rounding)
        row->difference = 0;
    if (row->items < BP_FEW_DOCUMENTS)
        return;
    for (int64_t i = 0; i < test->items->value_count; i++) {
        const cell *one = &cells[i * conditions + row->one],
                   *other = &cells[i * conditions + row->other];

        if (one->count > 0 && other->count > 0)
            squares += pow(mean_of(one) - mean_of(other) - row->difference, 2);
    }
    deviation = sqrt(squares / (double)(row->items - 1) / (double)row->items);
    if (deviation > rounding) {
        double half = bp_student_quantile((double)(row->items - 1)) * deviation;

        row->t = row->difference / deviation;
        row->p = bp_student_two_sided(row->t, (double)(row->items - 1));
        row->interval = (bp_interval){row->difference - half, row->difference + half};
    }
}

/* Values of `between` that documents with a critical word have. */
static int64_t list_conditions(const critical_test *test, int64_t *used)
{
    int64_t count = 0;

    for (int64_t v = 0; v < test->between->value_count; v++) {
        bool has = false;

        for (int64_t d = 0; d < test->documents && !has; d++)
            has = test->between->codes[d] == v && !isnan(test->values[0][d]);
        if (has)
            used[count++] = v;
    }
    return count;
}

static void print_row(const critical_test *test, const paired_row *row)
{
    const double figures[] = {
        row->mean_one,      row->mean_other, row->difference, row->interval.low,
        row->interval.high, row->t,          row->p,          row->p_holm};

    put_csv(stdout, test->names[row->model], SIZE_MAX);
    putchar(',');
    put_csv(stdout, test->between->values[row->one], SIZE_MAX);
    putchar(',');
    put_csv(stdout, test->between->values[row->other], SIZE_MAX);
    printf(",%" PRId64, row->items);
    for (size_t k = 0; k < sizeof figures / sizeof figures[0]; k++)
        put_csv_real(stdout, row->items > 0 ? figures[k] : NAN);
    putchar('\n');
}

static void warn_of(const critical_test *test, const paired_row *rows, int64_t count)
{
    const paired_row *most = &rows[0], *least = &rows[0];

    for (int64_t k = 0; k < count; k++)
        if (rows[k].items >= BP_FEW_DOCUMENTS && isnan(rows[k].t))
            BP_WARN("surprisal.equal_differences",
                    "all %" PRId64 " items of %.100s have the same difference between '%.100s' and "
                    "'%.100s', %.6g: at --between; there is no t, no p and no interval (an n-gram "
                    "model gives contexts that differ farther back one surprisal)",
                    rows[k].items, test->names[rows[k].model], test->between->values[rows[k].one],
                    test->between->values[rows[k].other], rows[k].difference);
    for (int64_t k = 1; k < count; k++) {
        most = rows[k].unpaired > most->unpaired ? &rows[k] : most;
        least = rows[k].items < least->items ? &rows[k] : least;
    }
    if (most->unpaired > 0)
        BP_WARN("surprisal.unpaired_items",
                "%" PRId64 " item%s a critical word in one of '%.100s' and '%.100s' only: at "
                "--items; left out there: give each item in all conditions",
                most->unpaired, most->unpaired == 1 ? " has" : "s have",
                test->between->values[most->one], test->between->values[most->other]);
    if (least->items < BP_FEW_DOCUMENTS)
        BP_WARN("surprisal.few_items",
                "%" PRId64 " items are in both '%.100s' and '%.100s': at --items; there is no "
                "interval and no p below %d",
                least->items, test->between->values[least->one],
                test->between->values[least->other], BP_FEW_DOCUMENTS);
}

bp_err critical_check(const critical_test *test)
{
    int64_t conditions = test->between->value_count, items = test->items->value_count;

    if (test->between == test->items)
        return BP_FAIL(BP_ERR_USAGE, "surprisal.no_items",
                       "label '%.100s' is that of the conditions too: at --items; name the label "
                       "that says which documents are of one item",
                       test->items->name);
    if (conditions <= CONDITIONS_MOST && (conditions == 0 || items <= CELLS_MOST / conditions))
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "surprisal.many_conditions",
                   "label '%.100s' has %" PRId64 " values, and label '%.100s' %" PRId64
                   ": at --between and --items; at most %d conditions are compared, name the "
                   "labels of conditions and of items",
                   test->between->name, conditions, test->items->name, items, CONDITIONS_MOST);
}

bp_err critical_print(const critical_test *test)
{
    int64_t conditions = test->between->value_count, count = 0, used_count;
    int64_t *used = bp_alloc("tool.words", conditions, sizeof *used);
    cell *cells = bp_alloc("tool.words", test->items->value_count * conditions, sizeof *cells);
    paired_row *rows;
    double *p;
    bp_err err = BP_OK;

    used_count = list_conditions(test, used);
    if (used_count < 2)
        err = BP_FAIL(BP_ERR_FORMAT, "surprisal.one_condition",
                      "%" PRId64 " value%s of label '%.100s' %s documents with a critical word: at "
                      "--between; there is nothing to compare",
                      used_count, used_count == 1 ? "" : "s", test->between->name,
                      used_count == 1 ? "has" : "have");
    rows = bp_alloc("tool.words", test->models * used_count * used_count, sizeof *rows);
    p = bp_alloc("tool.words", test->models * used_count * used_count, sizeof *p);
    for (int64_t m = 0; err == BP_OK && m < test->models; m++) {
        fill_cells(test, m, cells);
        for (int64_t a = 0; a < used_count; a++)
            for (int64_t b = a + 1; b < used_count; b++, count++) {
                rows[count] = (paired_row){.model = m, .one = used[a], .other = used[b]};
                compare_pair(test, cells, &rows[count]);
                p[count] = rows[count].p;
            }
    }
    if (err == BP_OK)
        err = bp_holm_adjust(p, count);
    if (err == BP_OK) {
        printf("model,a,b,items,mean_a,mean_b,difference,low,high,t,p_value,p_holm\n");
        for (int64_t k = 0; k < count; k++) {
            rows[k].p_holm = p[k];
            print_row(test, &rows[k]);
        }
        warn_of(test, rows, count);
        warn_of_words(test, used, used_count);
    }
    bp_free(p);
    bp_free(rows);
    bp_free(cells);
    bp_free(used);
    return err;
}
