/* A stack with all that Gemma 2 has (capped_family.h): its loss is that of plain loops in float64,
 * and its gradient is the slope of its loss, along each tensor's gradient, by central differences.
 * So is that of stacks whose closing norms have biases, and of stacks with experts. */
#include "plain_stack.h"

static void check_loss(const bp_model_shape *shape, bp_precision precision, double share)
{
    fixture f = {0};
    double loss, plain;

    open_fixture(&f, shape, precision, 0);
    loss = loss_of(&f);
    plain = plain_loss(&f, shape);
    if (!(fabs(loss - plain) < share * plain))
        fail_msg("the loss is %.9g, plain loops say %.9g", loss, plain);
    close_fixture(&f);
}

/* In bf16 within its rounding. */
static void loss_is_that_of_plain_loops(void **state)
{
    bp_model_shape shape = shape_of(&CAPPED_FAMILY);

    (void)state;
    check_loss(&shape, BP_F32, 2e-6);
    if (bp_math_has_bf16())
        check_loss(&shape, BP_BF16, 1e-2);
}

static void loss_of_experts_is_that_of_plain_loops(void **state)
{
    bp_model_shape shape = mixed(shape_of(&CAPPED_FAMILY));

    (void)state;
    for (int renormalised = 0; renormalised < 2; renormalised++) {
        shape.stack.renormalised = renormalised;
        check_loss(&shape, BP_F32, 2e-6);
        if (bp_math_has_bf16()) /* which may choose otherwise where it is narrow */
            check_loss(&shape, BP_BF16, 2e-2);
    }
}

/* ---- slopes ---- */

static double slope_of(fixture *f, bp_param *param, const float *gradient, double norm)
{
    int64_t n = bp_param_floats(param);
    float *kept = bp_alloc("test", n, sizeof *kept);
    double step = norm > 50 ? 1e-4 : norm > 10 ? 5e-4 : 2e-3, loss[2]; /* steep is curved, too */

    memcpy(kept, param->value, (size_t)n * sizeof *kept);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < n; i++)
            param->value[i] = kept[i] + (float)((side ? step : -step) * (double)gradient[i] / norm);
        loss[side] = loss_of(f);
    }
    memcpy(param->value, kept, (size_t)n * sizeof *kept);
    bp_free(kept);
    return (loss[1] - loss[0]) / (2 * step);
}

static void check_slopes(const bp_model_shape *shape, int tensor_ranks)
{
    fixture f = {0};
    float *gradients;
    int checked = 0;

    open_fixture(&f, shape, BP_F32, 0.2F);
    assert_true(isfinite(loss_of(&f)));
    gradients = bp_alloc("test", f.network->gradient_floats, sizeof *gradients);
    memcpy(gradients, f.stage->gradient, (size_t)f.network->gradient_floats * sizeof *gradients);
    for (int g = 0; g < f.network->group_count; g++)
        for (int k = 0; !f.network->groups[g].frozen && k < f.network->groups[g].count;
             k++, checked++) {
            bp_group *group = &f.network->groups[g];
            bp_param *param = &group->params[k];
            const float *gradient = gradients + group->place + param->place;
            double norm = 0, slope;

            for (int64_t i = 0; i < bp_param_floats(param); i++)
                norm += (double)gradient[i] * (double)gradient[i];
            norm = sqrt(norm);
            assert_true(norm > 1e-3);
            slope = slope_of(&f, param, gradient, norm);
            if (!(fabs(slope - norm) < 5e-3 * norm + 1e-3))
                fail_msg("%s: the slope is %g, the gradient says %g", param->name, slope, norm);
        }
    assert_int_equal(checked, tensor_ranks);
    bp_free(gradients);
    close_fixture(&f);
}

static void gradients_are_slopes(void **state)
{
    bp_model_shape capped = shape_of(&CAPPED_FAMILY), biased = shape_of(&BIASED_FAMILY),
                   parallel = shape_of(&PARALLEL_FAMILY), older = shape_of(&OLDER_FAMILY);

    (void)state;
    check_slopes(&capped, 2 + 11 * L);
    check_slopes(&biased, 3 + 20 * L);
    check_slopes(&parallel, 3 + 20 * L);
    check_slopes(&older, 7 + 10 * L);
    biased.adapter = (bp_adapter){.kind = BP_ADAPTER_BOTTLENECK, .rank = 3};
    check_slopes(&biased, 2 * 4 * L);
}

