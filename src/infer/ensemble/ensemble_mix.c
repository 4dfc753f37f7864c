/* Combines the members' distributions. Called for each chunk of rows, after ensemble_pass.c.
 *
 * Members on one rank have their logits side by side. If they are on several ranks, an all-to-all
 * transposes the rows: each rank gets a slice of the vocabulary of every member's row. So the ranks
 * across members divide the mixing as they divide the members. The sums of the slices are added
 * over these ranks in rank order, then over tensor ranks. */
#include "infer/ensemble/ensemble_priv.h"

#include "mesh/collective.h"
#include "nn/core/layers.h"
#include "statistics/dirichlet.h"

#include <math.h>
#include <string.h>

#define TAG_SLICE 102

int64_t ensemble_columns(int64_t count, int r, int size, int64_t *first)
{
    *first = count * r / size;
    return count * (r + 1) / size - *first;
}

bp_mixture ensemble_mixture(const ensemble *self, const ensemble_work *work, int64_t first,
                            int64_t rows)
{
    int64_t stride = self->mesh->members == 1 ? work->chunk : rows;

    return (bp_mixture){.members = self->member_count,
                        .rows = rows,
                        .columns = self->columns,
                        .logits = work->logits,
                        .member_stride = stride * self->columns,
                        .known = work->known,
                        .known_stride = rows,
                        .targets = work->targets + first,
                        .first = self->column_first};
}

/* The smallest over all ranks: the first entry of those found by each. */
static void all_first(int32_t *tops, int64_t rows, MPI_Comm comm)
{
    if (bp_comm_size(comm) > 1)
        BP_MPI_WAIT("all_min", MPI_Allreduce(MPI_IN_PLACE, tops, bp_mpi_count(rows), MPI_INT32_T,
                                             MPI_MIN, comm));
}

/* ---- a member ---- */

/* Its row over the whole vocabulary, of the logits of this rank's part. Collective over
 * mesh->tensor. */
static void know_member(ensemble *self, ensemble_work *work, bp_member_row *known,
                        const float *logits, int64_t first, int64_t rows)
{
    const bp_model_info *info = &self->model.info;
    bp_logit_rows in = {.logits = logits,
                        .targets = work->targets + first,
                        .rows = rows,
                        .V = info->vocab_count,
                        .first = info->vocab_first,
                        .stride = info->vocab_count};

    bp_logit_statistics(work->max, work->sums, &in, self->mesh->tensor);
    for (int64_t r = 0; r < rows; r++)
        known[r] = (bp_member_row){
            .max = work->max[r],
            .log_sum = (float)log(work->sums[r]),
            .log_total = log(work->sums[r]),
            .logprob = (float)bp_logit_logprob(work->max, work->sums, rows, r),
        };
    bp_member_tops(known, logits, rows, info->vocab_count, info->vocab_first);
    if (self->mesh->tensor_ranks == 1)
        return;
    for (int64_t r = 0; r < rows; r++)
        work->tops[r] = known[r].top;
    all_first(work->tops, rows, self->mesh->tensor);
    for (int64_t r = 0; r < rows; r++)
        known[r].top = work->tops[r];
}

/* The extras of a member's states hidden[rows][width]: variances that a Gaussian process stores
 * after its logits, or distances. */
static void take_more(const ensemble *self, bp_member_row *known, const float *hidden,
                      int64_t width, int64_t rows)
{
    bool varies = self->model.info.extras >> BP_EXTRA_VARIANCE & 1,
         measured = self->model.info.extras >> BP_EXTRA_DISTANCE & 1;

    for (int64_t r = 0; r < rows && (varies || measured); r++) {
        if (measured)
            self->sampler->ops->distance(self->sampler, hidden + r * width, 1, width,
                                         &known[r].more);
        else
            known[r].more = hidden[r * width + self->model.info.vocab_size];
    }
}

/* Apply the member's sampled change to them. */
static void change_logits(ensemble *self, const ensemble_work *work, const ensemble_member *member,
                          float *logits, int64_t first, int64_t rows)
{
    bp_member_rows of = {.member = member - self->members,
                         .rows = rows,
                         .first_column = self->model.info.vocab_first,
                         .columns = self->model.info.vocab_count,
                         .positions = work->positions + first,
                         .first_slot = work->first_slot,
                         .length = work->length};

    self->sampler->ops->logits(self->sampler, &of, logits);
}

