/* Documents of masked models and of tasks as examples between special tokens, and their targets:
 * positions with the mask, or masked in turn; classes, words, ends of answers. Called by texts.c.
 */
#include "explain/texts/texts.h"

#include "base/buffer.h"

#include <inttypes.h>
#include <string.h>

#define MASKS_BYTES ((int64_t)1 << 30)

/* ---- masked models ---- */

/* The entry of explain.masks for a document: positions among its tokens, without special ones. */
static const json_t *masks_of(const explain_texts *texts, int64_t d)
{
    return json_array_get(texts->masks, (size_t)d);
}

static bp_err fail_masks(const explain_texts *texts, int64_t d, const char *why)
{
    return BP_FAIL(BP_ERR_FORMAT, "explain.bad_masks",
                   "the masks of document %" PRId64 " %s: at %s; give a list of lists, one for "
                   "each document, of positions among its tokens, from 0, or of [position, label]",
                   d, why, texts->wish.masks);
}

/* Is it an ordinary token, which can be masked? */
static bool is_ordinary(const explain_texts *texts, int32_t token)
{
    const task_documents *examples = &texts->examples;

    return token != examples->frame.begin && token != examples->frame.middle &&
           token != examples->frame.end && token != examples->frame.pad;
}

static void add_target(explain_reading *read, int32_t target, int64_t place)
{
    bp_explained *document = &read->document;

    read->labels[document->K] = -1;
    read->targets[document->K] = target;
    read->positions[document->K++] = (int32_t)place;
}

/* An entry of a list of masks: a place, which is masked and whose token is the label, or [place,
 * label] of a place that is not changed (label -1: the first). */
static bool read_mask(const json_t *entry, int64_t *place, int64_t *label)
{
    const json_t *at = json_is_array(entry) ? json_array_get(entry, 0) : entry,
                 *named = json_is_array(entry) ? json_array_get(entry, 1) : NULL;

    *place = json_integer_value(at);
    *label = named ? json_integer_value(named) : -1;
    return json_is_integer(at) &&
           (!json_is_array(entry) ||
            (json_array_size(entry) == 2 && json_is_integer(named) && *label >= 0));
}

/* The targets that explain.masks names. */
static bp_err put_masks(const explain_texts *texts, int64_t d, explain_reading *read)
{
    const json_t *list = masks_of(texts, d);
    int64_t T = read->document.T, number = 0, wanted = 0, place, label;

    if (!json_is_array(list))
        return fail_masks(texts, d, "are no list");
    for (int64_t t = 0; t < T; t++) {
        if (!is_ordinary(texts, read->inputs[t]))
            continue;
        if (read_mask(json_array_get(list, (size_t)wanted), &place, &label) && place == number) {
            if (label >= texts->wish.info->vocab_size)
                return fail_masks(texts, d, "have a label that is no token");
            add_target(read, label >= 0 ? (int32_t)label : read->inputs[t], t);
            if (label < 0)
                read->inputs[t] = (int32_t)texts->mask;
            wanted++;
        }
        number++;
    }
    return wanted == (int64_t)json_array_size(list)
               ? BP_OK
               : fail_masks(texts, d, "are not in rising order, or not in the text that is read");
}

/* Each ordinary token masked in turn; if there are more than explain.places, some at even steps. */
static void mask_in_turn(const explain_texts *texts, explain_reading *read)
{
    int64_t T = read->document.T, count = 0, number = 0, most = texts->wish.positions;

    for (int64_t t = 0; t < T; t++)
        count += is_ordinary(texts, read->inputs[t]);
    for (int64_t t = 0; t < T; t++) {
        if (!is_ordinary(texts, read->inputs[t]))
            continue;
        if (most == 0 || count <= most || (number + 1) * most / count > number * most / count)
            add_target(read, read->inputs[t], t);
        number++;
    }
    read->document.hides = texts->mask;
}

static bp_err list_masked(const explain_texts *texts, int64_t d, explain_reading *read)
{
    int64_t T = read->document.T, masks = 0;

    if (texts->masks)
        return put_masks(texts, d, read);
    for (int64_t t = 0; t < T; t++)
        masks += read->inputs[t] == texts->mask;
    if (masks == 0) {
        mask_in_turn(texts, read);
        return BP_OK;
    }
    for (int64_t t = 0; t < T && texts->wish.target == EXPLAIN_BEST; t++)
        if (read->inputs[t] == texts->mask)
            add_target(read, 0, t);
    return BP_OK;
}

/* ---- tasks ---- */

/* Targets of one end of a row. */
static void add_targets(const explain_texts *texts, explain_reading *read, const task_row *row,
                        int64_t end)
{
    const task_documents *examples = &texts->examples;
    int64_t place = bp_task_documents_at(examples, row, end, 0, read->document.T);
    int32_t label = examples->kind->over_positions ? row->answer[end] : row->label;

    if (examples->kind->is_value) {
        add_target(read, 0, place);
        return;
    }
    switch (texts->wish.target) {
    case EXPLAIN_LABEL:
        if (label >= 0)
            add_target(read, label, place);
        break;
    case EXPLAIN_EVERY:
        for (int64_t k = 0; k < texts->wish.info->task.outcomes; k++)
            add_target(read, (int32_t)k, place);
        break;
    case EXPLAIN_CLASS:
        add_target(read, texts->outcome, place);
        break;
    default:
        add_target(read, 0, place);
    }
}

