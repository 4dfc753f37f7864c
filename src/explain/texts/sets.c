/* Finds the documents that are versions of one text, by a label of the corpus or a list in a file.
 * Called by framed.c. */
#include "explain/texts/texts.h"

#include "base/buffer.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>

#define LIST       ".json" /* how the name of a file ends */
#define LIST_BYTES ((int64_t)1 << 30)

/* The label of a file with the wish's name; else a list of the existing ones. */
static bp_err find_label(bp_corpus_label *out, const explain_texts *texts, bp_corpus_file *file)
{
    bp_buffer names = {0};
    bool found = false;
    bp_err err = BP_OK;

    for (int k = 0; k < bp_corpus_file_info(file)->labels && !found && err == BP_OK; k++) {
        err = bp_corpus_file_label(file, k, out);
        if (err != BP_OK)
            break;
        found = strcmp(out->name, texts->wish.sets) == 0;
        bp_buffer_printf(&names, "%s%s", names.bytes > 0 ? ", " : "", out->name);
    }
    if (err == BP_OK && !found)
        err = BP_FAIL(
            BP_ERR_CONFIG, "explain.no_sets",
            "the corpus %s has no label '%s': at explain.sets; it has %s (a file with a list "
            "ends with .json)",
            bp_corpus_file_path(file), texts->wish.sets,
            names.bytes > 0 ? (const char *)names.data : "none");
    bp_buffer_clear(&names);
    return err;
}

/* The number of a set's name; `numbers` has those so far. */
static int64_t number_of(json_t *numbers, const char *name)
{
    if (name[0] == '\0')
        return -1;
    if (!json_object_get(numbers, name))
        (void)json_object_set_new_nocheck(numbers, name,
                                          json_integer((json_int_t)json_object_size(numbers)));
    return json_integer_value(json_object_get(numbers, name));
}

/* Numbers of a file's documents. */
static bp_err number_file(explain_texts *texts, bp_corpus_file *file, int64_t first,
                          json_t *numbers)
{
    bp_corpus_label label;
    bp_err err = find_label(&label, texts, file);

    for (int64_t d = 0; d < bp_corpus_file_info(file)->documents && err == BP_OK; d++)
        texts->sets[first + d] = number_of(numbers, label.values[label.codes[d]]);
    return err;
}

static bp_err fail_list(const explain_texts *texts, const char *why)
{
    return BP_FAIL(BP_ERR_FORMAT, "explain.bad_sets",
                   "%s: at %s; give a list with the name of each document's set, or null", why,
                   texts->wish.sets);
}

/* A list in a file: the name of each document's set. */
static bp_err read_list(explain_texts *texts, int64_t documents, json_t *numbers)
{
    json_t *list = NULL, *name;
    bp_err err = bp_json_load(&list, texts->wish.sets, LIST_BYTES);
    size_t d;

    if (err == BP_OK && !json_is_array(list))
        err = fail_list(texts, "the sets are no list");
    else if (err == BP_OK && json_array_size(list) != (size_t)documents)
        err = BP_FAIL(BP_ERR_FORMAT, "explain.bad_sets",
                      "there are %zu names of sets for %" PRId64 " documents: at %s; give one for "
                      "each document, or null",
                      json_array_size(list), documents, texts->wish.sets);
    json_array_foreach(list, d, name)
    {
        if (err == BP_OK && !json_is_string(name) && !json_is_null(name))
            err = fail_list(texts, "an entry is no name");
        if (err == BP_OK)
            texts->sets[d] =
                number_of(numbers, json_is_string(name) ? json_string_value(name) : "");
    }
    json_decref(list);
    return err;
}

/* Do two documents belong together? */
static bool have_pair(const explain_texts *texts, int64_t documents, int64_t count)
{
    bool *seen = bp_alloc("explain.texts", count, sizeof *seen), pair = false;

    for (int64_t d = 0; d < documents; d++)
        if (texts->sets[d] >= 0) {
            pair = pair || seen[texts->sets[d]];
            seen[texts->sets[d]] = true;
        }
    bp_free(seen);
    return pair;
}

bool explain_sets_are_listed(const char *sets)
{
    size_t bytes = sets ? strlen(sets) : 0;

    return bytes > strlen(LIST) && strcmp(sets + bytes - strlen(LIST), LIST) == 0;
}

bp_err explain_sets_open(explain_texts *texts)
{
    json_t *numbers = json_object();
    int64_t documents = 0, first = 0;
    bool listed = explain_sets_are_listed(texts->wish.sets);
    bp_err err = BP_OK;

    for (int64_t f = 0; f < bp_corpus_files(texts->corpus); f++)
        documents += bp_corpus_file_info(bp_corpus_file_at(texts->corpus, f))->documents;
    texts->sets = bp_alloc("explain.texts", documents, sizeof *texts->sets);
    if (listed)
        err = read_list(texts, documents, numbers);
    for (int64_t f = 0; f < bp_corpus_files(texts->corpus) && err == BP_OK && !listed; f++) {
        bp_corpus_file *file = bp_corpus_file_at(texts->corpus, f);

        err = number_file(texts, file, first, numbers);
        first += bp_corpus_file_info(file)->documents;
    }
    texts->lone = err == BP_OK && !have_pair(texts, documents, (int64_t)json_object_size(numbers));
    json_decref(numbers);
    return err;
}
