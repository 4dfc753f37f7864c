/* The kinds of bagpipe-data metrics. Called by metrics.c. */
#include "metrics_kinds.h"

#include "base/mem.h"

#include <string.h>

/* ---- a system's answers ---- */

void metrics_answers_clear(metrics_answers *answers)
{
    bp_text_answers_clear(&answers->text);
    bp_real_answers_clear(&answers->real);
    bp_free(answers->codes);
    bp_free(answers->entities);
    bp_free(answers->numbers[0]);
    bp_free(answers->numbers[1]);
}

static bp_text_pairs pairs_of(const metrics_inputs *in, const answer_file *hypothesis)
{
    return (bp_text_pairs){hypothesis->count, in->arguments->references.count, hypothesis->lines,
                           in->lines};
}

static bp_bleu_words words_of(const metrics_arguments *arguments)
{
    return strcmp(arguments->words, "zh") == 0     ? BP_WORDS_ZH
           : strcmp(arguments->words, "none") == 0 ? BP_WORDS_NONE
                                                   : BP_WORDS_13A;
}

static bp_err count_bleu(metrics_answers *out, const metrics_inputs *in,
                         const answer_file *hypothesis)
{
    bp_text_pairs pairs = pairs_of(in, hypothesis);

    return bp_bleu_count(&out->text, &pairs, words_of(in->arguments));
}

static bp_err count_chrf(metrics_answers *out, const metrics_inputs *in,
                         const answer_file *hypothesis)
{
    bp_text_pairs pairs = pairs_of(in, hypothesis);

    return bp_chrf_count(&out->text, &pairs);
}

static bp_err count_rouge(metrics_answers *out, const metrics_inputs *in,
                          const answer_file *hypothesis)
{
    bp_text_pairs pairs = pairs_of(in, hypothesis);

    return bp_rouge_count(&out->text, &pairs);
}

static bp_err count_meteor(metrics_answers *out, const metrics_inputs *in,
                           const answer_file *hypothesis)
{
    bp_text_pairs pairs = pairs_of(in, hypothesis);

    return bp_meteor_count(&out->text, &pairs, words_of(in->arguments), in->wordnet);
}

static bp_err count_bertscore(metrics_answers *out, const metrics_inputs *in,
                              const answer_file *hypothesis)
{
    return metrics_model_bertscore(&out->text, in->model, hypothesis, in->references,
                                   in->arguments->references.count);
}

static bp_err count_perplexity(metrics_answers *out, const metrics_inputs *in,
                               const answer_file *hypothesis)
{
    return metrics_model_perplexity(&out->text, in->model, hypothesis);
}

static bp_err count_spans(metrics_answers *out, const metrics_inputs *in,
                          const answer_file *hypothesis)
{
    bp_text_pairs pairs = pairs_of(in, hypothesis);

    out->numbers[0] = bp_alloc("tool.metrics", pairs.documents, sizeof(double));
    out->numbers[1] = bp_alloc("tool.metrics", pairs.documents, sizeof(double));
    bp_spans_count(out->numbers[0], out->numbers[1], &pairs);
    out->spans = (bp_span_answers){pairs.documents, out->numbers[0], out->numbers[1]};
    return BP_OK;
}

static bp_err count_classes(metrics_answers *out, const metrics_inputs *in,
                            const answer_file *hypothesis)
{
    return read_classes(&out->classes, &out->codes, in->references, hypothesis);
}

static bp_err count_numbers(metrics_answers *out, const metrics_inputs *in,
                            const answer_file *hypothesis)
{
    bp_err err = read_numbers(&out->numbers[0], in->references);

    if (err == BP_OK)
        err = read_numbers(&out->numbers[1], hypothesis);
    if (err == BP_OK)
        bp_real_answers_init(&out->real, out->numbers[0], out->numbers[1], hypothesis->count);
    return err;
}

static bp_err count_tags(metrics_answers *out, const metrics_inputs *in,
                         const answer_file *hypothesis)
{
    return read_tags(&out->tags, &out->entities, in->references, hypothesis);
}

/* ---- kinds ---- */

static const metrics_kind KINDS[METRICS_KINDS_MOST] = {
    {&bp_metric_bleu, true, count_bleu, offsetof(metrics_answers, text),
     "nrefs:%d|case:mixed|eff:no|tok:%s|smooth:exp|version:bagpipe-" BAGPIPE_VERSION, true},
    {&bp_metric_chrf, true, count_chrf, offsetof(metrics_answers, text),
     "nrefs:%d|case:mixed|eff:yes|nc:6|nw:0|space:no|version:bagpipe-" BAGPIPE_VERSION, true},
    {&bp_metric_rouge, true, count_rouge, offsetof(metrics_answers, text), NULL, true},
    {&bp_metric_meteor, true, count_meteor, offsetof(metrics_answers, text), NULL, true},
    {&bp_metric_bertscore, true, count_bertscore, offsetof(metrics_answers, text), NULL, false,
     true},
    {&bp_metric_perplexity, true, count_perplexity, offsetof(metrics_answers, text), NULL, false,
     true, true},
    {&bp_metric_classes, false, count_classes, offsetof(metrics_answers, classes), NULL},
    {&bp_metric_regression, false, count_numbers, offsetof(metrics_answers, real), NULL},
    {&bp_metric_tags, false, count_tags, offsetof(metrics_answers, tags), NULL},
    {&bp_metric_spans, true, count_spans, offsetof(metrics_answers, spans), NULL}};

static const metrics_kind *find_kind(const char *name, size_t bytes)
{
    for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++)
        if (strlen(KINDS[k].metric->kind) == bytes &&
            strncmp(KINDS[k].metric->kind, name, bytes) == 0)
            return &KINDS[k];
    return NULL;
}

bp_err metrics_kinds_find(metrics_kinds *out, const char *names)
{
    const char *at = names ? names : "";

    for (;; at++) {
        size_t bytes = strcspn(at, ",");
        const metrics_kind *kind = find_kind(at, bytes);

        if (!kind)
            return BP_FAIL(BP_ERR_USAGE, "metrics.unknown_kind",
                           "there is no kind of metric '%.*s': at --kind; choose bleu, chrf, "
                           "rouge, meteor, bertscore, perplexity, classes, regression, tags or "
                           "spans",
                           (int)bytes, at);
        for (int k = 0; k < out->count; k++)
            if (out->list[k] == kind || !kind->of_texts || !out->list[k]->of_texts)
                return BP_FAIL(BP_ERR_USAGE, "metrics.no_list",
                               "--kind %s %s: at --kind; ask for one at a time", names,
                               out->list[k] == kind ? "names a kind twice"
                                                    : "has kinds that read files differently");
        out->list[out->count++] = kind;
        at += bytes;
        if (*at == '\0')
            return BP_OK;
    }
}
