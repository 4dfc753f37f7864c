/* Families against numbers that other software computed in float64: every log-probability, every
 * gradient, five steps of AdamW. Weights and names come through the families' own tables. */
#include "reference_fixture.h"

static bool has_own_keys(const fixture *f)
{
    return f->shape.stack.kv_heads == f->shape.heads;
}

/* GPT-NeoX's three heads do not divide among two ranks: a fourth one of zeros changes nothing, and
 * has no gradient where it has keys and values of its own. */
static void round_up_heads(fixture *f, int tensor_ranks)
{
    bool own_keys = has_own_keys(f);

    while (f->shape.heads % tensor_ranks != 0)
        f->shape.heads++;
    if (own_keys)
        f->shape.stack.kv_heads = f->shape.heads;
}

/* A tensor of a folder in the shape that the network has it in; the caller's. */
static float *in_shape(const bp_param *param, const float *data, const int64_t *shape)
{
    int64_t rows = param->dims == 2 ? shape[0] : 1, last = param->dims - 1;
    float *out = bp_alloc("test", param->shape[0] * (last ? param->shape[1] : 1), sizeof *out);

    for (int64_t r = 0; r < rows; r++)
        memcpy(out + r * param->shape[last], data + r * shape[last],
               (size_t)shape[last] * sizeof *out);
    return out;
}

/* Ours of the folder's, whole; the caller's. */
static float *weight_of(fixture *f, const bp_param *param)
{
    int64_t count;
    const bp_slice *slices = bp_hf_slices(f->model, &count);
    const float *data = NULL;

    for (int64_t k = 0; k < count; k++)
        if (strcmp(slices[k].name, param->name) == 0) {
            bp_test_expect(bp_hf_fetch(f->model, &slices[k], k, &data), BP_OK);
            return in_shape(param, data, slices[k].shape);
        }
    fail_msg("%s has no %s", f->folder, param->name);
    return NULL;
}

static void take_slab(const bp_param *param, float *to, const float *whole)
{
    int64_t rows = param->dims == 2 ? param->extent[0] : 1, last = param->dims - 1;
    int64_t first_row = param->dims == 2 ? param->offset[0] : 0;

    for (int64_t r = 0; r < rows; r++)
        memcpy(to + r * param->extent[last],
               whole + (first_row + r) * param->shape[last] + param->offset[last],
               (size_t)param->extent[last] * sizeof *to);
}

/* The expected gradient of one of ours, whole; the caller's. */
static float *gradient_of(fixture *f, const bp_param *param)
{
    int64_t count = param->shape[0] * (param->dims == 2 ? param->shape[1] : 1), shape[2];
    float *ours = bp_alloc("test", count, sizeof *ours), *out = NULL;

    for (int64_t k = 0; k < hf_tensor_count(&f->hf); k++) {
        hf_tensor theirs;

        hf_tensor_of(&theirs, &f->hf, k);
        for (int p = 0; p < theirs.parts; p++) {
            char name[2 * HF_NAME];

            if (strcmp(theirs.ours[p], param->name) != 0)
                continue;
            snprintf(name, sizeof name, "%s.%s%s", f->smoothed ? "grad_smoothed" : "grad",
                     hf_name_is_bare(f->hf.table, theirs.name) ? "" : f->hf.table->prefix,
                     theirs.name);
            const bp_safetensor *tensor = bp_safetensors_find(f->expected, name);
            assert_non_null(tensor);
            float *whole = bp_alloc("test", tensor->count, sizeof *whole);
            bp_test_expect(bp_safetensors_read(f->expected, tensor, 0, tensor->count, whole),
                           BP_OK);
            hf_take_part(ours, whole, &theirs, p);
            hf_part_shape(&theirs, p, shape);
            out = in_shape(param, ours, shape);
            bp_free(whole);
        }
    }
    bp_free(ours);
    return out;
}

/* A stage of the network, with the folder's weights. */
typedef struct parts {
    bp_mesh *mesh;
    bp_gemm *gemm;
    bp_network *network;
    bp_stage *stage;
    float *values;
} parts;

