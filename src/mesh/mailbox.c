/* Sent messages stay in a list until the receiver has matched them. */
#include "mesh/mailbox.h"

#include "base/err.h"
#include "base/mem.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <string.h>

typedef struct sent_mail {
    struct sent_mail *next;
    MPI_Request request;
    char data[];
} sent_mail;

struct bp_mailbox {
    MPI_Comm comm;
    sent_mail *sent;
    int64_t unmatched, calls; /* of `sent` at the last look through it, and calls since then */
    MPI_Request barrier;      /* of the end; MPI_REQUEST_NULL before it */
};

bp_mailbox *bp_mailbox_new(MPI_Comm comm)
{
    bp_mailbox *box = bp_alloc("mailbox", 1, sizeof *box);

    BP_MPI(MPI_Comm_dup(comm, &box->comm));
    box->barrier = MPI_REQUEST_NULL;
    return box;
}

/* Forget what was matched. */
static void release_sent(bp_mailbox *box)
{
    box->unmatched = box->calls = 0;
    for (sent_mail **at = &box->sent; *at;) {
        sent_mail *mail = *at;
        int matched;

        BP_MPI(MPI_Test(&mail->request, &matched, MPI_STATUS_IGNORE));
        if (!matched) {
            at = &mail->next;
            box->unmatched++;
            continue;
        }
        *at = mail->next;
        bp_free(mail);
    }
}

/* Once in as many calls as there are messages: so a call looks at one or two of them, however many
 * ranks ask at once. */
static void release_now_and_then(bp_mailbox *box)
{
    if (++box->calls > box->unmatched)
        release_sent(box);
}

void bp_mailbox_send(bp_mailbox *box, int to, int kind, const void *data, int64_t bytes)
{
    sent_mail *mail = bp_alloc("mailbox", (int64_t)sizeof *mail + bytes, 1);

    if (bytes > 0)
        memcpy(mail->data, data, (size_t)bytes);
    BP_MPI(
        MPI_Issend(mail->data, bp_mpi_count(bytes), MPI_BYTE, to, kind, box->comm, &mail->request));
    mail->next = box->sent;
    box->sent = mail;
    release_now_and_then(box);
}

bool bp_mailbox_take(bp_mailbox *box, int kind, bp_mail *out)
{
    MPI_Message message;
    MPI_Request request;
    MPI_Status status;
    int there, bytes;

    release_now_and_then(box);
    BP_MPI(MPI_Improbe(MPI_ANY_SOURCE, kind, box->comm, &there, &message, &status));
    if (!there)
        return false;
    BP_MPI(MPI_Get_count(&status, MPI_BYTE, &bytes));
    *out = (bp_mail){.from = status.MPI_SOURCE,
                     .kind = status.MPI_TAG,
                     .bytes = bytes,
                     .data = bytes > 0 ? bp_alloc("mailbox.mail", bytes, 1) : NULL};
    BP_MPI(MPI_Imrecv(out->data, bytes, MPI_BYTE, &message, &request));
    bp_wait_asleep("recv", &request);
    return true;
}

typedef struct awaited_mail {
    bp_mailbox *box;
    int kind;
    bp_mail mail;
} awaited_mail;

static bool has_come(void *context)
{
    awaited_mail *awaited = context;

    return bp_mailbox_take(awaited->box, awaited->kind, &awaited->mail);
}

void bp_mailbox_receive(bp_mailbox *box, const char *what, int kind, void *data, int64_t bytes)
{
    awaited_mail awaited = {.box = box, .kind = kind};

    bp_poll(what, has_come, &awaited);
    BP_ASSERT(awaited.mail.bytes == bytes);
    if (bytes > 0)
        memcpy(data, awaited.mail.data, (size_t)bytes);
    bp_free(awaited.mail.data);
}

static bool has_ended(void *context)
{
    bp_mailbox *box = context;
    bp_mail dropped;
    int ended = 0;

    while (bp_mailbox_take(box, BP_MAIL_ANY, &dropped))
        bp_free(dropped.data);
    release_sent(box);
    if (box->barrier != MPI_REQUEST_NULL)
        BP_MPI(MPI_Test(&box->barrier, &ended, MPI_STATUS_IGNORE));
    else if (!box->sent)
        BP_MPI(MPI_Ibarrier(box->comm, &box->barrier));
    return ended;
}

void bp_mailbox_free(bp_mailbox **out)
{
    if (!*out)
        return;
    bp_poll("mailbox", has_ended, *out);
    BP_MPI(MPI_Comm_free(&(*out)->comm));
    bp_free(*out);
    *out = NULL;
}
