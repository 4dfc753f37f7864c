/* A request and its answer are messages of one kind. Called by work_units.c, and by the scheduler
 * of an ensemble. */
#include "job/work_queue.h"

#include "base/mem.h"
#include "base/process/clock.h"
#include "job/work_scheduler_priv.h"
#include "mesh/collective.h"

#include <string.h>

#define MAIL_QUESTION    0
#define PROGRESS_SECONDS 1.0

typedef struct question {
    int64_t kind, amount;
} question;

struct bp_work_queue {
    bp_work_spec spec;
    bp_mailbox *box;
    bool leads;     /* this rank leads its `ensemble` group */
    bool asked;     /* a request of this rank is pending, */
    bool come;      /* and its answer has been taken from the mailbox */
    bool ended;     /* it has announced that it leaves */
    int64_t answer; /* this rank's, where it coordinates */

    work_scheduler scheduler; /* the coordinator's */
    double reported;
};

void bp_work_queue_new(bp_work_queue **out, const bp_work_spec *spec)
{
    const bp_mesh *mesh = spec->mesh;
    bp_work_queue *queue = bp_alloc("coordinator.queue", 1, sizeof(*queue));

    queue->spec = *spec;
    queue->scheduler = (work_scheduler){.units = spec->units, .done = spec->done};
    queue->leads = mesh->computes && bp_comm_is_root(mesh->replica);
    queue->box = bp_mailbox_new(mesh->world);
    queue->scheduler.here = (int)bp_all_sum_int(queue->leads, mesh->world);
    queue->reported = bp_clock_now();
    *out = queue;
}

void bp_work_queue_free(bp_work_queue **queue)
{
    if (!*queue)
        return;
    bp_mailbox_free(&(*queue)->box);
    bp_free(*queue);
    *queue = NULL;
}

bp_mailbox *bp_work_queue_mailbox(bp_work_queue *queue)
{
    return queue->box;
}

static void put_question(bp_work_queue *queue, work_question kind, int64_t amount)
{
    question out = {.kind = kind, .amount = amount};

    BP_ASSERT(queue->leads && !queue->asked);
    queue->asked = true;
    if (queue->spec.mesh->coordinates)
        queue->answer = work_scheduler_answer(&queue->scheduler, kind, amount);
    else
        bp_mailbox_send(queue->box, 0, MAIL_QUESTION, &out, sizeof out);
}

void bp_work_queue_ask(bp_work_queue *queue, int64_t amount)
{
    put_question(queue, WORK_ASK, amount);
}

bool bp_work_queue_has_come(bp_work_queue *queue)
{
    bp_mail mail;

    BP_ASSERT(queue->asked);
    if (queue->come || queue->spec.mesh->coordinates)
        return true;
    if (!bp_mailbox_take(queue->box, MAIL_QUESTION, &mail))
        return false;
    BP_ASSERT(mail.bytes == sizeof queue->answer);
    memcpy(&queue->answer, mail.data, sizeof queue->answer);
    bp_free(mail.data);
    queue->come = true;
    return true;
}

int64_t bp_work_queue_take(bp_work_queue *queue)
{
    BP_ASSERT(queue->asked);
    if (!queue->spec.mesh->coordinates && !queue->come)
        bp_mailbox_receive(queue->box, "work_queue", MAIL_QUESTION, &queue->answer,
                           sizeof queue->answer);
    queue->asked = queue->come = false;
    return queue->answer;
}

static void receive(bp_work_queue *queue, const bp_mail *mail)
{
    const question *in = mail->data;

    if (mail->kind != MAIL_QUESTION) {
        queue->spec.receive(queue->spec.context, mail);
        return;
    }
    int64_t answer = work_scheduler_answer(&queue->scheduler, (work_question)in->kind, in->amount);
    bp_mailbox_send(queue->box, mail->from, MAIL_QUESTION, &answer, sizeof answer);
}

static void report_progress(bp_work_queue *queue)
{
    double now = bp_clock_now();

    if (!queue->spec.report_progress || now - queue->reported < PROGRESS_SECONDS)
        return;
    queue->reported = now;
    if (queue->spec.report_progress(queue->spec.context, queue->scheduler.amount))
        queue->scheduler.closed = true;
}

void bp_work_queue_serve(bp_work_queue *queue)
{
    bp_mail mail;

    if (!queue->spec.mesh->coordinates)
        return;
    while (bp_mailbox_take(queue->box, BP_MAIL_ANY, &mail)) {
        receive(queue, &mail);
        bp_free(mail.data);
    }
    report_progress(queue);
}

static bool have_left(void *context)
{
    bp_work_queue *queue = context;

    bp_work_queue_serve(queue);
    return !queue->spec.mesh->coordinates || queue->scheduler.here == 0;
}

void bp_work_queue_end(bp_work_queue *queue, bool early, int64_t amount)
{
    if (!queue->leads || queue->ended)
        return;
    BP_ASSERT(early || !queue->asked); /* a unit that was handed out must not be dropped silently */
    if (queue->asked)
        (void)bp_work_queue_take(queue);
    put_question(queue, early ? WORK_LEAVE_EARLY : WORK_LEAVE, amount);
    (void)bp_work_queue_take(queue);
    queue->ended = true;
}

void bp_work_queue_leave(bp_work_queue *queue, bool early, int64_t amount)
{
    bp_work_queue_end(queue, early, amount);
    bp_poll("work_queue", have_left, queue);
}
