/* ids_of_lines TOKENIZER TEXT plain|specials [REPEATS]: the ids of every line of a file, as text, a
 * line a line (specials: names of special tokens are those tokens); with REPEATS, nothing but the
 * fastest time of encoding all lines. For compare_ids.py. */
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "text/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bp_err encode_lines(bp_encoder *encoder, const char *text, size_t bytes, bool show)
{
    bp_ids ids = {0};
    bp_err err = BP_OK;

    for (const char *at = text, *end = text + bytes; at < end && err == BP_OK;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = (size_t)((newline == NULL ? end : newline) - at);

        ids.count = 0;
        err = bp_encode(encoder, at, length, &ids);
        for (int64_t k = 0; show && k < ids.count; k++)
            printf("%s%u", k == 0 ? "" : " ", ids.data[k]);
        if (show)
            putchar('\n');
        at += length + 1;
    }
    bp_ids_clear(&ids);
    return err;
}

static bp_err time_lines(bp_encoder *encoder, const char *text, size_t bytes, int repeats)
{
    double best = 0;
    bp_err err = BP_OK;

    for (int k = 0; k < repeats && err == BP_OK; k++) {
        double start = bp_clock_now(), seconds;

        err = encode_lines(encoder, text, bytes, false);
        seconds = bp_clock_now() - start;
        best = k == 0 || seconds < best ? seconds : best;
    }
    printf("%.6f\n", best);
    return err;
}

int main(int argc, char **argv)
{
    bp_tokenizer *tokenizer = NULL;
    bp_encoder *encoder = NULL;
    char *text = NULL;
    size_t bytes = 0;
    bp_err err;

    if (argc < 4)
        return BP_ERR_USAGE;
    err = bp_tokenizer_load(&tokenizer, argv[1]);
    if (err == BP_OK)
        err = bp_encoder_new(&encoder, tokenizer);
    if (err == BP_OK)
        err = bp_file_read(argv[2], (int64_t)1 << 30, &text, &bytes);
    if (err == BP_OK)
        bp_encoder_find_specials(encoder, strcmp(argv[3], "specials") == 0);
    if (err == BP_OK)
        err = argc > 4 ? time_lines(encoder, text, bytes, atoi(argv[4]))
                       : encode_lines(encoder, text, bytes, true);
    if (err != BP_OK)
        fprintf(stderr, "ids_of_lines: %s\n", bp_err_message());
    bp_free(text);
    bp_encoder_free(&encoder);
    bp_tokenizer_free(&tokenizer);
    return err;
}
