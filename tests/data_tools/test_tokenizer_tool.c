/* bagpipe-data tokenizer as users call it: what it writes, what it says, and its exit status. */
#include "bp_test.h"
#include "data_tools/tool_run.h"
#include "text/gpt2_pair.h"
#include "text/tokenizer/tokenizer.h"
#include <sys/stat.h>

static void expect(int ranks, const char *arguments, int status, const char *said)
{
    char line[16384];

    (void)snprintf(line, sizeof line, "tokenizer %s", arguments);
    expect_tool(ranks, line, status, said);
}

static void write_text(void)
{
    static const char text[] = "the cat and the hat\nthe bat and the rat\n\na cat, a hat\n";

    bp_test_write("text.txt", text, sizeof text - 1);
}

static bp_tokenizer *load(const char *name)
{
    bp_tokenizer *tokenizer;

    bp_test_expect(bp_tokenizer_load(&tokenizer, bp_test_path(name)), BP_OK);
    return tokenizer;
}

static void each_kind_is_trained(void **state)
{
    static const char *const kinds[] = {"bpe", "word", "char"};
    static const int64_t sizes[] = {262, 7, 9};

    (void)state;
    write_text();
    for (int k = 0; k < 3; k++) {
        char arguments[256];

        (void)snprintf(arguments, sizeof arguments,
                       "--kind %s --size %d --format lines --out %s.json text.txt", kinds[k],
                       (int)sizes[k], kinds[k]);
        expect(0, arguments, 0, "3 documents, 1 empty lines skipped");
        (void)snprintf(arguments, sizeof arguments, "%s.json", kinds[k]);
        bp_tokenizer *tokenizer = load(arguments);
        assert_int_equal(bp_tokenizer_size(tokenizer), sizes[k]);
        assert_int_equal(bp_tokenizer_eod(tokenizer), sizes[k] - 1);
        assert_string_equal(bp_tokenizer_kind(tokenizer), kinds[k]);
        bp_tokenizer_free(&tokenizer);
    }
}

static void ranks_do_not_change_a_byte(void **state)
{
    (void)state;
    write_text();
    expect(0, "--size 264 --out one.json text.txt text.txt", 0, "264 tokens");
    expect(2, "--size 264 --out two.json text.txt text.txt", 0, "264 tokens");
    expect(3, "--size 264 --out three.json text.txt text.txt", 0, "264 tokens");
    assert_same_file("one.json", "two.json");
    assert_same_file("one.json", "three.json");
}

static void a_text_without_enough_is_said(void **state)
{
    (void)state;
    write_text();
    expect(0, "--size 5000 --out small.json text.txt", 0, "[tokenizer.too_few_tokens]");
    expect(0, "--kind word --size 5000 --out small.json text.txt", 0,
           "10 tokens ... [tokenizer.too_few_tokens]");
}

static void rare_words_are_left_out(void **state)
{
    static const char words[] = "a b a c a b d\n";

    (void)state;
    bp_test_write("words.txt", words, sizeof words - 1);
    expect(0, "--kind word --out all.json words.txt", 0, "built 6 tokens");
    expect(2, "--kind word --min-count 2 --out two.json words.txt words.txt", 0, "built 6 tokens");
    expect(0, "--kind word --min-count 2 --out two.json words.txt", 0, "built 4 tokens");
    expect(0, "--kind word --min-count 2 --size 3 --out one.json words.txt", 0, "built 3 tokens");
    expect(0, "--kind bpe --size 300 --min-count 2 --out no.json words.txt", 64,
           "[tokenizer.no_min_count]");
    expect(0, "--kind bpe --out no.json words.txt", 64, "[command.no_size]");
}

static void pieces_and_special_tokens_are_written(void **state)
{
    (void)state;
    write_text();
    expect(0, "--kind wordpiece --size 40 --special '[A],[B]' --out wp.json text.txt", 0,
           "wordpiece, 30 tokens, pad 0, unk 1, cls 2, sep 3, mask "
           "4, eod 3");
    expect(2, "--kind wordpiece --size 40 --special '[A],[B]' --out two.json text.txt", 0,
           "wordpiece");
    assert_same_file("wp.json", "two.json");
    expect(0, "--kind wordpiece --size 40 --min-count 4 --cased --out few.json text.txt", 0,
           "wordpiece");
    expect(0, "--size 270 --special '[MASK],[X]' --out bpe.json text.txt", 0, "mask");
    bp_tokenizer *tokenizer = load("bpe.json");
    assert_int_equal(bp_tokenizer_eod(tokenizer), bp_tokenizer_size(tokenizer) - 1);
    assert_int_equal(bp_tokenizer_role(tokenizer, BP_ROLE_MASK), bp_tokenizer_size(tokenizer) - 3);
    bp_tokenizer_free(&tokenizer);
    expect(0, "--kind word --special '[X]' --size 6 --out word.json text.txt", 0, "6 tokens");
    expect(0, "--kind unigram --size 24 --sentinels 1 --special '[X]' --out uni.json text.txt", 0,
           "unigram");
    expect(0, "--kind word --special cat --out x.json text.txt", 64, "[tokenizer.special_twice]");
    expect(0, "--kind word --special 'q,q' --out x.json text.txt", 64, "[tokenizer.bad_special]");
    expect(0, "--kind word --special 'q,' --out x.json text.txt", 64, "[tokenizer.bad_special]");
    expect(0, "--kind word --cased --out x.json text.txt", 64, "[command.bad_cased]");
    expect(0, "--from wp.json --special q --out x.json", 64, "[command.exclusive]");
    expect(0, "--kind wordpiece --size 12 --out x.json text.txt", 64, "[tokenizer.bad_size]");
    assert_false(bp_path_exists(bp_test_path("x.json")));
}

