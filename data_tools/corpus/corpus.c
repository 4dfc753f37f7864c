/* bagpipe-data corpus: text, or tokens that another program made, to a compressed corpus. */
#include "corpus_arguments.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/process/clock.h"
#include "file_tool.h"
#include "io/corpus/corpus_build.h"
#include "mesh/mesh.h"
#include "text/tokenizer/tokenizer.h"
#include "tools.h"

#include <inttypes.h>
#include <string.h>

#define FEW_TOKENS 1000 /* a text of fewer may well be one document */

static const struct argp_option OPTIONS[] = {
    {"tokenizer", 't', "FILE", 0, "the tokenizer.json (required for text)", 1},
    {"target-tokenizer", 0, "FILE", 0,
     "with pairs and two fields of tsv: the tokenizer.json of second texts, which has the same "
     "tokens (Marian's target.spm)",
     1},
    {"out", 'o', "FILE", 0,
     "the corpus to write, or FOLDER/ for one of each file, which is made unless it is there "
     "(required)",
     1},
    {"format", 0, "FORMAT", 0,
     "text|lines|jsonl|tsv|pairs| conll|squad|warc|hdf5| megatron|llmc|nanogpt|datatrove: what a "
     "FILE holds: text, one document (the default); lines, a document a line (empty lines "
     "are skipped, lines of white space not; both are counted); jsonl, a JSON object a line, with "
     "\"text\" and perhaps \"id\"; tsv, "
     "fields with tabs between them, whose names are in the first line; pairs, two FILEs with a "
     "source and its target a line; conll, a word and its tag a line, documents parted by empty "
     "lines; squad, SQuAD's JSON: questions, their contexts and answers; warc, texts of web pages, "
     "the records of type conversion (Common "
     "Crawl's .warc.wet.gz); hdf5, the tokens of a "
     "corpus that another program wrote: /tokens, /doc_start and the attribute vocab_size; "
     "megatron "
     "(PREFIX of PREFIX.bin and PREFIX.idx), llmc, nanogpt (.bin) and datatrove (.ds with "
     ".ds.index): tokens as these programs write them",
     1},
    {"separator", 0, "TEXT", 0,
     "with text: a document ends with TEXT, which is not part of it, and another one begins", 1},
    {"text-field", 0, "NAME", 0, "with jsonl: the field that holds the text (default text)", 1},
    {"fields", 0, "A[,B]", 0, "with tsv: the column of the text, or of two texts", 1},
    {"label", 'l', "NAME", 0,
     "with jsonl and tsv: keep this field, a string, number or boolean, as a label of the "
     "document; "
     "an object without it has the label \"\". May be given several times",
     1},
    {"value", 0, "NAME", 0,
     "with jsonl and tsv: keep this field, a number, as a value of the document (for regression). "
     "May be given several times",
     1},
    {"no-tags", 0, NULL, 0,
     "with conll: the first field of a line is a word, whose tag is not known (to be tagged by a "
     "model)",
     1},
    {"sentences", 0, "none|lines|punctuation", 0,
     "with text, lines and jsonl: keep where sentences begin: at each line, or after full stops "
     "(default none)",
     1},
    {"bos", 0, NULL, 0,
     "with text, lines, jsonl and warc: each document begins with the tokenizer's "
     "beginning-of-text "
     "token, which training then feeds",
     1},
    {"skip-bad", 0, "N|P%", 0,
     "leave out documents whose content is wrong (a line, a sentence of conll, a question of "
     "squad), "
     "at most N, or P of a hundred, and list them in FILE.h5.skipped.jsonl",
     1},
    {"only", 0, "LIST", 0,
     "take only documents whose ids are lines of the file LIST (see bagpipe-data filter)", 1},
    {"without", 0, "LIST", 0, "leave out documents whose ids are lines of LIST", 1},
    {"vocab-size", 0, "N", 0,
     "with tokens of other programs: ids are below N (default: the tokenizer's)", 1},
    {"eod", 0, "ID", 0,
     "with tokens of other programs: the end-of-document token (default: the tokenizer's)", 1},
    {"token-bytes", 0, "2|4", 0,
     "with nanogpt: of a token (default 2; 4 for a vocabulary of more than 65536)", 1},
    {"special", 0, NULL, 0,
     "names of special tokens in the text become those tokens; without it they are text", 1},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65", "wrong content of a file, or more of it than --skip-bad; the line is named"},
    {"66", "a file is missing"},
    {"73, 74, 77", "the output cannot be written"},
    {"75", "stopped by a signal; nothing is kept"},
    {0}};

/* ---- the work ---- */

