/* Decoding against scoring, which computes whole windows without a cache: every outcome of every
 * step, on meshes of 1, 2 and 4 ranks; and against itself, to the bit. */
#include "bp_test_mpi.h"
#include "bp_test_perturb.h"

#include "bp_test_memory.h"

#include "capped_family.h"

#include "base/fault.h"
#include "base/process/heartbeat.h"
#include "base/rng.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "models/bamba/bamba.h"
#include "models/bloom/bloom.h"
#include "models/feedforward/feedforward.h"
#include "models/gemma2/gemma2.h"
#include "models/gemma3/gemma3.h"
#include "models/gpt/gpt.h"
#include "models/gpt_neox/gpt_neox.h"
#include "models/gptj/gptj.h"
#include "models/granite/granite.h"
#include "models/granite_hybrid/granite_hybrid.h"
#include "models/llama/llama.h"
#include "models/mamba2/mamba2.h"
#include "models/mixtral/mixtral.h"
#include "models/network_inside_priv.h"
#include "models/network_model_priv.h"
#include "models/olmo2/olmo2.h"
#include "models/olmoe/olmoe.h"
#include "models/open.h"
#include "models/openai_gpt/openai_gpt.h"
#include "models/opt/opt.h"
#include "models/phi3/phi3.h"
#include "models/qwen3/qwen3.h"
#include "models/qwen3_moe/qwen3_moe.h"
#include "models/recurrent/recurrent.h"
#include "models/rotary.h"
#include "models/smollm3/smollm3.h"
#include "models/stack.h"

#include <math.h>

#define WORLD MPI_COMM_WORLD

enum { V = 61, CONTEXT = 40, SLOTS = 5, CAPACITY = 32, GROUPS = 2, SCALE = 8 };

static bp_rng_key key;
static uint64_t drawn;

/* A number below `end`, the same on all ranks. */
static int32_t draw(int64_t end)
{
    return (int32_t)bp_rng_below(&key, drawn++, end);
}

static const bp_model_shape gpt = {.family = &bp_gpt_family,
                                   .layers = 4,
                                   .width = 32,
                                   .heads = 4,
                                   .context = CONTEXT,
                                   .vocab_size = V};

static bp_model_shape llama(int64_t kv_heads, int64_t window)
{
    bp_model_shape shape = {.family = &bp_llama_family,
                            .layers = 4,
                            .width = 48,
                            .heads = 8,
                            .context = CONTEXT,
                            .vocab_size = V};

    shape.stack.kv_heads = kv_heads;
    shape.stack.inner = 56;
    shape.stack.qkv_bias = window > 0;
    shape.stack.window = window;
    shape.family->fill_defaults(&shape);
    return shape;
}

static bp_model_shape neox(void)
{
    bp_model_shape shape = llama(8, 0);

    shape = (bp_model_shape){.family = &bp_gpt_neox_family,
                             .layers = shape.layers,
                             .width = shape.width,
                             .heads = shape.heads,
                             .context = CONTEXT,
                             .vocab_size = V};
    shape.stack.rope_fraction = 0.7; /* 4 numbers of 6 are rotated */
    shape.family->fill_defaults(&shape);
    return shape;
}

static bp_model_shape recurrent(const bp_model_family *family, int64_t embedding)
{
    bp_model_shape shape = {
        .family = family, .layers = 2, .width = 24, .context = 3, .vocab_size = V};

    shape.own[BP_RECURRENT_EMBEDDING] = embedding;
    shape.family->fill_defaults(&shape);
    return shape;
}

static bp_model_shape feedforward(int64_t order, bool direct)
{
    bp_model_shape shape = {
        .family = &bp_feedforward_family, .width = 24, .context = 3, .vocab_size = V};

    shape.own[BP_FEEDFORWARD_ORDER] = order;
    shape.own[BP_FEEDFORWARD_EMBEDDING] = 10;
    shape.own[BP_FEEDFORWARD_DIRECT] = direct;
    return shape;
}

/* ---- models on meshes ---- */

typedef struct world {
    bp_mesh *mesh;
    bp_config *config;
    bp_model *lm;
} world;

/* Stages and tensor ranks of world's size; the last one is number 0. */
static int mesh_count(void)
{
    int size = bp_comm_size(WORLD);

    return size == 1 ? 1 : size == 2 ? 2 : 3;
}

