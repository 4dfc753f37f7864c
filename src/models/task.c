/* Heads of tasks, behind the backbone of any family. */
#include "models/task.h"
#include "models/variants.h"

#include "nn/layers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define INIT_STD 0.02F

static bp_backbone backbone_of(const bp_model_shape *shape)
{
    return shape->family->backbone(shape);
}

const bp_option bp_task_options[] = {
    {"task.kind", BP_OPTION_CHOICE, NULL, 0, 0, BP_TASK_KINDS, NULL,
     "what the model learns to predict: a class or a number of each text, tags of its words, where "
     "in it an answer stands, or a text that is written for another one",
     BP_REQUIRED_ASKED, .at = BP_AT(bp_task_keys, kind)},
    {"task.label", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL,
     "the corpora's label that is learnt; the only one if not given", false,
     .at = BP_AT(bp_task_keys, label)},
    {"task.pool", BP_OPTION_CHOICE, "auto", 0, 0, "auto|first|mean|last", NULL,
     "of which tokens' states the head reads a text: auto is first, through a pooler, of "
     "bert, roberta and electra, last of others, of bart and t5 through a pooler too",
     false, .at = BP_AT(bp_task_keys, pool)},
    {"task.frozen_layers", BP_OPTION_INT, "0", 0, 10000, NULL, "layers",
     "so many of the first layers, and the embeddings below them, keep their values", false,
     .at = BP_AT(bp_task_keys, frozen_layers)},
    {"task.separator", BP_OPTION_STRING, "=>", 0, 0, NULL, NULL,
     "of text and causal models: what stands between a source and its target", false,
     .at = BP_AT(bp_task_keys, separator)},
    {"task.lm_weight", BP_OPTION_REAL, "0", 0, 1000, NULL, NULL,
     "gpt: of the language model's loss on the same texts, which is added to the task's; 0: none",
     false, .at = BP_AT(bp_task_keys, lm_weight)},
    {"task.stride", BP_OPTION_INT, "128", 1, 1 << 20, NULL, "tokens",
     "of spans: so much further on in a long context the next window begins", false,
     .at = BP_AT(bp_task_keys, stride)},
    {"task.answer_tokens", BP_OPTION_INT, "30", 1, 1 << 20, NULL, "tokens",
     "of spans: the longest answer that scoring looks for; a checkpoint keeps it", false,
     .at = BP_AT(bp_task_keys, answer_tokens)},
    {"dirichlet.outside", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL,
     "the class of corpus.train's texts outside the domain: outcomes are a Dirichlet, which is to "
     "be flat there (a prior network)",
     false, .at = BP_AT(bp_task_keys, outside)},
    {"dirichlet.precision", BP_OPTION_REAL, "100", 1e-3, 1e6, NULL, NULL,
     "that it is to have of texts of the other classes", false,
     .at = BP_AT(bp_task_keys, precision)},
    {"dirichlet.smoothing", BP_OPTION_REAL, "0.01", 1e-9, 0.5, NULL, NULL,
     "the mean probability that each class is to have that is not the text's", false,
     .at = BP_AT(bp_task_keys, smoothing)},
    {"sngp.features", BP_OPTION_INT, "0", 0, BP_TASK_FEATURES_MAX, NULL, NULL,
     "random features of a Gaussian process that predicts the classes (SNGP); 0: a linear map",
     false, .at = BP_AT(bp_task_keys, features)},
    {"sngp.length_scale", BP_OPTION_REAL, "0", 0, 1e6, NULL, NULL,
     "of its kernel, in the distance of two texts' states; 0: the square root of model.width",
     false, .at = BP_AT(bp_task_keys, length_scale)},
    {"sngp.prior", BP_OPTION_REAL, "1", 1e-6, 1e6, NULL, NULL,
     "the precision of its weights' prior", false, .at = BP_AT(bp_task_keys, prior)},
    {"sngp.bound", BP_OPTION_REAL, "0.95", 0, 1e6, NULL, NULL,
     "the largest spectral norm that the hidden weights keep; 0: any", false,
     .at = BP_AT(bp_task_keys, bound)},
    {"sngp.bounded", BP_OPTION_CHOICE, "all", 0, 0, "all|pooler", NULL,
     "which weights that are: the matrices of all layers that train and the pooler's, or the "
     "pooler's alone",
     false, .at = BP_AT(bp_task_keys, bounded)},
    {NULL, BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, NULL, false},
};

