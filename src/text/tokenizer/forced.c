/* Tokens that a model's files force at certain positions, or forbid. */
#include "text/tokenizer/forced.h"

#include "base/files/fs.h"
#include "base/mem.h"

#define LIMIT_BYTES ((int64_t)16 << 20)

static const char *const NAMES[] = {"forced_bos_token_id", "forced_eos_token_id", "bad_words_ids"};

static bp_ends ids_of(const json_t *value, int64_t vocab_size)
{
    bp_ends ids = {0};

    bp_ends_read(&ids, value, vocab_size);
    return ids;
}

/* From words' lists of tokens, those that are one token. */
static bp_ends single_words(const json_t *words, int64_t vocab_size)
{
    bp_ends ids = {0};
    const json_t *word;
    size_t k;

    json_array_foreach((json_t *)words, k, word)
    {
        if (json_array_size(word) == 1)
            bp_ends_read(&ids, word, vocab_size);
    }
    return ids;
}

static json_t *forced_of(const json_t *config, int64_t vocab_size)
{
    json_t *out = json_object();
    bp_ends never = single_words(json_object_get(config, NAMES[2]), vocab_size);

    for (int k = 0; k < 2; k++) {
        bp_ends ids = ids_of(json_object_get(config, NAMES[k]), vocab_size);

        if (ids.count > 0)
            (void)json_object_set_new(out, NAMES[k], json_integer(ids.ids[0]));
    }
    for (int k = 0; k < never.count; k++) {
        if (k == 0)
            (void)json_object_set_new(out, NAMES[2], json_array());
        (void)json_array_append_new(json_object_get(out, NAMES[2]),
                                    json_pack("[I]", (json_int_t)never.ids[k]));
    }
    if (json_object_size(out) > 0)
        return out;
    json_decref(out);
    return NULL;
}

json_t *bp_forced_of_folder(const char *folder, int64_t vocab_size)
{
    static const char *const FILES[] = {"generation_config.json", "config.json"};
    json_t *config = NULL, *out = NULL;

    for (int k = 0; k < 2 && !config; k++) {
        char *path = bp_path_join(folder, FILES[k]);

        if (!bp_path_exists(path) ||
            bp_json_load_members(&config, path, LIMIT_BYTES, NAMES, 3) != BP_OK)
            config = NULL;
        bp_free(path);
    }
    if (json_is_object(config))
        out = forced_of(config, vocab_size);
    json_decref(config);
    return out;
}

bp_forced bp_forced_read(const json_t *state, int64_t vocab_size)
{
    const json_t *forced = json_object_get(state, "forced");
    bp_ends first = ids_of(json_object_get(forced, NAMES[0]), vocab_size),
            last = ids_of(json_object_get(forced, NAMES[1]), vocab_size);

    return (bp_forced){.has_first = first.count > 0,
                       .has_last = last.count > 0,
                       .first = first.ids[0],
                       .last = last.ids[0],
                       .never = single_words(json_object_get(forced, NAMES[2]), vocab_size)};
}