/* A BERT vocabulary: line k is token k. */
static void a_bert_vocabulary_is_converted(void **state)
{
    static const char vocab[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n##s\n";
    static const char twice[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\nthe\n";

    (void)state;
    bp_test_write("vocab.txt", vocab, sizeof vocab - 1);
    expect(0, "--vocab vocab.txt --out bert.json", 0,
           "wordpiece, 7 tokens, pad 0, unk 1, cls 2, sep 3, mask 4, eod 3");
    expect(0, "--vocab vocab.txt --cased --out cased.json", 0, "wordpiece");
    expect(0, "--from bert.json --out again.json", 0, "7 tokens");
    assert_same_file("bert.json", "again.json");
    bp_test_write("twice.txt", twice, sizeof twice - 1);
    expect(0, "--vocab twice.txt --out doubled.json", 0, "twice.txt ... [vocabulary.holes]");
    bp_test_write("short.txt", vocab, 12);
    expect(0, "--vocab short.txt --out x.json", 65, "\"[CLS]\" ... [vocabulary.no_special]");
}

/* A pair as GPT-2's gives the tokenizer it was taken from, and so does that. */
static void conversion_is_idempotent(void **state)
{
    (void)state;
    write_text();
    expect(0, "--size 264 --out trained.json text.txt", 0, "264 tokens");
    gpt2_pair_write(bp_test_path("trained.json"), ".");
    expect(0, "--vocab vocab.json --merges merges.txt --out pair.json", 0, "264 tokens, eod 263");
    assert_same_file("trained.json", "pair.json");
    expect(2, "--from pair.json --out again.json", 0, "264 tokens");
    assert_same_file("pair.json", "again.json");
}

static void wrong_command_lines_are_64(void **state)
{
    (void)state;
    write_text();
    expect(0, "--size 300 text.txt", 64, "--out ... [command.no_output]");
    expect(0, "--out x.json text.txt", 64, "--size");
    expect(0, "--size 300 --out x.json", 64, "[command.no_input]");
    expect(0, "--size 12k --out x.json text.txt", 64, "'12k'");
    expect(0, "--size -5 --out x.json text.txt", 64, "'-5' ... [command.bad_number]");
    expect(0, "--size 99999999999999999999 --out x.json text.txt", 64,
           "--size ... [command.bad_number]");
    expect(0, "--size 200 --out x.json text.txt", 64, "257 ... [tokenizer.bad_size]");
    expect(0, "--kind sentence --size 300 --out x.json text.txt", 64, "'sentence'");
    expect(0, "--format csv --size 300 --out x.json text.txt", 64,
           "'csv' ... [text.unknown_format]");
    expect(0, "--merges m.txt --out x.json", 64, "[command.no_vocabulary]");
    expect(0, "--size 300 --sentinels 5 --out x.json text.txt", 64, "[tokenizer.no_sentinels]");
    expect(0, "--kind unigram --size 300 --sentinels x --out x.json text.txt", 64, "--sentinels");
    expect(0, "--kind unigram --size 300 --sentinels 99999 --out x.json text.txt", 64,
           "99999 ... [tokenizer.too_many_sentinels]");
    expect(0, "--kind unigram --size 6 --out x.json text.txt", 64, "[tokenizer.bad_size]");
    expect(0, "--vocab v.json --merges m.txt --cased --out x.json", 64, "vocab.txt");
    expect(0, "--from v.json --size 300 --out x.json", 64, "[command.exclusive]");
    expect(0, "--from v.json --vocab v.json --merges m --out x.json", 64, "exclude");
    expect(0, "--sise 300", 64, "'--sise' ... [command.not_understood]");
    expect(0, "--sise=nonsense", 64, "the nearest option is --size: ... [command.not_understood]");
    expect(2, "--size", 64, "'--size' lacks its value: ... [command.no_value]");
    expect(0, "--cased=yes", 64, "'--cased' takes no value: ... [command.no_value]");
    assert_false(bp_path_exists(bp_test_path("x.json")));
}

static void one_rank_speaks(void **state)
{
    (void)state;
    expect(3, "--size 300 --out x.json none.txt", 66, "none.txt ... [file.missing]");
    assert_null(strstr(strstr(output, "error[66]") + 1, "error[66]"));
}

static void wrong_files_have_their_codes(void **state)
{
    (void)state;
    write_text();
    bp_test_write("empty.txt", "", 0);
    bp_test_write("bad.jsonl", "{\"text\": 1}\n", 12);
    bp_test_write("bad.json", "{\"model\": {\"type\": \"Unigram\"}}", 30);
    expect(0, "--size 300 --out x.json empty.txt", 65, "[text.none]");
    expect(0, "--size 300 --format jsonl --out x.json bad.jsonl", 65,
           "bad.jsonl, line 1 ... [text.missing_field]");
    expect(0, "--from bad.json --out x.json", 65, "[vocabulary.missing]");
    expect(0, "--from none.json --out x.json", 66, "none.json");
    expect(0, "--size 300 --out none/x.json text.txt", 73, "none/x.json ... [file.no_folder]");
    expect(0, "--size 300 --out . text.txt", 73, ".");
    assert_false(bp_path_exists(bp_test_path("x.json")));
}

static void unwritable_folder_is_77(void **state)
{
    (void)state;
    if (geteuid() == 0)
        bp_test_skip("root may write everywhere");
    write_text();
    assert_int_equal(mkdir(bp_test_path("closed"), 0500), 0);
    expect(0, "--size 300 --out closed/x.json text.txt", 77, "closed/x.json");
}

/* The rows of `text`, which is text `number`, after `at`; where they end. */
static const char *expect_rows(const char *at, const bp_tokenizer *tokenizer, int number,
                               const char *text)
{
    bp_encoder *encoder;
    bp_ids ids = {0};

    bp_test_expect(bp_encoder_new(&encoder, tokenizer), BP_OK);
    bp_test_expect(bp_encode(encoder, text, strlen(text), &ids), BP_OK);
    for (int64_t k = 0; k < ids.count; k++) {
        bp_buffer piece = {0};
        char row[256];

        bp_test_expect(bp_tokenizer_token_text(tokenizer, ids.data[k], &piece), BP_OK);
        (void)snprintf(row, sizeof row, "%d,%u,\"%s\"\n", number, ids.data[k],
                       strcmp(piece.data, "\"") == 0 ? "\"\"" : piece.data);
        if (strncmp(at, row, strlen(row)) != 0)
            fail_msg("no row %s at %s", row, at);
        at += strlen(row);
        bp_buffer_clear(&piece);
    }
    bp_ids_clear(&ids);
    bp_encoder_free(&encoder);
    return at;
}

static void texts_become_rows_of_tokens(void **state)
{
    static const char head[] = "text,id,piece\n", texts[] = "'the cat\nsat' 'a \"hat\"'";
    const char *at;

    (void)state;
    write_text();
    expect(0, "--size 264 --out bpe.json text.txt", 0, "264 tokens");
    bp_tokenizer *tokenizer = load("bpe.json");
    char arguments[256];

    (void)snprintf(arguments, sizeof arguments, "encode --tokenizer bpe.json %s", texts);
    expect_tool(0, arguments, 0, head);
    at = expect_rows(output + strlen(head), tokenizer, 1, "the cat\nsat");
    assert_string_equal(expect_rows(at, tokenizer, 2, "a \"hat\""), "");
    assert_non_null(strstr(output, "\"\\n\"")); /* a newline is a piece of its own */
    assert_int_equal(run_tool(0, "printf 'the cat\\n\\na hat' | ", "encode --tokenizer bpe.json -"),
                     0);
    at = expect_rows(output + strlen(head), tokenizer, 1, "the cat");
    assert_string_equal(expect_rows(at, tokenizer, 3, "a hat"), "");
    expect_tool(0, "encode --tokenizer bpe.json", 64, "[command.no_input]");
    expect_tool(0, "encode the", 64, "[command.no_input]");
    expect_tool(0, "encode --tokenizer none.json the", 66, "none.json");
    bp_tokenizer_free(&tokenizer);
}

static void help_tells_all_options(void **state)
{
    static const char *const options[] = {"--kind", "--size", "--format", "--vocab", "--merges",
                                          "--from", "--out",  "jsonl",    "mpirun"};

    (void)state;
    expect(0, "--help", 0,
           "Usage: bagpipe-data tokenizer --size N --out tokenizer.json [OPTION...] FILE...");
    for (size_t k = 0; k < sizeof options / sizeof *options; k++)
        assert_non_null(strstr(output, options[k]));
    assert_non_null(strstr(output, "wordpiece"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_trained),
        cmocka_unit_test(ranks_do_not_change_a_byte),
        cmocka_unit_test(a_text_without_enough_is_said),
        cmocka_unit_test(rare_words_are_left_out),
        cmocka_unit_test(pieces_and_special_tokens_are_written),
        cmocka_unit_test(a_bert_vocabulary_is_converted),
        cmocka_unit_test(conversion_is_idempotent),
        cmocka_unit_test(wrong_command_lines_are_64),
        cmocka_unit_test(one_rank_speaks),
        cmocka_unit_test(wrong_files_have_their_codes),
        cmocka_unit_test(unwritable_folder_is_77),
        cmocka_unit_test(texts_become_rows_of_tokens),
        cmocka_unit_test(help_tells_all_options),
    };

    return BP_TEST_RUN(tests);
}
