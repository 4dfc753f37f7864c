/* bagpipe-data corpus, inspect, verify and table as users call them: what they write and say, and
 * how they leave. */
#include "base/buffer.h"
#include "base/rng.h"
#include "bp_test.h"
#include "data_tools/tool_run.h"
#include "io/corpus/corpus_file.h"
#include "io/h5/h5.h"
#include "io/h5/user_block.h"

#include <inttypes.h>
#include <sys/stat.h>

static void make_input(void)
{
    static const char lines[] = "the cat and the hat\n\nthe bat \xff and, \"the\" rat\nx\n";
    static const char objects[] =
        "{\"id\": \"one\", \"genre\": \"a, b\", \"n\": 1, \"text\": \"the cat\"}\n"
        "{\"id\": 2, \"genre\": null, \"n\": 2.5, \"text\": \"\"}\n"
        "{\"genre\": \"say \\\"c\\\"\", \"n\": true, \"text\": \"\xe5\x94\x90\\nthe hat\"}\n";
    static const char bad[] = "{\"text\": \"fine\"}\n{\"text\": \"\xff\"}\n";
    static bool made;

    if (made)
        return;
    made = true;
    bp_test_write("lines.txt", lines, sizeof lines - 1);
    bp_test_write("objects.jsonl", objects, sizeof objects - 1);
    bp_test_write("bad.jsonl", bad, sizeof bad - 1);
    bp_test_write("empty.txt", "", 0);
    expect_tool(0, "tokenizer --size 270 --format lines --out t.json lines.txt", 0, "t.json");
}

static void ranks_do_not_change_a_byte(void **state)
{
    (void)state;
    make_input();
    expect_tool(
        0,
        "corpus --tokenizer t.json --format jsonl --label genre --label n --out 0.h5 objects.jsonl",
        0, "3 documents");
    for (int ranks = 1; ranks <= 4; ranks++) {
        char arguments[256], name[16];
        snprintf(name, sizeof name, "%d.h5", ranks);
        snprintf(arguments, sizeof arguments,
                 "corpus --tokenizer t.json --format jsonl --label genre --label n --out %s "
                 "objects.jsonl",
                 name);
        expect_tool(ranks, arguments, 0, "3 documents");
        assert_same_file("0.h5", name);
    }
}

/* 300 documents of up to 1,200 words, with one of 5 genres. */
static void make_long_input(void)
{
    static const char *const words[] = {"stone", "river",  "field", "house", "moon",
                                        "glass", "bridge", "the",   "and",   "\\n"};
    static const char *const genres[] = {"news", "letters", "plays", "tales", "law"};
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_TEST, 0, 0, 0);
    bp_buffer text = {0};
    uint64_t at = 0;

    for (int document = 0; document < 300; document++) {
        bp_buffer_printf(&text, "{\"id\": \"d%d\", \"genre\": \"%s\", \"text\": \"", document,
                         genres[document % 5]);
        for (int64_t words_left = bp_rng_below(&key, at++, 1200); words_left > 0; words_left--)
            bp_buffer_printf(&text, "%s%d ", words[bp_rng_below(&key, at, 10)],
                             (int)bp_rng_below(&key, at + 1, 50)),
                at += 2;
        bp_buffer_printf(&text, "\"}\n");
    }
    (void)bp_test_write("long.jsonl", text.data, text.bytes);
    bp_buffer_clear(&text);
}

static void text_of_several_chunks_is_the_same_on_two_ranks(void **state)
{
    bp_corpus_file *corpus;

    (void)state;
    make_input();
    make_long_input();
    for (int ranks = 1; ranks <= 2; ranks++) {
        char arguments[256];

        snprintf(
            arguments, sizeof arguments,
            "corpus --tokenizer t.json --format jsonl --label genre --out long%d.h5 long.jsonl",
            ranks);
        expect_tool(ranks, arguments, 0, "300 documents");
    }
    assert_same_file("long1.h5", "long2.h5");
    bp_test_expect(bp_corpus_file_open(&corpus, bp_test_path("long1.h5")), BP_OK);
    assert_true(bp_corpus_file_info(corpus)->tokens > 3 * 65536);
    bp_corpus_file_close(&corpus);
    expect_tool(0, "inspect long1.h5", 0, "genre: 5 values: news (60)");
    expect_tool(0, "verify long1.h5", 0, "sound, 300 documents");
}

