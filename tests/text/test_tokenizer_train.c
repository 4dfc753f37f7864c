/* Training: against the plain loop, and the same at any number of ranks. */
#include "base/fault.h"
#include "base/process/signals.h"
#include "bp_test_mpi.h"
#include "plain_bpe.h"
#include "random_text.h"
#include "text/train/tokenizer_train_priv.h"
#include "text/train/train_unigram_priv.h"
#include "text/unicode/scan.h"
#include <omp.h>
#include <signal.h>

#define COMM MPI_COMM_WORLD

/* Ranks share a file of rank 0's. */
static const char *shared_file(const char *name, const char *text, size_t bytes)
{
    const char *path = bp_test_path(name);

    if (bp_comm_is_root(COMM))
        bp_test_expect(bp_file_write(path, text, bytes), BP_OK);
    BP_MPI(MPI_Barrier(COMM));
    return path;
}

static bp_tokenizer *train(const char *path, bp_trainer_options options, bp_trainer_report *report)
{
    bp_tokenizer *tokenizer;
    bp_err err = bp_tokenizer_train(&tokenizer, COMM, &path, 1, &options, report);

    bp_test_check_err(COMM, err, BP_OK);
    return tokenizer;
}

/* Words of few letters with runs of one, so that pairs overlap and counts tie. */
static size_t make_text(char *text, size_t bytes, uint64_t seed)
{
    random_text r = random_text_of(seed);
    size_t used = 0;

    while (used + 40 < bytes) {
        uint32_t letters = 1 + random_below(&r, 12);

        for (uint32_t k = 0; k < letters; k++)
            text[used++] = (char)('a' + random_below(&r, 1 + random_below(&r, 4)));
        text[used++] = " \n,"[random_below(&r, 3)];
    }
    return used;
}

/* ---- the plain loop ---- */

typedef struct plain_words {
    uint32_t *symbols[20000];
    int64_t lengths[20000], counts[20000];
    int64_t count;
    uint32_t all[200000];
} plain_words;

static void split_plainly(plain_words *words, const char *text, size_t bytes)
{
    const uint8_t *start = (const uint8_t *)text;
    uint32_t rank_of_byte[256];
    uint32_t *symbol = words->all;

    for (int k = 0; k < 256; k++)
        rank_of_byte[bp_byte_of_rank(k)] = (uint32_t)k;
    words->count = 0;
    for (size_t at = 0, length; at < bytes; at += length) {
        length = bp_scan_piece(bp_unicode_classes(), start + at, bytes - at);
        assert_true(words->count < 20000 && symbol + length < words->all + 200000);
        words->symbols[words->count] = symbol;
        words->lengths[words->count] = (int64_t)length;
        words->counts[words->count++] = 1;
        for (size_t k = 0; k < length; k++)
            *symbol++ = rank_of_byte[start[at + k]];
    }
}

static void check_merges(const bp_tokenizer *tokenizer, plain_words *words, int64_t wanted)
{
    int64_t made = 0;
    bool same = true;

    while (made < wanted) {
        bp_merge best = {0};

        if (plain_bpe_best(words->symbols, words->lengths, words->counts, words->count, &best) <
            BP_BPE_MIN_COUNT)
            break;
        best.result = (uint32_t)(256 + made);
        if (made < tokenizer->merges.count) {
            const bp_merge *got = &tokenizer->merges.list[made];

            same = same && got->left == best.left && got->right == best.right &&
                   got->result == best.result;
        }
        for (int64_t w = 0; w < words->count; w++)
            words->lengths[w] = plain_bpe_apply(&best, words->symbols[w], words->lengths[w]);
        made++;
    }
    bp_test_check(COMM, same);
    bp_test_check(COMM, tokenizer->merges.count == made);
}

