/* The sources of a prediction: the positions of a datastore whose contexts, or the documents whose
 * vectors, are nearest to it. Khandelwal et al. 2020, "Generalization through Memorization: Nearest
 * Neighbor Language Models". */
#include "explain/nearest/nearest.h"

#include "base/mem.h"

enum { DOCUMENT, PLACE, DISTANCE };

static bp_err run(bp_model *model, const bp_explain_settings *settings,
                  const bp_explained *document, float *const *to)
{
    const bp_explain_form form = bp_explain_form_with(settings, document);
    int64_t count = form.K * form.neighbours;
    explain_near *found = bp_alloc("explain.nearest", count, sizeof *found);
    bp_err err = explain_nearest_find(settings->nearest, model, settings, document, found);

    for (int64_t i = 0; i < count && err == BP_OK; i++) {
        to[DOCUMENT][i] = (float)found[i].document;
        to[PLACE][i] = (float)found[i].place;
        to[DISTANCE][i] = (float)found[i].distance;
    }
    bp_free(found);
    return err;
}

/* The mean distance of the nearest. */
static void add(json_t *figures, const bp_explain_settings *settings, const bp_explained *document,
                const float *const *at)
{
    const bp_explain_form form = bp_explain_form_with(settings, document);

    for (int64_t k = 0; k < form.K; k++)
        bp_explain_add(figures, "distance", 1, at[DISTANCE] + k * form.neighbours, 1);
}

static const char *lacks(const bp_model_info *info)
{
    bool task = bp_task_has_head(&info->task);

    if (task && !bp_task_kind_of(&info->task)->whole_text)
        return "its predictions are not of whole texts";
    if (task && info->source_layers > 0)
        return "it reads its text twice, by encoder and decoder";
    return task || info->states.keys ? NULL : "it has no keys of texts";
}

const bp_explain_method bp_explain_sources = {
    .name = "sources",
    .title = "Nearest training texts",
    .help = "is the texts of a datastore (explain.datastore) that are nearest to a prediction",
    .of_one = true,
    .arrays = {{"near_document", BP_EXPLAIN_NEIGHBOURS},
               {"near_place", BP_EXPLAIN_NEIGHBOURS},
               {"near_distance", BP_EXPLAIN_NEIGHBOURS}},
    .lacks = lacks,
    .run = run,
    .add = add,
    .finish = bp_explain_means};