/* Fields that nobody asks for hold what Python and crawlers write; other lines are bad. */
static const char MESSY[] =
    "{\"text\": \"one two\", \"id\": \"a\", \"score\": NaN, \"n\": 18446744073709551616}\n"
    "{\"text\": null}\n"
    "{\"text\": \"three\", \"m\": 1, \"m\": 1e400, \"s\": \"\\ud800\"}\n"
    "{\"text\": \"a\\ud800b\"}\n"
    "\n"
    "{\"text\": \"four\", \"genre\": \"1\"}\n"
    "{\"text\": \"five\", \"genre\": 1}\n"
    "{\"text\": \"six\", \"genre\": \"2\"}\n"
    "{\"text\": \"seven\", \"genre\": [2]}\n"
    "{\"text\": \"eight\"\n";

static void bad_documents_are_left_out_and_listed(void **state)
{
    char arguments[256];
    char *list;
    size_t bytes;
    int lines = 0;

    (void)state;
    make_input();
    (void)bp_test_write("messy.jsonl", MESSY, sizeof MESSY - 1);
    expect_tool(0, "corpus --tokenizer t.json --format jsonl --out c.h5 messy.jsonl", 65,
                "messy.jsonl, line 2 ... [text.missing_field]");
    for (int ranks = 0; ranks <= 3; ranks += 3) {
        (void)snprintf(arguments, sizeof arguments,
                       "corpus --tokenizer t.json --format jsonl --label genre --skip-bad 5 --out "
                       "messy%d.h5 messy.jsonl",
                       ranks);
        expect_tool(ranks, arguments, 0,
                    "5 of 9 documents ... messy ... .h5.skipped.jsonl ... [corpus.skipped_bad]");
    }
    assert_same_file("messy0.h5", "messy3.h5");
    assert_same_file("messy0.h5.skipped.jsonl", "messy3.h5.skipped.jsonl");
    expect_tool(0, "verify messy0.h5", 0, "sound, 4 documents");
    expect_tool(0, "inspect messy0.h5", 0, "genre: 3 values");
    assert_true(bp_test_has(output, "skipped_bad 5"));
    expect_tool(0, "table messy0.h5", 0, "0,a,");
    assert_true(bp_test_has(output, "1,messy.jsonl:3,") &&
                bp_test_has(output, "2,messy.jsonl:6,") && bp_test_has(output, "3,messy.jsonl:8,"));
    bp_test_expect(bp_file_read(bp_test_path("messy0.h5.skipped.jsonl"), 65536, &list, &bytes),
                   BP_OK);
    for (size_t k = 0; k < bytes; k++)
        if (list[k] == '\n') {
            list[k] = ' ';
            lines++;
        }
    assert_int_equal(lines, 5);
    assert_true(bp_test_has(
        list,
        "{\"file\": \"messy.jsonl\", \"line\": 2, \"reason\": ... [text.missing_field]\"} ... "
        "\"line\": 4 ... json.invalid ... \"line\": 7 ... label.mixed_types ... \"line\": 9 ... "
        "text.bad_field ... \"line\": 10 ... json.invalid"));
    bp_free(list);
    expect_tool(0,
                "corpus --tokenizer t.json --format jsonl --label genre --skip-bad 55.6% --out "
                "c.h5 messy.jsonl",
                0, "4 documents");
    for (int ranks = 0; ranks <= 3; ranks += 3) {
        expect_tool(ranks,
                    "corpus --tokenizer t.json --format jsonl --label genre --skip-bad 55.5% --out "
                    "d.h5 messy.jsonl",
                    65, "5 of 9 ... 55.5 % ... messy.jsonl, line 2 ... [corpus.too_many_bad]");
        expect_tool(ranks,
                    "corpus --tokenizer t.json --format jsonl --label genre --skip-bad 4 --out "
                    "d.h5 messy.jsonl",
                    65, "the 4 ... messy.jsonl, line 2 ... [corpus.too_many_bad]");
    }
    (void)bp_test_write("allbad.jsonl", "{\n7\n", 4);
    expect_tool(0,
                "corpus --tokenizer t.json --format jsonl --skip-bad 100% --out d.h5 allbad.jsonl",
                65, "all documents are bad, 2 ... allbad.jsonl, line 1 ... [corpus.no_documents]");
    assert_false(bp_path_exists(bp_test_path("d.h5")));
    assert_false(bp_path_exists(bp_test_path("d.h5.skipped.jsonl")));
    /* a list of before says nothing of a corpus without bad documents */
    expect_tool(0,
                "corpus --tokenizer t.json --format lines --skip-bad 4 --out messy0.h5 lines.txt",
                0, "");
    assert_false(bp_path_exists(bp_test_path("messy0.h5.skipped.jsonl")));
    expect_tool(0, "corpus --tokenizer t.json --format jsonl --skip-bad x --out d.h5 messy.jsonl",
                64, "[command.bad_skip]");
    expect_tool(0,
                "corpus --tokenizer t.json --format jsonl --skip-bad 101% --out d.h5 messy.jsonl",
                64, "[command.bad_skip]");
    expect_tool(0, "corpus --format hdf5 --skip-bad 1 --out d.h5 messy.jsonl", 64,
                "[command.no_skip]");
    expect_tool(0, "corpus --tokenizer t.json --format jsonl --skip-bad 1 --out messy.jsonl d.h5",
                66, "");
}

