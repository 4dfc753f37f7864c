/* metrics.jsonl: eight bytes of a step, then the file as a killed job left it. Opening takes half a
 * line off; the cut leaves whole lines of steps up to that one, and all of those before the first
 * that is none. */
#include "base/mem.h"
#include "coordinator/run_journal_priv.h"
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of the whole lines at the start of data for as long as each is an object with a step up to
 * `step`. */
static size_t good_bytes(const uint8_t *data, size_t bytes, int64_t step)
{
    size_t at = 0;

    for (;;) {
        const uint8_t *end = memchr(data + at, '\n', bytes - at);
        json_t *line, *value;
        bool good;

        if (end == NULL)
            return at;
        if (bp_json_parse(&line, (const char *)data + at, (size_t)(end - data) - at, "twin") !=
            BP_OK)
            return at;
        value = json_object_get(line, "step");
        good = json_is_integer(value) && json_integer_value(value) <= step;
        json_decref(line);
        if (!good)
            return at;
        at = (size_t)(end - data) + 1;
    }
}

/* The journal holds the first `count` bytes of data. */
static void check_prefix(const run_journal *journal, const uint8_t *data, size_t count)
{
    struct stat status;
    uint8_t *held = malloc(count + 1);

    FUZZ_CHECK(held != NULL && fstat(journal->fd, &status) == 0);
    FUZZ_CHECK((size_t)status.st_size == count);
    FUZZ_CHECK(pread(journal->fd, held, count, 0) == (ssize_t)count);
    FUZZ_CHECK(memcmp(held, data, count) == 0);
    free(held);
}

static void add_line(run_journal *journal, int64_t step)
{
    json_t *line = json_pack("{s:I}", "step", (json_int_t)step);

    FUZZ_CHECK(line != NULL && run_journal_add(journal, line) == BP_OK);
    FUZZ_CHECK(run_journal_sync(journal) == BP_OK);
    json_decref(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_bytes in = {data, bytes};
    int64_t step = fuzz_i64(&in);
    const uint8_t *last = in.left > 0 ? memrchr(in.data, '\n', in.left) : NULL;
    size_t whole = last == NULL ? 0 : (size_t)(last - in.data) + 1;
    size_t good = in.left > 0 ? good_bytes(in.data, in.left, step) : 0;
    run_journal journal;

    fuzz_begin();
    (void)fuzz_file_named("metrics.jsonl", in.data, in.left);
    FUZZ_CHECK(run_journal_open(&journal, fuzz_folder(), "metrics.jsonl") == BP_OK);
    check_prefix(&journal, in.data, whole);
    for (int k = 0; k < 2; k++) { /* a second time changes nothing */
        FUZZ_CHECK(run_journal_cut(&journal, step) == BP_OK);
        check_prefix(&journal, in.data, good);
    }
    add_line(&journal, step);
    run_journal_close(&journal);
    fuzz_end();
    return 0;
}
