/* The family of word vectors: its keys and sizes, and the training keys that it accepts. Called by
 * vectors.c and vectors_read.c. */
#include "models/word2vec/word2vec_priv.h"

#include "mesh/mesh.h"

#include <string.h>

#define CONTEXT     1000 /* MAX_SENTENCE_LENGTH of the original tool */
#define WINDOW      5
#define NEGATIVE    5
#define CODE_LENGTH 17 /* of an average word in running text: for FLOPs */

static const bp_model_size SIZES[] = {
    {.name = "width", .section = "model", .at = BP_SIZE_AT(width)},
    {.name = "context",
     .section = "model",
     .at = BP_SIZE_AT(context),
     .optional = true,
     .of_training = true},
    {.name = "mode",
     .at = BP_OWN_AT(w2v_sizes, mode),
     .type = BP_SIZE_CHOICE,
     .optional = true,
     .of_training = true,
     .words = "skipgram|cbow"},
    {.name = "output",
     .at = BP_OWN_AT(w2v_sizes, output),
     .type = BP_SIZE_CHOICE,
     .optional = true,
     .of_training = true,
     .words = "negative|hierarchical"},
    {.name = "window", .at = BP_OWN_AT(w2v_sizes, window), .optional = true, .of_training = true},
    {.name = "negative",
     .at = BP_OWN_AT(w2v_sizes, negative),
     .optional = true,
     .of_training = true},
    {0}};

static void fill_defaults(bp_model_shape *shape)
{
    shape->context = shape->context > 0 ? shape->context : CONTEXT;
    if (w2v_sizes_of(shape)->window == 0)
        w2v_sizes_in(shape)->window = WINDOW;
    if (w2v_sizes_of(shape)->negative == 0)
        w2v_sizes_in(shape)->negative = NEGATIVE;
}

/* Only plain gradient descent is supported. */
static void check_optimizer(bp_config *config)
{
    static const char *const ZERO[] = {"optimizer.momentum", "optimizer.weight_decay",
                                       "optimizer.clip"};

    if (bp_config_is_given(config, "optimizer.kind") &&
        strcmp(bp_config_string(config, "optimizer.kind"), "sgd") != 0)
        bp_config_fault(config, "word2vec.other_optimizer",
                        "optimizer.kind = %s, but word2vec is trained by plain sgd: at "
                        "optimizer.kind; leave it out",
                        bp_config_string(config, "optimizer.kind"));
    for (size_t k = 0; k < sizeof ZERO / sizeof ZERO[0]; k++)
        if (bp_config_is_given(config, ZERO[k]) && bp_config_real(config, ZERO[k]) != 0)
            bp_config_fault(config, "word2vec.other_optimizer",
                            "%s = %g, but word2vec is trained by plain sgd: at %s; leave it out",
                            ZERO[k], bp_config_real(config, ZERO[k]), ZERO[k]);
}

/* Keys of networks that a single-threaded learner does not use. */
static void check_unused(bp_config *config)
{
    static const char *const UNUSED[] = {"mesh.micro_batch", "mesh.schedule",     "mesh.chunks",
                                         "train.recompute",  "train.reduction",   "optimizer.beta1",
                                         "optimizer.beta2",  "optimizer.epsilon", "optimizer.rho",
                                         "optimizer.alpha"};

    for (size_t k = 0; k < sizeof UNUSED / sizeof UNUSED[0]; k++)
        if (bp_config_departs(config, UNUSED[k]))
            bp_config_fault(config, "word2vec.unused_key",
                            "word2vec makes no use of %s: at %s; leave it out", UNUSED[k],
                            UNUSED[k]);
    if (bp_config_is_set(config, "corpus.weights"))
        bp_config_fault(config, "word2vec.unused_key",
                        "corpus.weights takes windows of several corpora in turns, but word2vec "
                        "counts the words of each once: at corpus.weights; leave it out");
    if (strcmp(bp_config_string(config, "math.precision"), "bf16") == 0)
        bp_config_fault(config, "word2vec.unused_key",
                        "math.precision = bf16, but word2vec computes in float32: at "
                        "math.precision; leave it out");
    else if (bp_config_set(config, "math.precision", "f32") != BP_OK)
        bp_config_fault_err(config);
}

/* As in the original tool: rates 0.025, or 0.05 for cbow, that decay linearly to a ten-thousandth.
 */
