/* tokenizer.json, written: one spelling of each tokenizer. */
#include "base/buffer.h"
#include "base/config/json.h"
#include "base/mem.h"
#include "text/pipeline/pipeline.h"
#include "text/tokenizer/tokenizer_parts.h"

static json_t *pre_tokenizer_json(const bp_tokenizer *tokenizer)
{
    switch (tokenizer->kind) {
    case BP_KIND_BPE:
        return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space",
                         (int)tokenizer->add_prefix_space, "trim_offsets", 1, "use_regex",
                         (int)tokenizer->use_regex);
    case BP_KIND_WORD:
        return json_pack("{s:s}", "type", "WhitespaceSplit");
    default:
        break;
    }
    return json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                     BP_CHAR_PATTERN, "behavior", "Isolated", "invert", 0);
}

/* Without a decoder tokens are joined by spaces: words. */
static json_t *decoder_json(const bp_tokenizer *tokenizer)
{
    switch (tokenizer->kind) {
    case BP_KIND_BPE:
        return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 1,
                         "trim_offsets", 1, "use_regex", 1);
    case BP_KIND_CHAR:
        return json_pack("{s:s}", "type", "Fuse");
    default:
        break;
    }
    return json_null();
}

static json_t *vocab_json(const bp_strmap *names)
{
    json_t *vocab = json_object();

    for (int64_t id = 0; id < names->count && vocab; id++)
        if (names->entries[id].value != BP_HOLE &&
            json_object_set_new(vocab, bp_strmap_key(names, id), json_integer((json_int_t)id)) !=
                0) {
            json_decref(vocab);
            return NULL;
        }
    return vocab;
}

static int append_merge(json_t *list, const bp_strmap *names, const bp_merge *merge)
{
    bp_buffer text = {0};
    json_t *json;

    bp_buffer_add(&text, bp_strmap_key(names, merge->left), names->entries[merge->left].bytes);
    bp_buffer_add(&text, " ", 1);
    bp_buffer_add(&text, bp_strmap_key(names, merge->right), names->entries[merge->right].bytes);
    json = json_stringn(text.data, text.bytes);
    bp_buffer_clear(&text);
    return json_array_append_new(list, json); /* fails on NULL */
}

static json_t *merges_json(const bp_tokenizer *tokenizer)
{
    json_t *list = json_array();

    for (int64_t k = 0; k < tokenizer->merges.count && list; k++)
        if (append_merge(list, &tokenizer->names, &tokenizer->merges.list[k]) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* json_pack takes over what "o" is given, and gives NULL if one of them is NULL. */
static json_t *model_json(const bp_tokenizer *tokenizer)
{
    json_t *vocab = vocab_json(&tokenizer->names);

    if (tokenizer->kind != BP_KIND_BPE)
        return json_pack("{s:s, s:o, s:s}", "type", "WordLevel", "vocab", vocab, "unk_token",
                         BP_UNK_TOKEN);
    return json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE", "dropout",
                     "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                     "byte_fallback", 0, "ignore_merges", (int)tokenizer->ignore_merges, "vocab",
                     vocab, "merges", merges_json(tokenizer));
}

char *bp_tokenizer_text(const bp_tokenizer *tokenizer)
{
    if (tokenizer->pipeline)
        return bp_strdup(tokenizer->pipeline->source);
    json_t *root =
        json_pack("{s:s, s:n, s:n, s:O, s:n, s:o, s:n, s:o, s:o}", "version", "1.0", "truncation",
                  "padding", "added_tokens", tokenizer->added, "normalizer", "pre_tokenizer",
                  pre_tokenizer_json(tokenizer), "post_processor", "decoder",
                  decoder_json(tokenizer), "model", model_json(tokenizer));
    char *text = !root ? NULL : bp_json_text(root);

    json_decref(root);
    return text;
}
