/* Work units: cuts through the list of all windows. Made by setup.c; units and merge read it. */
#include "infer/score/plan.h"

#include "base/mem.h"
#include "base/sort.h"
#include "data/pairs.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>

/* The most text tokens of a document: the stored ones, less the end-of-document token at its end.
 * In a file with open ends, the last token must be read to know whether it is one. */
static int64_t text_bound(const bp_score_plan *plan, int64_t file, int64_t stored)
{
    bool open_ends = bp_corpus_file_info(bp_corpus_file_at(plan->corpus, file))->open_ends;

    return plan->strips && !open_ends && stored > 0 ? stored - 1 : stored;
}

static bp_err list_files(bp_score_plan *plan)
{
    for (int64_t k = 0; k < plan->files; k++) {
        bp_corpus_file *file = bp_corpus_file_at(plan->corpus, k);
        bp_err err = BP_OK;

        if (plan->segments)
            err = bp_corpus_file_segments(file, &plan->segments[k], &plan->segment_start[k]);
        if (err != BP_OK)
            return err;
        plan->first_document[k + 1] =
            plan->first_document[k] + bp_corpus_file_info(file)->documents;
        plan->first_token[k + 1] = plan->first_token[k] + bp_corpus_file_info(file)->tokens;
    }
    plan->documents = plan->first_document[plan->files];
    return BP_OK;
}

typedef struct unit_cutter {
    bp_score_cut *cuts;
    int64_t count, capacity;
    int64_t cost; /* of the unit that is being filled */
    int64_t most; /* that ends it */
} unit_cutter;

/* The unit is full: the next one begins here. */
static void cut(unit_cutter *cutter, int64_t document, int64_t window)
{
    if (cutter->count == cutter->capacity) {
        cutter->capacity = 2 * cutter->capacity + 64;
        cutter->cuts =
            bp_realloc("score.plan", cutter->cuts, cutter->capacity, sizeof(*cutter->cuts));
    }
    cutter->cuts[cutter->count++] = (bp_score_cut){document, window};
    cutter->cost = 0;
}

/* Advance by a window of `cost` inputs, or by a document without windows. The next item is `window`
 * of `document`. */
static void advance(unit_cutter *cutter, int64_t cost, int64_t document, int64_t window)
{
    cutter->cost += cost > 0 ? cost : 1;
    if (cutter->cost >= cutter->most)
        cut(cutter, document, window);
}

static void cut_document(bp_score_plan *plan, unit_cutter *cutter, int64_t document, int64_t line)
{
    int64_t count = bp_score_window_count(&plan->rule, line);

    if (count == 0)
        advance(cutter, 1, document + 1, 0);
    for (int64_t w = 0; w < count; w++) {
        int64_t inputs = bp_score_window_at(&plan->rule, line, w).inputs;
        bool last = w == count - 1;

        advance(cutter, inputs, last ? document + 1 : document, last ? 0 : w + 1);
        plan->inputs += inputs;
        plan->longest = inputs > plan->longest ? inputs : plan->longest;
    }
    plan->windows += count;
}

/* Sets everything except whether the first token, and the last one in a file with open ends, are
 * text. */
static bp_err lay_document(const bp_score_plan *plan, int64_t file, int64_t document,
                           bp_score_document *out)
{
    int64_t inside = document - plan->first_document[file];
    const int64_t *start;
    bp_err err = bp_document_starts_at(plan->starts, file, inside, &start);

    if (err != BP_OK)
        return err;
    *out = (bp_score_document){
        .file = file, .start = start[0], .stored = start[1] - start[0], .lead = plan->rule.prefix};
    if (plan->segments) {
        out->source = plan->segment_start[file][plan->segments[file][inside] + 1] - start[0];
        out->start += out->source;
        out->stored -= out->source;
    }
    out->text = text_bound(plan, file, out->stored);
    return BP_OK;
}

