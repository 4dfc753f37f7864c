/* A step of decoding with a network.
 *
 * The step's tokens go through the pipeline as rows of one pass, piece by piece, for any
 * sequences. A table of cells says where a sequence's positions are in the caches: position p of
 * sequence s is in the memory of sequence cells[s][p]. So sequences that share their past share
 * its memory, and continuing another one copies a line of the table. A new position takes a cell
 * that no other sequence uses: there are as many cells as sequences, and the others use at most
 * one less. A block that keeps only one state per sequence, of any length, has as many positions,
 * which are assigned by the same rule.
 *
 * Called by decoding.c and network_model.c. */
#include "models/network/decoding_priv.h"

#include "base/err.h"
#include "mesh/collective.h"
#include "nn/core/layers.h"

#include <math.h>
#include <string.h>

#define TAG_ROWS     103
#define SHORT_SOURCE 96 /* tokens: with fewer, a library would multiply half-empty blocks */

/* ---- where positions are ---- */

/* Each slot of the step continues its parent's sequence. */
static void follow_parents(network_decoding *self, decoding_group *group,
                           const bp_decode_step *step)
{
    int32_t *cells = self->cells, *fed = self->fed, *state = self->state;
    int64_t capacity = self->face.capacity;
    bool moves = false;

    for (int64_t s = 0; step->parents && s < step->slots; s++)
        moves = moves || step->parents[s] != s;
    if (!moves)
        return;
    group->shared = true;
    for (int64_t s = 0; s < self->face.slots; s++) {
        int64_t parent = s < step->slots ? step->parents[s] : s;

        BP_ASSERT(parent >= 0 && parent < self->face.slots);
        fed[s] = group->fed[parent];
        state[s] = group->state[parent];
        memcpy(cells + s * capacity, group->cells + parent * capacity,
               (size_t)fed[s] * sizeof *cells);
    }
    self->cells = group->cells;
    self->fed = group->fed;
    self->state = group->state;
    group->cells = cells;
    group->fed = fed;
    group->state = state;
}

/* A cell for the next position of slot s: its own, if no other slot uses it. */
static void claim_cell(const network_decoding *self, decoding_group *group, int64_t s)
{
    int64_t slots = self->face.slots, capacity = self->face.capacity, position = group->fed[s],
            cell = s;

    BP_ASSERT(position < capacity);
    if (group->shared) {
        memset(self->used, 0, (size_t)slots * sizeof *self->used);
        for (int64_t t = 0; t < slots; t++)
            if (t != s && group->fed[t] > position)
                self->used[group->cells[t * capacity + position]] = 1;
        if (self->used[s])
            for (cell = 0; self->used[cell];)
                cell++;
    }
    group->cells[s * capacity + position] = (int32_t)cell;
    group->fed[s]++;
}

/* A place for the next state of slot s: the current one, if no other slot continues from it. */
static void claim_state(const network_decoding *self, decoding_group *group, int64_t s)
{
    int64_t slots = self->face.slots, to = group->state[s];

    self->states_from[s] = group->fed[s] > 0 ? group->state[s] : -1;
    if (group->shared) {
        memset(self->used, 0, (size_t)slots * sizeof *self->used);
        for (int64_t t = 0; t < slots; t++)
            if (t != s && group->fed[t] > 0)
                self->used[group->state[t]] = 1;
        if (self->used[to])
            for (to = 0; self->used[to];)
                to++;
    }
    self->states_to[s] = group->state[s] = (int32_t)to;
}

/* ---- rows through this stage ---- */

/* Where the next piece of a step begins: a token of a slot, and its index among the new tokens of
 * all slots. */
typedef struct place {
    int64_t slot, token, all;
} place;

/* Earlier tokens of slot s that are computed again: all of them, where its length changes their
 * states. */
static int64_t again(const network_decoding *self, const bp_decode_step *step, int64_t s)
{
    const bp_network *network = ((const network_model *)self->face.model)->network;
    int64_t before = self->ends[s] - step->counts[s], after = network->changes_after;

    return after > 0 && self->ends[s] > after && (network->changes_always || before <= after)
               ? before
               : 0;
}

/* The token of slot s for its next position: an earlier or a new one. */
static int32_t next_token(const network_decoding *self, const decoding_group *group,
                          const bp_decode_step *step, place *at)
{
    int64_t s = at->slot, capacity = self->face.capacity, position = group->fed[s];

    if (at->token >= again(self, step, s))
        return step->tokens[at->all++];
    return group->tokens[group->cells[s * capacity + position] * capacity + position];
}

