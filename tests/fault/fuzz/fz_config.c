/* Configurations: an INI text, then, after a byte 0xff, arguments ended by zero bytes. What is
 * accepted is written as a text that reads back as itself; what is not is reported in at most 20
 * lines, each with a line of the text. */
#include "base/config/config.h"
#include "base/mem.h"
#include "fuzz.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TRAIN_STEPS_REQUIRED false
#include "base/config_tables.h"

#define ARGUMENTS_MAX 8

static bp_config *new_config(void)
{
    bp_config *config;

    FUZZ_CHECK(bp_config_new(&config, all_tables, used_tables) == BP_OK);
    return config;
}

/* What config.ini holds reads back to the same config.ini. */
static void read_again(const bp_config *config)
{
    char *text = bp_config_text(config), *text_again;
    bp_config *again = new_config();

    FUZZ_CHECK(text != NULL);
    FUZZ_CHECK(bp_config_read(again, fuzz_file_named("again.ini", text, strlen(text)), 0, NULL) ==
               BP_OK);
    text_again = bp_config_text(again);
    FUZZ_CHECK(text_again != NULL && strcmp(text, text_again) == 0);
    FUZZ_CHECK(bp_config_real(config, "train.rate") == bp_config_real(again, "train.rate"));
    FUZZ_CHECK(bp_config_int(config, "train.memory") == bp_config_int(again, "train.memory"));
    bp_free(text);
    bp_free(text_again);
    bp_config_free(&again);
}

/* The message names lines that are in the text, and no more than 20 faults. */
static void check_faults(const char *path, const uint8_t *data, size_t bytes)
{
    long lines = 1, faults = 1;
    char *message = bp_strdup(bp_err_message());

    FUZZ_CHECK(message != NULL);
    for (size_t k = 0; k < bytes; k++)
        lines += data[k] == '\n';
    for (const char *p = message; *p != 0; p++)
        faults += *p == '\n';
    FUZZ_CHECK(faults <= 21); /* and "... and 7 faults more" */
    for (const char *p = message; (p = strstr(p, path)) != NULL;) {
        p += strlen(path);
        if (*p == ':' && p[1] >= '0' && p[1] <= '9')
            FUZZ_CHECK(strtol(p + 1, NULL, 10) >= 1 && strtol(p + 1, NULL, 10) <= lines);
    }
    bp_free(message);
}

/* The strings after the text; the last one ends with the input. */
static int take_arguments(char *arguments[ARGUMENTS_MAX], const uint8_t *data, size_t bytes)
{
    int count = 0;

    while (bytes > 0 && count < ARGUMENTS_MAX) {
        size_t length = strnlen((const char *)data, bytes);
        size_t used = length < bytes ? length + 1 : bytes;

        arguments[count++] = strndup((const char *)data, length);
        data += used;
        bytes -= used;
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const uint8_t *end = memchr(data, 0xff, bytes); /* no byte of UTF-8: arguments follow */
    size_t text_bytes = end == NULL ? bytes : (size_t)(end - data);
    char *arguments[ARGUMENTS_MAX];
    int count = end == NULL ? 0 : take_arguments(arguments, end + 1, bytes - text_bytes - 1);
    const char *path = fuzz_file_named("fuzz.ini", data, text_bytes);
    bp_config *config;
    bp_err err;

    fuzz_begin();
    config = new_config();
    err = bp_config_read(config, path, count, arguments);
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_CONFIG || err == BP_ERR_USAGE);
    if (err == BP_OK)
        read_again(config);
    if (err == BP_ERR_CONFIG)
        check_faults(path, data, text_bytes);
    bp_config_free(&config);
    for (int k = 0; k < count; k++)
        free(arguments[k]);
    fuzz_end();
    return 0;
}