static void merges_are_those_of_the_plain_loop(void **state)
{
    static plain_words words;
    static char text[8000];

    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++) {
        size_t bytes = make_text(text, seed < 4 ? sizeof text : 700, seed);
        int64_t merges = seed < 4 ? 40 : 100; /* the short texts run out of pairs */
        bp_trainer_options options = {.kind = "bpe", .size = 257 + merges, .piece_bytes = 200};
        bp_trainer_report report;
        bp_tokenizer *tokenizer = train(shared_file("t", text, bytes), options, &report);

        split_plainly(&words, text, bytes);
        check_merges(tokenizer, &words, merges);
        bp_test_check(COMM, report.size == 257 + tokenizer->merges.count);
        bp_test_check(COMM, bp_tokenizer_size(tokenizer) == report.size);
        bp_test_check(COMM, bp_tokenizer_eod(tokenizer) == report.size - 1);
        bp_test_check(COMM, report.text_bytes == (int64_t)bytes);
        bp_tokenizer_free(&tokenizer);
    }
}

/* Hashes of what one rank makes of this text; every number of ranks has to come to them. */
static void any_number_of_ranks_makes_the_same(void **state)
{
    static const char *const kinds[] = {"bpe", "word", "char", "wordpiece"};
    static const int64_t sizes[] = {400, 400, 400, 20000}; /* random text has many characters */
    static char text[60000];
    size_t bytes;
    random_text r = random_text_of(9);

    (void)state;
    bytes = random_fill(&r, text, sizeof text / 2, true);
    bytes += make_text(text + bytes, sizeof text / 2, 9);
    const char *path = shared_file("t", text, bytes);
    for (int k = 0; k < 4; k++) {
        bp_trainer_options options = {
            .kind = kinds[k], .size = sizes[k], .format = BP_TEXT_LINES, .piece_bytes = 100};
        bp_trainer_report report;
        bp_tokenizer *together = train(path, options, &report), *alone = NULL;
        bp_err err = bp_tokenizer_train(&alone, MPI_COMM_SELF, &path, 1, &options, &report);

        bp_test_check_err(COMM, err, BP_OK);
        bp_test_check(COMM, strcmp(bp_tokenizer_hash(together), bp_tokenizer_hash(alone)) == 0);
        bp_test_check(COMM, strcmp(bp_tokenizer_kind(together), kinds[k]) == 0);
        bp_test_check(COMM, report.size > 257 && report.documents > 10);
        bp_tokenizer_free(&together);
        bp_tokenizer_free(&alone);
    }
}

/* ---- WordPiece ---- */

/* Letters and commas of the text as ids of the tokenizer: those within a word have ##. */
static void split_to_pieces(plain_words *words, const bp_tokenizer *tokenizer, const char *text,
                            size_t bytes)
{
    uint32_t *symbol = words->all;

    words->count = 0;
    for (size_t at = 0; at < bytes; at++) {
        bool inner = at > 0 && text[at] >= 'a' && text[at - 1] >= 'a';
        char name[4] = {'#', '#', text[at], 0};

        if (text[at] == ' ' || text[at] == '\n')
            continue;
        if (!inner) {
            assert_true(words->count < 20000);
            words->symbols[words->count] = symbol;
            words->counts[words->count] = 1;
            words->lengths[words->count++] = 0;
        }
        *symbol++ = (uint32_t)bp_tokenizer_id(tokenizer, inner ? name : name + 2, inner ? 3 : 1);
        words->lengths[words->count - 1]++;
    }
}

/* Merge anew from the characters on: each merge's name is the next token, or one before it. */
static bool pieces_are_merges(const bp_tokenizer *tokenizer, plain_words *words, int64_t characters,
                              int64_t min_count)
{
    int64_t made = 5 + characters, size = bp_tokenizer_size(tokenizer);
    bp_merge best = {0};

    while (made < size && plain_bpe_best(words->symbols, words->lengths, words->counts,
                                         words->count, &best) >= min_count) {
        char name[200];

        (void)snprintf(name, sizeof name, "%s%s", bp_strmap_key(&tokenizer->names, best.left),
                       bp_strmap_key(&tokenizer->names, best.right) + 2);
        int64_t id = bp_tokenizer_id(tokenizer, name, strlen(name));
        if (id < 0 || id > made)
            return false;
        made += id == made;
        best.result = (uint32_t)id;
        for (int64_t w = 0; w < words->count; w++)
            words->lengths[w] = plain_bpe_apply(&best, words->symbols[w], words->lengths[w]);
    }
    return made == size;
}

