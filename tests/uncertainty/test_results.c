/* From hand-made score folders to figures, tables and a page. tests/jobs/test_uncertainty.py has
 * the same figures by numpy and scikit-learn from real ones. */
#include "bp_test.h"

#include "base/files/fs.h"
#include "io/h5/h5.h"
#include "io/h5/user_block.h"
#include "models/task/list.h"
#include "uncertainty/results/results.h"

#include <math.h>

#define DOCUMENTS 6
#define ENTRIES   13

/* Documents 0 to 3 are in the domain, 1 has no scored tokens; 4 and 5 are shifted. An
 * end-of-document entry, which is not scored, follows each. */
static const int64_t COUNTS[DOCUMENTS] = {2, 0, 1, 1, 2, 1};
static const float LOGPROB[ENTRIES] = {-1, -2, NAN, NAN, -3, NAN, -1, NAN, -4, -2, NAN, -5, NAN};
static const float CONFIDENCE[ENTRIES] = {0.5F, 0.25F, NAN,  NAN, 0.5F, NAN, 0.75F,
                                          NAN,  0.5F,  0.5F, NAN, 0.5F, NAN};
static const float CORRECT[ENTRIES] = {1, 0, NAN, NAN, 0, NAN, 1, NAN, 0, 0, NAN, 0, NAN};
static const float INFORMATION[ENTRIES] = {0.1F, 0.3F, NAN,  NAN, 0.2F,  NAN, 0.1F,
                                           NAN,  0.4F, 0.2F, NAN, 0.15F, NAN};

static void seal(const char *path, const char *kind, int version)
{
    bp_user_block block = {.version = version};

    (void)snprintf(block.kind, sizeof(block.kind), "%s", kind);
    bp_test_expect(bp_user_block_seal(&block, path), BP_OK);
}

static const char *write_documents(const char *folder, const int64_t *counts, int64_t count)
{
    const char *path;
    bp_h5 *file;

    bp_test_expect(bp_dir_make(bp_test_path(folder)), BP_OK);
    path = bp_test_path(folder);
    char *name = bp_path_join(path, "documents.h5");
    bp_test_expect(bp_h5_create(&file, name), BP_OK);
    bp_test_expect(bp_h5_write(file, "tokens", BP_H5_I64, counts, count), BP_OK);
    bp_test_expect(bp_h5_close(&file), BP_OK);
    seal(name, "score-documents", 1);
    bp_free(name);
    return path;
}

/* `shift` is added to all log-probabilities, so that methods differ. */
static void write_tokens(const char *folder, float shift, const char *without, int version)
{
    static const char *const NAMES[] = {"confidence", "correct", "mutual_information",
                                        "total_entropy", "brier"};
    const float *values[] = {CONFIDENCE, CORRECT, INFORMATION, INFORMATION, CONFIDENCE};
    float logprob[ENTRIES];
    char *name = bp_path_join(bp_test_path(folder), "tokens.h5");
    bp_h5 *file;

    for (int i = 0; i < ENTRIES; i++)
        logprob[i] = LOGPROB[i] + shift;
    bp_test_expect(bp_h5_create(&file, name), BP_OK);
    bp_test_expect(bp_h5_write(file, "logprob", BP_H5_F32, logprob, ENTRIES), BP_OK);
    for (int c = 0; c < 5; c++)
        if (!without || strcmp(without, NAMES[c]) != 0)
            bp_test_expect(bp_h5_write(file, NAMES[c], BP_H5_F32, values[c], ENTRIES), BP_OK);
    bp_test_expect(bp_h5_close(&file), BP_OK);
    seal(name, "score-tokens", version);
    bp_free(name);
}

static comparison_group group_of(const char *name, const int64_t *documents, int64_t count)
{
    comparison_group group = {.name = bp_strdup(name),
                              .documents = bp_alloc("test", count, sizeof(int64_t)),
                              .document_count = count,
                              .parts = bp_alloc("test", 1, sizeof(comparison_part)),
                              .part_count = 1};

    memcpy(group.documents, documents, (size_t)count * sizeof(int64_t));
    group.parts[0].corpus = bp_strdup("corpus.h5");
    return group;
}

