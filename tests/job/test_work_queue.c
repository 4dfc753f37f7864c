/* The queue of work: every unit once, to whoever asks. */
#include "bp_test_mpi.h"

#include "job/work_queue.h"
#include "mesh/collective.h"

#define UNITS 100

typedef struct loop {
    int64_t leave_after; /* units after which this rank leaves early; -1: never */
    int64_t taken;
    int64_t last;
    uint8_t mine[UNITS];
} loop;

/* What a lead does, without the work. */
static void take_units(bp_work_queue *queue, bool leads, loop *run)
{
    bool early = false;

    run->last = -1;
    if (leads)
        bp_work_queue_ask(queue, 0);
    while (leads && !early) {
        int64_t unit = bp_work_queue_take(queue);

        if (unit < 0)
            break;
        assert_true(unit > run->last && unit < UNITS);
        run->last = unit;
        run->mine[unit]++;
        run->taken++;
        early = run->taken == run->leave_after;
        if (!early)
            bp_work_queue_ask(queue, 10);
        bp_work_queue_serve(queue);
    }
    bp_work_queue_leave(queue, early, 10);
}

/* A mesh of this many tensor ranks, if it fits the world. */
static bp_mesh *make_mesh(int tensor, bool dedicated)
{
    bp_mesh_shape shape = {1, 1, 0, tensor,
                           dedicated ? BP_COORDINATOR_DEDICATED : BP_COORDINATOR_SHARED};
    bp_mesh *mesh = NULL;

    if (bp_mesh_shape_fit(&shape, bp_comm_size(MPI_COMM_WORLD)) == BP_OK)
        bp_test_check_err(MPI_COMM_WORLD, bp_mesh_new(&mesh, MPI_COMM_WORLD, &shape), BP_OK);
    return mesh;
}

static bool is_lead(const bp_mesh *mesh)
{
    return mesh->computes && bp_comm_is_root(mesh->model);
}

/* Every unit that is not done is taken by one lead. */
static void check_all_once(bp_mesh *mesh, const uint8_t *done)
{
    bp_work_queue *queue;
    loop run = {.leave_after = -1};
    bp_work_spec spec = {.mesh = mesh, .units = UNITS, .done = done};

    bp_work_queue_new(&queue, &spec);
    take_units(queue, is_lead(mesh), &run);
    bp_work_queue_free(&queue);
    BP_MPI(MPI_Allreduce(MPI_IN_PLACE, run.mine, UNITS, MPI_UINT8_T, MPI_SUM, mesh->world));
    for (int unit = 0; unit < UNITS; unit++)
        bp_test_check(mesh->world, run.mine[unit] == !done[unit]);
}

static void every_unit_is_taken_once_on_any_mesh(void **state)
{
    (void)state;
    uint8_t done[UNITS] = {0};

    for (int tensor = 1; tensor <= 2; tensor++) {
        for (int dedicated = 0; dedicated < 2; dedicated++) {
            bp_mesh *mesh = make_mesh(tensor, dedicated != 0);

            if (mesh)
                check_all_once(mesh, done);
            bp_mesh_free(&mesh);
        }
    }
}

static void units_that_are_done_are_passed_over(void **state)
{
    (void)state;
    uint8_t done[UNITS] = {0};
    bp_mesh *mesh = make_mesh(1, false);

    done[0] = done[7] = done[8] = done[UNITS - 1] = 1;
    check_all_once(mesh, done);
    memset(done, 1, sizeof(done));
    check_all_once(mesh, done);
    bp_mesh_free(&mesh);
}

/* The last rank's lead gives up after a few units: nobody goes on, and nobody hangs. */
static void one_that_leaves_early_ends_it_for_all(void **state)
{
    (void)state;
    uint8_t done[UNITS] = {0};
    bp_mesh *mesh = make_mesh(1, false);
    bp_work_spec spec = {.mesh = mesh, .units = UNITS, .done = done};
    bp_work_queue *queue;
    loop run = {.leave_after = mesh->rank == mesh->size - 1 ? 3 : -1};

    bp_work_queue_new(&queue, &spec);
    take_units(queue, true, &run);
    bp_work_queue_free(&queue);
    int64_t taken = bp_all_sum_int(run.taken, mesh->world);
    bp_test_check(mesh->world, taken >= 1 && taken <= UNITS);
    if (mesh->size == 1)
        assert_int_equal(taken, 3);
    bp_mesh_free(&mesh);
}