static void pieces_of_words_are_those_of_the_plain_loop(void **state)
{
    static plain_words words;
    static char text[8000];

    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        size_t bytes = make_text(text, seed < 3 ? sizeof text : 700, seed);
        bp_trainer_options options = {.kind = "wordpiece",
                                      .size = seed < 3 ? 60 : 300,
                                      .min_count = seed == 2 ? 40 : 0,
                                      .piece_bytes = 200};
        bp_trainer_report report;
        bp_tokenizer *tokenizer = train(shared_file("wp", text, bytes), options, &report);

        split_to_pieces(&words, tokenizer, text, bytes);
        bp_test_check(COMM, pieces_are_merges(tokenizer, &words, 9, seed == 2 ? 40 : 2));
        bp_test_check(COMM, report.size == bp_tokenizer_size(tokenizer) && report.size > 20);
        bp_test_check(COMM, (report.size == options.size) == (seed < 2));
        bp_tokenizer_free(&tokenizer);
    }
}

static void check_names(const bp_tokenizer *tokenizer, const char *const *names, int64_t count)
{
    bool same = bp_tokenizer_size(tokenizer) == count;

    for (int64_t id = 0; id < count && same; id++)
        same = strcmp(bp_strmap_key(&tokenizer->names, id), names[id]) == 0;
    bp_test_check(COMM, same);
}

static void frequent_words_come_first_and_ties_in_order_of_bytes(void **state)
{
    static const char text[] = "b a c a b\na <unk> zz <|endoftext|> \xFF x\xFFy b \xC3\xA9 c a\0b";
    static const char *const all[] = {"<unk>", "a", "b", "c", "zz", "\xC3\xA9", "<|endoftext|>"};
    static const char *const few[] = {"<unk>", "a", "b", "<|endoftext|>"};
    bp_trainer_options options = {.kind = "word", .size = 100};
    bp_trainer_report report;
    const char *path = shared_file("w", text, sizeof text - 1);

    (void)state;
    bp_tokenizer *tokenizer = train(path, options, &report);
    check_names(tokenizer, all, 7);
    bp_test_check(COMM, report.size == 7 && report.words == 5);
    bp_test_check(COMM, bp_tokenizer_eod(tokenizer) == 6 && bp_tokenizer_unk(tokenizer) == 0);
    bp_tokenizer_free(&tokenizer);
    options.size = 4;
    tokenizer = train(path, options, &report);
    check_names(tokenizer, few, 4);
    bp_tokenizer_free(&tokenizer);
}

/* A word with an invalid byte is [UNK] for the encoder, and is not counted: not its parts either.
 */
static void words_of_invalid_bytes_are_not_counted(void **state)
{
    static const char text[] = "ab\xFF"
                               "cd ab x\xFE, ab \xFF\x80 ab\xFF"
                               "cd";
    static const char *const names[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
                                        ",",     "a",     "b",     "##b",   "ab"};
    bp_trainer_options options = {.kind = "wordpiece", .size = 100};
    bp_trainer_report report;
    bp_tokenizer *tokenizer = train(shared_file("wp", text, sizeof text - 1), options, &report);

    (void)state;
    check_names(tokenizer, names, 10);
    bp_test_check(COMM, report.words == 2);
    bp_tokenizer_free(&tokenizer);
}

