#include "bp_test_mpi.h"
#include "mesh/collective.h"

#define COMM MPI_COMM_WORLD

static unsigned char byte_at(int rank, int64_t i)
{
    return (unsigned char)(rank * 37 + i * 11 + i / 251);
}

static void fill(unsigned char *data, int rank, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        data[i] = byte_at(rank, i);
}

static bool is_from(const unsigned char *data, int rank, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        if (data[i] != byte_at(rank, i))
            return false;
    return true;
}

static void bytes_go_round_the_ring(void **state)
{
    static const int64_t sizes[] = {0, 1, 4096, 3000001};
    int rank = bp_comm_rank(COMM), size = bp_comm_size(COMM);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;

    for (int k = 0; k < 4; k++) {
        unsigned char *out = bp_alloc("test.out", sizes[k], 1),
                      *in = bp_alloc("test.in", sizes[k], 1);
        bp_transfer sending, receiving;
        BP_ASSERT(out != NULL && in != NULL);
        fill(out, rank, sizes[k]);
        bp_recv_start(&receiving, in, sizes[k], left, 5, COMM);
        bp_send_start(&sending, out, sizes[k], right, 5, COMM);
        bp_wait(&receiving);
        bp_wait(&sending);
        bp_wait(&sending); /* done already */
        bool right_bytes = is_from(in, left, sizes[k]);
        bp_free(out);
        bp_free(in);
        bp_test_check(COMM, right_bytes);
    }
}

static void blocking_messages_arrive_in_order(void **state)
{
    int rank = bp_comm_rank(COMM), size = bp_comm_size(COMM);
    int64_t token = 0, steps = 100;

    if (size > 1)
        for (int64_t step = 0; step < steps; step++) {
            if (rank > 0)
                bp_recv(&token, sizeof token, rank - 1, 6, COMM);
            token++;
            if (rank < size - 1)
                bp_send(&token, sizeof token, rank + 1, 6, COMM);
            if (rank == size - 1)
                bp_send(&token, sizeof token, 0, 7, COMM);
            if (rank == 0)
                bp_recv(&token, sizeof token, size - 1, 7, COMM);
        }
    if (rank == 0)
        bp_test_check(COMM, size == 1 || token == steps * size);
    else
        bp_test_check(COMM, true);
}

static void transfer_never_started_is_done(void **state)
{
    bp_transfer transfer = {0};

    bp_wait(&transfer);
    bp_test_check(COMM, !transfer.under_way);
}

static void broadcast_reaches_all(void **state)
{
    int rank = bp_comm_rank(COMM), size = bp_comm_size(COMM);
    int64_t bytes = 2500003;
    unsigned char *data = bp_alloc("test.data", bytes, 1);

    BP_ASSERT(data != NULL);
    fill(data, rank, bytes);
    bp_bcast_bytes(data, bytes, size - 1, COMM);
    bool right = is_from(data, size - 1, bytes);
    bp_free(data);
    bp_test_check(COMM, right);
    bp_bcast_bytes(NULL, 0, 0, COMM);
}

static void text_and_its_absence_are_shared(void **state)
{
    static const char *const texts[] = {"a line", "", NULL};
    int rank = bp_comm_rank(COMM), root = bp_comm_size(COMM) - 1;

    for (int k = 0; k < 3; k++) {
        char *text = rank == root && texts[k] != NULL ? bp_strdup(texts[k]) : NULL;
        bp_bcast_text(&text, root, COMM);
        bool right = texts[k] == NULL ? text == NULL : text != NULL && strcmp(text, texts[k]) == 0;
        bp_free(text);
        bp_test_check(COMM, right);
    }
}

/* Messages beyond what an int counts: 2 GiB and a bit, from rank 0 to itself or to rank 1. Needs 4
 * to 5 GiB, so it runs only where BP_TEST_LARGE is set. */
static void more_than_an_int_of_bytes_arrives(void **state)
{
    int rank = bp_comm_rank(COMM), size = bp_comm_size(COMM), to = size > 1 ? 1 : 0;
    int64_t bytes = (INT64_C(1) << 31) + 12345;
    bp_transfer sending = {0}, receiving = {0};

    if (getenv("BP_TEST_LARGE") == NULL)
        bp_test_skip("it takes 5 GiB of memory: set BP_TEST_LARGE");
    unsigned char *out = rank == 0 ? bp_alloc("test.out", bytes, 1) : NULL;
    unsigned char *in = rank == to ? bp_alloc("test.in", bytes, 1) : NULL;
    BP_ASSERT((rank != 0 || out != NULL) && (rank != to || in != NULL));
    if (rank == 0)
        fill(out, 0, bytes);
    if (rank == to)
        bp_recv_start(&receiving, in, bytes, 0, 8, COMM);
    if (rank == 0)
        bp_send_start(&sending, out, bytes, to, 8, COMM);
    bp_wait(&receiving);
    bp_wait(&sending);
    bool right = rank != to || is_from(in, 0, bytes);
    bp_free(out);
    bp_free(in);
    bp_test_check(COMM, right);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_go_round_the_ring),
        cmocka_unit_test(blocking_messages_arrive_in_order),
        cmocka_unit_test(transfer_never_started_is_done),
        cmocka_unit_test(broadcast_reaches_all),
        cmocka_unit_test(text_and_its_absence_are_shared),
        cmocka_unit_test(more_than_an_int_of_bytes_arrives),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
