/* A fit takes the memory that was planned for it, on all meshes: not more, and not much less. For
 * programs that define LINEAR_VOCABULARY and LINEAR_WIDTH. */
#include "bp_test_memory.h"
#include "bp_test_mpi.h"

#include "linear_world.h"

#define TABLES ((size_t)256 << 10) /* of meshes, files and readers, which are not of the fit */

static void hold(bp_mesh_shape shape, int64_t tokens)
{
    bp_laplace_spec spec = {.tokens = tokens, .samples = 2, .seed = 1, .tau = 1};
    bp_laplace_report report;
    world self;

    world_open(&self, WORLD, shape);
    shape.data = self.mesh->data_ranks;
    int64_t planned = bp_laplace_bytes(&spec, &shape, V, C);
    bp_test_peak peak = bp_test_peak_begin();
    bp_test_check_err(WORLD,
                      bp_laplace_fit_model(self.mesh, self.config, &self.model->model,
                                           bp_test_path("toy.h5"), &spec,
                                           bp_test_path("samples.h5"), NULL, &report),
                      BP_OK);
    int64_t taken = (int64_t)bp_test_peak_end(&peak);
    bool right = taken <= planned + (int64_t)TABLES;
    if (self.mesh->rank == 0) /* which has most, or shares it */
        right = right && 2 * planned <= 3 * taken;
    if (!right)
        print_error("rank %d: %lld bytes are planned, %lld taken: %d members, %d stages, %d data "
                    "ranks, tensor %d, vocabulary %d, width %d, %lld tokens\n",
                    self.mesh->rank, (long long)planned, (long long)taken, shape.members,
                    shape.pipeline, shape.data, shape.tensor, (int)V, (int)C, (long long)tokens);
    bp_test_check(WORLD, right);
    world_close(&self);
    if (bp_comm_is_root(WORLD))
        bp_test_check(MPI_COMM_SELF, unlink(bp_test_path("samples.h5")) == 0);
    BP_MPI(MPI_Barrier(WORLD));
}

static void a_fit_takes_what_is_planned(void **state)
{
    int size = bp_comm_size(WORLD);

    (void)state;
    make_corpus();
    for (int tensor = 1; tensor <= size; tensor++)
        for (int members = 1; members * tensor <= size; members++)
            if (size % (members * tensor) == 0)
                hold((bp_mesh_shape){members, 1, 0, tensor, BP_COORDINATOR_SHARED},
                     members % 2 ? 700 : 100);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(a_fit_takes_what_is_planned)};
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
