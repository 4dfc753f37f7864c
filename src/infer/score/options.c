/* score.*: the keys, and the rule that they define. */
#include "infer/score/scorer.h"

#include "infer/score/score.h"
#include "infer/score/unit.h"

#include <inttypes.h>
#include <string.h>

const bp_option bp_score_rule_options[] = {
    {BP_CHOICE_KEY("score.convention", "rolling", "rolling|stride|half|pll|pll_word|pairs"),
     .help =
         "windows as lm-evaluation-harness, Hugging Face or llama.cpp cut them; of masked models "
         "pll (if not given) or pll_word: each token is masked in turn, alone or with the rest of "
         "its word; of encoder-decoders pairs (if not given): a target given its source",
     .at = BP_AT(bp_score_rule_keys, convention)},
    {BP_INT_KEY("score.context", NULL, 0, 1e9), .unit = "tokens",
     .help = "the most inputs of a window; the model's if not given, of several the smallest; 0: a "
             "document is one window (recurrent models and models of counts)",
     .at = BP_AT(bp_score_rule_keys, context)},
    {BP_INT_KEY("score.stride", NULL, 0, 1e9), .unit = "tokens",
     .help = "from window to window; rolling: the context, stride: half of it; 0: as if not given",
     .at = BP_AT(bp_score_rule_keys, stride)},
    {BP_CHOICE_KEY("score.prefix", "auto", "auto|bos|eod|none"),
     .help = "what precedes a document (rolling), and a choice's context: the model's "
             "beginning-of-text token, the end-of-document token, nothing; auto: bos where the "
             "model has one, else eod",
     .at = BP_AT(bp_score_rule_keys, prefix)},
    {BP_BOOL_KEY("score.prefix_every", "no"),
     .help = "that token is the first input of every window, in the place of the text's",
     .at = BP_AT(bp_score_rule_keys, prefix_every)},
    {BP_BOOL_KEY("score.end", "no"),
     .help = "score and count the end-of-document token after each document too; yes of pairs, if "
             "not given",
     .at = BP_AT(bp_score_rule_keys, end)},
    {BP_BOOL_KEY("score.cut", "no"),
     .help = "of a source or target that is longer than the context score what fits; else the pair "
             "is left out",
     .at = BP_AT(bp_score_rule_keys, cut)},
    {BP_BYTES_KEY("score.memory", "1GiB", 1, 1e15), .unit = "bytes",
     .help = "of a rank, for the vocabulary distributions of an ensemble's members, of "
             "score.boundaries or of score.entropy",
     .at = BP_AT(bp_score_rule_keys, memory), .may_change = true},
    {BP_INT_KEY("task.stride", "0", 0, 1 << 20), .unit = "tokens",
     .help = "of spans: tokens from the begin of a window in a long context to that of the next "
             "one; 0: as the model was trained, 128 of an imported one",
     .at = BP_AT(bp_score_rule_keys, span_stride)},
    {BP_INT_KEY("task.answer_tokens", "0", 0, 1 << 20), .unit = "tokens",
     .help = "of spans: the longest answer that is looked for; 0: as the model was trained, 30 of "
             "an imported one",
     .at = BP_AT(bp_score_rule_keys, answer_tokens)},
    {.key = NULL}};

