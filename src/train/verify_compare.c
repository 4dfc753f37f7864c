#include "train/verify_compare_priv.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "store/checkpoint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_BYTES (INT64_C(1) << 30)

static char *checkpoint_path(const char *run, int64_t step, const char *file)
{
    char name[BP_STEP_NAME];

    bp_checkpoint_step_name(name, step);
    return bp_sprintf("%s/checkpoints/%s%s", run, name, file);
}

/* Verifies every byte of the checkpoint; its digest. */
static bp_err open_digest(const char *run, int64_t step, char digest[BP_SHA256_HEX])
{
    char *folder = checkpoint_path(run, step, "");
    bp_checkpoint *checkpoint = NULL;
    bp_err err = folder ? bp_checkpoint_open(MPI_COMM_SELF, folder, &checkpoint)
                        : bp_fail_memory("a path", 1, strlen(run));

    if (err == BP_OK)
        snprintf(digest, BP_SHA256_HEX, "%s", bp_checkpoint_digest(checkpoint));
    bp_checkpoint_close(&checkpoint);
    bp_free(folder);
    return err;
}

static bp_err load_tensors(const char *run, int64_t step, json_t **out)
{
    char *path = checkpoint_path(run, step, "/manifest.json");
    bp_err err =
        path ? bp_json_load(out, path, LIMIT_BYTES) : bp_fail_memory("a path", 1, strlen(run));

    bp_free(path);
    return err;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text ? text : "";
}

static bp_err compare_tensors(const json_t *a, const json_t *b, int64_t step)
{
    const json_t *left = json_object_get(a, "tensors"), *right = json_object_get(b, "tensors");
    size_t count = json_array_size(left), others = json_array_size(right);

    if (count != others)
        return BP_FAIL(BP_ERR_SOFTWARE,
                       "resume is not exact: %zu tensors without the kill, %zu with it: at step "
                       "%lld; please report it",
                       count, others, (long long)step);
    for (size_t k = 0; k < count; k++) {
        const json_t *one = json_array_get(left, k), *other = json_array_get(right, k);

        if (strcmp(text_of(one, "name"), text_of(other, "name")) == 0 &&
            strcmp(text_of(one, "digest"), text_of(other, "digest")) == 0)
            continue;
        return BP_FAIL(BP_ERR_SOFTWARE,
                       "resume is not exact: %s has digest %.12s... without the kill, %.12s... "
                       "with it: at step %lld; please report it",
                       text_of(one, "name"), text_of(one, "digest"), text_of(other, "digest"),
                       (long long)step);
    }
    return BP_OK;
}

/* One line without what a clock says. */
static bp_err parse_metric(json_t **out, const char *line, size_t bytes)
{
    static const char *const TIMES[] = {"seconds", "tokens_per_second", "mfu"};
    bp_err err = bp_json_parse(out, line, bytes, "metrics.jsonl");

    for (size_t k = 0; err == BP_OK && k < sizeof TIMES / sizeof TIMES[0]; k++)
        (void)json_object_del(*out, TIMES[k]); /* it may not be there */
    return err;
}

static bp_err compare_members(json_t *a, json_t *b)
{
    const char *key;
    json_t *value;

    if (json_equal(a, b))
        return BP_OK;
    json_object_foreach(a, key, value)
    {
        const json_t *other = json_object_get(b, key);

        if (other && json_equal(value, other))
            continue;
        char *left = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
        char *right = other ? json_dumps(other, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17)) : NULL;
        bp_err err = BP_FAIL(BP_ERR_SOFTWARE,
                             "resume is not exact: %s is %s without the kill, %s with it: at step "
                             "%lld of metrics.jsonl; please report it",
                             key, left ? left : "?", right ? right : "missing",
                             (long long)json_integer_value(json_object_get(a, "step")));
        free(left);
        free(right);
        return err;
    }
    return BP_FAIL(BP_ERR_SOFTWARE,
                   "resume is not exact: another member of a line: at step %lld of metrics.jsonl; "
                   "please report it",
                   (long long)json_integer_value(json_object_get(a, "step")));
}

static bp_err compare_lines(const char *a, const char *b)
{
    bp_err err = BP_OK;

    while (err == BP_OK && *a != '\0' && *b != '\0') {
        size_t left = strcspn(a, "\n"), right = strcspn(b, "\n");
        json_t *one = NULL, *other = NULL;

        err = parse_metric(&one, a, left);
        if (err == BP_OK)
            err = parse_metric(&other, b, right);
        if (err == BP_OK)
            err = compare_members(one, other);
        json_decref(one);
        json_decref(other);
        a += left + (a[left] == '\n');
        b += right + (b[right] == '\n');
    }
    if (err == BP_OK && (*a != '\0' || *b != '\0'))
        err = BP_FAIL(BP_ERR_SOFTWARE,
                      "resume is not exact: metrics.jsonl has more lines %s the kill; please "
                      "report it",
                      *a != '\0' ? "without" : "with");
    return err;
}

static bp_err compare_metrics(const char *straight, const char *resumed)
{
    char *paths[2] = {bp_path_join(straight, "metrics.jsonl"),
                      bp_path_join(resumed, "metrics.jsonl")};
    char *text[2] = {NULL, NULL};
    size_t bytes;
    bp_err err = paths[0] && paths[1] ? bp_file_read(paths[0], LIMIT_BYTES, &text[0], &bytes)
                                      : bp_fail_memory("a path", 1, strlen(straight));

    if (err == BP_OK)
        err = bp_file_read(paths[1], LIMIT_BYTES, &text[1], &bytes);
    if (err == BP_OK)
        err = compare_lines(text[0], text[1]);
    for (int k = 0; k < 2; k++) {
        bp_free(paths[k]);
        bp_free(text[k]);
    }
    return err;
}

bp_err verify_compare(const char *straight, const char *resumed, int64_t step,
                      char digest[BP_SHA256_HEX])
{
    json_t *a = NULL, *b = NULL;
    char other[BP_SHA256_HEX];
    bp_err err = open_digest(straight, step, digest);

    if (err == BP_OK)
        err = open_digest(resumed, step, other);
    if (err == BP_OK)
        err = load_tensors(straight, step, &a);
    if (err == BP_OK)
        err = load_tensors(resumed, step, &b);
    if (err == BP_OK) /* the first step that differs tells more than the last one's tensors */
        err = compare_metrics(straight, resumed);
    if (err == BP_OK)
        err = compare_tensors(a, b, step);
    json_decref(a);
    json_decref(b);
    return err;
}

char *verify_last_words(const char *path)
{
    char *text = NULL, *words;
    const char *last = "";
    size_t bytes, length = 0;
    bool tells = false;

    if (bp_file_read(path, LIMIT_BYTES, &text, &bytes) != BP_OK)
        return bp_strdup("");
    for (char *line = text; *line != '\0';) {
        size_t run = strcspn(line, "\n");
        bool error = strncmp(line, "bagpipe: error[", strlen("bagpipe: error[")) == 0;

        if (run > 0 && (error || !tells)) {
            last = line;
            length = run;
            tells = tells || error;
        }
        line += run + (line[run] == '\n');
    }
    if (tells) { /* the program says it of itself, with the status, in its own line */
        size_t head = strcspn(last, "]");

        head += head < length ? strspn(last + head, "]: ") : 0;
        last += head < length ? head : 0;
        length -= head < length ? head : 0;
    }
    words = bp_sprintf("%.*s", (int)(length < 300 ? length : 300), last);
    bp_free(text);
    return words;
}