/* BERT's normalizer: accents go, Chinese characters stand alone, a control character is none. */
static void words_are_those_of_bert(void **state)
{
    static const char text[] = "\xC3\x89t\xC3\xA9 ETE e\1te \xE6\x9D\x8E\xE7\x99\xBD\xFF!";
    static const char *const lower[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]",        "[MASK]",
                                        "!",     "e",     "t",     "\xE6\x9D\x8E", "\xE7\x99\xBD",
                                        "##e",   "##t",   "et",    "ete",          "[X]"};
    static const char *const cased[] = {"[PAD]",
                                        "[UNK]",
                                        "[CLS]",
                                        "[SEP]",
                                        "[MASK]",
                                        "!",
                                        "E",
                                        "T",
                                        "e",
                                        "t",
                                        "\xC3\x89",
                                        "\xC3\xA9",
                                        "\xE6\x9D\x8E",
                                        "\xE7\x99\xBD",
                                        "##E",
                                        "##T",
                                        "##e",
                                        "##t",
                                        "##\xC3\xA9",
                                        "[X]"};
    static const char *const specials[] = {"[X]"};
    bp_trainer_options options = {
        .kind = "wordpiece", .size = 100, .specials = specials, .special_count = 1};
    bp_trainer_report report;
    const char *path = shared_file("wp", text, sizeof text - 1);
    bp_tokenizer *tokenizer = train(path, options, &report);

    (void)state;
    check_names(tokenizer, lower, 15);
    bp_test_check(COMM, report.words == 4 && report.merges == 2);
    bp_test_check(COMM, bp_tokenizer_role(tokenizer, BP_ROLE_MASK) == 4 &&
                            bp_tokenizer_eod(tokenizer) == 3);
    bp_tokenizer_free(&tokenizer);
    options.cased = true;
    tokenizer = train(path, options, &report);
    check_names(tokenizer, cased, 20);
    bp_tokenizer_free(&tokenizer);
}

static void characters_are_counted_one_by_one(void **state)
{
    static const char text[] = "aba\n\xC3\xA9\xFF\xF0\x9F\x98\x80\n \0";
    static const char *const names[] = {
        "<unk>", "\n", "a", " ", "b", "\xC3\xA9", "\xF0\x9F\x98\x80", "<|endoftext|>"};
    bp_trainer_options options = {.kind = "char", .size = 100};
    bp_trainer_report report;

    (void)state;
    bp_tokenizer *tokenizer = train(shared_file("c", text, sizeof text - 1), options, &report);
    check_names(tokenizer, names, 8);
    bp_tokenizer_free(&tokenizer);
}

static void expect_failure(const char *path, bp_trainer_options options, bp_err expected,
                           const char *message)
{
    bp_tokenizer *tokenizer;
    bp_trainer_report report;
    bp_err err = bp_tokenizer_train(&tokenizer, COMM, &path, 1, &options, &report);

    bp_test_check_err(COMM, err, expected);
    bp_test_check(COMM, tokenizer == NULL);
    bp_test_check_said(COMM, message);
}

/* One vocabulary at any number of ranks and threads: its hash was made on one rank and one thread.
 */
static void unigram_vocabularies_depend_on_the_text_alone(void **state)
{
    enum { BYTES = 60000, SIZE = 200, SENTINELS = 4 };
    static char text[BYTES];
    bp_trainer_options options = {
        .kind = "unigram", .size = SIZE, .sentinels = SENTINELS, .piece_bytes = 997};
    size_t bytes = make_text(text, sizeof text, 11);
    const char *path = shared_file("unigram.txt", text, bytes);
    char hash[BP_SHA256_HEX] = "";

    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        bp_trainer_report report;
        bp_tokenizer *tokenizer;

        omp_set_num_threads(threads);
        tokenizer = train(path, options, &report);
        assert_int_equal(report.size, SIZE);
        assert_string_equal(bp_tokenizer_kind(tokenizer), "unigram");
        assert_int_equal(bp_tokenizer_role(tokenizer, BP_ROLE_PAD), 0);
        assert_int_equal(bp_tokenizer_eod(tokenizer), 1);
        assert_int_equal(bp_tokenizer_unk(tokenizer), 2);
        assert_int_equal(bp_tokenizer_id(tokenizer, "<extra_id_0>", 12), SIZE - 1);
        assert_int_equal(bp_tokenizer_id(tokenizer, "<extra_id_3>", 12), SIZE - SENTINELS);
        if (threads > 1)
            assert_string_equal(bp_tokenizer_hash(tokenizer), hash);
        memcpy(hash, bp_tokenizer_hash(tokenizer), sizeof hash);
        bp_tokenizer_free(&tokenizer);
    }
    if (bp_comm_size(COMM) > 1) { /* the same as one rank makes of the same file, in one piece */
        bp_trainer_report report;
        bp_tokenizer *alone;

        options.piece_bytes = 0;
        bp_test_check_err(
            COMM, bp_tokenizer_train(&alone, MPI_COMM_SELF, &path, 1, &options, &report), BP_OK);
        assert_string_equal(bp_tokenizer_hash(alone), hash);
        bp_tokenizer_free(&alone);
    }
}