/* And their label. */
static void add_row(const explain_texts *texts, explain_reading *read, const task_row *row,
                    int64_t end)
{
    bool over_positions = texts->examples.kind->over_positions;
    int64_t first = read->document.K;

    add_targets(texts, read, row, end);
    for (int64_t k = first; k < read->document.K; k++)
        read->labels[k] = over_positions ? row->answer[end] : row->label;
}

static void list_rows(const explain_texts *texts, int64_t d, explain_reading *read)
{
    const task_documents *examples = &texts->examples;

    for (int64_t r = examples->first_row[d]; r < examples->first_row[d + 1]; r++)
        for (int64_t end = 0; end < task_documents_ends(examples); end++)
            if (!examples->kind->at_words || examples->row[r].place < read->document.T)
                add_row(texts, read, &examples->row[r], end);
}

/* ---- both ---- */

int64_t explain_framed_most(const explain_texts *texts, int64_t length)
{
    const bp_task_shape *task = &texts->wish.info->task;
    int64_t each = texts->wish.target == EXPLAIN_EVERY ? task->outcomes : 1;

    return bp_task_has_head(task) && !bp_task_kind_of(task)->at_words
               ? each * (int64_t)bp_task_kind_of(task)->ends
               : each * length;
}

bp_err explain_framed_read(explain_texts *texts, int64_t d, explain_reading *read)
{
    bp_err err =
        bp_task_documents_one(&texts->examples, d, read->inputs, read->segments, &read->document.T);

    read->document.K = 0;
    if (err != BP_OK)
        return err;
    if (texts->mask >= 0)
        return list_masked(texts, d, read);
    list_rows(texts, d, read);
    if (texts->sets) {
        read->document.of = explain_framed_document(texts, d);
        read->document.set = texts->sets[read->document.of];
        if (texts->examples.kind->is_value)
            read->document.value = (double)texts->examples.row[texts->examples.first_row[d]].value;
    }
    return BP_OK;
}

int64_t explain_framed_document(const explain_texts *texts, int64_t d)
{
    return bp_document_table_document(texts->examples.table, texts->examples.number[d]);
}

static bp_err find_outcome(explain_texts *texts)
{
    const task_documents *examples = &texts->examples;
    int64_t outcomes = texts->wish.info->task.outcomes;
    bp_buffer names = {0};
    bp_err err = BP_OK;

    texts->outcome = -1;
    for (int64_t k = 0; k < outcomes; k++) {
        if (strcmp(examples->names[k], texts->wish.outcome) == 0)
            texts->outcome = (int32_t)k;
        bp_buffer_printf(&names, "%s%s", k > 0 ? ", " : "", examples->names[k]);
    }
    if (texts->outcome < 0)
        err = BP_FAIL(BP_ERR_CONFIG, "explain.no_class",
                      "the model has no class or tag '%s': at explain.target; use best, label, "
                      "every, or one of %s",
                      texts->wish.outcome, (const char *)names.data);
    bp_buffer_clear(&names);
    return err;
}

static bp_err open_masks(explain_texts *texts)
{
    bp_err err;

    texts->mask = bp_corpus_roles(texts->corpus)[BP_ROLE_MASK];
    if (texts->mask < 0)
        return BP_FAIL(BP_ERR_CONFIG, "corpus.no_special_token",
                       "the corpus's tokenizer has no token for 'mask', which a masked model "
                       "needs: at %s; make the corpus with a tokenizer that has one",
                       texts->wish.corpus);
    if (!texts->wish.masks)
        return BP_OK;
    err = bp_json_load(&texts->masks, texts->wish.masks, MASKS_BYTES);
    if (err == BP_OK && json_array_size(texts->masks) != (size_t)texts->examples.count)
        err = BP_FAIL(BP_ERR_FORMAT, "explain.bad_masks",
                      "there are %zu lists of masks for %" PRId64 " documents: at %s; give a list "
                      "for each document",
                      json_array_size(texts->masks), texts->examples.count, texts->wish.masks);
    return err;
}

bp_err explain_framed_open(explain_texts *texts, const bp_mesh *mesh)
{
    const bp_model_info *info = texts->wish.info;
    task_documents_spec spec = {.mesh = mesh,
                                .model = info,
                                .path = texts->wish.model,
                                .corpus = texts->corpus,
                                .open = true,
                                .unlabelled = true,
                                .length = texts->wish.most};
    bp_err err = bp_task_documents_open(&texts->examples, &spec, mesh->world);

    if (err == BP_OK && texts->corpus && texts->wish.target == EXPLAIN_CLASS)
        err = find_outcome(texts);
    if (err == BP_OK && texts->corpus && info->masks)
        err = open_masks(texts);
    if (err == BP_OK && texts->corpus && texts->wish.sets)
        err = explain_sets_open(texts);
    return bp_agree(mesh->world, err);
}
