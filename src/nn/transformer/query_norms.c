/* Norms of queries and keys before rotation: per head, or over all heads together with sums over
 * tensor ranks; and their clips. Called by the files of a Transformer layer. */
#include "mesh/collective.h"
#include "nn/transformer/transformer_priv.h"

enum { Q, K, KINDS };

static bool is_whole(const layer *self)
{
    return self->shape.query_norm == BP_QUERY_NORM_WHOLE;
}

void query_add_params(layer *self, bp_group *group)
{
    static const char *const NAMES[KINDS] = {"attn.q.ln.gain", "attn.k.ln.gain"};
    int64_t heads[KINDS] = {self->shape.H, self->shape.G};
    char name[BP_PARAM_NAME];

    for (int kind = 0; kind < KINDS; kind++)
        self->query_gain[kind] =
            bp_group_add_vector(group, layer_param_name(name, self, NAMES[kind]),
                                is_whole(self) ? heads[kind] * self->D : self->D, BP_INIT_ONE);
}

/* Where the gains of this rank's heads begin. */
static int64_t first_gain(const layer *self, int kind)
{
    return is_whole(self) ? (kind == Q ? self->first_head : self->first_key) * self->D : 0;
}

/* If several ranks have a head of keys, the first of them counts it. */
static bp_part_norm norm_of(const layer *self, const bp_pass *pass, int kind)
{
    int64_t D = self->D, group = self->shape.H / self->shape.G,
            heads = kind == Q ? self->Hl : self->Gl,
            all = kind == Q ? self->shape.H : self->shape.G;
    bool is_copy = is_whole(self) && kind == K && self->first_key * group < self->first_head;

    return (bp_part_norm){.row = layer_qkv_columns(self),
                          .rows = pass->B * pass->T,
                          .parts = is_whole(self) ? 1 : heads,
                          .D = is_whole(self) ? heads * D : D,
                          .whole = is_whole(self) ? all * D : D,
                          .counted_from = is_copy ? D : 0,
                          .gain = bp_param_gain(self->query_gain[kind]) + first_gain(self, kind),
                          .epsilon = self->shape.epsilon};
}

/* Both kinds', one after the other. */
static int64_t sum_floats(const layer *self, const bp_pass *pass)
{
    return pass->B * pass->T * (is_whole(self) ? KINDS : self->Hl + self->Gl);
}

void query_alloc_saved(const layer *self, bp_arena *arena, const bp_pass *pass, saved *kept)
{
    if (self->shape.query_norm == BP_QUERY_NORM_NONE)
        return;
    kept->query_before =
        bp_arena_floats(arena, pass->B * pass->T * (self->Hl + self->Gl) * self->D);
    kept->query_rstd = bp_arena_floats(arena, sum_floats(self, pass));
}

void query_repeat(const layer *self, const bp_pass *some, const saved *to, const saved *from,
                  int64_t times)
{
    int64_t at = 0, before = 0;

    if (!to->query_rstd || !from->query_rstd) /* no norms, or memory is only counted */
        return;
    for (int kind = 0; kind < KINDS; kind++) {
        bp_part_norm norm = norm_of(self, some, kind);
        int64_t sums = norm.rows * norm.parts, floats = sums * norm.D;

        bp_repeat_floats(to->query_rstd + at * times, from->query_rstd + at, sums, times);
        bp_repeat_floats(to->query_before + before * times, from->query_before + before, floats,
                         times);
        at += sums;
        before += floats;
    }
}

query_work query_alloc(const layer *self, bp_arena *arena, const bp_pass *pass, bool backward)
{
    int64_t rows = pass->B * pass->T;
    query_work work = {0};

    if (self->shape.query_norm == BP_QUERY_NORM_NONE)
        return work;
    work.sums = bp_arena_floats(arena, sum_floats(self, pass));
    if (is_whole(self) && self->block.nn->tensor_ranks > 1)
        work.on_the_way = bp_arena_floats(arena, sum_floats(self, pass));
    if (backward)
        work.gains =
            bp_arena_floats(arena, bp_part_norm_scratch(rows, is_whole(self) ? self->Cl : self->D));
    return work;
}

static void sum_over_ranks(const layer *self, const bp_pass *pass, float *sums,
                           const query_work *work)
{
    if (work->on_the_way)
        bp_all_sum(sums, sum_floats(self, pass), work->on_the_way, self->block.nn->tensor);
}

void query_forward(const layer *self, const bp_pass *pass, float *qkv, const saved *kept,
                   const query_work *work)
{
    float *sums = kept->query_rstd ? kept->query_rstd : work->sums, *before = kept->query_before,
          *at = sums;

    if (self->shape.query_norm == BP_QUERY_NORM_NONE)
        return;
    for (int kind = 0; kind < KINDS; kind++) {
        bp_part_norm norm = norm_of(self, pass, kind);

        bp_part_norm_squares(at, qkv + kind * self->Cl, &norm);
        at += norm.rows * norm.parts;
    }
    sum_over_ranks(self, pass, sums, work);
    at = sums;
    for (int kind = 0; kind < KINDS; kind++) {
        bp_part_norm norm = norm_of(self, pass, kind);

        bp_part_norm_forward(qkv + kind * self->Cl, before, at, &norm);
        at += norm.rows * norm.parts;
        if (before)
            before += norm.rows * norm.parts * norm.D;
    }
}

void query_backward(const layer *self, const bp_pass *pass, float *dqkv, const saved *kept,
                    const query_work *work)
{
    int64_t at = 0, from = 0;

    if (self->shape.query_norm == BP_QUERY_NORM_NONE)
        return;
    for (int kind = 0; kind < KINDS; kind++) {
        bp_part_norm norm = norm_of(self, pass, kind);

        bp_part_norm_dots(work->sums + at, dqkv + kind * self->Cl, kept->query_before + from,
                          kept->query_rstd + at, &norm);
        at += norm.rows * norm.parts;
        from += norm.rows * norm.parts * norm.D;
    }
    sum_over_ranks(self, pass, work->sums, work);
    at = from = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        bp_part_norm norm = norm_of(self, pass, kind);
        float *dgain = self->query_gain[kind]->gradient;
        bp_part_norm_gradients to = {dqkv + kind * self->Cl,
                                     dgain ? dgain + first_gain(self, kind) : NULL};

        bp_part_norm_backward(&to, kept->query_before + from, kept->query_rstd + at,
                              work->sums + at, &norm, work->gains);
        at += norm.rows * norm.parts;
        from += norm.rows * norm.parts * norm.D;
    }
}

void query_clip(const layer *self, float *qkv, int64_t rows, uint8_t *clipped)
{
    int64_t n = rows * layer_qkv_columns(self);
    float most = self->shape.clip;

    if (most == 0)
        return;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; i++) {
        float x = qkv[i];

        if (clipped)
            clipped[i] = x < -most || x > most;
        qkv[i] = x < -most ? -most : x > most ? most : x;
    }
}

void query_clip_backward(const layer *self, float *dqkv, int64_t rows, const uint8_t *clipped)
{
    int64_t n = rows * layer_qkv_columns(self);

    if (self->shape.clip == 0)
        return;
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; i++)
        dqkv[i] = clipped[i] ? 0 : dqkv[i];
}