const bp_option bp_score_options[] = {
    {BP_STRING_KEY("score.model", NULL),
     .help = "CHECKPOINT (a step, imported or run folder, RUN/checkpoints/best), or an ensemble",
     .required = true, .at = BP_AT(bp_score_keys, model)},
    {BP_STRING_KEY("score.corpus", NULL),
     .help = "corpora to score: a file, a list with commas, or a glob", .required = BP_REQUIRED_ONE,
     .at = BP_AT(bp_score_keys, corpus)},
    {BP_STRING_KEY("score.questions", NULL),
     .help = "JSONL in place of a corpus: \"context\" with \"choices\" or a \"target\", or "
             "\"contexts\" with a \"target\", and \"answer\"; encoded as lm-evaluation-harness "
             "encodes them",
     .required = BP_REQUIRED_ONE, .at = BP_AT(bp_score_keys, questions)},
    {BP_STRING_KEY("score.candidates", NULL),
     .help = "JSONL: \"choices\" of each document, texts, and perhaps \"answer\", the right one's "
             "number",
     .at = BP_AT(bp_score_keys, candidates)},
    {BP_CHOICE_KEY("score.questions_form", "bagpipe", "bagpipe|lm-eval"),
     .help =
         "lm-eval: also results.json and samples_TASK.jsonl, as lm-evaluation-harness names them",
     .at = BP_AT(bp_score_keys, questions_form), .may_change = true},
    {BP_CHOICE_KEY("score.vectors", "none", "none|mean|first|last"),
     .help = "write score/vectors.h5 in place of scores: a vector a document, the last layer's "
             "states of its tokens as their mean, or the first or last one's; of a sentence "
             "encoder what its folder said, if not given",
     .at = BP_AT(bp_score_keys, vectors)},
    {BP_BOOL_KEY("score.vectors_norm", "no"),
     .help = "make each vector one of length 1; of a sentence encoder what its folder said, if not "
             "given",
     .at = BP_AT(bp_score_keys, vectors_norm)},
    {BP_CHOICE_KEY("score.select", "all", "all|out_of_bag"),
     .help = "out_of_bag: only documents that the bag of run.seed and run.member lacks",
     .at = BP_AT(bp_score_keys, select)},
    {BP_STRING_KEY("score.cluster", NULL),
     .help = "a label of the corpora: documents that share its value (passages of a book, answers "
             "of an author) depend on each other, and intervals are over these clusters",
     .at = BP_AT(bp_score_keys, cluster)},
    {BP_INT_KEY("run.member", "0", 0, 1e6),
     .help = "which bag is drawn (with run.seed); keys nothing else",
     .at = BP_AT(bp_score_keys, member)},
    {BP_STRING_KEY("corpus.cluster", NULL),
     .help = "with score.select=out_of_bag: the label by which the bag was drawn",
     .at = BP_AT(bp_score_keys, bag_cluster)},
    {BP_BOOL_KEY("score.tokens", "no"),
     .help = "also write score/tokens.h5 with the log-probability of every token",
     .at = BP_AT(bp_score_keys, tokens)},
    {BP_BOOL_KEY("score.boundaries", "no"),
     .help = "of one causal model, with score.tokens: score/tokens.h5 also has the probability "
             "that a word begins at each place, which bagpipe-data surprisal --boundaries reads",
     .at = BP_AT(bp_score_keys, boundaries)},
    {BP_BOOL_KEY("score.entropy", "no"),
     .help = "of one network, with score.tokens: score/tokens.h5 also has the entropy of the next "
             "token at each place, which bagpipe-data surprisal prints",
     .at = BP_AT(bp_score_keys, entropy)},
    {BP_BOOL_KEY("score.states", "no"),
     .help =
         "also write score/states.h5: of elmo each layer's states of every token, of a Transformer "
         "other than ELECTRA what each token is predicted from, which score.neighbours reads",
     .at = BP_AT(bp_score_keys, states)},
    {BP_STRING_KEY("score.mix", NULL),
     .help = "with score.states: a number a layer (0,0,0), whose softmax weighs the layers of /mix",
     .at = BP_AT(bp_score_keys, mix)},
    {BP_REAL_KEY("score.mix_scale", "1", -1e9, 1e9), .help = "by which /mix is multiplied",
     .at = BP_AT(bp_score_keys, mix_scale)},
    {BP_STRING_KEY("score.neighbours", NULL),
     .help = "a datastore, score/states.h5 of the same model: its nearest entries are mixed in",
     .at = BP_AT(bp_score_keys, neighbours)},
    {BP_INT_KEY("neighbours.k", "1024", 1, 1e6),
     .help = "entries of the datastore that each token looks at",
     .at = BP_AT(bp_score_keys, nearest)},
    {BP_REAL_KEY("neighbours.temperature", "1", 1e-6, 1e9),
     .help = "by which squared distances are divided", .at = BP_AT(bp_score_keys, temperature)},
    {BP_REAL_KEY("neighbours.weight", "0.25", 0, 1),
     .help = "of the neighbours' distribution in the mixture with the model's",
     .at = BP_AT(bp_score_keys, weight)},
    {BP_BYTES_KEY("neighbours.memory", "1GiB", 1, 1e15), .unit = "bytes",
     .help = "of a rank, for keys of the datastore; the rest is read for every batch",
     .at = BP_AT(bp_score_keys, neighbours_memory), .may_change = true},
    {.key = NULL}};

static bp_score_convention convention_of(const bp_config *config)
{
    const char *name = bp_score_rule_keys_of(config)->convention;

    for (int k = BP_SCORE_ROLLING; k < BP_SCORE_PAIRS; k++)
        if (strcmp(name, bp_score_convention_name((bp_score_convention)k)) == 0)
            return (bp_score_convention)k;
    return BP_SCORE_PAIRS;
}

/* The shortest context with which a convention scores anything. */
static int64_t shortest(bp_score_convention convention)
{
    static const int64_t contexts[] = {1, 2, 3, 3, 3, 1};

    return contexts[convention];
}

static void check_context(bp_config *config, int64_t context)
{
    bp_score_convention convention = convention_of(config);

    if (context < shortest(convention))
        bp_config_fault(config, "score.context_too_short",
                        "score.context = %" PRId64 " leaves nothing to score: at "
                        "score.convention=%s; use %" PRId64 " or more",
                        context, bp_score_convention_name(convention), shortest(convention));
}

