/* Sizes of methods' results for a document, and the offsets of their arrays. Called by methods and
 * by explain.c. */
#include "explain/method.h"

int64_t bp_explain_foils(const bp_model_info *info)
{
    return bp_task_kind_has_classes(bp_task_kind_of(&info->task)) ? info->task.outcomes - 1 : 1;
}

bp_explain_form bp_explain_form_of(const bp_model_info *info, const bp_explained *document)
{
    return (bp_explain_form){.K = document->K,
                             .T = document->T,
                             .S = document->S,
                             .layers = info->layers,
                             .heads = info->heads,
                             .source_layers = info->source_layers,
                             .foils = bp_explain_foils(info),
                             .outcomes = bp_task_kind_has_classes(bp_task_kind_of(&info->task))
                                             ? info->task.outcomes
                                             : 0};
}

bp_explain_form bp_explain_form_with(const bp_explain_settings *settings,
                                     const bp_explained *document)
{
    bp_explain_form form = bp_explain_form_of(settings->info, document);

    form.flips = settings->keys->flips;
    form.edits = settings->keys->edits;
    form.neighbours = settings->keys->neighbours;
    form.curves = (settings->ranks_count + 1) * BP_EXPLAIN_SHARES;
    return form;
}

int64_t bp_explain_values(const bp_explain_array *array, const bp_explain_form *form)
{
    const int64_t all[] = {
        [BP_EXPLAIN_BY_TARGET] = form->K,
        [BP_EXPLAIN_BY_INPUT] = form->K * form->T,
        [BP_EXPLAIN_BY_SOURCE] = form->K * form->S,
        [BP_EXPLAIN_BY_POSITIONS] = form->T * form->T,
        [BP_EXPLAIN_BY_FOIL] = form->K * form->foils,
        [BP_EXPLAIN_BY_FOIL_INPUT] = form->K * form->foils * form->T,
        [BP_EXPLAIN_BY_FOIL_SOURCE] = form->K * form->foils * form->S,
        [BP_EXPLAIN_BY_LAYER] = form->K * (form->layers + 1),
        [BP_EXPLAIN_TOPS] = form->K * (form->layers + 1) * BP_EXPLAIN_TOP,
        [BP_EXPLAIN_BY_HEAD] = form->layers * form->heads,
        [BP_EXPLAIN_BY_SOURCE_POSITIONS] = form->S * form->S,
        [BP_EXPLAIN_BY_SOURCE_HEAD] = form->S > 0 ? form->source_layers * form->heads : 0,
        [BP_EXPLAIN_BY_CROSS_HEAD] = form->S > 0 ? form->layers * form->heads : 0,
        [BP_EXPLAIN_NEIGHBOURS] = form->K * form->neighbours,
        [BP_EXPLAIN_CURVES] = form->K * form->curves,
        [BP_EXPLAIN_BY_PLACE] = form->T,
        [BP_EXPLAIN_BY_SOURCE_PLACE] = form->S,
        [BP_EXPLAIN_FLIPS] = form->T * form->flips,
        [BP_EXPLAIN_SOURCE_FLIPS] = form->S * form->flips,
        [BP_EXPLAIN_EDITS] = form->edits,
        [BP_EXPLAIN_BY_OUTCOME] = form->outcomes,
        [BP_EXPLAIN_BY_DOCUMENT] = 1,
        [BP_EXPLAIN_BY_PAIR] = form->S > 0 ? 1 : 0};

    return all[array->shape];
}

int64_t bp_explain_head_layers(const bp_explain_array *array, const bp_model_info *info)
{
    return array->shape == BP_EXPLAIN_BY_SOURCE_HEAD ? info->source_layers
           : array->shape == BP_EXPLAIN_BY_HEAD || array->shape == BP_EXPLAIN_BY_CROSS_HEAD
               ? info->layers
               : 0;
}

int bp_explain_attentions(bp_explain_attends out[BP_EXPLAIN_ATTENTIONS],
                          const bp_explain_form *form)
{
    out[0] = (bp_explain_attends){"", "attention", false, form->layers, form->T, form->T};
    out[1] =
        (bp_explain_attends){"encoder_", "attention", true, form->source_layers, form->S, form->S};
    out[2] =
        (bp_explain_attends){"cross_", "cross_attention", false, form->layers, form->T, form->S};
    return form->S > 0 ? BP_EXPLAIN_ATTENTIONS : 1;
}

int64_t bp_explain_floats(const bp_explain_method *method, const bp_explain_form *form)
{
    int64_t floats = 0;

    for (int k = 0; k < BP_EXPLAIN_ARRAYS && method->arrays[k].name && form->K > 0; k++)
        floats += bp_explain_values(&method->arrays[k], form);
    return floats;
}

void bp_explain_lay_out_to(float *at[BP_EXPLAIN_ARRAYS], const bp_explain_method *method,
                           const bp_explain_form *form, float *results)
{
    for (int k = 0; k < BP_EXPLAIN_ARRAYS && method->arrays[k].name; k++) {
        at[k] = results;
        results += bp_explain_values(&method->arrays[k], form);
    }
}

void bp_explain_lay_out(const float *at[BP_EXPLAIN_ARRAYS], const bp_explain_method *method,
                        const bp_explain_form *form, const float *results)
{
    for (int k = 0; k < BP_EXPLAIN_ARRAYS && method->arrays[k].name; k++) {
        at[k] = results;
        results += bp_explain_values(&method->arrays[k], form);
    }
}