static void see_kind(void *context, const bp_option *option, const char *value)
{
    bool *asked = context;

    *asked = *asked || (value && strcmp(option->key, "task.kind") == 0);
}

bool bp_task_is_asked(const bp_config *config)
{
    bool asked = false;

    bp_config_each(config, see_kind, &asked);
    return asked;
}

bool bp_task_keeps_words(const bp_model_shape *shape)
{
    return shape->task.lm_weight > 0;
}

/* ---- the head: what it reads, and outcomes ---- */

static bool has_pooler(const bp_model_shape *shape)
{
    return shape->task.pool == BP_POOL_FIRST
               ? backbone_of(shape).pooler
               : shape->task.pool == BP_POOL_LAST && shape->task.dense;
}

/* Where it keeps the words all is one block, that of the last stage, which shares their table. */
int bp_task_blocks(const bp_model_shape *shape)
{
    return bp_task_keeps_words(shape) ? 1 : shape->task.features > 0 ? 3 : 2;
}

int64_t bp_task_parameters(const bp_model_shape *shape)
{
    int64_t C = shape->width, D = shape->task.features, K = shape->task.outcomes,
            pooler = has_pooler(shape) ? C * C + C : 0;

    return pooler + (D > 0 ? D * (C + 1) + K * D * (D + 1) + K * C : K * (C + 1));
}

double bp_task_flops(const bp_model_shape *shape)
{
    double matrices = (double)(shape->task.outcomes * shape->width), C = (double)shape->width;
    bool a_place = shape->task.pool == BP_POOL_NONE;
    double D = (double)shape->task.features;

    if (D > 0) /* of the projection, which does not train, two of three products */
        matrices = D * (double)shape->task.outcomes + D * C * 2 / 3;

    if (has_pooler(shape))
        matrices += C * C;
    return 6 * (matrices / (a_place ? 1 : (double)shape->context) +
                (bp_task_keeps_words(shape) ? (double)shape->vocab_size * C : 0));
}

static bp_block *new_pooling(bp_network *network, const bp_model_shape *shape)
{
    bp_backbone backbone = backbone_of(shape);
    bp_pooling_shape pooling = {.C = shape->width,
                                .norm = bp_task_keeps_words(shape) ? NULL : backbone.norm,
                                .rms = backbone.rms,
                                .epsilon = backbone.epsilon,
                                .pool = (bp_pool)shape->task.pool,
                                .pooler = has_pooler(shape),
                                .gelu = backbone.gelu,
                                .mask = (int64_t)1 << 40};
    bp_block *block;

    bp_pooling_new(&block, &network->nn, &pooling, bp_network_add_group(network, true));
    return block;
}

static bp_block *new_features(bp_network *network, const bp_model_shape *shape)
{
    bp_features_shape features = {shape->width, shape->task.features, shape->task.outcomes,
                                  shape->task.length_scale};
    bp_group *whole = bp_network_add_group(network, true),
             *frozen = bp_network_add_group(network, true);
    bp_block *block;

    frozen->frozen = true;
    bp_random_features_new(&block, &network->nn, &features, whole, frozen);
    return block;
}

/* Behind features the rows are logits already. */
static bp_block *new_logits(bp_network *network, const bp_model_shape *shape)
{
    bp_group *split = bp_network_add_group(network, false);
    int64_t V = shape->task.outcomes, first, count;
    bp_head_shape head = {.sparse = true};
    bp_param *table;
    bp_block *block;

    split->frozen = true;
    bp_vocab_share(&network->nn, V, &first, &count);
    table = bp_group_add_matrix_part(split, "sngp.logits", V, shape->width, 0, 0, first, count);
    table->init = BP_INIT_IDENTITY;
    bp_lm_head_new(&block, &network->nn, &head, table, NULL);
    return block;
}

