/* bagpipe-data corpus: text, or another program's HDF5 file of tokens, to a compressed corpus. */
#include "arguments.h"
#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "file_tool.h"
#include "io/corpus/corpus_build.h"
#include "io/corpus/corpus_convert.h"
#include "mesh/mesh.h"
#include "output.h"
#include "text/tokenizer/tokenizer.h"
#include "tools.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct corpus_arguments {
    const char *tokenizer, *out, *format, *text_field, *field_list, *sentences;
    const char *fields[2]; /* [field_count] of field_list */
    int field_count;
    bool no_tags, specials, bos;
    const char *skip_bad;
    int64_t skip_count; /* of skip_bad; -1: so many percent */
    double skip_percent;
    char *skip_list; /* OUT.skipped.jsonl */
    tool_texts labels, values;
    tool_files files;
} corpus_arguments;

enum {
    KEY_FORMAT = 256,
    KEY_TEXT_FIELD,
    KEY_FIELDS,
    KEY_VALUE,
    KEY_NO_TAGS,
    KEY_SENTENCES,
    KEY_BOS,
    KEY_SKIP_BAD,
    KEY_SPECIAL
};

static const struct argp_option OPTIONS[] = {
    {"tokenizer", 't', "FILE", 0, "the tokenizer.json (required for text)", 1},
    {"out", 'o', "FILE", 0, "the corpus to write (required)", 1},
    {"format", KEY_FORMAT, "text|lines|jsonl|tsv|pairs|conll|squad|hdf5", 0,
     "what a FILE holds: text, one document (the default); lines, a document a line (empty lines "
     "are skipped, lines of white space not; both are counted); jsonl, a JSON object a line, with "
     "\"text\" and perhaps \"id\"; tsv, "
     "fields with tabs between them, whose names are in the first line; pairs, two FILEs with a "
     "source and its target a line; conll, a word and its tag a line, documents parted by empty "
     "lines; squad, SQuAD's JSON: questions, their contexts and answers; hdf5, the tokens of a "
     "corpus that another program wrote: /tokens, /doc_start and the attribute vocab_size",
     1},
    {"text-field", KEY_TEXT_FIELD, "NAME", 0,
     "with jsonl: the field that holds the text (default text)", 1},
    {"fields", KEY_FIELDS, "A[,B]", 0, "with tsv: the column of the text, or of two texts", 1},
    {"label", 'l', "NAME", 0,
     "with jsonl and tsv: keep this field, a string, number or boolean, as a label of the "
     "document; "
     "an object without it has the label \"\". May be given several times",
     1},
    {"value", KEY_VALUE, "NAME", 0,
     "with jsonl and tsv: keep this field, a number, as a value of the document (for regression). "
     "May be given several times",
     1},
    {"no-tags", KEY_NO_TAGS, NULL, 0,
     "with conll: the first field of a line is a word, whose tag is not known (to be tagged by a "
     "model)",
     1},
    {"sentences", KEY_SENTENCES, "none|lines|punctuation", 0,
     "with text, lines and jsonl: keep where sentences begin: at each line, or after full stops "
     "(default none)",
     1},
    {"bos", KEY_BOS, NULL, 0,
     "with text, lines and jsonl: each document begins with the tokenizer's beginning-of-text "
     "token, which training then feeds",
     1},
    {"skip-bad", KEY_SKIP_BAD, "N|P%", 0,
     "leave out documents whose content is wrong (a line, a sentence of conll, a question of "
     "squad), "
     "at most N, or P of a hundred, and list them in FILE.h5.skipped.jsonl",
     1},
    {"special", KEY_SPECIAL, NULL, 0,
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

static bool converts(const corpus_arguments *arguments)
{
    return strcmp(arguments->format, "hdf5") == 0;
}

static bool is_format(const corpus_arguments *arguments, const char *name)
{
    return strcmp(arguments->format, name) == 0;
}

/* NAME or NAME,NAME to arguments->fields. */
static bp_err take_fields(corpus_arguments *arguments, char **copy)
{
    char *comma;

    if (!arguments->field_list)
        return BP_OK;
    arguments->fields[arguments->field_count++] = *copy = bp_strdup(arguments->field_list);
    comma = strchr(*copy, ',');
    if (comma) {
        *comma = '\0';
        arguments->fields[arguments->field_count++] = comma + 1;
    }
    for (int k = 0; k < arguments->field_count; k++)
        if (arguments->fields[k][0] == '\0' || strchr(arguments->fields[k], ','))
            return BP_FAIL(BP_ERR_USAGE, "command.bad_fields",
                           "'%s' names no one or two columns: at --fields; give A or A,B",
                           arguments->field_list);
    return BP_OK;
}

/* N or P% */
static bp_err take_skip(corpus_arguments *arguments)
{
    const char *text = arguments->skip_bad;
    char *end;

    if (!text)
        return BP_OK;
    errno = 0;
    arguments->skip_count = strtoll(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0)
        return BP_OK;
    arguments->skip_count = -1;
    arguments->skip_percent = strtod(text, &end);
    if (text[0] >= '0' && text[0] <= '9' && strcmp(end, "%") == 0 &&
        strspn(text, "0123456789.") + 1 == strlen(text) && arguments->skip_percent <= 100)
        return BP_OK;
    return BP_FAIL(BP_ERR_USAGE, "command.bad_skip",
                   "'%s' is neither a number of documents nor a percentage up to 100%%: at "
                   "--skip-bad; give 100 or 0.1%%",
                   text);
}

/* Options that go only with some formats. */
static bp_err check_format(const corpus_arguments *arguments)
{
    bool is_tsv = is_format(arguments, "tsv"), has_fields = is_tsv || is_format(arguments, "jsonl");
    bool is_pairs = is_format(arguments, "pairs");

    if (arguments->skip_bad && converts(arguments))
        return BP_FAIL(
            BP_ERR_USAGE, "command.no_skip",
            "--format hdf5 is converted whole or not at all: at --skip-bad; leave it out");
    if (arguments->labels.count > 0 && !has_fields)
        return BP_FAIL(BP_ERR_USAGE, "command.needs_jsonl",
                       "label '%s' needs objects or columns: at --label; use --format jsonl or tsv",
                       arguments->labels.list[0]);
    if (arguments->values.count > 0 && !has_fields)
        return BP_FAIL(BP_ERR_USAGE, "command.needs_jsonl",
                       "value '%s' needs objects or columns: at --value; use --format jsonl or tsv",
                       arguments->values.list[0]);
    if (arguments->text_field && !is_format(arguments, "jsonl"))
        return BP_FAIL(BP_ERR_USAGE, "command.needs_jsonl",
                       "field '%s' needs objects: at --text-field; use --format jsonl",
                       arguments->text_field);
    if (is_tsv != (arguments->field_list != NULL))
        return BP_FAIL(BP_ERR_USAGE, "command.needs_fields",
                       "%s: at --fields; --format tsv and --fields go together",
                       is_tsv ? "no column is named" : "there are no columns");
    if (arguments->no_tags && !is_format(arguments, "conll"))
        return BP_FAIL(BP_ERR_USAGE, "command.needs_conll",
                       "--format %s has no tags: at --no-tags; leave it out, or use conll",
                       arguments->format);
    if (arguments->specials && is_format(arguments, "hdf5"))
        return BP_FAIL(BP_ERR_USAGE, "command.no_text",
                       "--format hdf5 has no text: at --special; leave it out");
    if (is_pairs && arguments->files.count != 2)
        return BP_FAIL(
            BP_ERR_USAGE, "command.needs_two",
            "there are %d files: at the command line; --format pairs takes SOURCE TARGET",
            arguments->files.count);
    if (arguments->sentences && (is_tsv || is_pairs || is_format(arguments, "conll") ||
                                 is_format(arguments, "squad") || is_format(arguments, "hdf5")))
        return BP_FAIL(BP_ERR_USAGE, "command.no_sentences",
                       "--format %s has no sentences: at --sentences; use text, lines or jsonl",
                       arguments->format);
    if (arguments->bos &&
        (arguments->sentences || !(is_format(arguments, "text") || is_format(arguments, "lines") ||
                                   is_format(arguments, "jsonl"))))
        return BP_FAIL(BP_ERR_USAGE, "command.no_bos",
                       "documents of %s do not begin with a token of their own: at --bos; use "
                       "--format text, lines or jsonl, without --sentences",
                       arguments->sentences ? "sentences" : arguments->format);
    return BP_OK;
}

static bp_err check_arguments(const corpus_arguments *arguments)
{
    if (!arguments->tokenizer && !converts(arguments))
        return BP_FAIL(BP_ERR_USAGE, "command.no_tokenizer",
                       "there is no tokenizer: at --tokenizer; name a tokenizer.json");
    if (!arguments->out)
        return BP_FAIL(BP_ERR_USAGE, "command.no_output",
                       "there is no output: at --out; name the file to write");
    if (arguments->files.count == 0)
        return BP_FAIL(BP_ERR_USAGE, "command.no_input",
                       "there is no text: at the command line; name one or more files");
    if (converts(arguments) && arguments->files.count != 1)
        return BP_FAIL(BP_ERR_USAGE, "command.too_many_names",
                       "--format hdf5 converts one FILE, not %d: at the command line; call it once "
                       "for each file",
                       arguments->files.count);
    bp_err err = check_format(arguments);
    if (err == BP_OK)
        err = bp_stdin_check(arguments->files.list, arguments->files.count);
    if (err == BP_OK)
        err = bp_output_is_not(arguments->out, arguments->tokenizer);
    for (int k = 0; k < arguments->files.count && err == BP_OK; k++) {
        err = bp_output_is_not(arguments->out, arguments->files.list[k]);
        if (err == BP_OK)
            err = bp_output_is_not(arguments->skip_list, arguments->files.list[k]);
    }
    return err;
}

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
        bp_log("%" PRId64 " empty lines were skipped", built->skipped_lines);
    if (built->white_documents > 0)
        bp_log("%" PRId64 " of %" PRId64 " documents are only white space, and count as documents",
               built->white_documents, built->documents);
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

static bp_err build(const corpus_arguments *arguments)
{
    bp_corpus_build spec = {.paths = (const char *const *)arguments->files.list,
                            .path_count = arguments->files.count,
                            .format_name = arguments->format,
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
                            .tool = "bagpipe-data corpus " BAGPIPE_VERSION,
                            .out = arguments->out};
    bp_tokenizer *tokenizer = NULL;
    bp_corpus_built built;
    double start = bp_clock_now();
    bp_err err = bp_text_format_of(&spec.format, arguments->format, true);

    if (err == BP_OK && arguments->sentences)
        err = bp_sentences_of(&spec.sentences, arguments->sentences);
    if (err == BP_OK)
        err = load_tokenizer(&tokenizer, arguments);
    err = bp_agree(MPI_COMM_WORLD, err);
    if (err == BP_OK) {
        spec.tokenizer = tokenizer;
        err = bp_corpus_build_file(MPI_COMM_WORLD, &spec, &built);
    }
    if (err == BP_OK)
        report(arguments, tokenizer, &built, bp_clock_now() - start);
    bp_tokenizer_free(&tokenizer);
    return err;
}

/* Only on the root: one process reads one file. */
static bp_err convert(const corpus_arguments *arguments)
{
    bp_corpus_conversion conversion = {.source = arguments->files.list[0],
                                       .out = arguments->out,
                                       .tool = "bagpipe-data corpus " BAGPIPE_VERSION};
    bp_corpus_converted converted;
    bp_tokenizer *tokenizer = NULL;
    char *text = NULL;
    bp_err err = BP_OK;

    if (arguments->tokenizer)
        err = bp_tokenizer_load(&tokenizer, arguments->tokenizer);
    if (tokenizer) {
        conversion.tokenizer = text = bp_tokenizer_text(tokenizer);
        conversion.tokenizer_hash = bp_tokenizer_hash(tokenizer);
        conversion.tokenizer_size = bp_tokenizer_size(tokenizer);
    }
    if (err == BP_OK)
        err = bp_corpus_convert(&conversion, &converted);
    if (err == BP_OK && converted.left_out[0])
        BP_WARN(
            "corpus.left_out",
            "columns of tasks are left out, %s: at %s; a conversion carries tokens, documents and "
            "labels over: make a corpus of a task from its text",
            converted.left_out, conversion.source);
    if (err == BP_OK && converted.open_ends > 0)
        BP_WARN("corpus.open_ends",
                "%" PRId64 " of %" PRId64 " documents do not end with the end-of-document token: "
                "they were kept as they are",
                converted.open_ends, converted.documents);
    if (err == BP_OK)
        bp_log("%s: %" PRId64 " documents, %" PRId64 " tokens", arguments->out, converted.documents,
               converted.tokens);
    bp_free(text);
    bp_tokenizer_free(&tokenizer);
    return err;
}

static const char DEFAULT_FORMAT[] = "text";

/* A file of records that nobody called one becomes a single document, braces and all. */
static void warn_of_format(const corpus_arguments *arguments)
{
    static const char *const KINDS[][2] = {
        {".jsonl", "jsonl"}, {".tsv", "tsv"}, {".conll", "conll"}};

    for (int k = 0; k < arguments->files.count && arguments->format == DEFAULT_FORMAT; k++)
        for (size_t i = 0; i < sizeof KINDS / sizeof KINDS[0]; i++)
            if (strstr(bp_path_base(arguments->files.list[k]), KINDS[i][0]))
                BP_WARN("corpus.no_format",
                        "without --format the whole file is one document of text: at %s; give "
                        "--format %s, or --format text if that is meant",
                        shown_path(arguments->files.list[k]), KINDS[i][1]);
}

static bp_err run(int argc, char **argv)
{
    corpus_arguments arguments = {.format = DEFAULT_FORMAT};
    const tool_value values[] = {{.key = 't', .text = &arguments.tokenizer},
                                 {.key = 'o', .text = &arguments.out},
                                 {.key = KEY_FORMAT, .text = &arguments.format},
                                 {.key = KEY_TEXT_FIELD, .text = &arguments.text_field},
                                 {.key = KEY_FIELDS, .text = &arguments.field_list},
                                 {.key = 'l', .texts = &arguments.labels},
                                 {.key = KEY_VALUE, .texts = &arguments.values},
                                 {.key = KEY_NO_TAGS, .flag = &arguments.no_tags},
                                 {.key = KEY_SENTENCES, .text = &arguments.sentences},
                                 {.key = KEY_BOS, .flag = &arguments.bos},
                                 {.key = KEY_SKIP_BAD, .text = &arguments.skip_bad},
                                 {.key = KEY_SPECIAL, .flag = &arguments.specials},
                                 {0}};
    char *fields = NULL;
    bp_err err = tool_parse(&bp_tool_corpus, values, &arguments.files, argc, argv);

    if (err == BP_OK)
        err = take_fields(&arguments, &fields);
    if (err == BP_OK)
        err = take_skip(&arguments);
    if (err == BP_OK && arguments.out)
        arguments.skip_list = bp_sprintf("%s.skipped.jsonl", arguments.out);
    err = bp_agree(MPI_COMM_WORLD, err == BP_OK ? check_arguments(&arguments) : err);
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        warn_of_format(&arguments);
    if (err == BP_OK && converts(&arguments))
        err =
            bp_agree(MPI_COMM_WORLD, bp_comm_is_root(MPI_COMM_WORLD) ? convert(&arguments) : BP_OK);
    else if (err == BP_OK)
        err = build(&arguments);
    bp_free(arguments.labels.list);
    bp_free(arguments.values.list);
    bp_free(fields);
    bp_free(arguments.skip_list);
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
             "labels. A damaged file cannot harm the process that asks: another one reads it.",
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
                     "  zcat part-*.gz | bagpipe-data corpus --tokenizer t.json --out all.h5 -\n",
         .statuses = STATUSES},
    .run = run};
