/* Documents as lines of inputs and targets: a text after the token that scoring puts before it, or
 * a target given its source. Called by load.c and document.c. */
#include "explain/texts/texts.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "infer/score/scorer.h"

#include <math.h>

static int64_t at_most(int64_t count, int64_t most)
{
    return count < 0 ? 0 : count < most ? count : most;
}

static bool reads_pairs(const explain_texts *texts)
{
    return texts->plan.rule.convention == BP_SCORE_PAIRS;
}

/* ---- lines ---- */

/* The inputs of a text or target, and of its source, up to their ends. */
static bp_err measure_line(const explain_texts *texts, int64_t d, bp_score_document *document,
                           explain_sizes *whole)
{
    const bp_score_rule *rule = &texts->plan.rule;
    bp_err err = bp_score_plan_document(&texts->plan, d, document);

    if (err != BP_OK)
        return err;
    whole->T = document->text + document->lead - 1 + (reads_pairs(texts) && rule->end);
    whole->K = whole->T;
    whole->S = reads_pairs(texts) ? document->source + (rule->eod >= 0) : 0;
    return BP_OK;
}

static bp_err read_tokens(const explain_texts *texts, int64_t file, int64_t first, int64_t stored,
                          int64_t count, int32_t *to)
{
    int64_t from_file = count < stored ? count : stored;
    bp_err err = from_file > 0 ? bp_corpus_file_read(bp_corpus_file_at(texts->corpus, file), first,
                                                     from_file, to)
                               : BP_OK;

    if (count > stored)
        to[stored] = (int32_t)texts->plan.rule.eod;
    return err;
}

static bp_err read_line(explain_texts *texts, int64_t d, explain_reading *read)
{
    const bp_score_rule *rule = &texts->plan.rule;
    int64_t most = texts->wish.most, lead;
    explain_sizes whole = {0};
    bp_score_document at;
    bp_err err = measure_line(texts, d, &at, &whole);

    if (err != BP_OK)
        return err;
    read->document.T = read->document.K = at_most(whole.T, most);
    read->document.S = at_most(whole.S, most);
    if (read->document.K == 0)
        return BP_OK;
    lead = at.lead;
    if (lead > 0)
        read->inputs[0] = (int32_t)(reads_pairs(texts) ? rule->start : rule->lead);
    err = read_tokens(texts, at.file, at.start, at.text, read->document.T + 1 - lead,
                      read->inputs + lead);
    if (err == BP_OK && read->document.S > 0)
        err = read_tokens(texts, at.file, at.start - at.source, at.source, read->document.S,
                          read->sources);
    for (int64_t t = 0; t < read->document.T; t++) {
        read->targets[t] = read->inputs[t + 1];
        read->positions[t] = (int32_t)t;
    }
    return err;
}

/* ---- all documents ---- */

bp_err explain_texts_read(explain_texts *texts, int64_t d, explain_reading *read)
{
    read->document = (bp_explained){.hides = -1,
                                    .set = -1,
                                    .of = d,
                                    .value = NAN,
                                    .labels = read->labels,
                                    .inputs = read->inputs,
                                    .segments = texts->framed ? read->segments : NULL,
                                    .sources = read->sources,
                                    .targets = read->targets,
                                    .positions = read->positions,
                                    .foils = read->foils};
    return texts->framed ? explain_framed_read(texts, d, read) : read_line(texts, d, read);
}

static void allocate(explain_reading *read, const explain_sizes *most, int64_t foils)
{
    *read = (explain_reading){.inputs = bp_alloc("explain", most->T + 1, sizeof *read->inputs),
                              .segments = bp_alloc("explain", most->T + 1, sizeof *read->segments),
                              .sources = bp_alloc("explain", most->S + 1, sizeof *read->sources),
                              .targets = bp_alloc("explain", most->K, sizeof *read->targets),
                              .positions = bp_alloc("explain", most->K, sizeof *read->positions),
                              .labels = bp_alloc("explain", most->K, sizeof *read->labels),
                              .foils = bp_alloc("explain", most->K * foils, sizeof *read->foils)};
}

void explain_reading_new(explain_reading *read, const explain_texts *texts)
{
    explain_sizes most = texts->largest;

    if (texts->framed) /* examples are read at this length */
        most.T = texts->wish.most;
    allocate(read, &most, bp_explain_foils(texts->wish.info));
}

void explain_reading_clear(explain_reading *read)
{
    bp_free(read->inputs);
    bp_free(read->segments);
    bp_free(read->sources);
    bp_free(read->targets);
    bp_free(read->positions);
    bp_free(read->labels);
    bp_free(read->foils);
}

static bp_err count_document(explain_texts *texts, int64_t d, explain_reading *read)
{
    const bp_explained *document = &read->document;
    explain_sizes whole = {0}, *sizes = &texts->sizes[d], *largest = &texts->largest;
    bp_score_document at;
    bp_err err = BP_OK;

    if (!texts->framed) {
        err = measure_line(texts, d, &at, &whole);
        *sizes =
            (explain_sizes){at_most(whole.T, texts->wish.most), at_most(whole.T, texts->wish.most),
                            at_most(whole.S, texts->wish.most)};
        texts->cut += whole.T > texts->wish.most || whole.S > texts->wish.most;
    } else {
        err = explain_texts_read(texts, d, read);
        *sizes = (explain_sizes){document->K, document->T, document->S};
    }
    largest->K = sizes->K > largest->K ? sizes->K : largest->K;
    largest->T = sizes->T > largest->T ? sizes->T : largest->T;
    largest->S = sizes->S > largest->S ? sizes->S : largest->S;
    texts->targets += sizes->K;
    return err;
}

