/* The list of all families. */
#include "models/list.h"

#include "models/forms.h"
#include "models/shape/sizes.h"
#include "models/task/causal_classes.h"

#include <string.h>

#define ROW(name) &bp_##name##_family,
static const bp_model_family *families[BP_MODEL_FAMILIES_MOST] = {BP_FAMILY_LIST(ROW)};

/* Derived from the list: the values of model.kind, and all keys. */
__attribute__((constructor)) static void list_all(void)
{
    keys_list(families);
}

const bp_model_family *bp_model_family_find(const char *name)
{
    for (int k = 0; families[k]; k++)
        if (strcmp(families[k]->name, name) == 0)
            return families[k];
    return NULL;
}

const bp_model_family *bp_model_family_benched(bool counted)
{
    for (int k = 0; families[k]; k++)
        if (families[k]->benched && (families[k]->counting != NULL) == counted)
            return families[k];
    return NULL;
}

const bp_model_family *bp_model_family_of_text(const char *path)
{
    for (int k = 0; families[k]; k++)
        if (families[k]->text_form && families[k]->text_form->is(path))
            return families[k];
    return NULL;
}

const bp_model_family *bp_model_family_of_folder(const char *path)
{
    for (int k = 0; families[k]; k++)
        if (families[k]->folder && families[k]->folder->is(path))
            return families[k];
    return NULL;
}

const bp_hf_table *const *bp_model_huggingface_tables(void)
{
    static const bp_hf_table *tables[4 * BP_MODEL_FAMILIES_MOST];
    static int listed, count;

    for (; families[listed]; listed++) /* one may be registered later */
        for (int t = 0; families[listed]->huggingface && families[listed]->huggingface[t]; t++) {
            const bp_hf_table *table = families[listed]->huggingface[t];

            tables[count++] = table;
            count += bp_causal_classes(&tables[count], table);
            BP_ASSERT(count + BP_CAUSAL_CLASSES + 1 < 4 * BP_MODEL_FAMILIES_MOST);
        }
    tables[count] = NULL;
    return tables;
}

void bp_model_family_register(const bp_model_family *family)
{
    int count = 0;

    while (families[count])
        count++;
    BP_ASSERT(count < BP_MODEL_FAMILIES_MOST - 1); /* room for the final NULL */
    families[count] = family;
    list_all();
}
