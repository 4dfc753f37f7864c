/* The documents of one score folder by the values of a label, the hardest first, and each pair of
 * values beside each other. Called by compare.c. */
#include "compare_groups.h"

#include "base/buffer.h"
#include "base/mem.h"
#include "base/printable.h"
#include "clean_part.h"
#include "comparison_columns.h"
#include "file_tool.h"
#include "statistics/ratio.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define VALUES_MOST 1000     /* half a million pairs */
#define ITEM_CELLS  10000000 /* values of two labels */
#define CORPUS      "corpus" /* a label that all scores have */

/* ---- the values ---- */

typedef struct label_value {
    const char *text;                /* as it is; borrowed */
    char *name;                      /* to be shown: without control characters, "" if empty */
    bp_ratio figures[SCORE_FIGURES]; /* nats a token, a byte, a word */
} label_value;

typedef struct between {
    const score_folder *scores;
    const score_label *label;
    clean_part clean;    /* without a label all documents count */
    int figure, other;   /* other: bits a byte, or perplexity, by which pairs are tested too */
    label_value *values; /* those that documents have, the hardest first */
    int64_t count;
    int64_t left_out;          /* scored documents without a unit of the figure: a word */
    bool known[SCORE_FIGURES]; /* is the figure that of all scored text? */
} between;

/* A pair of values: how much harder the first one is. */
typedef struct value_pair {
    const label_value *harder, *easier;
    double difference; /* nats per unit */
    bp_interval interval;
    double p, p_holm;
    double other_difference, other_holm; /* by the other figure */
} value_pair;

static void add_document(between *b, label_value *value, int64_t d)
{
    const score_folder *scores = b->scores;
    const int64_t units[SCORE_FIGURES] = {scores->tokens[d], scores->bytes[d], scores->words[d]};

    for (int f = 0; f < SCORE_FIGURES; f++)
        bp_ratio_add(&value->figures[f], scores->nll[d], (double)units[f]);
    b->left_out += units[b->figure] <= 0;
}

static double nats(const between *b, const label_value *value)
{
    return bp_ratio_mean(&value->figures[b->figure]);
}

/* The hardest first; qsort has no argument for the figure. */
static void sort_values(between *b)
{
    for (int64_t k = 1; k < b->count; k++)
        for (int64_t i = k; i > 0 && nats(b, &b->values[i]) > nats(b, &b->values[i - 1]); i--) {
            label_value value = b->values[i];

            b->values[i] = b->values[i - 1];
            b->values[i - 1] = value;
        }
}

static bp_err read_values(between *b)
{
    const score_folder *scores = b->scores;
    int64_t n = b->label->value_count, kept = 0;

    b->known[PERPLEXITY] = true;
    b->known[BITS_PER_BYTE] = json_is_integer(json_object_get(scores->summary, "bytes"));
    b->known[WORD_PERPLEXITY] = json_is_integer(json_object_get(scores->summary, "words"));
    if (!b->known[b->figure])
        return BP_FAIL(BP_ERR_FORMAT, "compare.no_figure",
                       "there is no %s: not all text was scored, or its bytes and words are not "
                       "known: at %s; compare the perplexity",
                       score_figure_names[b->figure], scores->given);
    b->values = bp_alloc("tool.values", n, sizeof *b->values);
    b->count = n;
    for (int64_t v = 0; v < n; v++) {
        const char *text = b->label->values[v];

        b->values[v].text = text;
        b->values[v].name = bp_printable(text[0] != '\0' ? text : "\"\"");
    }
    for (int64_t d = 0; d < scores->documents; d++)
        if (b->label->codes[d] >= 0 && scores->tokens[d] > 0 && clean_part_has(&b->clean, d))
            add_document(b, &b->values[b->label->codes[d]], d);
    for (int64_t v = 0; v < n; v++)
        if (b->values[v].figures[b->figure].documents > 0)
            b->values[kept++] = b->values[v];
        else
            bp_free(b->values[v].name);
    b->count = kept;
    if (kept < 2)
        return BP_FAIL(BP_ERR_FORMAT, "compare.one_value",
                       "%" PRId64
                       " value%s of label '%.100s' %s scored documents%s: at %s; there is "
                       "nothing to compare",
                       kept, kept == 1 ? "" : "s", b->label->name, kept == 1 ? "has" : "have",
                       b->clean.label ? " that are clean" : "", scores->given);
    if (kept > VALUES_MOST)
        return BP_FAIL(BP_ERR_FORMAT, "compare.many_values",
                       "%" PRId64 " values of label '%.100s' have scored documents, and at most %d "
                       "are compared with one another: at %s; use a label with fewer values",
                       kept, b->label->name, VALUES_MOST, scores->given);
    sort_values(b);
    return BP_OK;
}