static bool is_too_long(const bp_score_plan *plan, const bp_score_document *document)
{
    const bp_score_rule *rule = &plan->rule;

    return plan->segments && (document->source + (rule->eod >= 0) > rule->context ||
                              bp_score_line(rule, document->text) - 1 > rule->context);
}

int64_t bp_score_plan_line(const bp_score_plan *plan, const bp_score_document *document)
{
    return is_too_long(plan, document) && !plan->rule.cut
               ? 0
               : bp_score_line(&plan->rule, document->text) + document->lead - plan->rule.prefix;
}

int64_t bp_score_plan_source(const bp_score_plan *plan, const bp_score_document *document)
{
    int64_t inputs = document->source + (plan->rule.eod >= 0);

    return inputs < plan->rule.context ? inputs : plan->rule.context;
}

static int64_t choose_unit(int64_t cost)
{
    int64_t inputs = BP_SCORE_UNIT_LEAST;

    while (inputs < BP_SCORE_UNIT_INPUTS && inputs * BP_SCORE_UNITS < cost)
        inputs *= 2;
    return inputs;
}

/* Cut into units of `most` inputs; *cost: of all of them. */
static bp_err cut_units(bp_score_plan *plan, int64_t most, int64_t *cost)
{
    unit_cutter cutter = {.most = most};

    bp_free(plan->cuts);
    plan->scored = plan->too_long = plan->inputs = plan->windows = 0;
    cut(&cutter, 0, 0);
    plan->cuts = cutter.cuts;
    for (int64_t file = 0, document = 0; file < plan->files; file++) {
        for (; document < plan->first_document[file + 1]; document++) {
            bp_score_document at;
            bp_err err;

            if (!bp_score_plan_has(plan, document))
                continue;
            err = lay_document(plan, file, document, &at);
            if (err != BP_OK)
                return err;
            plan->scored++;
            cut_document(plan, &cutter, document, bp_score_plan_line(plan, &at));
            plan->cuts = cutter.cuts;
            plan->too_long += is_too_long(plan, &at);
        }
    }
    *cost = cutter.cost;
    if (cutter.cost > 0)
        cut(&cutter, plan->documents, 0);
    plan->cuts = cutter.cuts;
    plan->units = cutter.count - 1;
    return BP_OK;
}

/* First with one unit for everything, if the amount of work is not known yet. */
bp_err bp_score_plan_cut(bp_score_plan *plan, int64_t unit_inputs)
{
    int64_t cost = 0;
    bp_err err = unit_inputs > 0 ? BP_OK : cut_units(plan, INT64_MAX, &cost);

    if (err != BP_OK)
        return err;
    plan->unit_inputs = unit_inputs > 0 ? unit_inputs : choose_unit(cost);
    return cut_units(plan, plan->unit_inputs, &cost);
}

static bp_err find_words(bp_score_plan *plan)
{
    bp_corpus_file *file = bp_corpus_file_at(plan->corpus, 0);
    bp_tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t bytes;
    bp_err err = bp_corpus_file_tokenizer(file, &text, &bytes);

    if (err == BP_OK && !text)
        err = BP_FAIL(BP_ERR_CONFIG, "score.no_tokenizer",
                      "score.convention = pll_word needs a tokenizer, and the corpus brings none: "
                      "at %s; use pll",
                      bp_corpus_file_path(file));
    if (err == BP_OK)
        err = bp_tokenizer_parse(&tokenizer, text, bytes, bp_corpus_file_path(file));
    if (err == BP_OK) {
        plan->continues =
            bp_alloc("score.plan", bp_tokenizer_size(tokenizer), sizeof *plan->continues);
        err = bp_tokenizer_word_parts(tokenizer, plan->continues);
    }
    bp_tokenizer_free(&tokenizer);
    bp_free(text);
    return err;
}

static bp_err check_pairs(const bp_score_plan *plan)
{
    const bp_pairs_rule rule = {plan->rule.context, plan->rule.eod >= 0, -1};
    bp_pair_counts counts = {0};
    bp_err err = BP_OK;

    for (int64_t k = 0; k < plan->files && err == BP_OK; k++)
        err = bp_pairs_count(bp_corpus_file_at(plan->corpus, k), &rule, &counts);
    return err;
}

