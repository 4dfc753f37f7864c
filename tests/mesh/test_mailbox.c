/* Messages to and from the coordinator: in order, of any length, with nobody in the way of anybody,
 * and an end that loses none. */
#include "bp_test_mpi.h"

#include "mesh/collective.h"
#include "mesh/mailbox.h"

#define COMM     MPI_COMM_WORLD
#define MESSAGES 200
#define LONG     (5 << 20) /* bytes: no MPI sends so much ahead of its receiver */

enum { ODD, EVEN, QUESTION, LENGTHY };

static bool take_one(bp_mailbox *box, int kind, bp_mail *out)
{
    double end = MPI_Wtime() + 60;

    while (!bp_mailbox_take(box, kind, out))
        if (MPI_Wtime() > end)
            return false;
    return true;
}

/* All kinds in the order in which a rank sent them, whatever other ranks send meanwhile. */
static void messages_of_a_rank_come_in_order(void **state)
{
    (void)state;
    int size = bp_comm_size(COMM), next[16] = {0};
    bp_mailbox *box = bp_mailbox_new(COMM);
    bool in_order = size <= 16;
    bp_mail mail;

    for (int k = 0; k < MESSAGES; k++)
        bp_mailbox_send(box, 0, k % 2 == 0 ? EVEN : ODD, &k, sizeof k);
    for (int n = 0; in_order && bp_comm_is_root(COMM) && n < size * MESSAGES; n++) {
        in_order = take_one(box, BP_MAIL_ANY, &mail) && mail.bytes == sizeof(int);
        if (!in_order)
            break;
        in_order = *(int *)mail.data == next[mail.from]++ &&
                   mail.kind == (*(int *)mail.data % 2 == 0 ? EVEN : ODD);
        bp_free(mail.data);
    }
    in_order = in_order && !bp_mailbox_take(box, BP_MAIL_ANY, &mail);
    bp_mailbox_free(&box);
    bp_test_check(COMM, in_order && box == NULL);
}

static void one_kind_is_taken_before_others_that_came_first(void **state)
{
    (void)state;
    bp_mailbox *box = bp_mailbox_new(COMM);
    int numbers[2] = {0}, size = bp_comm_size(COMM);
    bool right = true;
    bp_mail mail;

    bp_mailbox_send(box, 0, ODD, NULL, 0);
    bp_mailbox_send(box, 0, EVEN, &(int){7}, sizeof(int));
    for (int n = 0; bp_comm_is_root(COMM) && n < 2 * size; n++) {
        right = right && take_one(box, n < size ? EVEN : ODD, &mail);
        right = right && mail.bytes == (n < size ? (int64_t)sizeof(int) : 0) &&
                (mail.data == NULL) == (n >= size);
        numbers[n < size] += right && mail.from < size;
        bp_free(mail.data);
    }
    bp_mailbox_free(&box);
    bp_test_check(COMM,
                  right && (!bp_comm_is_root(COMM) || (numbers[0] == size && numbers[1] == size)));
}

static bool is_over(void *context)
{
    bp_mailbox *box = ((void **)context)[0];
    int *left = ((void **)context)[1];
    bp_mail mail;

    while (bp_mailbox_take(box, QUESTION, &mail)) {
        int64_t answer = 2 * *(int64_t *)mail.data;

        bp_mailbox_send(box, mail.from, QUESTION, &answer, sizeof answer);
        bp_free(mail.data);
        (*left)--;
    }
    return *left == 0;
}

static void a_question_gets_its_own_answer(void **state)
{
    (void)state;
    bp_mailbox *box = bp_mailbox_new(COMM);
    int left = MESSAGES * (bp_comm_size(COMM) - 1);
    bool right = true;

    if (bp_comm_is_root(COMM))
        bp_poll("test", is_over, (void *[]){box, &left});
    for (int64_t k = 0; !bp_comm_is_root(COMM) && k < MESSAGES; k++) {
        int64_t question = 1000 * bp_comm_rank(COMM) + k, answer = 0;

        bp_mailbox_send(box, 0, QUESTION, &question, sizeof question);
        bp_mailbox_receive(box, "test", QUESTION, &answer, sizeof answer);
        right = right && answer == 2 * question;
    }
    bp_mailbox_free(&box);
    bp_test_check(COMM, right);
}

/* Everybody sends before anybody takes: by blocking sends, that is a deadlock. */
static void long_messages_cross(void **state)
{
    (void)state;
    int rank = bp_comm_rank(COMM), size = bp_comm_size(COMM);
    bp_mailbox *box = bp_mailbox_new(COMM);
    unsigned char *data = bp_alloc("test.mail", LONG, 1);
    bool right = true;
    bp_mail mail;

    memset(data, rank + 1, LONG);
    for (int to = 0; to < size; to++)
        if (to != rank)
            bp_mailbox_send(box, to, LENGTHY, data, LONG);
    memset(data, 0, LONG); /* it was copied */
    for (int n = 0; right && n < size - 1; n++) {
        right = take_one(box, LENGTHY, &mail) && mail.bytes == LONG;
        for (int64_t i = 0; right && i < LONG; i++)
            right = ((unsigned char *)mail.data)[i] == mail.from + 1;
        bp_free(mail.data);
    }
    bp_free(data);
    bp_mailbox_free(&box);
    bp_test_check(COMM, right);
}

/* Nobody has taken anything: the end does not wait for ever, and leaves nothing behind. */
static void the_end_drops_what_nobody_takes(void **state)
{
    (void)state;
    unsigned char *data = bp_alloc("test.mail", LONG, 1);

    for (int round = 0; round < 3; round++) {
        bp_mailbox *box = bp_mailbox_new(COMM);

        for (int to = 0; to < bp_comm_size(COMM); to++) {
            bp_mailbox_send(box, to, ODD, NULL, 0);
            bp_mailbox_send(box, to, LENGTHY, data, to == 0 ? LONG : 1);
        }
        bp_mailbox_free(&box);
        bp_test_check(COMM, box == NULL);
        bp_mailbox_free(&box);
    }
    bp_free(data);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_a_rank_come_in_order),
        cmocka_unit_test(one_kind_is_taken_before_others_that_came_first),
        cmocka_unit_test(a_question_gets_its_own_answer),
        cmocka_unit_test(long_messages_cross),
        cmocka_unit_test(the_end_drops_what_nobody_takes),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