static bp_block *new_outcomes(bp_network *network, const bp_model_shape *shape)
{
    bp_group *split = bp_network_add_group(network, false);
    int64_t V = shape->task.outcomes, first, count;
    bp_head_shape head = {.sparse = true};
    bp_param *table;
    bp_block *block;

    bp_vocab_share(&network->nn, V, &first, &count);
    table =
        bp_group_add_matrix_part(split, "task.weight", V, shape->width, INIT_STD, 0, first, count);
    head.bias = bp_group_add_vector_part(split, "task.bias", V, first, count);
    if (shape->task.precision > 0)
        head.dirichlet = (bp_dirichlet_shape){shape->task.precision, shape->task.smoothing, V};
    bp_lm_head_new(&block, &network->nn, &head, table, NULL);
    return block;
}

static bp_block *new_text_head(bp_network *network, const bp_model_shape *shape)
{
    bp_text_head_shape head = {.C = shape->width, .finds_spans = shape->task.kind == BP_TASK_SPANS};
    bp_block *block;

    bp_text_head_new(&block, &network->nn, &head, bp_network_add_group(network, true));
    return block;
}

static bp_block *new_norm(bp_network *network, const bp_model_shape *shape)
{
    bp_backbone backbone = backbone_of(shape);
    bp_group *whole = bp_network_add_group(network, true);
    char name[BP_PARAM_NAME];
    bp_row_shape row = {.name = backbone.norm,
                        .I = shape->width,
                        .O = shape->width,
                        .epsilon = backbone.epsilon,
                        .mask = BP_ROW_KEEPS_ALL};
    bp_block *block;

    (void)snprintf(name, sizeof name, "%s.gain", backbone.norm);
    row.gain = bp_group_add_vector(whole, name, shape->width, BP_INIT_ONE);
    (void)snprintf(name, sizeof name, "%s.bias", backbone.norm);
    row.shift = bp_group_add_vector(whole, name, shape->width, BP_INIT_ZERO);
    bp_row_layer_new(&block, &network->nn, &row, NULL);
    return block;
}

static bp_block *new_words(bp_network *network, bp_param *shared)
{
    bp_head_shape head = {.term = BP_TASK_WORDS, .sparse = true, .passes_on = true};
    bp_block *block;

    BP_ASSERT(shared);
    bp_lm_head_new(&block, &network->nn, &head, shared, NULL);
    return block;
}

static bp_block *new_head(bp_network *network, const bp_model_shape *shape)
{
    return shape->task.kind == BP_TASK_CLASSES || shape->task.kind == BP_TASK_TAGS
               ? new_outcomes(network, shape)
               : new_text_head(network, shape);
}

void bp_task_add_block(bp_network *network, const bp_model_shape *shape, int number,
                       bp_param *shared)
{
    bp_block *block;

    if (bp_task_keeps_words(shape)) {
        bp_block *parts[4];

        parts[0] = new_norm(network, shape);
        parts[1] = new_words(network, shared);
        parts[2] = new_pooling(network, shape);
        parts[3] = new_head(network, shape);
        bp_series_new(&block, &network->nn, parts, 4);
    } else {
        block = number == 0                 ? new_pooling(network, shape)
                : shape->task.features == 0 ? new_head(network, shape)
                : number == 1               ? new_features(network, shape)
                                            : new_logits(network, shape);
    }
    bp_network_add_block(network, block);
}

/* ---- documents ---- */

