/* JSON: what is accepted prints canonically, and reads back as the same. */
#include "base/config/json.h"
#include "base/mem.h"
#include "fuzz.h"

#include <string.h>

/* The typed members of an object: each getter gives the value or names what is wrong. */
static void look_at_members(json_t *object)
{
    const char *key, *text;
    json_t *value;
    int64_t integer;
    double real;
    bool truth;

    json_object_foreach(object, key, value)
    {
        FUZZ_CHECK((bp_json_get_int(object, key, &integer, "f") == BP_OK) ==
                   (json_is_integer(value) != 0));
        FUZZ_CHECK((bp_json_get_real(object, key, &real, "f") == BP_OK) ==
                   (json_is_number(value) != 0));
        FUZZ_CHECK((bp_json_get_string(object, key, &text, "f") == BP_OK) ==
                   (json_is_string(value) != 0));
        FUZZ_CHECK((bp_json_get_bool(object, key, &truth, "f") == BP_OK) ==
                   (json_is_boolean(value) != 0));
    }
    FUZZ_CHECK(bp_json_get_int(object, "\x01 is no key of it", &integer, "f") == BP_ERR_FORMAT);
    fuzz_check_error(BP_ERR_FORMAT);
}

static void read_again(const json_t *value, const char *text)
{
    json_t *again;
    char *text_again;

    FUZZ_CHECK(text != NULL);
    FUZZ_CHECK(bp_json_parse(&again, text, strlen(text), "again") == BP_OK);
    FUZZ_CHECK(json_equal(again, value));
    text_again =
        strchr(text, '\n') == text + strlen(text) - 1 ? bp_json_line(again) : bp_json_text(again);
    FUZZ_CHECK(strcmp(text, text_again) == 0);
    bp_free(text_again);
    json_decref(again);
}

/* Of whole JSON: what is left when members of other names are taken out of `value`. */
static void keep_some(json_t *value)
{
    json_t *one;
    const char *key;
    void *next;
    size_t k;

    json_array_foreach(value, k, one) keep_some(one);
    json_object_foreach_safe(value, next, key, one)
    {
        if (strcmp(key, "a") == 0 || strcmp(key, "text") == 0)
            keep_some(one);
        else
            (void)json_object_del(value, key);
    }
}

/* Some members of any text are those of the whole, where that is JSON; else there is no more than a
 * value or none. */
static void read_some(const char *text, size_t bytes, const json_t *whole)
{
    static const char *const keys[] = {"a", "text"};
    json_error_t where;
    json_t *some =
        bp_json_members(text, bytes, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, keys, 2, &where);

    if (whole != NULL) {
        json_t *expected = json_deep_copy(whole);

        keep_some(expected);
        FUZZ_CHECK(some != NULL && json_equal(some, expected));
        json_decref(expected);
    }
    json_decref(some);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    json_t *value;
    char *text, *line;
    bp_err err;

    fuzz_begin();
    err = bp_json_parse(&value, (const char *)data, bytes, "fuzz.json");
    fuzz_check_error(err);
    read_some((const char *)data, bytes, err == BP_OK ? value : NULL);
    if (err == BP_OK) {
        text = bp_json_text(value);
        line = bp_json_line(value);
        read_again(value, text);
        FUZZ_CHECK(line != NULL && strchr(line, '\n') == line + strlen(line) - 1);
        read_again(value, line);
        if (json_is_object(value))
            look_at_members(value);
        bp_free(text);
        bp_free(line);
        json_decref(value);
    }
    fuzz_end();
    return 0;
}
