/* Results of units as bytes: a count of texts, then for each text a head and its arrays. Written by
 * units.c and fill.c, read by outputs.c. */
#include "infer/generate/results/results.h"

#include "base/mem.h"

#include <string.h>

typedef struct text_head {
    int64_t count, finish, has_statistics;
    double score;
} text_head;

static void add(bp_buffer *out, const bp_search_text *text)
{
    text_head head = {text->count, text->finish, text->statistics != NULL, text->score};
    size_t count = (size_t)text->count;

    bp_buffer_add(out, &head, sizeof head);
    bp_buffer_add(out, text->tokens, count * sizeof *text->tokens);
    bp_buffer_add(out, text->logprobs, count * sizeof *text->logprobs);
    if (text->statistics)
        bp_buffer_add(out, text->statistics, 2 * count * sizeof *text->statistics);
}

void bp_result_add_text(bp_buffer *out, const bp_search_text *texts, int64_t count)
{
    bp_buffer_add(out, &count, sizeof count);
    for (int64_t k = 0; k < count; k++)
        add(out, &texts[k]);
}

void bp_result_add(bp_buffer *out, const bp_search *search)
{
    int64_t texts = bp_search_texts(search);

    bp_buffer_add(out, &texts, sizeof texts);
    for (int64_t k = 0; k < texts; k++) {
        bp_search_text text = bp_search_text_at(search, k);

        add(out, &text);
    }
}

static bp_err take(bp_result_reader *reader, void *to, size_t bytes)
{
    if ((size_t)(reader->end - reader->at) < bytes)
        return BP_FAIL(BP_ERR_FORMAT, "result.damaged", "the result of a work unit ends too early");
    memcpy(to, reader->at, bytes);
    reader->at += bytes;
    return BP_OK;
}

bp_err bp_result_prompt(bp_result_reader *reader, int64_t *texts)
{
    return take(reader, texts, sizeof *texts);
}

bp_err bp_result_text(bp_result_reader *reader, bp_search_text *text)
{
    text_head head;
    bp_err err = take(reader, &head, sizeof head);
    int32_t *tokens = NULL;
    double *logprobs = NULL;
    float *statistics = NULL;

    *text = (bp_search_text){0};
    if (err == BP_OK && (head.count < 0 || head.count > reader->end - reader->at))
        err = BP_FAIL(BP_ERR_FORMAT, "result.damaged",
                      "the result of a work unit has a text of no length");
    if (err != BP_OK)
        return err;
    size_t count = (size_t)head.count;

    tokens = bp_alloc("generate.results", head.count, sizeof *tokens);
    logprobs = bp_alloc("generate.results", head.count, sizeof *logprobs);
    err = take(reader, tokens, count * sizeof *tokens);
    if (err == BP_OK)
        err = take(reader, logprobs, count * sizeof *logprobs);
    if (err == BP_OK && head.has_statistics) {
        statistics = bp_alloc("generate.results", 2 * head.count, sizeof *statistics);
        err = take(reader, statistics, 2 * count * sizeof *statistics);
    }
    *text = (bp_search_text){.tokens = tokens,
                             .logprobs = logprobs,
                             .statistics = statistics,
                             .count = head.count,
                             .finish = (bp_finish)head.finish,
                             .score = head.score};
    return err;
}

void bp_result_text_clear(bp_search_text *text)
{
    bp_free((void *)text->tokens);
    bp_free((void *)text->logprobs);
    bp_free((void *)text->statistics);
    *text = (bp_search_text){0};
}
