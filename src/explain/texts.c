/* Documents as lines of inputs and targets: the text after the token that scoring puts before it.
 * Called by explain.c. */
#include "explain/texts.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "infer/score/scorer.h"

static bp_err count_places(explain_texts *texts, int64_t d)
{
    bp_score_document document;
    bp_err err = bp_score_plan_document(&texts->plan, d, &document);
    int64_t places;

    if (err != BP_OK)
        return err;
    places = document.text + document.lead - 1;
    texts->cut += places > texts->most;
    places = places < 0 ? 0 : places < texts->most ? places : texts->most;
    texts->sizes[d] = (explain_sizes){.K = places, .T = places};
    texts->targets += places;
    return BP_OK;
}

/* As scoring reads texts if no key is set; without the end of a document. */
static bp_err find_rule(bp_score_rule *rule, const bp_corpus *corpus, const bp_model_info *model)
{
    static const bp_option *const tables[] = {bp_score_rule_options, NULL};
    int64_t eod = bp_corpus_eod(corpus);
    bp_config *config = NULL;
    bp_err err = bp_config_new(&config, tables, tables);

    if (err == BP_OK)
        err = scorer_resolve(config, model, rule);
    if (err == BP_OK)
        scorer_resolve_ends(config, eod >= 0 ? eod : model->eod_id,
                            bp_corpus_roles(corpus)[BP_ROLE_BOS], model, rule);
    rule->end = false;
    bp_config_free(&config);
    return err;
}

bp_err explain_texts_open(explain_texts *texts, const char *corpus, const bp_model_info *model,
                          int64_t most)
{
    bp_score_rule rule;
    bp_err err = bp_corpus_open(&texts->corpus, corpus);

    texts->most = most;
    if (err == BP_OK)
        err = scorer_check_corpus(texts->corpus, model);
    if (err == BP_OK)
        err = find_rule(&rule, texts->corpus, model);
    if (err == BP_OK)
        err = bp_score_plan_init(&texts->plan, texts->corpus, &rule, NULL);
    if (err != BP_OK)
        return err;
    texts->sizes = bp_alloc("explain.texts", texts->plan.documents, sizeof *texts->sizes);
    for (int64_t d = 0; d < texts->plan.documents && err == BP_OK; d++) {
        if (d % 1024 == 0)
            bp_heartbeat_progress();
        err = count_places(texts, d);
    }
    return err;
}

void explain_texts_clear(explain_texts *texts)
{
    bp_free(texts->sizes);
    bp_score_plan_clear(&texts->plan);
    bp_corpus_close(&texts->corpus);
}

void explain_reading_new(explain_reading *read, int64_t most)
{
    *read = (explain_reading){.inputs = bp_alloc("explain", most + 1, sizeof *read->inputs),
                              .targets = bp_alloc("explain", most, sizeof *read->targets),
                              .places = bp_alloc("explain", most, sizeof *read->places)};
}

void explain_reading_clear(explain_reading *read)
{
    bp_free(read->inputs);
    bp_free(read->targets);
    bp_free(read->places);
}

bp_err explain_texts_read(const explain_texts *texts, int64_t d, explain_reading *read)
{
    const explain_sizes *sizes = &texts->sizes[d];
    bp_score_document document;
    bp_err err = bp_score_plan_document(&texts->plan, d, &document);

    read->document = (bp_explained){.K = sizes->K,
                                    .T = sizes->T,
                                    .S = sizes->S,
                                    .inputs = read->inputs,
                                    .targets = read->targets,
                                    .places = read->places};
    if (err != BP_OK || sizes->K == 0)
        return err;
    if (document.lead > 0)
        read->inputs[0] = (int32_t)texts->plan.rule.lead;
    err = bp_corpus_file_read(bp_corpus_file_at(texts->corpus, document.file), document.start,
                              sizes->T + 1 - document.lead, read->inputs + document.lead);
    for (int64_t t = 0; t < sizes->T; t++) {
        read->targets[t] = read->inputs[t + 1];
        read->places[t] = (int32_t)t;
    }
    return err;
}
