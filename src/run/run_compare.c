/* Compares a configuration with the one that the run began with: what may change on a resume, and
 * what changes bits. */
#include "run/run_compare.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/printable.h"
#include "run/run_fields.h"

#include <ini.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_LIMIT ((int64_t)1 << 20)
#define FAULTS_SHOWN 20

/* ---- config.ini as bp_config_text writes it ---- */

/* inih's handler: once a line. A value that continues on the next line ends with a backslash, and
 * its key is repeated. */
static int take_line(void *context, const char *section, const char *name, const char *value)
{
    run_pairs *pairs = context;
    char *key = bp_sprintf("%s.%s", section, name);
    char **last = pairs->count > 0 ? &pairs->texts[2 * pairs->count - 1] : NULL;
    size_t bytes = !last ? 0 : strlen(*last);

    if (bytes > 0 && (*last)[bytes - 1] == '\\' && strcmp(key, last[-1]) == 0) {
        char *whole = bp_sprintf("%.*s%s", (int)bytes - 1, *last, value);

        bp_free(*last);
        *last = whole;
        bp_free(key);
        return 1;
    }
    pairs->count++;
    pairs->texts = bp_realloc("run.pairs", pairs->texts, 2 * pairs->count, sizeof *pairs->texts);
    pairs->texts[2 * pairs->count - 2] = key;
    pairs->texts[2 * pairs->count - 1] = bp_strdup(value);
    return 1;
}

bp_err bp_run_pairs_read(run_pairs *out, const char *run_dir)
{
    char *text = NULL;
    size_t bytes;
    bp_err err;

    *out = (run_pairs){0};
    err = bp_plain_read(bp_path_in(run_dir, "config.ini").text, CONFIG_LIMIT, &text, &bytes);
    if (err == BP_OK) {
        bp_sha256_of(text, bytes, out->sha256);
        (void)ini_parse_string(text, take_line, out); /* lines that are not pairs are skipped */
    }
    bp_free(text);
    return err == BP_ERR_INPUT ? BP_OK : err; /* there is none */
}

void bp_run_pairs_clear(run_pairs *pairs)
{
    for (int64_t k = 0; k < 2 * pairs->count; k++)
        bp_free(pairs->texts[k]);
    bp_free(pairs->texts);
    *pairs = (run_pairs){0};
}

bp_err run_pairs_check(const run_pairs *pairs, const json_t *record, const char *run_dir)
{
    const json_t *hash, *hashes = json_object_get(record, "config_sha256");
    size_t k;

    json_array_foreach((json_t *)hashes, k, hash) /* not changed */
    {
        if (json_is_string(hash) && strcmp(json_string_value(hash), pairs->sha256) == 0)
            return BP_OK;
    }
    if (json_array_size(hashes) == 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "run.damaged_config",
                   "config.ini is %s, so that the run's keys can't be compared with these: in %s; "
                   "put it back from a copy, or use another run.dir",
                   pairs->sha256[0] == '\0' ? "missing" : "not what the run wrote", run_dir);
}

const char *bp_run_pairs_find(const run_pairs *pairs, const char *key)
{
    for (int64_t k = 0; k < pairs->count; k++)
        if (strcmp(pairs->texts[2 * k], key) == 0)
            return pairs->texts[2 * k + 1];
    return NULL;
}

int64_t run_steps(const json_t *record, const run_pairs *pairs)
{
    const json_t *steps = json_object_get(record, "steps");
    const char *text = bp_run_pairs_find(pairs, "train.steps");

    return steps ? json_integer_value(steps) : text ? strtoll(text, NULL, 10) : 0;
}

/* ---- comparing ---- */

#define HASH_DIGITS 12 /* that tell two inputs apart */

struct comparison {
    const run_pairs *pairs;
    const bp_config *config;
    const bp_run_spec *spec;
    const char *run_dir;
    bp_buffer faults, changes;
    int64_t fault_count;
    bool same, derived; /* derived: keys that follow from others are compared now */
};

/* Is the key in the list, by itself or through "section.*"? */
static bool is_listed(const char *const *list, const char *key)
{
    for (; list && *list; list++) {
        size_t bytes = strlen(*list);

        if (strcmp(*list, key) == 0)
            return true;
        if (bytes > 0 && (*list)[bytes - 1] == '*' && strncmp(*list, key, bytes - 1) == 0)
            return true;
    }
    return false;
}

/* `name` is the key or identity, `what` its name in the message. */
static void add_fault(struct comparison *c, const char *name, const char *what, const char *now,
                      const char *before, const char *keep)
{
    bool may = is_listed(c->spec->new_run_may, name);
    char *line;

    if (c->fault_count++ >= FAULTS_SHOWN)
        return;
    line = bp_sprintf("%s is %s, but the run began with %s: at %s; %s, or %s%s%s", what, now,
                      before, c->run_dir, keep,
                      may ? "train on from its weights in another folder: model.init="
                          : "use another run.dir",
                      may ? c->run_dir : "", may ? " run.dir=NEW" : "");
    if (c->fault_count > 1)
        bp_buffer_add(&c->faults, "\n", 1);
    bp_printable_add(&c->faults, line, strlen(line), ""); /* a break in a value ends no line */
    bp_free(line);
}

/* Was the value not given by the user, but derived from other keys, a model or a corpus? */
static bool is_derived(const bp_config *config, const bp_option *option, const char *now,
                       const char *usual)
{
    return !bp_config_is_given(config, option->key) && strcmp(now, !usual ? "" : usual) != 0;
}

