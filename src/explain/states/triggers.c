/* Lists of positions with the largest coefficients. Called by memories.c and explain.c. */
#include "explain/states/memories.h"

#include "base/mem.h"

#include <string.h>

bp_err bp_triggers_new(bp_triggers *out, int64_t lists, int64_t k)
{
    *out = (bp_triggers){.lists = lists,
                         .k = k,
                         .list = bp_try_alloc("explain.triggers", lists * k, sizeof(bp_trigger)),
                         .counts = bp_try_alloc("explain.triggers", lists, sizeof(int32_t))};
    return out->list && out->counts
               ? BP_OK
               : bp_fail_memory("positions of keys", lists * k, sizeof(bp_trigger));
}

void bp_triggers_clear(bp_triggers *triggers)
{
    bp_free(triggers->list);
    bp_free(triggers->counts);
    *triggers = (bp_triggers){0};
}

/* Does `a` come before `b`? */
static bool precedes(const bp_trigger *a, const bp_trigger *b)
{
    if (a->value > b->value || a->value < b->value)
        return a->value > b->value;
    return a->document != b->document ? a->document < b->document : a->place < b->place;
}

bool bp_triggers_add(bp_triggers *triggers, int64_t list, const bp_trigger *trigger)
{
    bp_trigger *own = triggers->list + list * triggers->k;
    int32_t *count = &triggers->counts[list];
    int64_t at = *count;

    if (!(trigger->value > 0))
        return false;
    while (at > 0 && precedes(trigger, &own[at - 1]))
        at--;
    if (at == triggers->k)
        return false;
    *count += *count < triggers->k;
    memmove(own + at + 1, own + at, (size_t)(*count - at - 1) * sizeof *own);
    own[at] = *trigger;
    return true;
}

bp_memory_form bp_memory_form_of(const bp_explain_settings *settings)
{
    bp_memory_form form = {
        .keys = settings->info->keys,
        .ends = settings->info->gated ? 2 : 1,
        .layer = bp_alloc("explain.triggers", settings->layer_count, sizeof(int64_t))};

    for (int64_t at = 0; at < settings->layer_count; at++)
        if (settings->layers[at] > 0) /* the embedding has no MLP */
            form.layer[form.layers++] = settings->layers[at] - 1;
    return form;
}

void bp_memory_form_clear(bp_memory_form *form)
{
    bp_free(form->layer);
}
