/* Counts of words, against Python's, and in pieces against the whole. */
#include "bp_test.h"
#include "random_text.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode/tally.h"

static bp_text_counts count(const char *text, size_t bytes)
{
    bp_text_counts counts;

    bp_text_count(&counts, text, bytes);
    return counts;
}

static void check(const char *text, int64_t words, int64_t words_split, int64_t invalid)
{
    bp_text_counts counts = count(text, strlen(text));

    if (counts.words != words || counts.words_split != words_split ||
        counts.invalid_bytes != invalid)
        fail_msg("\"%s\": %lld words, %lld split, %lld invalid", text, (long long)counts.words,
                 (long long)counts.words_split, (long long)counts.invalid_bytes);
}

static void words_are_runs_between_white_space(void **state)
{
    (void)state;
    check("", 0, 1, 0);
    check(" ", 0, 2, 0);
    check("a", 1, 1, 0);
    check(" a  b\n", 2, 4, 0); /* "", "a", "b", "" */
    check("a\xC2\x85"
          "b\xE3\x80\x80"
          "c\xC2\xA0"
          "d",
          4, 4, 0);
    check("a\x1F"
          "b",
          1, 2, 0); /* Python's \s, but not White_Space */
    check("a\xE1\xA0\x8E"
          "b",
          1, 1, 0); /* U+180E is neither since Unicode 6.3 */
    check("a\xE2\x80\x8B"
          "b",
          1, 1, 0);                        /* nor is U+200B */
    check("\xFF \xF0\x9F\x98 x", 3, 3, 4); /* a cut emoji is three bytes */
    check("\xED\xA0\x80", 1, 1, 3);        /* and so is a surrogate */
}

static const char PYTHON[] =
    "import re,sys\n"
    "ws=''.join(map(chr,[*range(9,14),32,0x85,0xa0,0x1680,*range(0x2000,0x200b),0x2028,0x2029,"
    "0x202f,0x205f,0x3000]))\n"
    "t=open(sys.argv[1],'rb').read().decode('utf-8','surrogateescape')\n"
    "print(len([w for w in re.split('['+ws+']+',t) if w]), len(re.split(r'\\s+',t)), "
    "sum(0xdc80<=ord(c)<=0xdcff for c in t))\n";

/* The words are lm-evaluation-harness's own expression, evaluated by Python. */
static void counts_are_pythons(void **state)
{
    static char text[200000];
    random_text r = random_text_of(5);
    size_t bytes = random_fill(&r, text, sizeof text, true);
    const char *data = bp_test_write("text", text, bytes);
    const char *script = bp_test_write("count.py", PYTHON, strlen(PYTHON));
    long long words = -1, words_split = -1, invalid = -1;
    char command[2 * PATH_MAX + 32];
    FILE *python;

    (void)state;
    if (!bp_path_exists("/usr/bin/python3"))
        bp_test_skip("there is no /usr/bin/python3");
    (void)snprintf(command, sizeof command, "/usr/bin/python3 %s %s", script, data);
    python = popen(command, "r");
    assert_non_null(python);
    assert_int_equal(fscanf(python, "%lld %lld %lld", &words, &words_split, &invalid), 3);
    assert_int_equal(pclose(python), 0);
    bp_text_counts counts = count(text, bytes);
    assert_int_equal(counts.words, words);
    assert_int_equal(counts.words_split, words_split);
    assert_int_equal(counts.invalid_bytes, invalid);
    assert_true(invalid > 1000 && words_split > words);
}

/* Pieces counted one after another, or by two that join what they have. */
static void pieces_count_as_the_whole(void **state)
{
    static char text[400];

    (void)state;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        random_text r = random_text_of(seed);
        size_t bytes = random_fill(&r, text, random_below(&r, sizeof text), seed % 2 == 0);
        bp_text_tally added = {0}, halves[2] = {{0}, {0}};
        bp_text_counts whole = count(text, bytes), got;

        for (size_t at = 0; at < bytes;) {
            size_t limit = at + 4 + random_below(&r, 40);
            size_t cut =
                limit >= bytes ? bytes - at : bp_text_cut(BP_CUT_CHAR, text + at, limit - at);

            bp_text_tally_add(&added, text + at, cut);
            bp_text_tally_add(&halves[at > bytes / 2], text + at, cut);
            at += cut;
        }
        bp_text_tally_join(&halves[0], &halves[1]);
        for (int k = 0; k < 2; k++) {
            got = bp_text_tally_counts(k == 0 ? &added : &halves[0]);
            assert_memory_equal(&got, &whole, sizeof got);
        }
        assert_int_equal(added.bytes, bytes);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_runs_between_white_space),
        cmocka_unit_test(counts_are_pythons),
        cmocka_unit_test(pieces_count_as_the_whole),
    };

    return BP_TEST_RUN(tests);
}
