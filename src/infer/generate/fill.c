/* Iterated filling of masks. Called by units.c instead of decoding, for models that find masked
 * tokens. */
#include "infer/generate/fill.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "infer/generate/results/results.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define CHUNK_ROWS 64 /* of logits held at once */

/* A mask that is open. */
typedef struct open_mask {
    int64_t place; /* in `inputs` */
    int32_t token; /* the most probable one, */
    float logprob; /* and its */
} open_mask;

typedef struct bp_fill {
    bp_unit_spec spec;
    bool last;            /* this rank is on the last stage */
    int64_t longest;      /* tokens of a framed text */
    int32_t *inputs;      /* [unit prompts][T] */
    int32_t *targets;     /* as many, all -1 */
    double *logprobs;     /* as inputs: for positions that were filled in */
    bool *masked;         /* as inputs: it was a mask */
    open_mask *open;      /* [count], by place */
    int64_t *of_prompt;   /* [unit prompts + 1] in `open` */
    float *hidden;        /* of the last stage: [unit prompts][T][width], */
    float *rows, *logits; /* [CHUNK_ROWS][width], [CHUNK_ROWS][vocab_count] */
    int64_t steps;
} bp_fill;

/* Number of tokens of prompt k with its masks, framed. */
static int64_t length_of(const bp_unit_spec *spec, int64_t k)
{
    int64_t length = bp_prompts_length(spec->prompts, k), count = 0;

    for (int64_t i = 0; i < length; i++)
        count += bp_prompts_ids(spec->prompts, k)[i] == spec->plan->fill.mask;
    return length + 2 + (count > 0 ? 0 : bp_generate_tokens_left(spec->plan, length));
}

int64_t bp_fill_bytes(const bp_generate_plan *plan, int64_t T, int64_t width, int64_t vocab_size)
{
    int64_t positions = plan->unit_prompts * T;

    return (positions * (width + 6) + CHUNK_ROWS * (width + vocab_size)) * (int64_t)sizeof(float);
}

bp_err bp_fill_new(bp_fill **out, const bp_unit_spec *spec)
{
    const bp_model_info *info = &spec->model->info;
    bp_fill *self = bp_alloc("generate.fill", 1, sizeof *self);
    int64_t prompts = spec->plan->unit_prompts, positions;

    self->spec = *spec;
    self->last = spec->mesh->pipeline_rank == spec->mesh->pipeline_ranks - 1;
    for (int64_t k = 0; k < spec->prompts->count; k++) {
        int64_t length = length_of(spec, k);

        self->longest = length > self->longest ? length : self->longest;
    }
    positions = prompts * self->longest;
    self->inputs = bp_alloc("generate.fill", positions, sizeof *self->inputs);
    self->targets = bp_alloc("generate.fill", positions, sizeof *self->targets);
    self->logprobs = bp_alloc("generate.fill", positions, sizeof *self->logprobs);
    self->masked = bp_alloc("generate.fill", positions, sizeof *self->masked);
    self->open = bp_alloc("generate.fill", positions, sizeof *self->open);
    self->of_prompt = bp_alloc("generate.fill", prompts + 1, sizeof *self->of_prompt);
    memset(self->targets, -1, (size_t)positions * sizeof *self->targets);
    if (self->last) {
        self->hidden = bp_try_alloc("generate.fill", positions * info->width, sizeof(float));
        self->rows = bp_alloc("generate.fill", CHUNK_ROWS * info->width, sizeof(float));
        self->logits =
            bp_alloc("generate.fill", CHUNK_ROWS * (info->vocab_count + 1), sizeof(float));
    }
    bp_err err = self->last && !self->hidden
                     ? bp_fail_memory("the states of texts", positions * info->width, sizeof(float))
                     : BP_OK;
    err = bp_agree(spec->mesh->replica, err);
    if (err != BP_OK)
        bp_fill_free(&self);
    *out = self;
    return err;
}

void bp_fill_free(bp_fill **fill)
{
    bp_fill *self = *fill;

    if (!self)
        return;
    bp_free(self->inputs);
    bp_free(self->targets);
    bp_free(self->logprobs);
    bp_free(self->masked);
    bp_free(self->open);
    bp_free(self->of_prompt);
    bp_free(self->hidden);
    bp_free(self->rows);
    bp_free(self->logits);
    bp_free(self);
    *fill = NULL;
}

/* ---- a unit ---- */

