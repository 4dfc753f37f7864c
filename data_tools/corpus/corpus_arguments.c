/* The command line of bagpipe-data corpus: what goes with what. */
#include "corpus_arguments.h"

#include "base/mem.h"
#include "io/corpus/token_files.h"
#include "output.h"
#include "text/documents/text_source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool corpus_is_foreign(const corpus_arguments *arguments)
{
    return strcmp(arguments->format, "hdf5") == 0 || bp_token_layout_is(arguments->format);
}

bool corpus_format_is(const corpus_arguments *arguments, const char *name)
{
    return strcmp(arguments->format, name) == 0;
}

char *corpus_input_path(const corpus_arguments *arguments, int file, int k)
{
    const char *given = arguments->files.list[file];

    if (bp_token_layout_is(arguments->format))
        return bp_token_layout_path(arguments->format, given, k);
    return k == 0 ? bp_strdup(given) : NULL;
}

/* NAME or NAME,NAME to arguments->fields. */
static bp_err take_fields(corpus_arguments *arguments)
{
    char *comma, **copy = &arguments->field_copy;

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

/* Options of text, of files that hold none. */
static bp_err check_foreign(const corpus_arguments *arguments)
{
    bool is_hdf5 = corpus_format_is(arguments, "hdf5");

    if (!corpus_is_foreign(arguments))
        return arguments->vocab_size == 0 && arguments->eod < 0 && arguments->token_bytes == 0
                   ? BP_OK
                   : BP_FAIL(BP_ERR_USAGE, "command.no_tokens",
                             "--format %s is encoded by the tokenizer: at --vocab-size, --eod or "
                             "--token-bytes; leave them out",
                             arguments->format);
    if (is_hdf5 && (arguments->vocab_size > 0 || arguments->eod >= 0))
        return BP_FAIL(BP_ERR_USAGE, "command.no_tokens",
                       "attributes of --format hdf5 say so: at --vocab-size or --eod; leave them "
                       "out");
    if (arguments->token_bytes > 0 &&
        (!corpus_format_is(arguments, "nanogpt") ||
         (arguments->token_bytes != 2 && arguments->token_bytes != 4)))
        return BP_FAIL(BP_ERR_USAGE, "command.bad_number",
                       "%lld bytes a token: at --token-bytes; give 2 or 4, of --format nanogpt",
                       (long long)arguments->token_bytes);
    if (arguments->tokenizer && arguments->vocab_size > 0)
        return BP_FAIL(BP_ERR_USAGE, "command.two_vocabularies",
                       "the tokenizer says it: at --vocab-size; give one of them");
    if (arguments->skip_bad)
        return BP_FAIL(BP_ERR_USAGE, "command.no_skip",
                       "--format %s is converted whole or not at all: at --skip-bad; leave it out",
                       arguments->format);
    if (arguments->only || arguments->without)
        return BP_FAIL(BP_ERR_USAGE, "command.no_list",
                       "--format %s is converted whole: at --only or --without; leave it out",
                       arguments->format);
    if (arguments->specials)
        return BP_FAIL(BP_ERR_USAGE, "command.no_text",
                       "--format %s has no text: at --special; leave it out", arguments->format);
    return BP_OK;
}

static bp_err check_separator(const corpus_arguments *arguments)
{
    tool_warn_of_escapes(arguments->separator);
    if (!arguments->separator || (corpus_format_is(arguments, "text") && arguments->separator[0]))
        return BP_OK;
    if (arguments->separator[0] == '\0')
        return BP_FAIL(BP_ERR_USAGE, "command.no_separator",
                       "there is no text: at --separator; give what ends a document");
    return BP_FAIL(BP_ERR_USAGE, "command.no_separator",
                   "documents of %s end as that format has it: at --separator; use --format text",
                   arguments->format);
}

/* Options that go only with some formats. */
static bp_err check_format(const corpus_arguments *arguments)
{
    bool is_tsv = corpus_format_is(arguments, "tsv"),
         has_fields = is_tsv || corpus_format_is(arguments, "jsonl");
    bool is_pairs = corpus_format_is(arguments, "pairs");

    if (corpus_format_is(arguments, "csv")) /* said first: its labels are columns */
        return bp_text_format_of(&(bp_text_format){0}, "csv", true);
    if (arguments->labels.count > 0 && !has_fields)
        return BP_FAIL(BP_ERR_USAGE, "command.needs_jsonl",
                       "label '%s' needs objects or columns: at --label; use --format jsonl or tsv",
                       arguments->labels.list[0]);
    if (arguments->values.count > 0 && !has_fields)
        return BP_FAIL(BP_ERR_USAGE, "command.needs_jsonl",
                       "value '%s' needs objects or columns: at --value; use --format jsonl or tsv",
                       arguments->values.list[0]);
    if (arguments->text_field && !corpus_format_is(arguments, "jsonl"))
        return BP_FAIL(BP_ERR_USAGE, "command.needs_jsonl",
                       "field '%s' needs objects: at --text-field; use --format jsonl",
                       arguments->text_field);
    if (is_tsv != (arguments->field_list != NULL))
        return BP_FAIL(BP_ERR_USAGE, "command.needs_fields",
                       "%s: at --fields; --format tsv and --fields go together",
                       is_tsv ? "no column is named" : "there are no columns");
    if (arguments->target_tokenizer && !is_pairs && arguments->field_count != 2)
        return BP_FAIL(BP_ERR_USAGE, "command.needs_two",
                       "documents of %s have no second text: at --target-tokenizer; use --format "
                       "pairs, or tsv with two fields",
                       arguments->format);
    if (arguments->no_tags && !corpus_format_is(arguments, "conll"))
        return BP_FAIL(BP_ERR_USAGE, "command.needs_conll",
                       "--format %s has no tags: at --no-tags; leave it out, or use conll",
                       arguments->format);
    if (is_pairs && arguments->files.count != 2)
        return BP_FAIL(
            BP_ERR_USAGE, "command.needs_two",
            "there are %d files: at the command line; --format pairs takes SOURCE TARGET",
            arguments->files.count);
    if (arguments->sentences &&
        (is_tsv || is_pairs || corpus_format_is(arguments, "conll") ||
         corpus_format_is(arguments, "squad") || corpus_is_foreign(arguments)))
        return BP_FAIL(BP_ERR_USAGE, "command.no_sentences",
                       "--format %s has no sentences: at --sentences; use text, lines or jsonl",
                       arguments->format);
    if (arguments->bos &&
        (arguments->sentences ||
         !(corpus_format_is(arguments, "text") || corpus_format_is(arguments, "lines") ||
           corpus_format_is(arguments, "warc") || corpus_format_is(arguments, "jsonl"))))
        return BP_FAIL(BP_ERR_USAGE, "command.no_bos",
                       "documents of %s do not begin with a token of their own: at --bos; use "
                       "--format text, lines or jsonl, without --sentences",
                       arguments->sentences ? "sentences" : arguments->format);
    return BP_OK;
}

/* The output is not one of the input's files. */
static bp_err check_input(const corpus_arguments *arguments, int file)
{
    char *path;
    bp_err err = BP_OK;

    for (int k = 0; err == BP_OK && (path = corpus_input_path(arguments, file, k)); k++) {
        err = bp_output_is_not(arguments->out, path);
        if (err == BP_OK)
            err = bp_output_is_not(arguments->skip_list, path);
        bp_free(path);
    }
    return err;
}

static bp_err check_arguments(const corpus_arguments *arguments)
{
    if (!arguments->tokenizer && !corpus_is_foreign(arguments))
        return BP_FAIL(BP_ERR_USAGE, "command.no_tokenizer",
                       "there is no tokenizer: at --tokenizer; name a tokenizer.json");
    if (!arguments->out)
        return BP_FAIL(BP_ERR_USAGE, "command.no_output",
                       "there is no output: at --out; name the file to write");
    if (arguments->files.count == 0)
        return BP_FAIL(BP_ERR_USAGE, "command.no_input",
                       "there is no text: at the command line; name one or more files");
    if (corpus_is_folder(arguments)) {
        bp_err folder = corpus_folder_check(arguments);
        if (folder != BP_OK)
            return folder;
    } else if (corpus_format_is(arguments, "hdf5") && arguments->files.count != 1)
        return BP_FAIL(BP_ERR_USAGE, "command.too_many_names",
                       "--format hdf5 converts one FILE, not %d: at the command line; call it once "
                       "for each file",
                       arguments->files.count);
    bp_err err = check_foreign(arguments);
    if (err == BP_OK)
        err = check_separator(arguments);
    if (err == BP_OK)
        err = check_format(arguments);
    if (err == BP_OK && arguments->only && arguments->without)
        err = BP_FAIL(BP_ERR_USAGE, "command.two_lists",
                      "both are given: at --only and --without; give one list");
    if (err == BP_OK)
        err = bp_output_is_not(arguments->out, arguments->only);
    if (err == BP_OK)
        err = bp_output_is_not(arguments->out, arguments->without);
    if (err == BP_OK)
        err = bp_stdin_check(arguments->files.list, arguments->files.count);
    char *list = (char *)(arguments->only ? arguments->only : arguments->without);
    if (err == BP_OK && list) /* each rank reads it */
        err = bp_stdin_check(&list, 1);
    if (err == BP_OK)
        err = bp_output_is_not(arguments->out, arguments->tokenizer);
    if (err == BP_OK)
        err = bp_output_is_not(arguments->out, arguments->target_tokenizer);
    for (int file = 0; file < arguments->files.count && err == BP_OK; file++)
        err = check_input(arguments, file);
    return err;
}

bp_err corpus_arguments_check(corpus_arguments *arguments)
{
    bp_err err = take_fields(arguments);

    if (err == BP_OK)
        err = take_skip(arguments);
    if (err == BP_OK && arguments->out)
        arguments->skip_list = bp_sprintf("%s.skipped.jsonl", arguments->out);
    return err == BP_OK ? check_arguments(arguments) : err;
}

void corpus_arguments_clear(corpus_arguments *arguments)
{
    bp_free(arguments->labels.list);
    bp_free(arguments->values.list);
    bp_free(arguments->field_copy);
    bp_free(arguments->skip_list);
}
