/* Reads manifests and journals of models before any is opened. Called by setup.c. */
#include "uncertainty/comparison/comparison.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "models/open.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METRICS_LIMIT ((int64_t)4 << 30)

/* ---- seconds of training ---- */

/* The sum of `seconds` over the lines up to `step`. */
static double sum_seconds(char *text, int64_t step)
{
    double sum = 0;
    char *rest = text, *line;

    while ((line = strsep(&rest, "\n"))) {
        json_t *object = line[0] ? json_loads(line, 0, NULL) : NULL;
        const json_t *seconds = json_object_get(object, "seconds");

        if (json_integer_value(json_object_get(object, "step")) <= step && json_is_number(seconds))
            sum += json_number_value(seconds);
        json_decref(object);
    }
    return sum;
}

/* The sum for the run that contains the step folder; NaN if there is none. */
static double train_seconds(const char *folder, int64_t step)
{
    char *real = realpath(folder, NULL); /* checkpoints/best is a link */
    char *metrics = real ? bp_sprintf("%s/../../metrics.jsonl", real) : NULL, *text = NULL;
    size_t bytes;
    double seconds = NAN;

    if (metrics && bp_path_exists(metrics) &&
        bp_file_read(metrics, METRICS_LIMIT, &text, &bytes) == BP_OK)
        seconds = sum_seconds(text, step);
    bp_free(text);
    bp_free(metrics);
    free(real);
    return seconds;
}

/* ---- manifests ---- */

static void hash_classes(comparison_metadata *metadata, const json_t *classes)
{
    char *text = classes ? json_dumps(classes, JSON_COMPACT) : NULL;

    if (text)
        bp_sha256_of(text, strlen(text), metadata->classes_hash);
    free(text);
}

/* Is a step folder, which `path` means, the best one of its run, and not merely the newest? */
static bool is_chosen(const char *path, const char *folder, int64_t step)
{
    char *real = realpath(folder, NULL), *parent = real ? bp_path_join(real, "..") : NULL;
    bool best = parent && bp_checkpoints_best(parent) == step;
    bool chosen = best && (strcmp(bp_path_base(path), "best") == 0 ||
                           bp_checkpoint_newest_step(parent) != step);

    bp_free(parent);
    free(real);
    return chosen;
}

static bp_err read_state(comparison_metadata *metadata, const json_t *manifest, const char *path,
                         const char *folder)
{
    const json_t *state = json_object_get(manifest, "state");
    const json_t *model = json_object_get(state, "model");
    const char *hash = json_string_value(json_object_get(state, "tokenizer_hash"));
    const char *corpus = json_string_value(json_object_get(state, "corpus_hash"));
    const char *valid = json_string_value(json_object_get(state, "valid_hash"));
    int64_t step = json_integer_value(json_object_get(state, "step"));

    metadata->context = bp_model_state_context(state);
    metadata->vocab_size = json_integer_value(json_object_get(model, "vocab_size"));
    metadata->width = json_integer_value(json_object_get(model, "width"));
    snprintf(metadata->tokenizer_hash, sizeof metadata->tokenizer_hash, "%s", hash ? hash : "");
    snprintf(metadata->corpus_hash, sizeof metadata->corpus_hash, "%s", corpus ? corpus : "");
    bool chosen = is_chosen(path, folder, step); /* by all steps, also those after it */
    if (valid && chosen)
        snprintf(metadata->chosen_by, sizeof metadata->chosen_by, "%s", valid);
    metadata->train_seconds = train_seconds(folder, chosen ? INT64_MAX : step);
    hash_classes(metadata, json_object_get(model, "labels"));
    return bp_task_from_json(&metadata->task, model, folder);
}

/* One CHECKPOINT. */
static bp_err read_member(comparison_metadata *metadata, const char *path)
{
    char *folder, *file = NULL;
    json_t *manifest;
    bp_err err = bp_checkpoint_read_metadata(path, &folder, &manifest);

    *metadata = (comparison_metadata){.members = 1, .train_seconds = NAN};
    if (err == BP_OK && manifest) {
        err = read_state(metadata, manifest, path, folder);
        file = bp_path_join(folder, "manifest.json");
        if (err == BP_OK)
            err = bp_sha256_of_file(file, metadata->digest, NULL);
    }
    json_decref(manifest);
    bp_free(file);
    bp_free(folder);
    return err;
}

bool comparison_same_task(const comparison_metadata *one, const comparison_metadata *other)
{
    return one->task.kind == other->task.kind && one->task.outcomes == other->task.outcomes &&
           strcmp(one->classes_hash, other->classes_hash) == 0;
}

