/* The keys of training, optimizer and mesh that the engine and its loop read. */
#include "train/engine/options.h"

#include "base/config/ignored.h"
#include "base/config/run_options.h"
#include "base/err.h"
#include "base/log.h"
#include "mesh/mesh.h"
#include "models/family.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const bp_option bp_train_options[] = {
    {BP_INT_KEY("train.steps", NULL, 1, BP_STEPS_MAX), .unit = "steps",
     .help = "optimizer steps of the whole run", .required = BP_REQUIRED_ONE | BP_REQUIRED_ASKED,
     .at = BP_AT(bp_train_keys, steps)},
    {BP_REAL_KEY("train.epochs", NULL, 0, BP_STEPS_MAX), .unit = "epochs",
     .help = "passes over corpus.train instead of train.steps, of a bag as many steps; 0.5 is half "
             "a pass",
     .required = BP_REQUIRED_ONE | BP_REQUIRED_ASKED, .at = BP_AT(bp_train_keys, epochs)},
    {BP_INT_KEY("train.batch", NULL, 1, 1 << 24), .unit = "sequences",
     .help = "a step's sequences over all ranks; a multiple of data ranks x mesh.micro_batch",
     .required = BP_REQUIRED_ASKED, .at = BP_AT(bp_train_keys, batch)},
    {BP_INT_KEY("train.log_every", "10", 1, 1e12), .unit = "steps",
     .help = "a line in metrics.jsonl (its mfu is of the speed of one large product, measured at "
             "the start) and in the log",
     .at = BP_AT(bp_train_keys, log_every)},
    {BP_INT_KEY("train.valid_every", "0", 0, 1e12), .unit = "steps",
     .help = "validation loss; 0: at the end, if corpus.valid is given",
     .at = BP_AT(bp_train_keys, valid_every)},
    {BP_INT_KEY("train.patience", "0", 0, 1e12), .unit = "validations",
     .help = "end the run after this many validations without a new best; 0: never",
     .at = BP_AT(bp_train_keys, patience)},
    {BP_INT_KEY("train.digest_every", "100", 0, 1e12), .unit = "steps",
     .help =
         "ranks that hold the same parameters compare them; before each checkpoint too; 0: never",
     .at = BP_AT(bp_train_keys, digest_every)},
    {BP_CHOICE_KEY("train.reduction", "tree", "tree|running"),
     .help = "sum of gradients: tree (same bits at 1, 2, 4... data ranks) or running (less memory)",
     .at = BP_AT(bp_train_keys, reduction)},
    {BP_REAL_KEY("train.label_smoothing", "0", 0, 0.999),
     .help = "this share of a target's weight is spread over all outcomes alike; training's loss "
             "counts it, validation's does not",
     .at = BP_AT(bp_train_keys, label_smoothing)},
    {BP_REAL_KEY("train.dropconnect", "0", 0, 0.95),
     .help = "Transformers: share of the weights of layers that each step drops",
     .at = BP_AT(bp_train_keys, dropconnect)},
    {BP_INT_KEY("train.softmax_samples", "0", 0, 1e9), .unit = "outcomes",
     .help = "training's softmax of a larger vocabulary is over the target and this many sampled "
             "outcomes; validation and scoring compute all; 0: training too",
     .at = BP_AT(bp_train_keys, softmax_samples)},
    {BP_BOOL_KEY("train.recompute", "no"),
     .help = "keep only each block's input and compute the rest again",
     .at = BP_AT(bp_train_keys, recompute)},
    {0},
};