static void open_parts(parts *p, fixture *f, int tensor_ranks)
{
    int size = bp_comm_size(MPI_COMM_WORLD);
    bp_mesh_shape mesh = {1, size / tensor_ranks, 1, tensor_ranks, BP_COORDINATOR_SHARED};
    bp_stage_spec spec = {.most = {f->B, {f->T, f->S}}, .micro_batches = 1, .schedule = BP_1F1B};

    bp_test_expect(bp_mesh_new(&p->mesh, MPI_COMM_WORLD, &mesh), BP_OK);
    bp_test_expect(bp_gemm_new(&p->gemm, BP_F32), BP_OK);
    bp_nn nn = {.gemm = p->gemm,
                .tensor = p->mesh->tensor,
                .tensor_rank = p->mesh->tensor_rank,
                .tensor_ranks = tensor_ranks,
                .label_smoothing = f->smoothed ? SMOOTHING : 0};
    bp_test_expect(
        bp_model_network_new(&p->network, &nn, &f->shape, p->mesh->pipeline_rank, mesh.pipeline),
        BP_OK);
    bp_network_lay_out(p->network, 1);
    p->values = bp_alloc("test", p->network->floats, sizeof(float));
    bp_test_expect(bp_network_bind_values(p->network, p->values), BP_OK);
    for (int g = 0; g < p->network->group_count; g++)
        for (int k = 0; k < p->network->groups[g].count; k++) {
            bp_param *param = &p->network->groups[g].params[k];
            float *whole = weight_of(f, param);

            take_slab(param, param->value, whole);
            bp_free(whole);
        }
    bp_network_refresh(p->network);
    spec.stage = p->mesh->pipeline_rank;
    spec.stages = mesh.pipeline;
    bp_test_expect(bp_stage_new(&p->stage, p->mesh, p->network, &spec), BP_OK);
}

static void close_parts(parts *p)
{
    bp_stage_free(&p->stage);
    bp_network_free(&p->network);
    bp_gemm_free(&p->gemm);
    bp_mesh_free(&p->mesh);
    bp_free(p->values);
}

/* Log-probabilities of each end at each place that is no padding, by the folder's logits of it. */
static double span_logprob(const fixture *f, const float *logits, int64_t b, int64_t t)
{
    double norm = 0;

    for (int64_t k = 0; k < f->lengths[b]; k++)
        norm += exp((double)logits[b * f->T + k]);
    return (double)logits[b * f->T + t] - log(norm);
}

static void check_spans(fixture *f, parts *p)
{
    static const char *const ENDS[] = {"start_logits", "end_logits"};
    bp_batch batch = batch_of(f);
    double sums[BP_TERMS];
    int64_t counts[BP_TERMS], count = f->B * f->T;
    float *logits = bp_alloc("test", count, sizeof *logits);

    bp_stage_evaluate(p->stage, &(bp_evaluation){.batch = &batch}, sums, counts);
    for (int end = 0; end < 2; end++) {
        const int32_t *targets = end == 0 ? f->targets : f->next;
        double expected = 0;

        bp_test_expect(bp_safetensors_read(f->expected, bp_safetensors_find(f->expected, ENDS[end]),
                                           0, count, logits),
                       BP_OK);
        for (int64_t b = 0; b < f->B; b++)
            expected -= span_logprob(f, logits, b, targets[b]);
        bp_test_check(MPI_COMM_WORLD,
                      p->mesh->pipeline_rank < p->mesh->pipeline_ranks - 1 ||
                          (counts[end] == f->B && fabs(sums[end] - expected) < 3e-5));
    }
    bp_free(logits);
}

/* Each word of the vocabulary in turn is the target of one place before any padding, others go
 * unscored. */
