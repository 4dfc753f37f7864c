/* Small networks of many stacks, and their loss by plain loops in float64, for the tests of stacks.
 */
#include "plain_stack.h"

/* By the layer, with biases and closing norms; and with parallel branches. */
static const bp_stack BIASED_STACK = {.closing_norms = true, .rotary = true, .tied = true},
                      PARALLEL_STACK = {
                          .closing_norms = true, .rotary = true, .parallel = true, .tied = true};
const bp_model_family BIASED_FAMILY = {.name = "biased",
                                       .stack = &BIASED_STACK,
                                       .sizes = CAPPED_SIZES,
                                       .any_context = true,
                                       .objective = &bp_objective_causal,
                                       BP_STACK_FAMILY},
                      PARALLEL_FAMILY = {.name = "parallel",
                                         .stack = &PARALLEL_STACK,
                                         .sizes = CAPPED_SIZES,
                                         .any_context = true,
                                         .objective = &bp_objective_causal,
                                         BP_STACK_FAMILY};

/* Norms of queries and keys, of each head, and of all of them; and only norms after branches. */
const bp_stack HEADS_STACK = {.rms = true,
                              .rotary = true,
                              .query_norm = BP_QUERY_NORM_HEADS,
                              .no_bias = true,
                              .activation = BP_SWIGLU,
                              .tied = true},
               WHOLE_STACK = {.rms = true,
                              .rotary = true,
                              .query_norm = BP_QUERY_NORM_WHOLE,
                              .no_bias = true,
                              .activation = BP_SWIGLU,
                              .tied = true},
               FROM_ONE_STACK = {.rms = true,
                                 .gains_from_one = true,
                                 .closing_norms = true,
                                 .scales_embedding = true,
                                 .rotary = true,
                                 .rope_period = 2,
                                 .query_norm = BP_QUERY_NORM_HEADS,
                                 .no_bias = true,
                                 .activation = BP_GEGLU,
                                 .tied = true},
               CLOSING_STACK = {.closing_norms = true,
                                .closing_only = true,
                                .rotary = true,
                                .query_norm = BP_QUERY_NORM_WHOLE,
                                .tied = true};

/* State-space layers, but the second, which has attention. */
const bp_stack HYBRID_STACK = {.rms = true,
                               .rotary = true,
                               .mixer = BP_STACK_HYBRID,
                               .no_bias = true,
                               .activation = BP_SWIGLU,
                               .tied = true};

/* Of older decoders: one norm for both branches, no biases of attention, ALiBi, a norm after the
 * embedding, a bias of the logits. */
static const bp_stack OLDER_STACK = {.embedding_norm = true,
                                     .parallel = true,
                                     .one_norm = true,
                                     .no_attention_bias = true,
                                     .alibi = true,
                                     .head_bias = true};
const bp_model_family OLDER_FAMILY = {.name = "older",
                                      .stack = &OLDER_STACK,
                                      .sizes = CAPPED_SIZES,
                                      .any_context = true,
                                      .objective = &bp_objective_causal,
                                      BP_STACK_FAMILY};

bp_model_family family_of(const bp_stack *stack)
{
    bp_model_family family = CAPPED_FAMILY;

    family.name = "another";
    family.stack = stack;
    return family;
}

bp_model_shape shape_of(const bp_model_family *family)
{
    bp_model_shape shape = {.family = family,
                            .layers = L,
                            .width = C,
                            .heads = H,
                            .context = T,
                            .softmaxes = 1,
                            .stack = {.kv_heads = G,
                                      .head_width = D,
                                      .inner = F,
                                      .window = WINDOW,
                                      .score_width = SCORE_WIDTH},
                            .vocab_size = V};

    family->fill_defaults(&shape);
    return shape;
}

/* Steps and rates of decay of state-space layers near 1, where they matter. */
static void begin_steps(bp_network *network)
{
    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++) {
            bp_param *param = &network->groups[g].params[k];

            for (int64_t i = 0; param->init == BP_INIT_GIVEN && i < bp_param_floats(param); i++)
                param->value[i] = 0.4F * (float)(i % 3) - 0.5F;
        }
}

