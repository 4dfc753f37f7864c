/* A generation job from end to end. */
#include "infer/generate/generate.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/run_options.h"
#include "infer/generate/generator_priv.h"
#include "infer/generate/memory.h"
#include "infer/score/score.h"
#include "job/report/report.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Texts are the same at any number of data ranks; other batches are other products. */
static bool keeps_bits(const bp_config *config, const char *key, const char *before,
                       const char *now)
{
    return strcmp(key, "generate.batch") != 0 && bp_score_keeps_bits(config, key, before, now);
}

/* A page is asked for where there is a template of it: without, none was made. */
static const char *find_missing(const void *context)
{
    const char *names[] = {"outputs.jsonl", "summary.json",
                           bp_report_has_page("generate") ? "index.html" : NULL};

    return bp_run_first_missing(((const generator *)context)->folder, names,
                                sizeof names / sizeof names[0]);
}

static bp_err open_run(generator *self)
{
    static const char *const may_change[] = {"run.dir", NULL};
    static const char *const other_bits[] = {"mesh.*", "math.threads", "generate.batch", NULL};
    char model[128]; /* an ensemble of one returns more statistics than its model alone */
    const char *hash = self->tokenizer == NULL        ? ""
                       : self->info.tokenizer_hash[0] ? self->info.tokenizer_hash
                                                      : bp_tokenizer_hash(self->tokenizer);
    bp_run_identity identities[] = {
        {"generate.prompts", self->prompts_hash},
        {"generate.model", model},
        {"tokenizer.path", hash},
        {"generate.template", ""}, /* the prompts' hash is of what it made */
        {NULL, NULL}};
    bp_run_spec spec = {.job = "generate",
                        .may_change = may_change,
                        .other_bits = other_bits,
                        .keeps_bits = keeps_bits,
                        .identities = identities,
                        .missing = find_missing,
                        .context = self};

    if (self->info.members > 0)
        snprintf(model, sizeof model, "%s, an ensemble of %" PRId64, self->info.digest,
                 self->info.members);
    else
        snprintf(model, sizeof model, "%s", self->info.digest);
    return bp_run_open(&self->run, self->mesh, self->config, &spec);
}

static bp_err write_results(generator *self)
{
    bp_parts *parts = NULL;
    bp_err err = bp_parts_open(&parts, self->parts_folder, self->key, self->plan.units);

    if (err == BP_OK)
        err = generator_write_outputs(self, parts);
    bp_parts_free(&parts);
    if (err != BP_OK)
        return err;
    self->page = generator_write_page(self) == BP_OK;
    if (!self->page)
        bp_warn_failure("the page of the texts was not written: %s", bp_err_text());
    return BP_OK;
}

/* Write the files of RUN/generate from the parts. Collective over world; the coordinator works. */
static bp_err merge_parts(generator *self)
{
    bp_phase before = bp_heartbeat_phase(BP_PHASE_MERGE);
    bp_err err = bp_agree(self->mesh->world, self->mesh->coordinates ? write_results(self) : BP_OK);

    (void)bp_heartbeat_phase(before);
    return err;
}

static void say_what(const generator *self)
{
    const bp_generate_plan *plan = &self->plan;

    if (self->mesh->coordinates)
        bp_log("continuing %" PRId64 " prompts of up to %" PRId64 " tokens by up to %" PRId64
               " (%s), %" PRId64 " sequences side by side in %d group%s, %" PRId64 " work units",
               plan->prompts, self->prompts.longest, plan->tokens,
               bp_generate_keys_of(self->config)->strategy, plan->groups * plan->slots,
               plan->groups, plan->groups == 1 ? "" : "s", plan->units);
}

static bp_err log_start(const generator *self)
{
    json_t *members = json_pack("{sI sI}", "prompts", (json_int_t)self->plan.prompts, "units",
                                (json_int_t)self->plan.units);
    bp_err err =
        bp_run_event(self->run, bp_run_is_resumed(self->run) ? "resumed" : "started", members);

    json_decref(members);
    return err;
}

static void report(const generator *self)
{
    const json_t *finish = json_object_get(self->summary, "finish");

    bp_log("%" JSON_INTEGER_FORMAT " texts of %" JSON_INTEGER_FORMAT " tokens, perplexity %.4f; "
           "ended by length %" JSON_INTEGER_FORMAT ", end of document %" JSON_INTEGER_FORMAT
           ", stop text %" JSON_INTEGER_FORMAT,
           json_integer_value(json_object_get(self->summary, "texts")),
           json_integer_value(json_object_get(self->summary, "tokens")),
           json_number_value(json_object_get(self->summary, "perplexity")),
           json_integer_value(json_object_get(finish, "length")),
           json_integer_value(json_object_get(finish, "eod")),
           json_integer_value(json_object_get(finish, "stop")));
    bp_log("in %s: outputs.jsonl, summary.json%s", self->folder, self->page ? ", index.html" : "");
}