/* Keys that affect no result: they may change in any job. */
static const char *const ALWAYS_FREE[] = {
    "run.dir", "run.memory", "slurm.*", "watchdog.*", "mesh.coordinator", "mesh.overlap", NULL};

bool run_key_is_free(const char *key)
{
    return is_listed(ALWAYS_FREE, key);
}

static void compare_key(void *context, const bp_option *option, const char *value)
{
    struct comparison *c = context;
    const bp_run_spec *spec = c->spec;
    const char *before = bp_run_pairs_find(c->pairs, option->key);
    const char *now = !value ? "" : value;
    bool is_free = run_key_is_free(option->key);
    char *usual = bp_config_default(option);

    for (const bp_run_identity *one = spec->identities; one && one->name; one++)
        is_free = is_free || strcmp(one->name, option->key) == 0; /* compared by content */

    if (!before && option->was)
        before = bp_run_pairs_find(c->pairs, option->was);
    if (!before) /* not set then, or not known yet */
        before = !usual ? "" : usual;
    if (is_free || strcmp(before, now) == 0 ||
        c->derived != is_derived(c->config, option, now, usual))
        ; /* it may be so */
    else if (option->may_change || is_listed(spec->may_change, option->key)) {
        c->same = false;
    } else if (is_listed(spec->other_bits, option->key)) {
        if (!spec->keeps_bits || !spec->keeps_bits(c->config, option->key, before, now))
            bp_buffer_printf(&c->changes, "%s%s is %s and was %s", c->changes.bytes > 0 ? ", " : "",
                             option->key, !value ? "not set" : now,
                             before[0] == '\0' ? "not set" : before);
    } else {
        add_fault(c, option->key, option->key, !value ? "not set" : now,
                  before[0] == '\0' ? "none" : before, "keep it");
    }
    bp_free(usual);
}

/* For a key that names an input compared by content: shows both names, with distinguishing parts of
 * the hashes. */
static void add_changed_input(struct comparison *c, const bp_run_identity *one, const char *before)
{
    const char *path = bp_config_string(c->config, one->name),
               *first = bp_run_pairs_find(c->pairs, one->name);
    int digits = strncmp(one->value, before, HASH_DIGITS) != 0 ? HASH_DIGITS : 1 << 10;
    char *now = bp_sprintf("%s (hash %.*s)", path, digits, one->value);
    char *then = !first || strcmp(first, path) == 0
                     ? bp_sprintf("what was there then (hash %.*s)", digits, before)
                     : bp_sprintf("%s (hash %.*s)", first, digits, before);

    add_fault(c, one->name, one->name, now, then, "give that one");
    bp_free(now);
    bp_free(then);
}

static void compare_identities(struct comparison *c, const json_t *before)
{
    const json_t *known = json_object_get(before, "identities");
    const bp_run_identity *one = c->spec->identities;

    for (; one && one->name; one++) {
        const char *value = text_of(known, one->name);
        const bp_run_words *words = c->spec->words;
        char what[160], keep[160] = "keep it";

        if (value[0] == '\0' || !one->value || one->value[0] == '\0' ||
            strcmp(value, one->value) == 0)
            continue;
        if (words && strcmp(words->name, one->name) != 0)
            words = NULL;
        if (!words && bp_config_departs(c->config, one->name)) {
            add_changed_input(c, one, value);
            continue;
        }
        (void)snprintf(what, sizeof what, "the content of %s (its hash)",
                       words ? words->keys : one->name);
        if (words)
            (void)snprintf(keep, sizeof keep, "keep it (only %s may change)", words->may_change);
        add_fault(c, one->name, what, one->value, value, keep);
    }
}

bp_err run_compare(const json_t *before, const run_pairs *pairs, const bp_config *config,
                   const bp_run_spec *spec, const char *run_dir, bool *finished, char **changes)
{
    struct comparison c = {
        .pairs = pairs, .config = config, .spec = spec, .run_dir = run_dir, .same = true};
    const char *job = text_of(before, "job");
    bp_err err = BP_OK;

    *changes = NULL;
    if (job[0] != '\0' && strcmp(job, spec->job) != 0)
        return BP_FAIL(BP_ERR_CONFIG, "run.other_job",
                       "the run folder is one of job '%s', not of '%s': at %s; use another run.dir",
                       job, spec->job, run_dir);
    compare_identities(&c, before);
    if (pairs->count > 0)
        bp_config_each(config, compare_key, &c);
    c.derived = c.fault_count == 0; /* after a fault they would only repeat it */
    if (pairs->count > 0 && c.derived)
        bp_config_each(config, compare_key, &c);
    *finished = c.same && c.fault_count == 0 && strcmp(end_state_of(before), "finished") == 0;
    if (c.fault_count > FAULTS_SHOWN)
        bp_buffer_printf(&c.faults, "\nand %lld more", (long long)(c.fault_count - FAULTS_SHOWN));
    if (c.fault_count > 0)
        err = BP_FAIL_LINES(BP_ERR_CONFIG, "run.other_keys", c.faults.data);
    if (err == BP_OK && c.changes.bytes > 0)
        *changes = bp_buffer_take(&c.changes);
    bp_buffer_clear(&c.faults);
    bp_buffer_clear(&c.changes);
    return err;
}
