/* Special tokens that a user requests. Every kind of training adds them in its own place. */
#include "text/train/tokenizer_train_priv.h"

#include <string.h>

bp_err bp_add_specials(bp_tokenizer *tokenizer, const bp_trainer_options *options)
{
    bp_err err = BP_OK;

    for (int k = 0; k < options->special_count && err == BP_OK; k++) {
        const char *name = options->specials[k];

        if (bp_tokenizer_id(tokenizer, name, strlen(name)) >= 0)
            return BP_FAIL(BP_ERR_USAGE, "tokenizer.special_twice",
                           "the vocabulary has the token \"%s\" already: at --special; choose "
                           "another name",
                           name);
        err = bp_tokenizer_add(tokenizer, name, strlen(name));
        if (err == BP_OK)
            err = bp_tokenizer_add_special(tokenizer, tokenizer->names.count - 1);
    }
    return err;
}
