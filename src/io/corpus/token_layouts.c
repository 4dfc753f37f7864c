/* Layouts of other programs' token files, according to the code that writes them: Megatron-LM
 * (megatron/core/datasets/indexed_dataset.py), llm.c (dev/data/data_common.py), nanoGPT
 * (data/openwebtext/prepare.py), datatrove (src/datatrove/pipeline/tokens/tokenizer.py). */
#include "token_files_priv.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "base/suffix.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- columns of integers ---- */

static int64_t integer_at(const unsigned char *bytes, int width, bool is_signed)
{
    uint64_t value = 0;

    for (int k = 0; k < width; k++)
        value |= (uint64_t)bytes[k] << (8 * k);
    if (is_signed && width < 8 && (value >> (8 * width - 1)) & 1)
        value |= ~(uint64_t)0 << (8 * width);
    return value > INT64_MAX && !is_signed ? INT64_MAX : (int64_t)value;
}

bp_err token_column_next(token_column *column, int64_t *value)
{
    int64_t left = column->count - column->at;
    size_t width = (size_t)column->width;

    BP_ASSERT(left > 0);
    if (column->at == column->first + column->held) {
        column->first = column->at;
        column->held = left < TOKEN_COLUMN_VALUES ? left : TOKEN_COLUMN_VALUES;
        if (!column->buffer)
            column->buffer = bp_alloc("io.token_column", TOKEN_COLUMN_VALUES, width);
        if (bp_pread_all(column->fd, column->buffer, (size_t)column->held * width,
                         column->offset + column->first * column->width) != 0)
            return errno == ENODATA
                       ? BP_FAIL(BP_ERR_FORMAT, "tokens.truncated",
                                 "the file became shorter while it was read: at %s; write it again",
                                 column->path)
                       : bp_fail_errno(BP_ERR_IO, "can't read", column->path);
    }
    *value = integer_at(column->buffer + (size_t)(column->at - column->first) * width,
                        column->width, column->is_signed);
    column->at++;
    return BP_OK;
}

int64_t token_column_byte(const token_column *column)
{
    return column->offset + (column->at - 1) * column->width;
}

/* ---- shared by layouts ---- */

#define OTHER_LAYOUT "choose the --format of the program that wrote it"

static bp_err fail_truncated(const char *path, const char *what, int64_t needed, int64_t bytes)
{
    return BP_FAIL(BP_ERR_FORMAT, "tokens.truncated",
                   "%s needs %" PRId64 " bytes, and the file has %" PRId64 ": at %s, byte %" PRId64
                   "; write it again",
                   what, needed, bytes, path, bytes < needed ? bytes : needed);
}

static bp_err read_head(int fd, const char *path, unsigned char *head, size_t bytes, int64_t size)
{
    if (size < (int64_t)bytes)
        return fail_truncated(path, "the header", (int64_t)bytes, size);
    return bp_pread_all(fd, head, bytes, 0) == 0 ? BP_OK
                                                 : bp_fail_errno(BP_ERR_IO, "can't read", path);
}

static bp_err fail_index(const token_file *file, int64_t byte, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "tokens.bad_index",
                   "%s: at %s, byte %" PRId64 ", for %s; give the index that was written with it",
                   what, file->index_path, byte, file->path);
}

/* ---- Megatron-LM: PREFIX.bin and PREFIX.idx ---- */

#define MEGATRON_HEAD 34 /* magic 9, version 8, type 1, sequences 8, ends of documents 8 */

/* The values of its enumeration DType for ids. */
static bp_err megatron_type(token_file *file, int code)
{
    static const struct {
        int width;
        bool is_signed;
    } types[] = {{0, false}, {1, false}, {1, true},  {2, true}, {4, true},
                 {8, true},  {0, false}, {0, false}, {2, false}};

    if (code < 1 || code >= (int)(sizeof types / sizeof types[0]) || types[code].width == 0)
        return BP_FAIL(BP_ERR_FORMAT, "tokens.bad_header",
                       "type %d is not one of integers (1 to 5, 8): at %s, byte 17; " OTHER_LAYOUT,
                       code, file->index_path);
    file->tokens.width = types[code].width;
    file->tokens.is_signed = types[code].is_signed;
    return BP_OK;
}

