/* The shape of a GPT-2: from keys, from a checkpoint, its parameters, FLOPs, memory. */
#include "models/gpt/gpt.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const bp_option bp_model_options[] = {
    {"model.kind", BP_OPTION_CHOICE, "gpt", 0, 0, "gpt", NULL, "architecture", false,
     .at = BP_AT(bp_model_keys, kind)},
    {"model.layers", BP_OPTION_INT, NULL, 1, 10000, NULL, NULL,
     "transformer layers; needed unless model.init tells", false,
     .at = BP_AT(bp_model_keys, layers)},
    {"model.width", BP_OPTION_INT, NULL, 1, 1 << 20, NULL, NULL,
     "width of the hidden states; a multiple of model.heads", false,
     .at = BP_AT(bp_model_keys, width)},
    {"model.heads", BP_OPTION_INT, NULL, 1, 1 << 16, NULL, NULL,
     "attention heads; a multiple of mesh.tensor", false, .at = BP_AT(bp_model_keys, heads)},
    {"model.context", BP_OPTION_INT, NULL, 1, 1 << 24, NULL, "tokens",
     "most tokens the model looks at", false, .at = BP_AT(bp_model_keys, context)},
    {"model.dropout", BP_OPTION_REAL, "0", 0, 0.95, NULL, NULL,
     "dropped share of embeddings, attention and branches", false,
     .at = BP_AT(bp_model_keys, dropout)},
    {"model.init", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL,
     "CHECKPOINT whose weights to start from", false, .at = BP_AT(bp_model_keys, init)},
    {NULL, BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, NULL, false},
};

static int64_t size_of(bp_config *config, const char *key, int64_t known)
{
    if (!bp_config_is_set(config, key)) {
        if (known == 0)
            bp_config_fault(
                config,
                "%s is missing: at the configuration; give it, or a checkpoint in model.init", key);
        return known;
    }
    int64_t value = bp_config_int(config, key);
    if (known != 0 && value != known)
        bp_config_fault(config,
                        "%s = %lld, but the checkpoint of model.init has %lld: at %s; leave the "
                        "key out, or change it",
                        key, (long long)value, (long long)known, key);
    return value;
}

bp_gpt_shape bp_gpt_shape_of(bp_config *config, const bp_gpt_shape *known)
{
    static const bp_gpt_shape NOTHING = {0};
    const bp_gpt_shape *base = known ? known : &NOTHING;

    return (bp_gpt_shape){
        .layers = size_of(config, "model.layers", base->layers),
        .width = size_of(config, "model.width", base->width),
        .heads = size_of(config, "model.heads", base->heads),
        .context = size_of(config, "model.context", base->context),
        .vocab_size = base->vocab_size,
    };
}

/* "1, 2, 4, 8": divisors of n, at most twelve of them, those near `wish`. */
static void list_divisors(char *out, size_t bytes, int64_t n, int64_t wish, int64_t multiple_of)
{
    int64_t near[12];
    int count = 0;
    size_t used = 0;

    for (int64_t d = multiple_of; d <= n; d += multiple_of) {
        if (n % d != 0)
            continue;
        if (count == 12) {
            if (d > 4 * wish)
                break;
            memmove(near, near + 1, 11 * sizeof near[0]);
            count = 11;
        }
        near[count++] = d;
    }
    out[0] = '\0';
    for (int k = 0; k < count; k++)
        used +=
            (size_t)snprintf(out + used, bytes - used, "%s%lld", k ? ", " : "", (long long)near[k]);
}

void bp_gpt_shape_check(const bp_gpt_shape *shape, int tensors, int stages, bp_config *config)
{
    char fits[512];

    if (shape->layers == 0 || shape->width == 0 || shape->heads == 0 || shape->context == 0)
        return; /* a missing key is a fault already */
    if (shape->width % shape->heads != 0) {
        list_divisors(fits, sizeof fits, shape->width, shape->heads, 1);
        bp_config_fault(config,
                        "model.heads = %lld does not divide model.width = %lld: at model.heads; "
                        "heads that fit: %s",
                        (long long)shape->heads, (long long)shape->width, fits);
    }
    if (shape->heads % tensors != 0) {
        list_divisors(fits, sizeof fits, shape->heads, tensors, 1);
        bp_config_fault(config,
                        "mesh.tensor = %d does not divide model.heads = %lld: at mesh.tensor; "
                        "tensor ranks that fit: %s",
                        tensors, (long long)shape->heads, fits);
    }
    if (stages > bp_gpt_blocks(shape))
        bp_config_fault(config,
                        "mesh.pipeline = %d is more than the model's %d blocks (embedding, layers, "
                        "head): at mesh.pipeline; "
                        "use 1 to %d",
                        stages, bp_gpt_blocks(shape), bp_gpt_blocks(shape));
}

json_t *bp_gpt_shape_json(const bp_gpt_shape *shape)
{
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "kind", "gpt", "layers",
                     (json_int_t)shape->layers, "width", (json_int_t)shape->width, "heads",
                     (json_int_t)shape->heads, "context", (json_int_t)shape->context, "vocab_size",
                     (json_int_t)shape->vocab_size);
}