/* Pieces of a text of two words, of which one is longer, are the words. */
static void unigram_pieces_are_frequent_words(void **state)
{
    static const char line[] = "banana bread , banana split\nbanana\nbread\n";
    char text[50 * sizeof line] = "";
    bp_trainer_options options = {.kind = "unigram", .size = 22};
    bp_trainer_report report;
    bp_tokenizer *tokenizer;

    (void)state;
    for (int k = 0; k < 50; k++)
        strcat(text, line);
    tokenizer = train(shared_file("words.txt", text, strlen(text)), options, &report);
    assert_true(bp_tokenizer_id(tokenizer,
                                "\xE2\x96\x81"
                                "banana",
                                9) >= 3);
    assert_true(bp_tokenizer_id(tokenizer,
                                "\xE2\x96\x81"
                                "bread",
                                8) >= 3);
    bp_tokenizer_free(&tokenizer);
    options.size = 10;
    expect_failure(shared_file("words.txt", text, strlen(text)), options, BP_ERR_USAGE,
                   "[tokenizer.bad_size]");
    options.size = 22; /* a frequent U+0000 is no piece: JSON can't spell it */
    memset(text + sizeof text / 2, 0, 60);
    tokenizer = train(shared_file("nul.txt", text, sizeof text - 50), options, &report);
    assert_true(bp_tokenizer_size(tokenizer) > 10);
    bp_tokenizer_free(&tokenizer);
}

/* Words that are all different, of 100 letters each: time goes by their seeds. */
static void text_without_blanks_has_seeds_by_the_size(void **state)
{
    static uint32_t codes[] = {'a', 'b', 'c', 'd', 0x2581};
    static int64_t counts[] = {2500, 2500, 2500, 2500, 100};
    enum { LETTERS = 5, SIZE = 30, MOST = BP_UNIGRAM_SEED_SHARE * SIZE };
    const bp_letters letters = {codes, counts, LETTERS};
    bp_strmap words = {0}, ends = {0};
    bp_unigrams few = {0}, all = {0};
    random_text r = random_text_of(3);

    (void)state;
    for (int k = 0; k < 100; k++) {
        char word[103] = "\xE2\x96\x81";

        for (int at = 3; at < 103; at++)
            word[at] = (char)('a' + random_below(&r, 4));
        bp_test_expect(bp_strmap_add(&words, word, sizeof word, 1, NULL), BP_OK);
    }
    assert_int_equal(bp_unigram_most_seeds(&words, SIZE), MOST);
    assert_int_equal(bp_unigram_most_seeds(&words, 1 << 20), BP_UNIGRAM_SEEDS);
    bp_unigram_seed(&all, &words, &ends, &letters, BP_UNIGRAM_SEEDS);
    bp_unigram_seed(&few, &words, &ends, &letters, MOST);
    assert_true(all.names.count > 2 * (LETTERS + MOST));
    assert_int_equal(few.names.count, LETTERS + MOST);
    for (int64_t k = 0; k < few.names.count; k++) /* the first ones, by number times length */
        assert_string_equal(bp_strmap_key(&few.names, k), bp_strmap_key(&all.names, k));
    for (int64_t k = 0; k < words.count; k++)
        words.entries[k].value = 2; /* words repeat: the definition's number */
    assert_int_equal(bp_unigram_most_seeds(&words, SIZE), BP_UNIGRAM_SEEDS);
    bp_unigrams_clear(&few);
    bp_unigrams_clear(&all);
    bp_strmap_clear(&words);
}

