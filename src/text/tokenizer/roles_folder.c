/* Roles of special tokens by the files that are beside a tokenizer.json. */
#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "text/tokenizer/tokenizer_parts.h"

#include <string.h>

#define FILE_LIMIT_BYTES ((int64_t)16 << 20)

enum { TOKENIZER_CONFIG, SPECIAL_TOKENS, CONFIG, GENERATION_CONFIG, FILES };

static const char *const NAMES[FILES] = {"tokenizer_config.json", "special_tokens_map.json",
                                         "config.json", "generation_config.json"};

typedef struct folder {
    bp_tokenizer *tokenizer;
    json_t *files[FILES]; /* NULL if there is none */
    bp_buffer *said;      /* what the sources of a role say, for a message */
} folder;

/* One source's statement about a role. */
typedef struct statement {
    bool speaks, lacks; /* it names a token that the vocabulary lacks: it is ignored */
    bp_ends ids;        /* none: it says that there is none */
} statement;

static json_t *open_file(const char *path)
{
    static const char *const keys[] = {"bos_token",    "eos_token",   "pad_token",     "cls_token",
                                       "sep_token",    "mask_token",  "add_bos_token", "content",
                                       "bos_token_id", "eos_token_id"};
    json_t *object = NULL;

    if (bp_path_exists(path) && bp_json_load_members(&object, path, FILE_LIMIT_BYTES, keys,
                                                     sizeof keys / sizeof keys[0]) != BP_OK)
        object = NULL;
    if (object && !json_is_object(object)) {
        json_decref(object);
        object = NULL;
    }
    return object;
}

static void say(const folder *self, const char *source, int64_t id)
{
    bp_buffer *said = self->said;

    bp_buffer_printf(said, "%s%s says ", said->bytes > 0 ? ", " : "", source);
    if (id < 0) {
        bp_buffer_printf(said, "none");
        return;
    }
    bp_buffer_printf(said, "%lld (", (long long)id);
    (void)bp_tokenizer_token_text(self->tokenizer, id, said);
    bp_buffer_printf(said, ")");
}

/* A value of a type that names no token: it says nothing. */
static void keep_unread(const folder *self, int file, const char *key)
{
    if (self->tokenizer->unread)
        return;
    self->tokenizer->unread = bp_sprintf("%s of %s is not a token", key, NAMES[file]);
}

/* A token's name, or {"content": name}; null says that there is none. */
static void read_name(statement *out, const folder *self, int file, const char *key)
{
    const json_t *value = json_object_get(self->files[file], key);
    const char *name;
    int64_t id;

    if (json_is_object(value))
        value = json_object_get(value, "content");
    name = json_string_value(value);
    if (value && !name && !json_is_null(value))
        keep_unread(self, file, key);
    id = name ? bp_tokenizer_id(self->tokenizer, name, json_string_length(value)) : -1;
    if (name && id < 0) {
        out->lacks = true;
        bp_buffer_printf(self->said, "%s%s says %s, which is not a token",
                         self->said->bytes > 0 ? ", " : "", NAMES[file], name);
    }
    if (id < 0 && !json_is_null(value))
        return;
    out->speaks = true;
    if (id >= 0)
        bp_ends_add(&out->ids, id);
    say(self, NAMES[file], id);
}

/* tokenizer_config.json, and special_tokens_map.json where that is silent. */
static statement by_name(const folder *self, const char *key)
{
    statement out = {0};

    read_name(&out, self, TOKENIZER_CONFIG, key);
    if (!out.speaks)
        read_name(&out, self, SPECIAL_TOKENS, key);
    return out;
}

static void add_id(statement *out, const folder *self, int file, const char *key,
                   const json_t *value)
{
    const bp_strmap *names = &self->tokenizer->names;
    int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;

    if (value && !json_is_integer(value) && !json_is_null(value))
        keep_unread(self, file, key);
    if (id < 0 || id >= names->count || names->entries[id].value == 0)
        return;
    out->speaks = true;
    bp_ends_add(&out->ids, id);
    say(self, NAMES[file], id);
}

/* A number or a list of them; those that are special tokens. */
static statement by_id(const folder *self, int file, const char *key)
{
    const json_t *value = json_object_get(self->files[file], key), *one;
    statement out = {0};
    size_t k;

    if (!json_is_array(value))
        add_id(&out, self, file, key, value);
    json_array_foreach(value, k, one) add_id(&out, self, file, key, one);
    return out;
}

static int64_t first_of(const statement *said)
{
    return said->ids.count > 0 ? said->ids.ids[0] : -1;
}