/* All pairs, in the order of values. */
static bp_err make_pairs(const between *b, value_pair *pairs, int64_t n)
{
    double *p = bp_alloc("tool.values", 2 * n, sizeof *p), *others = p + n;
    int64_t k = 0;
    bp_err err;

    for (int64_t i = 0; i < b->count; i++)
        for (int64_t j = i + 1; j < b->count; j++, k++) {
            const label_value *one = &b->values[i], *other = &b->values[j];

            pairs[k] = (value_pair){
                .harder = one, .easier = other, .difference = nats(b, one) - nats(b, other)};
            pairs[k].interval = bp_ratio_difference(&one->figures[b->figure],
                                                    &other->figures[b->figure], &pairs[k].p);
            p[k] = pairs[k].p;
            (void)bp_ratio_difference(&one->figures[b->other], &other->figures[b->other],
                                      &others[k]);
            pairs[k].other_difference =
                bp_ratio_mean(&one->figures[b->other]) - bp_ratio_mean(&other->figures[b->other]);
        }
    err = bp_holm_adjust(p, n);
    if (err == BP_OK)
        err = bp_holm_adjust(others, n);
    for (k = 0; k < n; k++) {
        pairs[k].p_holm = p[k];
        pairs[k].other_holm = others[k];
    }
    bp_free(p);
    return err;
}

/* ---- what is printed ---- */

static double figure_of(const between *b, const label_value *value, int f)
{
    double mean = bp_ratio_mean(&value->figures[f]);

    if (!b->known[f])
        return NAN;
    return f == BITS_PER_BYTE ? mean / log(2) : exp(mean);
}

/* A ratio of perplexities, or a difference in bits per byte. */
static double between_of(const between *b, double difference)
{
    return b->figure == BITS_PER_BYTE ? difference / log(2) : exp(difference);
}

static bp_interval interval_of(const between *b, const value_pair *pair)
{
    return (bp_interval){between_of(b, pair->interval.low), between_of(b, pair->interval.high)};
}

#define SHOWN_BYTES 60 /* of a value beside another */

/* Only whole characters. */
static int shown_bytes(const char *text)
{
    size_t bytes = strnlen(text, SHOWN_BYTES + 1);

    if (bytes <= SHOWN_BYTES)
        return (int)bytes;
    do
        bytes--;
    while (bytes > 0 && ((unsigned char)text[bytes] & 0xc0) == 0x80);
    return (int)bytes;
}

static char *pair_name(const value_pair *pair)
{
    const char *one = pair->harder->name, *other = pair->easier->name;

    return bp_sprintf("%.*s, %.*s", shown_bytes(one), one, shown_bytes(other), other);
}

#define SMALL_P 0.05 /* adjusted by Holm: the pair differs */

/* Does a pair that differs by the figure differ by the other one too? */
static const char *agreement(const between *b, const value_pair *pair)
{
    if (!b->known[b->other] || !(pair->p_holm < SMALL_P))
        return "";
    if (!(pair->other_holm < SMALL_P))
        return "no";
    return (pair->difference > 0) == (pair->other_difference > 0) ? "yes" : "reversed";
}

/* What may be concluded of all pairs. */
static void print_agreement(const between *b, const value_pair *pairs, int64_t n)
{
    int64_t differ = 0, others = 0, both = 0;

    for (int64_t k = 0; k < n; k++) {
        differ += pairs[k].p_holm < SMALL_P;
        others += pairs[k].other_holm < SMALL_P;
        both += strcmp(agreement(b, &pairs[k]), "yes") == 0;
    }
    if (b->known[b->other] && differ + others > 0)
        printf("Pairs that differ (Holm below 0.05): %" PRId64 " by %s, %" PRId64 " by %s, %" PRId64
               " by both in one direction.\n",
               differ, score_figure_names[b->figure], others, score_figure_names[b->other], both);
}