static void open_world(world *w, const bp_model_shape *shape, int number)
{
    static const bp_option *const tables[] = {bp_math_options, NULL};
    int size = bp_comm_size(WORLD), stages = number == 0 ? size : number == 1 ? 1 : 2;
    bp_mesh_shape on = {1, stages, 1, size / stages, BP_COORDINATOR_SHARED};

    if (size == 4 && number == 2)
        on = (bp_mesh_shape){1, 1, 2, 2, BP_COORDINATOR_SHARED};
    bp_test_expect(bp_config_new(&w->config, tables, tables), BP_OK);
    bp_test_expect(bp_config_set(w->config, "math.precision", "f32"), BP_OK);
    bp_test_expect(bp_mesh_new(&w->mesh, WORLD, &on), BP_OK);
    bp_test_check_err(WORLD, bp_model_new(&w->lm, w->mesh, w->config, shape, 7), BP_OK);
    network_model *model = (network_model *)w->lm; /* larger weights: distributions with a shape */
    for (int g = 0; g < model->network->group_count; g++) {
        const bp_group *group = &model->network->groups[g];

        for (int k = 0; !group->replicated && k < group->count; k++)
            for (int64_t i = 0; i < bp_param_floats(&group->params[k]); i++)
                group->params[k].value[i] *= SCALE;
    }
    bp_test_perturb(model->network, 3, 0.3F);
    bp_network_refresh(model->network);
}

static void close_world(world *w)
{
    bp_model_free(&w->lm);
    bp_mesh_free(&w->mesh);
    bp_config_free(&w->config);
}

/* ---- sequences, and what is known of them ---- */

typedef struct sequence {
    int32_t ids[CAPACITY];
    int64_t length;
} sequence;

/* A step with its arrays. */
typedef struct fed {
    bp_decode_step step;
    int32_t counts[SLOTS], tokens[SLOTS * CAPACITY], parents[SLOTS];
    float *logits, statistics[SLOTS][BP_DECODE_STATISTICS];
} fed;

static void open_fed(fed *f, const world *w)
{
    memset(f, 0, sizeof *f);
    f->step = (bp_decode_step){.slots = SLOTS, .counts = f->counts, .tokens = f->tokens};
    f->logits = bp_alloc("test", SLOTS * w->lm->info.vocab_count + 1, sizeof(float));
}

/* Slot s gets counts[s] more tokens, as its sequence does. */
static void feed(fed *f, sequence *of, bp_decoding *decoding, int group, bool statistics)
{
    int64_t tokens = 0;

    for (int64_t s = 0; s < f->step.slots; s++)
        for (int64_t k = 0; k < f->counts[s]; k++)
            of[s].ids[of[s].length++] = f->tokens[tokens++] = draw(V);
    bp_model_decode(decoding, group, &f->step, f->logits, statistics ? f->statistics[0] : NULL);
}

static bool is_last(const world *w)
{
    return w->mesh->pipeline_rank == w->mesh->pipeline_ranks - 1;
}

/* lp[V] of a row of logits, on all ranks. */
static void whole_logprobs(double *lp, const world *w, const float *logits)
{
    const bp_model_info *info = &w->lm->info;
    double most = -INFINITY, sum = 0;

    memset(lp, 0, V * sizeof *lp);
    for (int64_t v = 0; is_last(w) && v < info->vocab_count; v++)
        lp[info->vocab_first + v] = (double)logits[v];
    bp_all_sum_double(lp, V, w->mesh->model);
    for (int v = 0; v < V; v++)
        most = fmax(most, lp[v]);
    for (int v = 0; v < V; v++)
        sum += exp(lp[v] - most);
    for (int v = 0; v < V; v++)
        lp[v] -= most + log(sum);
}

/* The same of a sequence as scoring has it, without a cache: a window an outcome. */
static void scored_logprobs(float *lp, const world *w, const sequence *of)
{
    static int32_t inputs[V * CAPACITY], targets[V * CAPACITY];
    static float values[V * CAPACITY];
    int64_t T = of->length;
    bp_model_batch batch = {.windows = V, .length = T, .inputs = inputs, .targets = targets};
    bp_heartbeat before, after;

    for (int v = 0; v < V; v++)
        for (int64_t t = 0; t < T; t++) {
            inputs[v * T + t] = of->ids[t];
            targets[v * T + t] = t == T - 1 ? v : -1;
        }
    bp_heartbeat_read(&before);
    bp_test_check_err(WORLD, bp_model_score(w->lm, &batch, values), BP_OK);
    bp_heartbeat_read(&after); /* each block of a batch, which may take long, is progress */
    bp_test_check(WORLD, after.progress - before.progress >=
                             ((network_model *)w->lm)->network->block_count - 1);
    for (int v = 0; v < V; v++)
        lp[v] = values[v * T + T - 1];
}