static void table_is_csv(void **state)
{
    (void)state;
    make_input();
    expect_tool(
        0,
        "corpus --tokenizer t.json --format jsonl --label genre --label n --out c.h5 objects.jsonl",
        0, "");
    expect_tool(0, "table c.h5", 0,
                "document,id,tokens,bytes,words,words_split,genre,n\n"
                "0,one,");
    expect_tool(0, "table c.h5", 0, "1,2,1,0,0,1,,2.5\n");
    expect_tool(0, "table c.h5", 0, ",\"say \"\"c\"\"\",true\n");
    expect_tool(0, "table c.h5", 0, ",\"a, b\",1\n");
    expect_tool(0, "table --head 1 c.h5", 0, "0,one,");
    assert_null(strstr(output, "\n1,2,"));
    expect_tool(0, "table --head x c.h5", 64, "--head ... [command.bad_number]");
}

/* More than two pieces of text, and then a byte that is not UTF-8, in line 300003. */
static void write_pieces(const char *name)
{
    static const char line[] = "the cat\n", last[] = "x\nthe \xff bat\n";
    size_t bytes = 0, length = sizeof line - 1;
    char *text = bp_alloc("test.text", 300001 * (int64_t)length + (int64_t)sizeof last, 1);

    for (; bytes < 300001 * length; bytes += length)
        memcpy(text + bytes, line, length);
    memcpy(text + bytes, last, sizeof last);
    bp_test_write(name, text, bytes + sizeof last - 1);
    bp_free(text);
}

static void what_is_odd_in_the_text_is_reported(void **state)
{
    static const char white[] = "a cat\n   \n\n\xc2\xa0\n\t\r\nx\n";

    (void)state;
    make_input();
    expect_tool(0, "corpus --tokenizer t.json --format lines --out c.h5 lines.txt", 0,
                "1 empty lines were skipped");
    expect_tool(0, "corpus --tokenizer t.json --format lines --out c.h5 lines.txt", 0,
                "lines.txt, line 3; ... [text.not_utf8]");
    bp_test_write("white.txt", white, sizeof white - 1);
    expect_tool(0, "corpus --tokenizer t.json --format lines --out c.h5 white.txt", 0,
                "3 of 5 documents are only white space");
    assert_non_null(strstr(output, "1 empty lines were skipped"));
    expect_tool(0, "corpus --tokenizer t.json --format lines --out c.h5 lines.txt", 0, "c.h5: ");
    assert_null(strstr(output, "white space"));
    write_pieces("long.txt");
    for (int ranks = 1; ranks <= 3; ranks++)
        expect_tool(ranks, "corpus --tokenizer t.json --out c.h5 empty.txt long.txt lines.txt", 0,
                    "long.txt, line 300003; ... [text.not_utf8]");
    expect_tool(0, "corpus --tokenizer t.json --out c.h5 empty.txt lines.txt", 0,
                "[corpus.empty_documents]");
    expect_tool(0, "inspect c.h5", 0, "ids         empty.txt ... lines.txt");
    expect_tool(0, "inspect c.h5", 0, "files       empty.txt lines.txt");
}

