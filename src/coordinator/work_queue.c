/* Questions and answers are small messages on a communicator of their own. */
#include "coordinator/work_queue.h"

#include "base/clock.h"
#include "base/heartbeat.h"
#include "base/mem.h"
#include "coordinator/work_scheduler_priv.h"

#define TAG_QUESTION 1
#define TAG_ANSWER   2
#define TICK_SECONDS 1.0
#define IDLE_SECONDS 0.0005 /* between two looks of a coordinator that has nothing else to do */

typedef struct question {
    int64_t kind, amount;
} question;

struct bp_work_queue {
    bp_work_spec spec;
    MPI_Comm comm;
    bool leads;     /* this rank leads its `ensemble` group */
    bool asked;     /* a question of this rank is open */
    question out;   /* this lead's, while it is sent */
    int64_t answer; /* this lead's, while it comes */
    MPI_Request requests[2];

    work_scheduler scheduler; /* the coordinator's */
    double ticked;
};

bp_err bp_work_queue_new(bp_work_queue **out, const bp_work_spec *spec)
{
    const bp_mesh *mesh = spec->mesh;
    bp_work_queue *queue = bp_alloc("coordinator.queue", 1, sizeof(*queue));
    bp_err err =
        queue ? BP_OK : BP_FAIL(BP_ERR_SYSTEM, "memory.short", "no memory for the queue of work");
    int leads;

    *out = NULL;
    err = bp_agree(mesh->world, err);
    if (err != BP_OK) {
        bp_free(queue);
        return err;
    }
    queue->spec = *spec;
    queue->scheduler = (work_scheduler){.units = spec->units, .done = spec->done};
    queue->leads = mesh->computes && bp_comm_is_root(mesh->ensemble);
    leads = queue->leads;
    BP_MPI(MPI_Comm_dup(mesh->world, &queue->comm));
    BP_MPI_WAIT("all_sum",
                MPI_Allreduce(&leads, &queue->scheduler.here, 1, MPI_INT, MPI_SUM, queue->comm));
    queue->ticked = bp_clock_now();
    *out = queue;
    return BP_OK;
}

void bp_work_queue_free(bp_work_queue **queue)
{
    if (!*queue)
        return;
    BP_MPI(MPI_Comm_free(&(*queue)->comm));
    bp_free(*queue);
    *queue = NULL;
}

static void put_question(bp_work_queue *queue, int64_t kind, int64_t amount)
{
    BP_ASSERT(queue->leads && !queue->asked);
    queue->out = (question){.kind = kind, .amount = amount};
    queue->asked = true;
    if (queue->spec.mesh->coordinates) {
        queue->answer = work_scheduler_answer(&queue->scheduler, (work_question)queue->out.kind,
                                              queue->out.amount);
        return;
    }
    BP_MPI(
        MPI_Irecv(&queue->answer, 1, MPI_INT64_T, 0, TAG_ANSWER, queue->comm, &queue->requests[0]));
    BP_MPI(
        MPI_Isend(&queue->out, 2, MPI_INT64_T, 0, TAG_QUESTION, queue->comm, &queue->requests[1]));
}

void bp_work_queue_ask(bp_work_queue *queue, int64_t amount)
{
    put_question(queue, WORK_ASK, amount);
}

int64_t bp_work_queue_take(bp_work_queue *queue)
{
    BP_ASSERT(queue->asked);
    if (!queue->spec.mesh->coordinates)
        BP_MPI_WAIT("work_queue", MPI_Waitall(2, queue->requests, MPI_STATUSES_IGNORE));
    queue->asked = false;
    return queue->answer;
}

static bool answer_one(bp_work_queue *queue)
{
    MPI_Status status;
    question in;
    int there;

    BP_MPI(MPI_Iprobe(MPI_ANY_SOURCE, TAG_QUESTION, queue->comm, &there, &status));
    if (!there)
        return false;
    BP_MPI_WAIT("recv", MPI_Recv(&in, 2, MPI_INT64_T, status.MPI_SOURCE, TAG_QUESTION, queue->comm,
                                 MPI_STATUS_IGNORE));
    int64_t answer = work_scheduler_answer(&queue->scheduler, (work_question)in.kind, in.amount);
    BP_MPI_WAIT("send",
                MPI_Send(&answer, 1, MPI_INT64_T, status.MPI_SOURCE, TAG_ANSWER, queue->comm));
    return true;
}

static void tick(bp_work_queue *queue)
{
    double now = bp_clock_now();

    if (!queue->spec.tick || now - queue->ticked < TICK_SECONDS)
        return;
    queue->ticked = now;
    if (queue->spec.tick(queue->spec.context, queue->scheduler.amount))
        queue->scheduler.closed = true;
}

void bp_work_queue_serve(bp_work_queue *queue)
{
    if (!queue->spec.mesh->coordinates)
        return;
    while (answer_one(queue))
        ;
    tick(queue);
}

void bp_work_queue_leave(bp_work_queue *queue, bool early, int64_t amount)
{
    if (queue->leads) {
        BP_ASSERT(early ||
                  !queue->asked); /* a unit that was handed out is not dropped in silence */
        if (queue->asked)
            (void)bp_work_queue_take(queue);
        put_question(queue, early ? WORK_LEAVE_EARLY : WORK_LEAVE, amount);
        (void)bp_work_queue_take(queue);
    }
    bp_heartbeat_enter("work_queue");
    while (queue->spec.mesh->coordinates && queue->scheduler.here > 0) {
        if (!answer_one(queue))
            bp_clock_sleep(IDLE_SECONDS);
        tick(queue);
    }
    bp_heartbeat_leave();
}
