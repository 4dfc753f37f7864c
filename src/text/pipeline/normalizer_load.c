/* Normalizers, read from tokenizer.json. */
#include "base/mem.h"
#include "text/pipeline/load.h"
#include "text/pipeline/normalizer.h"

#include <string.h>
#include <utf8proc.h>

#define BP_FORM_C (UTF8PROC_COMPOSE | UTF8PROC_STABLE)
#define BP_FORM_D (UTF8PROC_DECOMPOSE | UTF8PROC_STABLE)

typedef struct norm_type {
    const char *name;
    bp_norm_kind kind;
    int form;
} norm_type;

static const norm_type TYPES[] = {
    {"NFC", BP_NORM_FORM, BP_FORM_C},
    {"NFD", BP_NORM_FORM, BP_FORM_D},
    {"NFKC", BP_NORM_FORM, BP_FORM_C | UTF8PROC_COMPAT},
    {"NFKD", BP_NORM_FORM, BP_FORM_D | UTF8PROC_COMPAT},
    {"Lowercase", BP_NORM_LOWERCASE, 0},
    {"Strip", BP_NORM_STRIP, 0},
    {"StripAccents", BP_NORM_ACCENTS, 0},
    {"BertNormalizer", BP_NORM_BERT, 0},
    {"Prepend", BP_NORM_PREPEND, 0},
    {"Replace", BP_NORM_REPLACE, 0},
    {"Precompiled", BP_NORM_CHARSMAP, 0},
    {"Nmt", BP_NORM_NMT, 0},
};

static bp_err read_bert(bp_norm_step *step, const json_t *json, const char *name)
{
    bp_err err = bp_load_bool(&step->clean, json, "clean_text", true, name);

    if (err == BP_OK)
        err = bp_load_bool(&step->chinese, json, "handle_chinese_chars", true, name);
    if (err == BP_OK)
        err = bp_load_bool(&step->lowercase, json, "lowercase", true, name);
    if (err == BP_OK) /* null: as lowercase */
        err = bp_load_bool(&step->no_accents, json, "strip_accents", step->lowercase, name);
    return err;
}

static bp_err read_replace(bp_norm_step *step, const json_t *json, const char *name)
{
    bp_err err = bp_load_text(&step->content, json, "content", name);

    step->content_bytes = err == BP_OK ? strlen(step->content) : 0;
    if (err == BP_OK)
        err = bp_load_pattern(&step->pattern, &step->regex, json, name);
    step->pattern_bytes = !step->pattern ? 0 : strlen(step->pattern);
    return err;
}

static bp_err read_prepend(bp_norm_step *step, const json_t *json, const char *name)
{
    bp_err err = bp_load_text(&step->content, json, "prepend", name);

    step->content_bytes = err == BP_OK ? strlen(step->content) : 0;
    return err;
}

static bp_err read_strip(bp_norm_step *step, const json_t *json, const char *name)
{
    bp_err err = bp_load_bool(&step->left, json, "strip_left", true, name);

    return err == BP_OK ? bp_load_bool(&step->right, json, "strip_right", true, name) : err;
}

/* With a member "bagpipe" as SentencePiece does it. */
static bp_err read_charsmap(bp_norm_step *step, const json_t *json, const char *name)
{
    const json_t *ours = json_object_get(json, BP_OURS), *text;
    bp_err err = bp_charsmap_new(&step->map, bp_load_string(json, "precompiled_charsmap"), name);
    size_t k;

    step->longest = ours != NULL;
    json_array_foreach(json_object_get(ours, "keep"), k, text) if (json_string_length(text) > 0)
        bp_trie_add(&step->keep, json_string_value(text), json_string_length(text), 0);
    return err;
}

static bp_err read_step(bp_norm_step *step, const json_t *json, const char *name)
{
    switch (step->kind) {
    case BP_NORM_BERT:
        return read_bert(step, json, name);
    case BP_NORM_STRIP:
        return read_strip(step, json, name);
    case BP_NORM_PREPEND:
        return read_prepend(step, json, name);
    case BP_NORM_REPLACE:
        return read_replace(step, json, name);
    case BP_NORM_CHARSMAP:
        return read_charsmap(step, json, name);
    default:
        return BP_OK;
    }
}

static bp_err add_step(void *context, const json_t *json, const char *type, const char *name)
{
    bp_normalizer *normalizer = context;
    bp_norm_step *step;

    for (size_t k = 0; k < sizeof TYPES / sizeof *TYPES; k++) {
        if (strcmp(TYPES[k].name, type) != 0)
            continue;
        normalizer->steps = bp_realloc("text.normalizer", normalizer->steps, normalizer->count + 1,
                                       sizeof *normalizer->steps);
        step = &normalizer->steps[normalizer->count++];
        *step = (bp_norm_step){.kind = TYPES[k].kind, .form = TYPES[k].form};
        return read_step(step, json, name);
    }
    return bp_load_refuse("the normalizer", type, name);
}

bp_err bp_normalizer_read(bp_normalizer *out, const json_t *json, const char *name)
{
    return bp_load_sequence(json, "normalizers", add_step, out, name);
}

void bp_normalizer_clear(bp_normalizer *normalizer)
{
    for (int k = 0; k < normalizer->count; k++) {
        bp_norm_step *step = &normalizer->steps[k];

        bp_free(step->content);
        bp_free(step->pattern);
        bp_regex_free(&step->regex);
        bp_charsmap_free(&step->map);
        bp_trie_clear(&step->keep);
    }
    bp_free(normalizer->steps);
    *normalizer = (bp_normalizer){0};
}