static void print_pairs(const between *b, const value_pair *pairs, int64_t n, int width)
{
    bool bits = b->figure == BITS_PER_BYTE;
    int64_t compared = 0;

    printf("\n%*s %7s  %-22s %6s %6s%s\n", width, "", bits ? "less" : "ratio", "95 % interval", "p",
           "Holm",
           !b->known[b->other] ? ""
           : bits              ? "  by ppl"
                               : "  by bits");
    for (int64_t k = 0; k < n; k++) {
        char *name = pair_name(&pairs[k]);

        put_name(name, width);
        put_number(7, 4, between_of(b, pairs[k].difference));
        put_interval(22, interval_of(b, &pairs[k]), 4, "[%.*f, %.*f]");
        put_p_value(pairs[k].p);
        put_p_value(pairs[k].p_holm);
        printf("%s%s\n", agreement(b, &pairs[k])[0] != '\0' ? "  " : "", agreement(b, &pairs[k]));
        bp_free(name);
        compared += !isnan(pairs[k].p);
    }
    printf("\nThe first of a pair is harder by its %s: %s of the two.\n"
           "Intervals and p are of Welch's t between documents, from %d documents on each side.\n",
           score_figure_names[b->figure], bits ? "difference in bits" : "ratio", BP_FEW_DOCUMENTS);
    if (score_folder_cluster(b->scores)) {
        printf("They are not over the clusters of score.cluster (");
        put_clean(score_folder_cluster(b->scores), SIZE_MAX, "");
        printf("), and too short where documents of a cluster depend on each other.\n");
    }
    if (compared > 1)
        printf("%" PRId64 " pairs were compared: Holm is p adjusted for that.\n", compared);
    print_agreement(b, pairs, n);
    if (score_folder_lost(b->scores)) {
        printf("The tokens do not spell the text (");
        put_clean(score_folder_lost(b->scores), SIZE_MAX, "");
        printf("): a value with more of that looks easier than it is.\n");
    }
}

/* A label whose values documents of several compared values have once each, such as the items of an
 * experiment; NULL: none. */
static const score_label *find_items(const between *b)
{
    const score_folder *scores = b->scores;
    int64_t conditions = b->label->value_count;

    for (int64_t k = 0; k < scores->label_count; k++) {
        const score_label *label = &scores->labels[k];
        int64_t paired = 0, documents = 0;
        bool once = label != b->label && label->value_count > 1 &&
                    label->value_count <= ITEM_CELLS / conditions;
        uint8_t *seen = once ? bp_alloc("tool.values", label->value_count * conditions, 1) : NULL;

        for (int64_t d = 0; once && d < scores->documents; d++) {
            int64_t item = label->codes[d], condition = b->label->codes[d];

            if (item < 0 || condition < 0)
                continue;
            once = seen[item * conditions + condition]++ == 0;
            documents++;
        }
        for (int64_t i = 0; once && i < label->value_count; i++) {
            int64_t has = 0;

            for (int64_t c = 0; c < conditions; c++)
                has += seen[i * conditions + c];
            paired += has > 1 ? has : 0;
        }
        bp_free(seen);
        if (once && paired > 0 && 2 * paired >= documents)
            return label;
    }
    return NULL;
}

static void print_items(const between *b)
{
    const score_label *items = find_items(b);

    if (!items)
        return;
    printf("Values of the label ");
    put_clean(items->name, SIZE_MAX, "");
    printf(
        " are in several of these groups, once each: if they are items in conditions, documents "
        "are paired, and\np is not for them. bagpipe-data surprisal --critical LABEL --between ");
    put_clean(b->label->name, SIZE_MAX, "");
    printf(" --items ");
    put_clean(items->name, SIZE_MAX, "");
    printf(" tests their critical words.\n");
}

/* Documents that no row has, such as those of a corpus that was made without the label. */
static int64_t without_label(const between *b)
{
    int64_t lack = 0;

    for (int64_t d = 0; d < b->scores->documents; d++)
        lack += b->label->codes[d] < 0;
    return lack;
}

static void print_all(const between *b, const value_pair *pairs, int64_t n)
{
    int width = 18;

    for (int64_t k = 0; k < n; k++) {
        char *name = pair_name(&pairs[k]);

        width = text_width(name) > width ? text_width(name) : width;
        bp_free(name);
    }
    char *note = b->clean.label ? clean_part_note(&b->clean) : NULL;
    int64_t lack = without_label(b);
    char *known = score_folder_known(b->scores);

    put_side("scores", b->scores);
    if (known)
        printf("note: %s\n", known);
    if (note)
        printf("Clean: %s.\n", note);
    if (lack > 0) {
        printf("note: %" PRId64 " of %" PRId64 " documents have no label ", lack,
               b->scores->documents);
        put_clean(b->label->name, SIZE_MAX, "");
        printf(", and are left out\n");
    }
    bp_free(note);
    bp_free(known);
    printf("\n%*s %9s %12s %12s %12s\n", width, "", "documents", "perplexity", "bits/byte",
           "word ppl");
    for (int64_t k = 0; k < b->count; k++) {
        put_name(b->values[k].name, width);
        put_number(9, 0, b->values[k].figures[b->figure].documents);
        for (int f = 0; f < SCORE_FIGURES; f++)
            put_number(12, 4, figure_of(b, &b->values[k], f));
        putchar('\n');
    }
    print_pairs(b, pairs, n, width);
    if (b->left_out > 0)
        printf("%" PRId64 " scored documents without a %s are left out.\n", b->left_out,
               b->figure == BITS_PER_BYTE ? "byte" : "word");
    print_items(b);
}

