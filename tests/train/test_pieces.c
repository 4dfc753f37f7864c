/* The manifest of a checkpoint by thousands of data ranks: laid out by the code of a training, of a
 * model of 1.3 billion parameters, without running the ranks. */
#include "bp_test.h"

#include "io/checkpoint/checkpoint_priv.h"
#include "mesh/mesh.h"
#include "models/list.h"
#include "models/network/network_model.h"
#include "train/optimizers/optimizer.h"

#include <stdio.h>
#include <string.h>

enum { PER_NODE = 2, MOST = 1 << 20 };

typedef struct counted {
    int64_t slices, pieces, files;
    size_t bytes;
} counted;

static int64_t add_slices(bp_plan_slice *out, int64_t count, const bp_network *network, int rank,
                          int ranks, int node)
{
    static const char *const PREFIXES[] = {"", "adamw.m/", "adamw.v/"};
    bp_mesh mesh = {.data_ranks = ranks, .data_rank = rank, .tensor_ranks = 1, .expert_ranks = 1};
    bp_slice some[256];
    float *values = bp_alloc("test.values", 1, sizeof *values); /* only a place */

    for (int g = 0; g < network->group_count; g++)
        for (int p = 0; p < 3; p++) {
            int64_t first, floats, used = 0;

            bp_optimizer_shard(&mesh, &network->groups[g], &first, &floats);
            bp_network_slices(network, g, PREFIXES[p], values, first, floats, some, &used, 256);
            for (int64_t k = 0; k < used; k++) {
                BP_ASSERT(count < MOST);
                out[count] = (bp_plan_slice){.slice = some[k],
                                             .index = k,
                                             .writer = node * PER_NODE,
                                             .group_rank = rank % 2};
                out[count++].slice.data = NULL;
            }
        }
    bp_free(values);
    return count;
}

static counted count_pieces(int layers, int ranks, int per_node)
{
    bp_model_shape shape = {.family = &bp_gpt_family,
                            .layers = layers,
                            .width = 2048,
                            .heads = 16,
                            .context = 2048,
                            .vocab_size = 50257};
    bp_nn nn = {
        .tensor = MPI_COMM_NULL, .expert = MPI_COMM_NULL, .expert_ranks = 1, .tensor_ranks = 1};
    bp_network *network = NULL;
    bp_plan_slice *slices = bp_alloc("test.slices", MOST, sizeof *slices);
    int *counts = bp_alloc("test.counts", ranks, sizeof *counts);
    int *positions = bp_alloc("test.counts", ranks, sizeof *positions);
    bp_manifest *manifest;
    counted out = {0};
    char *text;

    bp_test_expect(bp_gemm_new(&nn.gemm, BP_F32), BP_OK);
    bp_test_expect(bp_model_network_new_chunks(&network, &nn, &shape, 0, 1, 1), BP_OK);
    bp_network_lay_out(network, BP_NORM_BLOCK);
    for (int rank = 0; rank < ranks; rank++)
        out.slices = add_slices(slices, out.slices, network, rank, ranks, rank / per_node);
    bp_test_expect(
        bp_plan_make(&manifest, slices, out.slices, ranks, (int64_t)128 << 20, counts, positions),
        BP_OK);
    manifest->state = json_object();
    bp_test_expect(bp_manifest_text(manifest, &text), BP_OK);
    out.pieces = manifest->piece_count;
    out.files = manifest->file_count;
    out.bytes = strlen(text);
    printf("%d layers, %d ranks, %d a node: %lld slices, %lld pieces in %lld files, %.1f MiB\n",
           layers, ranks, per_node, (long long)out.slices, (long long)out.pieces,
           (long long)out.files, (double)out.bytes / 1048576);
    bp_free(text);
    bp_manifest_free(&manifest);
    bp_network_free(&network);
    bp_gemm_free(&nn.gemm);
    bp_free(positions);
    bp_free(counts);
    bp_free(slices);
    return out;
}

static void manifest_of_4096_ranks_is_short(void **state)
{
    counted many = count_pieces(24, 4096, 2);

    (void)state;
    assert_true(many.bytes < (size_t)bp_manifest_limit_bytes / 4);
}

/* Ranks of one node are one writer: what lies behind one another in its files is one piece. */
static void pieces_grow_with_files(void **state)
{
    counted one = count_pieces(2, 1, 1), many = count_pieces(2, 512, 512);

    (void)state;
    assert_true(many.slices > 10 * one.slices);
    assert_int_equal(many.files, one.files);
    assert_true(many.pieces <= one.pieces + 3 * many.files); /* files are cut elsewhere */
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifest_of_4096_ranks_is_short),
        cmocka_unit_test(pieces_grow_with_files),
    };
    return BP_TEST_RUN(tests);
}
