/* What checkpoints hold of an engine: slices of its parameters, moments and carried states. Called
 * by train/loop/commit.c and resume.c. */
#include "train/engine/engine_priv.h"

#include <stdio.h>
#include <string.h>

/* This rank's shards of the moments; those of values that another rank publishes are left out when
 * saving. */
static void moment_slices(bp_engine *engine, bool published_only, bp_slice *slices, int64_t *used,
                          int64_t capacity)
{
    const bp_optimizer *optimizer = &engine->optimizer;
    int64_t at = 0;

    for (int g = 0; g < engine->network->group_count; g++) {
        const bp_group *group = &engine->network->groups[g];
        int64_t first, count;

        if (group->frozen)
            continue;
        bp_optimizer_shard(engine->mesh, group, &first, &count);
        for (int k = 0; k < optimizer->moments && (group->published || !published_only); k++)
            bp_network_slices(engine->network, g, bp_optimizer_prefix(optimizer, k),
                              optimizer->moment[k] + at, first, count, slices, used, capacity);
        bp_optimizer_factor_slices(optimizer, g, published_only, slices, used, capacity);
        at += count;
    }
}

/* The carried states of this data rank's batch slots. */
static void carry_slices(const bp_engine *engine, int parity, bp_slice *slices, int64_t *used)
{
    for (int k = 0; k < engine->carries; k++) {
        const bp_carry *carry = &engine->network->carries[k];
        bp_slice *slice = &slices[(*used)++];

        *slice = (bp_slice){.dims = 2,
                            .shape = {engine->spec.batch, carry->columns},
                            .offset = {carry->first_slot, 0},
                            .extent = {engine->slots, carry->columns},
                            .data = carry->rows[parity]};
        (void)snprintf(slice->name, sizeof slice->name, "%s", carry->name);
    }
}

static int64_t slice_capacity(const bp_engine *engine)
{
    return 3 * bp_network_slice_capacity(engine->network) + engine->network->carry_count +
           bp_spectral_count(engine->spectral);
}

bp_slice *bp_engine_slices_to_save(bp_engine *engine, int64_t *count)
{
    int64_t capacity = slice_capacity(engine);
    bp_slice *slices = bp_alloc("engine.slices", capacity, sizeof *slices);

    engine_await_parameters(engine);
    *count = 0;
    for (int g = 0; g < engine->network->group_count; g++) {
        const bp_group *group = &engine->network->groups[g];
        int64_t first, shard;

        bp_optimizer_shard(engine->mesh, group, &first, &shard);
        if (group->published && !group->kept)
            bp_network_slices(engine->network, g, "", engine->values + group->place + first, first,
                              shard, slices, count, capacity);
    }
    moment_slices(engine, true, slices, count, capacity);
    if (engine->mesh->tensor_rank == 0) /* tensor ranks carry the same */
        carry_slices(engine, (int)(engine->step & 1), slices, count);
    bp_spectral_slices(engine->spectral, true, slices, count, capacity);
    return slices;
}

bool bp_engine_loads(const bp_group *group, bp_load what)
{
    return what == BP_LOAD_STATE || !(group->passing || (what == BP_LOAD_BASE && group->added));
}

bp_slice *bp_engine_slices_to_load(bp_engine *engine, bp_load what, int64_t *count)
{
    int64_t capacity = slice_capacity(engine);
    bp_slice *slices = bp_alloc("engine.slices", capacity, sizeof *slices);

    engine_end_gathers(engine);
    *count = 0;
    for (int g = 0; g < engine->network->group_count; g++) {
        const bp_group *group = &engine->network->groups[g];
        int64_t first, shard;

        bp_optimizer_shard(engine->mesh, group, &first, &shard);
        if (bp_engine_loads(group, what))
            bp_network_slices(engine->network, g, "", engine->values + group->place + first, first,
                              shard, slices, count, capacity);
    }
    if (what == BP_LOAD_STATE) {
        moment_slices(engine, false, slices, count, capacity);
        carry_slices(engine, 0, slices, count);
        bp_spectral_slices(engine->spectral, false, slices, count, capacity);
    }
    return slices;
}

void bp_engine_loaded(bp_engine *engine)
{
    int64_t carried = engine_carried_floats(engine);

    for (int g = 0; g < engine->network->group_count; g++)
        bp_optimizer_gather(&engine->optimizer, engine->values, g);
    engine_end_gathers(engine);
    bp_inject_loaded(engine->network, engine->values);
    if (carried > 0) /* whichever parity the next step reads */
        memcpy(engine->carried + carried, engine->carried, (size_t)carried * sizeof(float));
    bp_network_refresh(engine->network);
    engine_begin_with_values(engine);
}
