/* A Laplace approximation of a checkpoint, with what it took, part by part:
 *     mpirun -n RANKS bench_laplace CHECKPOINT CORPUS TOKENS SAMPLES OUT.h5 [key=value ...]
 * Each rank is a data rank, unless mesh.* says otherwise. An OUT.h5 of the same fit is kept: remove
 * it first. */
#include "base/mem.h"
#include "infer/score/score.h"
#include "math/math.h"
#include "mesh/mesh.h"
#include "uncertainty/methods/laplace/laplace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bp_err run(int argc, char **argv)
{
    static const bp_option *const tables[] = {bp_score_options,          bp_score_rule_options,
                                              bp_laplace_method_options, bp_mesh_options,
                                              bp_math_options,           NULL};
    static const bp_option *const used[] = {NULL};
    bp_laplace_spec spec = {.tokens = atoll(argv[3]), .samples = atoll(argv[4]), .seed = 1};
    bp_laplace_report report;
    bp_config *config = NULL;
    bp_mesh *mesh = NULL;
    bp_err err = bp_config_new(&config, tables, used);

    if (err == BP_OK)
        err = bp_config_read(config, NULL, argc - 6, argv + 6);
    if (err == BP_OK) {
        bp_mesh_shape shape = bp_mesh_shape_of(config);
        err = bp_mesh_shape_fit(&shape, bp_comm_size(MPI_COMM_WORLD));
        if (err == BP_OK)
            err = bp_mesh_new(&mesh, MPI_COMM_WORLD, &shape);
    }
    if (err == BP_OK)
        err = bp_laplace_fit(mesh, config, argv[1], argv[2], &spec, argv[5], NULL, &report);
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        printf("tokens %" PRId64 " of %" PRId64 ", tau %.6g, log evidence %.8g, effective "
               "parameters %.6g\nfactors %.1f s, eigenvectors %.1f s, prior %.1f s, samples %.1f "
               "s, peak memory %.0f MiB\n",
               report.tokens, report.data_tokens, report.tau, report.log_evidence,
               report.effective_parameters, report.factor_seconds, report.eigen_seconds,
               report.prior_seconds, report.sample_seconds,
               (double)bp_mem_resident_peak_bytes() / 1048576);
    if (mesh)
        bp_mesh_free(&mesh);
    bp_config_free(&config);
    return err;
}

int main(int argc, char **argv)
{
    bp_err err = bp_mpi_start(&argc, &argv);

    if (err == BP_OK && argc < 6)
        err = BP_FAIL(BP_ERR_USAGE, "command.wrong_count",
                      "bench_laplace CHECKPOINT CORPUS TOKENS SAMPLES OUT.h5 [key=value ...]");
    if (err == BP_OK) {
        bp_math_set_threads(bp_math_threads_for(MPI_COMM_WORLD, 0));
        err = run(argc, argv);
    }
    if (err != BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        fprintf(stderr, "%s\n", bp_err_message());
    bp_mpi_finish();
    return (int)err;
}
