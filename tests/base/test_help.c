/* --help: prose is wrapped, examples stand as they are, and every part has its place. */
#include "base/config/help.h"
#include "base/mem.h"
#include "bp_test.h"

static const bp_option keys_table[] = {
    {"train.steps", BP_OPTION_INT, NULL, 1, 1e12, NULL, "steps", "optimizer steps", true},
    {"train.chunks", BP_OPTION_INT, "2", 2, 64, NULL, NULL, "runs of blocks", false},
    {"train.rate", BP_OPTION_REAL, "0.1", 0, 0.5, NULL, NULL, "the rate", false},
    {"train.order", BP_OPTION_CHOICE, "tree", 0, 0, "tree|running", NULL, "of the sum", false},
    {"train.trace", BP_OPTION_BOOL, "no", 0, 0, NULL, NULL, "a timeline", false},
    {NULL, BP_OPTION_INT, NULL, 0, 0, NULL, NULL, NULL, false}};
static const bp_option *const keys[] = {keys_table, NULL};

static const struct argp_option options[] = {
    {"out", 'o', "FILE", 0, "where it goes", 0},
    {"a-name-that-is-long", 300, "WITH-A-VALUE", 0, "stands alone", 0},
    {"steps", 0, "N", OPTION_ARG_OPTIONAL, "how many", 0},
    {NULL, 0, NULL, 0, "Others:", 1},
    {"quiet", 'q', NULL, 0, "say less", 1},
    {0}};

static const bp_help_row statuses[] = {{"0", "done"}, {"73, 74", "no space"}, {0}};

#define LONG_EXAMPLE                                                                               \
    "  mpirun -n 4 bagpipe-data corpus --tokenizer tokenizer.json --out a.h5 --format lines "      \
    "a.txt\n"

static const bp_help help = {
    .name = "bagpipe-data thing",
    .usage = "--out FILE [OPTION...] FILE...\nFILE",
    .summary = "does a thing",
    .text = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen "
            "fifteen.\nAnother paragraph.",
    .options = options,
    .keys = keys,
    .examples = LONG_EXAMPLE,
    .statuses = statuses};

static void every_part_has_its_place(void **state)
{
    static const char expected[] =
        "Usage: bagpipe-data thing --out FILE [OPTION...] FILE...\n"
        "  or:  bagpipe-data thing FILE\n"
        "\n"
        "bagpipe-data thing does a thing.\n"
        "\n"
        "One two three four five six seven eight nine ten eleven twelve thirteen\n"
        "fourteen fifteen.\n"
        "\n"
        "Another paragraph.\n"
        "\n"
        "Options:\n"
        "  -o, --out=FILE         where it goes\n"
        "      --a-name-that-is-long=WITH-A-VALUE\n"
        "                         stands alone\n"
        "      --steps[=N]        how many\n"
        "  -h, --help             print this text\n"
        "\n"
        "Others:\n"
        "  -q, --quiet            say less\n"
        "\n"
        "Keys:\n"
        "A key is set in CONFIG.ini, under its [section], or on the command line as\n"
        "section.key=value, which wins. Without CONFIG.ini all are on the command line.\n"
        "\n"
        "[train]\n"
        "  train.steps   optimizer steps (steps, 1 or more; required)\n"
        "  train.chunks  runs of blocks (integer, 2 to 64; default 2)\n"
        "  train.rate    the rate (number, 0 to 0.5; default 0.1)\n"
        "  train.order   of the sum (tree|running; default tree)\n"
        "  train.trace   a timeline (yes|no; default no)\n"
        "\n"
        "Examples:\n" LONG_EXAMPLE "\n"
        "Exit status:\n"
        "  0       done\n"
        "  73, 74  no space\n";
    char *text = bp_help_text(&help);

    assert_non_null(text);
    assert_string_equal(text, expected);
    bp_free(text);
}

static void help_is_asked_by_three_words_before_two_dashes(void **state)
{
    char *words[] = {"a", "--helpful", "--", "--help"};

    assert_false(bp_help_is_asked(4, words));
    words[1] = "--help";
    assert_true(bp_help_is_asked(4, words));
    words[1] = "-h";
    assert_true(bp_help_is_asked(4, words));
    words[1] = "-?";
    assert_true(bp_help_is_asked(4, words));
    assert_false(bp_help_is_asked(1, words));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_has_its_place),
        cmocka_unit_test(help_is_asked_by_three_words_before_two_dashes),
    };

    return BP_TEST_RUN(tests);
}
