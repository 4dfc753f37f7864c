/* What reports are made of: a byte picks. Word lists, beside a text after a zero byte: counts fit
 * each other. Lines that generate wrote: what is accepted has its tokens and texts. */
#include "fuzz.h"
#include "outputs.h"
#include "toxicity/word_lists.h"

#include "base/files/fs.h"
#include "base/mem.h"

#include <string.h>

#define SUMMARY "{\"model\": {\"digest\": \"d\"}}"

static void check_lists(const fuzz_bytes *in)
{
    const uint8_t *zero = in->left > 0 ? memchr(in->data, 0, in->left) : NULL;
    size_t bytes = zero ? (size_t)(zero - in->data) : in->left, rest = in->left - bytes;
    const char *path = fuzz_file_named("words.lst", in->data, bytes),
               *text = (const char *)in->data + in->left - rest;
    word_lists lists = {0};
    bp_err err = word_lists_load(&lists, &path, 1);

    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    for (int k = 0; k < 2 && err == BP_OK; k++) {
        word_lists_begin(&lists);
        word_lists_read(&lists, text, rest);
    }
    for (int64_t k = 0; k < lists.entry_count && err == BP_OK; k++) {
        const word_entry *entry = &lists.entries[k];
        char *masked = word_entry_masked(entry);

        FUZZ_CHECK(entry->texts == 0 || entry->texts == 2); /* it was the same text */
        FUZZ_CHECK(entry->occurrences >= entry->texts && entry->occurrences % 2 == 0);
        FUZZ_CHECK(entry->texts == 0 || lists.has[entry->list]);
        FUZZ_CHECK(strlen(masked) <= strlen(entry->shown));
        bp_free(masked);
    }
    word_lists_clear(&lists);
}

static void check_outputs(const fuzz_bytes *in)
{
    const char *folder = fuzz_folder();
    outputs out;
    bp_err err;

    FUZZ_CHECK(bp_dir_make(bp_path_in(folder, "generate").text) == BP_OK);
    (void)fuzz_file_named("generate/summary.json", SUMMARY, strlen(SUMMARY));
    (void)fuzz_file_named("generate/outputs.jsonl", in->data, in->left);
    err = outputs_load(&out, folder);
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    FUZZ_CHECK(err != BP_OK || (out.count > 0 && out.prompts > 0));
    for (int64_t k = 0; k < out.count && err == BP_OK; k++) {
        const output_line *line = &out.lines[k];

        FUZZ_CHECK(line->index < out.prompts && (k == 0 || line->index >= line[-1].index));
        FUZZ_CHECK(line->first_token + line->count <= out.token_count);
        FUZZ_CHECK(line->text_at < (int64_t)out.text.bytes &&
                   line->prompt_at < (int64_t)out.text.bytes);
    }
    outputs_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_bytes in = {data, bytes};
    int which = fuzz_below(&in, 2);

    fuzz_begin();
    if (which == 0)
        check_lists(&in);
    else
        check_outputs(&in);
    fuzz_end();
    return 0;
}
