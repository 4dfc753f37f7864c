/* Configurations read from texts, for the tests of src/base/config. */
#include "config_texts.h"

bp_config *new_config(void)
{
    bp_config *config;

    bp_test_expect(bp_config_new(&config, all_tables, used_tables), BP_OK);
    return config;
}

bp_err read_text(bp_config *config, const char *text)
{
    return bp_config_read(config, bp_test_write("test.ini", text, strlen(text)), 0, NULL);
}

bp_err try_text(const char *text)
{
    bp_config *config = new_config();
    bp_err err = read_text(config, text);

    bp_config_free(&config);
    assert_null(config);
    return err;
}

bp_err try_argument(const char *argument)
{
    bp_config *config = new_config();
    char copy[8192], *arguments[] = {copy};

    (void)snprintf(copy, sizeof copy, "%s", argument);
    bp_err err = bp_config_read(config, NULL, 1, arguments);
    bp_config_free(&config);
    return err;
}

int count_lines(const char *text)
{
    int lines = 1;

    for (; *text != 0; text++)
        lines += *text == '\n';
    return lines;
}