bp_model_shape mixed(bp_model_shape shape)
{
    shape.stack.experts = E;
    shape.stack.chosen = K;
    shape.stack.expert_inner = FE;
    shape.stack.balance = BALANCE;
    shape.stack.dense[0] = DENSE + 1;
    shape.family->fill_defaults(&shape);
    return shape;
}

void open_fixture(fixture *f, const bp_model_shape *shape, bp_precision precision, float dropout)
{
    bp_mesh_shape alone = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_stage_spec spec = {.most = {B, {T}}, .micro_batches = 1, .stages = 1, .schedule = BP_1F1B};
    bp_example_maker maker;

    f->balance = bp_model_balance(shape);
    bp_test_expect(bp_mesh_new(&f->mesh, MPI_COMM_WORLD, &alone), BP_OK);
    bp_test_expect(bp_gemm_new(&f->gemm, precision), BP_OK);
    bp_nn nn = {.gemm = f->gemm,
                .tensor = f->mesh->tensor,
                .tensor_ranks = 1,
                .seed = 5,
                .dropout = dropout};
    bp_test_expect(bp_model_network_new(&f->network, &nn, shape, 0, 1), BP_OK);
    bp_network_lay_out(f->network, 1);
    f->values = bp_alloc("test", f->network->floats, sizeof(float));
    bp_test_expect(bp_network_bind_values(f->network, f->values), BP_OK);
    bp_network_initialise(f->network, 7);
    for (int64_t i = 0; i < f->network->floats; i++) /* no weight too small to matter */
        f->values[i] *= f->values[i] == 1.0F ? 1.0F : 8.0F;
    begin_steps(f->network);
    bp_test_perturb(f->network, 3, 0.3F);
    bp_network_refresh(f->network);
    bp_test_expect(bp_stage_new(&f->stage, f->mesh, f->network, &spec), BP_OK);
    maker = bp_objective_causal.maker(shape, T, NULL);
    for (int i = 0; i < B * (T + 1); i++)
        f->windows[i] = (i * 19 + i * i % 7) % V;
    f->bytes = bp_alloc("test", (int64_t)bp_batch_bytes(&maker.form, B), 1);
    f->batch = bp_test_batch(&maker, f->windows, 1, 0, B, f->bytes);
    int64_t parameters = 0; /* flat memory has gaps between experts */
    for (int g = 0; g < f->network->group_count; g++)
        for (int k = 0; k < f->network->groups[g].count; k++)
            parameters += bp_param_floats(&f->network->groups[g].params[k]);
    if (shape->adapter.kind == BP_ADAPTER_NONE)
        assert_int_equal(bp_model_parameters(shape), parameters);
}

void close_fixture(fixture *f)
{
    bp_stage_free(&f->stage);
    bp_network_free(&f->network);
    bp_gemm_free(&f->gemm);
    bp_mesh_free(&f->mesh);
    bp_free(f->values);
    bp_free(f->bytes);
}

double loss_of(fixture *f)
{
    bp_stage_step step = {.batch = &f->batch, .step = 1, .loss_weight = {1}};
    double sums[BP_TERMS] = {0}, balance = 0;

    if (f->balance > 0) {
        step.balance_weight = (float)f->balance;
        step.balance_sums = &balance;
    }
    bp_network_refresh(f->network);
    bp_stage_accumulate(f->stage, &step, sums, 1);
    return sums[0] + f->balance * balance;
}

/* ---- plain loops ---- */

const bp_param *find_param(const bp_network *network, const char *name)
{
    for (int g = 0; g < network->group_count; g++)
        for (int k = 0; k < network->groups[g].count; k++)
            if (strcmp(network->groups[g].params[k].name, name) == 0)
                return &network->groups[g].params[k];
    return NULL;
}

static const float *values_of(const fixture *f, const char *name)
{
    const bp_param *param = find_param(f->network, name);

    if (!param)
        fail_msg("there is no %s", name);
    return param->value;
}