const bp_option bp_optimizer_options[] = {
    {BP_CHOICE_KEY("optimizer.kind", "adamw", BP_OPTIMIZER_KINDS),
     .help = "the rule of updates: torch.optim's; lamb and adafactor as published; sgld: Langevin "
             "dynamics, vogn: mean-field variational inference, whose last checkpoint.keep "
             "checkpoints are samples of the posterior, listed by ensemble.json",
     .at = BP_AT(bp_optimizer_keys, kind)},
    {BP_REAL_KEY("optimizer.lr", "3e-4", 0, 1000), .help = "highest learning rate",
     .at = BP_AT(bp_optimizer_keys, lr)},
    {BP_INT_KEY("optimizer.warmup", "0", 0, 1e12), .unit = "steps",
     .help = "linear rise of the rate", .at = BP_AT(bp_optimizer_keys, warmup)},
    {BP_CHOICE_KEY("optimizer.decay", "cosine", BP_DECAY_CHOICES),
     .help = "the rate after warmup; inverse_sqrt: by the root of warmup over the step; if not "
             "given, of sgld constant",
     .at = BP_AT(bp_optimizer_keys, decay)},
    {BP_REAL_KEY("optimizer.min_lr", "0", 0, 1), .unit = "share of optimizer.lr",
     .help = "where the rate's decay ends", .at = BP_AT(bp_optimizer_keys, min_lr)},
    {BP_REAL_KEY("optimizer.beta1", "0.9", 0, 0.999999),
     .help = "adamw, lamb: decay of the first moment", .at = BP_AT(bp_optimizer_keys, beta1)},
    {BP_REAL_KEY("optimizer.beta2", "0.95", 0, 0.999999999),
     .help =
         "adamw, lamb: decay of the second moment; vogn: of the squares (0.999 there if not given)",
     .at = BP_AT(bp_optimizer_keys, beta2)},
    {BP_REAL_KEY("optimizer.epsilon", "1e-8", 0, 1),
     .help = "added to the root of the second moment, adadelta: under it, adafactor: to squares; "
             "if not given, of adagrad 1e-10, adadelta and lamb 1e-6, adafactor 1e-30; vogn: to "
             "the precision",
     .at = BP_AT(bp_optimizer_keys, epsilon)},
    {BP_REAL_KEY("optimizer.weight_decay", "0.1", 0, 100),
     .help =
         "matrices and embeddings only; adamw, lamb, adafactor: times the rate; others: added to "
         "the gradient; vogn: of all weights, the prior's precision over the number of targets",
     .at = BP_AT(bp_optimizer_keys, weight_decay)},
    {BP_REAL_KEY("optimizer.clip", "1.0", 0, 1e12),
     .help = "largest norm of the whole gradient; 0: no clipping, as of sgld and vogn if not given",
     .at = BP_AT(bp_optimizer_keys, clip)},
    {BP_REAL_KEY("optimizer.momentum", "0.9", 0, 0.999999),
     .help = "sgd, rmsprop (0 there if not given)", .at = BP_AT(bp_optimizer_keys, momentum)},
    {BP_REAL_KEY("optimizer.rho", "0.9", 0, 0.999999999),
     .help = "adadelta: what its means of squares keep", .at = BP_AT(bp_optimizer_keys, rho)},
    {BP_REAL_KEY("optimizer.alpha", "0.99", 0, 0.999999999),
     .help = "rmsprop: what its mean of squares keeps", .at = BP_AT(bp_optimizer_keys, alpha)},
    {BP_REAL_KEY("optimizer.temperature", "1", 0, 1e6),
     .help = "sgld, vogn: of the posterior; below 1 it is narrower, and 0 leaves the noise out",
     .at = BP_AT(bp_optimizer_keys, temperature)},
    {BP_REAL_KEY("optimizer.layer_decay", "1", 0.01, 1),
     .help = "the rate of a layer is this times that of the layer above it; that of the head is "
             "the whole one",
     .at = BP_AT(bp_optimizer_keys, layer_decay)},
    {0},
};

static bool is(const bp_config *config, const char *key, const char *value)
{
    return strcmp(bp_config_string(config, key), value) == 0;
}

