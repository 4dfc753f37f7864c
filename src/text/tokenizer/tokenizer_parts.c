/* A tokenizer as it is made: an empty one, its tokens, its merges. Files and training fill it in.
 */
#include "text/tokenizer/tokenizer_parts.h"
#include "base/mem.h"
#include "text/pipeline/pipeline.h"
#include "text/unicode/unicode.h"

bp_err bp_tokenizer_new(bp_tokenizer **out, bp_kind kind)
{
    bp_tokenizer *tokenizer = bp_alloc("text.tokenizer", 1, sizeof *tokenizer);

    *out = NULL;
    tokenizer->kind = kind;
    for (int role = 0; role < BP_ROLES; role++)
        tokenizer->roles[role] = -1;
    tokenizer->before = -1;
    tokenizer->use_regex = kind == BP_KIND_BPE;
    tokenizer->added = json_array();
    *out = tokenizer;
    return BP_OK;
}

void bp_tokenizer_free(bp_tokenizer **tokenizer)
{
    bp_tokenizer *t = *tokenizer;

    if (!t)
        return;
    bp_strmap_clear(&t->names);
    bp_merges_clear(&t->merges);
    bp_pipeline_free(&t->pipeline);
    json_decref(t->added);
    for (int k = 0; k < BP_DISAGREEMENTS; k++)
        bp_free(t->disagreement[k]);
    bp_free(t->unread);
    bp_free(t);
    *tokenizer = NULL;
}

int64_t bp_tokenizer_id(const bp_tokenizer *tokenizer, const char *name, size_t bytes)
{
    const bp_strmap_entry *entry = bp_strmap_find(&tokenizer->names, name, bytes);

    return !entry ? -1 : entry - tokenizer->names.entries;
}

bp_err bp_tokenizer_add(bp_tokenizer *tokenizer, const char *name, size_t bytes)
{
    if (bp_tokenizer_id(tokenizer, name, bytes) >= 0)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.token_twice", "the token \"%.*s\" is there twice",
                       (int)bytes, name);
    return bp_strmap_add(&tokenizer->names, name, bytes, 0, NULL);
}

bp_err bp_tokenizer_add_special(bp_tokenizer *tokenizer, int64_t id)
{
    bp_strmap_entry *entry = &tokenizer->names.entries[id];
    json_t *token = json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)id,
                              "content", bp_strmap_key(&tokenizer->names, id), "single_word", 0,
                              "lstrip", 0, "rstrip", 0, "normalized", 1, "special", 1);

    if (!token || json_array_append_new(tokenizer->added, token) != 0)
        return bp_fail_memory("a special token", 1, 0);
    entry->value = 1;
    return BP_OK;
}

static bp_err find_bytes(bp_tokenizer *tokenizer, const char *name)
{
    for (int byte = 0; byte < 256; byte++) {
        uint8_t letter[4];
        size_t bytes = bp_utf8_encode(letter, bp_byte_letter((uint8_t)byte));
        int64_t id = bp_tokenizer_id(tokenizer, (char *)letter, bytes);

        if (id < 0)
            return BP_FAIL(BP_ERR_FORMAT, "vocabulary.no_byte",
                           "the vocabulary lacks a token for byte 0x%02X: at %s; byte-level BPE "
                           "needs all 256",
                           (unsigned)byte, name);
        tokenizer->merges.byte_ids[byte] = (uint32_t)id;
    }
    return BP_OK;
}

bp_err bp_tokenizer_take_merges(bp_tokenizer *tokenizer, bp_merge *merges, int64_t count,
                                bool byte_level, const char *name)
{
    bp_err err = byte_level ? find_bytes(tokenizer, name) : BP_OK;

    if (err != BP_OK) {
        bp_free(merges);
        return err;
    }
    err = bp_merges_init(&tokenizer->merges, merges, count);
    return err == BP_ERR_FORMAT ? bp_err_wrap(err, "%s: at %s", bp_err_text(), name) : err;
}
