/* Roles of special tokens. */
#include "text/tokenizer_priv.h"

#include <string.h>

const char *bp_role_name(bp_role role)
{
    static const char *const names[BP_ROLES] = {"pad", "unk", "cls", "sep", "mask", "eod"};

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

json_t *bp_roles_json(const int64_t roles[BP_ROLES])
{
    json_t *object = NULL;

    for (int role = 0; role < BP_ROLES; role++) {
        if (role == BP_ROLE_END || roles[role] < 0)
            continue;
        if (object == NULL)
            object = json_object();
        json_object_set_new(object, bp_role_name((bp_role)role), json_integer(roles[role]));
    }
    return object;
}

/* By these names, the first that is a special token. */
static const char *const NAMES[BP_ROLES][5] = {
    [BP_ROLE_PAD] = {"[PAD]", "<pad>"},
    [BP_ROLE_UNKNOWN] = {"[UNK]", BP_UNK_TOKEN},
    [BP_ROLE_CLS] = {"[CLS]", "<s>"},
    [BP_ROLE_SEP] = {"[SEP]", "</s>"},
    [BP_ROLE_MASK] = {"[MASK]", "<mask>"},
    [BP_ROLE_END] = {BP_EOD_TOKEN, "[SEP]", "</s>", "<|end_of_text|>"},
};

void bp_tokenizer_name_roles(bp_tokenizer *tokenizer)
{
    for (int role = 0; role < BP_ROLES; role++)
        for (int k = 0; tokenizer->roles[role] < 0 && NAMES[role][k] != NULL; k++) {
            int64_t id = bp_tokenizer_id(tokenizer, NAMES[role][k], strlen(NAMES[role][k]));

            /* without added_tokens it is a token like others */
            if (id >= 0 && tokenizer->names.entries[id].value != 0)
                tokenizer->roles[role] = id;
        }
}