void bp_engine_spec_read_mesh(bp_engine_spec *spec, const bp_config *config)
{
    spec->micro_batch = bp_mesh_keys_of(config)->micro_batch;
    spec->schedule = is(config, "mesh.schedule", "gpipe")         ? BP_GPIPE
                     : is(config, "mesh.schedule", "interleaved") ? BP_INTERLEAVED
                                                                  : BP_1F1B;
    spec->chunks = (int)bp_mesh_keys_of(config)->chunks;
    spec->overlap = bp_mesh_keys_of(config)->overlap;
    spec->sums_bf16 = is(config, "mesh.sums", "bf16");
    spec->sequence_parallel = is(config, "mesh.sequence_parallel", "yes") ? BP_SEQUENCE_PARALLEL_YES
                              : is(config, "mesh.sequence_parallel", "no")
                                  ? BP_SEQUENCE_PARALLEL_NO
                                  : BP_SEQUENCE_PARALLEL_AUTO;
}

bp_optimizer_kind bp_optimizer_kind_of(const bp_config *config)
{
    int kind = 0;

    while (!is(config, "optimizer.kind", bp_optimizer_row_of(kind)->name))
        kind++;
    return (bp_optimizer_kind)kind;
}

void bp_optimizer_resolve(bp_config *config)
{
    const bp_optimizer_row *row = bp_optimizer_row_of(bp_optimizer_kind_of(config));
    const char *const keys[][2] = {{"optimizer.epsilon", row->epsilon},
                                   {"optimizer.momentum", row->momentum},
                                   {"optimizer.clip", row->clip},
                                   {"optimizer.decay", row->decay},
                                   {"optimizer.beta2", row->beta2}};

    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
        if (keys[k][1] && !bp_config_is_given(config, keys[k][0]) &&
            bp_config_set(config, keys[k][0], keys[k][1]) != BP_OK)
            bp_config_fault_err(config);
}

/* Values not given are the kind's. */
static double usual(const bp_config *config, const char *key, const char *of_kind)
{
    return of_kind && !bp_config_is_given(config, key) ? strtod(of_kind, NULL)
                                                       : bp_config_real(config, key);
}

static bp_rate_decay decay_of(const bp_config *config, const char *of_kind)
{
    const char *name = of_kind && !bp_config_is_given(config, "optimizer.decay")
                           ? of_kind
                           : bp_optimizer_keys_of(config)->decay;

    return bp_rate_decay_of(name);
}

bp_engine_spec bp_engine_spec_of(const bp_config *config)
{
    const bp_optimizer_row *kinds = bp_optimizer_row_of(bp_optimizer_kind_of(config));
    bp_engine_spec spec = {
        .seed = (uint64_t)bp_run_keys_of(config)->seed,
        .dropout = (float)bp_model_keys_of(config)->dropout,
        .dropconnect = (float)bp_train_keys_of(config)->dropconnect,
        .label_smoothing = (float)bp_train_keys_of(config)->label_smoothing,
        .softmax_samples = bp_train_keys_of(config)->softmax_samples,
        .batch = bp_train_keys_of(config)->batch,
        .tree = is(config, "train.reduction", "tree"),
        .recompute = bp_train_keys_of(config)->recompute,
        .digest_every = bp_train_keys_of(config)->digest_every,
        .optimizer = {.kind = bp_optimizer_kind_of(config),
                      .beta1 = bp_optimizer_keys_of(config)->beta1,
                      .beta2 = usual(config, "optimizer.beta2", kinds->beta2),
                      .epsilon = usual(config, "optimizer.epsilon", kinds->epsilon),
                      .weight_decay = bp_optimizer_keys_of(config)->weight_decay,
                      .clip = usual(config, "optimizer.clip", kinds->clip),
                      .momentum = usual(config, "optimizer.momentum", kinds->momentum),
                      .rho = bp_optimizer_keys_of(config)->rho,
                      .alpha = bp_optimizer_keys_of(config)->alpha,
                      .layer_decay = bp_optimizer_keys_of(config)->layer_decay,
                      .temperature = bp_optimizer_keys_of(config)->temperature},
        .rate = {.peak = bp_optimizer_keys_of(config)->lr,
                 .warmup = bp_optimizer_keys_of(config)->warmup,
                 .steps =
                     bp_config_is_set(config, "train.steps") ? bp_train_keys_of(config)->steps : 0,
                 .least = bp_optimizer_keys_of(config)->min_lr,
                 .decay = decay_of(config, kinds->decay)},
    };

    bp_engine_spec_read_mesh(&spec, config);
    return spec;
}

