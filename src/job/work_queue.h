/* The queue of work: the coordinator hands units out on demand to the leads of mesh->replica
 * groups (of model groups, where there is one member).
 *
 * A lead requests its next unit before it needs it, continues to work, and takes the answer. A
 * coordinator that computes answers between its own batches (bp_work_queue_serve). No rank is
 * interrupted, and no rank waits longer than a batch. After an error or a stop on any rank, every
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
#pragma once

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
        *done; /* [units], on the coordinator: 1: is not handed out. Borrowed until _free. */
    /** Called on the coordinator about once a second while it serves; may be NULL. `amount` is the
     * total that leads have reported. Return true to hand out nothing more. */
    bool (*report_progress)(void *context, int64_t amount);
    /** Called on the coordinator, while it serves, with each message of the caller's kinds that a
     * lead has sent by bp_work_queue_mailbox: before the lead's next request, and before it leaves.
     * May be NULL. */
    void (*receive)(void *context, const bp_mail *mail);
    void *context;
} bp_work_spec;

/** Collective: over spec->mesh->world. */
void bp_work_queue_new(bp_work_queue **out, const bp_work_spec *spec);
/** Collective: over the mesh's world. */
void bp_work_queue_free(bp_work_queue **queue);

/** The mailbox for the caller's own messages, of kinds from BP_WORK_OWN_MESSAGES on. Borrowed. */
bp_mailbox *bp_work_queue_mailbox(bp_work_queue *queue);
/** A lead requests its next unit, and reports the `amount` done since its last request. One request
 * at a time. Not collective; makes MPI calls with the coordinator. */
void bp_work_queue_ask(bp_work_queue *queue, int64_t amount);
/** Has the answer to the last request arrived? */
bool bp_work_queue_has_come(bp_work_queue *queue);
/** Waits for the answer: a unit, or -1 after the last; then no more requests are allowed. */
int64_t bp_work_queue_take(bp_work_queue *queue);
/** The coordinator answers pending requests; a no-op on other ranks. */
void bp_work_queue_serve(bp_work_queue *queue);

/** A lead announces that it takes no more units, before others need it for the last time. Then it
 * serves if it coordinates, and leaves. Like bp_work_queue_leave, which also does this, but waits
 * only for the coordinator. A no-op on other ranks. */
void bp_work_queue_end(bp_work_queue *queue, bool early, int64_t amount);
/** Leave the loop: a lead's pending request is answered and dropped, and the coordinator serves
 * until all leads have left.
 *
 * Collective: over the mesh's world, but leads may come at different times. `early`: this lead
 * leaves work undone (it failed or was stopped), so nothing more is handed out to anyone. */
void bp_work_queue_leave(bp_work_queue *queue, bool early, int64_t amount);