/* The tokens from *at on become the rows of a piece; 0 if there are no more. */
static int64_t take_piece(network_decoding *self, decoding_group *group, const bp_decode_step *step,
                          place *at)
{
    int64_t rows = 0, capacity = self->face.capacity;

    while (at->slot < step->slots && rows < self->most_rows) {
        int64_t repeated = again(self, step, at->slot), position;

        if (step->counts[at->slot] == 0 || at->token == repeated + step->counts[at->slot]) {
            at->slot++;
            at->token = 0;
            continue;
        }
        if (at->token == 0 && repeated > 0)
            group->fed[at->slot] = 0;
        if (rows == 0 || self->slots[rows - 1] != at->slot)
            claim_state(self, group, at->slot);
        position = group->fed[at->slot];
        self->tokens[rows] = next_token(self, group, step, at);
        self->positions[rows] = (int32_t)position;
        self->slots[rows] = (int32_t)at->slot;
        claim_cell(self, group, at->slot);
        if (group->tokens)
            group->tokens[group->cells[at->slot * capacity + position] * capacity + position] =
                self->tokens[rows];
        rows++;
        at->token++;
    }
    return rows;
}

static bp_continuation continuation_of(const network_decoding *self, const decoding_group *group,
                                       int64_t rows)
{
    return (bp_continuation){
        .rows = {rows, self->positions, self->slots, group->cells},
        .slots = self->face.slots,
        .capacity = self->face.capacity,
        .lengths = self->ends,
        .states_from = self->states_from,
        .states_to = self->states_to,
        .sources = self->face.slots,
        .source_capacity = self->face.model->info.source_capacity,
        .source_rows = {rows, self->source_positions, self->source_slots, self->source_cells},
        .scratch = self->attention};
}

/* Blocks [first, end). */
static void run_blocks(network_decoding *self, const decoding_group *group, bp_pass *pass,
                       int first, int end)
{
    const network_model *model = (const network_model *)self->face.model;
    const bp_network *network = model->network;
    bp_arena scratch = {.base = self->scratch, .size_bytes = self->scratch_bytes};

    pass->scratch = &scratch;
    for (int k = first; k < end; k++) {
        bp_activations activations = *bp_network_at(network, k);

        bp_activations_lay(&activations, &network->nn, pass, self->data, false);
        pass->continuation->cache = group->caches[k];
        bp_block_forward(network->blocks[k], pass, &activations, NULL);
    }
    pass->scratch = NULL; /* it was this function's */
}

static int64_t bytes_of(const bp_activations *activations, const bp_nn *nn, const bp_pass *pass)
{
    return bp_activations_floats(activations, nn, pass, false) * (int64_t)sizeof(float);
}

/* A run of blocks: from the previous stage, through this one, to the next. In training a stage may
 * have several runs, and the last stage sends to the first one. */
static void run_chunk(network_decoding *self, const decoding_group *group, bp_pass *pass, int chunk)
{
    const network_model *model = (const network_model *)self->face.model;
    const bp_network *network = model->network;
    const bp_mesh *mesh = model->mesh;
    int stages = mesh->pipeline_ranks, at = mesh->pipeline_rank, end = network->chunk_end[chunk];
    bool has_logits = network_is_last(model) && chunk == network->chunk_count - 1;

    if (at > 0 || chunk > 0)
        bp_recv(self->data, bytes_of(&network->inputs[chunk], &network->nn, pass),
                (at + stages - 1) % stages, TAG_ROWS, mesh->pipeline);
    run_blocks(self, group, pass, bp_network_chunk_first(network, chunk),
               end - (has_logits ? 1 : 0));
    if (!has_logits)
        bp_send(self->data, bytes_of(&network->outputs[end - 1], &network->nn, pass),
                (at + 1) % stages, TAG_ROWS, mesh->pipeline);
}