bp_err bp_score_plan_init(bp_score_plan *plan, bp_corpus *corpus, const bp_score_rule *rule,
                          const bp_stream_spec *bag, int64_t unit_inputs)
{
    int64_t files = bp_corpus_files(corpus);

    *plan = (bp_score_plan){
        .corpus = corpus, .rule = *rule, .files = files, .unit_inputs = unit_inputs};
    plan->strips = bp_corpus_eod(corpus) >= 0;
    plan->unknown = bp_corpus_roles(corpus)[BP_ROLE_UNKNOWN];
    plan->starts = bp_document_starts_new(corpus);
    if (rule->convention == BP_SCORE_PAIRS) {
        plan->segments = bp_alloc("score.plan", files, sizeof(*plan->segments));
        plan->segment_start = bp_alloc("score.plan", files, sizeof(*plan->segment_start));
    }
    plan->first_document = bp_alloc("score.plan", files + 1, sizeof(int64_t));
    plan->first_token = bp_alloc("score.plan", files + 1, sizeof(int64_t));

    bp_err err = list_files(plan);
    if (err == BP_OK && plan->segments)
        err = check_pairs(plan);
    if (err == BP_OK && bag)
        err = bp_stream_new(&plan->bag, bag);
    if (err == BP_OK && rule->convention == BP_SCORE_PLL_WORD)
        err = find_words(plan);
    return err == BP_OK ? bp_score_plan_cut(plan, plan->unit_inputs) : err;
}

bool bp_score_plan_has(const bp_score_plan *plan, int64_t document)
{
    return !plan->bag || bp_stream_drawn(plan->bag, document) == 0;
}

void bp_score_plan_clear(bp_score_plan *plan)
{
    bp_stream_free(&plan->bag);
    bp_free(plan->continues);
    bp_free(plan->cuts);
    bp_free(plan->first_token);
    bp_free(plan->first_document);
    bp_free(plan->segment_start);
    bp_free(plan->segments);
    bp_document_starts_free(&plan->starts);
    *plan = (bp_score_plan){0};
}

int64_t bp_score_plan_file(const bp_score_plan *plan, int64_t document)
{
    return bp_stretch_of(plan->first_document, plan->files, document);
}

/* The initial token of a corpus's documents (--bos) is not text either, and another prefix replaces
 * it; -1 if there is none. */
static int64_t own_beginning(const bp_score_plan *plan, const bp_corpus_file *file)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);

    return plan->rule.prefix && info->has_bos ? info->roles[BP_ROLE_BOS] : -1;
}

/* A document that begins with the prefix gets no second one; its own prefix is not text. */
static bp_err skip_lead(const bp_score_plan *plan, bp_corpus_file *file, bp_score_document *out)
{
    int32_t first = -1;
    bp_err err;

    if (plan->rule.lead < 0 || out->text == 0)
        return BP_OK;
    err = bp_corpus_file_read(file, out->start, 1, &first);
    if (err == BP_OK && (first == plan->rule.lead || first == own_beginning(plan, file))) {
        out->start++;
        out->stored--;
        out->text--;
        out->lead = 1;
    }
    return err;
}

bp_err bp_score_plan_document(const bp_score_plan *plan, int64_t document, bp_score_document *out)
{
    int64_t k = bp_score_plan_file(plan, document);
    bp_corpus_file *file = bp_corpus_file_at(plan->corpus, k);
    int32_t last = -1;
    bp_err err = lay_document(plan, k, document, out);

    if (err == BP_OK && plan->strips && out->stored > 0 && bp_corpus_file_info(file)->open_ends) {
        err = bp_corpus_file_read(file, out->start + out->stored - 1, 1, &last);
        out->text -= err == BP_OK && last == bp_corpus_eod(plan->corpus);
    }
    return err == BP_OK ? skip_lead(plan, file, out) : err;
}
