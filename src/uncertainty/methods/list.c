/* The table of methods. Called by uncertainty/comparison/comparison.c and
 * uncertainty/comparison/options.c. */
#include "uncertainty/methods/list.h"

#include "base/buffer.h"

#include <string.h>

const bp_uncertainty_method bp_plain_method = {.word = "plain"};

#define ROW(word) &bp_##word##_method,
const bp_uncertainty_method *const bp_uncertainty_methods[] = {BP_UNCERTAINTY_METHODS(ROW) NULL};

const bp_uncertainty_method *bp_uncertainty_method_find(const char *word)
{
    for (const bp_uncertainty_method *const *one = bp_uncertainty_methods; *one; one++)
        if (strcmp((*one)->word, word) == 0)
            return *one;
    return NULL;
}

char *bp_uncertainty_method_words(void)
{
    bp_buffer text = {0};

    for (const bp_uncertainty_method *const *one = bp_uncertainty_methods; *one; one++)
        bp_buffer_printf(&text, "%s:%s",
                         one == bp_uncertainty_methods ? ""
                         : one[1]                      ? ", "
                                                       : " or ",
                         (*one)->word);
    return bp_buffer_take(&text);
}
