/* The job of generation: its units, messages and --plan (job/work.h runs it). */
#include "infer/generate/generate.h"

#include "base/log.h"
#include "infer/generate/generator.h"
#include "mesh/collective.h"

#include <inttypes.h>

static void identify(const void *context, bp_run_identity *out)
{
    const generator *self = context;

    out[0] = (bp_run_identity){"generate.prompts", self->prompts_hash};
    out[1] = (bp_run_identity){"tokenizer.path", self->tokenizer == NULL ? ""
                                                 : self->job->info.tokenizer_hash[0]
                                                     ? self->job->info.tokenizer_hash
                                                     : bp_tokenizer_hash(self->tokenizer)};
    /* the prompts' hash covers its result */
    out[2] = (bp_run_identity){"generate.template", ""};
}

/* ---- units ---- */

/* After each step of a unit, on the lead. */
static bool stop_asked(void *context)
{
    return bp_work_between(((generator *)context)->job);
}

static bp_err prepare(void *context)
{
    generator *self = context;
    const bp_unit_spec spec = {.mesh = self->job->mesh,
                               .model = self->job->model,
                               .rule = &self->rule,
                               .prompts = &self->prompts,
                               .plan = &self->plan,
                               .stop_asked = stop_asked,
                               .context = self};

    return bp_unit_new(&self->unit, &spec);
}
static void release(void *context)
{
    bp_unit_free(&((generator *)context)->unit);
}

static bp_err run_unit(void *context, int64_t number, bp_buffer *out, bool *stopped)
{
    return bp_unit_run(((generator *)context)->unit, number, out, stopped);
}

static int64_t count_prompts(const void *context, int64_t number)
{
    const bp_generate_plan *plan = &((const generator *)context)->plan;
    int64_t left = plan->prompts - number * plan->unit_prompts;

    return left < plan->unit_prompts ? left : plan->unit_prompts;
}

static bp_err merge(void *context, bp_parts *parts)
{
    generator *self = context;
    bp_err err = generator_write_outputs(self, parts);

    if (err == BP_OK)
        generator_write_page(self);
    return err;
}

static bp_err open_job(void *context)
{
    generator *self = context;
    bp_err err = generator_open(self);

    self->job->units = (bp_work_units){.key = self->key,
                                       .count = self->plan.units,
                                       .mesh_keys = "mesh.pipeline, mesh.tensor, mesh.members",
                                       .again = "made",
                                       .amount = (double)self->plan.prompts,
                                       .noun = "prompts",
                                       .speed_digits = 2,
                                       .prepare = prepare,
                                       .run = run_unit,
                                       .amount_of = count_prompts,
                                       .release = release,
                                       .merge = merge};
    return err;
}

/* ---- messages ---- */

static void say(const void *context)
{
    const generator *self = context;
    const bp_generate_plan *plan = &self->plan;

    bp_log("continuing %" PRId64 " prompts of up to %" PRId64 " tokens by up to %" PRId64
           " (%s), %" PRId64 " sequences side by side in %d group%s, %" PRId64 " work units",
           plan->prompts, self->prompts.longest, plan->tokens,
           bp_generate_keys_of(self->job->config)->strategy, plan->groups * plan->slots,
           plan->groups, plan->groups == 1 ? "" : "s", plan->units);
}

static json_t *started(const void *context)
{
    const bp_generate_plan *plan = &((const generator *)context)->plan;

    return json_pack("{sI sI}", "prompts", (json_int_t)plan->prompts, "units",
                     (json_int_t)plan->units);
}

static void report(const void *context)
{
    const generator *self = context;
    const json_t *finish = json_object_get(self->summary, "finish");

    bp_log("%" JSON_INTEGER_FORMAT " texts, %" JSON_INTEGER_FORMAT
           " distinct, of %" JSON_INTEGER_FORMAT " tokens, perplexity %.4f; "
           "ended by length %" JSON_INTEGER_FORMAT ", end of document %" JSON_INTEGER_FORMAT
           ", stop text %" JSON_INTEGER_FORMAT,
           json_integer_value(json_object_get(self->summary, "texts")),
           json_integer_value(json_object_get(self->summary, "distinct")),
           json_integer_value(json_object_get(self->summary, "tokens")),
           json_number_value(json_object_get(self->summary, "perplexity")),
           json_integer_value(json_object_get(finish, "length")),
           json_integer_value(json_object_get(finish, "eod")),
           json_integer_value(json_object_get(finish, "stop")));
    if (json_object_get(self->summary, "figures")) {
        const json_t *figures = json_object_get(self->summary, "figures");

        bp_log("BLEU %.2f, chrF2 %.2f, of the first text of each prompt",
               json_number_value(json_object_get(json_object_get(figures, "bleu"), "value")),
               json_number_value(json_object_get(json_object_get(figures, "chrf2"), "value")));
    }
}

/* ---- --plan ---- */

/* Measure the first unit of the actual prompts: its seconds, and bytes of its caches. */
static bp_err measure(void *context, double figures[BP_WORK_FIGURES])
{
    generator *self = context;
    const bp_generate_plan *plan = &self->plan;
    bp_err err = bp_work_time_unit(self->job, 0, &figures[0]);

    figures[1] = (double)bp_all_max_int(
        bp_model_decode_bytes(self->job->model, plan->groups, plan->slots, plan->capacity),
        self->job->mesh->compute);
    return err;
}

static void print(const void *context, const double figures[BP_WORK_FIGURES], int64_t bytes)
{
    const generator *self = context;
    const bp_mesh *mesh = self->job->mesh;
    const bp_generate_plan *plan = &self->plan;
    int ranks = mesh->members * mesh->pipeline_ranks * mesh->tensor_ranks;

    bp_log("memory: %.1f MiB on a rank (measured on %d rank%s a model), of it %.1f MiB for keys "
           "and values of %d group%s of %" PRId64 " sequences of up to %" PRId64 " positions",
           (double)bytes / 1048576, ranks, ranks == 1 ? "" : "s", figures[1] / 1048576,
           plan->groups, plan->groups == 1 ? "" : "s", plan->slots, plan->capacity);
    bp_work_print_time(self->job, figures[0]);
}

/* ---- the job ---- */

static const char *const FILES[] = {"outputs.jsonl", "summary.json", NULL};
/* different batches give different matrix products */
static const char *const OTHER_BITS[] = {"generate.batch", NULL};

const bp_work bp_generate_work = {.self_bytes = sizeof(generator),
                                  .shares_experts = true,
                                  .name = "generate",
                                  .model_key = "generate.model",
                                  .results = "texts",
                                  .files = FILES,
                                  .page = "generate",
                                  .other_bits = OTHER_BITS,
                                  .describe = generator_describe,
                                  .open_model = generator_open_model,
                                  .open = open_job,
                                  .identify = identify,
                                  .say = say,
                                  .started = started,
                                  .report = report,
                                  .measure = measure,
                                  .print = print,
                                  .close = generator_close};