/* Prompt `number` in the b-th window of T positions. */
static void frame(bp_fill *self, int64_t b, int64_t number, int64_t T)
{
    const bp_generate_plan *plan = self->spec.plan;
    const int32_t *ids = bp_prompts_ids(self->spec.prompts, number);
    int64_t length = length_of(&self->spec, number),
            given = bp_prompts_length(self->spec.prompts, number);
    int32_t *to = self->inputs + b * T;

    for (int64_t t = 0; t < T; t++) {
        to[t] = t == 0            ? (int32_t)plan->fill.cls
                : t <= given      ? ids[t - 1]
                : t < length - 1  ? (int32_t)plan->fill.mask
                : t == length - 1 ? (int32_t)plan->fill.sep
                                  : -1;
        self->masked[b * T + t] = t > 0 && t < length - 1 && to[t] == plan->fill.mask;
    }
}

/* Reopen n (rounds left) / rounds of a prompt's n masks, those with the least probable tokens, the
 * first of equal ones. */
static void mask_again(bp_fill *self, int64_t b, int64_t T, int64_t rounds_left)
{
    const bp_fill_rule *rule = &self->spec.plan->fill;
    int64_t masks = 0;

    for (int64_t r = b * T; r < (b + 1) * T; r++)
        masks += self->masked[r];
    for (int64_t again = masks * rounds_left / rule->rounds; again > 0; again--) {
        int64_t least = -1;

        for (int64_t r = b * T; r < (b + 1) * T; r++)
            if (self->masked[r] && self->inputs[r] != rule->mask &&
                (least < 0 || self->logprobs[r] < self->logprobs[least]))
                least = r;
        self->inputs[least] = (int32_t)rule->mask;
    }
}

static int64_t list_open(bp_fill *self, int64_t prompts, int64_t T)
{
    int64_t count = 0;

    for (int64_t b = 0; b < prompts; b++) {
        self->of_prompt[b] = count;
        for (int64_t t = 0; t < T; t++)
            if (self->inputs[b * T + t] == self->spec.plan->fill.mask && self->masked[b * T + t])
                self->open[count++].place = b * T + t;
    }
    self->of_prompt[prompts] = count;
    return count;
}

/* The most probable token of one row among this rank's that is allowed in a text. */
static void find_best(const bp_fill *self, const float *logits, float *best, float *token)
{
    const bp_generate_plan *plan = self->spec.plan;
    const bp_model_info *info = &self->spec.model->info;

    *best = -INFINITY;
    *token = 0;
    for (int64_t v = 0; v < info->vocab_count; v++) {
        int64_t id = info->vocab_first + v;

        if (logits[v] > *best && id != plan->fill.mask && id != plan->fill.cls &&
            id != plan->fill.sep) {
            *best = logits[v];
            *token = (float)id;
        }
    }
}

/* Tokens of open masks [first, first + n), from the states of the last stage. Collective over
 * mesh->tensor. */
static void choose(bp_fill *self, int64_t first, int64_t n)
{
    MPI_Comm tensor = self->spec.mesh->tensor;
    bp_model *model = self->spec.model;
    int64_t C = model->info.width, V = model->info.vocab_count;
    float best[CHUNK_ROWS], most[CHUNK_ROWS], token[CHUNK_ROWS], max[2 * CHUNK_ROWS];
    double sums[2 * CHUNK_ROWS];
    int32_t none[CHUNK_ROWS];

    for (int64_t r = 0; r < n; r++) {
        none[r] = -1;
        memcpy(self->rows + r * C, self->hidden + self->open[first + r].place * C,
               (size_t)C * sizeof(float));
    }
    model->ops->logits(model, 0, self->rows, n, self->logits);
    for (int64_t r = 0; r < n; r++)
        find_best(self, self->logits + r * V, &best[r], &token[r]);
    bp_logit_statistics(max, sums,
                        &(bp_logit_rows){.logits = self->logits,
                                         .targets = none,
                                         .rows = n,
                                         .V = V,
                                         .first = model->info.vocab_first,
                                         .stride = V},
                        tensor);
    memcpy(most, best, sizeof best);
    bp_all_max(most, n, tensor);
    for (int64_t r = 0; r < n; r++) /* the first of equal ones: ids are exact as floats */
        token[r] = best[r] == most[r] && V > 0 ? -token[r] : -INFINITY;
    bp_all_max(token, n, tensor);
    for (int64_t r = 0; r < n; r++) {
        self->open[first + r].token = (int32_t)-token[r];
        self->open[first + r].logprob = (float)((double)most[r] - (double)max[r] - log(sums[r]));
    }
}

