#include "base/buffer.h"
#include "base/fault.h"
#include "bp_test.h"
#include <unistd.h>
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define LOOKS_ON
#endif
#endif

#ifdef BP_TEST_SANITIZED
#define SHADOW 8 /* bytes that a sanitizer may keep of each that is touched */
#else
#define SHADOW 0
#endif

static void blocks_are_zeroed_and_aligned(void **state)
{
    for (int64_t n = 0; n < 5000; n += 499) {
        unsigned char *p = bp_alloc("test.block", n, 3);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (int64_t i = 0; i < 3 * n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, (size_t)(3 * n)); /* so that reuse would show */
        bp_free(p);
    }
    bp_free(NULL);
}

static void large_blocks_are_zeroed_and_take_no_more_than_they_have(void **state)
{
    const int64_t bytes = (INT64_C(9) << 20) + 12345;

    for (int k = 0; k < 3; k++) { /* a freed one comes again */
        bp_mem_resident_peak_reset();
        size_t before = bp_mem_resident_peak_bytes();
        unsigned char *p = bp_alloc("test.large", bytes, 1), any = 0;
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (int64_t i = 0; i < bytes; i++)
            any |= p[i];
        assert_int_equal(any, 0);
        memset(p, 0xff, (size_t)bytes);
        assert_true(bp_mem_resident_peak_bytes() <=
                    before + (1 + SHADOW) * (size_t)bytes + (1 << 19));
        p = bp_realloc("test.large", p, bytes / 4, 1); /* it becomes a small one */
        assert_non_null(p);
        assert_int_equal(p[bytes / 4 - 1], 0xff);
        bp_free(p);
    }
    assert_int_equal(bp_mem_now_bytes(), 0);
}

static void sizes_that_overflow_give_null(void **state)
{
    assert_null(bp_try_alloc("test.block", INT64_MAX, 3));
    assert_null(bp_try_alloc("test.block", INT64_MAX, 1));
    assert_null(bp_try_alloc("test.block", -1, 1));
    assert_null(bp_try_alloc("test.block", 2, SIZE_MAX));
    assert_int_equal(bp_mem_now_bytes(), 0);
}

static void realloc_keeps_content_and_zeroes_the_rest(void **state)
{
    int *p = bp_realloc("test.grow", NULL, 10, sizeof(*p));
    assert_non_null(p);
    for (int i = 0; i < 10; i++)
        p[i] = i + 1;
    int *q = bp_realloc("test.grow", p, 1000, sizeof(*p));
    assert_non_null(q);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(q[i], i < 10 ? i + 1 : 0);
    q = bp_realloc("test.grow", q, 5, sizeof(*p));
    assert_non_null(q);
    assert_int_equal(q[4], 5);
    assert_int_equal(bp_mem_now_bytes(), 5 * sizeof(*p));
    assert_null(bp_try_realloc("test.grow", q, -1, 1)); /* and the old block stands */
    assert_int_equal(q[4], 5);
    bp_free(q);
}

static void balance_is_kept_by_label(void **state)
{
    char text[256];

    size_t before = bp_mem_peak_bytes();
    void *a = bp_alloc("test.a", 1000, 8), *b = bp_alloc("test.b", 1, 8);
    assert_true(bp_mem_peak_bytes() >= before && bp_mem_peak_bytes() >= 8008);
    assert_int_equal(bp_mem_now_bytes(), 8008);
    assert_int_equal(bp_mem_balance(text, sizeof text), 2);
    assert_non_null(strstr(text, "test.a 8000\n"));
    assert_non_null(strstr(text, "test.b 8\n"));
    bp_free(a);
    assert_int_equal(bp_mem_balance(text, sizeof text), 1);
    assert_string_equal(text, "test.b 8\n");
    bp_free(b);
    assert_int_equal(bp_mem_balance(text, sizeof text), 0);
    assert_string_equal(text, "");
    assert_true(bp_mem_peak_bytes() >= 8008);
}

static void short_memory_can_be_injected(void **state)
{
    bp_fault_arm("base.alloc:2");
    void *a = bp_try_alloc("test.a", 1, 1);
    assert_non_null(a);
    assert_null(bp_try_alloc("test.a", 1, 1));
    bp_fault_arm(NULL);
    bp_free(a);
}

static void resident_peak_covers_what_was_touched(void **state)
{
    size_t bytes = (size_t)64 << 20;

    char *p = bp_alloc("test.big", (int64_t)bytes, 1);
    assert_non_null(p);
    memset(p, 1, bytes);
    assert_true(p[bytes - 1] == 1);
    bp_free(p);
    assert_true(bp_mem_resident_peak_bytes() >= bytes);
    assert_true(bp_mem_resident_peak_bytes() < (size_t)1 << 40);
}

