/* Token files of other programs: bytes for the layout, the vocabulary and the end-of-document
 * token, two for the length of the index; the index, and the tokens. What is taken is a corpus
 * that opens, of ids below the vocabulary. */
#include "base/files/fs.h"
#include "base/mem.h"
#include "fuzz.h"
#include "io/corpus/corpus_file.h"
#include "io/corpus/token_files.h"

#include <unistd.h>

static void check_corpus(const char *path, const bp_corpus_converted *converted)
{
    bp_corpus_file *file;
    bp_err err = bp_corpus_file_open(&file, path);

    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK);
    const bp_corpus_info *info = bp_corpus_file_info(file);
    int32_t *tokens = bp_alloc("test.tokens", info->tokens, sizeof *tokens);
    FUZZ_CHECK(info->tokens == converted->tokens && info->documents == converted->documents);
    FUZZ_CHECK(bp_corpus_file_read(file, 0, info->tokens, tokens) == BP_OK);
    bp_free(tokens);
    bp_corpus_file_close(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const layouts[] = {"megatron", "llmc", "nanogpt", "datatrove"};
    static const char *const names[][2] = {
        {"f.bin", "f.idx"}, {"f.bin", "f.idx"}, {"f.bin", "f.idx"}, {"f.bin", "f.bin.index"}};
    fuzz_bytes in = {data, bytes};
    int layout = fuzz_below(&in, 4), kind = fuzz_below(&in, 4);
    int64_t vocab = fuzz_below(&in, 256) + 1, eod = fuzz_below(&in, 256);
    size_t index_bytes = fuzz_u16(&in);
    bp_corpus_converted converted;

    index_bytes = index_bytes < in.left ? index_bytes : in.left;
    fuzz_begin();
    (void)fuzz_file_named(names[layout][1], in.data, index_bytes);
    const char *path =
        fuzz_file_named(names[layout][0], in.data + index_bytes, in.left - index_bytes);
    char *out = bp_sprintf("%s/out.h5", fuzz_folder());
    const bp_token_files files = {.paths = (const char *const[]){path, path},
                                  .path_count = 1 + (kind & 1),
                                  .layout = layouts[layout],
                                  .vocab_size = kind == 3 ? 0 : vocab,
                                  .eod_id = kind == 2 ? -1 : eod,
                                  .tool = "fuzz",
                                  .out = out};
    bp_err err = bp_token_files_convert(&files, &converted);
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT || err == BP_ERR_USAGE);
    FUZZ_CHECK(bp_path_exists(out) == (err == BP_OK));
    if (err == BP_OK) {
        check_corpus(out, &converted);
        (void)unlink(out);
    }
    bp_free(out);
    fuzz_end();
    return 0;
}
