/* Reads this process's command from the kernel and quotes it for a shell. */
#include "base/process/command_line.h"

#include "base/buffer.h"
#include "base/mem.h"
#include "base/printable.h"

#include <stdio.h>
#include <string.h>

#define PLAIN                                                                                      \
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"                               \
    "_-+=./:,@%^"

/* In single quotes, which end where the word has one. */
static void put_word(bp_buffer *out, const char *word)
{
    char *shown = bp_printable(word);
    bool plain = shown[0] != '\0' && shown[strspn(shown, PLAIN)] == '\0';

    bp_buffer_printf(out, "%s%s", out->bytes > 0 ? " " : "", plain ? "" : "'");
    for (const char *c = shown; *c; c++)
        bp_buffer_printf(out, "%s%c", *c == '\'' ? "'\\'" : "", *c);
    if (!plain)
        bp_buffer_add(out, "'", 1);
    bp_free(shown);
}

char *bp_command_line(int ranks)
{
    FILE *file = fopen("/proc/self/cmdline", "r");
    char chunk[1024];
    bp_buffer words = {0}, out = {0};
    size_t bytes;

    while (file && (bytes = fread(chunk, 1, sizeof chunk, file)) > 0)
        bp_buffer_add(&words, chunk, bytes);
    if (file)
        (void)fclose(file); /* only read from */
    if (ranks > 1)
        bp_buffer_printf(&out, "mpirun -n %d", ranks);
    for (size_t at = 0; at < words.bytes; at += strlen(words.data + at) + 1)
        put_word(&out, words.data + at);
    bp_buffer_clear(&words);
    return bp_buffer_take(&out);
}
