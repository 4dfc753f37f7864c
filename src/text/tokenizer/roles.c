/* Roles of special tokens: by template and name, and as checkpoints keep them. */
#include "text/tokenizer/tokenizer_parts.h"

#include <string.h>

const char *bp_role_name(bp_role role)
{
    static const char *const names[BP_ROLES] = {"pad",  "unk", "cls", "sep",
                                                "mask", "eod", "bos", "first"};

    return names[role];
}

int64_t bp_tokenizer_role(const bp_tokenizer *tokenizer, bp_role role)
{
    return tokenizer->roles[role];
}

int64_t bp_tokenizer_eod(const bp_tokenizer *tokenizer)
{
    return tokenizer->roles[BP_ROLE_END];
}

int64_t bp_tokenizer_unk(const bp_tokenizer *tokenizer)
{
    return tokenizer->roles[BP_ROLE_UNKNOWN];
}

/* {"pad": id, ...} of the existing roles, for a checkpoint's state; NULL: there is none but the
 * end of a document, which is kept on its own. New reference. */
static json_t *roles_json(const int64_t roles[BP_ROLES])
{
    json_t *object = NULL;

    for (int role = 0; role < BP_ROLES; role++) {
        if (role == BP_ROLE_END || roles[role] < 0)
            continue;
        if (!object)
            object = json_object();
        json_object_set_new(object, bp_role_name((bp_role)role), json_integer(roles[role]));
    }
    return object;
}

int64_t bp_roles_get(const json_t *state, bp_role role)
{
    const json_t *id = json_object_get(json_object_get(state, "roles"), bp_role_name(role));

    return json_is_integer(id) ? json_integer_value(id) : -1;
}

void bp_roles_put(json_t *state, const int64_t roles[BP_ROLES], const bp_ends *ends)
{
    json_t *known = roles_json(roles);

    if (known)
        (void)json_object_set_new(state, "roles", known);
    if (!ends || ends->count < 2)
        return;
    known = json_array();
    for (int k = 0; k < ends->count; k++)
        (void)json_array_append_new(known, json_integer(ends->ids[k]));
    (void)json_object_set_new(state, "end_ids", known);
}

static void add_number(bp_ends *ends, const json_t *value, int64_t vocab_size)
{
    if (json_is_integer(value) && json_integer_value(value) >= 0 &&
        json_integer_value(value) < vocab_size)
        bp_ends_add(ends, json_integer_value(value));
}

void bp_ends_read(bp_ends *ends, const json_t *value, int64_t vocab_size)
{
    const json_t *one;
    size_t k;

    add_number(ends, value, vocab_size);
    json_array_foreach(value, k, one) add_number(ends, one, vocab_size);
}

bool bp_ends_have(const bp_ends *ends, int64_t id)
{
    bool has = false;

    for (int k = 0; k < ends->count; k++)
        has = has || ends->ids[k] == id;
    return has;
}

void bp_ends_add(bp_ends *ends, int64_t id)
{
    if (ends->count < BP_ENDS && !bp_ends_have(ends, id))
        ends->ids[ends->count++] = id;
}

const bp_ends *bp_tokenizer_ends(const bp_tokenizer *tokenizer)
{
    return &tokenizer->ends;
}

bp_err bp_tokenizer_check_first(const bp_tokenizer *tokenizer, int64_t first, const char *key)
{
    if (first < 0 || first != tokenizer->before || tokenizer->before_count < 2)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "tokenizer.several_first",
                   "the tokenizer puts %d tokens before a text, and %s = auto would put only the "
                   "first one there: at %s; set it to bos, eod or none",
                   tokenizer->before_count, key, key);
}

const char *bp_tokenizer_disagreement(const bp_tokenizer *tokenizer, int k)
{
    return tokenizer->disagreement[k];
}

const char *bp_tokenizer_unread(const bp_tokenizer *tokenizer)
{
    return tokenizer->unread;
}

/* By these names, the first that is a special token, if no file names others. */
static const char *const NAMES[BP_ROLES][5] = {
    [BP_ROLE_PAD] = {"[PAD]", "<pad>"},
    [BP_ROLE_UNKNOWN] = {"[UNK]", BP_UNK_TOKEN},
    [BP_ROLE_CLS] = {"[CLS]", "<s>"},
    [BP_ROLE_SEP] = {"[SEP]", "</s>"},
    [BP_ROLE_MASK] = {"[MASK]", "<mask>"},
    [BP_ROLE_END] = {BP_EOD_TOKEN, "[SEP]", "</s>", "<|end_of_text|>"},
};

int64_t bp_tokenizer_template_bos(const bp_tokenizer *tokenizer)
{
    return tokenizer->has_end && tokenizer->roles[BP_ROLE_MASK] >= 0 ? -1 : tokenizer->before;
}

int64_t bp_tokenizer_template_end(const bp_tokenizer *tokenizer)
{
    return tokenizer->has_end ? tokenizer->roles[BP_ROLE_SEP] : -1;
}

void bp_tokenizer_name_roles(bp_tokenizer *tokenizer)
{
    for (int role = 0; role < BP_ROLES; role++)
        for (int k = 0; tokenizer->roles[role] < 0 && NAMES[role][k]; k++) {
            int64_t id = bp_tokenizer_id(tokenizer, NAMES[role][k], strlen(NAMES[role][k]));

            /* without added_tokens it is an ordinary token */
            if (id >= 0 && tokenizer->names.entries[id].value != 0)
                tokenizer->roles[role] = id;
        }
    tokenizer->roles[BP_ROLE_BOS] = tokenizer->roles[BP_ROLE_FIRST] =
        bp_tokenizer_template_bos(tokenizer);
    if (tokenizer->roles[BP_ROLE_END] >= 0)
        bp_ends_add(&tokenizer->ends, tokenizer->roles[BP_ROLE_END]);
}
