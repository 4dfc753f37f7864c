/* Finds the documents that are versions of one text, by a label of the corpus. Called by
 * framed.c. */
#include "explain/texts/texts.h"

#include "base/buffer.h"
#include "base/mem.h"

#include <string.h>

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
        err = BP_FAIL(BP_ERR_CONFIG, "explain.no_sets",
                      "the corpus %s has no label '%s': at explain.sets; it has %s",
                      bp_corpus_file_path(file), texts->wish.sets,
                      names.bytes > 0 ? (const char *)names.data : "none");
    bp_buffer_clear(&names);
    return err;
}

/* Numbers of a file's documents; `numbers` has those of values so far. */
static bp_err number_file(explain_texts *texts, bp_corpus_file *file, int64_t first,
                          json_t *numbers)
{
    bp_corpus_label label;
    bp_err err = find_label(&label, texts, file);

    for (int64_t d = 0; d < bp_corpus_file_info(file)->documents && err == BP_OK; d++) {
        const char *value = label.values[label.codes[d]];

        if (!json_object_get(numbers, value))
            (void)json_object_set_new_nocheck(numbers, value,
                                              json_integer((json_int_t)json_object_size(numbers)));
        texts->sets[first + d] =
            value[0] ? json_integer_value(json_object_get(numbers, value)) : -1;
    }
    return err;
}

bp_err explain_sets_open(explain_texts *texts)
{
    json_t *numbers = json_object();
    int64_t first = 0;
    bp_err err = BP_OK;

    for (int64_t f = 0; f < bp_corpus_files(texts->corpus); f++)
        first += bp_corpus_file_info(bp_corpus_file_at(texts->corpus, f))->documents;
    texts->sets = bp_alloc("explain.texts", first, sizeof *texts->sets);
    first = 0;
    for (int64_t f = 0; f < bp_corpus_files(texts->corpus) && err == BP_OK; f++) {
        bp_corpus_file *file = bp_corpus_file_at(texts->corpus, f);

        err = number_file(texts, file, first, numbers);
        first += bp_corpus_file_info(file)->documents;
    }
    json_decref(numbers);
    return err;
}
