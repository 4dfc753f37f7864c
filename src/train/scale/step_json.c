/* Writes a step's program for a simulator. */
#include "train/scale/step_json.h"

static json_t *op_json(const bp_step_program *program, const bp_step_stage *stage,
                       const bp_step_op *op, const bp_network_rates *rates,
                       const bp_node_layout *layout)
{
    const char *name = bp_step_kind_names[op->kind];
    bool gathers = op->kind == BP_STEP_GATHER;

    switch (op->kind) {
    case BP_STEP_COMPUTE:
        return json_pack(
            "[s, o]", name,
            bp_json_real(op->flops / rates->flops + op->passes / rates->memory_bandwidth));
    case BP_STEP_RECEIVE:
    case BP_STEP_SEND:
        return json_pack("[s, i, o]", name, (int)op->backward, bp_json_real(op->bytes));
    case BP_STEP_TENSOR:
        return json_pack("[s, i, o]", name, op->rounds, bp_json_real(op->bytes));
    case BP_STEP_EXPERTS:
        return json_pack("[s, o, o, o, i]", name, bp_json_real(op->flops / rates->flops),
                         bp_json_real(op->bytes), bp_json_real(op->back), op->rounds);
    case BP_STEP_REDUCE:
    case BP_STEP_GATHER:
        return json_pack("[s, i, o]", name, op->group,
                         bp_json_real(bp_step_collective_of(program, &stage->groups[op->group],
                                                            gathers, rates, layout)
                                          .stolen));
    case BP_STEP_GATHERED:
        return json_pack("[s, i]", name, op->group);
    case BP_STEP_TIED:
        return json_pack("[s, o]", name, bp_json_real(op->bytes));
    case BP_STEP_AGREE:
        return json_pack("[s, i]", name, op->rounds);
    default:
        return json_pack("[s]", name);
    }
}

static json_t *stage_json(const bp_step_program *program, const bp_step_stage *stage,
                          const bp_network_rates *rates, const bp_node_layout *layout)
{
    json_t *ops = json_array(), *groups = json_array();

    for (int g = 0; g < stage->group_count; g++) {
        const bp_step_group *group = &stage->groups[g];

        (void)json_array_append_new(groups, json_pack("[I, I, i, i]", (json_int_t)group->units,
                                                      (json_int_t)group->unit, group->holders,
                                                      group->stride));
    }
    for (int64_t k = 0; k < stage->count; k++)
        (void)json_array_append_new(ops, op_json(program, stage, &stage->ops[k], rates, layout));
    return json_pack("{s:o, s:o}", "groups", groups, "ops", ops);
}

static json_t *rates_json(const bp_network_rates *rates)
{
    json_t *out = json_object();

    for (const bp_option *option = bp_network_options; option->key; option++)
        (void)json_object_set_new(
            out, option->key,
            bp_json_real(*(const double *)(const void *)((const char *)rates + option->at - 1)));
    return out;
}

json_t *bp_step_json(const bp_step_program *program, const bp_network_rates *rates, int nodes)
{
    bp_node_layout layout = bp_node_layout_of(&program->mesh, nodes);
    json_t *stages = json_array();
    bp_step_time time;

    bp_step_time_of(&time, program, rates, nodes);
    for (int s = 0; s < program->mesh.pipeline; s++)
        (void)json_array_append_new(stages,
                                    stage_json(program, &program->stages[s], rates, &layout));
    return json_pack(
        "{s:s, s:i, s:i, s:{s:i, s:i, s:i, s:i}, s:i, s:b, s:o, s:o, s:o, s:o}", "format",
        "bagpipe step", "ranks", layout.ranks, "node_ranks", layout.node_ranks, "mesh", "pipeline",
        program->mesh.pipeline, "data", program->mesh.data, "tensor", program->mesh.tensor,
        "expert", bp_mesh_shape_experts(&program->mesh), "value_bytes", program->value_bytes,
        "overlap", (int)program->overlap, "tokens", bp_json_real(program->tokens), "rates",
        rates_json(rates), "step_seconds", bp_json_real(time.step), "stages", stages);
}
