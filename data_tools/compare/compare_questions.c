/* Two runs of score.questions, question by question. Called by compare.c. */
#include "compare_questions.h"

#include "base/mem.h"
#include "base/printable.h"
#include "comparison_columns.h"
#include "file_tool.h"
#include "output.h"
#include "questions/answers.h"
#include "statistics/inference.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_WIDTH = 18, NAME_WIDTH_MAX = 40, A = 0, B = 1 };

/* Questions of both sides: all, a task's, or a group's of it. */
typedef struct question_group {
    const char *task, *group; /* borrowed; NULL: all */
    int64_t questions;        /* compared ones */
    int64_t right[2], only[2];
    double difference, p, p_holm; /* B - A */
    bp_interval interval;
} question_group;

typedef struct pairing {
    answers sides[2];
    question_group *groups;
    int64_t count;
    int64_t compared, ties[2], unknown; /* questions; the last without an answer or a value */
} pairing;

/* ---- the same questions ---- */

static bp_err check_questions(const pairing *all)
{
    const answers *a = &all->sides[A], *b = &all->sides[B];
    int64_t least = a->count < b->count ? a->count : b->count;

    for (int64_t k = 0; k < least; k++)
        if (a->lines[k].asked != b->lines[k].asked ||
            strcmp(a->lines[k].task, b->lines[k].task) != 0)
            return BP_FAIL(BP_ERR_FORMAT, "compare.other_questions",
                           "question %" PRId64 " is another one: at %s and %s; compare runs of one "
                           "question set",
                           k + 1, a->lines_path, b->lines_path);
    if (a->count == b->count)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "compare.other_questions",
                   "%" PRId64 " questions and %" PRId64 ": at %s and %s; compare runs of one "
                   "question set",
                   a->count, b->count, a->lines_path, b->lines_path);
}

/* ---- groups ---- */

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static question_group *group_of(pairing *all, const char *task, const char *group)
{
    for (int64_t k = 0; k < all->count; k++)
        if (same(all->groups[k].task, task) && same(all->groups[k].group, group))
            return &all->groups[k];
    all->groups = bp_realloc("tool.groups", all->groups, all->count + 1, sizeof *all->groups);
    all->groups[all->count] = (question_group){.task = task, .group = group, .p = NAN};
    return &all->groups[all->count++];
}

static void count_question(question_group *to, bool a, bool b)
{
    to->questions++;
    to->right[A] += a;
    to->right[B] += b;
    to->only[A] += a && !b;
    to->only[B] += b && !a;
}

static void count_questions(pairing *all)
{
    for (int64_t k = 0; k < all->sides[A].count; k++) {
        const answers_line *a = &all->sides[A].lines[k], *b = &all->sides[B].lines[k];

        (void)group_of(all, NULL, NULL);
        (void)group_of(all, a->task, NULL);
        if (isnan(a->right) || isnan(b->right)) {
            all->unknown++;
            continue;
        }
        all->ties[A] += a->tie;
        all->ties[B] += b->tie;
        if (a->tie || b->tie)
            continue;
        all->compared++;
        count_question(group_of(all, NULL, NULL), a->right > 0, b->right > 0);
        count_question(group_of(all, a->task, NULL), a->right > 0, b->right > 0);
        if (a->group)
            count_question(group_of(all, a->task, a->group), a->right > 0, b->right > 0);
    }
}

/* All questions are a row of their own only beside several tasks. */
static bool is_shown(const pairing *all, const question_group *group)
{
    int64_t tasks = 0;

    for (int64_t k = 0; k < all->count; k++)
        tasks += all->groups[k].task && !all->groups[k].group;
    return group->questions > 0 && (group->task || tasks > 1);
}

static bp_err test(pairing *all)
{
    double *p = bp_alloc("tool.groups", all->count, sizeof *p);
    bp_err err;

    for (int64_t k = 0; k < all->count; k++) {
        question_group *group = &all->groups[k];

        group->difference = (double)(group->right[B] - group->right[A]) / (double)group->questions;
        if (group->questions > 0)
            group->p = bp_paired_shares(&group->interval, group->only[A], group->only[B],
                                        group->questions);
        if (group->questions < BP_FEW_DOCUMENTS)
            group->p = NAN;
        p[k] = is_shown(all, group) ? group->p : NAN;
    }
    err = bp_holm_adjust(p, all->count);
    for (int64_t k = 0; k < all->count; k++)
        all->groups[k].p_holm = p[k];
    bp_free(p);
    return err;
}

/* ---- output ---- */

static char *spell(const question_group *group)
{
    char *text = !group->task   ? bp_strdup("all")
                 : group->group ? bp_sprintf("%s %s", group->task, group->group)
                                : bp_strdup(group->task),
         *clean = bp_printable(text);

    bp_free(text);
    return clean;
}

static int widest_name(const pairing *all)
{
    int widest = NAME_WIDTH;

    for (int64_t k = 0; k < all->count; k++) {
        char *name = spell(&all->groups[k]);

        if (is_shown(all, &all->groups[k]) && text_width(name) > widest)
            widest = text_width(name);
        bp_free(name);
    }
    return widest < NAME_WIDTH_MAX ? widest : NAME_WIDTH_MAX;
}