static void warn_of_unknown(const bp_tokenizer *tokenizer, const bp_corpus_built *built)
{
    bp_buffer name = {0};

    if (bp_tokenizer_token_text(tokenizer, bp_tokenizer_unk(tokenizer), &name) == BP_OK)
        BP_WARN("corpus.unknown_tokens",
                "%" PRId64 " of %" PRId64 " tokens are unknown to the tokenizer (%.*s)",
                built->unknown, built->tokens, (int)name.bytes, name.data);
    bp_buffer_clear(&name);
}

static const char *list_of(const corpus_arguments *arguments)
{
    return arguments->only ? arguments->only : arguments->without;
}

static void report(const corpus_arguments *arguments, const bp_tokenizer *tokenizer,
                   const bp_corpus_built *built, double seconds)
{
    if (built->invalid_bytes > 0)
        BP_WARN(
            "text.not_utf8",
            "%" PRId64 " bytes of the text are not valid UTF-8: the first at %s, line %" PRId64
            "; %s",
            built->invalid_bytes, bp_text_source_shown(arguments->files.list[built->invalid_file]),
            built->invalid_line,
            bp_tokenizer_keeps_bytes(tokenizer) ? "they were kept as they are"
                                                : "each is an unknown character to the tokenizer");
    if (built->empty_documents > 0)
        BP_WARN("corpus.empty_documents", "%" PRId64 " of %" PRId64 " documents are empty",
                built->empty_documents, built->documents);
    if (built->unknown > 0)
        warn_of_unknown(tokenizer, built);
    if (bp_tokenizer_loses(tokenizer))
        bp_log("the tokenizer takes away %s: figures a byte do not compare with those of other "
               "tokenizers",
               bp_tokenizer_loses(tokenizer));
    if (built->skipped_bad > 0)
        BP_WARN("corpus.skipped_bad",
                "%" PRId64 " of %" PRId64 " documents are bad and were left out: %s lists them",
                built->skipped_bad, built->skipped_bad + built->documents, arguments->skip_list);
    if (built->skipped_lines > 0)
        bp_log("%" PRId64 " empty %s were skipped", built->skipped_lines,
               arguments->separator ? "texts" : "lines");
    if (built->left_out > 0)
        bp_log("%" PRId64 " documents were left out by %s", built->left_out, list_of(arguments));
    if (built->found < built->listed && !arguments->is_one_of_many)
        BP_WARN("corpus.not_found", "%" PRId64 " of %" PRId64 " ids are of no document: at %s",
                built->listed - built->found, built->listed, list_of(arguments));
    if (built->white_documents > 0)
        bp_log("%" PRId64 " of %" PRId64 " documents are only white space, and count as documents",
               built->white_documents, built->documents);
    if (built->documents == 1 && built->tokens > FEW_TOKENS)
        BP_WARN("corpus.one_document",
                "the text is one document, and scores have intervals over documents: at %s; "
                "--separator TEXT or --format lines cuts it, or name several files",
                arguments->out);
    if (arguments->sentences)
        bp_log("%" PRId64 " sentences", built->segments);
    bp_log("%s: %" PRId64 " documents, %" PRId64 " tokens, %" PRId64 " words, %" PRId64
           " bytes of text (%.2f a token), %.1f MB/s",
           arguments->out, built->documents, built->tokens, built->words, built->bytes,
           (double)built->bytes / (double)built->tokens, 1e-6 * (double)built->bytes / seconds);
}

/* The tokenizer, and what the files beside it do not agree on. */
static bp_err load_tokenizer(bp_tokenizer **out, const corpus_arguments *arguments)
{
    bp_err err = bp_tokenizer_load(out, arguments->tokenizer);

    if (err != BP_OK)
        return err;
    if (bp_comm_is_root(MPI_COMM_WORLD))
        tool_warn_of_roles(*out, arguments->tokenizer);
    if (arguments->bos && bp_tokenizer_role(*out, BP_ROLE_BOS) < 0)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.no_bos",
                       "the tokenizer has no beginning-of-text token: at %s; leave --bos out, or "
                       "name one as \"bos_token\" in the tokenizer_config.json beside it",
                       arguments->tokenizer);
    return BP_OK;
}

/* Which of their tokens differ; -1: none. */
static int64_t first_difference(const bp_tokenizer *one, const bp_tokenizer *other)
{
    int64_t count = bp_tokenizer_size(one), id = 0;
    bp_buffer a = {0}, b = {0};

    for (; id < count && id < bp_tokenizer_size(other); id++) {
        bool same;

        a.bytes = b.bytes = 0;
        same = bp_tokenizer_token_bytes(one, id, &a) == BP_OK &&
               bp_tokenizer_token_bytes(other, id, &b) == BP_OK && a.bytes == b.bytes &&
               (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
        if (!same)
            break;
    }
    bp_buffer_clear(&a);
    bp_buffer_clear(&b);
    return id == count && count == bp_tokenizer_size(other) ? -1 : id;
}

/* That of second texts, which differs in how texts are cut, and in no token. */
static bp_err load_target(bp_tokenizer **out, const bp_tokenizer *tokenizer,
                          const corpus_arguments *arguments)
{
    bp_err err = bp_tokenizer_load(out, arguments->target_tokenizer);
    int64_t id = err == BP_OK ? first_difference(tokenizer, *out) : -1;

    if (id >= 0)
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.other_target",
                      "token %lld is not the same as in %s, but a corpus has the tokens of one "
                      "vocabulary: at %s; give two tokenizers with the same ids",
                      (long long)id, arguments->tokenizer, arguments->target_tokenizer);
    return err;
}

