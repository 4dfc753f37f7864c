/* Splitting of texts before BPE, by llama.cpp's names. Called by gguf_tokenizer.c and
 * gguf_tokenizer_keys.c. */
#include "io/gguf/gguf_pattern_priv.h"

#include <string.h>

#define LLAMA(digits)                                                                              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* If several names mean the same, files get the first one. */
static const gguf_pattern PATTERNS[] = {
    {.name = "gpt-2|gpt2|olmo|phi-2|mpt|exaone4"},
    {.name = "llama-bpe|llama3|llama-v3|falcon3", .regex = LLAMA("\\p{N}{1,3}"), .whole_first = 1},
    {.name = "dbrx|smaug-bpe", .regex = LLAMA("\\p{N}{1,3}")},
    {.name = "qwen2|deepseek-r1-qwen", .regex = LLAMA("\\p{N}"), .composed = 1},
    {.name = "stablelm2", .regex = LLAMA("\\p{N}")},
    {.name = "smollm|starcoder|refact|codeshell", .digits = 1}};

#define COUNT (sizeof PATTERNS / sizeof PATTERNS[0])

const gguf_pattern *gguf_pattern_called(const char *name)
{
    size_t bytes = strlen(name);

    for (size_t k = 0; k < COUNT; k++)
        for (const char *at = PATTERNS[k].name; *at; at += strcspn(at, "|"), at += *at == '|')
            if (bytes > 0 && strcspn(at, "|") == bytes && strncmp(at, name, bytes) == 0)
                return &PATTERNS[k];
    return NULL;
}

json_t *gguf_pattern_normalizer(const gguf_pattern *pattern)
{
    return pattern->composed ? json_pack("{s:s}", "type", "NFC") : json_null();
}

json_t *gguf_pattern_steps(const gguf_pattern *pattern)
{
    json_t *bytes = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                              "trim_offsets", 1, "use_regex", pattern->regex == NULL),
           *first;

    if (!pattern->regex && !pattern->digits)
        return bytes;
    first = pattern->digits
                ? json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1)
                : json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split", "pattern", "Regex",
                            pattern->regex, "behavior", "Isolated", "invert", 0);
    return json_pack("{s:s, s:[o, o]}", "type", "Sequence", "pretokenizers", first, bytes);
}

/* Members that do not affect ids. */
static json_t *plain_copy(const json_t *steps)
{
    json_t *copy = json_deep_copy(steps), *list = json_object_get(copy, "pretokenizers"), *one;
    size_t k;

    (void)json_object_del(copy, "trim_offsets");
    json_array_foreach(list, k, one)(void) json_object_del(one, "trim_offsets");
    return copy;
}

const gguf_pattern *gguf_pattern_of(const json_t *root)
{
    const json_t *model = json_object_get(root, "model"),
                 *normalizer = json_object_get(root, "normalizer");
    json_t *steps = plain_copy(json_object_get(root, "pre_tokenizer"));
    const gguf_pattern *found = NULL;

    for (size_t k = 0; k < COUNT && !found; k++) {
        json_t *mine = gguf_pattern_steps(&PATTERNS[k]), *plain = plain_copy(mine),
               *form = gguf_pattern_normalizer(&PATTERNS[k]);

        if (json_equal(plain, steps) && json_equal(form, normalizer ? normalizer : json_null()) &&
            PATTERNS[k].whole_first == json_is_true(json_object_get(model, "ignore_merges")))
            found = &PATTERNS[k];
        json_decref(mine);
        json_decref(plain);
        json_decref(form);
    }
    json_decref(steps);
    return found;
}
