/* metrics.jsonl: eight bytes of a step, then the file as somebody left it. Opening takes half a
 * line off, or ends what is none; the cut leaves all up to the last line in order of steps up to
 * that one. */
#include "base/mem.h"
#include "fuzz.h"
#include "run/run_journal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t step_of(const uint8_t *text, size_t bytes)
{
    json_t *line = NULL, *value;
    int64_t step = -1;

    if (bp_json_parse(&line, (const char *)text, bytes, "twin") == BP_OK) {
        value = json_object_get(line, "step");
        step = json_is_integer(value) ? json_integer_value(value) : -1;
    }
    json_decref(line);
    return step;
}

/* The end of the last whole line whose step is above those of all such lines before, and at most
 * `step`. */
static size_t good_bytes(const uint8_t *data, size_t bytes, int64_t step)
{
    const uint8_t *end, *from = data;
    int64_t highest = 0;
    size_t good = 0;

    while ((end = memchr(from, '\n', bytes - (size_t)(from - data))) != NULL) {
        int64_t own = step_of(from, (size_t)(end - from));

        from = end + 1;
        if (own > highest && own <= step) {
            highest = own;
            good = (size_t)(from - data);
        }
    }
    return good;
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
    bool torn = whole < in.left && (in.data[whole] == '{' || in.data[whole] == '\0');
    uint8_t *ended = malloc(in.left + 1); /* what opening makes of it */
    size_t good;
    run_journal journal;

    FUZZ_CHECK(ended != NULL);
    if (in.left > 0)
        memcpy(ended, in.data, in.left);
    ended[in.left] = '\n';
    if (!torn && whole < in.left)
        whole = in.left + 1;
    good = good_bytes(ended, whole, step);
    fuzz_begin();
    (void)fuzz_file_named("metrics.jsonl", in.data, in.left);
    FUZZ_CHECK(run_journal_open(&journal, fuzz_folder(), "metrics.jsonl") == BP_OK);
    check_prefix(&journal, ended, whole);
    for (int k = 0; k < 2; k++) { /* a second time changes nothing */
        FUZZ_CHECK(run_journal_cut(&journal, step, 0) == BP_OK);
        check_prefix(&journal, ended, good);
    }
    add_line(&journal, step);
    run_journal_close(&journal);
    free(ended);
    fuzz_end();
    return 0;
}
