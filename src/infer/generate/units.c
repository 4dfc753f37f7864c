/* A unit: groups of prompts in turn through the stages; one rank chooses, and broadcasts its
 * choice.
 *
 * The ranks of the last stage have the logits of their slices; tensor rank 0 of member 0 there, the
 * chooser, gathers them, chooses for each slot, and sends what is fed next to every other rank of
 * mesh->replica. While a group's answer is on its way, the stages work on the other groups.
 *
 * Called by generate.c and train/parts/samples.c. */
#include "infer/generate/units.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "infer/generate/fill.h"
#include "infer/generate/results/results.h"
#include "math/kernels/kernels.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <string.h>

enum { TAG_NEXT = 71, TAG_LOOK, TAG_LOGITS, TAG_COLUMNS, TAG_RESULT, TAG_RESULT_BYTES };

/* The state of a group: continues, has all its texts, was stopped, or met a NaN. */
enum { GOES_ON, OVER, STOPPED, FAILED };

/* The next inputs of a group's slots, as sent: {state, prompt that failed, counts[slots],
 * parents[slots], tokens[]}. */
typedef struct unit_group {
    int64_t first, prompts; /* of the unit's */
    int64_t slots;          /* of these prompts */
    int64_t steps;
    bool over;
    int32_t *next;          /* [2 + 3 slots] */
    int32_t *prompt_tokens; /* [group prompts x longest] of the first step */
    bp_transfer *sends;     /* [ranks of mesh->replica], of the chooser */
    bp_search **searches;   /* [group prompts], the chooser's */
    bp_search_next *chosen; /* [group prompts] */
    bool *goes_on;          /* [group prompts] */
} unit_group;

typedef struct bp_unit {
    bp_unit_spec spec;
    bp_fill *fill;                /* runs the unit; NULL for other strategies */
    int64_t K;                    /* slots of a prompt */
    int chooser;                  /* rank in mesh->replica */
    bool chooses, leads, gathers; /* gathers: sends a slice to the chooser */
    bool ensemble;                /* the model returns statistics; else the chooser finds them */
    bp_decoding *decoding;
    unit_group *groups;
    float *slice;  /* [slots][vocab_count] */
    float *logits; /* [slots][V], the chooser's; may be slice */
    float *statistics;
    int64_t *columns; /* [tensor ranks][2] first and count, the chooser's */
    float *max;
    double *sums, *targets; /* [slots] log-sums, in the end; scratch */
    int32_t *zeros;         /* [slots] */
    double *entropies;      /* [slots], of one model */
    bp_choice *choices;     /* [threads] */
    int threads;
    int abandon;   /* STOPPED or FAILED, after a group was */
    int32_t wrong; /* FAILED: the first prompt that failed */
    int64_t steps;
} bp_unit;

/* ---- memory ---- */

static bool is_last(const bp_mesh *mesh)
{
    return mesh->pipeline_rank == mesh->pipeline_ranks - 1;
}

static int64_t next_count(const bp_unit *unit)
{
    return 2 + 3 * unit->spec.plan->slots;
}

static void new_group(bp_unit *unit, unit_group *group)
{
    const bp_generate_plan *plan = unit->spec.plan;

    group->next = bp_alloc("generate.unit", next_count(unit), sizeof *group->next);
    group->prompt_tokens =
        bp_alloc("generate.unit", plan->group_prompts * unit->spec.prompts->longest,
                 sizeof *group->prompt_tokens);
    if (!unit->chooses)
        return;
    group->sends =
        bp_alloc("generate.unit", bp_comm_size(unit->spec.mesh->replica), sizeof *group->sends);
    group->searches = bp_alloc("generate.unit", plan->group_prompts, sizeof *group->searches);
    group->chosen = bp_alloc("generate.unit", plan->group_prompts, sizeof *group->chosen);
    group->goes_on = bp_alloc("generate.unit", plan->group_prompts, sizeof *group->goes_on);
}

/* The columns of the tensor ranks of the last stage. */
static void learn_columns(bp_unit *unit)
{
    const bp_mesh *mesh = unit->spec.mesh;
    const bp_model_info *info = &unit->spec.model->info;
    int64_t mine[2] = {info->vocab_first, info->vocab_count};

    if (unit->gathers)
        bp_send(mine, sizeof mine, 0, TAG_COLUMNS, mesh->tensor);
    for (int r = 0; unit->chooses && r < mesh->tensor_ranks; r++) {
        if (r > 0)
            bp_recv(mine, sizeof mine, r, TAG_COLUMNS, mesh->tensor);
        memcpy(unit->columns + 2 * r, mine, sizeof mine);
    }
}

