/* Decoding against scoring, which computes whole windows without a cache: every outcome of every
 * token of every family. */
#include "bp_test_mpi.h"

#include "capped_family.h"
#include "decoding_world.h"

#include "base/process/heartbeat.h"
#include "models/list.h"

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

/* Log-probabilities of a sequence as scoring has them, without a cache: a window an outcome. */
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
    bp_test_check_err(WORLD, bp_model_score(w->model, &batch, values), BP_OK);
    bp_heartbeat_read(&after); /* each block of a batch, which may take long, is progress */
    bp_test_check(WORLD, after.progress - before.progress >=
                             ((network_model *)w->model)->network->block_count - 1);
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

    whole_logprobs(lp, w, f->logits + s * w->model->info.vocab_count);
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

#define UNTOUCHED 12345.0f

/* Prompts of several lengths, then a token at a time, or two, or none; two groups in turn. */
static void decode_some(const world *w, bp_decoding *decoding, bool again)
{
    static const int32_t prompts[GROUPS][SLOTS] = {{7, 1, 12, 0, 5}, {3, 9, 1, 2, 17}};
    sequence of[GROUPS][SLOTS] = {0};
    int64_t here = w->model->info.vocab_count;
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
    bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.model, GROUPS, SLOTS, CAPACITY),
                      BP_OK);
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
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
