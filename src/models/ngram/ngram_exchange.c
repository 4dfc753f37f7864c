/* Exchanges rows between ranks, one partner at a time, with 64-bit counts and places. Called by
 * ngram_estimate.c and ngram_prune.c. */
#include "models/ngram/ngram_exchange_priv.h"

#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <string.h>

#define TAG 611

int64_t ngram_exchange_counts(int64_t *in, const int64_t *out, MPI_Comm comm)
{
    int64_t sum = 0;

    BP_MPI_WAIT("exchange", MPI_Alltoall(out, 1, MPI_INT64_T, in, 1, MPI_INT64_T, comm));
    for (int r = 0; r < bp_comm_size(comm); r++)
        sum += in[r];
    return sum;
}

static int64_t place_of(const int64_t *counts, int rank)
{
    int64_t place = 0;

    for (int r = 0; r < rank; r++)
        place += counts[r];
    return place;
}

void ngram_exchange_rows(void *in, const int64_t *in_counts, const void *out,
                         const int64_t *out_counts, size_t bytes, MPI_Comm comm)
{
    int rank = bp_comm_rank(comm), size = bp_comm_size(comm);
    int64_t each = (int64_t)bytes, received_rows = place_of(in_counts, size);
    int64_t in_place = place_of(in_counts, rank), out_place = place_of(out_counts, rank);

    if (in_counts[rank] > 0)
        memcpy((char *)in + in_place * each, (const char *)out + out_place * each,
               (size_t)(in_counts[rank] * each));
    for (int step = 1; step < size; step++) {
        int to = (rank + step) % size, from = (rank + size - step) % size;
        bp_transfer sent = {0}, received = {0};

        out_place = to == 0 ? 0 : out_place + out_counts[to - 1];
        in_place = (from == size - 1 ? received_rows : in_place) - in_counts[from];
        if (in_counts[from] > 0)
            bp_recv_start(&received, (char *)in + in_place * each, in_counts[from] * each, from,
                          TAG, comm);
        if (out_counts[to] > 0)
            bp_send_start(&sent, (const char *)out + out_place * each, out_counts[to] * each, to,
                          TAG, comm);
        bp_wait(&received);
        bp_wait(&sent);
    }
}