/* Float32 sums of at most 60 products in another order: of the largest number. */
static double near = 1e-5;

/* Log-probabilities of all outcomes, and the entropies. */
static bool is_as_scored(const world *w, const fed *f, int64_t s, const sequence *of)
{
    double lp[V], entropy = 0, worst = 0, H = 0;
    float scored[V];

    whole_logprobs(lp, w, f->logits + s * w->lm->info.vocab_count);
    scored_logprobs(scored, w, of);
    for (int v = 0; v < V; v++) {
        double off = fabs(lp[v] - (double)scored[v]) / fmax(1, fabs(lp[v]));

        worst = off > worst || isnan(off) ? off : worst;
        entropy -= exp(lp[v]) * lp[v];
    }
    H = is_last(w) ? (double)f->statistics[s][BP_DECODE_ENTROPY] : entropy;
    if (!(worst < near) || !(fabs(H - entropy) < near))
        print_error("slot %d after %d tokens: off by %g, entropy %g is not %g\n", (int)s,
                    (int)of->length, worst, H, entropy);
    return worst < near && fabs(H - entropy) < near &&
           (!is_last(w) || f->statistics[s][BP_DECODE_MUTUAL_INFORMATION] == 0);
}

/* ---- claims ---- */

#define UNTOUCHED 12345.0f

/* Prompts of several lengths, then a token at a time, or two, or none; two groups in turn. */
static void decode_some(const world *w, bp_decoding *decoding, bool again)
{
    static const int32_t prompts[GROUPS][SLOTS] = {{7, 1, 12, 0, 5}, {3, 9, 1, 2, 17}};
    sequence of[GROUPS][SLOTS] = {0};
    int64_t here = w->lm->info.vocab_count;
    bool right = true;
    fed f;

    open_fed(&f, w);
    for (int n = 0; n < 5; n++)
        for (int g = 0; g < GROUPS; g++) {
            for (int s = 0; s < SLOTS; s++)
                f.counts[s] = n == 0 ? prompts[g][s] : s == n ? 0 : 1 + (s + n == 4);
            for (int64_t i = 0; i < SLOTS * here; i++)
                f.logits[i] = UNTOUCHED;
            feed(&f, of[g], decoding, g, true);
            for (int s = 0; s < SLOTS; s++)
                if (f.counts[s] > 0)
                    right = is_as_scored(w, &f, s, &of[g][s]) && right;
                else
                    right = right && (here == 0 || f.logits[s * here] == UNTOUCHED);
        }
    bp_test_check(WORLD, right);
    for (int g = 0; again && g < GROUPS; g++)
        bp_model_decode_reset(decoding, g);
    bp_free(f.logits);
}

static void decode_on(const bp_model_shape *shape, int number)
{
    world w;
    bp_decoding *decoding;

    open_world(&w, shape, number);
    bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.lm, GROUPS, SLOTS, CAPACITY), BP_OK);
    decode_some(&w, decoding, true);
    decode_some(&w, decoding, false);
    bp_model_decode_free(&decoding);
    close_world(&w);
}

static void decode_shape(const bp_model_shape *shape)
{
    for (int number = 0; number < mesh_count(); number++)
        decode_on(shape, number);
}

static void gpt_decodes_as_it_scores(void **state)
{
    (void)state;
    decode_shape(&gpt);
}

static void gpt_neox_decodes_as_it_scores(void **state)
{
    bp_model_shape shape = neox();

    (void)state;
    decode_shape(&shape);
}

/* ALiBi, one norm for both branches, norms after branches, positions from row 2 on. */
static void older_decoders_decode_as_they_score(void **state)
{
    const bp_model_family *const families[] = {&bp_bloom_family, &bp_gptj_family,
                                               &bp_openai_gpt_family, &bp_opt_family};

    (void)state;
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        bp_model_shape shape = gpt;

        shape.family = families[k];
        shape.family->fill_defaults(&shape);
        near = shape.family == &bp_openai_gpt_family ? 4e-5 : 1e-5; /* norms after branches */
        decode_shape(&shape);
    }
    near = 1e-5;
}

