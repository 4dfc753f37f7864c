/* Reading what words_file.h says. */
#include "models/words_file.h"

#include "base/fs.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NUMBER_BYTES 64

bp_err bp_words_file_map(bp_words_file *out, const char *path)
{
    int64_t bytes = 0;
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
            *out = (bp_words_file){map, (size_t)bytes};
    }
    (void)close(fd);
    return err;
}

void bp_words_file_unmap(bp_words_file *file)
{
    if (file->bytes > 0)
        (void)munmap((void *)(uintptr_t)file->text, file->bytes);
    *file = (bp_words_file){.text = ""};
}

bool bp_words_file_number(const char *text, size_t bytes, float *value)
{
    char copy[NUMBER_BYTES], *end;

    if (bytes == 0 || bytes >= sizeof copy)
        return false;
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    *value = strtof(copy, &end);
    return *end == '\0';
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
