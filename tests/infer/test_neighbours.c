/* The exact search of a datastore against a plain loop over all entries; what is refused of one. */
#include "bp_test_mpi.h"

#include "infer/neighbours/neighbours.h"
#include "io/h5/h5.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROWS    5000 /* three blocks */
#define COLUMNS 24
#define VOCAB   17
#define QUERIES 300 /* more than a tile */
#define K       9

static float keys[ROWS][COLUMNS], queries[QUERIES][COLUMNS];
static uint8_t scored[ROWS];
static int64_t tokens[ROWS];

static const bp_model_info MODEL = {.kind = "gpt",
                                    .digest = "d1",
                                    .tokenizer_hash = "t1",
                                    .states = {.layers = 1, .columns = COLUMNS, .keys = true}};

static double draw(void)
{
    static uint64_t state = 7;

    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(state >> 33) / (double)(UINT64_C(1) << 31) - 0.5;
}

/* Far from the origin, so that products lose digits; every seventh row is no entry, and some keys
 * are there several times. */
static void make_world(void)
{
    for (int i = 0; i < ROWS; i++) {
        scored[i] = i % 7 != 3;
        tokens[i] = (int64_t)((draw() + 0.5) * VOCAB);
        for (int c = 0; c < COLUMNS; c++)
            keys[i][c] = scored[i] ? 30 + (float)draw() : NAN;
        if (i % 50 == 0 && i > 0 && scored[i] && scored[i - 50])
            memcpy(keys[i], keys[i - 50], sizeof keys[i]);
    }
    for (int q = 0; q < QUERIES; q++)
        for (int c = 0; c < COLUMNS; c++)
            queries[q][c] = q % 5 == 0 ? keys[q * 7][c] : 30 + (float)draw();
}

typedef struct facts {
    const char *kind, *digest, *tokenizer;
    const char *precision; /* NULL: as older files, which do not say it */
} facts;

static const char *write_store(const char *name, const facts *of)
{
    const char *path = bp_test_path(name);
    int64_t extent[] = {ROWS, COLUMNS};
    bp_h5_draft draft = {0};

    if (bp_comm_is_root(MPI_COMM_WORLD)) {
        bp_test_expect(bp_h5_draft_begin(&draft, path, 1), BP_OK);
        bp_test_expect(bp_h5_put_text(draft.file, "/", "model_digest", of->digest), BP_OK);
        bp_test_expect(bp_h5_put_text(draft.file, "/", "tokenizer_hash", of->tokenizer), BP_OK);
        if (of->precision)
            bp_test_expect(bp_h5_put_text(draft.file, "/", "precision", of->precision), BP_OK);
        bp_test_expect(bp_h5_make_array(draft.file, "layer_0", BP_H5_F32, 2, extent, NULL), BP_OK);
        bp_test_expect(bp_h5_write_slab(draft.file, "layer_0", BP_H5_F32, 0, keys, ROWS * COLUMNS),
                       BP_OK);
        bp_test_expect(bp_h5_write(draft.file, "scored", BP_H5_U8, scored, ROWS), BP_OK);
        bp_test_expect(bp_h5_write(draft.file, "tokens", BP_H5_I64, tokens, ROWS), BP_OK);
        bp_test_expect(bp_h5_draft_commit(&draft, of->kind, 1), BP_OK);
        bp_h5_draft_end(&draft);
    }
    BP_MPI(MPI_Barrier(MPI_COMM_WORLD));
    return path;
}

static const facts SOUND = {"score-states", "d1", "t1"};

/* ---- the plain loop ---- */

