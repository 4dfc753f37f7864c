/* The description of a run on its page: name, model, corpus, command, version, date. Called by
 * training.c, job/work.c and uncertainty/results/page.c. */
#include "job/report/report_priv.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/printable.h"
#include "run/run_compare.h"
#include "run/run_fields.h"

#include <stdlib.h>
#include <string.h>

#define RECORD_LIMIT ((int64_t)16 << 20)

static void add(json_t *about, const char *name, const char *value, bool code)
{
    char *shown = bp_printable(value);

    if (shown[0] != '\0')
        (void)json_array_append_new(
            about, json_pack("{s:s, s:s, s:b}", "name", name, "value", shown, "code", (int)code));
    bp_free(shown);
}

/* The first of these keys that the run has, or "". */
static const char *value_of(const run_pairs *pairs, const char *const *keys)
{
    const char *value = NULL;

    for (; *keys && !(value && value[0] != '\0'); keys++)
        value = bp_run_pairs_find(pairs, *keys);
    return value ? value : "";
}

/* Parameters of the run at `folder`; with `near`, of the run of which it is a checkpoint, or of its
 * first member (*each). 0: unknown. */
static long long parameters_of(const char *folder, bool near, bool *each)
{
    static const char *const PLACES[] = {"run.json", "../../run.json", "members/m00/run.json"};
    long long count = 0;

    for (int k = 0; k < (near ? 3 : 1) && count == 0; k++) {
        json_t *record = NULL;
        char *path = bp_path_join(folder, PLACES[k]);

        if (bp_path_exists(path) && bp_json_load(&record, path, RECORD_LIMIT) == BP_OK)
            count = integer_of(record, "parameters");
        *each = *each || (k == 2 && count > 0);
        json_decref(record);
        bp_free(path);
    }
    return count;
}

static void add_parameters(json_t *about, const char *folder, const char *model)
{
    bool each = false; /* of several members */
    long long count = parameters_of(folder, false, &each);

    if (count == 0) { /* of an ensemble its members have them */
        const bp_path first = bp_path_in(folder, "members/m00");

        count = parameters_of(first.text, false, &each);
        each = count > 0;
    }
    if (count == 0 && model[0] != '\0')
        count = parameters_of(model, true, &each);
    if (count > 0) {
        char *digits = bp_sprintf("%lld", count), *text = bp_report_thousands(digits);

        add(about, each ? "Parameters of each member" : "Parameters", text, false);
        bp_free(text);
        bp_free(digits);
    }
}

/* Of times as "2026-11-29T19:31:27Z"; `last`: of the last of several runs. */
static void add_date(json_t *about, const char *first, const char *last)
{
    char *text;

    if (strlen(first) != 20 || strlen(last) != 20)
        return;
    text = strncmp(first, last, 16) == 0
               ? bp_sprintf("%.10s %.5s UTC", first, first + 11)
               : bp_sprintf("%.10s %.5s to %.10s %.5s UTC", first, first + 11, last, last + 11);
    add(about, "Date", text, false);
    bp_free(text);
}

void bp_report_about(json_t *page, const char *folder)
{
    static const char *const MODELS[] = {"score.model",
                                         "generate.model",
                                         "explain.model",
                                         "uncertainty.models",
                                         "model.init",
                                         "model.kind",
                                         NULL},
                             *const CORPORA[] = {"score.corpus",
                                                 "explain.corpus",
                                                 "explain.texts",
                                                 "uncertainty.in_domain",
                                                 "generate.prompts",
                                                 "corpus.train",
                                                 NULL},
                             *const QUESTIONS[] = {"score.questions", NULL},
                             *const SHIFTED[] = {"uncertainty.shifted", NULL},
                             *const VALID[] = {"corpus.valid", NULL};
    char *real = realpath(folder, NULL);
    json_t *record = NULL, *about = json_array();
    run_pairs pairs = {0};
    const bp_path path = bp_path_in(folder, "run.json");

    (void)bp_json_load(&record, path.text, RECORD_LIMIT); /* a page of a damaged run says less */
    (void)bp_run_pairs_read(&pairs, folder);
    add(about, "Run", bp_path_base(real ? real : folder), false);
    add(about, "Model", value_of(&pairs, MODELS), false);
    add_parameters(about, folder, value_of(&pairs, MODELS));
    add(about, "Questions", value_of(&pairs, QUESTIONS), false);
    add(about, "Corpus", value_of(&pairs, CORPORA), false);
    add(about, "Shifted text", value_of(&pairs, SHIFTED), false);
    add(about, "Validation corpus", value_of(&pairs, VALID), false);
    add(about, "Command", text_of(record, "command"), true);
    add(about, "Version", text_of(record, "version"), false);
    add_date(about, text_of(record, "started"), text_of(record, "started"));
    (void)json_object_set_new(page, "about", about);
    bp_run_pairs_clear(&pairs);
    json_decref(record);
    free(real); /* realpath's */
}

/* The version of a run after those of `versions`, unless it is there. */
static void add_version(json_t *versions, const char *version)
{
    if (version[0] != '\0')
        (void)json_object_set_new(versions, version, json_true());
}

static void add_versions(json_t *about, json_t *versions)
{
    bp_buffer list = {0};
    const char *version;
    json_t *one;

    json_object_foreach(versions, version, one)
        bp_buffer_printf(&list, "%s%s", list.bytes > 0 ? ", " : "", version);
    add(about, json_object_size(versions) > 1 ? "Versions" : "Version",
        list.data ? (const char *)list.data : "", false);
    bp_buffer_clear(&list);
}

void bp_report_about_runs(json_t *page, char *const *names, const char *const *folders,
                          int64_t count)
{
    json_t *about = json_array(), *commands = json_array(), *versions = json_object();
    char *first = bp_strdup(""), *last = bp_strdup("");

    for (int64_t r = 0; r < count; r++) {
        json_t *record = NULL;
        const bp_path path = bp_path_in(folders[r], "run.json");
        const char *command, *started;

        (void)bp_json_load(&record, path.text, RECORD_LIMIT); /* damaged: it says less */
        command = text_of(record, "command");
        started = text_of(record, "started");
        add(commands, names[r], command[0] ? command : folders[r], true);
        add_version(versions, text_of(record, "version"));
        if (started[0] && (!first[0] || strcmp(started, first) < 0)) {
            bp_free(first);
            first = bp_strdup(started);
        }
        if (strcmp(started, last) > 0) {
            bp_free(last);
            last = bp_strdup(started);
        }
        json_decref(record);
    }
    add_versions(about, versions);
    add_date(about, first, last);
    (void)json_object_set_new(page, "about", about);
    (void)json_object_set_new(page, "commands", commands);
    bp_free(first);
    bp_free(last);
    json_decref(versions);
}
