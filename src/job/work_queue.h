/* The queue of work: the coordinator hands units out on demand to the leads of mesh->replica
 * groups (of model groups, where there is one member).
 *
 * A lead asks for its next unit a while before it needs it, works on, and takes the answer; a
 * coordinator that computes answers between its own batches (bp_work_queue_serve). No rank is
 * interrupted, and no rank waits longer than a batch. After an error or a stop anywhere, every
 * lead's next answer is "none".
 *
 *     bp_work_queue_new(&queue, &spec);                  all ranks
 *     bp_work_queue_ask(queue, 0);                       leads
 *     while ((unit = bp_work_queue_take(queue)) >= 0) {
 *         half of it; bp_work_queue_serve(queue);
 *         bp_work_queue_ask(queue, amount);
 *         the other half; bp_work_queue_serve(queue);
 *     }
 *     bp_work_queue_leave(queue, ended_early);           all ranks
 *     bp_work_queue_free(&queue);
 */
#ifndef BP_JOB_WORK_QUEUE_H
#define BP_JOB_WORK_QUEUE_H

#include "mesh/mailbox.h"
#include "mesh/mesh.h"

#include <stdbool.h>
#include <stdint.h>

#define BP_WORK_OWN_MESSAGES 1

typedef struct bp_work_queue bp_work_queue;

typedef struct bp_work_spec {
    const bp_mesh *mesh;
    int64_t units; /* on the coordinator */
    const uint8_t
        *done; /* [units], on the coordinator: 1 is not handed out. Borrowed until _free. */
    /** Called on the coordinator about once a second while it serves; may be NULL. `amount` is what
     * leads reported so far, all together. True: hand out nothing more. */
    bool (*report_progress)(void *context, int64_t amount);
    /** Called on the coordinator, while it serves, with each message of a kind of the caller's that
     * a lead has sent to it by bp_work_queue_mailbox: before the lead's next question, and before
     * it has left. NULL: there are none. */
    void (*receive)(void *context, const bp_mail *mail);
    void *context;
} bp_work_spec;

/** Collective: over spec->mesh->world. */
void bp_work_queue_new(bp_work_queue **out, const bp_work_spec *spec);
/** Collective: over the mesh's world. */
void bp_work_queue_free(bp_work_queue **queue);

/** For the caller's own messages, of kinds from BP_WORK_OWN_MESSAGES on. Borrowed. */
bp_mailbox *bp_work_queue_mailbox(bp_work_queue *queue);
/** A lead asks for its next unit, and reports `amount` done since it last asked. One question at a
 * time. Not a collective; makes MPI calls with the coordinator. */
void bp_work_queue_ask(bp_work_queue *queue, int64_t amount);
/** Has the answer to the last question come? */
bool bp_work_queue_has_come(bp_work_queue *queue);
/** It: a unit, -1: no more; then nothing more may be asked. */
int64_t bp_work_queue_take(bp_work_queue *queue);
/** The coordinator answers the questions that have come in; on other ranks nothing happens. */
void bp_work_queue_serve(bp_work_queue *queue);

/** A lead says that it takes no more units, before others need it for the last time; then it serves
 * if it coordinates, and leaves. As bp_work_queue_leave, which does it too, but it waits for nobody
 * but the coordinator. Nothing happens on other ranks. */
void bp_work_queue_end(bp_work_queue *queue, bool early, int64_t amount);
/** Leave the loop: a lead's open question is answered and dropped, and the coordinator serves until
 * all leads have left.
 *
 * Collective: over the mesh's world, but leads may come at different times. `early`: this lead
 * leaves work undone (it failed or was stopped), so nothing more is handed out to anyone. */
void bp_work_queue_leave(bp_work_queue *queue, bool early, int64_t amount);

#endif