static bp_err megatron_head(token_file *file, int64_t index_bytes)
{
    unsigned char head[MEGATRON_HEAD];
    bp_err err = read_head(file->index_fd, file->index_path, head, sizeof head, index_bytes);

    if (err != BP_OK)
        return err;
    if (memcmp(head, "MMIDIDX\0\0", 9) != 0)
        return BP_FAIL(BP_ERR_FORMAT, "tokens.bad_header",
                       "it does not begin with MMIDIDX: at %s, byte 0; " OTHER_LAYOUT,
                       file->index_path);
    if (integer_at(head + 9, 8, false) != 1)
        return BP_FAIL(BP_ERR_FORMAT, "tokens.bad_header",
                       "version %" PRId64 " is unknown, 1 is known: at %s, byte 9; write it with a "
                       "Megatron-LM that writes version 1",
                       integer_at(head + 9, 8, false), file->index_path);
    err = megatron_type(file, head[17]);
    if (err != BP_OK)
        return err;
    int64_t sequences = integer_at(head + 18, 8, false), ends = integer_at(head + 26, 8, false);
    if (sequences > index_bytes / 12 || ends > index_bytes / 8)
        return fail_truncated(file->index_path, "its count of sequences", INT64_MAX, index_bytes);
    int64_t needed = MEGATRON_HEAD + 12 * sequences + 8 * ends;
    if (index_bytes < needed)
        return fail_truncated(file->index_path, "the index", needed, index_bytes);
    if (index_bytes > needed)
        return fail_index(file, needed,
                          "more follows the ends of documents (modes of sequences are not read)");
    if (ends < 1)
        return fail_index(file, 26, "it has no list of documents");
    file->documents = ends - 1;
    file->lengths = (token_column){.path = file->index_path,
                                   .fd = file->index_fd,
                                   .width = 4,
                                   .is_signed = true,
                                   .offset = MEGATRON_HEAD,
                                   .count = sequences};
    file->pointers = file->lengths;
    file->pointers.width = 8;
    file->pointers.offset += 4 * sequences;
    file->ends = file->pointers;
    file->ends.offset += 8 * sequences;
    file->ends.count = ends;
    return BP_OK;
}

static bp_err megatron_open(token_file *file, const char *given, const bp_token_files *files)
{
    int64_t index_bytes, size = 0, zero = 0;
    bp_err err;

    (void)files;
    file->path = token_layout_path(file->layout, given, 0);
    file->index_path = token_layout_path(file->layout, given, 1);
    err = bp_file_open(file->index_path, &file->index_fd, &index_bytes);
    if (err == BP_OK)
        err = bp_file_open(file->path, &file->fd, &size);
    if (err == BP_OK)
        err = megatron_head(file, index_bytes);
    if (err == BP_OK)
        err = token_column_next(&file->ends, &zero);
    if (err == BP_OK && zero != 0)
        err = fail_index(file, file->ends.offset,
                         "the first document does not begin with sequence 0");
    if (err == BP_OK && size % file->tokens.width != 0)
        err = BP_FAIL(BP_ERR_FORMAT, "tokens.truncated",
                      "%" PRId64 " bytes are not a whole number of tokens of %d bytes: at %s, byte "
                      "%" PRId64 "; write it again",
                      size, file->tokens.width, file->path, size);
    if (err == BP_OK)
        file->tokens.count = size / file->tokens.width;
    if (err == BP_OK && file->documents == 0 && (file->lengths.count > 0 || size > 0))
        err = fail_index(file, 26, "it has tokens, and no documents");
    return err;
}

/* Sequences of the document, one after another. */
static bp_err megatron_next_end(token_file *file)
{
    int64_t until, length, pointer;
    bp_err err = token_column_next(&file->ends, &until);
    bool is_last = file->ends.at == file->ends.count;

    if (err != BP_OK)
        return err;
    if (until < file->lengths.at || until > file->lengths.count ||
        (is_last && until < file->lengths.count))
        return fail_index(file, token_column_byte(&file->ends),
                          "documents do not end with its sequences in order");
    while (file->lengths.at < until) {
        err = token_column_next(&file->lengths, &length);
        if (err == BP_OK)
            err = token_column_next(&file->pointers, &pointer);
        if (err != BP_OK)
            return err;
        if (length < 0 || pointer != file->end * file->tokens.width)
            return fail_index(file, token_column_byte(&file->pointers),
                              "a sequence does not begin where the one before ends");
        file->end += length;
        if (file->end > file->tokens.count)
            return fail_index(file, token_column_byte(&file->lengths),
                              "a sequence goes beyond the tokens");
    }
    if (is_last && file->end != file->tokens.count)
        return fail_index(file, token_column_byte(&file->ends),
                          "the tokens go on after the last document");
    return BP_OK;
}