static void new_chooser(bp_unit *unit)
{
    int64_t slots = unit->spec.plan->slots, V = unit->spec.rule->choice.vocab_size;
    int tensors = unit->spec.mesh->tensor_ranks;

    unit->columns = bp_alloc("generate.unit", 2 * tensors, sizeof *unit->columns);
    unit->logits = tensors > 1 ? bp_alloc("generate.unit", slots * V, sizeof(float)) : unit->slice;
    unit->max = bp_alloc("generate.unit", slots, sizeof *unit->max);
    unit->sums = bp_alloc("generate.unit", slots, sizeof *unit->sums);
    unit->targets = bp_alloc("generate.unit", slots, sizeof *unit->targets);
    unit->zeros = bp_alloc("generate.unit", slots, sizeof *unit->zeros);
    unit->entropies = bp_alloc("generate.unit", slots, sizeof *unit->entropies);
    unit->threads = omp_get_max_threads();
    unit->choices = bp_alloc("generate.unit", unit->threads, sizeof *unit->choices);
    for (int t = 0; t < unit->threads; t++)
        bp_choice_init(&unit->choices[t], &unit->spec.rule->choice);
}

/* The widest slice that the chooser receives. */
static int64_t widest_slice(const bp_unit_spec *spec)
{
    return spec->rule->choice.vocab_size / spec->mesh->tensor_ranks + 1;
}

/* For a model that fills in masks and does not decode. */
static bp_err new_filling(bp_unit **out, const bp_unit_spec *spec)
{
    bp_fill *fill;
    bp_err err = bp_fill_new(&fill, spec);

    if (err != BP_OK)
        return err;
    *out = bp_alloc("generate.unit", 1, sizeof **out);
    (*out)->fill = fill;
    (*out)->spec = *spec;
    return BP_OK;
}

bp_err bp_unit_new(bp_unit **out, const bp_unit_spec *spec)
{
    const bp_generate_plan *plan = spec->plan;
    const bp_mesh *mesh = spec->mesh;
    bp_decoding *decoding;

    *out = NULL;
    if (plan->fill.rounds > 0)
        return new_filling(out, spec);
    if (plan->reads_source)
        spec->model->info.source_capacity = spec->prompts->longest;
    bp_err err =
        bp_model_decode_new(&decoding, spec->model, plan->groups, plan->slots, plan->capacity);

    if (err != BP_OK)
        return err;
    bp_unit *unit = bp_alloc("generate.unit", 1, sizeof *unit);

    unit->spec = *spec;
    unit->decoding = decoding;
    unit->K = bp_search_slots(spec->rule);
    unit->chooser =
        (mesh->pipeline_ranks - 1) * mesh->tensor_ranks; /* of member 0, the last stage */
    unit->leads = bp_comm_is_root(mesh->replica);
    unit->chooses = bp_comm_rank(mesh->replica) == unit->chooser;
    unit->gathers = is_last(mesh) && mesh->member_index == 0 && mesh->tensor_rank > 0;
    unit->ensemble = spec->model->info.members > 0;
    if (is_last(mesh)) {
        unit->slice = bp_alloc("generate.unit", plan->slots * widest_slice(spec), sizeof(float));
        unit->statistics =
            bp_alloc("generate.unit", plan->slots * BP_DECODE_STATISTICS, sizeof(float));
    }
    if (unit->chooses)
        new_chooser(unit);
    unit->groups = bp_alloc("generate.unit", plan->groups, sizeof *unit->groups);
    for (int g = 0; g < plan->groups; g++)
        new_group(unit, &unit->groups[g]);
    learn_columns(unit);
    *out = unit;
    return BP_OK;
}

static void free_searches(unit_group *group)
{
    for (int64_t p = 0; group->searches && p < group->prompts; p++)
        bp_search_free(&group->searches[p]);
}

