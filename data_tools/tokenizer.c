/* bagpipe-data tokenizer: trains a tokenizer on text, or converts one. */
#include "arguments.h"
#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/mesh.h"
#include "output.h"
#include "text/sentencepiece/sentencepiece.h"
#include "text/train/tokenizer_train.h"
#include "tools.h"

#include <argp.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Models of SentencePiece, and such a one of Marian. */
#define PIECES        ".model"
#define MARIAN_PIECES ".spm"

typedef struct tokenizer_arguments {
    const char *kind, *format, *text_field, *separator, *out, *vocab, *merges, *ids, *from;
    int64_t size; /* 0: not given */
    int64_t min_count;
    int64_t sentinels;
    bool cased;
    char **specials; /* names within `special` */
    int special_count;
    const char *special;
    char **files;
    int file_count;
    bp_err err;
} tokenizer_arguments;

enum {
    KEY_FORMAT = 256,
    KEY_TEXT_FIELD,
    KEY_SEPARATOR,
    KEY_VOCAB,
    KEY_MERGES,
    KEY_IDS,
    KEY_FROM,
    KEY_CASED,
    KEY_SENTINELS,
    KEY_MIN_COUNT,
    KEY_SPECIAL
};

static const struct argp_option OPTIONS[] = {
    {"out", 'o', "FILE", 0, "the tokenizer.json to write (required)", 0},
    {NULL, 0, NULL, 0, "Training:", 1},
    {"kind", 'k', "bpe|wordpiece|unigram|word|char", 0,
     "bpe, byte-level BPE with GPT-2's pattern, which spells any text (the default); wordpiece, "
     "BERT's pieces of words; unigram, SentencePiece's pieces of words, after NFKC; word, words "
     "between white space; char, code points",
     1},
    {"size", 's', "N", 0,
     "tokens of the vocabulary, special tokens included (bpe: at least 257); word and char have "
     "all without it",
     1},
    {"min-count", KEY_MIN_COUNT, "N", 0,
     "word, char: leave out what occurs less (default 1); wordpiece: do not join pieces that occur "
     "less side by side (default 2)",
     1},
    {"cased", KEY_CASED, NULL, 0,
     "wordpiece: keep case and accents; also with a vocab.txt, whose model keeps them", 1},
    {"special", KEY_SPECIAL, "A,B", 0,
     "more special tokens: the ids before <|endoftext|>, before the sentinels of unigram, or "
     "(wordpiece) the last ones",
     1},
    {"sentinels", KEY_SENTINELS, "N", 0,
     "unigram: the last N tokens are <extra_id_N-1> to <extra_id_0> (default 0)", 1},
    {"format", KEY_FORMAT, "text|lines|jsonl|warc", 0,
     "what a FILE holds: text, one document (the default); lines, a document a line; jsonl, a JSON "
     "object with \"text\" a line; warc, texts of web pages (type conversion)",
     1},
    {"text-field", KEY_TEXT_FIELD, "NAME", 0,
     "with jsonl: the field that holds the text (default text)", 1},
    {"separator", KEY_SEPARATOR, "TEXT", 0,
     "with text: a document ends with TEXT, which is not learned, and another one begins", 1},
    {NULL, 0, NULL, 0, "Conversion:", 2},
    {"vocab", KEY_VOCAB, "FILE", 0,
     "vocab.json of a byte-level BPE such as GPT-2's; or, without --merges, a BERT's vocab.txt, or "
     "a model of SentencePiece (a name that ends in .model or .spm)",
     2},
    {"merges", KEY_MERGES, "FILE", 0, "its merges.txt", 2},
    {"ids", KEY_IDS, "FILE", 0,
     "of Marian's source.spm or target.spm: vocab.json, which has the ids of both", 2},
    {"from", KEY_FROM, "FILE", 0, "a tokenizer.json to check and to write again", 2},
    {0}};

static const bp_help_row STATUSES[] = {{"0", "done"},
                                       {"64", "wrong command line"},
                                       {"65", "wrong content of a file"},
                                       {"66", "a file is missing"},
                                       {"73, 74, 77", "the output cannot be written"},
                                       {"75", "stopped by a signal; nothing is kept"},
                                       {0}};

static bp_err parse_size(const char *text, const char *option, int64_t least, int64_t *size)
{
    char *end;

    errno = 0;
    *size = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != 0 || *size < least)
        return BP_FAIL(BP_ERR_USAGE, "command.bad_number",
                       "'%s' is not a number of tokens: at --%s", text, option);
    return BP_OK;
}

