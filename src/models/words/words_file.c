/* Readers of the files of words_file.h. Called by models/elmo/bilm_options.c,
 * models/ngram/ngram_arpa_read.c and models/word2vec/vectors_read.c. */
#include "models/words/words_file.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "text/documents/text_source.h"

#define PART_BYTES ((size_t)1 << 20)

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- compressed files ---- */

static bool is_compressed(const char *text, size_t bytes)
{
    static const char GZIP[] = "\x1f\x8b\x08", ZSTD[] = "\x28\xb5\x2f\xfd";

    return (bytes >= 3 && memcmp(text, GZIP, 3) == 0) || (bytes >= 4 && memcmp(text, ZSTD, 4) == 0);
}

/* Its whole text, at most `limit` bytes. */
static bp_err read_compressed(char **out, size_t *bytes, const char *path, size_t limit)
{
    bp_text_source *source = NULL;
    int64_t capacity = 0;
    size_t got = 1;
    bp_err err = bp_text_source_open(&source, path);

    *bytes = 0;
    while (err == BP_OK && got > 0 && *bytes < limit) {
        size_t room = limit - *bytes < PART_BYTES ? limit - *bytes : PART_BYTES;

        *out = bp_grow("models.words", *out, &capacity, (int64_t)(*bytes + room), 1);
        err = bp_text_source_read(source, *out + *bytes, room, &got);
        *bytes += err == BP_OK ? got : 0;
    }
    bp_text_source_close(&source);
    return err;
}

/* ---- files ---- */

/* A byte order mark is not text. */
static size_t mark_bytes(const char *text, size_t bytes)
{
    return bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

size_t bp_words_file_read_head(char *text, size_t most, const char *path)
{
    char *all = NULL;
    size_t bytes = 0, mark;
    ssize_t got;
    int fd;

    if (bp_path_is_dir(path) || bp_file_open(path, &fd, NULL) != BP_OK)
        return 0;
    got = read(fd, text, most);
    (void)close(fd);
    bytes = got > 0 ? (size_t)got : 0;
    if (is_compressed(text, bytes)) {
        if (read_compressed(&all, &bytes, path, most) != BP_OK)
            bytes = 0;
        if (bytes > 0)
            memcpy(text, all, bytes);
        bp_free(all);
    }
    mark = mark_bytes(text, bytes);
    memmove(text, text + mark, bytes - mark);
    return bytes - mark;
}

bp_err bp_words_file_map(bp_words_file *out, const char *path)
{
    int64_t bytes = 0;
    size_t mark;
    int fd;
    bp_err err = bp_file_open(path, &fd, &bytes);

    *out = (bp_words_file){.text = ""};
    if (err != BP_OK)
        return err;
    if (bytes > 0) {
        void *map = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0);

        if (map == MAP_FAILED)
            err = bp_fail_errno(BP_ERR_SYSTEM, "can't map", path);
        else
            *out = (bp_words_file){
                .text = map, .bytes = (size_t)bytes, .map = map, .map_bytes = (size_t)bytes};
    }
    (void)close(fd);
    if (err == BP_OK && is_compressed(out->text, out->bytes)) {
        err = read_compressed(&out->owned, &out->bytes, path, SIZE_MAX);
        out->text = out->owned ? out->owned : "";
    }
    mark = mark_bytes(out->text, out->bytes);
    out->text += mark;
    out->bytes -= mark;
    return err;
}

void bp_words_file_unmap(bp_words_file *file)
{
    if (file->map_bytes > 0)
        (void)munmap(file->map, file->map_bytes);
    bp_free(file->owned);
    *file = (bp_words_file){.text = ""};
}

bp_err bp_words_file_tokenizer(bp_tokenizer **out, json_t *vocab, const char *path)
{
    json_t *root = json_pack(
        "{s:s, s:n, s:n, s:[{s:O, s:s, s:b, s:b, s:b, s:b, s:b}], s:n, s:{s:s}, s:n, s:n, "
        "s:{s:s, s:O, s:s}}",
        "version", "1.0", "truncation", "padding", "added_tokens", "id",
        json_object_get(vocab, BP_EOD_TOKEN), "content", BP_EOD_TOKEN, "single_word", 0, "lstrip",
        0, "rstrip", 0, "normalized", 1, "special", 1, "normalizer", "pre_tokenizer", "type",
        "WhitespaceSplit", "post_processor", "decoder", "model", "type", "WordLevel", "vocab",
        vocab, "unk_token", BP_UNK_TOKEN);
    char *text = bp_json_text(root);
    bp_err err = bp_tokenizer_parse(out, text, strlen(text), path);

    bp_free(text);
    json_decref(root);
    return err;
}