static void check_stride(bp_config *config, int64_t context, int64_t stride)
{
    if (stride > context)
        bp_config_fault(config, "score.stride_too_long",
                        "score.stride = %" PRId64 " is more than score.context = %" PRId64
                        ": at score.stride; use %" PRId64 " or less",
                        stride, context, context);
    else if (convention_of(config) == BP_SCORE_HALF && stride != context)
        bp_config_fault(config, "score.stride_not_context",
                        "score.stride = %" PRId64 " is not score.context = %" PRId64
                        ": at score.convention=half, whose windows are disjoint; leave it out",
                        stride, context);
}

/* A document is one window: there is nothing to cut. */
static void check_unlimited(bp_config *config)
{
    const bp_score_rule_keys *keys = bp_score_rule_keys_of(config);

    if (convention_of(config) != BP_SCORE_ROLLING)
        bp_config_fault(config, "score.no_context",
                        "score.convention = %s cuts windows of a length, and score.context = 0 has "
                        "none: at score.convention; set score.context too, or use rolling",
                        keys->convention);
    else if (keys->stride > 0)
        bp_config_fault(config, "score.no_context",
                        "score.stride = %" PRId64 " is a step from window to window, and with "
                        "score.context = 0 a document has but one: at score.stride; set "
                        "score.context too, or leave it out",
                        keys->stride);
}

void bp_score_check(bp_config *config)
{
    const bp_score_rule_keys *keys = bp_score_rule_keys_of(config);

    if (!bp_config_is_set(config, "score.context"))
        return;
    if (keys->context == 0) {
        check_unlimited(config);
        return;
    }
    check_context(config, keys->context);
    if (keys->stride > 0)
        check_stride(config, keys->context, keys->stride);
}

static void resolve(bp_config *config, const char *key, int64_t value)
{
    if (bp_config_set_int(config, key, value) != BP_OK)
        bp_config_fault_err(config);
}

/* Windows of a length: that of score.context, else the model's. */
static void resolve_windows(bp_config *config, const bp_model_info *model, bp_score_rule *rule)
{
    const bp_score_rule_keys *keys = bp_score_rule_keys_of(config);

    if (rule->context > model->context)
        bp_config_fault(config, "score.context_too_long",
                        "score.context = %" PRId64 " is more than the model's %" PRId64
                        ": at score.context; use %" PRId64 " or less",
                        rule->context, model->context, model->context);
    check_context(config, rule->context);
    if (keys->stride == 0)
        resolve(config, "score.stride",
                bp_score_masks(rule->convention)                           ? rule->context - 2
                : rule->convention == BP_SCORE_STRIDE && rule->context > 1 ? rule->context / 2
                                                                           : rule->context);
    rule->stride = keys->stride;
    if (bp_score_masks(rule->convention) && rule->stride != rule->context - 2)
        bp_config_fault(
            config, "score.stride_not_context",
            "score.stride = %" PRId64 " is not score.context = %" PRId64
            " less the two tokens of a frame: at score.convention=%s, whose windows are "
            "disjoint; leave it out",
            rule->stride, rule->context, keys->convention);
    check_stride(config, rule->context, rule->stride);
}

/* A masked model's convention is pll, unless the other masked one is requested. Conventions of
 * causal models have no meaning for it, and vice versa. */
static bp_err resolve_convention(bp_config *config, const bp_model_info *model)
{
    const bp_score_rule_keys *keys = bp_score_rule_keys_of(config);

    const char *own = model->masks ? "pll" : model->reads_source ? "pairs" : NULL;

    if (own && !bp_config_is_given(config, "score.convention") &&
        bp_config_set(config, "score.convention", own) != BP_OK)
        bp_config_fault_err(config);
    if (model->reads_source && !bp_config_is_given(config, "score.end") &&
        bp_config_set(config, "score.end", "yes") != BP_OK)
        bp_config_fault_err(config);
    if (model->masks != bp_score_masks(convention_of(config)) ||
        model->reads_source != (convention_of(config) == BP_SCORE_PAIRS))
        return BP_FAIL(BP_ERR_CONFIG, "score.other_convention",
                       "score.convention = %s is not of this model, which %s: at "
                       "score.convention; use %s",
                       keys->convention,
                       model->masks          ? "finds masked tokens"
                       : model->reads_source ? "writes a target given its source"
                                             : "continues texts",
                       model->masks          ? "pll or pll_word"
                       : model->reads_source ? "pairs"
                                             : "rolling, stride or half");
    return BP_OK;
}

