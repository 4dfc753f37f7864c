/* The plan of a step: which ranks of a mesh have their partner on another node, what goes over a
 * node's link, and the time of programs whose time is known. */
#include "bp_test.h"

#include "models/list.h"
#include "train/adamw.h"
#include "train/scale/step_json.h"

#include <math.h>

static const bp_model_shape SHAPE = {.family = &bp_gpt_family,
                                     .layers = 6,
                                     .width = 64,
                                     .heads = 4,
                                     .context = 32,
                                     .vocab_size = 500};

static bp_network_rates rates(double flops)
{
    bp_network_rates out;

    assert_int_equal(bp_network_rates_read(&out, NULL), BP_OK);
    out.flops = flops;
    return out;
}

static bp_step_program *program_of(const bp_mesh_shape *mesh, bool bf16, bool overlap)
{
    bp_engine_spec spec = {.seed = 1,
                           .batch = 16 * mesh->data,
                           .micro_batch = 1,
                           .schedule = BP_1F1B,
                           .tree = true,
                           .chunks = 2,
                           .overlap = overlap,
                           .sums_bf16 = bf16};
    bp_step_program *program;

    bp_test_adamw(&spec, 1e-4, 10);
    assert_int_equal(bp_step_program_new(&program, mesh, &spec, &SHAPE), BP_OK);
    return program;
}

static double sum_of(const bp_step_program *program, bool passes)
{
    double sum = 0;

    for (int s = 0; s < program->mesh.pipeline; s++)
        for (int64_t k = 0; k < program->stages[s].count; k++)
            sum += passes ? program->stages[s].ops[k].passes : program->stages[s].ops[k].flops;
    return sum;
}

static void partners_on_other_nodes_are_counted(void **state)
{
    bp_mesh_shape mesh = {.members = 1, .pipeline = 2, .data = 4, .tensor = 2};
    bp_node_layout four = bp_node_layout_of(&mesh, 4), one = bp_node_layout_of(&mesh, 1), odd;

    (void)state;
    assert_int_equal(four.node_ranks, 4);
    assert_int_equal(bp_node_crossing(&four, 1), 0); /* data 0 and 1, tensor 0 and 1 share a node */
    assert_int_equal(bp_node_crossing(&four, 2), 4);
    assert_int_equal(four.pipeline, 4);
    assert_int_equal(four.tensor, 0);
    assert_int_equal(one.pipeline + one.data[0] + one.data[1], 0);
    assert_int_equal(four.turns_here + four.turns_away, 0);
    mesh.expert = 4; /* the next rank but one is on another node, of the others some are */
    four = bp_node_layout_of(&mesh, 4);
    assert_int_equal(four.turns_here, 0);
    assert_int_equal(four.turns_away, 3);
    assert_int_equal(four.experts, 2 + 4 + 2);
    mesh.expert = 2;
    four = bp_node_layout_of(&mesh, 4);
    assert_int_equal(four.turns_here, 1);
    assert_int_equal(four.turns_away + four.experts, 0);
    mesh = (bp_mesh_shape){.members = 1, .pipeline = 1, .data = 3, .tensor = 2};
    odd = bp_node_layout_of(&mesh,
                            2); /* nodes of 3 ranks: the second group of tensor ranks is on both */
    assert_int_equal(odd.tensor, 1);
}

/* One rank: no messages, so that the time is that of compute. */
static void one_rank_takes_the_time_of_its_compute(void **state)
{
    const bp_mesh_shape mesh = {.members = 1, .pipeline = 1, .data = 1, .tensor = 1};
    bp_step_program *program = program_of(&mesh, false, true);
    bp_network_rates r = rates(1e9);
    double flops = 16.0 * 32 * bp_model_train_flops(&SHAPE);
    bp_step_time time;

    (void)state;
    bp_step_time_of(&time, program, &r, 1);
    assert_true(fabs(sum_of(program, false) / flops - 1) < 0.05); /* what a step's products take */
    assert_true(fabs(time.step / (sum_of(program, false) / 1e9 +
                                  sum_of(program, true) / r.memory_bandwidth) -
                     1) < 1e-9);
    assert_true(time.link_bytes == 0 && time.bubble < 1e-9);
    assert_string_equal(bp_step_bound(&time), "compute");
    bp_step_program_free(&program);
}

