/* A question set, and a file of choices for a corpus of documents: text, none, white space at the
 * end, a beginning of text. A byte picks the tokens before a context and the context's length. What
 * is accepted are rows within the ids, in the documents' order, and ids of the vocabulary. */
#include "base/buffer.h"
#include "fuzz.h"
#include "infer/score/candidates/candidates.h"
#include "infer/score/questions/set.h"
#include "io/corpus/corpus_writer.h"

#include <math.h>
#include <stdio.h>

#define BLANK_A    256
#define BOS        257
#define END        258
#define VOCABULARY 259
#define DOCUMENTS  3

#define BYTES      256

static bp_tokenizer *tokenizer;
static char corpus_path[300];

static void add_document(bp_corpus_writer *writer, const uint32_t *ids, int64_t count)
{
    bp_corpus_row row = {.bytes = count};

    FUZZ_CHECK(bp_corpus_writer_tokens(writer, ids, count) == BP_OK);
    FUZZ_CHECK(bp_corpus_writer_end(writer, &row) == BP_OK);
}

/* GPT-2's bytes, each a token, and " a"; <s>, </s>. */
static void make_tokenizer(void)
{
    static const char SPECIAL[] = "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                                  "\"normalized\": false, \"special\": true}";
    static const char LEVEL[] = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                                "\"trim_offsets\": true, \"use_regex\": true}";
    bp_buffer text = {0};
    int others = 0;

    bp_buffer_printf(&text,
                     "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": %d, \"content\": \"<s>\", "
                     "%s, {\"id\": %d, \"content\": \"</s>\", %s], \"normalizer\": null, "
                     "\"pre_tokenizer\": %s, \"post_processor\": null, \"decoder\": %s, \"model\": "
                     "{\"type\": \"BPE\", \"merges\": [\"\\u0120 a\"], \"vocab\": {",
                     BOS, SPECIAL, END, SPECIAL, LEVEL, LEVEL);
    for (int b = 0; b < BYTES; b++) {
        bool is_itself = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);

        bp_buffer_printf(&text, "\"\\u%04x\": %d, ", is_itself ? b : BYTES + others++, b);
    }
    bp_buffer_printf(&text, "\"\\u0120a\": %d}}}", BLANK_A);
    FUZZ_CHECK(bp_tokenizer_parse(&tokenizer, text.data, text.bytes, "toy") == BP_OK);
    bp_buffer_clear(&text);
}

/* "ab a  ", "<s>b", "". */
static void make_once(void)
{
    static const uint32_t documents[] = {'a', 'b', BLANK_A, ' ', ' ', BOS, 'b'};
    bp_corpus_spec spec = {.vocab_size = VOCABULARY, .eod_id = END, .tokenizer_hash = ""};
    bp_corpus_writer *writer;

    make_tokenizer();
    (void)snprintf(corpus_path, sizeof corpus_path, "%s", fuzz_file_named("corpus.h5", "", 0));
    FUZZ_CHECK(bp_corpus_writer_new(&writer, corpus_path, &spec) == BP_OK);
    add_document(writer, documents, 5);
    add_document(writer, documents + 5, 2);
    add_document(writer, documents, 0);
    FUZZ_CHECK(bp_corpus_writer_commit(writer) == BP_OK);
    bp_corpus_writer_free(&writer);
}

static void check_rows(const bp_candidates *found, int64_t context)
{
    double logprobs[4096];

    FUZZ_CHECK(found->documents == DOCUMENTS && found->first[0] == 0);
    for (int64_t d = 0; d < DOCUMENTS; d++) {
        int64_t choices = found->first[d + 1] - found->first[d];

        FUZZ_CHECK(choices > 0 && choices <= 4096);
        FUZZ_CHECK(found->answer[d] >= -1 && found->answer[d] < choices);
        for (int64_t r = found->first[d]; r < found->first[d + 1]; r++) {
            const bp_candidate_row *row = &found->rows[r];

            FUZZ_CHECK(row->document == d && row->bytes >= 0);
            FUZZ_CHECK(row->count == 0 ? row->scored == 0 : row->scored > 0);
            FUZZ_CHECK(row->scored < row->count || row->count == 0);
            FUZZ_CHECK(row->count <= context + 1 && row->first >= 0);
            FUZZ_CHECK(row->first + row->count <= found->ids.count);
            if (r < 4096)
                logprobs[r] = row->count > 0 ? -(double)row->scored : NAN;
        }
        if (found->first[d + 1] <= 4096)
            FUZZ_CHECK(bp_candidates_best(found, logprobs, d) < choices);
    }
    for (int64_t k = 0; k < found->ids.count; k++)
        FUZZ_CHECK(found->ids.data[k] < VOCABULARY);
}