/* Add a member to the whole; `path` and `first` are for messages. */
static bp_err join(comparison_metadata *metadata, const comparison_metadata *member,
                   const char *path, const char *first)
{
    char both[2 * BP_SHA256_HEX];
    int bytes;

    if (metadata->vocab_size > 0 && member->vocab_size > 0 &&
        metadata->vocab_size != member->vocab_size)
        return BP_FAIL(BP_ERR_FORMAT, "ensemble.unlike_members",
                       "members of an ensemble have vocab_size %" PRId64 " and %" PRId64
                       ": at %s and %s; they must share a tokenizer",
                       metadata->vocab_size, member->vocab_size, first, path);
    if (path != first && !comparison_same_task(metadata, member))
        return BP_FAIL(BP_ERR_FORMAT, "ensemble.unlike_members",
                       "members of an ensemble have different tasks or classes, %s and %s: at %s "
                       "and %s",
                       bp_task_name(metadata->task.kind), bp_task_name(member->task.kind), first,
                       path);
    metadata->task = member->task;
    memcpy(metadata->classes_hash, member->classes_hash, sizeof metadata->classes_hash);
    if (metadata->tokenizer_hash[0] && member->tokenizer_hash[0] &&
        !bp_tokenizer_same_hash(metadata->tokenizer_hash, member->tokenizer_hash))
        return BP_FAIL(BP_ERR_FORMAT, "ensemble.unlike_members",
                       "members of an ensemble have other tokenizers, %.12s... and %.12s...: at %s "
                       "and %s",
                       metadata->tokenizer_hash, member->tokenizer_hash, first, path);
    if (member->vocab_size > 0)
        metadata->vocab_size = member->vocab_size;
    if (member->tokenizer_hash[0])
        memcpy(metadata->tokenizer_hash, member->tokenizer_hash, sizeof metadata->tokenizer_hash);
    if (member->context > 0 && (metadata->context == 0 || member->context < metadata->context))
        metadata->context = member->context;
    if (path == first)
        memcpy(metadata->corpus_hash, member->corpus_hash, sizeof metadata->corpus_hash);
    else if (strcmp(metadata->corpus_hash, member->corpus_hash) != 0)
        metadata->corpus_hash[0] = '\0';
    if (member->chosen_by[0])
        memcpy(metadata->chosen_by, member->chosen_by, sizeof metadata->chosen_by);
    metadata->train_seconds += member->train_seconds;
    bytes = snprintf(both, sizeof both, "%s %s", metadata->digest, member->digest);
    bp_sha256_of(both, (size_t)bytes, metadata->digest);
    return BP_OK;
}

static bp_err look_at_ensemble(comparison_metadata *metadata, const comparison_method *method)
{
    bp_ensemble_list list;
    bp_err err = bp_ensemble_list_load(&list, method->path);

    *metadata = (comparison_metadata){.ensemble = true, .members = list.count};
    for (int64_t k = 0; err == BP_OK && k < list.count; k++) {
        comparison_metadata member;

        err = read_member(&member, list.members[k].path);
        if (err == BP_OK)
            err = join(metadata, &member, list.members[k].path, list.members[0].path);
        else
            err = bp_err_prefix(err, "member %s", list.members[k].name);
    }
    bp_ensemble_list_clear(&list);
    return err;
}

bp_err comparison_read_classes(char ***names, int64_t *count, const char *path)
{
    json_t *state = NULL;
    bp_err err = bp_ensemble_read_state(&state, path);
    const json_t *labels = json_object_get(json_object_get(state, "model"), "labels");

    *names = NULL;
    *count = 0;
    if (json_array_size(labels) > 0)
        *names = bp_alloc("comparison.classes", (int64_t)json_array_size(labels), sizeof **names);
    for (size_t k = 0; k < json_array_size(labels); k++) {
        const char *name = json_string_value(json_array_get(labels, k));

        (*names)[(*count)++] = bp_strdup(name ? name : "");
    }
    json_decref(state);
    return err;
}

bp_err comparison_read_metadata(comparison_metadata *metadata, const comparison_method *method)
{
    bp_err err;

    if (bp_path_exists(method->path) && !bp_path_is_dir(method->path) &&
        !bp_ensemble_is(method->path))
        err = BP_FAIL(BP_ERR_CONFIG, "predictions.other_ending",
                      "it is a file, and files of predictions are .csv or .npy: at %s; write one "
                      "of these, or name a model's folder",
                      method->path);
    else if (!bp_ensemble_is(method->path))
        err = read_member(metadata, method->path);
    else if (method->way->sampler)
        err = BP_FAIL(BP_ERR_CONFIG, "comparison.ensemble_method",
                      "an ensemble can't be scored with :%s: at %s; name one CHECKPOINT",
                      method->way->word, method->path);
    else
        err = look_at_ensemble(metadata, method);
    return err == BP_OK ? err : bp_err_prefix(err, "method %s", method->name);
}