static bp_err count_documents(explain_texts *texts)
{
    const explain_sizes most = {explain_framed_most(texts, texts->wish.most), texts->wish.most, 0};
    explain_reading read;
    bp_err err = BP_OK;

    texts->targets = 0;
    allocate(&read, &most, 0);
    for (int64_t d = 0; d < texts->documents && err == BP_OK; d++) {
        if (d % 1024 == 0)
            bp_heartbeat_progress();
        err = count_document(texts, d, &read);
    }
    explain_reading_clear(&read);
    return err;
}

/* Labels, if there is one; else the best. */
static bp_err count_hidden(explain_texts *texts)
{
    bool settled = texts->wish.target != EXPLAIN_HIDDEN;
    bp_err err;

    if (!settled)
        texts->wish.target = EXPLAIN_LABEL;
    err = count_documents(texts);
    if (err != BP_OK || settled || texts->targets > 0)
        return err;
    texts->wish.target = EXPLAIN_BEST;
    return count_documents(texts);
}

/* ---- open ---- */

/* As scoring reads texts if no key is set; without the end of a document, which is not a target. */
static bp_err find_rule(bp_score_rule *rule, const bp_corpus *corpus, const bp_model_info *model)
{
    static const bp_option *const tables[] = {bp_score_rule_options, NULL};
    int64_t eod = bp_corpus_eod(corpus);
    bp_config *config = NULL;
    bp_err err = bp_config_new(&config, tables, tables);

    if (err == BP_OK)
        err = bp_score_resolve(config, model, rule);
    if (err == BP_OK)
        bp_score_resolve_ends(config, eod >= 0 ? eod : model->eod_id,
                              bp_corpus_roles(corpus)[BP_ROLE_BOS], model, rule);
    rule->end = rule->end && rule->convention == BP_SCORE_PAIRS;
    rule->cut = true;
    bp_config_free(&config);
    return err;
}

static bp_err open_corpus(explain_texts *texts)
{
    const bp_model_info *model = texts->wish.info;
    bp_score_rule rule;
    bp_err err = explain_corpus_open(&texts->corpus, &texts->wish, &texts->prompts);

    if (err == BP_OK)
        err = bp_score_check_corpus(texts->corpus, model);
    if (err == BP_OK)
        err = find_rule(&rule, texts->corpus, model);
    if (err == BP_OK)
        err = bp_score_plan_init(&texts->plan, texts->corpus, &rule, NULL, BP_SCORE_UNIT_INPUTS);
    return err;
}

static bp_err count_all(explain_texts *texts)
{
    bp_err err;

    texts->documents = texts->framed ? texts->examples.count : texts->plan.documents;
    texts->sizes = bp_alloc("explain.texts", texts->documents, sizeof *texts->sizes);
    err = count_hidden(texts);
    if (texts->framed)
        texts->cut = texts->examples.cut;
    if (err == BP_OK && texts->targets == 0 && texts->wish.target == EXPLAIN_LABEL)
        err = BP_FAIL(BP_ERR_CONFIG, "explain.no_labels",
                      "no document has a label that the model knows: at explain.target = label; "
                      "use explain.target=best, or another explain.corpus than %s",
                      texts->wish.corpus);
    return err;
}

/* An explanation says why a model writes a token: of another model's text it says why it would. */
static void find_writer(explain_texts *texts)
{
    const explain_wish *wish = &texts->wish;

    texts->writer = wish->texts ? explain_writer_of(wish->texts, wish->info->digest) : NULL;
    if (texts->writer)
        BP_WARN("explain.other_writer",
                "another model wrote the texts, %s: at explain.texts = %s; the explanations say "
                "why %s would write them: give outputs.jsonl of a run with "
                "generate.model=%s, unless that is asked",
                texts->writer, wish->texts, wish->model, wish->model);
}

bp_err explain_texts_open(explain_texts *texts, const explain_wish *wish, const bp_mesh *mesh,
                          bool reads)
{
    bp_err err;

    texts->wish = *wish;
    texts->framed = wish->info->masks || bp_task_has_head(&wish->info->task);
    texts->mask = -1;
    if (reads)
        find_writer(texts);
    err = bp_agree(mesh->world, reads ? open_corpus(texts) : BP_OK);
    if (err == BP_OK && texts->framed)
        err = explain_framed_open(texts, mesh);
    if (err == BP_OK)
        err = bp_agree(mesh->world, reads ? count_all(texts) : BP_OK);
    bp_bcast_bytes(&texts->wish.target, sizeof texts->wish.target, 0, mesh->world);
    bp_bcast_bytes(&texts->largest, sizeof texts->largest, 0, mesh->world);
    return err;
}

void explain_texts_clear(explain_texts *texts)
{
    bp_free(texts->writer);
    bp_free(texts->sizes);
    json_decref(texts->masks);
    bp_free(texts->sets);
    bp_buffer_clear(&texts->prompts);
    bp_task_documents_clear(&texts->examples);
    bp_score_plan_clear(&texts->plan);
    bp_corpus_close(&texts->corpus);
}