static void check_probabilities(fixture *f, parts *p)
{
    int64_t T = f->T, V = f->V, positions = f->B * T,
            count = f->B * (f->a_text ? 1 : f->stored) * V;
    const bp_safetensor *tensor = bp_safetensors_find(f->expected, "logits");
    float *logits = bp_alloc("test", count, sizeof *logits);
    int32_t *targets = bp_alloc("test", positions, sizeof *targets);
    double worst = 0;

    bp_test_expect(bp_safetensors_read(f->expected, tensor, 0, count, logits), BP_OK);
    for (int32_t v = 0; v < V; v++) {
        int64_t place = v * 7 % positions;
        bp_batch batch = batch_of(f);
        double sums[BP_TERMS], norm = 0;
        int64_t counts[BP_TERMS];
        const float *row;

        if (f->lengths && place % T >= f->lengths[place / T])
            continue;
        row = logits + (f->a_text ? place / T : place / T * f->stored + place % T) * V;
        batch.term[0].targets = targets; /* of a text's state any place may ask */
        batch.term[0].count = T;
        for (int64_t k = 0; k < positions; k++)
            targets[k] = k == place ? v : -1;
        bp_stage_evaluate(p->stage, &(bp_evaluation){.batch = &batch}, sums, counts);
        for (int64_t k = 0; k < V; k++)
            norm += exp((double)row[k]);
        if (p->mesh->pipeline_rank == p->mesh->pipeline_ranks - 1)
            worst = fmax(worst, fabs(-sums[0] - ((double)row[v] - log(norm))));
    }
    bp_free(logits);
    bp_free(targets);
    if (!(worst < 1e-5))
        print_error("%s: a log-probability is off by %g\n", f->folder, worst);
    bp_test_check(MPI_COMM_WORLD, worst < 1e-5);
}

static bool gradient_agrees(fixture *f, const bp_param *param, const float *mine)
{
    int64_t count = bp_param_floats(param),
            all = param->shape[0] * (param->dims == 2 ? param->shape[1] : 1);
    float *whole = gradient_of(f, param), *slab = bp_alloc("test", count, sizeof *slab);
    double worst = 0, largest = 0, all_norm = json_real_value(figure(f, "grad_norm"));

    take_slab(param, slab, whole);
    for (int64_t i = 0; i < all; i++)
        largest = fmax(largest, fabs((double)whole[i]));
    for (int64_t i = 0; i < count; i++)
        worst = fmax(worst, fabs((double)(mine[i] - slab[i])));
    bp_free(whole);
    bp_free(slab);
    /* some are 0 but for rounding: a key's bias adds a constant to all of a query's scores */
    double allowed = 1e-4 * largest + 1e-6 * all_norm;
    if (!(worst <= allowed))
        print_error("%s, gradient of %s: off by %g of %g\n", f->folder, param->name, worst,
                    largest);
    return worst <= allowed && largest > 0;
}

/* Of experts: the stages have parts of it. */
static void check_balance(fixture *f, parts *p, double balance)
{
    double expected = json_real_value(figure(f, "aux_loss"));

    bp_all_sum_double(&balance, 1, p->mesh->pipeline);
    if (!(fabs(balance / (double)(f->B * f->T) - expected) < 1e-5))
        print_error("%s: the balance loss is %.9g, not %.9g\n", f->folder,
                    balance / (double)(f->B * f->T), expected);
    bp_test_check(MPI_COMM_WORLD, fabs(balance / (double)(f->B * f->T) - expected) < 1e-5);
}