static comparison_groups groups_of(comparison_group group)
{
    comparison_groups groups = {.items = bp_alloc("test", 1, sizeof(comparison_group)), .count = 1};

    groups.items[0] = group;
    return groups;
}

/* Two methods, of which "sure" is half a nat better everywhere. */
static comparison_results outcome_of(const char *folder)
{
    comparison_results results = {.folder = bp_strdup(bp_test_path(folder)),
                                  .task = &bp_task_none,
                                  .resamples = 200,
                                  .seed = 1};

    bp_test_expect(comparison_methods_parse(&results.methods, "plain=a,sure=b"), BP_OK);
    results.in_domain = groups_of(group_of("in_domain", (const int64_t[]){0, 1, 2, 3}, 4));
    results.shifted = groups_of(group_of("a \"<b>\", c", (const int64_t[]){4, 5}, 2));
    comparison_results_init(&results);
    results.members[0] = results.members[1] = 2;
    return results;
}

static void write_methods(const char *folder)
{
    char place[256];

    for (int m = 0; m < 2; m++) {
        (void)snprintf(place, sizeof(place), "%s/scores/%s/score", folder, m ? "sure" : "plain");
        (void)write_documents(place, COUNTS, DOCUMENTS);
        write_tokens(place, m ? 0.5F : 0, NULL, 1);
    }
}

/* ---- reading ---- */

static void tokens_are_cut_into_documents(void **state)
{
    const char *folder = write_documents("read", COUNTS, DOCUMENTS);
    comparison_group group = group_of("in_domain", (const int64_t[]){0, 1, 2, 3}, 4);
    int64_t *tokens = NULL;
    comparison_scores scores;

    (void)state;
    write_tokens("read", 0, NULL, 1);
    bp_test_expect(comparison_scores_count(&tokens, folder, DOCUMENTS, false), BP_OK);
    assert_int_equal(comparison_group_filter(&group, tokens), 1);
    assert_int_equal(group.document_count, 3);
    bp_test_expect(comparison_scores_read(&scores, folder, tokens, DOCUMENTS, &group, false),
                   BP_OK);
    assert_int_equal(scores.domain, 3);
    assert_int_equal(scores.doc_start[1], 2);
    assert_int_equal(scores.doc_start[3], 4);
    assert_true(scores.means[COMPARISON_NLL][0] == 1.5);
    assert_true(isnan(scores.means[COMPARISON_NLL][1]));
    assert_true(scores.means[COMPARISON_NLL][2] == 3);
    assert_true(scores.means[COMPARISON_NLL][5] == 5);
    assert_true(fabs(scores.means[COMPARISON_INFORMATION][4] - 0.3) <
                1e-7); /* float32 in the file */
    assert_true(scores.nll[2] == 3 && scores.correct[0] == 1 && scores.correct[2] == 0);
    assert_true(scores.uncertain[COMPARISON_BY_CONFIDENCE][3] == -0.75F);
    assert_int_equal(bp_calibration_tokens(&scores.calibration[0]), 2);
    comparison_scores_clear(&scores);
    bp_free(tokens);
    bp_free(group.name);
    bp_free(group.documents);
    bp_free(group.parts[0].corpus);
    bp_free(group.parts);
}

static void expect_unreadable(const char *folder, const int64_t *counts, const char *says)
{
    const int64_t documents[] = {0, 2};
    const comparison_group group = {
        .name = (char *)"g", .documents = (int64_t *)documents, .document_count = 2};
    comparison_scores scores;

    bp_test_expect(
        comparison_scores_read(&scores, bp_test_path(folder), counts, DOCUMENTS, &group, false),
        BP_ERR_FORMAT);
    bp_test_message_has(says);
    comparison_scores_clear(&scores);
}

