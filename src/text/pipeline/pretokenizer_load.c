/* Pre-tokenizers, read from tokenizer.json. */
#include "base/mem.h"
#include "text/pipeline/load.h"
#include "text/pipeline/pretokenizer.h"

#include <string.h>

#define METASPACE "\xE2\x96\x81"
/* What Rust's regular expressions take for \w, with which tokenizers finds words here. */
#define WORD  "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}"
#define WORDS "[" WORD "]+|[^" WORD "\\s]+"

/* Patterns with a scanner of their own. */
typedef struct known_pattern {
    const char *text;
    bp_pre_kind kind;
    int digits;
} known_pattern;

#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA_PATTERN(digits)                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const known_pattern KNOWN[] = {
    {GPT2_PATTERN, BP_PRE_GPT2, 0},
    {LLAMA_PATTERN("\\p{N}{1,3}"), BP_PRE_LLAMA, 3}, /* Llama 3 */
    {LLAMA_PATTERN("\\p{N}"), BP_PRE_LLAMA, 1},      /* Qwen 2 */
};

static bp_pre_step *add(bp_pretokenizer *pre, bp_pre_kind kind, bp_behavior behavior)
{
    bp_pre_step *step;

    pre->steps = bp_realloc("text.pretokenizer", pre->steps, pre->count + 1, sizeof *pre->steps);
    step = &pre->steps[pre->count++];
    *step = (bp_pre_step){.kind = kind, .behavior = behavior};
    return step;
}

static bp_err read_behavior(bp_behavior *out, const json_t *json, const char *otherwise,
                            const char *name)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    const char *given;
    bp_err err = bp_load_optional(&given, json, "behavior", name);

    if (err != BP_OK)
        return err;
    if (given[0] == '\0' && otherwise[0] == '\0')
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_component", "%s has no \"behavior\": at %s",
                       bp_load_string(json, "type"), name);
    if (given[0] == '\0')
        given = otherwise;
    for (int k = 0; k < 5; k++)
        if (strcmp(given, names[k]) == 0) {
            *out = (bp_behavior)k;
            return BP_OK;
        }
    return bp_load_refuse("the behavior", given, name);
}

/* ---- the components ---- */

static bp_err add_split(bp_pretokenizer *pre, const json_t *json, const char *name)
{
    const char *regex = bp_load_string(json_object_get(json, "pattern"), "Regex");
    bp_pre_step *step = add(pre, BP_PRE_SPLIT, BP_ISOLATED);
    bp_err err = read_behavior(&step->behavior, json, "", name);

    if (err == BP_OK)
        err = bp_load_bool(&step->invert, json, "invert", false, name);
    /* these match all text: what does not match there is nothing */
    for (size_t k = 0; k < sizeof KNOWN / sizeof *KNOWN && err == BP_OK; k++)
        if (strcmp(regex, KNOWN[k].text) == 0 &&
            step->behavior == (step->invert ? BP_REMOVED : BP_ISOLATED)) {
            step->kind = KNOWN[k].kind;
            step->digits = KNOWN[k].digits;
            return BP_OK;
        }
    if (err == BP_OK)
        err = bp_load_pattern(&step->pattern, &step->regex, json, name);
    step->pattern_bytes = !step->pattern ? 0 : strlen(step->pattern);
    return err;
}

static bp_err add_byte_level(bp_pretokenizer *pre, const json_t *json, const char *name)
{
    bool prefix, use_regex;
    bp_err err = bp_load_bool(&prefix, json, "add_prefix_space", true, name);

    if (err == BP_OK)
        err = bp_load_bool(&use_regex, json, "use_regex", true, name);
    if (err != BP_OK)
        return err;
    if (prefix)
        (void)add(pre, BP_PRE_PREFIX, BP_ISOLATED);
    if (use_regex)
        (void)add(pre, BP_PRE_GPT2, BP_ISOLATED);
    pre->byte_level = true;
    return BP_OK;
}

static bp_err add_digits(bp_pretokenizer *pre, const json_t *json, const char *name)
{
    bool individual;
    bp_err err = bp_load_bool(&individual, json, "individual_digits", false, name);

    if (err == BP_OK)
        (void)add(pre, BP_PRE_DIGITS, individual ? BP_ISOLATED : BP_CONTIGUOUS);
    return err;
}

static bp_err add_punctuation(bp_pretokenizer *pre, const json_t *json, const char *name)
{
    bp_pre_step *step = add(pre, BP_PRE_PUNCTUATION, BP_ISOLATED);

    return read_behavior(&step->behavior, json, "Isolated", name);
}