int64_t bp_epoch_steps(double epochs, int64_t windows, int64_t batch)
{
    int64_t each = windows / batch;
    double steps = round(epochs * (double)(each > 1 ? each : 1));

    return steps < 1 ? 1 : steps > BP_STEPS_MAX ? (int64_t)BP_STEPS_MAX : (int64_t)steps;
}

/* "32, 64 or 96": the multiples of `unit` around `near`. */
static void say_multiples(char *out, size_t bytes, int64_t unit, int64_t near)
{
    int64_t k = near / unit;

    if (k == 0)
        snprintf(out, bytes, "%lld or %lld", (long long)unit, (long long)(2 * unit));
    else
        snprintf(out, bytes, "%lld or %lld", (long long)(k * unit), (long long)((k + 1) * unit));
}

int bp_engine_chunks(const bp_engine_spec *spec, int stages)
{
    return spec->schedule == BP_INTERLEAVED && stages > 1 ? spec->chunks : 1;
}

static void check_chunks(const bp_engine_spec *spec, const bp_model_shape *shape, int stages,
                         bp_config *config)
{
    int blocks = bp_model_blocks(shape), chunks = bp_engine_chunks(spec, stages);

    if (blocks == 0 || chunks == 1 || (int64_t)chunks * stages <= blocks || stages > blocks)
        return; /* more stages than blocks are a fault already */
    if (2 * stages > blocks)
        bp_config_fault(config, "mesh.too_few_blocks",
                        "mesh.schedule = interleaved gives each of %d stages 2 runs of blocks or "
                        "more, but the model has %d blocks (%s): at "
                        "mesh.schedule; use 1f1b, or mesh.pipeline=%d",
                        stages, blocks, shape->family->blocks->are, blocks / 2);
    else
        bp_config_fault(config, "mesh.too_few_blocks",
                        "mesh.pipeline = %d x mesh.chunks = %d is more than the model's %d blocks "
                        "(%s): at mesh.chunks; use %s%d",
                        stages, chunks, blocks, shape->family->blocks->are,
                        blocks / stages > 2 ? "2 to " : "", blocks / stages);
}

/* Each data rank needs whole rounds of micro-batches; if mesh.data is open (0), at any number of
 * data ranks. */
static void check_rounds(const bp_engine_spec *spec, const bp_mesh_shape *mesh, bp_config *config)
{
    int stages = mesh->pipeline;
    int64_t ranks = mesh->data > 0 ? mesh->data : 1, unit = ranks * spec->micro_batch * stages;
    char fits[96], data[48] = "";

    if (bp_engine_chunks(spec, stages) == 1 || spec->batch % unit == 0)
        return;
    say_multiples(fits, sizeof fits, unit, spec->batch);
    if (ranks > 1)
        snprintf(data, sizeof data, "%lld data ranks x ", (long long)ranks);
    bp_config_fault(
        config, "mesh.batch_not_multiple",
        "mesh.schedule = interleaved needs train.batch to be a multiple of %lld (%s"
        "mesh.pipeline = %d x mesh.micro_batch = %lld), but it is %lld: at train.batch; "
        "use %s%s, or mesh.schedule=1f1b",
        (long long)unit, data, stages, (long long)spec->micro_batch, (long long)spec->batch, fits,
        mesh->data == 0 ? ", times the data ranks" : "");
}