static void names_of_special_tokens_are_tokens_if_asked(void **state)
{
    static const char text[] = "a <|endoftext|> b\n";

    (void)state;
    make_input();
    bp_test_write("special.txt", text, sizeof text - 1);
    expect_tool(0, "corpus --tokenizer t.json --format lines --special --out s.h5 special.txt", 0,
                "");
    expect_tool(0, "table s.h5", 0, "0,special.txt:1,6,");
    expect_tool(0, "inspect s.h5", 0, "special     yes");
    expect_tool(0, "encode --tokenizer t.json --special '<|endoftext|>'", 0,
                ",\"<|endoftext|>\"\n");
    expect_tool(0, "encode --tokenizer t.json '<|endoftext|>'", 0, ",\"<\"\n");
    expect_tool(0, "corpus --format hdf5 --special --out x.h5 s.h5", 64,
                "--special ... [command.no_text]");
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    make_input();
    expect_tool(2, "corpus --out c.h5 lines.txt", 64,
                "bagpipe-data: error[64]:  ... [command.no_tokenizer]");
    expect_tool(0, "corpus --tokenizer t.json lines.txt", 64, "[command.no_output]");
    expect_tool(0, "corpus --tokenizer t.json --out c.h5", 64, "[command.no_input]");
    expect_tool(0, "corpus --tokenizer t.json --out c.h5 --format csv lines.txt", 64, "csv");
    expect_tool(0, "corpus --tokenizer t.json --out c.h5 --label a lines.txt", 64,
                "--format ... [command.needs_jsonl]");
    expect_tool(0, "corpus --tokenizer t.json --out c.h5 --format jsonl --label a/b objects.jsonl",
                64, "a/b");
    expect_tool(0, "corpus --wrong", 64, "--wrong ... [command.not_understood]");
    expect_tool(0, "verify --", 64, "[command.no_input]");
    expect_tool(0, "verify", 64, "Usage: bagpipe-data verify");
    expect_tool(2, "corpus --help", 0, "Usage: bagpipe-data corpus");
    expect_tool(0, "inspect --help", 0, "Usage: bagpipe-data inspect");
    expect_tool(0, "verify --help", 0, "Usage: bagpipe-data verify");
    expect_tool(0, "table --help", 0, "--head=N");
}

static void output_that_is_an_input_is_refused(void **state)
{
    (void)state;
    make_input();
    assert_int_equal(
        run_line("cp lines.txt kept.txt; ln lines.txt hard.txt; ln -s t.json soft.json"), 0);
    expect_tool(0, "corpus --tokenizer t.json --out lines.txt lines.txt", 64,
                "error[64]:  ... [command.same_output]");
    expect_tool(2, "corpus --tokenizer t.json --out hard.txt empty.txt ./lines.txt", 64,
                "./lines.txt");
    expect_tool(0, "corpus --tokenizer t.json --out soft.json lines.txt", 64, "t.json");
    expect_tool(2, "tokenizer --size 270 --out hard.txt lines.txt", 64,
                "lines.txt: at --out hard.txt ... [command.same_output]");
    assert_same_file("kept.txt", "lines.txt");
    expect_tool(0, "tokenizer --from t.json --out t.json", 0, "t.json"); /* the same tokenizer */
}

static void faults_of_files_have_their_codes(void **state)
{
    (void)state;
    make_input();
    expect_tool(2, "corpus --tokenizer t.json --out f.h5 missing.txt", 66,
                "missing.txt ... [file.missing]");
    expect_tool(2, "corpus --tokenizer missing.json --out f.h5 lines.txt", 66, "missing.json");
    expect_tool(0, "corpus --tokenizer lines.txt --out f.h5 lines.txt", 65,
                "lines.txt ... [json.invalid]");
    expect_tool(2, "corpus --tokenizer t.json --format jsonl --out f.h5 bad.jsonl", 65,
                "line 2 ... [json.invalid]");
    expect_tool(0,
                "corpus --tokenizer t.json --format jsonl --label colour --out f.h5 objects.jsonl",
                65, "'colour' ... [label.missing]");
    expect_tool(0, "corpus --tokenizer t.json --out no/f.h5 lines.txt", 73, "no/f.h5");
    expect_tool(2, "corpus --tokenizer t.json --out . lines.txt", 73, "[file.not_replaced]");
    assert_false(bp_path_exists(bp_test_path("f.h5")));
    expect_tool(0, "verify missing.h5", 66, "missing.h5 ... [file.missing]");
    expect_tool(0, "inspect empty.txt", 65, "[h5.empty]");
    expect_tool(0, "verify lines.txt", 65, "[h5.truncated]");
    assert_int_equal(mkdir(bp_test_path("folder"), 0777), 0);
    expect_tool(0, "verify folder", 66, "[file.no_checksums]");
    expect_tool(0, "table folder", 65, "[run.no_record]");
}

