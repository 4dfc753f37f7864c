/* How the rows of a step are distributed among the experts of a mixture. Called by engine.c. */
#include "train/engine/engine_priv.h"

#include <math.h>

int64_t engine_load_count(const bp_engine *engine)
{
    return engine->shape.layers * bp_model_experts(&engine->shape);
}

static bp_expert_load load_of(const int64_t *rows, int64_t E)
{
    int64_t all = 0, most = 0;
    double entropy = 0;

    for (int64_t e = 0; e < E; e++) {
        all += rows[e];
        most = rows[e] > most ? rows[e] : most;
    }
    for (int64_t e = 0; e < E; e++)
        if (rows[e] > 0)
            entropy -= (double)rows[e] / (double)all * log((double)rows[e] / (double)all);
    if (all == 0)
        return (bp_expert_load){NAN, NAN};
    return (bp_expert_load){(double)most * (double)E / (double)all,
                            E > 1 ? entropy / log((double)E) : 1};
}

void engine_measure_experts(bp_engine *engine, bp_step_result *result)
{
    int64_t E = bp_model_experts(&engine->shape), *loads = engine->expert_loads;
    int count = bp_mpi_count(engine_load_count(engine));

    result->experts = (bp_expert_load){NAN, NAN};
    result->layer_experts = engine->layer_experts;
    if (!loads)
        return;
    BP_MPI_WAIT("all_reduce", MPI_Allreduce(MPI_IN_PLACE, loads, count, MPI_INT64_T, MPI_SUM,
                                            engine->mesh->data));
    BP_MPI_WAIT("all_reduce", MPI_Allreduce(MPI_IN_PLACE, loads, count, MPI_INT64_T, MPI_SUM,
                                            engine->mesh->pipeline));
    for (int64_t k = 0; k < engine->shape.layers; k++)
        engine->layer_experts[k] = load_of(loads + k * E, E);
    for (int64_t i = E; i < count; i++)
        loads[i % E] += loads[i];
    result->experts = load_of(loads, E);
}