static void run_piece(network_decoding *self, const decoding_group *group, int64_t rows)
{
    const network_model *model = (const network_model *)self->face.model;
    int64_t filled = decoding_filled_rows(model, rows);
    bp_pass pass = decoding_pass(self->tokens, filled);
    bp_continuation rest = continuation_of(self, group, rows);

    for (int64_t r = 0; r < rows; r++) {
        self->source_slots[r] = group->source_of[self->slots[r]];
        self->source_positions[r] = group->source_ends[self->source_slots[r]];
    }
    for (int64_t r = rows; r < filled; r++)
        self->tokens[r] = self->positions[r] = 0;
    pass.continuation = &rest;
    int64_t most = network_begin_pass(model, true, filled);
    BP_ASSERT(most <= self->most_rows); /* all data ranks decode with the same plan */
    for (int c = 0; c < model->network->chunk_count; c++)
        run_chunk(self, group, &pass, c);
}

void network_decode_sources(bp_decoding *decoding, int group, const bp_decode_sources *sources)
{
    network_decoding *self = (network_decoding *)decoding;
    const network_model *model = (const network_model *)decoding->model;
    decoding_group *of = &self->groups[group];

    for (int64_t s = 0; s < sources->count * sources->slots_each; s++)
        of->source_of[s] = (int32_t)(s / sources->slots_each);
    for (int64_t k = 0; k < sources->count; k++) {
        int64_t positions = sources->starts[k + 1] - sources->starts[k];
        bp_pass pass = decoding_source_pass(sources->tokens + sources->starts[k], positions);
        bp_continuation rest = continuation_of(self, of, 0);

        rest.source = k;
        pass.continuation = &rest;
        of->source_ends[k] = (int32_t)positions - 1;
        bp_gemm_take_few_rows(model->gemm, positions <= SHORT_SOURCE);
        for (int c = 0; c < model->network->chunk_count; c++)
            run_chunk(self, of, &pass, c);
    }
    bp_gemm_take_few_rows(model->gemm, false);
}

/* Keeps the states of rows that are the last of their slots, after the `kept` rows of earlier
 * pieces. */
static int64_t keep_lasts(network_decoding *self, int64_t rows, int64_t kept)
{
    int64_t C = ((const network_model *)self->face.model)->C;

    for (int64_t r = 0; r < rows; r++)
        if (self->positions[r] + 1 == self->ends[self->slots[r]])
            memcpy(self->last.states + kept++ * C, self->data + r * C, (size_t)C * sizeof(float));
    return kept;
}

/* Returns the number of slots with tokens; 0 on stages other than the last. */
static int64_t run_step(bp_decoding *decoding, int group, const bp_decode_step *step, float *hidden)
{
    network_decoding *self = (network_decoding *)decoding;
    const network_model *model = (const network_model *)decoding->model;
    decoding_group *of = &self->groups[group];
    place at = {0};
    int64_t rows, kept = 0;

    bp_gemm_take_few_rows(model->gemm, true);
    follow_parents(self, of, step);
    for (int64_t s = 0; s < step->slots; s++)
        self->ends[s] = of->fed[s] + step->counts[s];
    while ((rows = take_piece(self, of, step, &at)) > 0) {
        run_piece(self, of, rows);
        if (network_is_last(model))
            kept = keep_lasts(self, rows, kept);
    }
    if (kept > 0)
        bp_lm_head_norm(network_head(model), hidden, self->last.states, kept);
    bp_gemm_take_few_rows(model->gemm, false);
    return kept;
}

/* ---- results of their last rows ---- */

void network_decode_states(bp_decoding *decoding, int group, const bp_decode_step *step,
                           float *hidden)
{
    run_step(decoding, group, step, hidden);
}

void network_decode_logits(bp_decoding *decoding, int64_t head, const float *hidden, int64_t rows,
                           float *logits)
{
    network_model *model = (network_model *)decoding->model;

    bp_gemm_take_few_rows(model->gemm, true);
    model->face.ops->logits(&model->face, head, hidden, rows, logits);
    bp_gemm_take_few_rows(model->gemm, false);
}

/* logits[rows filled up] of last.hidden[rows] */
static void make_logits(network_decoding *self, float *logits, int64_t rows)
{
    const network_model *model = (const network_model *)self->face.model;
    int64_t filled = decoding_filled_rows(model, rows);

    bp_zero(self->last.hidden + rows * model->C, (filled - rows) * model->C);
    network_decode_logits(&self->face, 0, self->last.hidden, filled, logits);
}

