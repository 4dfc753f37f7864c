/* The memory plan as a table for people. Called by pretrain.c and start/setup.c. */
#include "train/loop/memory/plan_text.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "math/math.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include "train/loop/start/duration.h"

#define MIB 1048576.0

static void print_row(const char *kind, size_t bytes, const char *remark)
{
    bp_log("  %-14s %10.1f MiB  %s", kind, (double)bytes / MIB, remark);
}

static bp_pipeline pipeline_of(const trainer *self)
{
    const bp_mesh_shape *mesh = &self->mesh_shape;

    return (bp_pipeline){.schedule = self->spec.schedule,
                         .stages = mesh->pipeline,
                         .chunks = bp_engine_chunks(&self->spec, mesh->pipeline),
                         .micro_batches = self->spec.batch / mesh->data / self->spec.micro_batch};
}

/* " (interleaved, 2 chunks, busy 94 % at most)"; nothing where there is one stage. */
static void schedule_text(char *out, size_t bytes, const trainer *self)
{
    bp_pipeline pipeline = pipeline_of(self);
    char chunks[32] = "";

    out[0] = '\0';
    if (pipeline.stages == 1)
        return;
    if (pipeline.schedule == BP_INTERLEAVED)
        snprintf(chunks, sizeof chunks, ", %d chunks", pipeline.chunks);
    snprintf(out, bytes, " (%s%s, busy %.0f %% at most with %lld micro-batches)",
             bp_mesh_keys_of(self->config)->schedule, chunks, 100 * bp_schedule_busy(&pipeline),
             (long long)pipeline.micro_batches);
}

/* Prints the estimated time of the steps that are left. */
static void print_time(const trainer *self)
{
    const bp_mesh_shape *mesh = &self->mesh_shape;
    bp_pipeline pipeline = pipeline_of(self);
    int ranks = mesh->pipeline * mesh->data * mesh->tensor;
    int64_t steps = self->spec.rate.steps - self->progress.step;
    double tokens = (double)(steps * self->spec.batch * self->shape.context);
    double seconds = tokens * bp_model_train_flops(&self->shape) /
                     (self->estimate.peak * bp_schedule_busy(&pipeline));
    char fast[64], slow[64];

    bp_clock_duration(fast, sizeof fast, 2 * seconds);
    bp_clock_duration(slow, sizeof slow, 5 * seconds);
    bp_log("time estimated: %s to %s for the %.3g M tokens of %lld steps (50 %% to 20 %% of what "
           "matrix products reach: %d rank%s of %.1f GFLOP/s)",
           fast, slow, tokens / 1e6, (long long)steps, ranks, ranks == 1 ? "" : "s",
           self->estimate.peak / ranks / 1e9);
    if (ranks > bp_comm_size(self->mesh->world)) {
        int threads = bp_math_threads(), cores = bp_math_cores();
        char measured[80] = "";

        if (threads > cores)
            (void)snprintf(measured, sizeof measured, " (measured on the %d core%s here)", cores,
                           cores == 1 ? "" : "s");
        bp_log("that is the time of ranks with %d thread%s each, on as many cores as fast as "
               "these%s: for the time on a cluster, give the same command on one of its nodes "
               "(srun --nodes=1 --ntasks=1 --cpus-per-task=CORES-OF-A-RANK)",
               threads, threads == 1 ? "" : "s", measured);
    }
    if (self->estimate.cores < BP_CORES_SHARED)
        bp_log("other work had %.0f %% of these cores while that was measured: the time estimated, "
               "and mfu in metrics.jsonl, are guesses",
               100 * (1 - self->estimate.cores));
}

static void print_engine(const trainer *self, const bp_plan *plan)
{
    print_row("copies", plan->copies, "of the weights, as the products want them");
    print_row("gradients", plan->gradients,
              self->spec.tree ? "train.reduction=running keeps fewer" : "one running sum");
    print_row("optimizer", plan->optimizer, "moments, shared out over data ranks");
    print_row("activations", plan->activations,
              self->spec.recompute ? "inputs of blocks (recompute)" : "kept for backward");
    print_row("scratch", plan->scratch, "of a block at work and of matrix products");
}