static const float *layer_values(const fixture *f, int layer, const char *part)
{
    char name[BP_PARAM_NAME];

    (void)snprintf(name, sizeof name, "h.%d.%s", layer, part);
    return values_of(f, name);
}

static void plain_product(double *y, const float *w, const double *x, int outs, int ins)
{
    for (int o = 0; o < outs; o++) {
        y[o] = 0;
        for (int i = 0; i < ins; i++)
            y[o] += (double)w[o * ins + i] * x[i];
    }
}

static void plain_norm(double *y, const double *x, const float *gain)
{
    double sum = 0;

    for (int c = 0; c < C; c++)
        sum += x[c] * x[c];
    for (int c = 0; c < C; c++)
        y[c] = x[c] * (double)gain[c] / sqrt(sum / C + 1e-6);
}

static double plain_cap(double x, double cap)
{
    return cap * tanh(x / cap);
}

static void plain_rotate(double *x, int t)
{
    for (int i = 0; i < D / 2; i++) {
        double angle = t * pow(10000, -2.0 * i / D), a = x[i], b = x[i + D / 2];

        x[i] = a * cos(angle) - b * sin(angle);
        x[i + D / 2] = b * cos(angle) + a * sin(angle);
    }
}

/* Weights of query t for keys from `first` on. */
static void plain_weights(double *weights, const double *q, const double (*keys)[G * D], int kv,
                          int first, int t)
{
    double sum = 0;

    for (int u = first; u <= t; u++) {
        double dot = 0;

        for (int d = 0; d < D; d++)
            dot += q[d] * keys[u][kv * D + d];
        weights[u] = exp(plain_cap(dot / sqrt(SCORE_WIDTH), CAPPED_STACK.score_cap));
        sum += weights[u];
    }
    for (int u = first; u <= t; u++)
        weights[u] /= sum;
}

static void plain_attention(const fixture *f, int layer, double (*h)[C])
{
    double q[T][H * D], k[T][G * D], v[T][G * D], mixed[H * D], normed[C], branch[C];

    for (int t = 0; t < T; t++) {
        plain_norm(normed, h[t], layer_values(f, layer, "ln1.gain"));
        plain_product(q[t], layer_values(f, layer, "attn.q.weight"), normed, H * D, C);
        plain_product(k[t], layer_values(f, layer, "attn.k.weight"), normed, G * D, C);
        plain_product(v[t], layer_values(f, layer, "attn.v.weight"), normed, G * D, C);
        for (int head = 0; head < H; head++)
            plain_rotate(q[t] + head * D, t);
        for (int head = 0; head < G; head++)
            plain_rotate(k[t] + head * D, t);
    }
    for (int t = 0; t < T; t++) {
        int first = layer % 2 == 0 && t >= WINDOW ? t - WINDOW + 1 : 0;

        memset(mixed, 0, sizeof mixed);
        for (int head = 0; head < H; head++) {
            double weights[T];

            plain_weights(weights, q[t] + head * D, (const double(*)[G * D]) k, head / (H / G),
                          first, t);
            for (int u = first; u <= t; u++)
                for (int d = 0; d < D; d++)
                    mixed[head * D + d] += weights[u] * v[u][head / (H / G) * D + d];
        }
        plain_product(branch, layer_values(f, layer, "attn.out.weight"), mixed, C, H * D);
        plain_norm(branch, branch, layer_values(f, layer, "attn.ln.gain"));
        for (int c = 0; c < C; c++)
            h[t][c] += branch[c];
    }
}

