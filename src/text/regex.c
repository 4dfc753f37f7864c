/* Regular expressions: Oniguruma's spelling, PCRE2's engine. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/buffer.h"
#include "base/mem.h"
#include "text/regex_priv.h"

#include <pcre2.h>
#include <string.h>

#define JIT_STACK_BYTES ((size_t)8 << 20)

struct bp_regex {
    pcre2_code *code;
};

struct bp_regex_work {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* ---- from Oniguruma's spelling ---- */

typedef struct escape {
    char letter;
    const char *outside, *inside; /* a class; NULL: it is no part of one */
} escape;

#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
static const escape ESCAPES[] = {
    {'s', "\\p{White_Space}", "\\p{White_Space}"},
    {'S', "\\P{White_Space}", "\\P{White_Space}"},
    {'w', "[" WORD "]", WORD},
    {'W', "[^" WORD "]", NULL},
    {'h', "[0-9a-fA-F]", "0-9a-fA-F"},
    {'H', "[^0-9a-fA-F]", NULL},
};

static pcre2_code *compile(const char *pattern, size_t bytes, int *error, PCRE2_SIZE *where)
{
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    pcre2_code *code;

    if (context == NULL)
        bp_memory_ended("a regular expression", 1, bytes);
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    code = pcre2_compile((PCRE2_SPTR)pattern, bytes,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, error,
                         where, context);
    pcre2_compile_context_free(context);
    return code;
}

/* PCRE2 takes \p{Greek} for the script's extensions; asked for by sc:, it is the script. */
static bool is_script(const char *name, size_t bytes)
{
    bp_buffer pattern = {0};
    pcre2_code *code;
    PCRE2_SIZE where;
    int error;

    bp_buffer_printf(&pattern, "\\p{sc:%.*s}", (int)bytes, name);
    code = compile(pattern.data, pattern.bytes, &error, &where);
    pcre2_code_free(code);
    bp_buffer_clear(&pattern);
    return code != NULL;
}

/* \p{...} or \P{...} at p; what was read of it. */
static size_t add_property(bp_buffer *out, const char *p)
{
    const char *name = p + 3, *end = p[2] == '{' ? strchr(name, '}') : NULL;
    bool negated = end != NULL && name[0] == '^';

    if (end == NULL) {
        bp_buffer_add(out, p, 2);
        return 2;
    }
    name += negated;
    bp_buffer_printf(out, "\\%c{%s%s%.*s}", p[1], negated ? "^" : "",
                     end - name > 2 && is_script(name, (size_t)(end - name)) ? "sc:" : "",
                     (int)(end - name), name);
    return (size_t)(end - p) + 1;
}

static size_t add_escape(bp_buffer *out, const char *p, bool inside)
{
    if (p[1] == '\0') {
        bp_buffer_add(out, p, 1);
        return 1;
    }
    if (p[1] == 'p' || p[1] == 'P')
        return add_property(out, p);
    if (p[1] == 'u' && strspn(p + 2, "0123456789abcdefABCDEF") >= 4) {
        bp_buffer_printf(out, "\\x{%.4s}", p + 2);
        return 6;
    }
    for (size_t k = 0; k < sizeof ESCAPES / sizeof *ESCAPES; k++) {
        const char *text = inside ? ESCAPES[k].inside : ESCAPES[k].outside;

        if (ESCAPES[k].letter == p[1] && text != NULL) {
            bp_buffer_add(out, text, strlen(text));
            return 2;
        }
    }
    bp_buffer_add(out, p, 2);
    return 2;
}

static void translate(bp_buffer *out, const char *pattern)
{
    int depth = 0; /* of classes */

    for (const char *p = pattern; *p != '\0';) {
        if (*p == '\\') {
            p += add_escape(out, p, depth > 0);
            continue;
        }
        if (*p == '[' && (depth == 0 || p[1] == ':'))
            depth++;
        else if (*p == ']' && depth > 0)
            depth--;
        bp_buffer_add(out, p, 1);
        p++;
    }
}

/* ---- patterns ---- */

bp_err bp_regex_new(bp_regex **out, const char *pattern, const char *name)
{
    bp_buffer text = {0};
    PCRE2_SIZE where;
    PCRE2_UCHAR message[160];
    pcre2_code *code;
    int error;

    *out = NULL;
    if (pattern[0] == '\0')
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_regex", "a regular expression is empty: at %s",
                       name);
    translate(&text, pattern);
    code = compile(text.data, text.bytes, &error, &where);
    bp_buffer_clear(&text);
    if (code == NULL) {
        (void)pcre2_get_error_message(error, message, sizeof message);
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_regex",
                       "the regular expression '%s' is wrong (%s): at %s", pattern,
                       (const char *)message, name);
    }
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without it, matching is slower */
    *out = bp_alloc("text.regex", 1, sizeof **out);
    (*out)->code = code;
    return BP_OK;
}

void bp_regex_free(bp_regex **regex)
{
    if (*regex == NULL)
        return;
    pcre2_code_free((*regex)->code);
    bp_free(*regex);
    *regex = NULL;
}

/* ---- matching ---- */

bp_regex_work *bp_regex_work_new(void)
{
    bp_regex_work *work = bp_alloc("text.regex", 1, sizeof *work);

    work->match = pcre2_match_data_create(1, NULL);
    work->context = pcre2_match_context_create(NULL);
    if (work->match == NULL || work->context == NULL)
        bp_memory_ended("the state of a regular expression", 1, 1);
    work->stack = pcre2_jit_stack_create((size_t)1 << 15, JIT_STACK_BYTES, NULL);
    if (work->stack != NULL) /* NULL where there is no JIT */
        pcre2_jit_stack_assign(work->context, NULL, work->stack);
    return work;
}

void bp_regex_work_free(bp_regex_work **work)
{
    if (*work == NULL)
        return;
    pcre2_match_data_free((*work)->match);
    pcre2_match_context_free((*work)->context);
    pcre2_jit_stack_free((*work)->stack);
    bp_free(*work);
    *work = NULL;
}

bp_err bp_regex_find(const bp_regex *regex, bp_regex_work *work, const char *text, size_t bytes,
                     size_t from, bool *found, size_t *start, size_t *end)
{
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(work->match);
    int result = pcre2_match(regex->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK,
                             work->match, work->context);

    *found = result >= 0;
    if (result == PCRE2_ERROR_NOMATCH)
        return BP_OK;
    if (result < 0) {
        PCRE2_UCHAR message[160];

        (void)pcre2_get_error_message(result, message, sizeof message);
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.regex_gave_up",
                       "a regular expression of the tokenizer gives up at byte %zu of %zu bytes of "
                       "text (%s)",
                       from, bytes, (const char *)message);
    }
    *start = span[0] < from ? from : span[0]; /* \K may set it anywhere */
    *end = span[1] < *start ? *start : span[1];
    return BP_OK;
}