static void try_choices(int how, const uint8_t *data, size_t bytes)
{
    bp_score_rule rule = {.convention = BP_SCORE_ROLLING,
                          .context = 1 + how / 8,
                          .stride = 1 + how / 8,
                          .prefix = (how & 1) != 0,
                          .lead = BOS,
                          .eod = END,
                          .cls = -1,
                          .sep = -1,
                          .mask = -1,
                          .start = -1};
    bp_candidates_prefix prefix = {.before = (how & 1) != 0 ? BOS : -1,
                                   .alone = (how & 2) != 0 ? END : -1,
                                   .bos = (how & 4) != 0 ? BOS : -1};
    bp_corpus *corpus;
    bp_score_plan plan;
    bp_candidates found;
    bp_err err;

    FUZZ_CHECK(bp_corpus_open(&corpus, corpus_path) == BP_OK);
    FUZZ_CHECK(bp_score_plan_init(&plan, corpus, &rule, NULL, BP_SCORE_UNIT_INPUTS) == BP_OK);
    err = bp_candidates_read(&found, fuzz_file_named("choices.jsonl", data, bytes), &plan,
                             tokenizer, &prefix);
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err == BP_OK)
        check_rows(&found, rule.context);
    bp_candidates_clear(&found);
    bp_score_plan_clear(&plan);
    bp_corpus_close(&corpus);
}

static void check_questions(const bp_question_set *set)
{
    const bp_candidates *rows = &set->rows;

    FUZZ_CHECK(set->count > 0 && rows->first[rows->documents] == rows->count);
    for (int64_t k = 0; k < set->count; k++) {
        const bp_question *q = &set->questions[k];
        json_t *object = bp_question_object(set, q);

        FUZZ_CHECK(json_is_object(object) && q->line >= 0 && q->bytes > 0);
        FUZZ_CHECK(q->options > 0 && q->answer >= -1 && q->answer < q->options);
        FUZZ_CHECK(q->first >= 0 && q->first + q->options <= rows->count);
        FUZZ_CHECK(q->bare < 0 || q->bare + q->options <= rows->count);
        FUZZ_CHECK(q->task >= 0 && q->task < set->names && q->group < set->names);
        json_decref(object);
    }
    for (int64_t r = 0; r < rows->count; r++) {
        const bp_candidate_row *row = &rows->rows[r];

        FUZZ_CHECK(row->count == 0 ? row->scored == 0 : row->scored > 0);
        FUZZ_CHECK(row->first + row->count <= rows->ids.count);
    }
}

static void try_questions(int how, const uint8_t *data, size_t bytes)
{
    const bp_questions_spec spec = {.path = fuzz_file_named("questions.jsonl", data, bytes),
                                    .tokenizer = tokenizer,
                                    .prefix = {.before = (how & 1) != 0 ? BOS : -1,
                                               .alone = (how & 2) != 0 ? END : -1,
                                               .bos = (how & 4) != 0 ? BOS : -1},
                                    .context = 1 + how / 8};
    bp_question_set set = {0};
    bp_err err = bp_question_set_read(&set, &spec);

    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err == BP_OK)
        check_questions(&set);
    bp_question_set_clear(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_bytes in = {data, bytes};
    int how = fuzz_u8(&in);

    if (!tokenizer)
        make_once();
    fuzz_begin();
    try_choices(how, in.data, in.left);
    try_questions(how, in.data, in.left);
    fuzz_end();
    return 0;
}