static void tables_that_do_not_fit_are_refused(void **state)
{
    const int64_t more[DOCUMENTS] = {2, 0, 1, 1, 2, 2}, fewer[DOCUMENTS] = {2, 0, 1, 1, 2, 0};
    const char *folder = write_documents("unfit", COUNTS, DOCUMENTS);
    int64_t *tokens = NULL;

    (void)state;
    write_tokens("unfit", 0, NULL, 1);
    expect_unreadable("unfit", more, "[scores.damaged]");
    expect_unreadable("unfit", fewer, "[scores.damaged]");
    write_tokens("unfit", 0, "brier", 1);
    expect_unreadable("unfit", COUNTS, "brier");
    write_tokens("unfit", 0, NULL, 9);
    expect_unreadable("unfit", COUNTS, "version 9 ... [h5.unknown_version]");
    write_tokens("unfit", -INFINITY, NULL, 1);
    expect_unreadable("unfit", COUNTS, "[scores.zero_probability]");
    write_tokens("unfit", INFINITY, NULL, 1);
    expect_unreadable("unfit", COUNTS, "[scores.damaged]");
    bp_test_expect(comparison_scores_count(&tokens, folder, DOCUMENTS + 1, false), BP_ERR_FORMAT);
    bp_test_message_has("7 ... [scores.unlike_corpus]");
    bp_test_expect(comparison_scores_count(&tokens, bp_test_path("none"), 1, false), BP_ERR_INPUT);
}

/* ---- figures ---- */

static void figures_are_those_by_hand(void **state)
{
    comparison_results results = outcome_of("hand");
    const comparison_value *plain, *difference;

    (void)state;
    write_methods("hand");
    bp_test_expect(comparison_results_analyse(&results, DOCUMENTS), BP_OK);
    plain = results.results[0].values;
    assert_int_equal(results.dropped[0], 1);
    assert_int_equal(results.results[0].tokens, 4);
    assert_true(plain[COMPARISON_FIGURE_NLL].value == 7.0 / 4);
    assert_true(plain[COMPARISON_FIGURE_ACCURACY].value == 0.5);
    assert_true(plain[COMPARISON_FIGURE_BRIER].value == 0.5);
    /* bins: 0.25 wrong; 0.5 right and wrong; 0.75 right */
    assert_true(fabs(plain[COMPARISON_FIGURE_ECE].value - (0.25 + 0 + 0.25) / 4) < 1e-12);
    assert_true(isnan(plain[COMPARISON_FIGURE_ECE].low) &&
                isnan(plain[COMPARISON_FIGURE_ECE].high));
    /* the bin of 0.5 has no gap, but two documents whose deviations of 0.5 cancel: variance 2 (0.25
     * + 0.25) / 4, of half of the tokens; of the others, with one document each, nothing is known
     */
    assert_true(fabs(plain[COMPARISON_FIGURE_SQUARED].value + 0.125) < 1e-12);
    assert_true(isnan(plain[COMPARISON_FIGURE_SQUARED].low)); /* of few documents */
    assert_true(comparison_rms(&results.results[0], COMPARISON_FIGURE_SQUARED).value == 0);
    /* errors by confidence: 0, then a tie of 0 and 1, then 1: 0, 1/4, 1/3, 1/2 */
    assert_true(fabs(plain[COMPARISON_FIGURE_AURC].value - (0 + 0.25 + 1.0 / 3 + 0.5) / 4) < 1e-12);
    /* NLL: shifted 3 and 5 against 1.5, 3 and 1: one tie */
    assert_true(fabs(plain[comparison_column(0, COMPARISON_NLL, COMPARISON_AUROC)].value -
                     5.5 / 6) < 1e-12);
    difference = results.differences;
    assert_true(fabs(difference[COMPARISON_FIGURE_NLL].value - 0.5) < 1e-12);
    assert_true(isnan(difference[COMPARISON_FIGURE_NLL].low)); /* of few documents */
    assert_true(isnan(difference[COMPARISON_FIGURE_NLL].high));
    assert_true(difference[COMPARISON_FIGURE_ACCURACY].value == 0);
    comparison_results_clear(&results);
}