bp_err bp_task_frame_of(bp_task_frame *out, const bp_model_shape *shape, const int64_t *roles,
                        const char *where)
{
    bool framed = backbone_of(shape).pooler;
    bp_role lacks = framed && roles[BP_ROLE_CLS] < 0 ? BP_ROLE_CLS : BP_ROLE_SEP;

    out->begin = framed ? roles[BP_ROLE_CLS] : -1;
    out->middle = out->end = roles[framed ? BP_ROLE_SEP : BP_ROLE_END];
    out->pad = roles[BP_ROLE_PAD] >= 0 ? roles[BP_ROLE_PAD] : 0;
    if (out->end >= 0 && (out->begin >= 0 || !framed))
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "corpus.no_special_token",
                   "the corpus's tokenizer has no token for '%s', which a task's examples need: at "
                   "%s; make the corpus with a tokenizer that has one",
                   bp_role_name(framed ? lacks : BP_ROLE_END), where);
}

bp_task_pair bp_task_texts(const bp_document *document, bool pairs)
{
    int64_t first = pairs && document->segments == 2 ? document->starts[1] : document->count;

    return (bp_task_pair){{document->tokens, document->tokens + first},
                          {first, document->count - first}};
}

bp_err bp_task_check_document(const bp_document *document, const char *where)
{
    return document->count > 0 ? BP_OK
                               : BP_FAIL(BP_ERR_FORMAT, "task.empty_document",
                                         "document %" PRId64 " has no token: at %s; leave it out",
                                         document->number, where);
}

bp_task_pair bp_task_window(const bp_document *document, const bp_window_rule *windows)
{
    int64_t first = document->starts[1];
    bp_text_window at = bp_window_at(windows, first, document->count - first, document->window);

    return (bp_task_pair){{document->tokens, document->tokens + first + at.first},
                          {at.question, at.count}};
}

bp_window_rule bp_task_windows(const bp_task_frame *frame, int64_t T, int64_t stride)
{
    return (bp_window_rule){T - (frame->begin >= 0) - 2, stride};
}

int64_t bp_task_places(const bp_task_frame *frame, const bp_task_pair *pair)
{
    return pair->tokens[0] + pair->tokens[1] + (frame->begin >= 0) + 1 + (pair->tokens[1] > 0);
}

int64_t bp_task_fill(int32_t *inputs, int32_t *segments, int64_t T, const bp_task_frame *frame,
                     const bp_task_pair *pair, int64_t *cut)
{
    bool two = pair->tokens[1] > 0;
    int64_t n[2] = {pair->tokens[0], pair->tokens[1]}, at = 0, first,
            places = bp_task_places(frame, pair);

    *cut = places > T ? places - T : 0;
    for (int64_t k = 0; k < *cut; k++)
        n[n[0] <= n[1]]--;
    if (frame->begin >= 0)
        inputs[at++] = (int32_t)frame->begin;
    memcpy(inputs + at, pair->text[0], (size_t)n[0] * sizeof *inputs);
    at += n[0];
    if (two)
        inputs[at++] = (int32_t)frame->middle;
    first = at;
    if (two)
        memcpy(inputs + at, pair->text[1], (size_t)n[1] * sizeof *inputs);
    at += n[1];
    inputs[at++] = (int32_t)frame->end;
    for (int64_t t = at; t < T; t++)
        inputs[t] = (int32_t)frame->pad;
    for (int64_t t = 0; segments && t < T; t++)
        segments[t] = two && t >= first && t < at;
    return at;
}

void bp_task_mirror(bp_example *example, int64_t T, int32_t start)
{
    int32_t *target = example->inputs[0];

    memcpy(example->inputs[1], target, (size_t)T * sizeof *target);
    *example->length[1] = *example->length[0];
    memmove(target + 1, target, (size_t)(T - 1) * sizeof *target);
    target[0] = start;
}

void bp_task_fill_words(int32_t *targets, const int32_t *inputs, int64_t length, int64_t T)
{
    for (int64_t t = 0; t < T; t++)
        targets[t] = t < length - 1 ? inputs[t + 1] : -1;
}

/* ---- examples: documents, padded ---- */

