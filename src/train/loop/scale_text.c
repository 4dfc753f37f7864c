/* The meshes of a planned job as a table for people. */
#include "base/log.h"
#include "train/loop/scale_plan.h"

#include <stdio.h>

/* "1f1b", "v4": interleaved with 4 chunks; "-": no pipeline. */
static void schedule_name(char out[16], const memory_case *one)
{
    if (one->mesh.pipeline == 1)
        (void)snprintf(out, 16, "-");
    else if (one->spec.schedule == BP_INTERLEAVED)
        (void)snprintf(out, 16, "v%d", one->spec.chunks);
    else
        (void)snprintf(out, 16, "%s", one->spec.schedule == BP_GPIPE ? "gpipe" : "1f1b");
}

static void print_row(const bp_scale_row *row)
{
    const memory_case *one = &row->one;
    const bp_step_time *t = &row->time;
    double whole = t->step > 0 ? t->step : 1;
    char schedule[16];

    schedule_name(schedule, one);
    bp_log(
        "%c %6d %8d %5d %6lld x %-4lld %-6s %9.4g +-%d%% %5.2f %5.2f  %-7s %3.0f %3.0f %3.0f %3.0f "
        "%3.0f %9.1f %10.1f",
        row->configured ? '*' : ' ', one->mesh.tensor, one->mesh.pipeline, one->mesh.data,
        (long long)(one->spec.batch / one->mesh.data / one->spec.micro_batch),
        (long long)one->spec.micro_batch, schedule, t->step, BP_SCALE_ERROR_RUNS, row->busy,
        row->of_node, bp_step_bound(t), 100 * t->bubble / whole, 100 * t->cut / whole,
        100 * t->tensor / whole, 100 * t->sums / whole, 100 * t->gather / whole,
        (double)row->node_bytes / 1073741824, t->link_bytes / 1048576);
}

static void print_rates(const bp_scale_plan *plan)
{
    const bp_network_rates *r = &plan->rates;

    bp_log("network: node %.3g GB/s, %.3g us, %.3g M messages/s; within a node %.3g GB/s, %.3g us; "
           "a round beside "
           "compute oversleeps %.3g us",
           r->node_bandwidth / 1e9, 1e6 * r->node_latency, r->message_rate / 1e6,
           r->inner_bandwidth / 1e9, 1e6 * r->inner_latency, 1e6 * r->round_pause);
    bp_log("compute: %.4g GFLOP/s of the model a rank (%s), memory %.3g GB/s a rank",
           r->flops / 1e9, plan->flops_from, r->memory_bandwidth / 1e9);
}

void bp_scale_plan_print(const trainer *self, const bp_scale_plan *plan)
{
    int shown = 0;

    bp_log("scale: %d ranks on %d nodes; meshes that fit, best first (* the configuration's); "
           "error of an estimated step: %d %% against runs of 1 to 4 ranks, %d %% against a "
           "simulated network of 64 to "
           "1,024",
           plan->ranks, plan->nodes, BP_SCALE_ERROR_RUNS, BP_SCALE_ERROR_SIMULATED);
    print_rates(plan);
    bp_log("  tensor pipeline  data micro-batches sched    step s error  busy  node  bound   lost "
           "%% to "
           "bubble, cut, tensor, "
           "sums, gather; GiB a node, MiB over its link");
    for (int k = 0; k < plan->count; k++)
        if (k < BP_SCALE_ROWS_SHOWN || plan->rows[k].configured) {
            print_row(&plan->rows[k]);
            shown++;
        }
    if (plan->count > shown)
        bp_log("  and %d slower ones", plan->count - shown);
    if (plan->threads > 0) {
        bp_log("the fastest of fewer ranks: %d, each with %d times the threads and the memory, if "
               "its speed is that of %d ranks (compare a bench of each)",
               plan->ranks / plan->threads, plan->threads, plan->threads);
        print_row(&plan->fewer);
    }
    bp_log("busy: share of a step that the model's FLOPs take; node: speed over that of one node, "
           "a node; the error "
           "is that of the model, without other jobs on the network and without ranks that are "
           "slower than others");
    for (int k = 0; k < plan->count; k++)
        if (plan->rows[k].configured && bp_mesh_shape_experts(&self->mesh_shape) > 1)
            bp_log("rows of experts (mesh.expert = %d), beside their products, take at least "
                   "another %.0f "
                   "%% of the step of *",
                   bp_mesh_shape_experts(&self->mesh_shape),
                   100 * plan->rows[k].time.experts / plan->rows[k].time.step);
    bp_log("a checkpoint: %.0f files, %.2f GiB; a restart: %.0f opens, %.2f GiB read",
           plan->checkpoint_files, plan->checkpoint_bytes / 1073741824, plan->restart_opens,
           plan->restart_bytes / 1073741824);
}