static double floats_of(const bp_step_program *program)
{
    double sum = 0;

    for (int g = 0; g < program->stages[0].group_count; g++)
        sum += (double)(program->stages[0].groups[g].units * program->stages[0].groups[g].unit);
    return sum;
}

/* A node a rank: sums and gathers each send (D - 1) / D of the parameters, to a block. */
static void bytes_over_a_link_are_those_of_the_sums(void **state)
{
    const bp_mesh_shape mesh = {.members = 1, .pipeline = 1, .data = 4, .tensor = 1};
    bp_network_rates r = rates(1e12);
    double bytes[2], seconds[2];

    (void)state;
    r.node_bandwidth = 1e7;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        bp_step_program *program = program_of(&mesh, bf16, true);
        double least = (bf16 ? 6 : 8) * floats_of(program) * 3 / 4;
        bp_step_time time;

        bp_step_time_of(&time, program, &r, 4);
        bytes[bf16] = time.link_bytes;
        seconds[bf16] = time.step;
        assert_true(time.link_bytes >= 0.9 * least && time.link_bytes <= 1.2 * least);
        bp_step_program_free(&program);
    }
    assert_true(bytes[1] < 0.8 * bytes[0] && seconds[1] < seconds[0]);
}

/* Messages that take nothing: the parts sum to the step, and the pipeline waits as its schedule
 * says. */
static void a_pipeline_waits_for_its_fill(void **state)
{
    const bp_mesh_shape mesh = {.members = 1, .pipeline = 2, .data = 1, .tensor = 1};
    bp_step_program *program = program_of(&mesh, false, true);
    bp_network_rates r = rates(1e9);
    bp_step_time time;

    (void)state;
    r.node_latency = r.inner_latency = 0;
    r.inner_bandwidth = r.node_bandwidth = r.memory_bandwidth = 1e18;
    bp_step_time_of(&time, program, &r, 1);
    assert_true(fabs(time.compute + time.cut + time.tensor + time.sums + time.gather + time.bubble -
                     time.step) < 1e-9 * time.step);
    /* the busier stage works all the time, but for one micro-batch of the other one */
    assert_true(fabs(time.bubble - (time.compute - time.cut) / 16) < 0.02 * time.step);
    bp_step_program_free(&program);
}

/* Messages in vain cost nothing where they go on beside compute, and their whole time where they do
 * not. */
static void what_goes_on_beside_compute_is_hidden(void **state)
{
    const bp_mesh_shape mesh = {.members = 1, .pipeline = 1, .data = 4, .tensor = 1};
    bp_network_rates r = rates(1e9);
    double seconds[2];

    (void)state;
    r.round_pause = 0;
    r.node_bandwidth = 1e8;
    for (int overlap = 0; overlap < 2; overlap++) {
        bp_step_program *program = program_of(&mesh, false, overlap);
        bp_step_time time;

        bp_step_time_of(&time, program, &r, 4);
        seconds[overlap] = time.step;
        bp_step_program_free(&program);
    }
    assert_true(seconds[1] < seconds[0]);
}

static void the_json_has_all_operations(void **state)
{
    const bp_mesh_shape mesh = {.members = 1, .pipeline = 2, .data = 2, .tensor = 2};
    bp_step_program *program = program_of(&mesh, false, true);
    bp_network_rates r = rates(1e9);
    json_t *json = bp_step_json(program, &r, 2), *stages = json_object_get(json, "stages");

    (void)state;
    assert_int_equal(json_array_size(stages), 2);
    for (size_t s = 0; s < 2; s++)
        assert_int_equal(json_array_size(json_object_get(json_array_get(stages, s), "ops")),
                         program->stages[s].count);
    assert_true(json_number_value(json_object_get(json, "step_seconds")) > 0);
    json_decref(json);
    bp_step_program_free(&program);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(partners_on_other_nodes_are_counted),
        cmocka_unit_test(one_rank_takes_the_time_of_its_compute),
        cmocka_unit_test(bytes_over_a_link_are_those_of_the_sums),
        cmocka_unit_test(a_pipeline_waits_for_its_fill),
        cmocka_unit_test(what_goes_on_beside_compute_is_hidden),
        cmocka_unit_test(the_json_has_all_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