static void methods_must_have_scored_the_same(void **state)
{
    const int64_t others[DOCUMENTS] = {2, 0, 1, 1, 1, 2};
    comparison_results results = outcome_of("other");

    (void)state;
    write_methods("other");
    (void)write_documents("other/scores/sure/score", others, DOCUMENTS);
    bp_test_expect(comparison_results_analyse(&results, DOCUMENTS), BP_ERR_FORMAT);
    bp_test_message_has("document 4 ... [comparison.unlike_scores]");
    comparison_results_clear(&results);
}

static void a_group_without_tokens_is_refused(void **state)
{
    comparison_results results = outcome_of("empty");

    (void)state;
    write_methods("empty");
    results.shifted.items[0].documents[0] = 1; /* no scored tokens */
    bp_test_expect(comparison_results_analyse(&results, DOCUMENTS), BP_ERR_FORMAT);
    bp_test_message_has("[comparison.group_too_small]");
    comparison_results_clear(&results);
}

/* ---- what is written ---- */

static char *read_text(const comparison_results *results, const char *name)
{
    char *path = bp_path_join(results->folder, name), *text;
    size_t bytes;

    bp_test_expect(bp_file_read(path, 1 << 24, &text, &bytes), BP_OK);
    bp_free(path);
    return text;
}

static void names_are_quoted_everywhere(void **state)
{
    static const char RECORD[] = "{\"command\": \"bagpipe '<test>' & \\\"more\\\"\"}";
    comparison_results results = outcome_of("quoted");
    json_t *summary;
    char *text;

    (void)state;
    write_methods("quoted");
    bp_test_expect(comparison_results_analyse(&results, DOCUMENTS), BP_OK);
    bp_test_expect(comparison_tables_write(&results), BP_OK);
    text = read_text(&results, "detection.csv");
    assert_non_null(strstr(text, "\nplain,\"a \"\"<b>\"\", c\",mutual_information,3,2,"));
    bp_free(text);
    bp_test_expect(bp_file_write(bp_test_path("run.json"), RECORD, strlen(RECORD)), BP_OK);
    bp_test_expect(comparison_page_write(&results), BP_OK);
    text = read_text(&results, "index.html");
    assert_null(strstr(text, "<b>"));
    assert_non_null(strstr(text, "a &quot;&lt;b&gt;&quot;, c"));
    assert_non_null(strstr(text, "bagpipe '&lt;test&gt;' &amp; &quot;more&quot;"));
    assert_non_null(strstr(text, "Not drawn"));
    bp_free(text);
    summary = comparison_summary(&results);
    json_t *methods = json_object_get(summary, "methods");
    json_t *ood = json_object_get(json_object_get(methods, "sure"), "ood");
    assert_non_null(json_object_get(json_object_get(ood, "a \"<b>\", c"), "auroc_low"));
    assert_true(json_is_null(json_object_get(json_object_get(methods, "sure"), "temperature")));
    json_decref(summary);
    comparison_results_clear(&results);
}

static void one_distribution_has_no_mutual_information(void **state)
{
    comparison_results results = outcome_of("one");
    const comparison_value *values;
    char *text;

    (void)state;
    write_methods("one");
    results.members[0] = 1;
    bp_test_expect(comparison_results_analyse(&results, DOCUMENTS), BP_OK);
    for (int d = 0; d < COMPARISON_DETECTIONS; d++) {
        const int64_t by = comparison_column(0, COMPARISON_INFORMATION, d);

        values = results.results[0].values;
        assert_true(isnan(values[by].value) && isnan(values[by].low) && isnan(values[by].high));
        assert_true(isfinite(results.results[1].values[by].value));
        assert_true(isfinite(values[comparison_column(0, COMPARISON_ENTROPY, d)].value));
        assert_true(isnan(results.differences[by].value) && isnan(results.differences[by].low));
    }
    assert_true(isnan(results.results[0].risk[COMPARISON_BY_INFORMATION].area_error));
    assert_int_equal(results.results[0].curves[COMPARISON_INFORMATION].count, 0);
    assert_true(results.results[0].curves[COMPARISON_ENTROPY].count > 0);
    bp_test_expect(comparison_tables_write(&results), BP_OK);
    text = read_text(&results, "detection.csv");
    assert_non_null(strstr(text, "c\",mutual_information,3,2,,,,,,,,,\n"));
    bp_free(text);
    comparison_results_clear(&results);
}

