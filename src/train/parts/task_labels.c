/* Labels of a fine-tuning: those of corpus.train, or a list of all labels. Called by task.c. */
#include "train/parts/task_labels.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "text/unicode/characters.h"

#include <inttypes.h>
#include <string.h>

#define FILE_LIMIT   ((int64_t)64 << 20) /* of task.labels */
#define LABELS_SHOWN 10

static const bp_task_kind *kind_of(const trainer *self)
{
    return bp_task_kind_named(bp_task_keys_of(self->config)->kind);
}

static const char *train_path(const trainer *self)
{
    return bp_corpus_file_path(bp_corpus_file_at(self->data.corpus, 0));
}

/* ---- labels of corpora ---- */

/* Labels of a corpus, sorted: an array that is a new reference. */
static bp_err list_corpus(json_t **out, const trainer *self, const bp_corpus *corpus,
                          const char *column)
{
    char **names = NULL;
    int64_t count = 0;
    bp_err err = column ? bp_corpus_classes(corpus, column, &names, &count)
                        : bp_corpus_tags(corpus, &names, &count);

    *out = json_array();
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        if (bp_text_is_utf8(names[k], strlen(names[k])))
            (void)json_array_append_new(*out, bp_json_string(names[k]));
        else
            err = BP_FAIL(BP_ERR_FORMAT, "task.bad_label",
                          "the %s '%.60s' is not valid UTF-8: at %s; correct it in the text that "
                          "the corpus is made of",
                          kind_of(self)->outcome, names[k],
                          bp_corpus_file_path(bp_corpus_file_at(corpus, 0)));
    bp_names_free(&names, count);
    return err;
}

static bool has(const json_t *names, const char *name)
{
    for (size_t k = 0; k < json_array_size(names); k++)
        if (strcmp(json_string_value(json_array_get(names, k)), name) == 0)
            return true;
    return false;
}

static bp_err check_seen(const trainer *self, const json_t *seen, const char *outside)
{
    size_t count = json_array_size(seen);

    if (count < 2)
        return BP_FAIL(BP_ERR_FORMAT, "task.one_class",
                       "all %s have one %s, '%s': at %s; there is nothing to learn, give another "
                       "task.label or corpus",
                       kind_of(self)->labelled, kind_of(self)->outcome,
                       count > 0 ? json_string_value(json_array_get(seen, 0)) : "",
                       train_path(self));
    if (outside && !has(seen, outside))
        return BP_FAIL(BP_ERR_FORMAT, "dirichlet.no_outside",
                       "no document has the class '%.60s': at dirichlet.outside; name one of %s",
                       outside, bp_corpus_keys_of(self->config)->train);
    if (outside && count < 3)
        return BP_FAIL(BP_ERR_FORMAT, "task.one_class",
                       "all documents of the domain have one class: at %s; there is nothing to "
                       "learn, give another task.label or corpus",
                       train_path(self));
    return BP_OK;
}

/* ---- task.labels ---- */

static bp_err add_line(json_t *known, const char *line, size_t bytes, int64_t number,
                       const char *path)
{
    if (!bp_text_is_utf8(line, bytes) || strlen(line) != bytes)
        return BP_FAIL(BP_ERR_FORMAT, "task.bad_label",
                       "line %" PRId64 " of the list of labels is not valid UTF-8, or has a byte "
                       "0: at %s; correct it",
                       number, path);
    if (json_object_get(known, line))
        return BP_FAIL(BP_ERR_FORMAT, "task.repeated_label",
                       "line %" PRId64 " repeats the label '%.60s': at %s; name each label once",
                       number, line, path);
    (void)json_object_set_new(known, line, json_true());
    return BP_OK;
}

/* A label a line, in their order; empty lines are ignored. A JSON object keeps the order and finds
 * duplicates. */
