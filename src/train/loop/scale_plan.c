/* Searches the meshes of a planned job. Called by pretrain.c for --plan --ranks. */
#include "train/loop/scale_plan.h"

#include "base/mem.h"
#include "math/threads.h"
#include "mesh/mesh_search.h"
#include "train/scale/step_json.h"

#include <stdlib.h>

#define ROWS_MOST   4096
#define CHUNKS_MOST 8
#define ROWS_LEAST  1024 /* of a micro-batch: fewer are slow, which rates do not say */
#define PEAK_SHARE                                                                                 \
    0.45 /* of what products reach, where no network file says what training reaches */

typedef struct search {
    const trainer *self;
    bp_scale_plan *plan;
    int64_t has; /* bytes of a node; -1: not known */
} search;

static bool is_same(const memory_case *a, const memory_case *b)
{
    return a->mesh.pipeline == b->mesh.pipeline && a->mesh.tensor == b->mesh.tensor &&
           a->mesh.data == b->mesh.data && a->spec.micro_batch == b->spec.micro_batch &&
           (a->mesh.pipeline == 1 ||
            (a->spec.schedule == b->spec.schedule &&
             (a->spec.schedule != BP_INTERLEAVED || a->spec.chunks == b->spec.chunks)));
}

static bp_err find_time(bp_step_time *out, const trainer *self, const memory_case *one,
                        const bp_network_rates *rates, int nodes)
{
    bp_step_program *program;
    bp_err err = bp_step_program_new(&program, &one->mesh, &one->spec, &self->shape);

    if (err == BP_OK)
        bp_step_time_of(out, program, rates, nodes);
    bp_step_program_free(&program);
    return err;
}

/* A step of the same copies on one node, with equal work for each; if a copy, or ranks that share
 * out experts, need several nodes, the time of ranks that only compute. */
static double seconds_of_node(const bp_scale_plan *plan, const trainer *self,
                              const bp_scale_row *row)
{
    const memory_case *one = &row->one;
    int copy = one->mesh.pipeline * one->mesh.tensor,
        ranks = (plan->ranks + plan->nodes - 1) / plan->nodes;
    double alone = row->busy * row->time.step;
    memory_case small = *one;
    bp_step_time time;

    if (ranks % copy != 0 || ranks / copy % bp_mesh_shape_experts(&one->mesh) != 0)
        return alone;
    small.mesh.data = ranks / copy;
    small.spec.batch = one->spec.batch / one->mesh.data * small.mesh.data;
    return find_time(&time, self, &small, &plan->rates, 1) == BP_OK ? time.step : alone;
}

static bp_err add_row(search *s, const memory_case *one, bool configured)
{
    const trainer *self = s->self;
    bp_scale_plan *plan = s->plan;
    bp_scale_row *row = &plan->rows[plan->count];
    bp_rank_memory *all = NULL;
    bp_err err = memory_case_list(&all, self, one);

    if (err != BP_OK)
        return err;
    *row = (bp_scale_row){.one = *one, .configured = configured};
    row->node_bytes = bp_node_memory_fullest(all, bp_mesh_shape_ranks(&one->mesh), plan->nodes);
    bp_free(all);
    if (!configured && s->has >= 0 && row->node_bytes > s->has)
        return BP_OK;
    err = find_time(&row->time, self, one, &plan->rates, plan->nodes);
    if (err != BP_OK)
        return err;
    double alone = (double)(one->spec.batch * self->shape.context) *
                   bp_model_train_flops(&self->shape) / (plan->rates.flops * plan->ranks);
    row->busy = alone / row->time.step;
    plan->count++;
    return BP_OK;
}

static bp_err try_case(search *s, const memory_case *one)
{
    memory_case own = bp_training_memory_case_of(s->self);

    if (s->plan->count == ROWS_MOST || is_same(one, &own) ||
        !bp_training_memory_case_is_valid(s->self, one))
        return BP_OK;
    return add_row(s, one, false);
}

static bp_err try_chunks(search *s, memory_case one, int chunks)
{
    one.spec.schedule = chunks > 1 ? BP_INTERLEAVED : BP_1F1B;
    one.spec.chunks = chunks > 1 ? chunks : 2;
    return try_case(s, &one);
}

/* Schedules of a pipeline: one after another, and interleaved with 2, 4... chunks, and with a layer
 * in each. */
static bp_err try_schedules(search *s, const memory_case *one)
{
    int stages = one->mesh.pipeline, most = stages > 1 ? CHUNKS_MOST : 1,
        each = bp_model_blocks(&s->self->shape) / stages;
    bool more = (each & (each - 1)) != 0 || each > most;
    bp_err err = BP_OK;

    for (int chunks = 1; chunks <= most && err == BP_OK; chunks *= 2)
        err = try_chunks(s, *one, chunks);
    if (err == BP_OK && stages > 1 && more && each <= BP_NETWORK_CHUNKS)
        err = try_chunks(s, *one, each);
    return err;
}

static bp_err try_micro_batches(search *s, memory_case one)
{
    int64_t slots = one.spec.batch / one.mesh.data;
    bp_err err = BP_OK;

    for (int64_t each = 1; each <= slots && err == BP_OK; each *= 2) {
        bool many = each * s->self->shape.context >= ROWS_LEAST || 2 * each > slots;

        one.spec.micro_batch = each;
        if (slots % each == 0 && many)
            err = try_schedules(s, &one);
    }
    return err;
}