/* Entropies of `rows` of logits, in totals[2][rows], as for an ensemble of one member. */
static void sum_entropies(network_decoding *self, const float *logits, int64_t rows)
{
    const network_model *model = (const network_model *)self->face.model;
    const bp_model_info *info = &model->face.info;
    last_work *last = &self->last;
    bp_logit_rows in = {logits,           last->targets, rows, info->vocab_count, info->vocab_first,
                        info->vocab_count};
    bp_mixture mixture = {.members = 1,
                          .rows = rows,
                          .columns = info->vocab_count,
                          .logits = logits,
                          .known = last->known,
                          .known_stride = rows,
                          .targets = last->targets,
                          .first = info->vocab_first};

    for (int64_t r = 0; r < rows; r++)
        last->targets[r] = -1;
    bp_logit_statistics(last->max, last->sums, &in, model->mesh->tensor);
    for (int64_t r = 0; r < rows; r++)
        last->known[r] = (bp_member_row){.max = last->max[r], .log_sum = (float)log(last->sums[r])};
    bp_mixture_rows(last->mixed, &mixture);
    for (int64_t r = 0; r < rows; r++)
        last->totals[r] = last->mixed[r].entropy;
    bp_all_sum_double(last->totals, rows, model->mesh->tensor);
}

void network_decode(bp_decoding *decoding, int group, const bp_decode_step *step, float *logits,
                    float *statistics)
{
    network_decoding *self = (network_decoding *)decoding;
    const network_model *model = (const network_model *)decoding->model;
    int64_t V = model->face.info.vocab_count, r = 0;
    int64_t rows = run_step(decoding, group, step, self->last.hidden);
    bool direct = rows == step->slots && decoding_filled_rows(model, rows) == rows;
    float *made = direct ? logits : self->last.logits;

    if (rows == 0)
        return;
    make_logits(self, made, rows);
    if (statistics)
        sum_entropies(self, made, rows);
    for (int64_t s = 0; s < step->slots; s++) {
        if (step->counts[s] == 0)
            continue;
        if (!direct)
            memcpy(logits + s * V, made + r * V, (size_t)V * sizeof *logits);
        if (statistics) {
            statistics[s * BP_DECODE_STATISTICS + BP_DECODE_ENTROPY] = (float)self->last.totals[r];
            statistics[s * BP_DECODE_STATISTICS + BP_DECODE_MUTUAL_INFORMATION] = 0;
        }
        r++;
    }
}

/* Does an earlier block of this stage multiply by the same shapes? */
static bool is_prepared(const network_model *model, int k, const bp_extent *most)
{
    const bp_block *block = model->network->blocks[k];
    bp_product_bytes own = block->ops->product_bytes(block, most);

    for (int j = 0; j < k; j++) {
        const bp_block *other = model->network->blocks[j];
        bp_product_bytes bytes = other->ops->product_bytes(other, most);

        if (other->ops == block->ops && bytes.copies == own.copies && bytes.scratch == own.scratch)
            return true;
    }
    return false;
}

void decoding_warm_up(network_decoding *self)
{
    network_model *model = (network_model *)self->face.model;
    bool shapes = bp_gemm_prepares(model->gemm);
    int64_t most = shapes ? self->most_rows : 1, most_lasts = shapes ? self->most_lasts : 1;
    decoding_group *group = &self->groups[0];

    if (network_shares_passes(model)) /* other ranks may not be here */
        most = 0;
    for (int64_t s = 0; s < self->face.slots; s++) {
        group->cells[s * self->face.capacity] = self->states_to[s] = (int32_t)s;
        self->ends[s] = 1;
        self->states_from[s] = -1;
    }
    bp_gemm_take_few_rows(model->gemm, true);
    for (int64_t rows = 1; rows <= most; rows *= 2) {
        bp_pass pass = decoding_pass(self->tokens, rows);
        bp_continuation rest = continuation_of(self, group, rows);

        for (int64_t r = 0; r < rows; r++)
            self->tokens[r] = self->positions[r] = self->source_slots[r] =
                self->source_positions[r] = 0;
        for (int64_t r = 0; r < rows; r++)
            self->slots[r] = (int32_t)(r < self->face.slots ? r : self->face.slots - 1);
        bp_zero(self->data, rows * model->C);
        pass.continuation = &rest;
        for (int k = 0; k < decoding_blocks(model); k++)
            if (!is_prepared(model, k, &pass.extent))
                run_blocks(self, group, &pass, k, k + 1);
    }
    bp_gemm_take_few_rows(model->gemm, false);
    for (int64_t rows = 1; network_is_last(model) && rows <= most_lasts; rows *= 2) {
        bp_zero(self->last.hidden, rows * model->C);
        make_logits(self, self->last.logits, rows);
    }
}
