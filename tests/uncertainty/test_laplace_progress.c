/* The progress that a fit of the Laplace approximation reports, and how it is stopped. */
#include "bp_test_mpi.h"

#include "base/process/signals.h"
#include "linear_world.h"
#include "uncertainty/methods/laplace/laplace_priv.h"

static void corpus_is_made(void **state)
{
    (void)state;
    make_corpus();
}

/* What the listener of a fit was called with. */
typedef struct progress_record {
    int calls, step, stop_at; /* stop_at: the step in which it stops the fit; 0: none */
    bool falls;               /* a step or a share went back */
    double share;
} progress_record;

static bool update(void *context, const bp_fit_progress *progress)
{
    progress_record *self = context;

    self->falls = self->falls || progress->step < self->step || progress->steps != 4 ||
                  (progress->step == self->step && progress->share < self->share - 1e-9) ||
                  !(progress->share >= 0 && progress->share <= 1) || progress->left < 0;
    self->step = progress->step;
    self->share = progress->share;
    self->calls++;
    return self->step == self->stop_at;
}

static bp_err fit_recorded(world *self, const char *name, progress_record *record)
{
    static const bp_laplace_spec spec = {.tokens = 1000000, .samples = 5, .seed = 1};
    bp_fit_listener listener = {.update = update, .context = record};
    bp_laplace_report report;

    return bp_laplace_fit_model(self->mesh, self->config, &self->model->model,
                                bp_test_path("toy.h5"), &spec, bp_test_path(name), &listener,
                                &report);
}

static void all_steps_are_reported_on_the_first_rank(void **state)
{
    progress_record record = {.calls = 0};
    world self;

    (void)state;
    world_open(&self, WORLD, (bp_mesh_shape){1, 1, 0, 1, BP_COORDINATOR_SHARED});
    bp_test_check_err(WORLD, fit_recorded(&self, "samples.h5", &record), BP_OK);
    bp_test_check(WORLD, record.calls == 0 || bp_comm_is_root(WORLD));
    bp_test_check(WORLD, !bp_comm_is_root(WORLD) ||
                             (record.calls > 20 && record.step == 4 && !record.falls));
    world_close(&self);
}

/* The eigenproblem can only be stopped with its process: tests/jobs does that. */
static void a_listener_stops_the_fit_in_any_other_step(void **state)
{
    static const int steps[] = {1, 2, 4};
    world self;

    (void)state;
    world_open(&self, WORLD, (bp_mesh_shape){1, 1, 0, 1, BP_COORDINATOR_SHARED});
    for (int k = 0; k < 3; k++) {
        progress_record record = {.stop_at = steps[k]};

        bp_test_check_err(WORLD, fit_recorded(&self, "stopped.h5", &record), BP_ERR_STOPPED);
        bp_test_check(WORLD, !bp_comm_is_root(WORLD) || record.step == steps[k]);
        bp_test_check(WORLD, !bp_path_exists(bp_test_path("stopped.h5")));
    }
    world_close(&self);
}

/* The last test: the flag of the signal stays set. */
static void fit_that_is_stopped_leaves_nothing(void **state)
{
    bp_laplace_spec spec = {.tokens = 1000000, .samples = 2, .seed = 1};
    bp_laplace_report report;
    world self;

    (void)state;
    bp_signals_init();
    world_open(&self, WORLD, (bp_mesh_shape){1, 1, 0, 1, BP_COORDINATOR_SHARED});
    if (bp_comm_is_root(WORLD))
        self.model->signal_at = 1;
    bp_test_check_err(WORLD,
                      bp_laplace_fit_model(self.mesh, self.config, &self.model->model,
                                           bp_test_path("toy.h5"), &spec,
                                           bp_test_path("stopped.h5"), NULL, &report),
                      BP_ERR_STOPPED);
    bp_test_check(WORLD, !bp_path_exists(bp_test_path("stopped.h5")));
    world_close(&self);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpus_is_made),
        cmocka_unit_test(all_steps_are_reported_on_the_first_rank),
        cmocka_unit_test(a_listener_stops_the_fit_in_any_other_step),
        cmocka_unit_test(fit_that_is_stopped_leaves_nothing),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