/* A row needs others: the one before it, in the window and after it. */
static bool needs_all_rows(const bp_model_shape *shape)
{
    const bp_model_family *family = shape->family;

    return family &&
           (family->unlimited || family->carries_state || family->whole_rows || family->in_order);
}

/* For micro-batches of context positions, and for shortened ones, whose positions grow in steps. */
static bool rows_divide(const bp_engine_spec *spec, int64_t micro_batch, int64_t context,
                        int tensor_ranks)
{
    return bp_rows_divide(micro_batch * context, tensor_ranks) &&
           (!spec->shortens ||
            bp_rows_divide(micro_batch * bp_batch_fit_step(context), tensor_ranks));
}

bool bp_engine_is_sequence_parallel(const bp_engine_spec *spec, const bp_model_shape *shape,
                                    int tensor_ranks)
{
    return spec->sequence_parallel != BP_SEQUENCE_PARALLEL_NO && !needs_all_rows(shape) &&
           !bp_optimizer_row_of(spec->optimizer.kind)->squares &&
           rows_divide(spec, spec->micro_batch, shape->context, tensor_ranks);
}

/* The smallest micro-batch whose rows can be divided among tensor ranks. */
static int64_t least_micro_batch(const bp_engine_spec *spec, int64_t context, int tensor_ranks)
{
    int64_t batch = 1;

    while (!rows_divide(spec, batch, context, tensor_ranks))
        batch++;
    return batch;
}

static void check_sequence_parallel(const bp_engine_spec *spec, const bp_model_shape *shape,
                                    int tensor_ranks, bp_config *config)
{
    if (spec->sequence_parallel != BP_SEQUENCE_PARALLEL_YES || tensor_ranks == 1 ||
        shape->context == 0 || bp_engine_is_sequence_parallel(spec, shape, tensor_ranks))
        return;
    if (bp_optimizer_row_of(spec->optimizer.kind)->squares) {
        bp_config_fault(config, "mesh.no_sequence_parallel",
                        "mesh.sequence_parallel = yes, but optimizer.kind = %s squares gradients "
                        "of all rows of a micro-batch: at mesh.sequence_parallel; use auto",
                        bp_optimizer_row_of(spec->optimizer.kind)->name);
        return;
    }
    if (needs_all_rows(shape)) {
        bp_config_fault(config, "mesh.no_sequence_parallel",
                        "mesh.sequence_parallel = yes, but a row of model.kind = %s needs other "
                        "rows: at mesh.sequence_parallel; use auto",
                        shape->family->name);
        return;
    }
    bool whole = bp_rows_divide(spec->micro_batch * shape->context, tensor_ranks);
    bp_config_fault(config, "mesh.no_sequence_parallel",
                    "mesh.sequence_parallel = yes needs mesh.micro_batch x %s to be a multiple of "
                    "mesh.tensor = %d, but %lld x %lld is not: at mesh.sequence_parallel; use "
                    "auto, or mesh.micro_batch=%lld",
                    whole ? "the positions by which corpus.bucket shortens" : "model.context",
                    tensor_ranks, (long long)spec->micro_batch,
                    (long long)(whole ? bp_batch_fit_step(shape->context) : shape->context),
                    (long long)least_micro_batch(spec, shape->context, tensor_ranks));
}

static void check_layer_decay(const bp_engine_spec *spec, const bp_model_shape *shape,
                              bp_config *config)
{
    if (spec->optimizer.layer_decay < 1 && bp_model_shape_is_whole(shape) &&
        !bp_model_has_depth(shape))
        bp_config_fault(
            config, "optimizer.no_layers",
            "optimizer.layer_decay = %g goes by a stack of layers below a head, which "
            "training of model.kind = %s does not have: at optimizer.layer_decay; leave it "
            "out",
            spec->optimizer.layer_decay, shape->family->name);
}

/* A running sum has no gradient of one micro-batch, and parameters that no example depends on keep
 * their prior. */
