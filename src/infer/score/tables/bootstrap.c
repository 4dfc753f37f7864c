/* The bootstrap over documents, whose resamples are divided over ranks. Called by summary.c on the
 * coordinator, and by loop.c on the others. */
#include "infer/score/tables/bootstrap.h"

#include "base/mem.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include "statistics/resample.h"

#include <math.h>

enum { NLL, TOKENS, COLUMNS };

#define CHUNK_BLOCKS 16 /* of documents sent at a time: 1 MiB */
#define SHARED_FROM  (4 * BP_RESAMPLE_BLOCK)

/* The coordinator's request. */
typedef struct resampling {
    int64_t n;
    uint64_t seed;
    const bp_score_draw *draws; /* these two are the coordinator's */
    double *values;             /* [BP_RESAMPLES] */
} resampling;

static int first_of(int rank, int size)
{
    return (int)((int64_t)BP_RESAMPLES * rank / size);
}

/* Broadcast columns[COLUMNS][CHUNK] of documents [first, first + count) from rank 0 to all
 * ranks. */
static void share_chunk(double *columns, const resampling *what, int64_t first, int64_t count,
                        MPI_Comm ranks)
{
    const int64_t stride = CHUNK_BLOCKS * BP_RESAMPLE_BLOCK;

    for (int64_t i = 0; what->draws && i < count; i++) {
        columns[NLL * stride + i] = what->draws[first + i].nll;
        columns[TOKENS * stride + i] = what->draws[first + i].tokens;
    }
    for (int c = 0; ranks != MPI_COMM_NULL && c < COLUMNS; c++)
        bp_bcast_bytes(columns + c * stride, count * (int64_t)sizeof *columns, 0, ranks);
}

/* values[resamples of this rank]. A rank out of memory still takes part in the broadcasts. */
static bp_err resample(double *values, const resampling *what, int rank, int size, MPI_Comm ranks)
{
    const int64_t stride = CHUNK_BLOCKS * BP_RESAMPLE_BLOCK, blocks = bp_resample_blocks(what->n);
    int first = first_of(rank, size);
    bp_resample_sums sums = {.seed = what->seed,
                             .n = what->n,
                             .width = COLUMNS,
                             .first = first,
                             .count = first_of(rank + 1, size) - first};
    double *columns = bp_alloc("score.bootstrap", COLUMNS * stride, sizeof *columns);
    const double *const of[COLUMNS] = {columns + NLL * stride, columns + TOKENS * stride};
    bp_err err = bp_resample_sums_init(&sums);

    for (int64_t b = 0; b < blocks; b += CHUNK_BLOCKS) {
        int64_t now = blocks - b < CHUNK_BLOCKS ? blocks - b : CHUNK_BLOCKS;
        int64_t begin = b * BP_RESAMPLE_BLOCK, left = what->n - begin;

        share_chunk(columns, what, begin, left < stride ? left : stride, ranks);
        if (err == BP_OK)
            bp_resample_sums_add(&sums, b, now, of);
    }
    for (int64_t r = 0; err == BP_OK && r < sums.count; r++) /* NaN: documents without tokens */
        values[r] = exp(sums.sums[r * COLUMNS + NLL] / sums.sums[r * COLUMNS + TOKENS]);
    bp_resample_sums_clear(&sums);
    bp_free(columns);
    return err;
}

bp_err bp_score_bootstrap_answer(MPI_Comm ranks, const void *request)
{
    resampling what = *(const resampling *)request;
    int rank = bp_comm_rank(ranks), size = bp_comm_size(ranks);
    double *mine = bp_alloc("score.bootstrap", BP_RESAMPLES, sizeof *mine);
    int *counts = bp_alloc("score.bootstrap", size, sizeof *counts);
    int *offsets = bp_alloc("score.bootstrap", size, sizeof *offsets);
    bp_err err;

    if (rank != 0)
        what.draws = NULL; /* of rank 0 */
    for (int k = 0; k < size; k++) {
        offsets[k] = first_of(k, size);
        counts[k] = first_of(k + 1, size) - offsets[k];
    }
    err = bp_agree(ranks, resample(mine, &what, rank, size, ranks));
    if (err == BP_OK)
        BP_MPI_WAIT("bootstrap", MPI_Gatherv(mine, counts[rank], MPI_DOUBLE, what.values, counts,
                                             offsets, MPI_DOUBLE, 0, ranks));
    bp_free(offsets);
    bp_free(counts);
    bp_free(mine);
    return err;
}

/* The standard deviation of the values that are defined; NaN for fewer than 2. */
static double deviation(const double values[BP_RESAMPLES])
{
    double mean = 0, squares = 0;
    int64_t count = 0;

    for (int r = 0; r < BP_RESAMPLES; r++)
        if (isfinite(values[r])) {
            mean += values[r];
            count++;
        }
    if (count < 2)
        return NAN;
    mean /= (double)count;
    for (int r = 0; r < BP_RESAMPLES; r++)
        if (isfinite(values[r]))
            squares += (values[r] - mean) * (values[r] - mean);
    return sqrt(squares / (double)(count - 1));
}

bp_err bp_score_bootstrap(double *out, const bp_score_draw *draws, int64_t n, uint64_t seed,
                          bp_requests *helpers)
{
    double values[BP_RESAMPLES];
    resampling what = {n, seed, draws, values};
    int64_t scored = 0;
    bp_err err;

    for (int64_t i = 0; i < n; i++)
        scored += draws[i].tokens > 0;
    *out = NAN;
    if (scored < 2) /* one document has no spread */
        return BP_OK;
    err = helpers && n >= SHARED_FROM ? bp_request(helpers, &what, sizeof what)
                                      : resample(values, &what, 0, 1, MPI_COMM_NULL);
    if (err == BP_OK)
        *out = deviation(values);
    return err;
}
