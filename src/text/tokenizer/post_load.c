/* Post-processors of tokenizer.json: the tokens that frame a text. They are kept with the tokenizer
 * and give roles; corpora hold documents without them. */
#include "text/pipeline/load.h"
#include "text/tokenizer/pipeline_load_priv.h"

#include <string.h>

static bp_err take_role(bp_tokenizer *tokenizer, bp_role role, const char *token, const char *name)
{
    int64_t id = bp_tokenizer_id(tokenizer, token, strlen(token));

    if (id < 0)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.no_special",
                       "the post_processor names \"%s\", which is not in the vocabulary: at %s",
                       token, name);
    if (tokenizer->roles[role] < 0)
        tokenizer->roles[role] = id;
    return BP_OK;
}

/* BertProcessing, RobertaProcessing: "cls" and "sep" are [token, id]. */
static bp_err read_pair(bp_tokenizer *tokenizer, const json_t *json, const char *name)
{
    bp_err err = BP_OK;

    for (int k = 0; k < 2 && err == BP_OK; k++) {
        const json_t *token = json_array_get(json_object_get(json, k == 0 ? "cls" : "sep"), 0);

        if (!json_is_string(token))
            return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_component", "%s has no \"%s\": at %s",
                           bp_load_string(json, "type"), k == 0 ? "cls" : "sep", name);
        err = take_role(tokenizer, k == 0 ? BP_ROLE_CLS : BP_ROLE_SEP, json_string_value(token),
                        name);
    }
    return err;
}

/* Number of ids of a template's special token. */
static int ids_of(const json_t *template, const char *token)
{
    const json_t *specials = json_object_get(template, "special_tokens");
    size_t count = json_array_size(json_object_get(json_object_get(specials, token), "ids"));

    return count > 1 ? (int)count : 1;
}

/* TemplateProcessing: a token before the text is cls (and may be bos), one after it sep. */
static bp_err read_template(bp_tokenizer *tokenizer, const json_t *json, const char *name)
{
    const json_t *part;
    bool after = false;
    size_t k;
    bp_err err = BP_OK;

    json_array_foreach(json_object_get(json, "single"), k, part)
    {
        const char *token = bp_load_string(json_object_get(part, "SpecialToken"), "id");

        if (json_object_get(part, "Sequence"))
            after = true;
        else if (token[0] == '\0')
            err =
                BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_component",
                        "a part of the template is neither Sequence nor SpecialToken: at %s", name);
        else
            err = take_role(tokenizer, after ? BP_ROLE_SEP : BP_ROLE_CLS, token, name);
        if (err == BP_OK && token[0] != '\0' && !after) {
            if (tokenizer->before < 0)
                tokenizer->before = bp_tokenizer_id(tokenizer, token, strlen(token));
            tokenizer->before_count += ids_of(json, token);
        }
        tokenizer->has_end = tokenizer->has_end || (after && token[0] != '\0');
        if (err != BP_OK)
            return err;
    }
    return BP_OK;
}

static bp_err add_step(void *context, const json_t *json, const char *type, const char *name)
{
    if (strcmp(type, "ByteLevel") == 0) /* only offsets */
        return BP_OK;
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(context, json, name);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        return read_pair(context, json, name);
    return bp_load_refuse("the post_processor", type, name);
}

bp_err bp_post_read(bp_tokenizer *tokenizer, const json_t *post, const char *name)
{
    return bp_load_sequence(post, "processors", add_step, tokenizer, name);
}