/* The states of a member on this rank, from row `first` on. */
static const float *hidden_of(const ensemble *self, const ensemble_work *work,
                              const ensemble_member *member, int64_t first)
{
    const float *hidden = work->hidden;

    for (int64_t t = 0; t < member->backbone; t++)
        hidden += (work->rows + work->chunk) * self->backbones[t].width;
    return hidden + first * self->backbones[member->backbone].width;
}

/* Compute the logits of a member on this rank, in `logits`. */
static void run_head(ensemble *self, const ensemble_work *work, const ensemble_member *member,
                     float *logits, int64_t first, int64_t rows)
{
    const float *hidden = hidden_of(self, work, member, first);
    const ensemble_backbone *backbone = &self->backbones[member->backbone];
    int64_t filled = bp_head_filled_rows(rows, work->chunk);

    if (work->decodings)
        backbone->model->ops->decode_logits(work->decodings[member->backbone], member->head, hidden,
                                            filled, logits);
    else
        backbone->model->ops->logits(backbone->model, member->head, hidden, filled, logits);
    if (self->sampler && self->sampler->ops->logits)
        change_logits(self, work, member, logits, first, rows);
}

/* ---- members of several ranks ---- */

/* Rows of this rank's member, packed by receiver: a slice of all rows for each; this rank's own
 * goes to its final place. */
static void pack_slices(const ensemble *self, ensemble_work *work, float *mine, int64_t rows)
{
    int64_t V = self->model.info.vocab_count;
    int A = self->mesh->members;

    for (int to = 0; to < A; to++) {
        int64_t first, count = ensemble_columns(V, to, A, &first);
        float *out = to == self->mesh->member_index ? mine : work->outgoing + rows * first;
#pragma omp parallel for schedule(static) if (rows * count > 8192)
        for (int64_t r = 0; r < rows; r++)
            memcpy(out + r * count, work->own + r * V + first, (size_t)count * sizeof(float));
    }
}

/* The destination of the slices of round `round`, in member order; *here: its number of members. */
static float *round_logits(const ensemble *self, const ensemble_work *work, int64_t round,
                           int64_t rows, int64_t *here)
{
    int64_t A = self->mesh->members, left = self->member_count - round * A;

    *here = left < A ? left : A;
    return work->logits + round * A * rows * self->columns;
}

/* For all rounds at once: no rank waits for another before it has run all of its heads. */
static void start_receives(ensemble *self, ensemble_work *work, int64_t rows)
{
    const bp_mesh *mesh = self->mesh;
    int64_t slice = rows * self->columns, bytes = slice * (int64_t)sizeof(float), here;

    for (int64_t round = 0; round < self->rounds; round++) {
        float *logits = round_logits(self, work, round, rows, &here);
        bp_transfer *receiving = self->receiving + round * mesh->members;

        for (int from = 0; from < here && bytes > 0; from++)
            if (from != mesh->member_index)
                bp_recv_start(&receiving[from], logits + from * slice, bytes, from, TAG_SLICE,
                              mesh->across);
    }
}

static void wait_for(bp_transfer *transfers, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        bp_wait(&transfers[k]);
}

/* This rank's member of the round: packed after the preceding slices are sent, and sent while the
 * next head runs. */
static void start_sends(ensemble *self, ensemble_work *work, int64_t round, int64_t rows)
{
    const bp_mesh *mesh = self->mesh;
    int A = mesh->members, me = mesh->member_index;
    int64_t here;
    float *logits = round_logits(self, work, round, rows, &here);

    wait_for(self->sending, A);
    pack_slices(self, work, logits + me * rows * self->columns, rows);
    for (int step = 1; step < A; step++) {
        int to = (me + step) % A;
        int64_t first, count = ensemble_columns(self->model.info.vocab_count, to, A, &first);

        if (count > 0)
            bp_send_start(&self->sending[to], work->outgoing + rows * first,
                          rows * count * (int64_t)sizeof(float), to, TAG_SLICE, mesh->across);
    }
}