static double plain_gelu(double x)
{
    return x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

/* y = down(gelu(gate x) up x), of the weights "PART.gate.weight"... of a layer. */
static void plain_gated(const fixture *f, double *y, int layer, const char *part, const double *x,
                        int inner)
{
    double gate[F], up[F];
    char name[3][64];

    for (int k = 0; k < 3; k++)
        (void)snprintf(name[k], sizeof name[k], "%s.%s.weight", part,
                       (const char *const[]){"gate", "up", "down"}[k]);
    plain_product(gate, layer_values(f, layer, name[0]), x, inner, C);
    plain_product(up, layer_values(f, layer, name[1]), x, inner, C);
    for (int i = 0; i < inner; i++)
        up[i] *= plain_gelu(gate[i]);
    plain_product(y, layer_values(f, layer, name[2]), up, C, inner);
}

/* Of all rows of layers with experts: how many chose each, and the sums of shares. */
static double chose[E], shared[E];

static void plain_experts(const fixture *f, double *y, int layer, const double *x,
                          bool renormalised)
{
    double p[E], sum = 0, of_chosen = 0, one[C];
    bool chosen[E] = {false};

    plain_product(p, layer_values(f, layer, "mlp.router.weight"), x, E, C);
    for (int e = 0; e < E; e++)
        sum += exp(p[e]);
    for (int e = 0; e < E; e++) {
        p[e] = exp(p[e]) / sum;
        shared[e] += p[e];
    }
    for (int k = 0; k < K; k++) {
        int best = -1;

        for (int e = 0; e < E; e++)
            best = !chosen[e] && (best < 0 || p[e] > p[best]) ? e : best;
        chosen[best] = true;
        chose[best]++;
        of_chosen += p[best];
    }
    memset(y, 0, C * sizeof *y);
    for (int e = 0; e < E; e++) {
        char part[32];

        (void)snprintf(part, sizeof part, "mlp.experts.%d", e);
        if (chosen[e])
            plain_gated(f, one, layer, part, x, FE);
        for (int c = 0; c < C && chosen[e]; c++)
            y[c] += one[c] * p[e] / (renormalised ? of_chosen : 1);
    }
}

static double plain_balance(void)
{
    double rows = B * T * (L - 1), sum = 0;

    for (int e = 0; e < E; e++)
        sum += E * chose[e] * shared[e] / (rows * rows);
    return sum * B * T;
}

static void plain_mlp(const fixture *f, const bp_model_shape *shape, int layer, double *h)
{
    double normed[C], branch[C];

    plain_norm(normed, h, layer_values(f, layer, "ln2.gain"));
    if (shape->stack.experts > 0 && layer != DENSE)
        plain_experts(f, branch, layer, normed, shape->stack.renormalised != 0);
    else
        plain_gated(f, branch, layer, "mlp", normed, F);
    plain_norm(branch, branch, layer_values(f, layer, "mlp.ln.gain"));
    for (int c = 0; c < C; c++)
        h[c] += branch[c];
}

/* - log p of a target. */
static double plain_loss_at(const fixture *f, const double *h, int target)
{
    double normed[C], logits[V], sum = 0;

    plain_norm(normed, h, values_of(f, "ln_f.gain"));
    plain_product(logits, values_of(f, "wte"), normed, V, C);
    for (int v = 0; v < V; v++)
        sum += exp(plain_cap(logits[v], CAPPED_STACK.logit_cap));
    return log(sum) - plain_cap(logits[target], CAPPED_STACK.logit_cap);
}

double plain_loss(const fixture *f, const bp_model_shape *shape)
{
    double loss = 0;

    memset(chose, 0, sizeof chose);
    memset(shared, 0, sizeof shared);

    for (int b = 0; b < B; b++) {
        const int32_t *tokens = f->windows + b * (T + 1);
        double h[T][C];

        for (int t = 0; t < T; t++)
            for (int c = 0; c < C; c++)
                h[t][c] = sqrt(C) * (double)values_of(f, "wte")[tokens[t] * C + c];
        for (int layer = 0; layer < L; layer++) {
            plain_attention(f, layer, h);
            for (int t = 0; t < T; t++)
                plain_mlp(f, shape, layer, h[t]);
        }
        for (int t = 0; t < T; t++)
            loss += plain_loss_at(f, h[t], tokens[t + 1]);
    }
    return loss + f->balance * plain_balance();
}
