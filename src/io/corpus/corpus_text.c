/* Messages for text, or a folder, given instead of a corpus: the command that makes one. */
#include "io/corpus/corpus_text.h"

#include "base/files/fs.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LOOKED_BYTES 4096
#define COMMAND                                                                                    \
    "make a corpus with bagpipe-data corpus --tokenizer tokenizer.json%s --out %.*s.h5 %s "        \
    "(bagpipe-data tokenizer makes a tokenizer.json; a model has its own; for an encoder-decoder " \
    "--format pairs SOURCE TARGET)"

static bool ends_with(const char *text, size_t bytes, const char *suffix)
{
    size_t length = strlen(suffix);

    return bytes >= length && memcmp(text + bytes - length, suffix, length) == 0;
}

static bool begins_with(const unsigned char *bytes, ssize_t count, const char *magic)
{
    return count >= (ssize_t)strlen(magic) && memcmp(bytes, magic, strlen(magic)) == 0;
}

/* Bytes of UTF-8 or Latin letters and white space: no control characters. Binary files, including
 * our corpora, have zero bytes near their start. */
static bool is_text(const unsigned char *bytes, ssize_t count)
{
    for (ssize_t k = 0; k < count; k++)
        if (bytes[k] < 0x20 && !strchr("\t\n\r\f\v", bytes[k]))
            return false;
    return count > 0 && !memchr(bytes, 0, (size_t)count);
}

/* The name without ".txt", ".jsonl.gz" ... */
static size_t stem_bytes(const char *path)
{
    static const char *const SUFFIXES[] = {".gz",    ".zst",  ".txt", ".text",
                                           ".jsonl", ".json", ".md"};
    size_t bytes = strlen(path);

    for (size_t k = 0; k < sizeof SUFFIXES / sizeof SUFFIXES[0]; k++)
        if (ends_with(path, bytes, SUFFIXES[k]) && bytes > strlen(SUFFIXES[k]))
            bytes -= strlen(SUFFIXES[k]);
    return bytes;
}

/* --format of the tool; its default is text. */
static const char *format_of(const char *path, bool object)
{
    return object || strstr(bp_path_base(path), ".json") ? " --format jsonl" : "";
}

bp_err bp_corpus_refuse_text(int fd, const char *path)
{
    unsigned char bytes[LOOKED_BYTES];
    ssize_t count = pread(fd, bytes, sizeof bytes, 0);
    bool compressed =
        begins_with(bytes, count, "\x1f\x8b") || begins_with(bytes, count, "\x28\xb5\x2f\xfd");

    if (count <= 0 || begins_with(bytes, count, "bagpipe ") ||
        (!compressed && !is_text(bytes, count)))
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "corpus.is_text", "%s is not a corpus: at %s; " COMMAND,
                   compressed ? "compressed text" : "text", path, format_of(path, bytes[0] == '{'),
                   (int)stem_bytes(path), path, path);
}

/* The first name with one of these suffixes; NULL if there is none. */
static const char *find_suffix(char **names, int64_t count, const char *const *suffixes)
{
    for (; *suffixes; suffixes++)
        for (int64_t k = 0; k < count; k++)
            if (ends_with(names[k], strlen(names[k]), *suffixes))
                return *suffixes;
    return NULL;
}

bp_err bp_corpus_refuse_folder(const char *path)
{
    static const char *const CORPORA[] = {".h5", ".hdf5", NULL};
    static const char *const TEXTS[] = {".txt",       ".jsonl", ".txt.gz", ".jsonl.gz", ".txt.zst",
                                        ".jsonl.zst", ".gz",    ".zst",    NULL};
    char **names = NULL, *files = NULL;
    int64_t count = 0;
    size_t bytes = strlen(path);
    const char *suffix = NULL;

    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    if (bp_dir_list(path, &names, &count) == BP_OK &&
        !(suffix = find_suffix(names, count, CORPORA)) &&
        (suffix = find_suffix(names, count, TEXTS)))
        files = bp_sprintf("%.*s/*%s", (int)bytes, path, suffix);
    if (files)
        (void)BP_FAIL(BP_ERR_INPUT, "corpus.is_folder", "a folder is not a corpus: at %s; " COMMAND,
                      path, format_of(files, false), (int)bytes, path, files);
    else
        (void)BP_FAIL(
            BP_ERR_INPUT, "corpus.is_folder",
            "a folder is not a corpus: at %s; name a file, a list with commas, or a pattern "
            "such as '%.*s/*%s'",
            path, (int)bytes, path, suffix ? suffix : ".h5");
    bp_free(files);
    bp_names_free(&names, count);
    return BP_ERR_INPUT;
}
