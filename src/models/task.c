/* Heads of tasks, behind the backbone of any family. */
#include "models/task.h"
#include "models/variants.h"

#include "nn/layers.h"

#include <inttypes.h>
#include <string.h>

#define INIT_STD 0.02F

static bp_backbone backbone_of(const bp_model_shape *shape)
{
    return shape->family->backbone(shape);
}

const bp_option bp_task_options[] = {
    {"task.kind", BP_OPTION_CHOICE, NULL, 0, 0, BP_TASK_KINDS, NULL,
     "what the model learns to tell: a class or a number of each text, tags of its words, or where "
     "in it an answer stands",
     BP_REQUIRED_ASKED, .at = BP_AT(bp_task_keys, kind)},
    {"task.label", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL,
     "the corpora's label that is learnt; the only one if not given", false,
     .at = BP_AT(bp_task_keys, label)},
    {"task.pool", BP_OPTION_CHOICE, "auto", 0, 0, "auto|first|mean|last", NULL,
     "of which tokens' states the head reads a text: auto is first, through a pooler, of "
     "bert, roberta and electra, last of others",
     false, .at = BP_AT(bp_task_keys, pool)},
    {"task.frozen_layers", BP_OPTION_INT, "0", 0, 10000, NULL, "layers",
     "so many of the first layers, and the embeddings below them, keep their values", false,
     .at = BP_AT(bp_task_keys, frozen_layers)},
    {"task.stride", BP_OPTION_INT, "128", 1, 1 << 20, NULL, "tokens",
     "of spans: so much further on in a long context the next window begins", false,
     .at = BP_AT(bp_task_keys, stride)},
    {"task.answer_tokens", BP_OPTION_INT, "30", 1, 1 << 20, NULL, "tokens",
     "of spans: the longest answer that scoring looks for; a checkpoint keeps it", false,
     .at = BP_AT(bp_task_keys, answer_tokens)},
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

/* ---- the head: what it reads, and outcomes ---- */

static bool has_pooler(const bp_model_shape *shape)
{
    return shape->task.pool == BP_POOL_FIRST && backbone_of(shape).pooler;
}

int bp_task_blocks(const bp_model_shape *shape)
{
    (void)shape;
    return 2;
}

int64_t bp_task_parameters(const bp_model_shape *shape)
{
    int64_t C = shape->width;

    return (has_pooler(shape) ? C * C + C : 0) + shape->task.outcomes * (C + 1);
}

double bp_task_flops(const bp_model_shape *shape)
{
    double matrices = (double)(shape->task.outcomes * shape->width), C = (double)shape->width;
    bool a_place = shape->task.pool == BP_POOL_NONE;

    if (has_pooler(shape))
        matrices += C * C;
    return 6 * matrices / (a_place ? 1 : (double)shape->context);
}

static bp_block *new_pooling(bp_network *network, const bp_model_shape *shape)
{
    bp_backbone backbone = backbone_of(shape);
    bp_pooling_shape pooling = {.C = shape->width,
                                .norm = backbone.norm,
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

static bp_block *new_outcomes(bp_network *network, const bp_model_shape *shape)
{
    bp_group *split = bp_network_add_group(network, false);
    bp_head_shape head = {.sparse = true};
    int64_t V = shape->task.outcomes, first, count;
    bp_param *table;
    bp_block *block;

    bp_vocab_share(&network->nn, V, &first, &count);
    table =
        bp_group_add_matrix_part(split, "task.weight", V, shape->width, INIT_STD, 0, first, count);
    head.bias = bp_group_add_vector_part(split, "task.bias", V, first, count);
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

void bp_task_add_block(bp_network *network, const bp_model_shape *shape, int number)
{
    bool outcomes = shape->task.kind == BP_TASK_CLASSES || shape->task.kind == BP_TASK_TAGS;

    bp_network_add_block(network, number == 0 ? new_pooling(network, shape)
                                  : outcomes  ? new_outcomes(network, shape)
                                              : new_text_head(network, shape));
}

/* ---- documents ---- */

bp_err bp_task_frame_of(bp_task_frame *out, const bp_model_shape *shape, const int64_t *roles)
{
    bool framed = backbone_of(shape).pooler;
    bp_role lacks = framed && roles[BP_ROLE_CLS] < 0 ? BP_ROLE_CLS : BP_ROLE_SEP;

    *out = framed ? (bp_task_frame){roles[BP_ROLE_CLS], roles[BP_ROLE_SEP], roles[BP_ROLE_SEP]}
                  : (bp_task_frame){-1, roles[BP_ROLE_END], roles[BP_ROLE_END]};
    if (out->end >= 0 && (out->begin >= 0 || !framed))
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "corpus.no_special_token",
                   "the corpus's tokenizer has no token for '%s', which a task's examples need: at "
                   "corpus.train; make the corpus with a tokenizer that has one",
                   bp_role_name(framed ? lacks : BP_ROLE_END));
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
        inputs[t] = 0;
    for (int64_t t = 0; segments && t < T; t++)
        segments[t] = two && t >= first && t < at;
    return at;
}

/* ---- examples: documents, padded ---- */

static void fill_example(const bp_example_maker *self, const bp_document *document, bp_example *out)
{
    const bp_example_rules *rules = self->rules;
    bp_task_pair pair = bp_task_texts(document, rules->pairs);
    int64_t cut;

    *out->length[0] = (int32_t)bp_task_fill(out->inputs[0], out->segments[0],
                                            self->form.stream[0].T, &rules->frame, &pair, &cut);
}

static void make_class(const bp_example_maker *self, const bp_document *document, int64_t step,
                       int64_t slot, bp_example *out)
{
    (void)step, (void)slot;
    fill_example(self, document, out);
    out->targets[0][0] = document->label;
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

    return (bp_example_maker){
        .form = {.stream = {{.T = T, .has_lengths = true, .has_segments = has_segments}},
                 .targets = {shape->task.kind == BP_TASK_TAGS ? T : 1, spans ? 1 : 0}},
        .feed = BP_FEED_DOCUMENTS,
        .rules = rules,
        .make_document = MAKE[shape->task.kind]};
}

static const bp_objective OBJECTIVES[] = {
    [BP_TASK_CLASSES] = {.name = "classes", .terms = 1, .weight = {1}, .maker = task_maker},
    [BP_TASK_REGRESSION] = {.name = "regression", .terms = 1, .weight = {1}, .maker = task_maker},
    [BP_TASK_TAGS] = {.name = "tags", .terms = 1, .weight = {1}, .maker = task_maker},
    [BP_TASK_SPANS] = {.name = "spans", .terms = 2, .weight = {0.5, 0.5}, .maker = task_maker}};

const bp_objective *bp_task_objective(int64_t kind)
{
    return &OBJECTIVES[kind];
}

/* ---- a network with either head ---- */

static bool is_language_model(const bp_model_shape *shape)
{
    return shape->task.kind == BP_TASK_NONE;
}

const bp_objective *bp_model_objective(const bp_model_shape *shape)
{
    return is_language_model(shape) ? shape->family->objective
                                    : bp_task_objective(shape->task.kind);
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