bp_err scorer_resolve_specials(const bp_corpus *corpus, bp_score_rule *rule)
{
    const int64_t *roles = bp_corpus_roles(corpus);
    static const bp_role needed[] = {BP_ROLE_CLS, BP_ROLE_SEP, BP_ROLE_MASK};

    rule->cls = roles[BP_ROLE_CLS];
    rule->sep = roles[BP_ROLE_SEP];
    rule->mask = roles[BP_ROLE_MASK];
    for (int k = 0; bp_score_masks(rule->convention) && k < 3; k++)
        if (roles[needed[k]] < 0)
            return BP_FAIL(BP_ERR_CONFIG, "corpus.no_special_token",
                           "the corpus's tokenizer has no token for '%s', which a masked model "
                           "needs: at %s; make the corpus with the model's tokenizer",
                           bp_role_name(needed[k]),
                           bp_corpus_file_path(bp_corpus_file_at(corpus, 0)));
    return BP_OK;
}

bp_err scorer_check_task(const bp_config *config, const bp_model_info *model)
{
    const bp_score_keys *keys = bp_score_keys_of(config);
    const bp_score_rule_keys *rule = bp_score_rule_keys_of(config);
    const char *of_spans = rule->span_stride > 0     ? "task.stride"
                           : rule->answer_tokens > 0 ? "task.answer_tokens"
                                                     : NULL;
    const char *key = keys->candidates   ? "score.candidates"
                      : keys->tokens     ? "score.tokens"
                      : keys->boundaries ? "score.boundaries"
                      : keys->entropy    ? "score.entropy"
                      : keys->states     ? "score.states"
                      : keys->neighbours ? "score.neighbours"
                                         : NULL;

    if (of_spans && !bp_task_kind_of(&model->task)->over_positions)
        return BP_FAIL(BP_ERR_CONFIG, "task.unused_key",
                       "%s is of models that find spans, which score.model does not: at %s; leave "
                       "it out",
                       of_spans, of_spans);
    if (!key || !bp_task_has_head(&model->task))
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "task.unused_key",
                   "%s is of language models, and score.model has the head of a task, %s: at %s; "
                   "leave it out",
                   key, bp_task_name(model->task.kind), key);
}

bp_err bp_score_resolve(bp_config *config, const bp_model_info *model, bp_score_rule *rule)
{
    bool unlimited = model->context == BP_MODEL_UNLIMITED;
    bool given = bp_config_is_set(config, "score.context");
    int64_t context = bp_score_rule_keys_of(config)->context;
    bp_err err = resolve_convention(config, model);

    if (err != BP_OK)
        return err;
    *rule = (bp_score_rule){.convention = convention_of(config),
                            .eod = -1,
                            .lead = -1,
                            .start = model->start_token,
                            .cut = bp_score_rule_keys_of(config)->cut};
    if (!given)
        context = unlimited ? 0 : model->context;
    if (!given)
        resolve(config, "score.context", context);
    rule->context = context == 0 ? BP_MODEL_UNLIMITED : context;
    rule->stride = BP_MODEL_UNLIMITED;
    if (context == 0 && unlimited) {
        check_unlimited(config);
        resolve(config, "score.stride", 0);
    } else if (context == 0) {
        bp_config_fault(config, "score.context_too_long",
                        "score.context = 0 sets no limit, but the model's is %" PRId64
                        ": at score.context; use %" PRId64 " or less",
                        model->context, model->context);
    } else {
        resolve_windows(config, model, rule);
    }
    if (unlimited && rule->context > BP_SCORE_PIECE_INPUTS)
        rule->piece = BP_SCORE_PIECE_INPUTS;
    scorer_states_check(config, bp_score_keys_of(config), model);
    return bp_config_faults(config);
}

int64_t scorer_find_lead(const char *prefix, int64_t eod, const bp_model_info *model,
                         int64_t corpus_bos)
{
    int64_t bos = bp_model_bos(model);

    if (strcmp(prefix, "none") == 0)
        return -1;
    if (strcmp(prefix, "eod") == 0)
        return eod;
    if (strcmp(prefix, "bos") == 0)
        return bos >= 0 ? bos : corpus_bos;
    return bos >= 0 ? bos : eod;
}

void bp_score_resolve_ends(const bp_config *config, int64_t eod, int64_t corpus_bos,
                           const bp_model_info *model, bp_score_rule *rule)
{
    const bp_score_rule_keys *keys = bp_score_rule_keys_of(config);
    bool causal = !bp_score_masks(rule->convention) && rule->convention != BP_SCORE_PAIRS;

    rule->eod = eod;
    rule->end = eod >= 0 && keys->end && !bp_score_masks(rule->convention);
    rule->lead = causal ? scorer_find_lead(keys->prefix, eod, model, corpus_bos) : -1;
    rule->every = rule->lead >= 0 && keys->prefix_every;
    rule->prefix = (rule->lead >= 0 && rule->convention == BP_SCORE_ROLLING) ||
                   rule->convention == BP_SCORE_PAIRS;
}