static void llama_decodes_as_it_scores(void **state)
{
    bp_model_shape grouped = llama(2, 0), own = llama(8, 0), window = llama(4, 5);

    (void)state;
    decode_shape(&grouped);
    decode_shape(&own);
    decode_shape(&window);
}

/* Positions whose frequencies change with a sequence's length: once, when it is longer than the
 * original context, or then with each token. */
static bp_model_shape scaled(bp_rope_scaling scaling)
{
    bp_model_shape shape = llama(2, 0);

    shape.stack.rope_scaling = scaling;
    shape.stack.rope_original = 9;
    shape.stack.rope_factor = 4;
    for (int k = 0; scaling == BP_ROPE_LONGROPE && k < 3; k++) {
        shape.stack.rope_short[k] = 1 + 0.1 * k;
        shape.stack.rope_long[k] = 1.5 + 2 * k;
    }
    return shape;
}

static void scaled_positions_decode_as_they_score(void **state)
{
    bp_model_shape twice = scaled(BP_ROPE_LONGROPE), always = scaled(BP_ROPE_DYNAMIC);

    (void)state;
    decode_shape(&twice);
    decode_shape(&always);
}

/* Norms after branches, which make their rounding as large as others'; caps, windows in every other
 * layer. */
static void capped_stacks_decode_as_they_score(void **state)
{
    bp_model_shape shape = llama(4, 5);

    (void)state;
    shape.family = &CAPPED_FAMILY;
    shape.family->fill_defaults(&shape);
    near = 4e-5;
    decode_shape(&shape);
    near = 1e-5;
}

/* What the layers of other stacks have. The meshes of the stacks before are theirs too: each of
 * these is on one, in turn. */
static void other_stacks_decode_as_they_score(void **state)
{
    static const bp_stack_sizes DENSE = {.kv_heads = 2, .inner = 56},
                                HYBRID = {.kv_heads = 2, .inner = 56, .attention_layers = {2}},
                                MIXTURE = {.kv_heads = 2,
                                           .inner = 56,
                                           .experts = 4,
                                           .chosen = 2,
                                           .balance = 0.1};
    static const struct {
        const bp_model_family *family;
        const bp_stack_sizes *sizes;
    } ROWS[] = {{&bp_qwen3_family, &DENSE},       {&bp_olmo2_family, &DENSE},
                {&bp_gemma2_family, &DENSE},      {&bp_smollm3_family, &DENSE},
                {&bp_granite_family, &DENSE},     {&bp_gemma3_family, &DENSE},
                {&bp_phi3_family, &DENSE},        {&bp_granite_hybrid_family, &HYBRID},
                {&bp_mixtral_family, &MIXTURE},   {&bp_olmoe_family, &MIXTURE},
                {&bp_qwen3_moe_family, &MIXTURE}, {&bp_bamba_family, &HYBRID}};

    (void)state;
    near = 4e-5; /* as of capped stacks */
    for (size_t k = 0; k < sizeof ROWS / sizeof *ROWS; k++) {
        bp_model_shape shape = llama(2, 0);

        shape.family = ROWS[k].family;
        shape.stack = *ROWS[k].sizes;
        if (shape.family == &bp_bamba_family) { /* half of a head has pairs */
            shape.heads = 4;
            shape.stack.head_width = 12;
        }
        shape.family->fill_defaults(&shape);
        decode_on(&shape, (int)k % mesh_count());
    }
    near = 1e-5;
}

static void recurrent_models_decode_as_they_score(void **state)
{
    bp_model_shape rnn = recurrent(&bp_rnn_family, 0), lstm = recurrent(&bp_lstm_family, 40),
                   gru = recurrent(&bp_gru_family, 12), cell = recurrent(&bp_cell_family, 20);

    (void)state;
    decode_shape(&rnn);
    decode_shape(&lstm);
    decode_shape(&gru);
    decode_shape(&cell);
}

static void mamba2_decodes_as_it_scores(void **state)
{
    bp_model_shape shape = gpt;

    (void)state;
    shape.family = &bp_mamba2_family;
    shape.stack = (bp_stack_sizes){.state = 5, .groups = 2};
    shape.family->fill_defaults(&shape);
    decode_shape(&shape);
}