static void resident_peak_begins_anew(void **state)
{
    size_t bytes = (size_t)64 << 20;
    char *block;

#ifdef BP_TEST_SANITIZED
    bp_test_skip("the sanitizer keeps freed memory");
#endif
    block = bp_alloc("test", 1, bytes);
    if (access("/proc/self/clear_refs", W_OK) != 0) {
        bp_free(block);
        bp_test_skip("the kernel does not let the peak begin anew");
    }
    memset(block, 1, bytes);
    size_t before = bp_mem_resident_peak_bytes();
    bp_free(block); /* a block of this size goes back to the system at once */
    bp_mem_resident_peak_reset();
    assert_true(bp_mem_resident_peak_bytes() < before - bytes / 2);
}

static void strings_are_copied_and_printed(void **state)
{
    char *copy = bp_strdup("text"), *printed = bp_sprintf("%s-%03d", "step", 7);
    assert_string_equal(copy, "text");
    assert_string_equal(printed, "step-007");
    bp_free(copy);
    bp_free(printed);
}

static void arena_hands_out_what_was_planned(void **state)
{
    static char space[1024] __attribute__((aligned(64)));

    assert_int_equal(bp_arena_bytes(1, 1), 64);
    assert_int_equal(bp_arena_bytes(64, 1), 64);
    assert_int_equal(bp_arena_bytes(17, 4), 128);
    assert_int_equal(bp_arena_bytes(0, 4), 0);
    bp_arena arena = {space, bp_arena_bytes(17, 4) + bp_arena_bytes(3, 8), 0};
    float *a = bp_arena_take(&arena, 17, sizeof(float));
    double *b = bp_arena_take(&arena, 3, sizeof(double));
    assert_ptr_equal(a, space);
    assert_ptr_equal(b, space + 128);
    assert_int_equal(arena.used_bytes, arena.size_bytes);
}

static void bytes_beside_a_block_are_forbidden(void **state)
{
#ifdef LOOKS_ON
    for (int64_t n = 1; n < 300; n++) {
        char *p = bp_alloc("test.block", n, 1);
        assert_null(__asan_region_is_poisoned(p, (size_t)n));
        assert_true(__asan_address_is_poisoned(p + n));
        assert_true(__asan_address_is_poisoned(p - 1));
        p = bp_realloc("test.block", p, n + 5, 1);
        assert_null(__asan_region_is_poisoned(p, (size_t)n + 5));
        assert_true(__asan_address_is_poisoned(p + n + 5));
        bp_free(p);
    }
    bp_arena arena = {bp_alloc("test.arena", 1024, 1), 1024, 0};
    for (int64_t n = 63; n > 0; n--, arena.used_bytes = 0) { /* space is used again */
        char *p = bp_arena_take(&arena, n, 1), *next = bp_arena_take(&arena, 2 * n, 1);
        assert_null(__asan_region_is_poisoned(p, (size_t)n));
        assert_true(__asan_address_is_poisoned(p + n));
        assert_null(__asan_region_is_poisoned(next, (size_t)(2 * n)));
    }
    bp_free(arena.base);
#else
    bp_test_skip("for builds with AddressSanitizer");
#endif
}

static void buffer_grows_and_is_taken(void **state)
{
    bp_buffer buffer = {0};

    char *empty = bp_buffer_take(&buffer);
    assert_string_equal(empty, "");
    bp_free(empty);
    for (int i = 0; i < 1000; i++)
        bp_buffer_printf(&buffer, "%d,", i);
    bp_buffer_add(&buffer, "end", 3);
    assert_int_equal(buffer.bytes, 10 * 2 + 90 * 3 + 900 * 4 + 3);
    char *text = bp_buffer_take(&buffer);
    assert_memory_equal(text, "0,1,2,", 6);
    assert_string_equal(text + strlen(text) - 7, "999,end");
    bp_free(text);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_zeroed_and_aligned),
        cmocka_unit_test(large_blocks_are_zeroed_and_take_no_more_than_they_have),
        cmocka_unit_test(sizes_that_overflow_give_null),
        cmocka_unit_test(realloc_keeps_content_and_zeroes_the_rest),
        cmocka_unit_test(balance_is_kept_by_label),
        cmocka_unit_test(short_memory_can_be_injected),
        cmocka_unit_test(resident_peak_covers_what_was_touched),
        cmocka_unit_test(resident_peak_begins_anew),
        cmocka_unit_test(strings_are_copied_and_printed),
        cmocka_unit_test(arena_hands_out_what_was_planned),
        cmocka_unit_test(bytes_beside_a_block_are_forbidden),
        cmocka_unit_test(buffer_grows_and_is_taken),
    };
    return BP_TEST_RUN(tests);
}