static void gradients_of_other_stacks_are_slopes(void **state)
{
    static const struct {
        const bp_stack *stack;
        int tensors; /* of a layer */
    } CASES[] = {
        {&HEADS_STACK, 11}, {&WHOLE_STACK, 11}, {&CLOSING_STACK, 18}, {&FROM_ONE_STACK, 13}};

    (void)state;
    for (size_t k = 0; k < 2 * sizeof CASES / sizeof *CASES; k++) {
        bp_model_family family = family_of(CASES[k / 2].stack);
        bp_model_shape shape = shape_of(&family);

        if (k % 2 == 1) { /* with multipliers */
            shape.stack.embedding_scale = 1.7;
            shape.stack.score_scale = 0.2;
            shape.stack.branch_scale = 0.6;
            shape.stack.logit_divisor = 1.4;
        }

        check_slopes(&shape, (CASES[k / 2].stack->rms ? 2 : 3) + CASES[k / 2].tensors * L);
    }
}

static void gradients_of_hybrid_stacks_are_slopes(void **state)
{
    bp_model_family family = family_of(&HYBRID_STACK);
    bp_model_shape shape = shape_of(&family);

    (void)state;
    shape.stack.attention_layers[0] = 2;
    shape.stack.groups = 2;
    shape.stack.state = 5;
    for (int k = 0; k < 2; k++) {
        shape.stack.branch_scale = k == 0 ? 0 : 0.6;
        check_slopes(&shape, 2 + 9 + 18 * (L - 1));
    }
    shape.adapter = (bp_adapter){.kind = BP_ADAPTER_BOTTLENECK, .rank = 3};
    check_slopes(&shape, 4 * (2 + L - 1)); /* without attention only after the MLP */
}

static void gradients_of_experts_are_slopes(void **state)
{
    bp_model_shape capped = mixed(shape_of(&CAPPED_FAMILY)), whole;
    bp_model_family family = family_of(&WHOLE_STACK);

    (void)state;
    check_slopes(&capped, 2 + 11 * L + (L - 1) * (1 + 3 * E - 3));
    whole = mixed(shape_of(&family));
    whole.stack.renormalised = 1;
    whole.stack.clip = 2.1; /* no choice changes within a step, and no clip */
    check_slopes(&whole, 2 + 11 * L + (L - 1) * (1 + 3 * E - 3));
}

/* ---- what does not go together ---- */

static bool takes_samples(const bp_model_shape *shape)
{
    static const bp_option *const NO_TABLES[] = {NULL};
    const bp_mesh_shape alone = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_engine_spec spec = {.batch = 1, .micro_batch = 1, .tree = true, .softmax_samples = 4};
    bp_config *faults = NULL;
    bool takes;

    spec.optimizer.layer_decay = 1;
    bp_test_expect(bp_config_new(&faults, NO_TABLES, NO_TABLES), BP_OK);
    bp_engine_spec_check(&spec, shape, &alone, faults);
    takes = bp_config_faults(faults) == BP_OK;
    if (!takes)
        assert_non_null(strstr(bp_err_message(), "[train.no_samples]"));
    bp_config_free(&faults);
    return takes;
}

/* Samples would have no cap; a task's head has none. */
static void capped_logits_are_not_sampled(void **state)
{
    bp_model_shape capped = shape_of(&CAPPED_FAMILY), plain = shape_of(&BIASED_FAMILY);

    (void)state;
    assert_false(takes_samples(&capped));
    assert_true(takes_samples(&plain));
    capped.task = (bp_task_shape){.kind = BP_TASK_CLASSES, .outcomes = 3};
    assert_true(takes_samples(&capped));
    capped.task.lm_weight = 1;
    assert_false(takes_samples(&capped));
}

/* The head of words beside a task's is the stack's own: its norm, and its cap. */
static void words_beside_a_task_have_the_stacks_norm(void **state)
{
    const bp_nn nn = {.tensor = MPI_COMM_NULL, .tensor_ranks = 1};
    bp_stack stack = CAPPED_STACK;
    bp_model_family family = CAPPED_FAMILY;
    bp_model_shape shape;

    (void)state;
    stack.keeps_words = true;
    family.stack = &stack;
    for (int rms = 0; rms < 2; rms++) {
        bp_network *network = NULL;

        stack.rms = rms != 0;
        shape = shape_of(&family);
        shape.task = (bp_task_shape){
            .kind = BP_TASK_CLASSES, .outcomes = 3, .pool = BP_POOL_LAST, .lm_weight = 1};
        bp_test_expect(bp_model_network_new(&network, &nn, &shape, 0, 1), BP_OK);
        assert_non_null(find_param(network, "ln_f.gain"));
        assert_int_equal(find_param(network, "ln_f.bias") == NULL, rms);
        assert_true(bp_stack_backbone(&shape).cap == 2);
        bp_network_free(&network);
    }
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_is_that_of_plain_loops),
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(loss_of_experts_is_that_of_plain_loops),
        cmocka_unit_test(gradients_of_experts_are_slopes),
        cmocka_unit_test(gradients_of_other_stacks_are_slopes),
        cmocka_unit_test(gradients_of_hybrid_stacks_are_slopes),
        cmocka_unit_test(capped_logits_are_not_sampled),
        cmocka_unit_test(words_beside_a_task_have_the_stacks_norm)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