static void check_variational(const bp_engine_spec *spec, bp_config *config)
{
    const bp_optimizer_row *row = bp_optimizer_row_of(spec->optimizer.kind);

    if (row->squares && !spec->tree)
        bp_config_fault(config, "optimizer.no_squares",
                        "optimizer.kind = %s squares the gradients of each micro-batch, which "
                        "train.reduction = running does not keep: at train.reduction; use tree",
                        row->name);
    if (spec->optimizer.kind == BP_VOGN && spec->optimizer.weight_decay == 0)
        bp_config_fault(
            config, "optimizer.no_prior",
            "optimizer.weight_decay = 0 is not a prior, which optimizer.kind = vogn needs: "
            "at optimizer.weight_decay; use the prior's precision over the number of "
            "targets, such as 1e-4");
}

/* Label smoothing needs a softmax. */
static void check_smoothing(const bp_engine_spec *spec, const bp_model_shape *shape,
                            bp_config *config)
{
    bool plain = shape->head_entmax == 0 && shape->softmaxes <= 1;

    if (spec->label_smoothing > 0 && !bp_task_is_softmax(&shape->task))
        bp_config_fault(config, "train.no_smoothing",
                        "train.label_smoothing = %g is of classes, and task.kind = %s has none: at "
                        "train.label_smoothing; leave it out",
                        (double)spec->label_smoothing, bp_task_name(shape->task.kind));
    if (spec->label_smoothing > 0 && !plain && !bp_task_has_head(&shape->task))
        bp_config_fault(config, "train.no_smoothing",
                        "train.label_smoothing = %g goes only with one softmax: at %s; leave one "
                        "of them out",
                        (double)spec->label_smoothing,
                        shape->head_entmax ? "head.activation" : "head.softmaxes");
}

/* Samples take the place of one softmax. */
static void check_samples(const bp_engine_spec *spec, const bp_model_shape *shape,
                          bp_config *config)
{
    const char *other = shape->head_entmax          ? "head.activation"
                        : shape->softmaxes > 1      ? "head.softmaxes"
                        : spec->label_smoothing > 0 ? "train.label_smoothing"
                        : spec->distills            ? "distill.model"
                                                    : NULL;

    if (spec->softmax_samples > 0 && other)
        bp_config_fault(config, "train.no_samples",
                        "train.softmax_samples = %lld goes only with one plain softmax and its "
                        "target: at %s; leave one of them out",
                        (long long)spec->softmax_samples, other);
    if (spec->softmax_samples > 0 && bp_model_caps_logits(shape))
        bp_config_fault(
            config, "train.no_samples",
            "train.softmax_samples = %lld goes with logits that are neither capped "
            "nor scaled, as those of model.kind = %s are: at train.softmax_samples; leave it out",
            (long long)spec->softmax_samples, shape->family->name);
}

/* A prior network has the loss of a Dirichlet, not of a softmax. */
static void check_prior(const bp_engine_spec *spec, const bp_model_shape *shape, bp_config *config)
{
    const struct {
        const char *key;
        bool given;
    } others[] = {{"train.label_smoothing", spec->label_smoothing > 0},
                  {"train.softmax_samples", spec->softmax_samples > 0},
                  {"distill.model", spec->distills}};

    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
        if (shape->task.precision > 0 && others[k].given)
            bp_config_fault(config, "dirichlet.no_softmax",
                            "%s is of a softmax, which a prior network (dirichlet.outside) does "
                            "not learn: at %s; leave one of them out",
                            others[k].key, others[k].key);
}