void bp_unit_free(bp_unit **out)
{
    bp_unit *unit = *out;

    if (!unit)
        return;
    bp_fill_free(&unit->fill);
    for (int g = 0; unit->groups && g < unit->spec.plan->groups; g++) {
        bp_free(unit->groups[g].goes_on);
        bp_free(unit->groups[g].chosen);
        bp_free(unit->groups[g].searches);
        bp_free(unit->groups[g].sends);
        bp_free(unit->groups[g].prompt_tokens);
        bp_free(unit->groups[g].next);
    }
    bp_free(unit->groups);
    for (int t = 0; t < unit->threads; t++)
        bp_choice_clear(&unit->choices[t]);
    bp_free(unit->choices);
    bp_free(unit->entropies);
    bp_free(unit->zeros);
    bp_free(unit->targets);
    bp_free(unit->sums);
    bp_free(unit->max);
    bp_free(unit->columns);
    if (unit->logits != unit->slice)
        bp_free(unit->logits);
    bp_free(unit->statistics);
    bp_free(unit->slice);
    bp_model_decode_free(&unit->decoding);
    bp_free(unit);
    *out = NULL;
}

/* ---- inputs of a group ---- */

static int32_t *counts_of(const unit_group *group)
{
    return group->next + 2;
}

static int32_t *parents_of(const unit_group *group)
{
    return group->next + 2 + group->slots;
}

static int32_t *tokens_of(const unit_group *group)
{
    return group->next + 2 + 2 * group->slots;
}

/* The prompts, each to its first slot. */
static void begin_group(bp_unit *unit, unit_group *group, int64_t first, int64_t prompts)
{
    const bp_unit_spec *spec = &unit->spec;
    int32_t *tokens = group->prompt_tokens;

    group->first = first;
    group->prompts = prompts;
    group->slots = prompts * unit->K;
    group->steps = 0;
    group->over = prompts == 0;
    group->next[0] = GOES_ON;
    memset(counts_of(group), 0, (size_t)group->slots * sizeof(int32_t));
    for (int64_t p = 0; p < prompts; p++) {
        bool reads = spec->plan->reads_source;
        const int32_t *ids = reads ? &spec->plan->start : bp_prompts_ids(spec->prompts, first + p);
        int64_t length = reads ? 1 : bp_prompts_length(spec->prompts, first + p);

        counts_of(group)[p * unit->K] = (int32_t)length;
        memcpy(tokens, ids, (size_t)length * sizeof *tokens);
        tokens += length;
        int64_t capacity = bp_prompts_left_out(spec->prompts, first + p)
                               ? 1
                               : bp_generate_tokens_left(spec->plan, length);
        if (unit->chooses)
            bp_search_new(&group->searches[p], spec->rule, ids, length, first + p, capacity, true);
    }
}

static bp_decode_step step_of(const unit_group *group)
{
    bool first = group->steps == 0;

    return (bp_decode_step){.slots = group->slots,
                            .counts = counts_of(group),
                            .tokens = first ? group->prompt_tokens : tokens_of(group),
                            .parents = first ? NULL : parents_of(group)};
}

/* ---- the last stage ---- */

/* The columns of all tensor ranks, row by row, at the chooser. */
static void gather_logits(bp_unit *unit, const unit_group *group)
{
    const bp_mesh *mesh = unit->spec.mesh;
    int64_t V = unit->spec.rule->choice.vocab_size;
    int64_t count = unit->spec.model->info.vocab_count;

    if (unit->gathers)
        bp_send(unit->slice, group->slots * count * (int64_t)sizeof(float), 0, TAG_LOGITS,
                mesh->tensor);
    for (int r = 0; unit->chooses && mesh->tensor_ranks > 1 && r < mesh->tensor_ranks; r++) {
        int64_t first = unit->columns[2 * r], columns = unit->columns[2 * r + 1];

        if (r > 0)
            bp_recv(unit->slice, group->slots * columns * (int64_t)sizeof(float), r, TAG_LOGITS,
                    mesh->tensor);
        for (int64_t s = 0; s < group->slots; s++)
            memcpy(unit->logits + s * V + first, unit->slice + s * columns,
                   (size_t)columns * sizeof(float));
    }
}

/* The sums of rows, and the entropies for one model, whose logits are all on this rank (an ensemble
 * returns its own). Returns the number of the first prompt with a row that is not finite; -1 if all
 * are finite. */