static void resolve(const bp_model_shape *shape, bp_config *config)
{
    const char *const rows[][2] = {
        {"optimizer.kind", "sgd"},
        {"optimizer.lr", w2v_sizes_of(shape)->mode == W2V_CBOW ? "0.05" : "0.025"},
        {"optimizer.decay", "linear"},
        {"optimizer.min_lr", "1e-4"},
        {"optimizer.momentum", "0"},
        {"optimizer.weight_decay", "0"},
        {"optimizer.clip", "0"}};
    int64_t pipeline = bp_mesh_keys_of(config)->pipeline;
    double dropout = bp_model_keys_of(config)->dropout;

    if (pipeline > 1)
        bp_config_fault(config, "word2vec.split_mesh",
                        "mesh.pipeline = %lld, but a model of word2vec has no stages: at "
                        "mesh.pipeline; leave it at 1, data ranks share the columns out",
                        (long long)pipeline);
    if (dropout != 0)
        bp_config_fault(config, "word2vec.dropout",
                        "model.dropout = %g, but word2vec drops nothing: at model.dropout; leave "
                        "it out",
                        dropout);
    check_optimizer(config);
    check_unused(config);
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++)
        if (!bp_config_is_given(config, rows[k][0]) &&
            bp_config_set(config, rows[k][0], rows[k][1]) != BP_OK)
            bp_config_fault_err(config);
    if (!bp_config_is_set(config, "word2vec.sample") &&
        bp_config_set(config, "word2vec.sample", "1e-3") != BP_OK)
        bp_config_fault_err(config);
}

static void check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    (void)shape;
    if (tensor_ranks > 1)
        bp_config_fault(config, "word2vec.split_mesh",
                        "mesh.tensor = %d, but data ranks share the columns of word2vec out: at "
                        "mesh.tensor; leave it at 1",
                        tensor_ranks);
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    if (w2v_sizes_of(shape)->window <= W2V_WINDOW_MOST &&
        w2v_sizes_of(shape)->negative <= W2V_NEGATIVE_MOST)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "word2vec.bad_size",
                   "the window %lld or the %lld noise words are more than %d: at %s; the "
                   "checkpoint was not written by bagpipe",
                   (long long)w2v_sizes_of(shape)->window, (long long)w2v_sizes_of(shape)->negative,
                   W2V_WINDOW_MOST, where);
}

/* One dot product and two updates for each product; subsampling omits some of them. */
static bp_model_facts facts(const bp_model_shape *shape)
{
    double products = w2v_sizes_of(shape)->output == W2V_HIERARCHICAL
                          ? CODE_LENGTH
                          : 1 + (double)w2v_sizes_of(shape)->negative;
    double units =
        w2v_sizes_of(shape)->mode == W2V_CBOW ? 1 : 1 + (double)w2v_sizes_of(shape)->window;

    return (bp_model_facts){.parameters = 2 * shape->vocab_size * shape->width,
                            .train_flops = units * products * 6 * (double)shape->width};
}

/* ---- examples: the text as it is ---- */

static void make_example(const bp_example_maker *self, const int32_t *tokens, int64_t step,
                         int64_t slot, bp_example *out)
{
    (void)step, (void)slot;
    memcpy(out->inputs[0], tokens, (size_t)(self->window - 1) * sizeof *tokens);
}

static bp_example_maker maker(const bp_model_shape *shape, int64_t T, const bp_example_rules *rules)
{
    (void)shape, (void)rules;
    return (bp_example_maker){
        .form = {.stream = {{.T = T}}}, .window = T + 1, .make = make_example};
}

static const bp_objective OBJECTIVE = {
    .name = "word2vec", .terms = 1, .weight = {1}, .scores_all = true, .maker = maker};

static const char *no_distribution(const bp_model_shape *shape)
{
    (void)shape;
    return "word vectors give no probability of a text";
}

static const bp_text_form VECTORS = {
    .name = "word2vec", .is = w2v_vectors_is, .write = w2v_vectors_write, .read = w2v_vectors_read};

const bp_model_family bp_word2vec_family = {.name = "word2vec",
                                            .section = "word2vec",
                                            .sizes = SIZES,
                                            .keys = w2v_options,
                                            .fill_defaults = fill_defaults,
                                            .resolve = resolve,
                                            .check = check,
                                            .check_read = check_read,
                                            .facts = facts,
                                            .any_context = true,
                                            .objective = &OBJECTIVE,
                                            .learner = &w2v_learner_ops,
                                            .text_form = &VECTORS,
                                            .no_distribution = no_distribution};