void bp_engine_check_experts(const bp_engine_spec *spec, const bp_model_shape *shape,
                             const bp_mesh_shape *mesh, bp_config *config)
{
    const bp_optimizer_row *row = bp_optimizer_row_of(spec->optimizer.kind);
    int ranks = bp_mesh_shape_experts(mesh);

    if (shape->family) /* else it is model.init's, and checked when that is read */
        bp_model_check_experts(shape, ranks, config);
    if (ranks == 1)
        return;
    if (row->squares || spec->optimizer.kind == BP_LAMB || spec->optimizer.kind == BP_ADAFACTOR)
        bp_config_fault(config, "mesh.expert_optimizer",
                        "optimizer.kind = %s sums over tensors or micro-batches that mesh.expert = "
                        "%d takes apart: at optimizer.kind; use adamw, or mesh.expert=1",
                        row->name, ranks);
    if (shape->task.features > 0)
        bp_config_fault(config, "mesh.expert_process",
                        "sngp.features passes documents through the model on some data ranks, "
                        "which mesh.expert = %d does not allow: at mesh.expert; leave it at 1",
                        ranks);
}

void bp_engine_spec_check(const bp_engine_spec *spec, const bp_model_shape *shape,
                          const bp_mesh_shape *mesh, bp_config *config)
{
    int data_ranks = mesh->data > 0 ? mesh->data : 1;
    int64_t unit = data_ranks * spec->micro_batch;
    char fits[96];

    check_smoothing(spec, shape, config);
    check_samples(spec, shape, config);
    check_prior(spec, shape, config);
    check_variational(spec, config);
    bp_engine_check_experts(spec, shape, mesh, config);
    check_layer_decay(spec, shape, config);
    check_chunks(spec, shape, mesh->pipeline, config);
    check_sequence_parallel(spec, shape, mesh->tensor, config);
    if (spec->batch % unit == 0) {
        check_rounds(spec, mesh, config);
        return;
    }
    say_multiples(fits, sizeof fits, unit, spec->batch);
    if (mesh->data == 0)
        bp_config_fault(config, "mesh.batch_not_multiple",
                        "train.batch = %lld is not a multiple of mesh.micro_batch = %lld: at "
                        "train.batch; use %s, times the data ranks",
                        (long long)spec->batch, (long long)unit, fits);
    else
        bp_config_fault(config, "mesh.batch_not_multiple",
                        "train.batch = %lld is not a multiple of %lld (%d data rank%s x "
                        "mesh.micro_batch = %lld): at train.batch; use %s",
                        (long long)spec->batch, (long long)unit, data_ranks,
                        data_ranks == 1 ? "" : "s", (long long)spec->micro_batch, fits);
}

static void warn_of_unused(const bp_config *config)
{
    const char *adapter = bp_model_keys_of(config)->adapter.kind;
    bool none = strcmp(adapter, "none") == 0, lora = strcmp(adapter, "lora") == 0;
    const bp_unused_key rows[] = {
        {"adapter.rank", none, "without adapter.kind there is no adapter"},
        {"adapter.alone", none, "without adapter.kind there is no adapter"},
        {"adapter.scale", !lora, "only adapter.kind = lora has it"},
        {"adapter.targets", !lora, "only adapter.kind = lora has them"},
        {"optimizer.temperature", !bp_optimizer_row_of(bp_optimizer_kind_of(config))->samples,
         "only optimizer.kind = sgld and vogn have it"},
        {"mesh.chunks", !is(config, "mesh.schedule", "interleaved"),
         "only mesh.schedule = interleaved has chunks"},
        {NULL, false, NULL}};

    bp_warn_of_unused(config, rows);
}

/* Defaults are not warned of: config.ini, which names every key, may be the configuration. */
void bp_engine_spec_warn(const bp_config *config)
{
    bool interleaved = is(config, "mesh.schedule", "interleaved");
    bool stages = bp_mesh_keys_of(config)->pipeline > 1;

    warn_of_unused(config);
    if (interleaved && !stages)
        BP_WARN("config.unused_key",
                "mesh.schedule = interleaved is ignored: mesh.pipeline = 1 has nothing to "
                "interleave");
    if (is(config, "mesh.sequence_parallel", "yes") && bp_mesh_keys_of(config)->tensor == 1)
        BP_WARN("config.unused_key",
                "mesh.sequence_parallel = yes is ignored: with mesh.tensor = 1 no ranks share "
                "rows");
}