static void fill_example(const bp_example_maker *self, const bp_document *document, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    bp_task_pair pair = bp_task_texts(document, rules->pairs);
    int64_t cut;

    *out->length[0] = (int32_t)bp_task_fill(out->inputs[0], out->segments[0],
                                            self->form.stream[0].T, &rules->frame, &pair, &cut);
    if (self->form.stream[1].T > 0)
        bp_task_mirror(out, self->form.stream[0].T, (int32_t)rules->start);
    if (self->form.targets[BP_TASK_WORDS] > 0)
        bp_task_fill_words(out->targets[BP_TASK_WORDS], out->inputs[0], *out->length[0],
                           self->form.stream[0].T);
}

static void make_class(const bp_example_maker *self, const bp_document *document, int64_t step,
                       int64_t slot, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    bool left_out = rules->outside > 0 && document->label == rules->outside && step == 0;

    (void)slot;
    fill_example(self, document, out);
    out->targets[0][0] = left_out ? -1 : document->label; /* validation knows classes alone */
}

static void make_value(const bp_example_maker *self, const bp_document *document, int64_t step,
                       int64_t slot, bp_example *out)
{
    (void)step, (void)slot;
    fill_example(self, document, out);
    out->targets[0][0] = bp_target_of_value(document->value);
}

/* A tag at the first token of each word. */
static void make_tags(const bp_example_maker *self, const bp_document *document, int64_t step,
                      int64_t slot, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    int64_t first = rules->frame.begin >= 0, T = self->form.stream[0].T, end;

    (void)step, (void)slot;
    fill_example(self, document, out);
    end = *out->length[0] - 1;
    for (int64_t t = 0; t < T; t++)
        out->targets[0][t] = t >= first && t < end ? document->tags[t - first] : -1;
}

/* An answer that is not wholly in the window is none there. */
static void make_spans(const bp_example_maker *self, const bp_document *document, int64_t step,
                       int64_t slot, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    bp_task_pair pair = bp_task_window(document, &rules->windows);
    int64_t T = self->form.stream[0].T, cut, first = pair.text[1] - document->tokens,
            place = (rules->frame.begin >= 0) + pair.tokens[0] + 1 - first, none;

    (void)step, (void)slot;
    *out->length[0] =
        (int32_t)bp_task_fill(out->inputs[0], out->segments[0], T, &rules->frame, &pair, &cut);
    if (self->form.stream[1].T > 0)
        bp_task_mirror(out, T, (int32_t)rules->start);
    none = bp_task_no_answer(&rules->frame, *out->length[0]);
    for (int end = 0; end < 2; end++)
        out->targets[end][0] = (int32_t)none;
    if (document->answer[1] > 0 && document->answer[0] >= first &&
        document->answer[1] <= first + pair.tokens[1])
        for (int end = 0; end < 2; end++)
            out->targets[end][0] = (int32_t)(place + document->answer[end] - end);
}

static bp_example_maker task_maker(const bp_model_shape *shape, int64_t T,
                                   const bp_example_rules *rules)
{
    static void (*const MAKE[])(const bp_example_maker *, const bp_document *, int64_t, int64_t,
                                bp_example *) = {[BP_TASK_CLASSES] = make_class,
                                                 [BP_TASK_REGRESSION] = make_value,
                                                 [BP_TASK_TAGS] = make_tags,
                                                 [BP_TASK_SPANS] = make_spans};
    bool spans = shape->task.kind == BP_TASK_SPANS;
    bool has_segments = shape->family->backbone(shape).segments > 1;
    bool has_source = shape->family->start_token != NULL;

    return (bp_example_maker){
        .form = {.stream = {{.T = T, .has_lengths = true, .has_segments = has_segments},
                            {.T = has_source ? T : 0, .has_lengths = has_source}},
                 .targets = {shape->task.kind == BP_TASK_TAGS ? T : 1, spans ? 1
                                                                       : bp_task_keeps_words(shape)
                                                                           ? T
                                                                           : 0}},
        .feed = BP_FEED_DOCUMENTS,
        .rules = rules,
        .make_document = MAKE[shape->task.kind]};
}