static int64_t sum_rows(bp_unit *unit, const unit_group *group)
{
    int64_t V = unit->spec.rule->choice.vocab_size;
    const bp_logit_rows rows = {unit->logits, unit->zeros, group->slots, V, 0, V};

    if (unit->ensemble)
        bp_softmax_statistics(unit->max, unit->sums, unit->targets, &rows);
    else
        bp_softmax_entropies(unit->max, unit->sums, unit->entropies, &rows);
    for (int64_t s = 0; s < group->slots; s++) {
        float *to = unit->statistics + s * BP_DECODE_STATISTICS;

        unit->sums[s] = unit->max[s] + log(unit->sums[s]);
        if (counts_of(group)[s] > 0 && !isfinite(unit->sums[s]))
            return group->first + s / unit->K;
        if (!unit->ensemble) {
            to[BP_DECODE_ENTROPY] = (float)unit->entropies[s];
            to[BP_DECODE_MUTUAL_INFORMATION] = 0;
        }
    }
    return -1;
}

/* Each prompt's search takes its slots' rows. */
static void choose_all(bp_unit *unit, unit_group *group)
{
    int64_t V = unit->spec.rule->choice.vocab_size, K = unit->K;

#pragma omp parallel for schedule(dynamic) num_threads(unit->threads)
    for (int64_t p = 0; p < group->prompts; p++) {
        const bp_search_rows rows = {.logits = unit->logits + p * K * V,
                                     .log_sums = unit->sums + p * K,
                                     .statistics = unit->statistics + p * K * BP_DECODE_STATISTICS};

        if (group->steps == 0 || group->goes_on[p])
            group->goes_on[p] = bp_search_step(
                group->searches[p], &unit->choices[omp_get_thread_num()], &rows, &group->chosen[p]);
    }
}

/* The next inputs, from the chosen tokens. */
static void fill_next(const bp_unit *unit, unit_group *group)
{
    int32_t *counts = counts_of(group), *parents = parents_of(group), *tokens = tokens_of(group);
    bool any = false;

    for (int64_t p = 0; p < group->prompts; p++)
        for (int64_t k = 0; k < unit->K; k++) {
            int64_t s = p * unit->K + k;

            counts[s] = group->goes_on[p] ? group->chosen[p].counts[k] : 0;
            parents[s] =
                (int32_t)(group->goes_on[p] ? p * unit->K + group->chosen[p].parents[k] : s);
            if (counts[s])
                *tokens++ = group->chosen[p].tokens[k];
            any = any || counts[s];
        }
    group->next[0] = any ? GOES_ON : OVER;
}

static void choose(bp_unit *unit, unit_group *group, bool stop)
{
    const bp_mesh *mesh = unit->spec.mesh;
    int ranks = bp_comm_size(mesh->replica);
    int64_t wrong = sum_rows(unit, group);

    for (int r = 0; r < ranks; r++) /* the preceding step has been sent from `next` */
        bp_wait(&group->sends[r]);
    if (unit->abandon == GOES_ON && (wrong >= 0 || stop)) {
        unit->abandon = wrong >= 0 ? FAILED : STOPPED;
        unit->wrong = (int32_t)wrong;
    }
    if (unit->abandon == GOES_ON) {
        choose_all(unit, group);
        fill_next(unit, group);
    } else {
        group->next[0] = unit->abandon; /* all groups report the first prompt that failed */
        group->next[1] = unit->wrong;
    }
    for (int r = 0; r < ranks; r++)
        if (r != unit->chooser)
            bp_send_start(&group->sends[r], group->next,
                          next_count(unit) * (int64_t)sizeof *group->next, r, TAG_NEXT,
                          mesh->replica);
}

/* ---- all stages ---- */

/* The lead checks for a stop request, and the chooser receives the result. */
static bool ask_lead(bp_unit *unit)
{
    MPI_Comm comm = unit->spec.mesh->replica;
    int32_t stop =
        unit->leads && unit->spec.stop_asked && unit->spec.stop_asked(unit->spec.context);

    if (unit->leads && !unit->chooses)
        bp_send(&stop, sizeof stop, unit->chooser, TAG_LOOK, comm);
    if (unit->chooses && !unit->leads)
        bp_recv(&stop, sizeof stop, 0, TAG_LOOK, comm);
    return stop != 0;
}

/* Receive the choice of the preceding step; false if the group has ended. */
static bool learn_next(bp_unit *unit, unit_group *group)
{
    if (group->steps > 0 && !unit->chooses)
        bp_recv(group->next, next_count(unit) * (int64_t)sizeof *group->next, unit->chooser,
                TAG_NEXT, unit->spec.mesh->replica);
    if (group->steps > 0 && group->next[0] != GOES_ON) {
        group->over = true;
        unit->abandon = group->next[0] == OVER ? unit->abandon : group->next[0];
    }
    return !group->over;
}

