/* Corpora of tokens that other programs made. */
#include "corpus_arguments.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/corpus/corpus_convert.h"
#include "io/corpus/token_files.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>

#define TOOL "bagpipe-data corpus " BAGPIPE_VERSION

static void report(const corpus_arguments *arguments, const bp_corpus_converted *converted)
{
    if (converted->left_out[0])
        BP_WARN(
            "corpus.left_out",
            "columns of tasks are left out, %s: at %s; a conversion carries tokens, documents and "
            "labels over: make a corpus of a task from its text",
            converted->left_out, arguments->files.list[0]);
    if (converted->open_ends > 0)
        BP_WARN("corpus.open_ends",
                "%" PRId64 " of %" PRId64 " documents do not end with the end-of-document token: "
                "they were kept as they are",
                converted->open_ends, converted->documents);
    bp_log("%s: %" PRId64 " documents, %" PRId64 " tokens", arguments->out, converted->documents,
           converted->tokens);
}

static bp_err convert_hdf5(const corpus_arguments *arguments, const bp_tokenizer *tokenizer,
                           const char *text, bp_corpus_converted *out)
{
    const bp_corpus_conversion conversion = {
        .source = arguments->files.list[0],
        .out = arguments->out,
        .tool = TOOL,
        .tokenizer = text,
        .tokenizer_hash = tokenizer ? bp_tokenizer_hash(tokenizer) : NULL,
        .tokenizer_size = tokenizer ? bp_tokenizer_size(tokenizer) : 0};

    return bp_corpus_convert(&conversion, out);
}

static bp_err convert_tokens(const corpus_arguments *arguments, const bp_tokenizer *tokenizer,
                             const char *text, bp_corpus_converted *out)
{
    int64_t roles[BP_ROLES];
    bp_token_files files = {.paths = (const char *const *)arguments->files.list,
                            .path_count = arguments->files.count,
                            .layout = arguments->format,
                            .vocab_size = arguments->vocab_size,
                            .eod_id = arguments->eod,
                            .token_bytes = arguments->token_bytes,
                            .tokenizer = text,
                            .tool = TOOL,
                            .out = arguments->out};

    if (tokenizer) {
        for (int role = 0; role < BP_ROLES; role++)
            roles[role] = bp_tokenizer_role(tokenizer, (bp_role)role);
        files.roles = roles;
        files.vocab_size = bp_tokenizer_size(tokenizer);
        files.tokenizer_hash = bp_tokenizer_hash(tokenizer);
        if (arguments->eod < 0)
            files.eod_id = bp_tokenizer_eod(tokenizer);
    }
    return bp_token_files_convert(&files, out);
}

bp_err corpus_convert_foreign(const corpus_arguments *arguments)
{
    bp_corpus_converted converted;
    bp_tokenizer *tokenizer = NULL;
    char *text = NULL;
    bp_err err = BP_OK;

    if (arguments->tokenizer)
        err = bp_tokenizer_load(&tokenizer, arguments->tokenizer);
    if (tokenizer)
        text = bp_tokenizer_text(tokenizer);
    if (err == BP_OK)
        err = corpus_format_is(arguments, "hdf5")
                  ? convert_hdf5(arguments, tokenizer, text, &converted)
                  : convert_tokens(arguments, tokenizer, text, &converted);
    if (err == BP_OK)
        report(arguments, &converted);
    bp_free(text);
    bp_tokenizer_free(&tokenizer);
    return err;
}
