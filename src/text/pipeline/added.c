/* Added tokens, found in text: the first step of a pipeline. */
#include "text/pipeline/added.h"
#include "base/mem.h"
#include "text/pipeline/load.h"
#include "text/unicode/unicode.h"

#include <string.h>
#include <utf8proc.h>

/* ---- reading ---- */

static void add_content(bp_added_set *set, const char *content, size_t bytes, int place,
                        bool special)
{
    if (bytes == 0)
        return; /* its normalized form is empty */
    bp_trie_add(&set->trie, content, bytes, (uint32_t)place);
    set->starts[(uint8_t)content[0]] = true;
    set->any = true;
    set->any_plain = set->any_plain || !special;
}

static bp_err read_flags(bp_added_token *token, bool *normalized, const json_t *json,
                         const char *name)
{
    bp_err err = bp_load_bool(&token->special, json, "special", false, name);

    if (err == BP_OK)
        err = bp_load_bool(&token->single_word, json, "single_word", false, name);
    if (err == BP_OK)
        err = bp_load_bool(&token->lstrip, json, "lstrip", false, name);
    if (err == BP_OK)
        err = bp_load_bool(&token->rstrip, json, "rstrip", false, name);
    return err == BP_OK ? bp_load_bool(normalized, json, "normalized", !token->special, name) : err;
}

static bp_err read_one(bp_added *out, const json_t *json, const bp_normalizer *normalizer,
                       bp_regex_work *regex, const char *name)
{
    const char *content = bp_load_string(json, "content");
    size_t bytes = strlen(content);
    bp_added_token *token = &out->tokens[out->count];
    bp_buffer scratch[2] = {{0}, {0}};
    bool normalized, first = false;
    bp_err err = read_flags(token, &normalized, json, name);

    token->id = json_integer_value(json_object_get(json, "id"));
    if (err == BP_OK && normalized)
        err = bp_normalize(normalizer, regex, scratch, &content, &bytes, &first);
    if (err == BP_OK)
        add_content(normalized ? &out->normalized : &out->raw, content, bytes, out->count++,
                    token->special);
    bp_buffer_clear(&scratch[0]);
    bp_buffer_clear(&scratch[1]);
    return err;
}

bp_err bp_added_read(bp_added *out, const json_t *json, const bp_normalizer *normalizer,
                     const char *name)
{
    bp_regex_work *regex = bp_regex_work_new();
    const json_t *token;
    size_t k;
    bp_err err = BP_OK;

    out->tokens = bp_alloc("text.added", (int64_t)json_array_size(json), sizeof *out->tokens);
    json_array_foreach(json, k, token)
    {
        if (json_is_true(json_object_get(token, BP_OURS)))
            continue; /* the model finds it */
        err = read_one(out, token, normalizer, regex, name);
        if (err != BP_OK)
            break;
    }
    bp_regex_work_free(&regex);
    return err;
}

void bp_added_clear(bp_added *added)
{
    bp_free(added->tokens);
    bp_trie_clear(&added->raw.trie);
    bp_trie_clear(&added->normalized.trie);
    *added = (bp_added){0};
}

/* ---- finding ---- */

void bp_sections_clear(bp_sections *sections)
{
    bp_spans_clear(&sections->spans);
    bp_free(sections->ids);
    *sections = (bp_sections){0};
}

static void add_section(bp_sections *out, size_t start, size_t end, int64_t id)
{
    bp_spans_add(&out->spans, start, end - start);
    out->ids = bp_grow("text.added", out->ids, &out->capacity, out->spans.count, sizeof *out->ids);
    if (end > start)
        out->ids[out->spans.count - 1] = id;
}

/* The longest content at text[0], its index in *token; 0 if none. */
static size_t longest_match(const bp_added_set *set, const char *text, size_t bytes, int64_t *token)
{
    uint32_t node = BP_TRIE_ROOT;
    size_t longest = 0;

    if (!set->starts[(uint8_t)text[0]])
        return 0;
    for (size_t k = 0; k < bytes; k++) {
        node = bp_trie_step(&set->trie, node, (uint8_t)text[k]);
        if (node == BP_TRIE_NONE)
            break;
        if (bp_trie_value(&set->trie, node) >= 0) {
            *token = bp_trie_value(&set->trie, node);
            longest = k + 1;
        }
    }
    return longest;
}

/* The characters of \w in Rust's regular expressions: alphabetic characters, marks, decimal digits,
 * connectors, the joiners. */
static bool is_word(uint32_t c)
{
    if (c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
        (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
        (c >= 0x1F170 && c <= 0x1F189)) /* letters in circles and squares */
        return true;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return false;
    }
}

static bool is_single_word(const char *text, size_t bytes, size_t start, size_t end)
{
    const uint8_t *p = (const uint8_t *)text;
    uint32_t c;
    size_t before = start;

    while (before > 0 && (p[--before] & 0xC0) == 0x80)
        ;
    if (start > 0 && bp_utf8_decode(p + before, start - before, &c) > 0 && is_word(c))
        return false;
    return bp_utf8_decode(p + end, bytes - end, &c) == 0 || !is_word(c);
}

/* The White_Space around it that a token takes; `from`: the end of the previous token. */
static void take_spaces(const bp_added_token *token, const char *text, size_t bytes, size_t from,
                        size_t *start, size_t *end)
{
    const uint8_t *p = (const uint8_t *)text, *classes = bp_unicode_classes();
    size_t length;
    uint32_t c = 0;

    while (token->lstrip && *start > from && (length = bp_space_before(p, *start)) > 0)
        *start -= length < *start - from ? length : *start - from;
    while (token->rstrip && (length = bp_utf8_decode(p + *end, bytes - *end, &c)) > 0 &&
           (classes[c] & BP_CLASS_MASK) == BP_CLASS_SPACE)
        *end += length;
}

void bp_added_cut(const bp_added *added, const bp_added_set *set, bool specials, const char *text,
                  size_t bytes, bp_sections *out)
{
    size_t from = 0;

    out->spans.count = 0;
    for (size_t at = 0; (specials ? set->any : set->any_plain) && at < bytes;) {
        int64_t place = 0;
        size_t start = at, end = at + longest_match(set, text + at, bytes - at, &place);
        const bp_added_token *token = &added->tokens[place];

        at = end > start ? end : at + 1;
        if (end == start || (token->special && !specials) ||
            (token->single_word && !is_single_word(text, bytes, start, end)))
            continue;
        if (start < from)
            continue; /* a token before it took its first bytes, which are White_Space */
        take_spaces(token, text, bytes, from, &start, &end);
        add_section(out, from, start, -1);
        add_section(out, start, end, token->id);
        from = end;
        at = at > end ? at : end;
    }
    add_section(out, from, bytes, -1);
}