/* ---- llm.c: a header of 256 int32, tokens ---- */

#define LLMC_HEAD 1024

static bp_err llmc_open(token_file *file, const char *given, const bp_token_files *files)
{
    static const struct {
        int64_t magic, version;
        int width;
    } kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};
    unsigned char head[LLMC_HEAD];
    int64_t size, magic, version, count;
    bp_err err = bp_file_open(given, &file->fd, &size);
    int kind = 0;

    file->path = bp_strdup(given);
    if (err == BP_OK)
        err = read_head(file->fd, given, head, sizeof head, size);
    if (err != BP_OK)
        return err;
    magic = integer_at(head, 4, true);
    version = integer_at(head + 4, 4, true);
    count = integer_at(head + 8, 4, true);
    while (kind < 2 && kinds[kind].magic != magic)
        kind++;
    if (kind == 2)
        return BP_FAIL(BP_ERR_FORMAT, "tokens.bad_header",
                       "it begins with %" PRId64 ", not with 20240520 (uint16) or 20240801 "
                       "(uint32): at %s, byte 0; " OTHER_LAYOUT,
                       magic, given);
    if (version != kinds[kind].version)
        return BP_FAIL(BP_ERR_FORMAT, "tokens.bad_header",
                       "version %" PRId64 " is unknown, %" PRId64 " is known: at %s, byte 4; write "
                       "it with llm.c's data_common.py",
                       version, kinds[kind].version, given);
    file->tokens = (token_column){.width = kinds[kind].width, .offset = LLMC_HEAD, .count = count};
    if (count < 0 || size != LLMC_HEAD + count * kinds[kind].width)
        return fail_truncated(given, "its count of tokens", LLMC_HEAD + count * kinds[kind].width,
                              size);
    if (kind == 0 && files->vocab_size == 0) { /* GPT-2's, by the magic number */
        file->vocab_size = 50257;
        file->eod_id = files->eod_id < 0 ? 50256 : files->eod_id;
    }
    return BP_OK;
}

/* ---- nanoGPT: tokens, and nothing else ---- */

/* Halves of small uint32 numbers: every other one is 0. */
static bool looks_wider(const unsigned char *bytes, size_t count)
{
    bool zeros = count >= 64, others = false;

    for (size_t k = 0; k + 3 < count; k += 4) {
        zeros = zeros && bytes[k + 2] == 0 && bytes[k + 3] == 0;
        others = others || bytes[k] != 0 || bytes[k + 1] != 0;
    }
    return zeros && others;
}

static bp_err nanogpt_open(token_file *file, const char *given, const bp_token_files *files)
{
    unsigned char start[4096];
    int64_t size;
    int width = files->token_bytes > 0      ? (int)files->token_bytes
                : files->vocab_size > 65536 ? 4
                                            : 2;
    bp_err err = bp_file_open(given, &file->fd, &size);

    file->path = bp_strdup(given);
    if (err != BP_OK)
        return err;
    if (size % width != 0)
        return BP_FAIL(BP_ERR_FORMAT, "tokens.truncated",
                       "%" PRId64
                       " bytes are not a whole number of tokens of %d bytes: at %s, byte "
                       "%" PRId64 "; write it again, or see --token-bytes",
                       size, width, given, size - size % width);
    size_t looked = size < (int64_t)sizeof start ? (size_t)size : sizeof start;
    if (bp_pread_all(file->fd, start, looked, 0) != 0)
        return bp_fail_errno(BP_ERR_IO, "can't read", given);
    if (width == 2 && files->token_bytes == 0 && looks_wider(start, looked))
        return BP_FAIL(BP_ERR_FORMAT, "tokens.bad_header",
                       "every other token of 2 bytes is 0, as if they had 4: at %s, byte 2; say "
                       "which with --token-bytes 2 or 4",
                       given);
    file->tokens = (token_column){.width = width, .count = size / width};
    return BP_OK;
}

/* ---- datatrove: NAME.ds, NAME.ds.index, perhaps NAME.ds.metadata ---- */

/* Metadata: "TOKENIZER|BYTES OF A TOKEN", in older versions "TOKENIZER"; the number of tokens; the
 * same in readable form. */