static int compare(const void *a, const void *b)
{
    const bp_neighbour *x = a, *y = b;

    if (x->distance != y->distance)
        return x->distance < y->distance ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

/* In the eight sums that the distances of the search are defined by. */
static double measure(const float *a, const float *b)
{
    double sums[8] = {0}, sum = 0;

    for (int c = 0; c < COLUMNS; c++)
        sums[c % 8] += ((double)a[c] - (double)b[c]) * ((double)a[c] - (double)b[c]);
    for (int k = 0; k < 8; k++)
        sum += sums[k];
    return sum;
}

static void find_plainly(bp_neighbour *out, const float *query)
{
    static bp_neighbour all[ROWS];
    int64_t count = 0;

    for (int64_t i = 0; i < ROWS; i++)
        if (scored[i])
            all[count++] = (bp_neighbour){measure(query, keys[i]), i, tokens[i]};
    qsort(all, (size_t)count, sizeof *all, compare);
    memcpy(out, all, K * sizeof *out);
}

static bool is_found(const bp_neighbour *found)
{
    bp_neighbour want[K];
    bool same = true;

    for (int q = 0; q < QUERIES; q++) {
        find_plainly(want, queries[q]);
        for (int k = 0; k < K; k++)
            same = same && found[q * K + k].row == want[k].row &&
                   found[q * K + k].token == want[k].token &&
                   found[q * K + k].distance == want[k].distance;
    }
    return same;
}

/* ---- tests ---- */

static void the_nearest_are_those_of_a_plain_loop(void **state)
{
    /* all in memory, a block of it, nothing */
    static const int64_t MEMORY[] = {INT64_C(1) << 30, 2100 * COLUMNS * sizeof(float), 1};
    static bp_neighbour found[QUERIES * K];
    MPI_Comm world = MPI_COMM_WORLD;

    (void)state;
    make_world();
    for (int m = 0; m < 3; m++) {
        bp_datastore_spec spec = {write_store("store.h5", &SOUND), &MODEL, MEMORY[m]};
        bp_datastore *store;

        bp_test_check_err(world, bp_datastore_open(&store, world, world, &spec), BP_OK);
        bp_test_check(world, bp_datastore_info_of(store)->entries == ROWS - 714);
        bp_test_check_err(world, bp_datastore_search(store, queries[0], QUERIES, K, found), BP_OK);
        bp_test_check(world, is_found(found));
        bp_test_check_err(world, bp_datastore_search(store, queries[0], 0, K, found), BP_OK);
        bp_datastore_close(&store);
    }
}

static void each_group_of_ranks_searches_alone(void **state)
{
    static bp_neighbour found[QUERIES * K];
    MPI_Comm world = MPI_COMM_WORLD, half;
    bp_datastore *store;

    (void)state;
    make_world();
    BP_MPI(MPI_Comm_split(world, bp_comm_rank(world) % 2, 0, &half));
    bp_datastore_spec spec = {write_store("store.h5", &SOUND), &MODEL, 1 << 20};
    bp_test_check_err(world, bp_datastore_open(&store, world, half, &spec), BP_OK);
    if (bp_comm_rank(world) % 2 == 0) /* the others do something else */
        assert_int_equal(bp_datastore_search(store, queries[0], QUERIES, K, found), BP_OK);
    bp_test_check(world, bp_comm_rank(world) % 2 == 1 || is_found(found));
    bp_datastore_close(&store);
    BP_MPI(MPI_Comm_free(&half));
}

static void refuse(const facts *of, const char *said)
{
    bp_datastore_spec spec = {write_store("wrong.h5", of), &MODEL, 1 << 20};
    bp_datastore *store;
    bp_err err = bp_datastore_open(&store, MPI_COMM_WORLD, MPI_COMM_WORLD, &spec);

    bp_test_check_err(MPI_COMM_WORLD, err, BP_ERR_FORMAT);
    bp_test_check_said(MPI_COMM_WORLD, said);
    bp_test_check(MPI_COMM_WORLD, store == NULL);
}

static void what_is_no_datastore_of_the_model_is_refused(void **state)
{
    (void)state;
    make_world();
    refuse(&(facts){"score-tokens", "d1", "t1"}, "score-tokens");
    refuse(&(facts){"score-states", "d2", "t1"}, "[datastore.other_model]");
    refuse(&(facts){"score-states", "d1", "t2"}, "[datastore.other_tokenizer]");
    tokens[4999] = -1;
    refuse(&SOUND, "[datastore.wrong]");
    tokens[4999] = 1;
    keys[4998][COLUMNS - 1] = NAN;
    refuse(&SOUND, "row 4998");
    bp_test_check_said(MPI_COMM_WORLD, "[datastore.not_finite]");
    keys[4998][COLUMNS - 1] = INFINITY;
    refuse(&SOUND, "[datastore.not_finite]");
}

static void keys_of_another_precision_are_refused(void **state)
{
    /* of the file, and of the queries */
    static const char *const CASES[][2] = {
        {"bf16", "f32"}, {"f32", "f32"}, {NULL, "bf16"}, {"bf16", NULL}};
    MPI_Comm world = MPI_COMM_WORLD;

    (void)state;
    make_world();
    for (int k = 0; k < 4; k++) {
        facts of = SOUND;
        bp_datastore_spec spec = {
            .model = &MODEL, .memory_bytes = 1 << 20, .precision = CASES[k][1]};
        bp_datastore *store;

        of.precision = CASES[k][0];
        spec.path = write_store("precision.h5", &of);
        bp_err err = bp_datastore_open(&store, world, world, &spec);
        bp_test_check_err(world, err, k == 0 ? BP_ERR_CONFIG : BP_OK);
        if (k == 0)
            bp_test_check_said(world, "[datastore.other_precision]");
        bp_test_check(world, (store == NULL) == (k == 0));
        bp_datastore_close(&store);
    }
}

static void far_neighbours_and_weights_at_the_ends_mix_without_overflow(void **state)
{
    const bp_neighbour far[] = {{1e6, 0, 3}, {1e6 + 1, 1, 5}, {1e6 + 1, 2, 3}};
    bp_neighbours_spec spec = {.k = 3, .temperature = 1, .weight = 1};
    double p = (1 + exp(-1)) / (1 + 2 * exp(-1));

    (void)state;
    assert_true(fabs(bp_neighbours_mix(&spec, -9, far, 3) - log(p)) < 1e-12);
    assert_true(bp_neighbours_mix(&spec, -9, far, 4) == -INFINITY);
    spec.weight = 0;
    assert_true(fabs(bp_neighbours_mix(&spec, -9, far, 3) + 9) < 1e-12);
    spec.weight = 0.25;
    spec.temperature = 1e9;
    assert_true(fabs(bp_neighbours_mix(&spec, -2, far, 5) - log(0.25 / 3 + 0.75 * exp(-2))) < 1e-8);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nearest_are_those_of_a_plain_loop),
        cmocka_unit_test(each_group_of_ranks_searches_alone),
        cmocka_unit_test(what_is_no_datastore_of_the_model_is_refused),
        cmocka_unit_test(keys_of_another_precision_are_refused),
        cmocka_unit_test(far_neighbours_and_weights_at_the_ends_mix_without_overflow)};
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