static void print_parts(const trainer *self, int stage)
{
    for (int k = 0; self->parts[k]; k++) {
        const bp_training_part *part = self->parts[k];
        size_t bytes = 0;

        if (part->bytes &&
            part->bytes(self, self->own[k], &self->mesh_shape, stage, &bytes) == BP_OK && bytes > 0)
            print_row(part->name, bytes, part->memory);
    }
}

static void print_model(const trainer *self)
{
    const bp_model_shape *shape = &self->shape;
    char layers[32] = "", heads[32] = "";

    if (shape->layers > 0)
        (void)snprintf(layers, sizeof layers, " %lld layers,", (long long)shape->layers);
    if (shape->heads > 0)
        (void)snprintf(heads, sizeof heads, " %lld heads,", (long long)shape->heads);
    bp_log("model: %s,%s width %lld,%s context %lld, vocabulary %lld: %.2f M parameters, %s",
           shape->family->name, layers, (long long)shape->width, heads, (long long)shape->context,
           (long long)shape->vocab_size, (double)bp_model_parameters(shape) / 1e6,
           self->spec.precision == BP_BF16 ? "bf16" : "f32");
    if (bp_model_experts(shape) > 0)
        bp_log(
            "experts: %lld in a layer, of which a token goes through %lld: %.2f M parameters are "
            "active",
            (long long)bp_model_experts(shape), (long long)shape->stack.chosen,
            (double)bp_model_active_parameters(shape) / 1e6);
    if (shape->adapter.kind != BP_ADAPTER_NONE)
        bp_log("adapter: %s, rank %lld: %.4f M parameters are trained, the others stay as they are",
               bp_model_keys_of(self->config)->adapter.kind, (long long)shape->adapter.rank,
               (double)bp_model_trained_parameters(shape) / 1e6);
}

static void print_mesh(const trainer *self)
{
    const bp_mesh_shape *mesh = &self->mesh_shape;
    char remark[128], experts[64] = "";

    schedule_text(remark, sizeof remark, self);
    if (bp_mesh_shape_experts(mesh) > 1)
        (void)snprintf(experts, sizeof experts, " (experts over %d of them)", mesh->expert);
    bp_log("mesh:  pipeline %d%s x data %d%s x tensor %d%s, coordinator %s, %d thread%s a rank",
           mesh->pipeline, remark, mesh->data, experts, mesh->tensor,
           mesh->tensor == 1 ? ""
           : bp_engine_is_sequence_parallel(&self->spec, &self->shape, mesh->tensor)
               ? " (rows shared out)"
               : " (all rows on each)",
           mesh->coordinator == BP_COORDINATOR_DEDICATED ? "dedicated" : "shared",
           bp_math_threads(), bp_math_threads() == 1 ? "" : "s");
}

static void print_memory(const trainer *self, const bp_plan *plan, int stage)
{
    bp_log("memory estimated of a rank of stage %d (the largest):", stage);
    print_row("program", plan->program, "the program and its libraries");
    print_row("parameters", plan->parameters,
              trainer_learner(self) ? "float32, columns shared out over data ranks" : "float32");
    if (trainer_learner(self))
        print_row("scratch", plan->scratch, "the vocabulary, and what is at work");
    else
        print_engine(self, plan);
    print_row("input", plan->input, "tokens, and what batch slots carry");
    if (plan->snapshot > 0)
        print_row("snapshot", plan->snapshot, "for checkpoints; checkpoint.async=no has none");
    print_row("writer", plan->writer, "of a checkpoint: blocks on their way to disk");
    print_parts(self, stage);
    print_row("total", bp_plan_total(plan), "of this rank");
}

void bp_training_plan_print(const trainer *self, const bp_plan *plan, int stage)
{
    print_model(self);
    print_mesh(self);
    trainer_say_steps(self);
    print_memory(self, plan, stage);
    if (self->estimate.node.ranks > 0)
        bp_node_memory_print(&self->estimate.node);
    if (self->estimate.peak > 0)
        print_time(self);
}

void plan_print_peak(const trainer *self)
{
    bool counts = self->mesh->computes;
    int64_t peak =
        bp_all_max_int(counts ? (int64_t)bp_mem_resident_peak_bytes() : 0, self->mesh->world);

    bp_log("memory: %.1f MiB estimated, %.1f MiB seen at the peak of a rank",
           (double)bp_plan_total(&self->estimate.plan) / MIB, (double)peak / MIB);
}