static bp_err build(const corpus_arguments *arguments)
{
    bp_corpus_build spec = {.paths = (const char *const *)arguments->files.list,
                            .path_count = arguments->files.count,
                            .format_name = arguments->format,
                            .separator = arguments->separator,
                            .text_field = arguments->text_field,
                            .fields = arguments->fields,
                            .labels = arguments->labels.list,
                            .values = arguments->values.list,
                            .field_count = arguments->field_count,
                            .label_count = arguments->labels.count,
                            .value_count = arguments->values.count,
                            .no_tags = arguments->no_tags,
                            .has_bos = arguments->bos,
                            .specials = arguments->specials,
                            .sentences_name = arguments->sentences,
                            .skips_bad = arguments->skip_bad != NULL,
                            .skip_count = arguments->skip_count,
                            .skip_percent = arguments->skip_percent,
                            .skip_list = arguments->skip_list,
                            .list = list_of(arguments),
                            .takes_listed = arguments->only != NULL,
                            .tool = "bagpipe-data corpus " BAGPIPE_VERSION,
                            .out = arguments->out};
    bp_tokenizer *tokenizer = NULL, *target = NULL;
    bp_corpus_built built;
    double start = bp_clock_now();
    bp_err err = bp_text_format_of(&spec.format, arguments->format, true);

    if (err == BP_OK && arguments->sentences)
        err = bp_sentences_of(&spec.sentences, arguments->sentences);
    if (err == BP_OK)
        err = load_tokenizer(&tokenizer, arguments);
    if (err == BP_OK && arguments->target_tokenizer)
        err = load_target(&target, tokenizer, arguments);
    err = bp_agree(MPI_COMM_WORLD, err);
    if (err == BP_OK) {
        spec.tokenizer = tokenizer;
        spec.target_tokenizer = target;
        err = bp_corpus_build_file(MPI_COMM_WORLD, &spec, &built);
    }
    if (err == BP_OK)
        report(arguments, tokenizer, &built, bp_clock_now() - start);
    bp_tokenizer_free(&target);
    bp_tokenizer_free(&tokenizer);
    return err;
}

static const char DEFAULT_FORMAT[] = "text";

/* A file of records that nobody called one becomes a single document, braces and all. */
static void warn_of_format(const corpus_arguments *arguments)
{
    static const char *const KINDS[][2] = {
        {".jsonl", "jsonl"}, {".tsv", "tsv"}, {".conll", "conll"}, {".warc", "warc"}};

    for (int k = 0; k < arguments->files.count && arguments->format == DEFAULT_FORMAT; k++)
        for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++)
            if (strstr(bp_path_base(arguments->files.list[k]), KINDS[i][0]))
                BP_WARN("corpus.no_format",
                        "without --format the whole file is one document of text: at %s; give "
                        "--format %s, or --format text if that is meant",
                        shown_path(arguments->files.list[k]), KINDS[i][1]);
}

static bp_err make(const corpus_arguments *arguments)
{
    if (!corpus_is_foreign(arguments))
        return build(arguments);
    return bp_agree(MPI_COMM_WORLD,
                    bp_comm_is_root(MPI_COMM_WORLD) ? corpus_convert_foreign(arguments) : BP_OK);
}