/* A unit in hand may still be asked for before the end: the answer is dropped, and said to be. */
static void open_question_is_answered_when_leaving(void **state)
{
    (void)state;
    uint8_t done[UNITS] = {0};
    bp_mesh *mesh = make_mesh(1, false);
    bp_work_spec spec = {.mesh = mesh, .units = UNITS, .done = done};
    bp_work_queue *queue;

    bp_work_queue_new(&queue, &spec);
    bp_work_queue_ask(queue, 0);
    bp_work_queue_leave(queue, true, 0);
    bp_work_queue_free(&queue);
    bp_mesh_free(&mesh);
}

/* What a lead sends is heard before its leaving is, so nothing is lost that it sent. */
static void count_messages(void *context, const bp_mail *mail)
{
    int *heard = context;

    *heard += mail->kind == BP_WORK_OWN_MESSAGES + 1 && *(int *)mail->data == *heard % 20;
}

static void news_of_a_lead_is_heard_before_it_has_left(void **state)
{
    (void)state;
    uint8_t done[UNITS] = {0};
    bp_mesh *mesh = make_mesh(1, false);
    int heard = 0, sends = mesh->rank == mesh->size - 1;
    bp_work_spec spec = {
        .mesh = mesh, .units = UNITS, .done = done, .receive = count_messages, .context = &heard};
    bp_work_queue *queue;

    bp_work_queue_new(&queue, &spec);
    for (int k = 0; sends && !mesh->coordinates && k < 20; k++)
        bp_mailbox_send(bp_work_queue_mailbox(queue), 0, BP_WORK_OWN_MESSAGES + 1, &k, sizeof k);
    bp_work_queue_leave(queue, false, 0);
    bp_test_check(mesh->world, heard == (mesh->coordinates && mesh->size > 1 ? 20 : 0));
    bp_work_queue_free(&queue);
    bp_mesh_free(&mesh);
}

typedef struct ticks {
    int count;
    int64_t amount;
} ticks;

static bool stop_at_once(void *context, int64_t amount)
{
    ticks *seen = context;

    seen->count++;
    seen->amount = amount;
    return true;
}

/* Once a second the coordinator is asked whether to stop: an endless queue ends. */
static void a_progress_report_stops_the_queue(void **state)
{
    (void)state;
    enum { MANY = 100000000 };
    uint8_t *done = bp_alloc("test", MANY, 1);
    bp_mesh *mesh = make_mesh(1, false);
    ticks seen = {0};
    bp_work_spec spec = {.mesh = mesh,
                         .units = MANY,
                         .done = done,
                         .report_progress = stop_at_once,
                         .context = &seen};
    bp_work_queue *queue;
    int64_t taken = 0;

    assert_non_null(done);
    bp_work_queue_new(&queue, &spec);
    bp_work_queue_ask(queue, 0);
    while (bp_work_queue_take(queue) >= 0) {
        taken++;
        bp_work_queue_ask(queue, 1);
        bp_work_queue_serve(queue);
    }
    bp_work_queue_leave(queue, false, 0);
    bp_work_queue_free(&queue);
    taken = bp_all_sum_int(taken, mesh->world);
    bp_test_check(mesh->world, taken < MANY);
    if (mesh->coordinates)
        assert_true(seen.count > 0 && seen.amount > 0 && seen.amount <= taken);
    bp_mesh_free(&mesh);
    bp_free(done);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_unit_is_taken_once_on_any_mesh),
        cmocka_unit_test(units_that_are_done_are_passed_over),
        cmocka_unit_test(one_that_leaves_early_ends_it_for_all),
        cmocka_unit_test(open_question_is_answered_when_leaving),
        cmocka_unit_test(news_of_a_lead_is_heard_before_it_has_left),
        cmocka_unit_test(a_progress_report_stops_the_queue),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