/* Keeps what the files do not agree on. */
static void disagree(const folder *self, int k)
{
    bp_free(self->tokenizer->disagreement[k]);
    self->tokenizer->disagreement[k] = bp_strdup(self->said->data);
}

/* ---- the beginning of a text ---- */

static void take_bos(folder *self)
{
    bp_tokenizer *tokenizer = self->tokenizer;
    const json_t *adds = json_object_get(self->files[TOKENIZER_CONFIG], "add_bos_token");
    int64_t before = bp_tokenizer_template_bos(tokenizer);
    statement sources[4] = {by_name(self, "bos_token")};
    const statement *first = NULL;
    bool differ = sources[0].lacks;

    if (before >= 0) {
        sources[1].speaks = true;
        bp_ends_add(&sources[1].ids, before);
        say(self, "the template of tokenizer.json", before);
    }
    sources[2] = by_id(self, CONFIG, "bos_token_id");
    sources[3] = by_id(self, GENERATION_CONFIG, "bos_token_id");
    for (int k = 0; k < 4; k++) {
        if (!sources[k].speaks)
            continue;
        first = first ? first : &sources[k];
        differ = differ || first_of(&sources[k]) != first_of(first);
    }
    if (differ)
        disagree(self, 0);
    if (!first)
        return;
    tokenizer->roles[BP_ROLE_BOS] = first_of(first);
    if (json_is_boolean(adds))
        tokenizer->roles[BP_ROLE_FIRST] = json_is_true(adds) ? first_of(first) : -1;
}

/* ---- the end ---- */

static void take_ends(folder *self)
{
    bp_tokenizer *tokenizer = self->tokenizer;
    statement sources[3] = {by_name(self, "eos_token"), by_id(self, CONFIG, "eos_token_id"),
                            by_id(self, GENERATION_CONFIG, "eos_token_id")};
    int64_t id = -1;
    bool differ = sources[0].lacks;

    for (int k = 0; k < 3 && id < 0; k++)
        id = first_of(&sources[k]);
    if (id < 0 && differ)
        disagree(self, 1);
    if (id < 0)
        return;
    tokenizer->roles[BP_ROLE_END] = id;
    tokenizer->ends = (bp_ends){0};
    bp_ends_add(&tokenizer->ends, id);
    for (int k = 0; k < 3; k++) {
        differ = differ || (sources[k].speaks && !bp_ends_have(&sources[k].ids, id));
        for (int i = 0; i < sources[k].ids.count; i++)
            bp_ends_add(&tokenizer->ends, sources[k].ids.ids[i]);
    }
    if (differ)
        disagree(self, 1);
}

/* ---- the others ---- */

static void take_others(folder *self)
{
    static const struct {
        bp_role role;
        const char *key;
    } others[] = {{BP_ROLE_PAD, "pad_token"},
                  {BP_ROLE_CLS, "cls_token"},
                  {BP_ROLE_SEP, "sep_token"},
                  {BP_ROLE_MASK, "mask_token"}};

    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
        statement said = by_name(self, others[k].key);

        if (self->tokenizer->roles[others[k].role] < 0)
            self->tokenizer->roles[others[k].role] = first_of(&said);
    }
}

static void take_all(folder *self)
{
    bp_buffer said = {0};

    self->said = &said;
    for (int k = 0; k < BP_DISAGREEMENTS; k++) {
        bp_free(self->tokenizer->disagreement[k]);
        self->tokenizer->disagreement[k] = NULL;
    }
    take_others(self);
    said.bytes = 0;
    take_bos(self);
    said.bytes = 0;
    take_ends(self);
    for (int k = 0; k < FILES; k++)
        json_decref(self->files[k]);
    bp_buffer_clear(&said);
}

void bp_tokenizer_take_folder(bp_tokenizer *tokenizer, const char *path)
{
    folder self = {.tokenizer = tokenizer};

    bp_free(tokenizer->unread);
    tokenizer->unread = NULL;
    for (int k = 0; k < FILES; k++) {
        char *file = bp_path_join(path, NAMES[k]);

        self.files[k] = open_file(file);
        if (!self.files[k] && bp_path_exists(file)) {
            bp_free(tokenizer->unread);
            tokenizer->unread = bp_sprintf("%s is not a JSON object", NAMES[k]);
        }
        bp_free(file);
    }
    take_all(&self);
}

void bp_tokenizer_take_config(bp_tokenizer *tokenizer, const json_t *config)
{
    folder self = {.tokenizer = tokenizer};

    self.files[TOKENIZER_CONFIG] = json_deep_copy(config);
    take_all(&self);
}
