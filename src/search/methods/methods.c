/* The list of methods. */
#include "search/methods/method.h"

#include "search/options.h"

#include <string.h>

const nas_method *const nas_methods[] = {&nas_random, &nas_evolution, &nas_ranked,
                                         &nas_differentiable, NULL};

const nas_method *nas_method_of(const bp_config *config)
{
    const char *name = bp_nas_keys_of(config)->method;

    for (int k = 0; nas_methods[k]; k++)
        if (strcmp(nas_methods[k]->name, name) == 0)
            return nas_methods[k];
    BP_ASSERT(!"search.method has a row for each of its choices");
    return NULL;
}