/* The broken line falls to one rank; all of them hear of it. */
static void failures_are_shared(void **state)
{
    static const char jsonl[] =
        "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": 5}\n{\"text\": \"c\"}";
    bp_trainer_options options = {.kind = "bpe", .size = 300, .format = BP_TEXT_JSONL};

    (void)state;
    expect_failure(shared_file("j", jsonl, sizeof jsonl - 1), options, BP_ERR_FORMAT,
                   "line 3 ... [text.missing_field]");
    expect_failure(bp_test_path("none"), options, BP_ERR_INPUT, "none");
    expect_failure(shared_file("e", "", 0), options, BP_ERR_FORMAT, "[text.none]");
    options.size = 256;
    expect_failure(bp_test_path("j"), options, BP_ERR_USAGE, "257");
    options = (bp_trainer_options){.kind = "wordpiece", .size = 8};
    expect_failure(shared_file("p", "ab cd", 5), options, BP_ERR_USAGE,
                   "6 characters ... 11 at least ... [tokenizer.bad_size]");
    expect_failure(shared_file("q", " \xFF ", 3), options, BP_ERR_FORMAT, "[text.no_words]");
    options.size = 5;
    expect_failure(bp_test_path("p"), options, BP_ERR_USAGE, "from 6 to");
    options.size = 300;
    options.kind = "sentence";
    expect_failure(bp_test_path("j"), options, BP_ERR_USAGE, "sentence");
}

/* A run of one letter makes tokens of 2, 4, 8... letters, up to the limit. Time that is quadratic
 * in the run would not end within the limit of the test; a bound in seconds would fail where the
 * machine is busy. */
static void a_long_run_is_learnt(void **state)
{
    enum { LONG = 2000000 };
    char *text = bp_alloc("test", LONG, 1);
    bp_trainer_options options = {.kind = "bpe", .size = 5000};
    bp_trainer_report report;

    (void)state;
    memset(text, 'a', LONG);
    bp_tokenizer *tokenizer = train(shared_file("run", text, LONG), options, &report);
    bp_test_check(COMM, report.merges >= 10 && report.merges < 100);
    bp_test_check(COMM, bp_tokenizer_longest(tokenizer) == BP_TOKEN_LIMIT_BYTES);
    bp_tokenizer_free(&tokenizer);
    bp_free(text);
}

/* The flag stays up, so this is the last test. */
static void a_signal_to_one_rank_stops_all(void **state)
{
    static const char text[] = "the cat and the hat";
    bp_trainer_options options = {.kind = "bpe", .size = 300, .piece_bytes = 4};
    const char *path = shared_file("s", text, sizeof text - 1);

    (void)state;
    bp_signals_init();
    if (bp_comm_is_root(COMM))
        assert_int_equal(raise(SIGUSR1), 0);
    expect_failure(path, options, BP_ERR_STOPPED, "[run.stopped]");
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_are_those_of_the_plain_loop),
        cmocka_unit_test(any_number_of_ranks_makes_the_same),
        cmocka_unit_test(frequent_words_come_first_and_ties_in_order_of_bytes),
        cmocka_unit_test(pieces_of_words_are_those_of_the_plain_loop),
        cmocka_unit_test(words_of_invalid_bytes_are_not_counted),
        cmocka_unit_test(words_are_those_of_bert),
        cmocka_unit_test(characters_are_counted_one_by_one),
        cmocka_unit_test(unigram_vocabularies_depend_on_the_text_alone),
        cmocka_unit_test(unigram_pieces_are_frequent_words),
        cmocka_unit_test(text_without_blanks_has_seeds_by_the_size),
        cmocka_unit_test(failures_are_shared),
        cmocka_unit_test(a_long_run_is_learnt),
        cmocka_unit_test(a_signal_to_one_rank_stops_all),
    };

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
