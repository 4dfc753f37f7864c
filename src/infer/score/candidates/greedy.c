/* Is a choice what the model itself would write behind its context? */
#include "infer/score/candidates/greedy_priv.h"

#include "base/heartbeat.h"
#include "base/mem.h"
#include "mesh/collective.h"

#include <string.h>

/* What one rank of a group holds: a sequence is fed token by token. */
typedef struct walker {
    const scorer *self;
    bp_decoding *decoding;
    float *logits; /* [vocab_count] */
    int32_t *tokens;
} walker;

/* Numbers in the order of floats, below 2^32. */
static int64_t order_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits >> 31 ? (int64_t)~bits : (int64_t)bits | INT64_C(0x80000000);
}

/* Of the largest logit of all ranks, of equal ones the first token. Collective over the group. */
static int64_t best_token(const walker *w)
{
    const bp_model_info *info = &w->self->lm->info;
    const bp_mesh *mesh = w->self->mesh;
    bool last = bp_comm_rank(mesh->pipeline) == bp_comm_size(mesh->pipeline) - 1;
    int64_t best = -1; /* the order of a logit above the token, counted down */

    for (int64_t v = 0; last && v < info->vocab_count; v++) {
        int64_t key = order_of(w->logits[v]) << 31 | (INT32_MAX - (info->vocab_first + v));

        best = key > best ? key : best;
    }
    return INT32_MAX - (bp_all_max_int(best, mesh->ensemble) & INT32_MAX);
}

/* count tokens, of which the last `scored` are the choice's. Collective over the group. */
static bool is_greedy(const walker *w, int64_t count, int64_t scored)
{
    int64_t fed = 0;

    bp_model_decode_reset(w->decoding, 0);
    for (int64_t at = count - scored; at < count; at++) {
        const int32_t now = (int32_t)(at - fed);
        const bp_decode_step step = {.slots = 1, .counts = &now, .tokens = w->tokens + fed};

        bp_heartbeat_progress();
        bp_model_decode(w->decoding, 0, &step, w->logits, NULL);
        fed = at;
        if (best_token(w) != w->tokens[at])
            return false;
    }
    return true;
}

typedef struct header {
    int64_t count, scored; /* count 0: the end */
} header;

static bool walk(const walker *w, header *head)
{
    MPI_Comm comm = w->self->mesh->ensemble;

    if (bp_comm_size(comm) > 1)
        bp_bcast_bytes(head, sizeof *head, 0, comm);
    if (head->count == 0)
        return false;
    if (bp_comm_size(comm) > 1)
        bp_bcast_bytes(w->tokens, head->count * (int64_t)sizeof *w->tokens, 0, comm);
    return is_greedy(w, head->count, head->scored);
}

/* The lead's rows: those of its data rank. */
static void walk_rows(const walker *w, const bool *asked, double *greedy)
{
    const bp_candidates *all = &w->self->candidates;
    const bp_mesh *mesh = w->self->mesh;
    header head = {0};

    for (int64_t r = 0; r < all->first[all->documents]; r++) {
        const bp_candidate_row *row = &all->rows[r];

        if (!asked[r] || r % mesh->datas != mesh->data_at)
            continue;
        for (int64_t i = 0; i < row->count; i++)
            w->tokens[i] = (int32_t)all->ids.data[row->first + i];
        head = (header){row->count, row->scored};
        greedy[r] = walk(w, &head);
    }
    head.count = 0;
    (void)walk(w, &head);
}

bp_err candidates_greedy(double *greedy, bool *known, const scorer *self, const bool *asked,
                         int64_t longest)
{
    walker w = {.self = self};
    bp_err err = BP_OK;

    if (self->mesh->computes) {
        w.tokens = bp_alloc("score.candidates", longest, sizeof *w.tokens);
        w.logits = bp_alloc("score.candidates", self->lm->info.vocab_count, sizeof *w.logits);
        err = bp_model_decode_new(&w.decoding, self->lm, 1, 1, longest - 1);
    }
    err = bp_agree(self->mesh->world, err);
    *known = err == BP_OK;
    if (*known && self->leads)
        walk_rows(&w, asked, greedy);
    else if (*known && self->mesh->computes)
        for (header head = {1, 0}; head.count > 0;)
            (void)walk(&w, &head);
    bp_model_decode_free(&w.decoding);
    bp_free(w.logits);
    bp_free(w.tokens);
    return err == BP_ERR_CONFIG ? BP_OK : err; /* a model that cannot write says nothing of it */
}