static void feed_forward_models_decode_as_they_score(void **state)
{
    bp_model_shape two = feedforward(2, false), direct = feedforward(5, true);

    (void)state;
    if (bp_comm_size(WORLD) == 4) /* three blocks: no four stages */
        return;
    decode_shape(&two);
    decode_shape(&direct);
}

/* Sequences by what they have become, fed anew in one step: the same bits. */
static bool is_as_fed_anew(const world *w, const fed *f, const sequence *of, bp_decoding *decoding)
{
    int64_t here = w->lm->info.vocab_count, tokens = 0;
    bool equal = true;
    fed anew;

    open_fed(&anew, w);
    bp_model_decode_reset(decoding, 1);
    for (int s = 0; s < SLOTS; s++) {
        anew.counts[s] = (int32_t)of[s].length;
        memcpy(anew.tokens + tokens, of[s].ids, (size_t)of[s].length * sizeof *of[s].ids);
        tokens += of[s].length;
    }
    bp_model_decode(decoding, 1, &anew.step, anew.logits, NULL);
    for (int s = 0; is_last(w) && s < SLOTS; s++)
        equal = equal && (f->counts[s] == 0 || memcmp(f->logits + s * here, anew.logits + s * here,
                                                      (size_t)here * sizeof(float)) == 0);
    bp_free(anew.logits);
    return equal;
}

/* Slots go on from each other at random, and have lengths of their own, so that they would write
 * over what others still read if cells were not looked for. */
static void beams_equal_fresh_sequences(void **state)
{
    bp_model_shape shapes[] = {gpt,
                               llama(2, 7),
                               scaled(BP_ROPE_LONGROPE),
                               recurrent(&bp_lstm_family, 0),
                               recurrent(&bp_gru_family, 20),
                               recurrent(&bp_cell_family, 0),
                               feedforward(4, true)};
    const int count = bp_comm_size(WORLD) == 4 ? 6 : 7; /* no four stages of its three blocks */

    (void)state;
    for (int k = 0; k < count * mesh_count(); k++) {
        sequence of[SLOTS] = {0}, before[SLOTS];
        bp_decoding *decoding;
        bool equal = true;
        world w;
        fed f;

        open_world(&w, &shapes[k % count], k / count);
        open_fed(&f, &w);
        bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.lm, 2, SLOTS, CAPACITY), BP_OK);
        for (int n = 0; n < 14; n++) {
            f.step.parents = n == 0 ? NULL : f.parents;
            f.step.slots = n % 5 == 4 ? SLOTS - 1 : SLOTS;
            memcpy(before, of, sizeof of);
            for (int s = 0; s < SLOTS; s++) {
                f.parents[s] = draw(SLOTS);
                f.counts[s] = s >= f.step.slots ? 0 : n == 0 ? 1 + draw(4) : draw(3);
                if (n > 0 && s < f.step.slots)
                    of[s] = before[f.parents[s]];
            }
            feed(&f, of, decoding, 0, false);
            equal = is_as_fed_anew(&w, &f, of, decoding) && equal;
        }
        bp_test_check(WORLD, equal);
        bp_model_decode_free(&decoding);
        bp_free(f.logits);
        close_world(&w);
    }
}

/* A prompt longer than the rows that are on their way at once: as one token after the other. */
static void long_prompts_go_piece_by_piece(void **state)
{
    enum { LONG = 300 };
    bp_model_shape shape = gpt;
    static int32_t ids[LONG];
    int32_t all = LONG, one = 1;
    bp_decoding *decoding;
    bool equal = true;
    world w;

    (void)state;
    shape.context = LONG;
    open_world(&w, &shape, 0);
    float *logits = bp_alloc("test", 2 * w.lm->info.vocab_count + 1, sizeof *logits),
          *other = logits + w.lm->info.vocab_count;
    bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.lm, 2, 1, LONG), BP_OK);
    for (int t = 0; t < LONG; t++) {
        ids[t] = draw(V);
        bp_model_decode(decoding, 0, &(bp_decode_step){1, &one, &ids[t], NULL}, logits, NULL);
    }
    bp_model_decode(decoding, 1, &(bp_decode_step){1, &all, ids, NULL}, other, NULL);
    for (int64_t v = 0; is_last(&w) && v < w.lm->info.vocab_count; v++)
        equal = equal && logits[v] == other[v];
    bp_test_check(WORLD, equal);
    bp_model_decode_free(&decoding);
    bp_free(logits);
    close_world(&w);
}

