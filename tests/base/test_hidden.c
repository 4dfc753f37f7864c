/* Folders that are written before they have their name: what a killed run left goes, what is at
 * work stays. */
#include "bp_test.h"

#include "base/files/fs.h"
#include "base/files/hidden.h"
#include "base/mem.h"

#include <sys/stat.h>
#include <unistd.h>

static void what_is_at_work_stays_and_what_was_left_goes(void **state)
{
    const char *out = bp_test_path("model");
    char *first, *second, *file;
    int one, two;

    bp_test_expect(bp_hidden_make(out, BP_HIDDEN_FOLDER, &first, &one), BP_OK);
    bp_test_expect(bp_hidden_make(out, BP_HIDDEN_FOLDER, &second, &two), BP_OK);
    assert_string_not_equal(first, second);
    file = bp_path_join(second, "model.safetensors");
    bp_test_expect(bp_file_write(file, "x", 1), BP_OK);
    bp_hidden_sweep(out, BP_HIDDEN_FOLDER);
    assert_true(bp_path_is_dir(first));
    assert_true(bp_path_exists(file));
    (void)close(two); /* as a kill does */
    bp_hidden_sweep(out, BP_HIDDEN_FOLDER);
    assert_true(bp_path_is_dir(first));
    assert_false(bp_path_exists(second));
    (void)close(one);
    bp_hidden_sweep(out, BP_HIDDEN_FOLDER);
    assert_false(bp_path_exists(first));
    bp_free(file);
    bp_free(first);
    bp_free(second);
}

static void other_names_stay(void **state)
{
    static const char *const names[] = {".tmp-model-more-0123456789abcdef", ".tmp-model-1",
                                        ".tmp-mode-0123456789abcdef", ".tmp-model-0123456789abcdeg",
                                        "model-0123456789abcdef"};

    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        bp_test_expect(bp_dir_make(bp_test_path(names[k])), BP_OK);
    bp_hidden_sweep(bp_test_path("model"), BP_HIDDEN_FOLDER);
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        assert_true(bp_path_is_dir(bp_test_path(names[k])));
        bp_test_expect(bp_dir_remove(bp_test_path(names[k])), BP_OK);
    }
}

static void no_folder_to_lie_in_is_an_error(void **state)
{
    char *hidden;
    int lock;

    bp_hidden_sweep(bp_test_path("none/model"), BP_HIDDEN_FOLDER);
    bp_test_expect(bp_hidden_make(bp_test_path("none/model"), BP_HIDDEN_FOLDER, &hidden, &lock),
                   BP_ERR_CREATE);
    assert_null(hidden);
    assert_int_equal(lock, -1);
}

/* Last: it holds from then on. */
static void drafts_may_be_hidden_files(void **state)
{
    const char *out = bp_test_path("list");
    char *left;
    int lock;
    bp_draft draft;

    bp_test_expect(bp_hidden_make(out, BP_HIDDEN_FILE, &left, &lock), BP_OK);
    (void)close(lock); /* as a kill does */
    bp_hidden_drafts();
    bp_test_expect(bp_draft_open(&draft, out), BP_OK);
    assert_false(bp_path_exists(left));
    bp_hidden_sweep(out, BP_HIDDEN_FILE); /* another start */
    assert_true(bp_path_exists(draft.temporary));
    bp_test_expect(bp_draft_write(&draft, "x", 1), BP_OK);
    bp_test_expect(bp_draft_commit(&draft), BP_OK);
    assert_int_equal(bp_file_size(out), 1);
    bp_test_expect(bp_file_write(bp_test_path("none/list"), "x", 1), BP_ERR_CREATE);
    bp_free(left);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_at_work_stays_and_what_was_left_goes),
        cmocka_unit_test(other_names_stay),
        cmocka_unit_test(no_folder_to_lie_in_is_an_error),
        cmocka_unit_test(drafts_may_be_hidden_files),
    };
    return BP_TEST_RUN(tests);
}
