/* Regular expressions, by Oniguruma, with limits on time and steps. */
#include "text/unicode/regex.h"
#include "base/buffer.h"
#include "base/mem.h"
#include "text/unicode/unicode.h"

#include <limits.h>
#include <oniguruma.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

/* The limit of one attempt: as in tokenizers, which also ends there. */
#define RETRIES       10000000UL
#define RETRIES_BYTE  100UL
#define STACK_ENTRIES 10000000U
#define CPU_SECONDS   10.0
#define CPU_A_BYTE    (10.0 / (1 << 20))

struct bp_regex {
    OnigRegex code;
};

struct bp_regex_work {
    OnigRegion *region;
    OnigMatchParam *limits;
    double began, looked, allowed; /* of the text at hand: CPU time, the clock at the last look */
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int initialized;

static void initialize(void)
{
    OnigEncoding utf8 = ONIG_ENCODING_UTF8;

    initialized = onig_initialize(&utf8, 1);
}

/* ---- what Oniguruma's versions spell differently ---- */

/* Since 6.9.9 [:punct:] has the symbols outside ASCII, and \p{Word} the numbers of Latin-1 that \w
 * has: tokenizers has that version. */
static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* \p{...} or \P{...} at p, where it is Word: \w or \W; what was read, 0: another. */
static size_t add_word(bp_buffer *out, const char *p)
{
    static const char NAME[] = "word";
    const char *at = p + 3;
    bool negated = p[1] == 'P';
    size_t known = 0;

    if ((p[1] != 'p' && p[1] != 'P') || p[2] != '{')
        return 0;
    if (*at == '^') {
        negated = !negated;
        at++;
    }
    for (; *at != '\0' && *at != '}'; at++) { /* names are compared without these */
        if (*at == ' ' || *at == '_' || *at == '-')
            continue;
        if (known >= sizeof NAME - 1 || (*at | 0x20) != NAME[known])
            return 0;
        known++;
    }
    if (*at != '}' || known != sizeof NAME - 1)
        return 0;
    bp_buffer_add(out, negated ? "\\W" : "\\w", 2);
    return (size_t)(at + 1 - p);
}

static size_t add_escape(bp_buffer *out, const char *p)
{
    size_t length = add_word(out, p);

    if (length == 0) {
        length = p[1] == '\0' ? 1 : 2;
        bp_buffer_add(out, p, length);
    }
    return length;
}

static size_t add_bracket(bp_buffer *out, const char *p, int *depth)
{
    static const char PUNCT[] = "[:punct:]", OTHER[] = "[:^punct:]";
    size_t length = 1;

    if (*depth > 0 && starts_with(p, PUNCT)) {
        bp_buffer_printf(out, "[\\p{P}\\p{S}]");
        return sizeof PUNCT - 1;
    }
    if (*depth > 0 && starts_with(p, OTHER)) {
        bp_buffer_printf(out, "[^\\p{P}\\p{S}]");
        return sizeof OTHER - 1;
    }
    if (*depth > 0 && p[1] == ':' && strstr(p, ":]")) {
        length = (size_t)(strstr(p, ":]") - p) + 2;
    } else {
        *depth += 1;
        length += p[length] == '^';
        length += p[length] == ']'; /* a first one is a character */
    }
    bp_buffer_add(out, p, length);
    return length;
}

static void translate(bp_buffer *out, const char *pattern)
{
    int depth = 0; /* of classes */

    for (const char *p = pattern; *p != '\0';) {
        if (*p == '\\') {
            p += add_escape(out, p);
            continue;
        }
        if (*p == '[') {
            p += add_bracket(out, p, &depth);
            continue;
        }
        if (*p == ']' && depth > 0)
            depth--;
        bp_buffer_add(out, p, 1);
        p++;
    }
}

/* ---- patterns ---- */

bp_err bp_regex_new(bp_regex **out, const char *pattern, const char *name)
{
    bp_buffer text = {0};
    OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
    OnigErrorInfo info;
    OnigRegex code = NULL;
    int error, length;

    *out = NULL;
    BP_CHECK(pthread_once(&once, initialize) == 0);
    BP_CHECK(initialized == ONIG_NORMAL);
    if (pattern[0] == '\0')
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_regex", "a regular expression is empty: at %s",
                       name);
    translate(&text, pattern);
    error = onig_new(&code, (const OnigUChar *)text.data, (const OnigUChar *)text.data + text.bytes,
                     ONIG_OPTION_NONE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
    length = error == ONIG_NORMAL ? 0 : onig_error_code_to_str(message, error, &info);
    bp_buffer_clear(&text); /* the message may quote it */
    if (error == ONIGERR_MEMORY)
        return bp_fail_memory("a regular expression", (int64_t)strlen(pattern), 1);
    if (error != ONIG_NORMAL)
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.bad_regex",
                       "the regular expression '%s' is wrong (%.*s): at %s", pattern, length,
                       (const char *)message, name);
    *out = bp_alloc("text.regex", 1, sizeof **out);
    (*out)->code = code;
    return BP_OK;
}

