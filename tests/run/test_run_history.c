/* What trainings have done, from folders made by hand. */
#include "bp_test.h"

#include "base/buffer.h"
#include "base/config/config.h"
#include "run/status/run_history.h"

#include <math.h>

static const char RUN_JSON[] = "{\"job\": \"%s\", \"exit\": {\"state\": \"finished\"}}";

static void put(const char *run, const char *name, const char *text)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof path, "%s/%s", run, name);
    bp_test_expect(bp_file_write(path, text, strlen(text)), BP_OK);
}

/* A run of a job, with its lines and its configuration. */
static const char *make_run(const char *name, const char *job, const char *lines, const char *ini)
{
    const char *path = bp_test_path(name);
    char record[256];

    (void)snprintf(record, sizeof record, RUN_JSON, job);
    bp_test_expect(bp_dir_make(path), BP_OK);
    put(path, "run.json", record);
    put(path, "metrics.jsonl", lines);
    put(path, "config.ini", ini);
    return path;
}

static const double *row_of(const bp_history *history, int64_t curve, int64_t line)
{
    return history->curves[curve].rows[line];
}

static void lines_are_columns(void **state)
{
    const char *run = make_run(
        "plain", "pretrain",
        "{\"step\": 10, \"tokens\": 100, \"loss\": 5.5, \"lr\": 0.1, \"grad_norm\": 2, "
        "\"seconds\": 36, \"tokens_per_second\": 3}\n"
        "no line\n"
        "{\"step\": 20, \"tokens\": 200, \"loss\": null, \"lr\": 0.2, \"grad_norm\": null, "
        "\"seconds\": 72, \"tokens_per_second\": 1, \"valid_loss\": 4.5}\n"
        "{\"step\": 30, \"tokens\": 300, \"loss\": 4, \"lr\": 0.2, \"seconds\": 36, "
        "\"tokens_per_second\": 2, \"valid_loss\": 4.75}\n"
        "{\"step\": 40, \"tokens\": 40",
        "");
    bp_history history;
    bp_curve_figures figures;

    (void)state;
    bp_test_expect(bp_history_read(&history, run), BP_OK);
    assert_int_equal(history.curve_count, 1);
    assert_int_equal(history.curves[0].count, 3);
    assert_string_equal(history.state, "finished");
    assert_true(row_of(&history, 0, 0)[BP_HISTORY_LOSS] == 5.5);
    assert_true(isnan(row_of(&history, 0, 1)[BP_HISTORY_LOSS]));
    assert_true(isnan(row_of(&history, 0, 1)[BP_HISTORY_GRAD_NORM]));
    assert_true(isnan(row_of(&history, 0, 0)[BP_HISTORY_VALID_LOSS]));
    assert_true(fabs(row_of(&history, 0, 2)[BP_HISTORY_HOURS] - 0.04) < 1e-12);
    figures = bp_curve_figures_of(bp_history_main(&history));
    assert_int_equal(figures.step, 30);
    assert_int_equal(figures.tokens, 300);
    assert_int_equal(figures.best_step, 20);
    assert_true(figures.best_valid_loss == 4.5 && figures.loss == 4 && figures.median_speed == 2);
    bp_history_clear(&history);
}

/* A job was killed, and the one after it went on from step 10. */
static void lines_that_were_taken_back_do_not_count(void **state)
{
    const char *run = make_run("again", "pretrain",
                               "{\"step\": 10, \"loss\": 5, \"seconds\": 3600}\n"
                               "{\"step\": 20, \"loss\": 4, \"seconds\": 3600}\n"
                               "{\"step\": 30, \"loss\": 3, \"seconds\": 3600}\n"
                               "{\"step\": 15, \"loss\": 4.5, \"seconds\": 1800}\n",
                               "");
    bp_history history;

    (void)state;
    bp_test_expect(bp_history_read(&history, run), BP_OK);
    assert_int_equal(history.curves[0].count, 2);
    assert_true(row_of(&history, 0, 1)[BP_HISTORY_STEP] == 15);
    assert_true(row_of(&history, 0, 1)[BP_HISTORY_HOURS] == 1.5);
    bp_history_clear(&history);
}

static void an_ensemble_has_its_members_and_their_mean(void **state)
{
    const char *run =
        make_run("members", "ensemble",
                 "{\"step\": 1, \"loss\": {\"m00\": 4, \"m01\": 6}, \"loss_mean\": 5, "
                 "\"loss_spread\": 1.4, \"valid_loss\": {\"m00\": 3, \"m01\": 4}, "
                 "\"valid_loss_mean\": 3.5, \"valid_loss_spread\": 0.7}\n"
                 "{\"step\": 2, \"loss\": {\"m01\": 3}, \"loss_mean\": 3, \"loss_spread\": null}\n",
                 "");
    bp_history history;

    (void)state;
    (void)make_run("members/members/m00", "pretrain",
                   "{\"step\": 1, \"tokens\": 8, \"loss\": 4, \"seconds\": 36}\n", "");
    (void)make_run("members/members/m01", "pretrain",
                   "{\"step\": 1, \"tokens\": 8, \"loss\": 6, \"seconds\": 72}\n"
                   "{\"step\": 2, \"tokens\": 16, \"loss\": 3, \"seconds\": 72}\n",
                   "");
    bp_test_expect(bp_history_read(&history, run), BP_OK);
    assert_int_equal(history.curve_count, 3);
    assert_string_equal(history.curves[1].name, "m01");
    assert_ptr_equal(bp_history_main(&history), &history.curves[2]);
    assert_string_equal(history.curves[2].name, "mean");
    assert_true(row_of(&history, 2, 0)[BP_HISTORY_LOSS] == 5);
    assert_true(row_of(&history, 2, 0)[BP_HISTORY_VALID_LOSS] == 3.5);
    assert_true(row_of(&history, 2, 0)[BP_HISTORY_TOKENS] == 8);
    assert_true(row_of(&history, 2, 0)[BP_HISTORY_HOURS] == 0.01); /* the first member's */
    assert_true(row_of(&history, 2, 1)[BP_HISTORY_TOKENS] == 16);  /* it has no such step */
    bp_history_clear(&history);
}