static void damage_is_found_in_files_and_folders(void **state)
{
    (void)state;
    make_input();
    assert_int_equal(mkdir(bp_test_path("run"), 0777), 0);
    expect_tool(0, "corpus --tokenizer t.json --format lines --out run/a.h5 lines.txt", 0, "");
    expect_tool(0, "corpus --tokenizer t.json --format lines --out run/b.h5 lines.txt", 0, "");
    expect_tool(0, "verify run", 0, "run/b.h5: sound");
    assert_int_equal(run_line("printf X | dd of=run/a.h5 bs=1 seek=2000 conv=notrunc status=none"),
                     0);
    expect_tool(0, "verify run", 65, "bagpipe-data: error[65]: damaged: at run/a.h5");
    assert_null(strstr(strstr(output, "bagpipe-data: error") + 1, "bagpipe-data: error"));
    assert_non_null(strstr(output, "run/b.h5: sound")); /* the others have their turn */
    expect_tool(0, "verify run/a.h5 run/b.h5", 65, "run/b.h5: sound");
    expect_tool(0, "inspect run/a.h5", 65, "[h5.damaged]");
    expect_tool(0, "table run/a.h5", 65, "[h5.damaged]");
}

/* A sealed tokens.h5 of three tokens; starts NULL: as older versions wrote it. */
static void write_tokens(const char *name, const int64_t *starts, int64_t documents)
{
    static const float logprobs[] = {-1, -2, -3};
    static const uint16_t ids[] = {0, 1, 2};
    static const char *const names[] = {"a", "b"};
    bp_user_block block = {.kind = "score-tokens", .version = 1};
    bp_h5 *file;

    bp_test_expect(bp_h5_create(&file, bp_test_path(name)), BP_OK);
    bp_test_expect(bp_h5_write(file, "logprob", BP_H5_F32, logprobs, 3), BP_OK);
    if (starts != NULL) {
        bp_test_expect(bp_h5_write(file, "tokens", BP_H5_U16, ids, 3), BP_OK);
        bp_test_expect(bp_h5_write(file, "doc_start", BP_H5_I64, starts, documents + 1), BP_OK);
        bp_test_expect(bp_h5_write_texts(file, "doc_id", names, documents), BP_OK);
    }
    bp_test_expect(bp_h5_close(&file), BP_OK);
    bp_test_expect(bp_user_block_seal(&block, bp_test_path(name)), BP_OK);
}

static void tables_of_tokens_are_read_or_refused(void **state)
{
    static const int64_t good[] = {0, 1, 3}, falling[] = {0, 4, 3}, negative[] = {-1, 1, 3},
                         early[] = {0, 1, 2};

    (void)state;
    write_tokens("old.h5", NULL, 0);
    expect_tool(0, "table old.h5", 0, "row,logprob\n0,-1\n1,-2\n2,-3\n");
    expect_tool(0, "table old.h5", 0, "[scores.no_token_ids]");
    write_tokens("tokens.h5", good, 2);
    expect_tool(
        0, "table tokens.h5", 0,
        "document,doc_id,position,token,text,logprob\n0,a,0,0,,-1\n1,b,0,1,,-2\n1,b,1,2,,-3\n");
    expect_tool(0, "table tokens.h5", 0, "[scores.no_tokenizer]");
    write_tokens("falling.h5", falling, 2);
    expect_tool(0, "table falling.h5", 65, "'doc_start' ... [scores.damaged]");
    write_tokens("negative.h5", negative, 2);
    expect_tool(0, "table negative.h5", 65, "'doc_start' ... [scores.damaged]");
    write_tokens("early.h5", early, 2);
    expect_tool(0, "table early.h5", 65, "'doc_start' ... [scores.damaged]");
}