static bp_err run(generator *self)
{
    bp_run_take_changes(self->run);
    say_what(self);
    bp_err err = bp_agree(self->mesh->world, self->mesh->coordinates ? log_start(self) : BP_OK);
    if (err == BP_OK)
        err = generator_run_units(self);
    if (err == BP_OK)
        err = merge_parts(self);
    if (err == BP_OK && self->mesh->coordinates)
        report(self);
    return err;
}

/* Parts go when the folder says "finished": not before, or a start in between would find neither.
 */
static bp_err remove_parts(const generator *self)
{
    return bp_agree(self->mesh->world,
                    self->mesh->coordinates ? bp_dir_remove(self->parts_folder) : BP_OK);
}

bp_err bp_generate(MPI_Comm world, bp_config *config)
{
    generator self;
    bp_err err = generator_open(&self, world, config);

    if (err == BP_OK)
        err = open_run(&self);
    if (err == BP_OK) {
        if (bp_run_is_finished(self.run))
            bp_log("the run is finished: the texts are in %s", self.folder);
        else
            err = run(&self);
        bp_err closed = bp_run_close(&self.run, err);
        err = err != BP_OK ? err : closed;
    }
    if (err == BP_OK)
        err = remove_parts(&self);
    generator_close(&self);
    return err;
}

/* ---- --plan ---- */

static void print_mesh(const generator *self)
{
    const bp_mesh_shape *shape = &self->mesh_shape;
    char members[32] = "";

    if (self->ensemble)
        snprintf(members, sizeof members, "members %d x ", shape->members);
    bp_log("mesh: %spipeline %d x data %d x tensor %d%s", members, shape->pipeline, shape->data,
           shape->tensor,
           shape->coordinator == BP_COORDINATOR_DEDICATED ? ", and a coordinator" : "");
}

/* A unit of the prompts as they are, the first one: seconds it took. */
static bp_err measure(generator *self, double *seconds)
{
    const bp_unit_spec spec = {.mesh = self->mesh,
                               .lm = self->lm,
                               .rule = &self->rule,
                               .prompts = &self->prompts,
                               .plan = &self->plan};
    bp_unit *unit = NULL;
    bp_buffer result = {0};
    bool stopped;
    bp_err err = bp_unit_new(&unit, &spec);
    double began = bp_clock_now();

    if (err == BP_OK)
        err = bp_unit_run(unit, 0, &result, &stopped);
    *seconds = bp_clock_now() - began;
    bp_unit_free(&unit);
    bp_buffer_clear(&result);
    return err;
}

static void print_memory(const generator *self, int64_t cache_bytes, int64_t bytes)
{
    const bp_mesh *mesh = self->mesh;
    const bp_generate_plan *plan = &self->plan;
    int ranks = mesh->members * mesh->pipelines * mesh->tensors;

    bp_log("memory: %.1f MiB on a rank (measured on %d rank%s a model), of it %.1f MiB for keys "
           "and values of %d group%s of %" PRId64 " sequences of up to %" PRId64 " positions",
           (double)bytes / 1048576, ranks, ranks == 1 ? "" : "s", (double)cache_bytes / 1048576,
           plan->groups, plan->groups == 1 ? "" : "s", plan->slots, plan->capacity);
}

/* With the model open: what a unit takes, in memory and time. */
static bp_err estimate_unit(generator *self)
{
    MPI_Comm world = self->mesh->world;
    double seconds = 0;
    int64_t cache_bytes = 0, bytes;
    bp_err err = generator_open_model(self);

    if (err != BP_OK)
        return err;
    if (self->mesh->computes)
        cache_bytes = bp_model_decode_bytes(self->lm, self->plan.groups, self->plan.slots,
                                            self->plan.capacity);
    err = bp_agree(world, self->mesh->computes ? measure(self, &seconds) : BP_OK);
    cache_bytes = bp_all_max_int(cache_bytes, world);
    bytes = bp_all_max_int((int64_t)bp_mem_peak_bytes(), world);
    bp_bcast_bytes(&seconds, sizeof seconds, bp_comm_size(world) - 1, world);
    if (err == BP_OK && self->mesh->coordinates) {
        char duration[64];

        say_what(self);
        print_memory(self, cache_bytes, bytes);
        bp_clock_duration(duration, sizeof duration,
                          seconds * (double)((self->plan.units + self->mesh_shape.data - 1) /
                                             self->mesh_shape.data));
        bp_log("time: about %s at %.3g s a work unit on each of %d model copies", duration, seconds,
               self->mesh_shape.data);
    }
    return err;
}

bp_err bp_generate_estimate(MPI_Comm world, bp_config *config, const bp_planned_world *asked)
{
    generator self;
    bool fits_here = true;
    bp_err err = generator_open_mesh(&self, world, config, asked);

    if (err == BP_OK && self.mesh->coordinates)
        print_mesh(&self);
    if (err == BP_OK)
        err = bp_generate_memory_check(world, &self.mesh_shape, config, asked, &fits_here);
    if (err == BP_OK && fits_here)
        err = estimate_unit(&self);
    else if (err == BP_OK)
        bp_log("time: not measured, since the model does not fit into this process alone");
    generator_close(&self);
    return err;
}
