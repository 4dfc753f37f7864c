/* Messages between the coordinator, rank 0, and the other ranks, beside the collectives: a request
 * of a rank, the coordinator's reply, and reports either way.
 *
 * A message is a kind and bytes. Messages from one rank to another come in the order in which they
 * were sent, of all kinds and of one kind.
 *
 * Why nothing hangs: a send copies the message and returns (MPI_Issend), so that two ranks that
 * send to each other do not wait for each other, however long the messages. A message is matched
 * (MPI_Improbe) before its buffer is allocated, for its length is not known ahead. Two calls wait
 * for other ranks: bp_mailbox_receive for a reply, on ranks that asked the coordinator, which
 * itself waits for no single rank's reply; and bp_mailbox_free. Waiting ranks sleep between polls
 * (bp_poll), and the watchdog sees them wait. A rank that computes takes its messages between two
 * pieces of work.
 *
 * Sent messages are kept until the receiver has matched them, and their number has no limit: a
 * sender that waited here could wait for a rank that waits for it. There are few. Questions and
 * reports of progress are answered before the next one; what is not answered is a line of metrics
 * or a report of a member, some hundred bytes at most once a step. A receiver that hangs is ended
 * by the watchdog; until then a thousand steps a second leave less than 1 MB a second here.
 *
 * The end: bp_mailbox_free drops what still comes until all messages of this rank were matched,
 * enters a nonblocking barrier, and goes on dropping until all ranks have entered it. Then no
 * message is under way. So nobody has to say that a message is the last one.
 *
 * Source: the end is the nonblocking consensus of Hoefler, Siebert, Lumsdaine: Scalable
 * communication protocols for dynamic sparse data exchange, PPoPP 2010.
 */
#ifndef BP_MESH_MAILBOX_H
#define BP_MESH_MAILBOX_H

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#define BP_MAIL_ANY MPI_ANY_TAG

typedef struct bp_mailbox bp_mailbox;

typedef struct bp_mail {
    int from;
    int kind; /* the caller's number, 0 or more */
    int64_t bytes;
    void *data; /* [bytes], the taker's: bp_free(); NULL without bytes */
} bp_mail;

/** Collective: over `comm`. Messages travel on a duplicate of it. */
bp_mailbox *bp_mailbox_new(MPI_Comm comm);
/** Wait until all messages of all ranks have come, and drop those that were not taken. Collective:
 * over the communicator; NULL, on all ranks: nothing. */
void bp_mailbox_free(bp_mailbox **box);

/** `data` is copied; returns at once. Local. */
void bp_mailbox_send(bp_mailbox *box, int to, int kind, const void *data, int64_t bytes);
/** The next message of this kind that has come, from any rank; false: there is none. Local, except
 * for the bytes of a long message that are still under way. */
bool bp_mailbox_take(bp_mailbox *box, int kind, bp_mail *out);
/** Wait for a message of this kind; one of another length is a bug of ours (BP_ASSERT). `what` is a
 * literal, what the watchdog says that the rank waits in. */
void bp_mailbox_receive(bp_mailbox *box, const char *what, int kind, void *data, int64_t bytes);

#endif