static int64_t paths_of(const char *svg)
{
    int64_t count = 0;

    for (const char *at = svg; (at = strstr(at, "<path")) != NULL; at++)
        count++;
    return count;
}

/* Of each method a curve a panel, whatever is in the name of the shift. */
static void a_shift_of_any_name_has_its_curves(void **state)
{
    static const char *const NAMES[] = {"plain", "a \"<b>\", c"};
    int64_t paths[2];

    (void)state;
    if (system("command -v gnuplot >/dev/null") != 0)
        bp_test_skip("there is no gnuplot");
    for (int k = 0; k < 2; k++) {
        char folder[32];

        (void)snprintf(folder, sizeof folder, "curves%d", k);
        comparison_results results = outcome_of(folder);
        char *text;

        bp_free(results.shifted.items[0].name);
        results.shifted.items[0].name = bp_strdup(NAMES[k]);
        write_methods(folder);
        bp_test_expect(comparison_results_analyse(&results, DOCUMENTS), BP_OK);
        bp_test_expect(comparison_tables_write(&results), BP_OK);
        bp_test_expect(comparison_plots_draw(&results), BP_OK);
        text =
            read_text(&results, k == 0 ? "plots/roc-01-plain.svg" : "plots/roc-01-a___b____c.svg");
        paths[k] = paths_of(text);
        bp_free(text);
        text = read_text(&results, "plots/histogram-sure.svg");
        paths[k] += paths_of(text);
        bp_free(text);
        comparison_results_clear(&results);
    }
    assert_true(paths[0] > 40); /* axes, grids, curves */
    assert_int_equal(paths[0], paths[1]);
}

static void touch(const char *path)
{
    bp_test_expect(bp_file_write(path, "mine\n", 5), BP_OK);
}

/* Plots of methods that are gone, but nothing that someone made beside them. */
static void plots_that_are_gone_are_removed(void **state)
{
    static const char *const GONE[] = {"histogram-plain.gp", "histogram-plain.svg",
                                       "histogram-plain.png"};
    comparison_results results = outcome_of("gone");
    char *folder = bp_path_join(results.folder, "plots");
    char *own = bp_path_join(folder, "histogram-mine.gp");
    char *drawn = bp_path_join(folder, "histogram-mine.svg");

    (void)state;
    write_methods("gone");
    bp_test_expect(comparison_results_analyse(&results, DOCUMENTS), BP_OK);
    bp_test_expect(comparison_tables_write(&results), BP_OK);
    bp_test_expect(comparison_plots_draw(&results), BP_OK);
    for (int k = 0; k < 3; k++) { /* with or without gnuplot */
        char *path = bp_path_join(folder, GONE[k]);

        assert_true(k > 0 || bp_path_exists(path));
        if (!bp_path_exists(path))
            touch(path);
        bp_free(path);
    }
    touch(own);
    touch(drawn);
    results.members[0] = 1; /* has no histogram */
    bp_test_expect(comparison_plots_draw(&results), BP_OK);
    for (int k = 0; k < 3; k++) {
        char *path = bp_path_join(folder, GONE[k]);

        assert_false(bp_path_exists(path));
        bp_free(path);
    }
    assert_true(bp_path_exists(own) && bp_path_exists(drawn));
    bp_free(drawn);
    bp_free(own);
    bp_free(folder);
    comparison_results_clear(&results);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_cut_into_documents),
        cmocka_unit_test(tables_that_do_not_fit_are_refused),
        cmocka_unit_test(figures_are_those_by_hand),
        cmocka_unit_test(methods_must_have_scored_the_same),
        cmocka_unit_test(a_group_without_tokens_is_refused),
        cmocka_unit_test(names_are_quoted_everywhere),
        cmocka_unit_test(one_distribution_has_no_mutual_information),
        cmocka_unit_test(a_shift_of_any_name_has_its_curves),
        cmocka_unit_test(plots_that_are_gone_are_removed),
    };
    return BP_TEST_RUN(tests);
}
