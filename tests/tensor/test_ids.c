/* Ids of data are held to their tables' rows in all builds: the program ends with one line. */
#include "bp_test.h"

#include "tensor/batch.h"

#include <sys/wait.h>
#include <unistd.h>

static const int32_t IDS[] = {0, 4, -1, 9, 3};

static void leave(int status)
{
    _exit(status);
}

/* How a program ends that looks at the first `count` of the ids. */
static int ended(int64_t count, int64_t first, int64_t bound)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        bp_assert_set_handler(leave, 0);
        bp_ids_within("token", IDS, count, first, bound);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void ids_within_a_table_are_let_through(void **state)
{
    (void)state;
    assert_int_equal(ended(5, -1, 10), 0);
    assert_int_equal(ended(2, 0, 5), 0);
    assert_int_equal(ended(0, 0, 0), 0);
    bp_ids_within("token", NULL, 5, 0, 1);
}

static void ids_beyond_a_table_end_the_program(void **state)
{
    (void)state;
    assert_int_equal(ended(5, -1, 9), BP_ERR_FORMAT);
    assert_int_equal(ended(5, 0, 10), BP_ERR_FORMAT);
    assert_int_equal(ended(2, 0, 4), BP_ERR_FORMAT);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(ids_within_a_table_are_let_through),
                                              cmocka_unit_test(ids_beyond_a_table_end_the_program)};
    return BP_TEST_RUN(tests);
}
