/* Names of tensors, from GGUF to Hugging Face's and back. Called by gguf_model.c and
 * gguf_export.c. */
#include "io/gguf/gguf_names_priv.h"

#include <stdio.h>
#include <string.h>

/* Does `name` match the pattern before ".weight" or ".bias"? Returns the layer's digits, and that
 * suffix. */
static bool matches(const char *pattern, const char *name, const char **digits, int *count,
                    const char **end)
{
    const char *star = strchr(pattern, '*');
    size_t head = star ? (size_t)(star - pattern) : strlen(pattern);

    *digits = name + head;
    *count = 0;
    if (strncmp(name, pattern, head) != 0)
        return false;
    *end = name + head;
    if (star) {
        *count = (int)strspn(*digits, "0123456789");
        *end = *digits + *count;
        if (*count == 0 || *count > 9 || (**digits == '0' && *count > 1) ||
            strncmp(*end, star + 1, strlen(star + 1)) != 0)
            return false;
        *end += strlen(star + 1);
    }
    return strcmp(*end, ".weight") == 0 || strcmp(*end, ".bias") == 0;
}

/* Converts a name to the other side's. */
static const bp_gguf_row *translate(char out[GGUF_NAME_BYTES], const bp_gguf_family *family,
                                    const char *name, bool back)
{
    const char *digits, *end;
    int count;

    for (const bp_gguf_row *row = family->rows; row->gguf; row++) {
        const char *from = back ? row->huggingface : row->gguf,
                   *to = back ? row->gguf : row->huggingface, *star = strchr(to, '*');

        if (!matches(from, name, &digits, &count, &end))
            continue;
        if (star)
            (void)snprintf(out, GGUF_NAME_BYTES, "%.*s%.*s%s%s", (int)(star - to), to, count,
                           digits, star + 1, end);
        else
            (void)snprintf(out, GGUF_NAME_BYTES, "%s%s", to, end);
        return row;
    }
    return NULL;
}

const bp_gguf_row *gguf_to_huggingface(char out[GGUF_NAME_BYTES], const bp_gguf_family *family,
                                       const char *name)
{
    return translate(out, family, name, false);
}

const bp_gguf_row *gguf_of_huggingface(char out[GGUF_NAME_BYTES], const bp_gguf_family *family,
                                       const char *name)
{
    const bp_gguf_row *row = translate(out, family, name, true);
    char whole[GGUF_NAME_BYTES];

    if (row || !family->base)
        return row;
    (void)snprintf(whole, sizeof whole, "%s%s", family->base, name);
    return translate(out, family, whole, true);
}
