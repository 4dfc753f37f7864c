/* Messages between the coordinator, rank 0, and the other ranks, separate from the collectives: a
 * rank's request, the coordinator's reply, and reports in either direction.
 *
 * A message is a kind and bytes. Messages from one rank to another arrive in the order of sending,
 * across all kinds.
 *
 * Why nothing hangs: a send copies the message and returns (MPI_Issend), so that two ranks that
 * send to each other do not wait for each other, however long the messages. A message is matched
 * (MPI_Improbe) before its buffer is allocated, since its length is not known in advance. Two
 * calls wait for other ranks: bp_mailbox_receive for a reply, on ranks that asked the coordinator,
 * which itself waits for no single rank's reply; and bp_mailbox_free. Waiting ranks sleep between
 * polls (bp_poll), and the watchdog sees them wait. A rank that computes takes its messages
 * between two pieces of work.
 *
 * Sent messages are kept until the receiver has matched them, and their number has no limit: a
 * sender that waited here could wait for a rank that waits for it. There are few. Requests and
 * progress reports are answered before the next one is sent. The others are a line of metrics or a
 * member's report, some hundred bytes at most once a step. The watchdog ends a hung receiver;
 * until then a thousand steps a second leave less than 1 MB a second here.
 *
 * The end: bp_mailbox_free drops incoming messages until all messages of this rank were matched,
 * enters a nonblocking barrier, and continues dropping until all ranks have entered it. Then no
 * message is in flight, so no last message needs a mark.
 *
 * Source: the end is the nonblocking consensus of Hoefler, Siebert, Lumsdaine: Scalable
 * communication protocols for dynamic sparse data exchange, PPoPP 2010.
 */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>

#define BP_MAIL_ANY MPI_ANY_TAG

typedef struct bp_mailbox bp_mailbox;

typedef struct bp_mail {
    int from;
    int kind; /* the caller's number, 0 or more */
    int64_t bytes;
    void *data; /* [bytes], owned by the receiver: bp_free(); NULL if empty */
} bp_mail;

/** Collective: over `comm`. Messages use a duplicate of it. */
bp_mailbox *bp_mailbox_new(MPI_Comm comm);
/** Wait until all messages of all ranks have arrived, and drop those not received. Collective:
 * over the communicator; NULL, on all ranks, does nothing. */
void bp_mailbox_free(bp_mailbox **box);

/** `data` is copied; returns immediately. Local. */
void bp_mailbox_send(bp_mailbox *box, int to, int kind, const void *data, int64_t bytes);
/** The next message of this kind that has arrived, from any rank; false if there is no such
 * message. Local, except that it may wait for the rest of a long message. */
bool bp_mailbox_take(bp_mailbox *box, int kind, bp_mail *out);
/** Wait for a message of this kind; another length is our bug (BP_ASSERT). `what` is a literal,
 * the watchdog's name for the wait. */
void bp_mailbox_receive(bp_mailbox *box, const char *what, int kind, void *data, int64_t bytes);
