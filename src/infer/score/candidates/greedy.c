/* Checks whether the model itself would write a choice after its context. Called by choices.c after
 * the batch of a unit. */
#include "infer/score/candidates/greedy.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "mesh/collective.h"

#include <string.h>

/* Numbers in the order of floats, below 2^32. */
static int64_t order_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits >> 31 ? (int64_t)~bits : (int64_t)bits | INT64_C(0x80000000);
}

/* The token with the largest logit of all ranks; the first of equal ones. Collective over the
 * group. */
static int64_t best_token(const greedy_walker *w)
{
    const bp_model_info *info = &w->job->model->info;
    const bp_mesh *mesh = w->job->mesh;
    bool last = bp_comm_rank(mesh->pipeline) == bp_comm_size(mesh->pipeline) - 1;
    int64_t best = -1; /* the order of a logit above the token, counted down */

    for (int64_t v = 0; last && v < info->vocab_count; v++) {
        int64_t key = order_of(w->logits[v]) << 31 | (INT32_MAX - (info->vocab_first + v));

        best = key > best ? key : best;
    }
    return INT32_MAX - (bp_all_max_int(best, mesh->replica) & INT32_MAX);
}

bool greedy_walk(const greedy_walker *w, int64_t count, int64_t scored)
{
    int64_t fed = 0;

    bp_bcast_bytes(w->tokens, count * (int64_t)sizeof *w->tokens, 0, w->job->mesh->replica);
    bp_model_decode_reset(w->decoding, 0);
    for (int64_t at = count - scored; at < count; at++) {
        const int32_t now = (int32_t)(at - fed);
        const bp_decode_step step = {.slots = 1, .counts = &now, .tokens = w->tokens + fed};

        bp_heartbeat_progress();
        bp_model_decode(w->decoding, 0, &step, w->logits, NULL);
        if (w->job->leads)
            (void)bp_work_between(w->job); /* a stop takes effect between two choices */
        fed = at;
        if (best_token(w) != w->tokens[at])
            return false;
    }
    return true;
}

bp_err greedy_open(greedy_walker *w, bp_work_job *job, int64_t longest)
{
    bp_err err;

    w->job = job;
    w->tokens = bp_alloc("score.candidates", longest, sizeof *w->tokens);
    w->logits = bp_alloc("score.candidates", job->model->info.vocab_count, sizeof *w->logits);
    err = bp_model_decode_new(&w->decoding, job->model, 1, 1, longest - 1);
    err = bp_agree(job->mesh->replica, err);
    if (err != BP_OK)
        bp_model_decode_free(&w->decoding);
    return err == BP_ERR_CONFIG ? BP_OK : err; /* unknown for a model that can't write */
}

void greedy_close(greedy_walker *w)
{
    bp_model_decode_free(&w->decoding);
    bp_free(w->logits);
    bp_free(w->tokens);
    *w = (greedy_walker){0};
}