/* What is estimated of the first tensor rank before there is a model; it has the most. */
static bool is_estimated(const world *w, int64_t planned)
{
    bp_mesh_shape on = {1, w->mesh->pipeline_ranks, 1, w->mesh->tensor_ranks,
                        BP_COORDINATOR_SHARED};
    bp_model_task task = {.mesh = &on,
                          .stage = w->mesh->pipeline_rank,
                          .groups = GROUPS,
                          .slots = SLOTS,
                          .capacity = CAPACITY};
    bp_model_memory memory;

    bp_test_expect(bp_model_estimate_shape(&memory, &gpt, w->config, &task), BP_OK);
    return memory.work_bytes == 0 && (w->mesh->tensor_rank == 0 ? memory.decode_bytes == planned
                                                                : memory.decode_bytes >= planned);
}

static void a_step_allocates_nothing_and_the_plan_is_right(void **state)
{
    (void)state;
    for (int number = 0; number < mesh_count(); number++) {
        sequence of[SLOTS] = {0};
        bp_decoding *decoding;
        world w;
        fed f;

        open_world(&w, &gpt, number);
        open_fed(&f, &w);
        int64_t planned = bp_model_decode_bytes(w.lm, GROUPS, SLOTS, CAPACITY);
        bp_test_check(WORLD, is_estimated(&w, planned));
        size_t before = bp_mem_now_bytes();
        bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.lm, GROUPS, SLOTS, CAPACITY),
                          BP_OK);
        int64_t taken = (int64_t)(bp_mem_now_bytes() - before);
        bp_test_check(WORLD, taken >= planned && taken <= planned + 4096);
        bp_test_peak peak = bp_test_peak_begin();
        for (int n = 0; n < 4; n++) {
            for (int s = 0; s < SLOTS; s++)
                f.counts[s] = n == 0 ? 1 + 2 * s : s % (n + 1) != n;
            feed(&f, of, decoding, 0, true);
        }
        bp_test_check(WORLD, bp_test_peak_end(&peak) == 0);
        bp_model_decode_free(&decoding);
        bp_free(f.logits);
        close_world(&w);
    }
}

static void what_can_not_be_done_is_refused_on_all_ranks(void **state)
{
    bp_decoding *decoding;
    world w;

    (void)state;
    open_world(&w, &gpt, 0);
    bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.lm, 1, 1, CONTEXT + 1),
                      BP_ERR_CONFIG);
    bp_test_message_has("context of 40");
    bp_test_check(WORLD, decoding == NULL);
    bp_fault_arm(bp_comm_size(WORLD) > 1 ? "base.alloc:1@1" : "base.alloc:1");
    bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.lm, 1, SLOTS, CAPACITY),
                      BP_ERR_SYSTEM);
    bp_fault_arm(NULL);
    bp_test_check(WORLD, decoding == NULL);
    const bp_model_ops *ops = w.lm->ops;
    bp_model_ops none = *ops;
    none.decode_new = NULL;
    none.decode_bytes = NULL;
    w.lm->ops = &none;
    bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.lm, 1, SLOTS, CAPACITY),
                      BP_ERR_CONFIG);
    bp_test_check(WORLD, bp_model_decode_bytes(w.lm, 1, SLOTS, CAPACITY) == 0);
    w.lm->ops = ops;
    close_world(&w);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt_decodes_as_it_scores),
        cmocka_unit_test(llama_decodes_as_it_scores),
        cmocka_unit_test(older_decoders_decode_as_they_score),
        cmocka_unit_test(scaled_positions_decode_as_they_score),
        cmocka_unit_test(capped_stacks_decode_as_they_score),
        cmocka_unit_test(other_stacks_decode_as_they_score),
        cmocka_unit_test(recurrent_models_decode_as_they_score),
        cmocka_unit_test(feed_forward_models_decode_as_they_score),
        cmocka_unit_test(gpt_neox_decodes_as_it_scores),
        cmocka_unit_test(mamba2_decodes_as_it_scores),
        cmocka_unit_test(beams_equal_fresh_sequences),
        cmocka_unit_test(long_prompts_go_piece_by_piece),
        cmocka_unit_test(a_step_allocates_nothing_and_the_plan_is_right),
        cmocka_unit_test(what_can_not_be_done_is_refused_on_all_ranks),
    };

    key = bp_rng_key_of(20261124, BP_RNG_TEST, 0, 0, 0);
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