bp_err bp_gpt_shape_read(bp_gpt_shape *shape, const json_t *state, const char *where)
{
    const json_t *model = json_object_get(state, "model");
    const char *kind = NULL;
    const struct {
        const char *key;
        int64_t *value;
    } sizes[] = {{"layers", &shape->layers},
                 {"width", &shape->width},
                 {"heads", &shape->heads},
                 {"context", &shape->context},
                 {"vocab_size", &shape->vocab_size}};
    bp_err err = bp_json_get_string(model, "kind", &kind, where);

    if (err == BP_OK && strcmp(kind, "gpt") != 0)
        return BP_FAIL(BP_ERR_FORMAT,
                       "the model is of kind '%s', which this version does not know: at %s; use a "
                       "newer bagpipe",
                       kind, where);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0] && err == BP_OK; k++) {
        err = bp_json_get_int(model, sizes[k].key, sizes[k].value, where);
        if (err == BP_OK && (*sizes[k].value < 1 || *sizes[k].value > (int64_t)1 << 31))
            return BP_FAIL(
                BP_ERR_FORMAT,
                "the model's %s is %lld: at %s; the checkpoint was not written by bagpipe",
                sizes[k].key, (long long)*sizes[k].value, where);
    }
    if (err == BP_OK && shape->width % shape->heads != 0)
        return BP_FAIL(
            BP_ERR_FORMAT,
            "the model's %lld heads do not divide its width %lld: at %s; the checkpoint is wrong",
            (long long)shape->heads, (long long)shape->width, where);
    return err;
}

int64_t bp_gpt_parameters(const bp_gpt_shape *shape)
{
    int64_t C = shape->width;

    return 12 * shape->layers * C * C + 13 * shape->layers * C +
           (shape->vocab_size + shape->context + 2) * C;
}

double bp_gpt_train_flops(const bp_gpt_shape *shape)
{
    double C = (double)shape->width, L = (double)shape->layers;

    return 6 * (12 * L * C * C + (double)shape->vocab_size * C) +
           12 * L * (double)shape->context * C;
}

int bp_gpt_blocks(const bp_gpt_shape *shape)
{
    return (int)shape->layers + 2;
}

/* FLOPs of one token through a block, about; the embedding's look-up counts as a few passes over
 * the width. */
static double block_cost(const bp_gpt_shape *shape, int block)
{
    double C = (double)shape->width;

    if (block == 0)
        return 50 * C;
    if (block == bp_gpt_blocks(shape) - 1)
        return 2 * (double)shape->vocab_size * C;
    return 24 * C * C + 4 * (double)shape->context * C;
}

/* The cut in which no stage costs more than `limit` but where a lone block does, and every stage
 * has a block: how many stages it has; stage `stage` of it is blocks [*first, *end). */
static int cut_under(const bp_gpt_shape *shape, double limit, int stages, int stage, int *first,
                     int *end)
{
    int blocks = bp_gpt_blocks(shape), used = 0;
    double cost = 0;

    *first = 0;
    *end = blocks;
    for (int block = 0; block < blocks; block++) {
        bool must_cut = used < stages - 1 && blocks - block <= stages - 1 - used;
        if (block > 0 && (must_cut || cost + block_cost(shape, block) > limit)) {
            if (used == stage)
                *end = block;
            used++;
            if (used == stage)
                *first = block;
            cost = 0;
        }
        cost += block_cost(shape, block);
    }
    return used + 1;
}

void bp_gpt_stage(const bp_gpt_shape *shape, int stage, int stages, int *first, int *end)
{
    double low = 0, high = 0;

    BP_ASSERT(stage < stages && stages <= bp_gpt_blocks(shape));
    for (int block = 0; block < bp_gpt_blocks(shape); block++)
        high += block_cost(shape, block);
    for (int round = 0; round < 60; round++) { /* the smallest limit that needs no more stages */
        double middle = (low + high) / 2;
        if (cut_under(shape, middle, stages, stage, first, end) <= stages)
            high = middle;
        else
            low = middle;
    }
    cut_under(shape, high, stages, stage, first, end);
}

/* Layers of each chunk of a stage: the stage's own, dealt out so that its chunks cost alike; the
 * head counts for the last one. False: a chunk would have no block. */
static bool deal_layers(const bp_gpt_shape *shape, int stage, int stages, int chunks, int *layers)
{
    int first, end, head = bp_gpt_blocks(shape) - 1;
    bool has_head = stage == stages - 1, fits = true;
    double layer = block_cost(shape, 1);

    bp_gpt_stage(shape, stage, stages, &first, &end);
    memset(layers, 0, (size_t)chunks * sizeof *layers);
    for (int block = first; block < end; block++) {
        int cheapest = 0;
        double least = INFINITY;

        for (int c = 0; c < chunks && block > 0 && block < head; c++) {
            double cost = layers[c] * layer;

            if (has_head && c == chunks - 1)
                cost += block_cost(shape, head);
            cheapest = cost < least ? c : cheapest;
            least = cost < least ? cost : least;
        }
        layers[cheapest] += block > 0 && block < head;
    }
    for (int c = 0; c < chunks; c++)
        fits = fits && (layers[c] > 0 || (stage == 0 && c == 0) || (has_head && c == chunks - 1));
    return fits;
}

void bp_gpt_chunk(const bp_gpt_shape *shape, const bp_gpt_place *at, int *first, int *end)
{
    int run = at->chunk * at->stages + at->stage, before = 0, own = 0;
    int layers[BP_GPT_CHUNKS];

    BP_ASSERT(at->chunks <= BP_GPT_CHUNKS && at->chunk < at->chunks);
    for (int stage = 0; stage < at->stages; stage++) {
        if (!deal_layers(shape, stage, at->stages, at->chunks, layers)) {
            bp_gpt_stage(shape, run, at->stages * at->chunks, first, end);
            return;
        }
        for (int c = 0; c < at->chunks; c++) {
            int other = c * at->stages + stage;

            before += other < run ? layers[c] : 0;
            own += other == run ? layers[c] : 0;
        }
    }
    *first = run == 0 ? 0 : 1 + before;
    *end = 1 + before + own + (run == at->stages * at->chunks - 1);
}