/* Tensor ranks stay on a node. */
static bp_err try_meshes(search *s)
{
    memory_case one = bp_training_memory_case_of(s->self);
    int ranks = s->plan->ranks / one.mesh.members,
        node = (s->plan->ranks + s->plan->nodes - 1) / s->plan->nodes;
    int blocks = bp_model_blocks(&s->self->shape);
    bp_err err = BP_OK;

    for (int tensor = 1; tensor <= node && tensor <= ranks; tensor++)
        for (int pipeline = 1; pipeline <= blocks && ranks % tensor == 0 && err == BP_OK;
             pipeline++) {
            if (ranks / tensor % pipeline != 0 || node % tensor != 0)
                continue;
            one.mesh.tensor = tensor;
            one.mesh.pipeline = pipeline;
            one.mesh.data = ranks / tensor / pipeline;
            err = try_micro_batches(s, one);
        }
    return err;
}

static int by_speed(const void *a, const void *b)
{
    double x = ((const bp_scale_row *)a)->time.step, y = ((const bp_scale_row *)b)->time.step;

    return (x > y) - (x < y);
}

/* Ranks of a node exchange through its memory, which costs their cores; fewer ranks with more
 * threads have less to exchange. */
static bp_err find_fewer(bp_scale_plan *plan, const search *all)
{
    int node = plan->nodes > 0 && plan->ranks % plan->nodes == 0 ? plan->ranks / plan->nodes : 1;
    bp_err err = BP_OK;

    for (int threads = 2; node % threads == 0 && err == BP_OK; threads *= 2) {
        bp_scale_plan other = {.ranks = plan->ranks / threads,
                               .nodes = plan->nodes,
                               .rates = plan->rates,
                               .rows = bp_alloc("scale.plan", ROWS_MOST, sizeof *other.rows)};
        search s = {.self = all->self, .plan = &other, .has = all->has};

        other.rates.flops *= threads;
        other.rates.memory_bandwidth *= threads;
        err = try_meshes(&s);
        for (int k = 0; k < other.count; k++)
            if (plan->threads == 0 || by_speed(&other.rows[k], &plan->fewer) < 0) {
                plan->fewer = other.rows[k];
                plan->threads = threads;
                plan->fewer.of_node =
                    seconds_of_node(&other, s.self, &plan->fewer) / plan->fewer.time.step;
            }
        bp_free(other.rows);
    }
    return err;
}

/* Logical tensors, once: parameters and moments; a shard a node, the manifest and the tokenizer;
 * each rank reads its own shards of them, and the ranks gather. */
static void find_files(bp_scale_plan *plan, const trainer *self)
{
    double all = (double)bp_model_parameters(&self->shape),
           trained = (double)bp_model_trained_parameters(&self->shape);

    plan->checkpoint_files = plan->nodes + 2;
    plan->checkpoint_bytes =
        sizeof(float) * (all + trained * bp_optimizer_moments(&self->spec.optimizer));
    plan->restart_opens = plan->ranks;
    plan->restart_bytes = plan->checkpoint_bytes;
}

static void find_flops(bp_scale_plan *plan, const trainer *self)
{
    plan->flops_from = "compute.flops of the network file";
    if (plan->rates.flops > 0)
        return;
    plan->flops_from = "0.45 of what matrix products reach here";
    plan->rates.flops = PEAK_SHARE * self->estimate.peak / plan->ranks;
}

bp_err bp_scale_plan_find(bp_scale_plan *plan, const trainer *self, const bp_planned_world *asked)
{
    memory_case own = bp_training_memory_case_of(self);
    search s = {.self = self, .plan = plan, .has = self->estimate.node.has_bytes};
    bp_err err;

    *plan = (bp_scale_plan){.nodes = asked->nodes};
    plan->ranks = own.mesh.members * own.mesh.pipeline * own.mesh.data * own.mesh.tensor;
    err = bp_network_rates_read(&plan->rates, asked->network);
    if (err != BP_OK)
        return err;
    if (!asked->network) /* the default is that of a core */
        plan->rates.memory_bandwidth *= bp_math_threads();
    find_flops(plan, self);
    find_files(plan, self);
    plan->rows = bp_alloc("scale.plan", ROWS_MOST, sizeof *plan->rows);
    err = add_row(&s, &own, true);
    if (err == BP_OK)
        err = try_meshes(&s);
    qsort(plan->rows, (size_t)plan->count, sizeof *plan->rows, by_speed);
    for (int k = 0; k < plan->count; k++)
        if (k < BP_SCALE_ROWS_SHOWN || plan->rows[k].configured)
            plan->rows[k].of_node =
                seconds_of_node(plan, self, &plan->rows[k]) / plan->rows[k].time.step;
    return err == BP_OK ? find_fewer(plan, &s) : err;
}

bp_err bp_scale_plan_write(const trainer *self, const bp_scale_plan *plan, const char *path)
{
    memory_case own = bp_training_memory_case_of(self);
    bp_step_program *program;
    bp_err err = bp_step_program_new(&program, &own.mesh, &own.spec, &self->shape);

    if (err == BP_OK) {
        json_t *json = bp_step_json(program, &plan->rates, plan->nodes);

        err = bp_json_save(path, json);
        json_decref(json);
    }
    bp_step_program_free(&program);
    return err;
}