static void print_verdict(const pairing *all, const char *figure)
{
    const question_group *group = &all->groups[0];
    bp_interval of = group->interval;

    if (group->questions < BP_FEW_DOCUMENTS)
        printf("No verdict: it takes %d questions or more, and there are %" PRId64 ".\n",
               BP_FEW_DOCUMENTS, group->questions);
    else if (group->p >= 0.05)
        printf("No clear difference: %s of B minus %s of A is %+.4f (95 %%: %+.4f to %+.4f), p "
               "%.2g.\n",
               figure, figure, group->difference, of.low, of.high, group->p);
    else
        printf("%s answers better: %s of B minus %s of A is %+.4f (95 %%: %+.4f to %+.4f), p "
               "%.2g.\n",
               group->difference > 0 ? "B" : "A", figure, figure, group->difference, of.low,
               of.high, group->p);
}

static void print_left_out(const pairing *all)
{
    for (int side = 0; side < 2; side++)
        if (all->ties[side] > 0)
            printf("note: of %s the answer of %" PRId64 " of %" PRId64 " questions is one of "
                   "several equally good options: they are left out on both sides\n",
                   side == A ? "A" : "B", all->ties[side], all->sides[side].count);
    if (all->unknown > 0)
        printf("note: %" PRId64 " questions without an answer or without a value are left out\n",
               all->unknown);
    char *differs = answers_differences(all->sides[A].summary, all->sides[B].summary);
    if (differs)
        printf("note: A and B differ in %s\n", differs);
    bp_free(differs);
}

static void print_table(const pairing *all, const char *figure)
{
    int width = widest_name(all);

    printf("A: %s\nB: %s\n", shown_path(all->sides[A].given), shown_path(all->sides[B].given));
    print_left_out(all);
    putchar('\n');
    print_verdict(all, figure);
    printf("\n%*s questions %8s A %8s B   B - A  %-18s only A only B %6s %6s\n", width, "", figure,
           figure, "95 % interval", "p", "Holm");
    for (int64_t k = 0; k < all->count; k++) {
        const question_group *group = &all->groups[k];
        char *name = spell(group);

        if (is_shown(all, group)) {
            put_name(name, width);
            printf(" %9" PRId64, group->questions);
            put_number(10, 4, (double)group->right[A] / (double)group->questions);
            put_number(10, 4, (double)group->right[B] / (double)group->questions);
            printf(" %+.4f", group->difference);
            put_interval(18, group->interval, 4, "[%+.*f, %+.*f]");
            printf(" %6" PRId64 " %6" PRId64, group->only[A], group->only[B]);
            put_p_value(group->p);
            put_p_value(group->p_holm);
            putchar('\n');
        }
        bp_free(name);
    }
    printf("\nB - A above 0: B answers more questions right. only A, only B: questions that one "
           "alone answers right.\np is McNemar's exact test of these; Holm is p adjusted for all "
           "rows. No p or interval of fewer than %d questions.\n",
           BP_FEW_DOCUMENTS);
}

static bp_err save_csv(const pairing *all, const char *path)
{
    table_file file;
    bp_err err = table_file_begin(&file);

    if (err != BP_OK)
        return err;
    fprintf(file.out, "task,group,questions,right_a,right_b,only_a,only_b,difference,"
                      "difference_low,difference_high,p_value,p_holm\n");
    for (int64_t k = 0; k < all->count; k++) {
        const question_group *group = &all->groups[k];

        put_csv(file.out, group->task ? group->task : "", SIZE_MAX);
        putc(',', file.out);
        put_csv(file.out, group->group ? group->group : "", SIZE_MAX);
        fprintf(file.out, ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64,
                group->questions, group->right[A], group->right[B], group->only[A], group->only[B]);
        put_csv_real(file.out, group->difference);
        put_csv_real(file.out, group->questions > 0 ? group->interval.low : NAN);
        put_csv_real(file.out, group->questions > 0 ? group->interval.high : NAN);
        put_csv_real(file.out, group->p);
        put_csv_real(file.out, group->p_holm);
        putc('\n', file.out);
    }
    return table_file_save(&file, path);
}

/* ---- all ---- */

static bp_err find_way(answers_way *way, const char *figure)
{
    for (int k = 0; k < ANSWERS_WAYS; k++)
        if (!figure || strcmp(figure, answers_way_names[k]) == 0) {
            *way = (answers_way)k;
            return BP_OK;
        }
    return BP_FAIL(BP_ERR_USAGE, "table.bad_figure",
                   "'%.100s' is not acc, acc_norm or acc_token, which answers to questions are "
                   "compared by: at the command line; give one of them",
                   figure);
}

bp_err compare_questions(const char *const *sides, const char *figure, const char *csv)
{
    pairing all = {.count = 0};
    answers_way way = ANSWERS_ACC;
    bp_err err = find_way(&way, figure);

    for (int side = 0; side < 2 && err == BP_OK; side++) {
        all.sides[side].way = way;
        err = answers_load(&all.sides[side], sides[side], true);
        if (err == BP_OK && csv)
            err = bp_output_is_not(csv, all.sides[side].lines_path);
        if (err == BP_OK && csv)
            err = bp_output_is_not(csv, all.sides[side].summary_path);
    }
    if (err == BP_OK)
        err = check_questions(&all);
    if (err == BP_OK)
        count_questions(&all);
    if (err == BP_OK && all.compared == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "compare.no_questions",
                      "no question has an answer that both sides decide (%" PRId64 " have equally "
                      "good options on a side, %" PRId64 " no answer or no value): at %s and %s; "
                      "there is nothing to compare",
                      all.sides[A].count - all.unknown, all.unknown, sides[A], sides[B]);
    if (err == BP_OK)
        err = test(&all);
    if (err == BP_OK)
        print_table(&all, answers_way_names[way]);
    if (err == BP_OK && csv)
        err = save_csv(&all, csv);
    answers_clear(&all.sides[A]);
    answers_clear(&all.sides[B]);
    bp_free(all.groups);
    return err;
}
