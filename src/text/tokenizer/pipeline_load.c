/* A tokenizer with a pipeline, read as a whole; tokenizer_load.c reads plain ones. */
#include "base/mem.h"
#include "text/pipeline/load.h"
#include "text/tokenizer/pipeline_load_priv.h"

#include <string.h>

static bp_err kind_of(const json_t *root, bp_kind *kind, const char *name)
{
    static const struct {
        const char *type;
        bp_kind kind;
    } types[] = {{"BPE", BP_KIND_BPE},
                 {"Unigram", BP_KIND_UNIGRAM},
                 {"WordPiece", BP_KIND_WORDPIECE},
                 {"WordLevel", BP_KIND_WORD}};
    const char *type = bp_load_string(json_object_get(root, "model"), "type");

    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (strcmp(types[k].type, type) == 0) {
            *kind = types[k].kind;
            return BP_OK;
        }
    return bp_load_refuse("the model", type[0] == 0 ? "(none)" : type, name);
}

static bp_err read_parts(bp_tokenizer *tokenizer, const json_t *root, const char *name)
{
    bp_pipeline *pipeline = tokenizer->pipeline;
    const json_t *added = json_object_get(root, "added_tokens");
    bp_err err =
        bp_normalizer_read(&pipeline->normalizer, json_object_get(root, "normalizer"), name);

    if (err == BP_OK)
        err = bp_pretokenizer_read(&pipeline->pre, json_object_get(root, "pre_tokenizer"), name);
    if (err == BP_OK)
        err = bp_decoder_read(&pipeline->decoder, json_object_get(root, "decoder"), name);
    if (err == BP_OK)
        err = bp_model_read(tokenizer, json_object_get(root, "model"), added, name);
    if (err == BP_OK)
        err = bp_added_read(&pipeline->added, added, &pipeline->normalizer, name);
    if (err == BP_OK)
        err = bp_post_read(tokenizer, json_object_get(root, "post_processor"), name);
    return err;
}

bp_err bp_pipeline_parse(bp_tokenizer **out, const json_t *root, const char *text, size_t bytes,
                         const char *name)
{
    bp_kind kind = BP_KIND_BPE;
    bp_err err = kind_of(root, &kind, name);

    *out = NULL;
    if (err == BP_OK)
        err = bp_tokenizer_new(out, kind);
    if (err != BP_OK)
        return err;
    (*out)->pipeline = bp_alloc("text.pipeline", 1, sizeof *(*out)->pipeline);
    (*out)->pipeline->source = bp_alloc("text.pipeline", (int64_t)bytes + 1, 1);
    memcpy((*out)->pipeline->source, text, bytes);
    err = read_parts(*out, root, name);
    if (err != BP_OK)
        return err;
    bp_tokenizer_name_roles(*out);
    return bp_tokenizer_make_hash(*out, root);
}
