/* The lists of a configuration (models, corpora, shifts), taken apart. */
#include "uncertainty/comparison/comparison.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/score/tables/summary.h"
#include "uncertainty/comparison/predictions_file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A new string of text[0 .. bytes), blanks at both ends cut. */
static char *cut(const char *text, size_t bytes)
{
    while (bytes > 0 && isspace((unsigned char)text[0])) {
        text++;
        bytes--;
    }
    while (bytes > 0 && isspace((unsigned char)text[bytes - 1]))
        bytes--;
    return bp_sprintf("%.*s", (int)bytes, text);
}

bool comparison_next_item(const char **text, char **item)
{
    size_t bytes;

    *item = NULL;
    if (!*text)
        return false;
    bytes = strcspn(*text, ",");
    *item = cut(*text, bytes);
    *text = (*text)[bytes] == ',' ? *text + bytes + 1 : NULL;
    return true;
}

static bool is_safe(const char *name)
{
    size_t bytes = strlen(name);

    if (bytes == 0 || bytes >= COMPARISON_NAME_BYTES || name[0] == '.')
        return false;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            return false;
    return true;
}

char *comparison_safe_name(const char *name)
{
    char *safe = bp_sprintf("%.*s", COMPARISON_NAME_BYTES - 1, name[0] ? name : "_");

    for (char *c = safe; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
            *c = '_';
    if (safe[0] == '.')
        safe[0] = '_';
    return safe;
}

/* ---- methods ---- */

static bp_err refuse_word(const char *colon, const char *item)
{
    char *words = bp_uncertainty_method_words();
    bp_err err = BP_FAIL(BP_ERR_CONFIG, "comparison.unknown_method",
                         "there is no method '%s' of '%s': at uncertainty.models; use %s (a folder "
                         "with a ':' in its name is given with a '/' at its end)",
                         colon, item, words);

    bp_free(words);
    return err;
}

/* FOLDER or FOLDER:WORD: the text after the last ':' is a word if it has no '/'. */
static bp_err take_folder(comparison_method *method, const char *text, const char *item)
{
    const char *colon = strrchr(text, ':');

    if (bp_predictions_are_at(text)) {
        method->way = &comparison_predictions;
        method->path = cut(text, strlen(text));
        return BP_OK;
    }
    if (colon && strchr(colon, '/'))
        colon = NULL;
    method->way = colon ? bp_uncertainty_method_find(colon + 1) : &bp_plain_method;
    if (!method->way)
        return refuse_word(colon, item);
    method->path = cut(text, colon ? (size_t)(colon - text) : strlen(text));
    if (method->path[0] == '\0')
        return BP_FAIL(BP_ERR_CONFIG, "comparison.no_folder",
                       "'%s' names no folder: at uncertainty.models; write NAME=FOLDER", item);
    return BP_OK;
}

static bp_err take_method(comparison_methods *methods, const char *item)
{
    comparison_method *method = &methods->items[methods->count++];
    const char *equal = strchr(item, '=');

    *method = (comparison_method){0};
    if (!equal && bp_predictions_are_at(item))
        equal = strchr(item, ':');
    if (!equal)
        return BP_FAIL(BP_ERR_CONFIG, "comparison.no_name",
                       "'%s' has no name: at uncertainty.models; write NAME=FOLDER, NAME=FOLDER",
                       item);
    method->name = cut(item, (size_t)(equal - item));
    if (!is_safe(method->name))
        return BP_FAIL(BP_ERR_CONFIG, "comparison.bad_name",
                       "'%s' can't be the name of a method: at uncertainty.models; use up to %d "
                       "letters, digits and . _ - (no . at the start)",
                       method->name, COMPARISON_NAME_BYTES - 1);
    for (int64_t k = 0; k + 1 < methods->count; k++)
        if (strcmp(methods->items[k].name, method->name) == 0)
            return BP_FAIL(BP_ERR_CONFIG, "comparison.same_name",
                           "two methods have the name '%s': at uncertainty.models; rename one",
                           method->name);
    return take_folder(method, equal + 1, item);
}

const bp_uncertainty_method comparison_predictions = {.word = "predictions"};

int64_t comparison_first_model(const comparison_methods *methods)
{
    for (int64_t m = 0; m < methods->count; m++)
        if (methods->items[m].way != &comparison_predictions)
            return m;
    return -1;
}

bp_err comparison_methods_parse(comparison_methods *methods, const char *text)
{
    bp_err err = BP_OK;
    char *item;

    *methods = (comparison_methods){0};
    while (err == BP_OK && comparison_next_item(&text, &item)) {
        methods->items = bp_realloc("comparison.methods", methods->items, methods->count + 1,
                                    sizeof *methods->items);
        err = take_method(methods, item);
        bp_free(item);
    }
    return err;
}

void comparison_methods_clear(comparison_methods *methods)
{
    for (int64_t k = 0; k < methods->count; k++) {
        bp_free(methods->items[k].name);
        bp_free(methods->items[k].path);
    }
    bp_free(methods->items);
    *methods = (comparison_methods){0};
}

/* ---- groups of documents ---- */

/* The ':' before label=value: the last one before the first '=', with no '/' between them. */
static const char *find_label(const char *text)
{
    const char *equal = strchr(text, '=');
    const char *colon = NULL;

    if (!equal)
        return NULL;
    for (const char *c = text; c < equal; c++) {
        if (*c == ':')
            colon = c;
        else if (*c == '/')
            colon = NULL;
    }
    return colon;
}

/* NAME= at the start, if the text before the '=' is a name. */
static const char *find_name(const char *text)
{
    const char *equal = strchr(text, '=');

    for (const char *c = text; equal && c < equal; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._- ", *c))
            return NULL;
    return equal;
}

/* CORPUS:label, without the value: after the last ':' of a name that is not a file, if the text
 * before it is one. */
static bool lacks_value(const char *corpus)
{
    const char *colon = strrchr(corpus, ':');
    char *file;
    bool lacks;

    if (!colon || strchr(colon, '/') || bp_path_exists(corpus))
        return false;
    file = cut(corpus, (size_t)(colon - corpus));
    lacks = bp_path_exists(file);
    bp_free(file);
    return lacks;
}

/* An item in pieces: the name of its group (NULL if it has none), and a part, which must be
 * cleared. */
static bp_err split(char **group_name, comparison_part *out, const char *key, const char *item)
{
    const char *text = item, *name, *label;

    if (bp_path_exists(item)) {
        out->corpus = bp_strdup(item);
        return BP_OK;
    }
    name = find_name(item);
    if (name) {
        *group_name = cut(item, (size_t)(name - item));
        text = name + 1;
    }
    label = bp_path_exists(text) ? NULL : find_label(text);
    out->corpus = cut(text, label ? (size_t)(label - text) : strlen(text));
    if (label) {
        const char *equal = strchr(label, '=');

        out->label = cut(label + 1, (size_t)(equal - label - 1));
        out->value = cut(equal + 1, strlen(equal + 1));
    }
    if (out->corpus[0] == '\0' || (label && out->label[0] == '\0'))
        return BP_FAIL(BP_ERR_CONFIG, "comparison.no_corpus",
                       "'%s' names no %s: at %s; write CORPUS, CORPUS:label=value or NAME=CORPUS",
                       item, out->corpus[0] == '\0' ? "corpus" : "label", key);
    if (!label && lacks_value(out->corpus))
        return BP_FAIL(BP_ERR_CONFIG, "comparison.no_label_value",
                       "'%s' has a label without a value: at %s; write %s=VALUE", item, key, item);
    if (name && !is_safe(*group_name))
        return BP_FAIL(BP_ERR_CONFIG, "comparison.bad_name",
                       "'%s' can't be a name: at %s; use up to %d letters, digits and . _ -",
                       *group_name, key, COMPARISON_NAME_BYTES - 1);
    return BP_OK;
}

bool comparison_is_glob(const char *corpus)
{
    return strpbrk(corpus, "*?[") && !bp_path_exists(corpus);
}

/* A group without a name: a glob gets its names after its files are found. */
static char *name_of(const comparison_part *part)
{
    if (part->value || comparison_is_glob(part->corpus))
        return bp_strdup(part->value ? part->value : part->corpus);
    return bp_score_corpus_name(part->corpus);
}

static void clear_part(comparison_part *part)
{
    bp_free(part->corpus);
    bp_free(part->label);
    bp_free(part->value);
}

static comparison_group *find_group(comparison_groups *groups, const char *name)
{
    for (int64_t k = 0; k < groups->count; k++)
        if (strcmp(groups->items[k].name, name) == 0)
            return &groups->items[k];
    return NULL;
}

static bp_err take_group(comparison_groups *groups, const char *key, const char *item,
                         const char *whole)
{
    comparison_part part = {0};
    char *given = NULL, *name = NULL;
    comparison_group *group = NULL;
    bp_err err = split(&given, &part, key, item);

    if (err == BP_OK) {
        name = whole ? bp_strdup(whole) : given ? bp_strdup(given) : name_of(&part);
        group = find_group(groups, name);
        if (group && !whole && !(group->named && given))
            err = BP_FAIL(BP_ERR_CONFIG, "comparison.same_name",
                          "two groups have the name '%s': at %s; give one another name, NAME=%s",
                          name, key, item);
    }
    if (err == BP_OK && !group) {
        groups->items = bp_realloc("comparison.groups", groups->items, groups->count + 1,
                                   sizeof *groups->items);
        group = &groups->items[groups->count++];
        *group = (comparison_group){.name = bp_strdup(name), .named = given != NULL};
    }
    if (err == BP_OK) {
        group->parts = bp_realloc("comparison.groups", group->parts, group->part_count + 1,
                                  sizeof *group->parts);
        group->parts[group->part_count++] = part;
    } else {
        clear_part(&part);
    }
    bp_free(name);
    bp_free(given);
    return err;
}

bp_err comparison_groups_parse(comparison_groups *groups, const char *key, const char *text,
                               const char *whole)
{
    bp_err err = BP_OK;
    char *item;

    *groups = (comparison_groups){0};
    while (err == BP_OK && comparison_next_item(&text, &item)) {
        err = take_group(groups, key, item, whole);
        bp_free(item);
    }
    return err;
}

void comparison_groups_clear(comparison_groups *groups)
{
    for (int64_t k = 0; k < groups->count; k++) {
        comparison_group *group = &groups->items[k];

        for (int64_t i = 0; i < group->part_count; i++)
            clear_part(&group->parts[i]);
        bp_free(group->parts);
        bp_free(group->documents);
        bp_free(group->name);
    }
    bp_free(groups->items);
    *groups = (comparison_groups){0};
}

/* ---- coverages ---- */

/* A whole number of percent; 0 if it is not one. */
static int percent_of(const char *word)
{
    char *end;
    long value = strtol(word, &end, 10);

    while (isspace((unsigned char)*end))
        end++;
    return isdigit((unsigned char)word[0]) && *end == '\0' && value >= 1 && value <= 100
               ? (int)value
               : 0;
}

bp_err comparison_coverages_parse(comparison_coverages *out, const char *text)
{
    char *copy = bp_strdup(text), *rest = copy, *word;
    bp_err err = BP_OK;

    out->count = 0;
    while (err == BP_OK && (word = strsep(&rest, ","))) {
        int percent = percent_of(word += strspn(word, " \t")), k = out->count;

        if (percent == 0 || k == COMPARISON_COVERAGES || (k > 0 && percent <= out->percent[k - 1]))
            err = BP_FAIL(BP_ERR_CONFIG, "comparison.bad_coverages",
                          "uncertainty.coverages = %s is not a list of at most %d ascending "
                          "percentages from 1 to 100: at uncertainty.coverages; give one such as "
                          "50, 80, 90",
                          text, COMPARISON_COVERAGES);
        else
            out->percent[out->count++] = percent;
    }
    bp_free(copy);
    return err;
}