static bp_err run(int argc, char **argv)
{
    corpus_arguments arguments = {.format = DEFAULT_FORMAT, .eod = -1};
    const tool_value values[] = {
        {.option = "tokenizer", .text = &arguments.tokenizer},
        {.option = "target-tokenizer", .text = &arguments.target_tokenizer},
        {.option = "out", .text = &arguments.out},
        {.option = "format", .text = &arguments.format},
        {.option = "text-field", .text = &arguments.text_field},
        {.option = "fields", .text = &arguments.field_list},
        {.option = "label", .texts = &arguments.labels},
        {.option = "value", .texts = &arguments.values},
        {.option = "no-tags", .flag = &arguments.no_tags},
        {.option = "sentences", .text = &arguments.sentences},
        {.option = "bos", .flag = &arguments.bos},
        {.option = "skip-bad", .text = &arguments.skip_bad},
        {.option = "special", .flag = &arguments.specials},
        {.option = "separator", .text = &arguments.separator},
        {.option = "only", .text = &arguments.only},
        {.option = "without", .text = &arguments.without},
        {.option = "vocab-size", .number = &arguments.vocab_size, .low = 1, .high = INT32_MAX},
        {.option = "eod", .number = &arguments.eod, .low = 0, .high = INT32_MAX},
        {.option = "token-bytes", .number = &arguments.token_bytes, .low = 2, .high = 4},
        {0}};
    bp_err err = tool_parse(&bp_tool_corpus, values, &arguments.files, argc, argv);

    if (err == BP_OK)
        err = corpus_arguments_check(&arguments);
    err = bp_agree(MPI_COMM_WORLD, err);
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        warn_of_format(&arguments);
    if (err == BP_OK)
        err =
            corpus_is_folder(&arguments) ? corpus_build_folder(&arguments, make) : make(&arguments);
    corpus_arguments_clear(&arguments);
    return err;
}

const bp_tool bp_tool_corpus = {
    .name = "corpus",
    .help =
        {.name = "bagpipe-data corpus",
         .usage = "--tokenizer FILE --out FILE.h5 [OPTION...] FILE...",
         .summary = "makes a compressed corpus (HDF5) of text",
         .text =
             "A FILE may be compressed with gzip or zstd. The FILE - is standard input; it reaches "
             "only one rank, so with several ranks it is refused. The corpus depends only on the "
             "text: it has the same bytes at any number of ranks, and under mpirun it is made "
             "faster.\n"
             "Invalid UTF-8 is kept byte for byte and counted in text and lines; in jsonl it is an "
             "error. An empty file (text) and an empty \"text\" (jsonl) are documents without a "
             "token of text. Fields of jsonl and squad that nobody asks for are not read, whatever "
             "they hold.\n"
             "Names of special tokens are text, as for tiktoken's encode_ordinary; with --special "
             "they are the tokens, as for Hugging Face's library: for texts in the form of a chat "
             "template, say, of which nobody else wrote a part.\n"
             "--format pairs and tsv make the documents of tasks: a document is a line, its texts "
             "one after another; files of pairs have as many lines and no empty one. The first "
             "field of a line of conll is the word, the last one its tag. A question of squad "
             "without the member \"answers\" is one whose answers are not known.\n"
             "--format hdf5 keeps ids and documents as they are: /tokens of any integer type "
             "(gzip, lzf, shuffle or zstd, or none), /doc_start [documents + 1], vocab_size, and "
             "where they are there eod_id, tokenizer_hash, doc_bytes, doc_words, doc_id and "
             "labels. A damaged file cannot harm the process that asks: another one reads it.\n"
             "Of megatron, llmc, nanogpt and datatrove ids are kept as they are, too, and "
             "documents "
             "are those of the index, or end with the end-of-document token (--eod, or the "
             "tokenizer's), in the next FILE where need be. Where the first token of all is that "
             "one, it precedes documents, as in llm.c: it is left out, and the last document gets "
             "one. Without a tokenizer --vocab-size is needed, but of llm.c's files of GPT-2. They "
             "are not compressed.\n"
             "--separator TEXT is taken as it stands (in bash $'\\n\\n' is an empty line). Nothing "
             "between two of them is not a document, and neither is white space after the last.\n"
             "With --out FOLDER/ each FILE becomes FOLDER/FILE.h5; jobs take them as "
             "'FOLDER/*.h5'. A command that was stopped or killed goes on where it was when it is "
             "given again: corpora that are there, and no older than their text, are done. Other "
             "options than before are refused.\n"
             "A LIST has an id a line. An id that several documents share stands for all of them.",
         .options = OPTIONS,
         .examples = "  bagpipe-data corpus --tokenizer t.json --out train.h5 train.txt.zst\n"
                     "  bagpipe-data corpus --tokenizer t.json --format lines --out a.h5 a.txt\n"
                     "  mpirun -n 4 bagpipe-data corpus --tokenizer t.json --format jsonl \\\n"
                     "      --label genre --out brown.h5 brown.jsonl\n"
                     "  bagpipe-data corpus --tokenizer t.json --format pairs \\\n"
                     "      --out de.h5 a.de a.en\n"
                     "  bagpipe-data corpus --tokenizer t.json --format tsv \\\n"
                     "      --fields a,b --label class --value score --out pairs.h5 pairs.tsv\n"
                     "  bagpipe-data corpus --format hdf5 --out train.h5 tokens-from-h5py.h5\n"
                     "  bagpipe-data corpus --format megatron --tokenizer t.json \\\n"
                     "      --out train.h5 data/my_text_document\n"
                     "  zcat part-*.gz | bagpipe-data corpus --tokenizer t.json --out all.h5 -\n",
         .statuses = STATUSES},
    .run = run};