static void check_gradients(fixture *f, parts *p)
{
    bp_batch batch = batch_of(f);
    bp_stage_step step = {.batch = &batch, .step = 1};
    double sums[BP_TERMS] = {0}, balance = 0;
    float scratch[1024], sums_of[8192]; /* of common and of partial groups */
    bool agrees = true;

    for (int t = 0; t < 2; t++)
        step.loss_weight[t] = batch.term[t].count > 0
                                  ? (float)(bp_model_objective(&f->shape)->weight[t] /
                                            (double)bp_batch_scored(&batch, t))
                                  : 0;
    if (bp_model_balance(&f->shape) > 0) {
        step.balance_weight = (float)(bp_model_balance(&f->shape) / (double)(f->B * f->T));
        step.balance_sums = &balance;
    }
    bp_stage_accumulate(p->stage, &step, sums, 1);
    check_balance(f, p, balance);
    for (int g = 0; g < p->network->group_count; g++)
        for (int k = 0; k < p->network->groups[g].count; k++) {
            const bp_group *group = &p->network->groups[g];
            const bp_param *param = &group->params[k];
            /* a tied table's gradient lies in parts on two stages */
            bool in_parts = (group->tied && p->mesh->pipeline_ranks > 1) || group->frozen;

            if (group->common && k == 0) /* as the engine does it */
                bp_all_sum(p->stage->gradient + group->place, group->floats, scratch,
                           p->mesh->pipeline);
            if (group->partial && k == 0)
                bp_all_sum(p->stage->gradient + group->place, group->floats, sums_of,
                           p->mesh->tensor);
            agrees =
                (in_parts ||
                 gradient_agrees(f, param, p->stage->gradient + group->place + param->place)) &&
                agrees;
        }
    bp_test_check(MPI_COMM_WORLD, agrees);
}

/* Each place's logit, from its loss alone: log(1 + exp(z)) of a token that is the text's. */
static void check_judgements(fixture *f, parts *p)
{
    int64_t T = f->T, positions = f->B * T, count = f->B * f->stored;
    const bp_safetensor *tensor = bp_safetensors_find(f->expected, "logits");
    float *logits = bp_alloc("test", count, sizeof *logits);
    int32_t *targets = bp_alloc("test", positions, sizeof *targets);
    double worst = 0;

    bp_test_expect(bp_safetensors_read(f->expected, tensor, 0, count, logits), BP_OK);
    for (int64_t place = 0; place < positions; place++) {
        bp_batch batch = batch_of(f);
        double sums[BP_TERMS];
        int64_t counts[BP_TERMS];

        if (place % T >= f->lengths[place / T])
            continue;
        batch.term[BP_ELECTRA_REPLACED].targets = targets;
        for (int64_t k = 0; k < positions; k++)
            targets[k] = k == place ? f->inputs[k] : -1;
        bp_stage_evaluate(p->stage, &(bp_evaluation){.batch = &batch}, sums, counts);
        double z = (double)logits[place / T * f->stored + place % T];
        bp_test_check(MPI_COMM_WORLD, counts[BP_ELECTRA_REPLACED] == 1);
        worst = fmax(worst, fabs(sums[BP_ELECTRA_REPLACED] - log1p(exp(z))));
    }
    bp_free(logits);
    bp_free(targets);
    bp_test_check(MPI_COMM_WORLD, worst < 1e-5);
}

/* Of BERT both losses of the first step; half of ELECTRA has one. Others have no parts. */
static void check_terms(const fixture *f, const bp_step_result *result, int step)
{
    const bp_objective *objective = bp_model_objective(&f->shape);
    bool both = json_object_get(f->figures, "nsp_loss") != NULL,
         half = f->shape.family->objective == &f->objective;

    for (int t = 0; t < BP_TERMS; t++)
        bp_test_check(MPI_COMM_WORLD,
                      isnan(result->term[t]) == !(t < objective->terms && objective->term[t] &&
                                                  (t == 0 ? !f->judges
                                                   : half ? f->judges
                                                          : f->next && t == 1)));
    if (both && step == 1)
        bp_test_check(MPI_COMM_WORLD,
                      fabs(result->term[0] - json_real_value(figure(f, "mlm_loss"))) < 1e-5 &&
                          fabs(result->term[1] - json_real_value(figure(f, "nsp_loss"))) < 1e-5);
    if (half)
        bp_test_check(MPI_COMM_WORLD,
                      result->term[f->judges ? BP_ELECTRA_REPLACED : 0] == result->loss);
}