static bp_err add_words(bp_pretokenizer *pre, const json_t *json, const char *name)
{
    bp_pre_step *step = add(pre, BP_PRE_SPLIT, BP_REMOVED);

    (void)json;
    step->invert = true;
    return bp_regex_new(&step->regex, WORDS, name);
}

static bp_err add_spaces(bp_pretokenizer *pre, const json_t *json, const char *name)
{
    (void)json;
    (void)name;
    (void)add(pre, BP_PRE_SPACE, BP_REMOVED);
    return BP_OK;
}

static bp_err add_bert(bp_pretokenizer *pre, const json_t *json, const char *name)
{
    (void)json;
    (void)name;
    (void)add(pre, BP_PRE_BERT, BP_ISOLATED);
    return BP_OK;
}

static bp_err read_scheme(bp_scheme *out, const json_t *json, const char *name)
{
    static const char *const names[] = {"always", "first", "never"};
    const char *given;
    bool prefix = true; /* what older files have instead */
    bp_err err = bp_load_optional(&given, json, "prepend_scheme", name);

    if (err == BP_OK)
        err = bp_load_bool(&prefix, json, "add_prefix_space", true, name);
    *out = prefix ? BP_PREPEND_ALWAYS : BP_PREPEND_NEVER;
    if (given[0] == '\0' || err != BP_OK)
        return err;
    for (int k = 0; k < 3; k++)
        if (strcmp(given, names[k]) == 0) {
            *out = (bp_scheme)k;
            return BP_OK;
        }
    return bp_load_refuse("the prepend_scheme", given, name);
}

static bp_err add_metaspace(bp_pretokenizer *pre, const json_t *json, const char *name)
{
    bp_pre_step *step = add(pre, BP_PRE_METASPACE, BP_MERGED_NEXT);
    const char *mark;
    bp_err err = bp_load_optional(&mark, json, "replacement", name);

    if (err == BP_OK)
        err = read_scheme(&step->scheme, json, name);

    step->pattern = bp_strdup(mark[0] == '\0' ? METASPACE : mark);
    step->pattern_bytes = strlen(step->pattern);
    return err == BP_OK ? bp_load_bool(&step->split, json, "split", true, name) : err;
}

static bp_err add_delimiter(bp_pretokenizer *pre, const json_t *json, const char *name)
{
    bp_pre_step *step = add(pre, BP_PRE_SPLIT, BP_REMOVED);
    bp_err err = bp_load_text(&step->pattern, json, "delimiter", name);

    step->pattern_bytes = err == BP_OK ? strlen(step->pattern) : 0;
    if (err == BP_OK && step->pattern_bytes == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_component", "\"delimiter\" is empty: at %s",
                      name);
    return err;
}

static const struct {
    const char *type;
    bp_err (*add)(bp_pretokenizer *pre, const json_t *json, const char *name);
} TYPES[] = {
    {"Split", add_split},
    {"ByteLevel", add_byte_level},
    {"Digits", add_digits},
    {"Punctuation", add_punctuation},
    {"Whitespace", add_words},
    {"WhitespaceSplit", add_spaces},
    {"BertPreTokenizer", add_bert},
    {"Metaspace", add_metaspace},
    {"CharDelimiterSplit", add_delimiter},
};

static bp_err add_step(void *context, const json_t *json, const char *type, const char *name)
{
    bp_pretokenizer *pre = context;

    if (pre->byte_level)
        return bp_load_refuse("a pre-tokenizer after ByteLevel,", type, name);
    for (size_t k = 0; k < sizeof TYPES / sizeof *TYPES; k++)
        if (strcmp(TYPES[k].type, type) == 0)
            return TYPES[k].add(pre, json, name);
    return bp_load_refuse("the pre-tokenizer", type, name);
}

bp_err bp_pretokenizer_read(bp_pretokenizer *out, const json_t *json, const char *name)
{
    return bp_load_sequence(json, "pretokenizers", add_step, out, name);
}

void bp_pretokenizer_clear(bp_pretokenizer *pretokenizer)
{
    for (int k = 0; k < pretokenizer->count; k++) {
        bp_free(pretokenizer->steps[k].pattern);
        bp_regex_free(&pretokenizer->steps[k].regex);
    }
    bp_free(pretokenizer->steps);
    *pretokenizer = (bp_pretokenizer){0};
}
