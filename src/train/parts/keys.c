/* Keys of parts: keys that do not apply to a training, and keys that need a tokenizer. */
#include "train/parts/keys.h"

#include <string.h>

bp_err keys_refuse(const trainer *self, const bp_option *table, const char *section)
{
    for (const bp_option *row = table; row->key; row++)
        if (strncmp(row->key, section, strlen(section)) == 0 &&
            bp_config_departs(self->config, row->key))
            return BP_FAIL(BP_ERR_CONFIG, "model.unused_key",
                           "model.kind = %s has no %s here: at %s; leave the key out",
                           self->shape.family->name, row->key, row->key);
    return BP_OK;
}

bp_err keys_tokenizer(const trainer *self, const char *key, bp_tokenizer **out)
{
    const char *text = self->data.tokenizer;

    *out = NULL;
    if (!text)
        return BP_FAIL(
            BP_ERR_CONFIG, "train.no_tokenizer",
            "%s needs a tokenizer, and the corpus brings none: at tokenizer.path; set it", key);
    return bp_tokenizer_parse(out, text, strlen(text), "the tokenizer");
}

bp_err keys_encode(const bp_tokenizer *tokenizer, const char *text, bp_ids *ids)
{
    bp_encoder *encoder = NULL;
    bp_err err = bp_encoder_new(&encoder, tokenizer);

    if (err == BP_OK)
        err = bp_encode(encoder, text, strlen(text), ids);
    bp_encoder_free(&encoder);
    return err;
}