static bp_err save_csv(const between *b, const value_pair *pairs, int64_t n, const char *path)
{
    table_file file;
    bp_err err = table_file_begin(&file);

    if (err != BP_OK)
        return err;
    fprintf(file.out,
            "label,harder,easier,figure,harder_figure,easier_figure,harder_documents,"
            "easier_documents,%s,low,high,p_value,p_holm,other_figure,other_p_holm,agrees\n",
            b->figure == BITS_PER_BYTE ? "difference" : "ratio");
    for (int64_t k = 0; k < n; k++) {
        const label_value *const sides[2] = {pairs[k].harder, pairs[k].easier};
        bp_interval interval = interval_of(b, &pairs[k]);

        put_csv(file.out, b->label->name, SIZE_MAX);
        for (int s = 0; s < 2; s++) {
            putc(',', file.out);
            put_csv(file.out, sides[s]->text, SIZE_MAX);
        }
        fprintf(file.out, ",%s", score_figure_names[b->figure]);
        for (int s = 0; s < 2; s++)
            put_csv_real(file.out, figure_of(b, sides[s], b->figure));
        for (int s = 0; s < 2; s++)
            put_csv_real(file.out, sides[s]->figures[b->figure].documents);
        put_csv_real(file.out, between_of(b, pairs[k].difference));
        put_csv_real(file.out, interval.low);
        put_csv_real(file.out, interval.high);
        put_csv_real(file.out, pairs[k].p);
        put_csv_real(file.out, pairs[k].p_holm);
        fprintf(file.out, ",%s", score_figure_names[b->other]);
        put_csv_real(file.out, b->known[b->other] ? pairs[k].other_holm : NAN);
        fprintf(file.out, ",%s\n", agreement(b, &pairs[k]));
    }
    return table_file_save(&file, path);
}

/* The corpora as the values of a label. */
static void add_corpus_label(score_folder *scores)
{
    int64_t *codes = bp_alloc("tool.scores", scores->documents, sizeof *codes);

    for (int64_t k = 0; k < scores->corpora; k++)
        for (int64_t d = scores->corpus_start[k]; d < scores->corpus_start[k + 1]; d++)
            codes[d] = k;
    (void)score_folder_add_label(scores, CORPUS, scores->corpus_names, scores->corpora, codes);
}

bp_err compare_groups(score_folder *scores, const char *label, const char *figure,
                      const char *clean, const char *csv)
{
    between b = {.scores = scores};
    value_pair *pairs = NULL;
    int64_t n;
    bp_err err = score_figure_find(&b.figure, figure);

    b.other = b.figure == BITS_PER_BYTE ? PERPLEXITY : BITS_PER_BYTE;
    if (err == BP_OK)
        err = score_folder_check_zeros(scores);
    if (err == BP_OK && strcmp(label, CORPUS) == 0 && !score_folder_label(scores, CORPUS))
        add_corpus_label(scores);
    if (err == BP_OK && clean)
        err = clean_part_add(&b.clean, scores, clean);
    b.label = err == BP_OK ? score_folder_label(scores, label) : NULL;
    if (err == BP_OK && !b.label)
        err = score_folder_refuse_label(scores, label, ", or compare corpora by --between corpus");
    if (err == BP_OK)
        err = read_values(&b);
    n = b.count * (b.count - 1) / 2;
    if (err == BP_OK) {
        pairs = bp_alloc("tool.values", n, sizeof *pairs);
        err = make_pairs(&b, pairs, n);
    }
    if (err == BP_OK)
        print_all(&b, pairs, n);
    if (err == BP_OK && csv)
        err = save_csv(&b, pairs, n, csv);
    for (int64_t k = 0; k < b.count; k++)
        bp_free(b.values[k].name);
    bp_free(b.values);
    bp_free(pairs);
    return err;
}