static void a_reader_that_has_enough_is_no_failure(void **state)
{
    char line[2 * PATH_MAX];

    (void)state;
    make_input();
    expect_tool(0, "corpus --tokenizer t.json --format lines --out p.h5 lines.txt", 0, "");
    snprintf(line, sizeof line, "{ %s/bagpipe-data table p.h5; echo \"left with $?\" >&2; } | true",
             BP_TEST_BIN);
    assert_int_equal(run_line(line), 0);
    assert_string_equal(output, "left with 0\n");
}

static void full_output_is_an_error_of_every_tool(void **state)
{
    static const char *const tools[] = {"table p.h5",    "inspect p.h5", "verify p.h5",
                                        "verify --help", "--help",       "--version"};
    char line[2 * PATH_MAX];

    (void)state;
    make_input();
    expect_tool(0, "corpus --tokenizer t.json --format lines --out p.h5 lines.txt", 0, "");
    for (size_t k = 0; k < sizeof tools / sizeof tools[0]; k++) {
        snprintf(line, sizeof line, "%s/bagpipe-data %s > /dev/full", BP_TEST_BIN, tools[k]);
        if (run_line(line) != 74 || strstr(output, "standard output") == NULL)
            fail_msg("%s: %s", tools[k], output);
    }
}

static void control_characters_reach_no_terminal(void **state)
{
    static const char text[] =
        "{\"text\": \"one\", \"id\": \"a\\u001b[31m\", \"colour\": \"r\\u009bed\"}\n"
        "{\"text\": \"two\", \"id\": \"b\\u00e9\", \"colour\": \"x,\\u0007\"}\n";

    (void)state;
    make_input();
    (void)bp_test_write("control.jsonl", text, sizeof text - 1);
    expect_tool(
        0, "corpus --tokenizer t.json --format jsonl --label colour --out control.h5 control.jsonl",
        0, "");
    expect_tool(0, "inspect control.h5", 0, "a\\x1B[31m ... b\xc3\xa9\n");
    assert_non_null(strstr(output, "r\\xC2\\x9Bed"));
    assert_null(strchr(output, '\x1b'));
    expect_tool(0, "table control.h5", 0, "0,a\\x1B[31m,");
    assert_non_null(strstr(output, "\"x,\\x07\""));
    assert_null(strchr(output, '\x1b'));
}

static void run_of_scores_shows_its_tables(void **state)
{
    (void)state;
    make_input();
    assert_int_equal(run_line("mkdir -p scored/score && touch scored/score/summary.json"), 0);
    expect_tool(0, "corpus --tokenizer t.json --format lines --out scored/score/a.h5 lines.txt", 0,
                "");
    expect_tool(0, "corpus --tokenizer t.json --format lines --out scored/score/b.h5 lines.txt", 0,
                "");
    expect_tool(0, "inspect scored", 0, "scored/score/a.h5: ");
    assert_non_null(strstr(output, "scored/score/b.h5: "));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_do_not_change_a_byte),
        cmocka_unit_test(text_of_several_chunks_is_the_same_on_two_ranks),
        cmocka_unit_test(bad_documents_are_left_out_and_listed),
        cmocka_unit_test(table_is_csv),
        cmocka_unit_test(what_is_odd_in_the_text_is_reported),
        cmocka_unit_test(names_of_special_tokens_are_tokens_if_asked),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(output_that_is_an_input_is_refused),
        cmocka_unit_test(faults_of_files_have_their_codes),
        cmocka_unit_test(damage_is_found_in_files_and_folders),
        cmocka_unit_test(tables_of_tokens_are_read_or_refused),
        cmocka_unit_test(a_reader_that_has_enough_is_no_failure),
        cmocka_unit_test(full_output_is_an_error_of_every_tool),
        cmocka_unit_test(control_characters_reach_no_terminal),
        cmocka_unit_test(run_of_scores_shows_its_tables),
    };
    return BP_TEST_RUN(tests);
}
