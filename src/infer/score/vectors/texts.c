/* The documents of score.vectors as examples, sorted by length within runs of them. Called by
 * vectors.c. */
#include "infer/score/vectors/vectors_priv.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool begins_so(const vector_texts *texts, const bp_score_document *document, bp_err *err)
{
    int32_t first = -1;

    if (!texts->once || texts->begin < 0 || document->text == 0 || texts->wish->prompt_count > 0)
        return false;
    *err = bp_corpus_file_read(bp_corpus_file_at(texts->plan.corpus, document->file),
                               document->start, 1, &first);
    return *err == BP_OK && first == texts->begin;
}

/* Positions of a document's example, and whether it is truncated. */
static bp_err count_positions(vector_texts *texts, int64_t d, int64_t *positions)
{
    bp_score_document document;
    bp_err err = bp_score_plan_document(&texts->plan, d, &document);

    if (err != BP_OK)
        return err;
    *positions = document.text + texts->wish->prompt_count +
                 (texts->begin >= 0 && !begins_so(texts, &document, &err)) + (texts->end >= 0);
    if (err == BP_OK && *positions == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "score.empty_document",
                      "document %" PRId64 " has no token: at %s; leave it out",
                      d - texts->plan.first_document[document.file],
                      bp_corpus_file_path(bp_corpus_file_at(texts->plan.corpus, document.file)));
    texts->cut += *positions > texts->most;
    *positions = *positions < texts->most ? *positions : texts->most;
    return err;
}

static int by_length(const void *a, const void *b)
{
    const vector_text *x = a, *y = b;

    return x->positions != y->positions
               ? (x->positions > y->positions) - (x->positions < y->positions)
           : x->document < y->document ? -1
                                       : x->document > y->document;
}

static bp_err list_texts(vector_texts *texts)
{
    int64_t count = texts->plan.documents;
    bp_err err = BP_OK;

    texts->order = bp_try_alloc("score.vectors", count, sizeof *texts->order);
    if (!texts->order)
        return bp_fail_memory("the list of documents", count, sizeof *texts->order);
    for (int64_t d = 0; d < count && err == BP_OK; d++) {
        if (d % VECTORS_SORTED == 0)
            bp_heartbeat_progress();
        texts->order[d].document = d;
        err = count_positions(texts, d, &texts->order[d].positions);
        texts->tokens += texts->order[d].positions;
    }
    for (int64_t d = 0; d < count && err == BP_OK; d += VECTORS_SORTED)
        qsort(texts->order + d, (size_t)(count - d < VECTORS_SORTED ? count - d : VECTORS_SORTED),
              sizeof *texts->order, by_length);
    return err;
}

bp_err vector_texts_open(vector_texts *texts, bp_corpus *corpus)
{
    const bp_score_rule rule = {.convention = BP_SCORE_ROLLING,
                                .context = texts->most,
                                .stride = texts->most,
                                .eod = bp_corpus_eod(corpus),
                                .lead = -1};
    bp_err err = bp_score_plan_init(&texts->plan, corpus, &rule, NULL, BP_SCORE_UNIT_INPUTS);

    return err == BP_OK ? list_texts(texts) : err;
}

void vector_texts_clear(vector_texts *texts)
{
    bp_free(texts->order);
    bp_score_plan_clear(&texts->plan);
}

int64_t vector_texts_batch(const vector_texts *texts, int64_t first, int64_t end)
{
    int64_t last = first;

    while (last < end && last - first < VECTORS_BATCH &&
           (last == first || (last + 1 - first) * texts->order[last].positions <= VECTORS_TOKENS))
        last++;
    return last;
}

static bp_err read_text(const vector_texts *texts, const vector_text *text, int32_t *inputs)
{
    const bp_vectors_wish *wish = texts->wish;
    bp_score_document document;
    bp_err err = bp_score_plan_document(&texts->plan, text->document, &document);
    int64_t at = 0, left, prompt;

    if (err == BP_OK && texts->begin >= 0 && !begins_so(texts, &document, &err))
        inputs[at++] = (int32_t)texts->begin;
    if (err != BP_OK)
        return err;
    left = text->positions - at - (texts->end >= 0);
    prompt = wish->prompt_count < left ? wish->prompt_count : left;
    memcpy(inputs + at, wish->prompt, (size_t)prompt * sizeof *inputs);
    at += prompt;
    left -= prompt;
    if (left > 0)
        err = bp_corpus_file_read(bp_corpus_file_at(texts->plan.corpus, document.file),
                                  document.start, left, inputs + at);
    if (texts->end >= 0)
        inputs[at + left] = (int32_t)texts->end;
    return err;
}

bp_err vector_texts_read(const vector_texts *texts, int64_t first, int64_t last, int64_t length,
                         int32_t *inputs)
{
    bp_err err = BP_OK;

    for (int64_t k = first; k < last && err == BP_OK; k++, inputs += length) {
        err = read_text(texts, &texts->order[k], inputs);
        for (int64_t t = texts->order[k].positions; t < length; t++)
            inputs[t] = -1;
    }
    return err;
}