static bp_err datatrove_metadata(token_file *file, int *width, int64_t *count)
{
    char *path = token_layout_path(file->layout, file->path, 2), *text = NULL, *end, *line;
    size_t bytes;
    bp_err err = bp_path_exists(path) ? bp_file_read(path, 1 << 16, &text, &bytes) : BP_OK;

    *count = -1;
    if (err == BP_OK && text) {
        line = strchr(text, '\n');
        *count = line ? strtoll(line + 1, &end, 10) : -1;
        char *bar = line ? memrchr(text, '|', (size_t)(line - text)) : NULL;
        *width = bar ? atoi(bar + 1) : 2;
        if (*count < 0 || end == line + 1 || (*end != '\n' && *end != '\0') ||
            (*width != 2 && *width != 4))
            err = BP_FAIL(BP_ERR_FORMAT, "tokens.bad_header",
                          "it does not say the tokenizer, 2 or 4 bytes a token, and the number of "
                          "tokens: at %s, byte 0; write it again, or remove it",
                          path);
    }
    bp_free(text);
    bp_free(path);
    return err;
}

static bp_err datatrove_open(token_file *file, const char *given, const bp_token_files *files)
{
    int64_t size = 0, index_bytes, count, last = 0;
    int width = 0;
    bp_err err = bp_file_open(given, &file->fd, &size);

    (void)files;
    file->path = bp_strdup(given);
    file->index_path = token_layout_path(file->layout, given, 1);
    if (err == BP_OK)
        err = bp_file_open(file->index_path, &file->index_fd, &index_bytes);
    if (err == BP_OK)
        err = datatrove_metadata(file, &width, &count);
    if (err != BP_OK)
        return err;
    if (index_bytes % 8 != 0 || index_bytes == 0)
        return fail_truncated(file->index_path, "a list of uint64", (index_bytes / 8 + 1) * 8,
                              index_bytes);
    file->documents = index_bytes / 8;
    file->ends = (token_column){
        .path = file->index_path, .fd = file->index_fd, .width = 8, .count = file->documents};
    token_column tail = file->ends;
    tail.at = tail.first = tail.count - 1;
    err = token_column_next(&tail, &last);
    bp_free(tail.buffer);
    if (err != BP_OK)
        return err;
    if (width == 0)
        width = last > 0 && last <= INT64_MAX / 4 && size == 4 * last ? 4 : 2;
    if (size % width != 0 || size / width != last || (count >= 0 && count != last))
        return BP_FAIL(BP_ERR_FORMAT, "tokens.bad_index",
                       "%" PRId64 " tokens of %d bytes should be in %" PRId64
                       " bytes: at %s, byte %" PRId64 ", by %s; give the index and the metadata "
                       "that were written with it",
                       last, width, size, given, size, file->index_path);
    file->tokens = (token_column){.width = width, .count = last};
    return BP_OK;
}

static bp_err datatrove_next_end(token_file *file)
{
    int64_t end;
    bp_err err = token_column_next(&file->ends, &end);

    if (err == BP_OK && (end < file->end || end > file->tokens.count))
        err = fail_index(file, token_column_byte(&file->ends), "ends of documents do not ascend");
    file->end = err == BP_OK ? end : file->end;
    return err;
}

/* ---- the table ---- */

static const token_layout LAYOUTS[] = {
    {"megatron", {".bin", ".idx"}, megatron_open, megatron_next_end},
    {"llmc", {""}, llmc_open, NULL},
    {"nanogpt", {""}, nanogpt_open, NULL},
    {"datatrove", {"", ".index", ".metadata"}, datatrove_open, datatrove_next_end}};

const token_layout *token_layout_of(const char *name)
{
    for (size_t k = 0; k < sizeof LAYOUTS / sizeof LAYOUTS[0]; k++)
        if (strcmp(LAYOUTS[k].name, name) == 0)
            return &LAYOUTS[k];
    return NULL;
}

char *token_layout_path(const token_layout *layout, const char *given, int k)
{
    size_t bytes = strlen(given);

    if (k >= (int)(sizeof layout->endings / sizeof *layout->endings) || !layout->endings[k])
        return NULL;
    for (int i = 0; i < 2 && layout->endings[0][0] != '\0' && bytes == strlen(given); i++)
        if (bp_has_suffix(given, layout->endings[i]))
            bytes -= strlen(layout->endings[i]);
    return bp_sprintf("%.*s%s", (int)bytes, given, layout->endings[k]);
}

void token_file_close(token_file *file)
{
    if (file->fd >= 0)
        (void)close(file->fd); /* only read from */
    if (file->index_fd >= 0)
        (void)close(file->index_fd);
    bp_free(file->tokens.buffer);
    bp_free(file->ends.buffer);
    bp_free(file->lengths.buffer);
    bp_free(file->pointers.buffer);
    bp_free(file->path);
    bp_free(file->index_path);
}