static void take_step(bp_unit *unit, int g)
{
    unit_group *group = &unit->groups[g];
    bp_decode_step step = step_of(group);

    bp_heartbeat_step(++unit->steps);
    bp_model_decode(unit->decoding, g, &step, unit->slice,
                    unit->ensemble ? unit->statistics : NULL);
    bool stop = ask_lead(unit);

    gather_logits(unit, group);
    if (unit->chooses)
        choose(unit, group, stop);
    group->steps++;
}

/* The chooser's results go to the lead. */
static void hand_over(bp_unit *unit, bp_buffer *result)
{
    MPI_Comm comm = unit->spec.mesh->replica;
    bp_buffer mine = {0};
    int64_t bytes = 0;

    for (int g = 0; unit->chooses && g < unit->spec.plan->groups; g++)
        for (int64_t p = 0; p < unit->groups[g].prompts; p++)
            bp_result_add(unit->leads ? result : &mine, unit->groups[g].searches[p]);
    if (unit->chooses && !unit->leads) {
        bytes = (int64_t)mine.bytes;
        bp_send(&bytes, sizeof bytes, 0, TAG_RESULT_BYTES, comm);
        bp_send(mine.data, bytes, 0, TAG_RESULT, comm);
    } else if (unit->leads && !unit->chooses) {
        char *text;

        bp_recv(&bytes, sizeof bytes, unit->chooser, TAG_RESULT_BYTES, comm);
        text = bp_alloc("generate.unit", bytes, 1);
        bp_recv(text, bytes, unit->chooser, TAG_RESULT, comm);
        bp_buffer_add(result, text, (size_t)bytes);
        bp_free(text);
    }
    bp_buffer_clear(&mine);
}

/* The sources of a group. */
static void read_sources(bp_unit *unit, int g)
{
    const bp_prompts *prompts = unit->spec.prompts;
    const unit_group *group = &unit->groups[g];
    const bp_decode_sources sources = {.count = group->prompts,
                                       .slots_each = unit->K,
                                       .starts = prompts->starts + group->first,
                                       .tokens = (const int32_t *)prompts->ids.data};

    if (unit->spec.plan->reads_source && group->prompts > 0)
        bp_model_decode_sources(unit->decoding, g, &sources);
}

static void begin(bp_unit *unit, int64_t number)
{
    const bp_generate_plan *plan = unit->spec.plan;
    int64_t first = number * plan->unit_prompts;
    int64_t end =
        first + plan->unit_prompts < plan->prompts ? first + plan->unit_prompts : plan->prompts;

    unit->abandon = GOES_ON;
    for (int g = 0; g < plan->groups; g++) {
        int64_t from = first + g * plan->group_prompts, left = end - from;

        bp_model_decode_reset(unit->decoding, g);
        begin_group(unit, &unit->groups[g], from,
                    left < 0                     ? 0
                    : left < plan->group_prompts ? left
                                                 : plan->group_prompts);
        read_sources(unit, g);
    }
}

bp_err bp_unit_run(bp_unit *unit, int64_t number, bp_buffer *result, bool *stopped)
{
    int groups = unit->spec.plan->groups;
    int64_t wrong = -1;
    bool any = true;

    if (unit->fill)
        return bp_fill_run(unit->fill, number, result, stopped);
    begin(unit, number);
    while (any) {
        any = false;
        for (int g = 0; g < groups; g++)
            if (!unit->groups[g].over && learn_next(unit, &unit->groups[g])) {
                take_step(unit, g);
                any = true;
            }
    }
    for (int g = 0; g < groups; g++)
        wrong = unit->groups[g].next[0] == FAILED ? unit->groups[g].next[1] : wrong;
    *stopped = unit->abandon == STOPPED;
    if (unit->abandon == GOES_ON)
        hand_over(unit, result);
    for (int g = 0; g < groups && unit->chooses; g++) {
        for (int r = 0; r < bp_comm_size(unit->spec.mesh->replica); r++)
            bp_wait(&unit->groups[g].sends[r]);
        free_searches(&unit->groups[g]);
    }
    return unit->abandon == FAILED
               ? BP_FAIL(BP_ERR_SOFTWARE, "model.not_finite",
                         "a log-probability is not finite: in the continuation of prompt %" PRId64
                         "; the model's weights are not fit for use",
                         wrong)
               : BP_OK;
}