static void check_adamw(fixture *f, int tensor_ranks)
{
    int size = bp_comm_size(MPI_COMM_WORLD),
        data = size / tensor_ranks % 2 == 0 && f->B % 2 == 0 ? 2 : 1;
    bp_mesh_shape mesh_shape = {1, size / data / tensor_ranks, data, tensor_ranks,
                                BP_COORDINATOR_SHARED};
    bp_engine_spec spec = {
        .batch = f->B, .micro_batch = 1, .schedule = BP_1F1B, .tree = true, .overlap = true};
    bp_model_shape shape = f->shape;
    mesh_shape.expert =
        bp_model_experts(&shape) % data == 0 ? data : 1; /* they share experts out */
    bool balanced = bp_model_balance(&shape) > 0;        /* a loss of whole micro-batches */
    bp_mesh *mesh;
    bp_engine *engine;
    bp_slice *slices;
    int64_t count, first;

    bp_test_adamw(&spec, 1e-3, 5);
    if (balanced) { /* each data rank has the same texts */
        spec.micro_batch = f->B;
        spec.batch = f->B * data;
    }
    if (shape.task.kind == BP_TASK_SPANS || /* four ranks can't share 14 rows */
        shape.family->unlimited)
        spec.sequence_parallel = BP_SEQUENCE_PARALLEL_NO;
    spec.label_smoothing = f->smoothed ? SMOOTHING : 0;
    if (shape.family->any_context)
        shape.context = f->T > f->S ? f->T : f->S;
    bp_test_expect(bp_mesh_new(&mesh, MPI_COMM_WORLD, &mesh_shape), BP_OK);
    bp_test_expect(bp_engine_new(&engine, mesh, &spec, &shape), BP_OK);
    slices = bp_engine_slices_to_load(engine, true, &count);
    for (int64_t k = 0; k < count; k++) {
        bp_param param = {.dims = slices[k].dims};
        float *whole;

        snprintf(param.name, sizeof param.name, "%.90s", slices[k].name);
        memcpy(param.shape, slices[k].shape, sizeof param.shape);
        memcpy(param.offset, slices[k].offset, sizeof param.offset);
        memcpy(param.extent, slices[k].extent, sizeof param.extent);
        whole = weight_of(f, &param);
        take_slab(&param, slices[k].data, whole);
        bp_free(whole);
    }
    bp_free(slices);
    bp_engine_loaded(engine);
    bp_engine_slots(engine, &first, &count);
    bp_batch all = batch_of(f), mine = bp_batch_part(&all, balanced ? 0 : first, count);
    for (int step = 1; step <= 5; step++) {
        bp_step_result result;
        double expected =
            json_real_value(json_array_get(figure(f, "adamw_losses"), (size_t)step - 1));
        double norm = json_real_value(figure(f, "grad_norm"));

        bp_engine_step(engine, step, step, &mine, &result);
        if (fabs(result.loss - expected) >= 1e-5)
            print_error("%s, step %d: loss %.9g, not %.9g\n", f->folder, step, result.loss,
                        expected);
        bp_test_check(MPI_COMM_WORLD, fabs(result.loss - expected) < 1e-5);
        bp_test_check(MPI_COMM_WORLD, step > 1 || fabs(result.grad_norm - norm) < 1e-4);
        check_terms(f, &result, step);
    }
    bp_engine_free(&engine);
    bp_mesh_free(&mesh);
}

static void check_family(const char *folder, int tensor_ranks, bool smoothed)
{
    fixture f;
    parts p = {0};

    open_fixture(&f, folder, NULL);
    f.smoothed = smoothed;
    check_old_config(&f);
    if (f.shape.heads % tensor_ranks != 0 && f.shape.family->stack &&
        (!has_own_keys(&f) || f.shape.family->stack->alibi)) { /* slopes go by all heads */
        close_fixture(&f);
        return;
    }
    round_up_heads(&f, tensor_ranks);
    open_parts(&p, &f, tensor_ranks);
    if (f.shape.task.kind == BP_TASK_SPANS)
        check_spans(&f, &p);
    else if (f.judges)
        check_judgements(&f, &p);
    else
        check_probabilities(&f, &p);
    check_gradients(&f, &p);
    close_parts(&p);
    check_adamw(&f, tensor_ranks);
    close_fixture(&f);
}