void bp_regex_free(bp_regex **regex)
{
    if (!*regex)
        return;
    onig_free((*regex)->code);
    bp_free(*regex);
    *regex = NULL;
}

/* ---- matching ---- */

static double seconds(clockid_t clock)
{
    struct timespec now = {0};

    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void bp_regex_work_begin(bp_regex_work *work, size_t bytes)
{
    work->began = -1;
    work->looked = seconds(CLOCK_MONOTONIC_COARSE);
    work->allowed = CPU_SECONDS + CPU_A_BYTE * (double)bytes;
}

bp_regex_work *bp_regex_work_new(void)
{
    bp_regex_work *work = bp_alloc("text.regex", 1, sizeof *work);

    work->region = onig_region_new();
    work->limits = onig_new_match_param();
    if (!work->region || !work->limits)
        bp_memory_ended("the state of a regular expression", 1, 1);
    (void)onig_initialize_match_param(work->limits);
    (void)onig_set_match_stack_limit_size_of_match_param(work->limits, STACK_ENTRIES);
    (void)onig_set_retry_limit_in_match_of_match_param(work->limits, RETRIES);
    bp_regex_work_begin(work, 0);
    return work;
}

void bp_regex_work_free(bp_regex_work **work)
{
    if (!*work)
        return;
    onig_region_free((*work)->region, 1);
    onig_free_match_param((*work)->limits);
    bp_free(*work);
    *work = NULL;
}

bp_regex_matches bp_regex_matches_of(const bp_regex *regex, bp_regex_work *work, const char *text,
                                     size_t bytes)
{
    unsigned long limit = RETRIES + RETRIES_BYTE * (unsigned long)bytes;

    (void)onig_set_retry_limit_in_search_of_match_param(work->limits, limit);
    return (bp_regex_matches){.regex = regex, .work = work, .text = text, .bytes = bytes};
}

static bp_err give_up(const bp_regex_matches *matches, const char *why)
{
    return BP_FAIL(BP_ERR_FORMAT, "tokenizer.regex_gave_up",
                   "a regular expression of the tokenizer gives up at byte %zu of %zu bytes of "
                   "text (%s)",
                   matches->from, matches->bytes, why);
}

/* CPU time costs a system call: it is asked for once a second of the coarse clock, and counts from
 * the first time on. */
static bp_err look_at_time(const bp_regex_matches *matches)
{
    bp_regex_work *work = matches->work;
    double clock = seconds(CLOCK_MONOTONIC_COARSE), used;

    if (clock - work->looked < 1)
        return BP_OK;
    used = seconds(CLOCK_THREAD_CPUTIME_ID);
    if (work->began < 0)
        work->began = used;
    work->looked = clock;
    return used - work->began > work->allowed ? give_up(matches, "it takes too long") : BP_OK;
}

static bp_err search(bp_regex_matches *matches, bool *found)
{
    const OnigUChar *text = (const OnigUChar *)matches->text, *end = text + matches->bytes;
    OnigRegion *region = matches->work->region;
    OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
    int result;

    if (matches->bytes > INT_MAX) /* what a region can say */
        return give_up(matches, "2 GiB are possible");
    onig_region_clear(region);
    result = onig_search_with_param(matches->regex->code, text, end, text + matches->from, end,
                                    region, ONIG_OPTION_NONE, matches->work->limits);
    *found = result >= 0;
    if (result == ONIG_MISMATCH)
        return BP_OK;
    if (result == ONIGERR_MEMORY)
        return bp_fail_memory("a regular expression", 1, 1);
    if (result < 0) {
        int length = onig_error_code_to_str(message, result);

        message[length < ONIG_MAX_ERROR_MESSAGE_LEN ? length : ONIG_MAX_ERROR_MESSAGE_LEN - 1] = 0;
        return give_up(matches, (const char *)message);
    }
    matches->start = (size_t)region->beg[0];
    matches->end = (size_t)region->end[0];
    if (matches->start < matches->from) /* \K may set it anywhere */
        matches->start = matches->from;
    if (matches->end < matches->start)
        matches->end = matches->start;
    return BP_OK;
}

bp_err bp_regex_next(bp_regex_matches *matches, bool *found)
{
    *found = false;
    while (matches->from <= matches->bytes) {
        bp_err err = look_at_time(matches);
        uint32_t c;

        if (err == BP_OK)
            err = search(matches, found);
        if (err != BP_OK || !*found)
            return err;
        if (matches->end > matches->start || !matches->has_last ||
            matches->last_end != matches->end) {
            matches->from = matches->last_end = matches->end;
            matches->has_last = true;
            return BP_OK;
        }
        *found = false;
        matches->from += matches->from < matches->bytes
                             ? bp_utf8_decode((const uint8_t *)matches->text + matches->from,
                                              matches->bytes - matches->from, &c)
                             : 1;
    }
    return BP_OK;
}