static const bp_objective OBJECTIVES[] = {
    [BP_TASK_CLASSES] = {.name = "classes", .terms = 1, .weight = {1}, .maker = task_maker},
    [BP_TASK_REGRESSION] = {.name = "regression", .terms = 1, .weight = {1}, .maker = task_maker},
    [BP_TASK_TAGS] = {.name = "tags", .terms = 1, .weight = {1}, .maker = task_maker},
    [BP_TASK_SPANS] = {.name = "spans",
                       .terms = 2,
                       .weight = {0.5, 0.5},
                       .term = {"begin", "end"},
                       .maker = task_maker}};

/* The same with the words that follow, whose weight the shape has. */
static const bp_objective WITH_WORDS[] = {
    [BP_TASK_CLASSES] = {.name = "classes",
                         .terms = 2,
                         .weight = {1},
                         .term = {"classes", "words"},
                         .maker = task_maker},
    [BP_TASK_REGRESSION] = {.name = "regression",
                            .terms = 2,
                            .weight = {1},
                            .term = {"regression", "words"},
                            .maker = task_maker},
    [BP_TASK_TAGS] = {
        .name = "tags", .terms = 2, .weight = {1}, .term = {"tags", "words"}, .maker = task_maker}};

static const bp_objective *objective_of(const bp_model_shape *shape)
{
    return bp_task_keeps_words(shape) ? &WITH_WORDS[shape->task.kind]
                                      : &OBJECTIVES[shape->task.kind];
}

double bp_model_term_weight(const bp_model_shape *shape, int term)
{
    return term == BP_TASK_WORDS && bp_task_keeps_words(shape)
               ? shape->task.lm_weight
               : bp_model_objective(shape)->weight[term];
}

/* ---- a network with either head ---- */

static bool is_language_model(const bp_model_shape *shape)
{
    return shape->task.kind == BP_TASK_NONE;
}

const bp_objective *bp_model_objective(const bp_model_shape *shape)
{
    if (!is_language_model(shape))
        return objective_of(shape);
    return shape->objective ? shape->objective : shape->family->objective;
}

int64_t bp_model_outcomes(const bp_model_shape *shape)
{
    return is_language_model(shape) ? shape->vocab_size : shape->task.outcomes;
}

bool bp_model_is_softmax(const bp_model_shape *shape)
{
    return shape->task.kind != BP_TASK_REGRESSION && shape->task.kind != BP_TASK_SPANS;
}

static bool is_of_task(const bp_model_shape *shape, int block)
{
    return !is_language_model(shape) && block >= shape->family->backbone(shape).blocks;
}

double bp_model_block_cost(const bp_model_shape *shape, int block)
{
    return is_of_task(shape, block)
               ? bp_task_flops(shape) / 3 / bp_task_blocks(shape)
               : shape->family->cost(shape, block) +
                     (block == shape->family->blocks(shape) - 1 ? bp_variants_flops(shape) : 0);
}

bp_activations bp_model_behind(const bp_model_shape *shape, int block)
{
    if (is_of_task(shape, block)) /* it works on what the backbone leaves */
        block = shape->family->backbone(shape).blocks - 1;
    return shape->family->behind(shape, block);
}

int64_t bp_model_parameters(const bp_model_shape *shape)
{
    int64_t all = shape->family->facts(shape).parameters;

    return is_language_model(shape)
               ? all + bp_variants_parameters(shape)
               : all - shape->family->backbone(shape).head_parameters + bp_task_parameters(shape);
}

double bp_model_train_flops(const bp_model_shape *shape)
{
    double all = shape->family->facts(shape).train_flops;

    all += is_language_model(shape)
               ? 3 * bp_variants_flops(shape)
               : bp_task_flops(shape) - shape->family->backbone(shape).head_flops;
    /* of three products of a weight the one for its gradient is left out */
    return shape->adapter.kind == BP_ADAPTER_NONE ? all : all * 2 / 3;
}

int bp_model_blocks(const bp_model_shape *shape)
{
    if (!bp_model_shape_is_whole(shape) || !shape->family->blocks)
        return 0;
    return is_language_model(shape) ? shape->family->blocks(shape)
                                    : shape->family->backbone(shape).blocks + bp_task_blocks(shape);
}
