/* TemplateProcessing: the post-processor of tokenizer.json that frames texts. */
#include "text/tokenizer/template.h"
#include "base/buffer.h"
#include "base/mem.h"
#include "text/pipeline/load.h"
#include "text/tokenizer/tokenizer.h"

#define BEFORE BP_OURS /* the post-processor before */

static void add_piece(json_t *list, const char *kind, const char *id, int segment)
{
    (void)json_array_append_new(list,
                                json_pack("{s:{s:s, s:i}}", kind, "id", id, "type_id", segment));
}

static void add_special(json_t *specials, const char *name, int64_t id)
{
    (void)json_object_set_new(
        specials, name,
        json_pack("{s:s, s:[I], s:[s]}", "id", name, "ids", (json_int_t)id, "tokens", name));
}

json_t *bp_template_json(const bp_template *template)
{
    json_t *single = json_array(), *pair = json_array(), *specials = json_object();

    for (int two = 0; two < 2; two++) {
        json_t *list = two ? pair : single;

        if (template->begin)
            add_piece(list, "SpecialToken", template->begin, 0);
        for (int k = 0; k <= two; k++) {
            add_piece(list, "Sequence", k ? "B" : "A", k * template->second);
            for (int64_t n = k<two &&template->middles> 1 ? template->middles : 1; n > 0; n--)
                add_piece(list, "SpecialToken", template->end, k * template->second);
        }
    }
    if (template->begin)
        add_special(specials, template->begin, template->begin_id);
    add_special(specials, template->end, template->end_id);
    return json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single", single, "pair",
                     pair, "special_tokens", specials);
}

bool bp_template_restore(json_t *root)
{
    json_t *before = json_object_get(json_object_get(root, "post_processor"), BEFORE);

    return before && json_object_set_new(root, "post_processor", json_deep_copy(before)) == 0;
}

/* `text` with another post-processor. */
static char *with_post(const char *text, json_t *post)
{
    json_t *root = json_loads(text, 0, NULL), *before = json_object_get(root, "post_processor");
    char *out;

    if (json_equal(before, post)) {
        out = bp_strdup(text);
    } else {
        if (before)
            (void)json_object_set(post, BEFORE, before);
        else
            (void)json_object_set_new(post, BEFORE, json_null());
        (void)json_object_set(root, "post_processor", post);
        out = bp_json_text(root);
    }
    json_decref(root);
    return out;
}

bp_err bp_tokenizer_framed_text(char **out, const bp_tokenizer *tokenizer,
                                const bp_text_frame *frame)
{
    bp_buffer begin = {0}, end = {0};
    char *text = bp_tokenizer_text(tokenizer);
    bp_err err = text ? bp_tokenizer_token_bytes(tokenizer, frame->end, &end)
                      : bp_fail_memory("a tokenizer", 1, 1);

    *out = NULL;
    if (err == BP_OK && frame->begin >= 0)
        err = bp_tokenizer_token_bytes(tokenizer, frame->begin, &begin);
    if (err == BP_OK) {
        bp_template template = {frame->begin >= 0 ? begin.data : NULL,
                                frame->begin,
                                end.data,
                                frame->end,
                                frame->has_segments,
                                frame->middles};
        json_t *post = bp_template_json(&template);

        *out = with_post(text, post);
        json_decref(post);
        err = *out ? BP_OK : bp_fail_memory("a tokenizer", 1, 1);
    }
    bp_buffer_clear(&begin);
    bp_buffer_clear(&end);
    bp_free(text);
    return err;
}