/* ELECTRA has one stage, and the generator three heads; Mamba-2's norm would know of more heads. */
static bool goes_on(const char *folder, int size, int tensor_ranks)
{
    if (strstr(folder, "mamba2"))
        return tensor_ranks <= 2;
    return !strstr(folder, "electra") ||
           (tensor_ranks == size && (tensor_ranks == 1 || strstr(folder, "discriminator")));
}

static void families_are_the_references(void **state)
{
    static const char *const FOLDERS[] = {"llama-tiny",
                                          "qwen3-tiny",
                                          "olmo2-tiny",
                                          "gemma2-tiny",
                                          "smollm3-tiny",
                                          "granite-tiny",
                                          "gemma3-tiny",
                                          "phi3-tiny",
                                          "mistral-tiny",
                                          "qwen2-tiny",
                                          "llama-llama3-tiny",
                                          "llama-yarn-tiny",
                                          "llama-dynamic-tiny",
                                          "gpt_neox-tiny",
                                          "mamba2-tiny",
                                          "mixtral-tiny",
                                          "olmoe-tiny",
                                          "qwen3_moe-tiny",
                                          "opt-tiny",
                                          "opt-350m-tiny",
                                          "openai-gpt-tiny",
                                          "gptj-tiny",
                                          "bloom-tiny",
                                          "bert-tiny",
                                          "roberta-tiny",
                                          "xlm-roberta-tiny",
                                          "distilbert-tiny",
                                          "modernbert-tiny",
                                          "deberta-v3-tiny",
                                          "deberta-v2-sequence-tiny",
                                          "bert-sequence-tiny",
                                          "bert-token-tiny",
                                          "bert-span-tiny",
                                          "electra-generator-tiny",
                                          "electra-discriminator-tiny"};
    int size = bp_comm_size(MPI_COMM_WORLD);

    (void)state;
    for (size_t k = 0; k < sizeof FOLDERS / sizeof FOLDERS[0]; k++)
        for (int tensors = 1; tensors <= size; tensors *= 2) /* of 4: two key heads on four ranks */
            if (size % tensors == 0 && goes_on(FOLDERS[k], size, tensors))
                check_family(FOLDERS[k], tensors, false);
}

static void encoder_decoders_are_the_references(void **state)
{
    static const char *const FOLDERS[] = {"transformer-tiny", "bart-tiny",   "t5-tiny",
                                          "t5-plain-tiny",    "mt5-tiny",    "marian-tiny",
                                          "mbart-tiny",       "m2m_100-tiny"};
    int size = bp_comm_size(MPI_COMM_WORLD);

    (void)state;
    for (size_t k = 0; k < sizeof FOLDERS / sizeof FOLDERS[0]; k++)
        for (int tensors = 1; tensors <= size; tensors *= 2)
            for (int smoothed = 0; size % tensors == 0 && smoothed < 2; smoothed++)
                check_family(FOLDERS[k], tensors, smoothed);
}

/* Whose values are of 16 and of 8 bits: the figures are of what the files hold. */
static void files_of_gguf_are_the_references(void **state)
{
    static const char *const FILES[] = {"llama-tiny-f16.gguf", "llama-tiny-q8_0.gguf"};
    int size = bp_comm_size(MPI_COMM_WORLD);

    (void)state;
    for (int k = 0; k < 2; k++)
        for (int tensors = 1; tensors <= size; tensors *= 2) {
            fixture f;
            parts p = {0};

            if (size % tensors != 0)
                continue;
            open_fixture(&f, "gguf-tiny", FILES[k]);
            round_up_heads(&f, tensors);
            open_parts(&p, &f, tensors);
            check_probabilities(&f, &p);
            close_parts(&p);
            close_fixture(&f);
        }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_are_the_references),
        cmocka_unit_test(files_of_gguf_are_the_references),
        cmocka_unit_test(encoder_decoders_are_the_references)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