static bp_err read_list(json_t *known, const char *path)
{
    char *text = NULL, *line;
    size_t bytes = 0;
    int64_t number = 0;
    bp_err err = bp_file_read(path, FILE_LIMIT, &text, &bytes);
    size_t at = err == BP_OK ? bp_mark_bytes(text, bytes) : 0;

    while (err == BP_OK && at < bytes) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end ? (size_t)(end - text) - at : bytes - at, next = at + length + 1;

        line = text + at;
        length -= length > 0 && line[length - 1] == '\r';
        line[length] = '\0'; /* bp_file_read leaves a place at its end */
        number++;
        if (length > 0)
            err = add_line(known, line, length, number, path);
        at = next;
    }
    bp_free(text);
    if (err == BP_OK && json_object_size(known) < 2)
        err = BP_FAIL(BP_ERR_FORMAT, "task.one_class",
                      "the list has %zu labels: at %s; name two or more, each in a line",
                      json_object_size(known), path);
    return err;
}

/* Reports labels that the file names and no document has. */
static void say_unseen(const trainer *self, const json_t *listed, const json_t *seen,
                       const char *path)
{
    bp_buffer shown = {0};
    const char *name;
    json_t *value;
    int64_t unseen = 0;

    json_object_foreach((json_t *)listed, name, value)
    {
        if (has(seen, name))
            continue;
        if (unseen++ < LABELS_SHOWN)
            bp_buffer_printf(&shown, "%s%.40s", unseen > 1 ? ", " : "", name);
    }
    if (self->mesh->coordinates && unseen > 0)
        bp_log("task: %" PRId64 " of %zu labels of %s have no %s in corpus.train: %s%s", unseen,
               json_object_size(listed), path, kind_of(self)->prediction, shown.data,
               unseen > LABELS_SHOWN ? ", ..." : "");
    bp_buffer_clear(&shown);
}

/* Without a common label no prediction could be right. Corpora without a list may have no other
 * label. */
static bp_err check_valid(const trainer *self, const json_t *seen, const char *column)
{
    const bp_corpus *valid = self->data.valid_corpus;
    json_t *names = NULL;
    bool shared = false;
    bp_err err = valid ? list_corpus(&names, self, valid, column) : BP_OK;

    for (size_t k = 0; err == BP_OK && k < json_array_size(names); k++)
        shared = shared || has(seen, json_string_value(json_array_get(names, k)));
    if (err == BP_OK && valid && !shared)
        err = BP_FAIL(BP_ERR_FORMAT, "task.no_shared_label",
                      "no %s of the validation corpus has a label that corpus.train has: at %s; "
                      "give a corpus of the same task",
                      kind_of(self)->prediction, bp_corpus_file_path(bp_corpus_file_at(valid, 0)));
    json_decref(names);
    return err;
}

static bp_err take_list(json_t **names, const trainer *self, const json_t *seen, const char *column)
{
    const char *path = bp_task_keys_of(self->config)->labels, *name;
    json_t *listed = json_object(), *value;
    bp_err err = read_list(listed, path);

    for (size_t k = 0; err == BP_OK && k < json_array_size(seen); k++) {
        name = json_string_value(json_array_get(seen, k));
        if (!json_object_get(listed, name))
            err = BP_FAIL(BP_ERR_FORMAT, "task.unlisted_label",
                          "corpus.train has the %s '%.60s', which the list of labels lacks: at "
                          "%s; add it in a line of its own",
                          kind_of(self)->outcome, name, path);
    }
    if (err == BP_OK)
        err = check_valid(self, seen, column);
    if (err == BP_OK)
        say_unseen(self, listed, seen, path);
    *names = json_array();
    json_object_foreach(listed, name, value)
    {
        (void)json_array_append_new(*names, bp_json_string(name));
    }
    json_decref(listed);
    return err;
}

bp_err task_labels_find(json_t **names, const trainer *self, const char *column,
                        const char *outside)
{
    json_t *seen = NULL;
    bp_err err = list_corpus(&seen, self, self->data.corpus, column);

    *names = NULL;
    if (err == BP_OK)
        err = check_seen(self, seen, outside);
    if (err == BP_OK && bp_task_keys_of(self->config)->labels)
        err = take_list(names, self, seen, column);
    else if (err == BP_OK)
        *names = json_incref(seen);
    for (size_t k = 0; outside && k < json_array_size(*names); k++)
        if (strcmp(json_string_value(json_array_get(*names, k)), outside) == 0)
            (void)json_array_remove(*names, k--);
    if (err != BP_OK) {
        json_decref(*names);
        *names = NULL;
    }
    json_decref(seen);
    return err;
}