static error_t parse_option(int key, char *value, struct argp_state *state)
{
    tokenizer_arguments *arguments = state->input;

    switch (key) {
    case 'k':
        arguments->kind = value;
        return 0;
    case 's':
        if (arguments->err == BP_OK)
            arguments->err = parse_size(value, "size", 1, &arguments->size);
        return 0;
    case KEY_SENTINELS:
        if (arguments->err == BP_OK)
            arguments->err = parse_size(value, "sentinels", 0, &arguments->sentinels);
        return 0;
    case KEY_MIN_COUNT:
        if (arguments->err == BP_OK)
            arguments->err = parse_size(value, "min-count", 1, &arguments->min_count);
        return 0;
    case 'o':
        arguments->out = value;
        return 0;
    case KEY_FORMAT:
        arguments->format = value;
        return 0;
    case KEY_TEXT_FIELD:
        arguments->text_field = value;
        return 0;
    case KEY_SEPARATOR:
        arguments->separator = value;
        return 0;
    case KEY_VOCAB:
        arguments->vocab = value;
        return 0;
    case KEY_MERGES:
        arguments->merges = value;
        return 0;
    case KEY_IDS:
        arguments->ids = value;
        return 0;
    case KEY_FROM:
        arguments->from = value;
        return 0;
    case KEY_CASED:
        arguments->cased = true;
        return 0;
    case KEY_SPECIAL:
        arguments->special = value;
        return 0;
    case ARGP_KEY_ARGS:
        arguments->files = state->argv + state->next;
        arguments->file_count = state->argc - state->next;
        return 0;
    case ARGP_KEY_ERROR:
        if (arguments->err == BP_OK)
            arguments->err = tool_refuse(&bp_tool_tokenizer, state->argv[state->next - 1]);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp ARGP = {OPTIONS, parse_option, NULL, NULL, NULL, NULL, NULL};

/* ---- the command line as a whole ---- */

static bp_err check_kind(const tokenizer_arguments *arguments)
{
    static const char *const kinds[] = {"bpe", "wordpiece", "unigram", "word", "char"};

    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        if (strcmp(arguments->kind, kinds[k]) == 0)
            return BP_OK;
    return BP_FAIL(BP_ERR_USAGE, "tokenizer.unknown_kind",
                   "there is no kind of tokenizer '%s': at --kind; choose bpe, wordpiece, unigram, "
                   "word or char",
                   arguments->kind);
}

/* Vocabularies of what the text has, by its counts. */
static bool is_counted(const tokenizer_arguments *arguments)
{
    return strcmp(arguments->kind, "word") == 0 || strcmp(arguments->kind, "char") == 0;
}

static bool is_wordpiece(const tokenizer_arguments *arguments)
{
    return strcmp(arguments->kind, "wordpiece") == 0;
}

/* "A,B" to names. */
static bp_err split_specials(tokenizer_arguments *arguments)
{
    char *rest = arguments->special ? bp_strdup(arguments->special) : NULL, *name;

    if (!rest)
        return BP_OK;
    arguments->specials = bp_alloc("tool.specials", (int64_t)strlen(rest) + 1, sizeof(char *));
    while ((name = strsep(&rest, ","))) {
        json_t *text = json_string(name); /* NULL: no UTF-8 */

        arguments->specials[arguments->special_count++] = name;
        json_decref(text);
        if (name[0] == '\0' || !text)
            return BP_FAIL(BP_ERR_USAGE, "tokenizer.bad_special",
                           "a name is empty or no UTF-8: at --special; give names with a comma "
                           "between");
        for (int k = 0; k < arguments->special_count - 1; k++)
            if (strcmp(arguments->specials[k], name) == 0)
                return BP_FAIL(BP_ERR_USAGE, "tokenizer.bad_special",
                               "the name %s is there twice: at --special; leave one out", name);
    }
    return BP_OK;
}

static bp_err check_output(const tokenizer_arguments *arguments)
{
    bp_err err = bp_output_is_not(arguments->out, arguments->vocab);

    if (err == BP_OK)
        err = bp_output_is_not(arguments->out, arguments->merges);
    if (err == BP_OK)
        err = bp_output_is_not(arguments->out, arguments->ids);
    for (int k = 0; k < arguments->file_count && err == BP_OK; k++)
        err = bp_output_is_not(arguments->out, arguments->files[k]);
    return err; /* --from may be written anew in place: it is the same tokenizer */
}

static bp_err check_arguments(const tokenizer_arguments *arguments)
{
    bool pair = arguments->vocab || arguments->merges;
    bool converts = pair || arguments->from;
    bp_err err = arguments->err != BP_OK ? arguments->err : check_kind(arguments);

    if (err != BP_OK)
        return err;
    if (!arguments->out)
        return BP_FAIL(BP_ERR_USAGE, "command.no_output",
                       "there is no output: at --out; name the file to write");
    if (arguments->sentinels > 0 && strcmp(arguments->kind, "unigram") != 0)
        return BP_FAIL(BP_ERR_USAGE, "tokenizer.no_sentinels",
                       "a %s vocabulary has no sentinels: at --sentinels; use --kind "
                       "unigram",
                       arguments->kind);
    if (arguments->sentinels > BP_TRAINER_SENTINELS)
        return BP_FAIL(BP_ERR_USAGE, "tokenizer.too_many_sentinels",
                       "%lld sentinels: at --sentinels; %d are possible",
                       (long long)arguments->sentinels, BP_TRAINER_SENTINELS);
    if (arguments->ids && (!arguments->vocab || arguments->merges))
        return BP_FAIL(BP_ERR_USAGE, "command.bad_ids",
                       "--ids is for a model of SentencePiece: at the command line; give --vocab "
                       "source.spm or target.spm");
    if (pair && !arguments->vocab)
        return BP_FAIL(BP_ERR_USAGE, "command.no_vocabulary",
                       "--merges has no vocabulary: at the command line; give --vocab");
    if (arguments->cased &&
        (converts ? !arguments->vocab || arguments->merges : !is_wordpiece(arguments)))
        return BP_FAIL(BP_ERR_USAGE, "command.bad_cased",
                       "--cased is for --kind wordpiece and a BERT's vocab.txt: at the command "
                       "line; leave it out");
    if (converts && arguments->special)
        return BP_FAIL(BP_ERR_USAGE, "command.exclusive",
                       "a tokenizer that is converted keeps its tokens: at --special; leave it "
                       "out");
    if (pair && arguments->from)
        return BP_FAIL(BP_ERR_USAGE, "command.exclusive",
                       "--from and --vocab exclude each other: at the command line; choose one");
    if (converts && (arguments->size != 0 || arguments->file_count > 0))
        return BP_FAIL(BP_ERR_USAGE, "command.exclusive",
                       "a tokenizer is either converted or trained: at the command "
                       "line; leave out --size and FILEs, or --vocab, --merges and "
                       "--from");
    if (!converts && arguments->file_count == 0)
        return BP_FAIL(BP_ERR_USAGE, "command.no_input",
                       "there is no text to train on: at the command line; name one "
                       "or more files");
    if (arguments->min_count > 0 &&
        (converts || !(is_counted(arguments) || is_wordpiece(arguments))))
        return BP_FAIL(BP_ERR_USAGE, "tokenizer.no_min_count",
                       "a %s vocabulary has no choice of what is rare: at --min-count; use --kind "
                       "wordpiece, word or char",
                       converts ? "converted" : arguments->kind);
    if (!converts && arguments->size == 0 && !is_counted(arguments))
        return BP_FAIL(
            BP_ERR_USAGE, "command.no_size",
            "the size of the vocabulary is missing: at --size; give the number of tokens");
    if (arguments->text_field && strcmp(arguments->format, "jsonl") != 0)
        return BP_FAIL(BP_ERR_USAGE, "command.needs_jsonl",
                       "field '%s' needs objects: at --text-field; use --format jsonl",
                       arguments->text_field);
    tool_warn_of_escapes(arguments->separator);
    if (arguments->separator &&
        (converts || strcmp(arguments->format, "text") != 0 || arguments->separator[0] == '\0'))
        return BP_FAIL(BP_ERR_USAGE, "command.no_separator",
                       "it is what ends a document of --format text: at --separator; give such a "
                       "text, or leave it out");
    err = bp_stdin_check(arguments->files, arguments->file_count);
    return err == BP_OK ? check_output(arguments) : err;
}

static bool ends_in(const char *name, const char *end)
{
    size_t bytes = strlen(name), last = strlen(end);

    return bytes > last && strcmp(name + bytes - last, end) == 0;
}

/* An output that can't be made is said before the work, not after it. */
static bp_err check_folder(const char *path)
{
    size_t bytes = (size_t)(bp_path_base(path) - path);
    char *folder = bytes == 0 ? bp_strdup(".") : bp_sprintf("%.*s", (int)bytes, path);
    bp_err err = BP_OK;

    if (access(folder, W_OK | X_OK) != 0)
        err = bp_fail_create("can't create a file", path);
    bp_free(folder);
    return err;
}

/* ---- the work ---- */

static void print_summary(const tokenizer_arguments *arguments, const bp_tokenizer *tokenizer)
{
    char roles[256];
    int used = 0;

    for (int role = 0; role < BP_ROLES; role++)
        if (bp_tokenizer_role(tokenizer, role) >= 0)
            used += snprintf(roles + used, sizeof roles - (size_t)used, ", %s %lld",
                             bp_role_name(role), (long long)bp_tokenizer_role(tokenizer, role));
    bp_log("%s: %s, %lld tokens%s, sha256 %.16s...", arguments->out, bp_tokenizer_kind(tokenizer),
           (long long)bp_tokenizer_size(tokenizer), used == 0 ? "" : roles,
           bp_tokenizer_hash(tokenizer));
}

/* Only a vocabulary is a vocab.txt; a vocab.json says how pieces are merged elsewhere. */
static bp_err load_vocabulary(bp_tokenizer **out, const tokenizer_arguments *arguments)
{
    char first = '\0';
    int64_t lost;
    int fd;

    if (arguments->ids) {
        bp_err marian = bp_sentencepiece_marian(out, arguments->vocab, arguments->ids, &lost);

        if (marian == BP_OK && lost > 0)
            BP_WARN("import.lost_pieces", "%lld pieces of %s have no id: in %s", (long long)lost,
                    arguments->vocab, arguments->ids);
        return marian;
    }
    if (ends_in(arguments->vocab, PIECES) || ends_in(arguments->vocab, MARIAN_PIECES))
        return bp_sentencepiece_tokenizer(out, arguments->vocab, &(bp_sentencepiece_class){0});
    bp_err err = bp_file_open(arguments->vocab, &fd, NULL);
    if (err != BP_OK)
        return err;
    (void)bp_pread_all(fd, &first, 1, 0); /* an empty file has none */
    (void)close(fd);
    if (first == '{')
        return BP_FAIL(BP_ERR_USAGE, "command.no_merges",
                       "a vocab.json needs its merges.txt: at %s; give --merges, or a vocab.txt",
                       arguments->vocab);
    return bp_tokenizer_load_bert(out, arguments->vocab, !arguments->cased);
}

static bp_err convert(const tokenizer_arguments *arguments)
{
    bp_tokenizer *tokenizer = NULL;
    bp_err err;

    if (arguments->from)
        err = bp_tokenizer_load(&tokenizer, arguments->from);
    else if (arguments->merges)
        err = bp_tokenizer_load_gpt2(&tokenizer, arguments->vocab, arguments->merges);
    else
        err = load_vocabulary(&tokenizer, arguments);
    if (err == BP_OK)
        err = bp_tokenizer_save(tokenizer, arguments->out);
    if (err == BP_OK && arguments->from)
        tool_warn_of_roles(tokenizer, arguments->from);
    if (err == BP_OK)
        print_summary(arguments, tokenizer);
    bp_tokenizer_free(&tokenizer);
    return err;
}

static void report_training(const tokenizer_arguments *arguments, const bp_tokenizer *tokenizer,
                            const bp_trainer_report *report)
{
    if (report->size < arguments->size)
        BP_WARN("tokenizer.too_few_tokens",
                "the text gives %lld tokens, fewer than the %lld asked for",
                (long long)report->size, (long long)arguments->size);
    bp_log("read %.1f MB of text in %lld documents, %lld empty lines skipped: %lld different %s in "
           "%.1f s",
           1e-6 * (double)report->text_bytes, (long long)report->documents,
           (long long)report->skipped_lines, (long long)report->words,
           strcmp(arguments->kind, "char") == 0  ? "characters"
           : strcmp(arguments->kind, "bpe") == 0 ? "pieces"
                                                 : "words",
           report->count_seconds);
    bp_log("built %lld tokens with %lld merges in %.1f s", (long long)report->size,
           (long long)report->merges, report->build_seconds);
    print_summary(arguments, tokenizer);
}

static bp_err train(const tokenizer_arguments *arguments)
{
    bp_trainer_options options = {.kind = arguments->kind,
                                  .size = arguments->size,
                                  .min_count = arguments->min_count,
                                  .sentinels = arguments->sentinels,
                                  .cased = arguments->cased,
                                  .specials = (const char *const *)arguments->specials,
                                  .special_count = arguments->special_count,
                                  .text_field = arguments->text_field,
                                  .separator = arguments->separator,
                                  .progress = true};
    bp_trainer_report report;
    bp_tokenizer *tokenizer = NULL;
    bp_err err = bp_text_format_of(&options.format, arguments->format, false);

    if (err == BP_OK)
        err = bp_tokenizer_train(&tokenizer, MPI_COMM_WORLD, (const char *const *)arguments->files,
                                 arguments->file_count, &options, &report);
    if (err == BP_OK) {
        if (bp_comm_is_root(MPI_COMM_WORLD))
            err = bp_tokenizer_save(tokenizer, arguments->out);
        err = bp_agree(MPI_COMM_WORLD, err);
    }
    if (err == BP_OK)
        report_training(arguments, tokenizer, &report);
    bp_tokenizer_free(&tokenizer);
    return err;
}

static bp_err run(int argc, char **argv)
{
    tokenizer_arguments arguments = {.kind = "bpe", .format = "text"};
    unsigned flags = ARGP_NO_EXIT | ARGP_NO_ERRS | ARGP_NO_HELP;
    bool root = bp_comm_is_root(MPI_COMM_WORLD);
    bp_err err;

    if (argp_parse(&ARGP, argc, argv, flags, NULL, &arguments) != 0 && arguments.err == BP_OK)
        arguments.err = BP_FAIL(BP_ERR_USAGE, "command.not_understood",
                                "the command line is not understood; see "
                                "bagpipe-data tokenizer --help");
    err = check_arguments(&arguments);
    if (err == BP_OK)
        err = split_specials(&arguments);
    if (err == BP_OK && root)
        err = check_folder(arguments.out);
    err = bp_agree(MPI_COMM_WORLD, err);
    if (err == BP_OK && !arguments.vocab && !arguments.from)
        err = train(&arguments);
    else if (err == BP_OK)
        err = bp_agree(MPI_COMM_WORLD, root ? convert(&arguments) : BP_OK);
    if (arguments.specials)
        bp_free(arguments.specials[0]); /* all names are in the text of the first */
    bp_free(arguments.specials);
    return err;
}

const bp_tool bp_tool_tokenizer = {
    .name = "tokenizer",
    .help =
        {.name = "bagpipe-data tokenizer",
         .usage = "--size N --out tokenizer.json [OPTION...] FILE...\n"
                  "--kind word --out tokenizer.json FILE...\n"
                  "--vocab FILE --merges FILE --out tokenizer.json\n"
                  "--vocab vocab.txt [--cased] --out tokenizer.json\n"
                  "--vocab spiece.model --out tokenizer.json\n"
                  "--from FILE --out tokenizer.json",
         .summary = "trains a tokenizer on text, or converts one",
         .text =
             "It writes tokenizer.json in the Hugging Face form. A FILE may be compressed with "
             "gzip or zstd. The FILE - is standard input, which is read once; it reaches only one "
             "rank, so with several ranks it is refused. The result depends only on the text: it "
             "has the same bytes at any number of ranks, and under mpirun the text is read "
             "faster.\n"
             "<|endoftext|> is the last id. In vocabularies of words and characters <unk> is id 0; "
             "in unigram ones <pad>, </s> and <unk> are ids 0 to 2, and </s> ends a document; in "
             "wordpiece ones [PAD], [UNK], [CLS], [SEP] and [MASK] are ids 0 to 4, [SEP] ends a "
             "document, and text is in lower case without accents unless --cased is given. If the "
             "text has fewer words than N, or (bpe, wordpiece) no more pairs that occur twice, the "
             "vocabulary is smaller than N, and a warning says so.",
         .options = OPTIONS,
         .examples = "  bagpipe-data tokenizer --size 8000 --out tokenizer.json train.txt.zst\n"
                     "  mpirun -n 4 bagpipe-data tokenizer --kind word --size 30000 \\\n"
                     "      --format lines --out words.json train.txt\n"
                     "  zcat part-*.gz | bagpipe-data tokenizer --size 8000 --out t.json -\n"
                     "  bagpipe-data tokenizer --vocab v.json --merges m.txt --out gpt2.json\n",
         .statuses = STATUSES},
    .run = run};