/* Find the positions of a prompt's open masks to fill in now. */
static void keep_best(bp_fill *self, int64_t b, int64_t rounds_left)
{
    int64_t from = self->of_prompt[b], end = self->of_prompt[b + 1],
            keep = self->spec.plan->fill.remask ? end - from
                                                : (end - from + rounds_left - 1) / rounds_left;

    for (; keep > 0; keep--) {
        open_mask *best = NULL;

        for (int64_t k = from; k < end; k++)
            if (self->open[k].token >= 0 && (!best || self->open[k].logprob > best->logprob))
                best = &self->open[k];
        self->inputs[best->place] = best->token;
        self->logprobs[best->place] = (double)best->logprob;
        best->token = -1;
    }
}

static bp_err check_finite(const bp_fill *self, int64_t first, int64_t prompts)
{
    for (int64_t b = 0; b < prompts; b++)
        for (int64_t k = self->of_prompt[b]; k < self->of_prompt[b + 1]; k++)
            if (!isfinite(self->open[k].logprob))
                return BP_FAIL(BP_ERR_SOFTWARE, "model.not_finite",
                               "a log-probability is not finite: in the masks of prompt %" PRId64
                               "; the model's weights are not fit for use",
                               first + b);
    return BP_OK;
}

static bool is_stopped(bp_fill *self)
{
    MPI_Comm comm = self->spec.mesh->replica;
    int32_t stop =
        bp_comm_is_root(comm) && self->spec.stop_asked && self->spec.stop_asked(self->spec.context);

    bp_bcast_bytes(&stop, sizeof stop, 0, comm);
    return stop != 0;
}

static bp_err run_round(bp_fill *self, int64_t first, int64_t prompts, int64_t T,
                        int64_t rounds_left)
{
    const bp_mesh *mesh = self->spec.mesh;
    const bp_fill_rule *rule = &self->spec.plan->fill;
    bp_model *model = self->spec.model;
    int64_t count;
    const bp_model_batch batch = {.windows = prompts,
                                  .length = T,
                                  .inputs = self->inputs,
                                  .targets = self->targets,
                                  .first_slot = first};
    bp_err err;

    for (int64_t b = 0; rule->remask && rounds_left < rule->rounds && b < prompts; b++)
        mask_again(self, b, T, rounds_left);
    count = list_open(self, prompts, T);
    if (count == 0)
        return BP_OK;
    bp_heartbeat_step(++self->steps);
    err = model->ops->backbone(model, &batch, BP_MODEL_NO_DROPOUT, self->hidden);
    if (err != BP_OK)
        return err;
    for (int64_t k = 0; self->last && k < count; k += CHUNK_ROWS)
        choose(self, k, count - k < CHUNK_ROWS ? count - k : CHUNK_ROWS);
    bp_bcast_bytes(self->open, count * (int64_t)sizeof *self->open, mesh->pipeline_ranks - 1,
                   mesh->pipeline);
    err = check_finite(self, first, prompts);
    for (int64_t b = 0; b < prompts && err == BP_OK; b++)
        keep_best(self, b, rounds_left);
    return err;
}

static void add_results(const bp_fill *self, bp_buffer *result, int64_t prompts, int64_t T)
{
    int32_t *tokens = bp_alloc("generate.fill", T, sizeof *tokens);
    double *logprobs = bp_alloc("generate.fill", T, sizeof *logprobs);

    for (int64_t b = 0; b < prompts; b++) {
        bp_search_text text = {.tokens = tokens, .logprobs = logprobs, .finish = BP_FINISH_LENGTH};

        for (int64_t r = b * T; r < (b + 1) * T; r++)
            if (self->masked[r]) {
                tokens[text.count] = self->inputs[r];
                logprobs[text.count++] = self->logprobs[r];
            }
        bp_result_add_text(result, &text, 1);
    }
    bp_free(tokens);
    bp_free(logprobs);
}

bp_err bp_fill_run(bp_fill *self, int64_t number, bp_buffer *result, bool *stopped)
{
    const bp_generate_plan *plan = self->spec.plan;
    int64_t first = number * plan->unit_prompts, left = plan->prompts - first, T = 0,
            prompts = left < plan->unit_prompts ? left : plan->unit_prompts;
    bp_err err = BP_OK;

    *stopped = false;
    for (int64_t b = 0; b < prompts; b++) {
        int64_t length = length_of(&self->spec, first + b);

        T = length > T ? length : T;
    }
    for (int64_t b = 0; b < prompts; b++)
        frame(self, b, first + b, T);
    for (int64_t round = 0; round < plan->fill.rounds && err == BP_OK && !*stopped; round++) {
        err = run_round(self, first, prompts, T, plan->fill.rounds - round);
        *stopped = err == BP_OK && is_stopped(self);
    }
    if (err == BP_OK && !*stopped && bp_comm_is_root(self->spec.mesh->replica))
        add_results(self, result, prompts, T);
    return err;
}