static void keys_that_differ_are_found(void **state)
{
    static const char *const INI[] = {"[run]\ndir = a\nseed = 1\n", "[run]\ndir = b\nseed = 2\n",
                                      "[run]\ndir = c\nseed = 1\n[ensemble]\nmembers = 3\n"};
    bp_history runs[3];
    const char **keys;
    int64_t count;

    (void)state;
    for (int r = 0; r < 3; r++) {
        char name[16];

        (void)snprintf(name, sizeof name, "keys%d", r);
        bp_test_expect(bp_history_read(&runs[r], make_run(name, "pretrain", "", INI[r])), BP_OK);
    }
    bp_history_differences(&keys, &count, runs, 3);
    assert_int_equal(count, 2);
    assert_string_equal(keys[0], "run.seed");
    assert_string_equal(keys[1], "ensemble.members");
    assert_null(bp_history_key(&runs[0], keys[1]));
    assert_string_equal(bp_history_key(&runs[2], keys[1]), "3");
    bp_free(keys);
    bp_history_differences(&keys, &count, runs, 1);
    assert_int_equal(count, 0);
    bp_free(keys);
    for (int r = 0; r < 3; r++)
        bp_history_clear(&runs[r]);
}

/* Values that config.ini has in several lines, with all that such a line may hold. */
static void long_values_read_back_as_they_were_written(void **state)
{
    static const bp_option TABLE[] = {{"corpus.train", BP_OPTION_STRING},
                                      {"corpus.valid", BP_OPTION_STRING},
                                      {"train.steps", BP_OPTION_INT},
                                      {NULL}};
    static const bp_option *const TABLES[] = {TABLE, NULL};
    bp_buffer list = {0};
    bp_config *config;
    bp_history history;
    char *ini;

    (void)state;
    for (int k = 0; k < 60; k++)
        bp_buffer_printf(&list, "%s/data/a=b:c;d#e %d\\f/part.h5", k > 0 ? "," : "", k);
    bp_test_expect(bp_config_new(&config, TABLES, TABLES), BP_OK);
    bp_test_expect(bp_config_set(config, "corpus.train", list.data), BP_OK);
    bp_test_expect(bp_config_set(config, "corpus.valid", "short"), BP_OK);
    bp_test_expect(bp_config_set_int(config, "train.steps", 7), BP_OK);
    ini = bp_config_text(config);
    assert_non_null(strstr(ini, "\\\n"));
    bp_test_expect(bp_history_read(&history, make_run("long", "pretrain", "", ini)), BP_OK);
    assert_int_equal(history.pair_count, 3);
    assert_string_equal(bp_history_key(&history, "corpus.train"), list.data);
    assert_string_equal(bp_history_key(&history, "corpus.valid"), "short");
    assert_string_equal(bp_history_key(&history, "train.steps"), "7");
    bp_history_clear(&history);
    bp_free(ini);
    bp_config_free(&config);
    bp_buffer_clear(&list);
}

static void what_is_no_training_is_refused(void **state)
{
    static const struct {
        const char *name, *job;
        bp_err code;
        const char *says;
    } REFUSED[] = {{"none", NULL, BP_ERR_INPUT, "[run.missing]"},
                   {"empty", "", BP_ERR_FORMAT, "run.json ... [run.no_record]"},
                   {"scored", "score", BP_ERR_FORMAT,
                    "score ... score/documents.h5 ... [run.trains_nothing]"}};
    bp_history history;

    (void)state;
    for (size_t k = 0; k < sizeof REFUSED / sizeof REFUSED[0]; k++) {
        const char *path = bp_test_path(REFUSED[k].name);

        if (REFUSED[k].job && REFUSED[k].job[0])
            (void)make_run(REFUSED[k].name, REFUSED[k].job, "", "");
        else if (REFUSED[k].job)
            bp_test_expect(bp_dir_make(path), BP_OK);
        bp_test_expect(bp_history_read(&history, path), REFUSED[k].code);
        bp_test_message_has(REFUSED[k].says);
        bp_test_message_has(path);
        bp_history_clear(&history);
    }
    bp_test_expect(bp_history_read(&history, make_run("torn", "pretrain\", \"", "", "")),
                   BP_ERR_FORMAT);
    bp_test_message_has("[json.invalid]");
    bp_history_clear(&history);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_columns),
        cmocka_unit_test(lines_that_were_taken_back_do_not_count),
        cmocka_unit_test(an_ensemble_has_its_members_and_their_mean),
        cmocka_unit_test(keys_that_differ_are_found),
        cmocka_unit_test(long_values_read_back_as_they_were_written),
        cmocka_unit_test(what_is_no_training_is_refused),
    };
    return BP_TEST_RUN(tests);
}
