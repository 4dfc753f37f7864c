/* Decodes generated ids. Called by results/outputs.c and search/stops.c. */
#include "infer/generate/spell.h"

#include "base/mem.h"

bp_err bp_spell(const bp_tokenizer *tokenizer, const int32_t *tokens, int64_t count, char **text,
                size_t *bytes)
{
    uint32_t *ids = bp_alloc("generate.spell", count, sizeof *ids);
    int64_t kept = 0;
    bp_err err;

    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < bp_tokenizer_size(tokenizer))
            ids[kept++] = (uint32_t)tokens[i];
    err = bp_decode(tokenizer, ids, kept, text, bytes);
    bp_free(ids);
    return err;
}

json_t *bp_spell_json(const char *text, size_t bytes)
{
    bp_buffer shown = {0};
    json_t *value;

    if (!text)
        return json_null();
    bp_text_repair(&shown, text, bytes);
    value = json_stringn(shown.data ? shown.data : "", shown.bytes);
    bp_buffer_clear(&shown);
    return value;
}