/* Send each rank's results for its members to all ranks. */
static void share_known(ensemble *self, ensemble_work *work, int64_t rows)
{
    int bytes = bp_mpi_count(rows * (int64_t)sizeof *work->known);
    int64_t A = self->mesh->members;

    for (int64_t round = 0; round < self->rounds; round++)
        BP_MPI_WAIT("all_gather", MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL,
                                                work->known + round * A * rows, bytes, MPI_BYTE,
                                                self->mesh->across));
}

/* ---- all members ---- */

static void gather_members(ensemble *self, ensemble_work *work, int64_t first, int64_t rows)
{
    const bp_mesh *mesh = self->mesh;
    int64_t A = mesh->members;

    if (A > 1)
        start_receives(self, work, rows);
    for (int64_t k = mesh->member_index; k < self->member_count; k += A) {
        float *logits = A > 1 ? work->own : work->logits + k * work->chunk * self->columns;

        run_head(self, work, &self->members[k], logits, first, rows);
        know_member(self, work, work->known + k * rows, logits, first, rows);
        take_more(self, work->known + k * rows, hidden_of(self, work, &self->members[k], first),
                  self->backbones[self->members[k].backbone].width, rows);
        if (A > 1)
            start_sends(self, work, k / A, rows);
    }
    if (A == 1)
        return;
    share_known(self, work, rows);
    wait_for(self->sending, A);
    wait_for(self->receiving, self->rounds * A);
}

/* Combine each rank's results for its columns over the whole vocabulary: sums in rank order, first
 * across members, then over tensor ranks. */
static void combine(ensemble *self, ensemble_work *work, int64_t rows)
{
    const MPI_Comm comms[2] = {self->mesh->across, self->mesh->tensor};

    for (int64_t r = 0; r < rows; r++) {
        const bp_mixture_row *row = &work->mixed[r];

        work->totals[3 * r] = row->entropy;
        work->totals[3 * r + 1] = row->information;
        work->totals[3 * r + 2] = row->squares;
        work->max[r] = row->top_logprob;
    }
    for (int k = 0; k < 2; k++) {
        bp_all_sum_double(work->totals, 3 * rows, comms[k]);
        bp_all_max(work->max, rows, comms[k]);
    }
    for (int64_t r = 0; r < rows; r++) {
        float top = work->mixed[r].top_logprob;

        work->tops[r] = top == work->max[r] || isnan(top) ? work->mixed[r].top : INT32_MAX;
    }
    for (int k = 0; k < 2; k++)
        all_first(work->tops, rows, comms[k]);
}

/* ---- a prior network: the statistics of one distribution over distributions ---- */

static double alpha0_of(const ensemble_work *work, int64_t r)
{
    return exp((double)work->known[r].max + (double)work->known[r].log_sum);
}

/* The terms of this rank's columns, instead of a single member's 0. */
static void sum_prior(const ensemble *self, ensemble_work *work, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) {
        double alpha0 = alpha0_of(work, r), sum = 0, entropy = 0;

        for (int64_t v = 0; v < self->columns; v++) {
            double alpha = exp((double)work->logits[r * self->columns + v]);

            sum += bp_dirichlet_information(alpha, alpha0);
            entropy += bp_dirichlet_entropy_term(alpha, alpha0);
        }
        work->mixed[r].information = sum;
        work->spread[r] = entropy;
    }
}

/* The expected entropy of the class is the rest of the total. */
static void split_prior(const ensemble *self, ensemble_work *work, int64_t rows)
{
    bp_all_sum_double(work->spread, rows, self->mesh->across);
    bp_all_sum_double(work->spread, rows, self->mesh->tensor);
    for (int64_t r = 0; r < rows; r++) {
        double alpha0 = alpha0_of(work, r), *totals = &work->totals[3 * r];

        totals[1] += log(alpha0) - bp_digamma(alpha0 + 1);
        totals[1] = fmin(fmax(totals[1], 0), totals[0]);
        totals[0] -= totals[1];
        work->spread[r] -= lgamma(alpha0);
    }
}

void ensemble_mix(ensemble *self, ensemble_work *work, int64_t first, int64_t rows)
{
    bp_mixture in;

    gather_members(self, work, first, rows);
    in = ensemble_mixture(self, work, first, rows);
    bp_mixture_rows(work->mixed, &in);
    if (bp_model_is_prior(&self->model.info))
        sum_prior(self, work, rows);
    combine(self, work, rows);
    if (bp_model_is_prior(&self->model.info))
        split_prior(self, work, rows);
}
