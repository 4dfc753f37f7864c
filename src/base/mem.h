/* Heap memory: overflow-checked, aligned to 64 bytes, counted by label. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

/** n objects of `size` bytes, zeroed, aligned to 64 bytes (n = 0 gives a valid pointer). Large
 * blocks begin at, and are in, huge pages where the system has them. Never NULL: out of memory ends
 * the job (BP_ERR_SYSTEM, one line, all ranks leave).
 *
 * `label` is a string literal such as "corpus.doc_start"; the balance is kept by label. Free with
 * bp_free().
 */
void *bp_alloc(const char *label, int64_t n, size_t size);

/** Grow or shrink memory from bp_alloc (or NULL); keeps the content, new bytes are zero. Never
 * NULL.
 */
void *bp_realloc(const char *label, void *p, int64_t n, size_t size);

/** The same for a list of *capacity items: if that is less than `needed`, the list and *capacity
 * at least double. */
void *bp_grow(const char *label, void *p, int64_t *capacity, int64_t needed, size_t size);

/** bp_alloc and bp_realloc for a large block that the user's input sizes: NULL when out of memory,
 * so that the caller reports what it was for (bp_fail_memory). */
void *bp_try_alloc(const char *label, int64_t n, size_t size);
void *bp_try_realloc(const char *label, void *p, int64_t n, size_t size);

/** Free memory from bp_alloc; NULL is accepted. */
void bp_free(void *p);

/** A copy of a string, and printf into a new string. Never NULL. Free with bp_free(). */
char *bp_strdup(const char *s);
char *bp_sprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *bp_vsprintf(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));

/** Bytes allocated now and at the highest point, all labels together. */
size_t bp_mem_now_bytes(void);
size_t bp_mem_peak_bytes(void);

/** Write a "label bytes" line to `out` for each label with memory still allocated; returns their
 * number. */
int bp_mem_balance(char *out, size_t out_bytes);

/** Resident memory of this process now (VmRSS) and at its peak (VmHWM), in bytes; 0 if not
 * known. */
size_t bp_mem_resident_bytes(void);
size_t bp_mem_resident_peak_bytes(void);
/** Reset the peak to the memory resident now. Does nothing where the kernel does not allow it. */
void bp_mem_resident_peak_reset(void);

/** One block of memory, sized in advance and handed out without freeing: a step allocates
 * nothing. */
typedef struct bp_arena {
    char *base;
    size_t size_bytes;
    size_t used_bytes;
} bp_arena;

#define BP_ARENA_ALIGN 64

/** Bytes that `n` objects of `size` take in an arena, alignment included. */
size_t bp_arena_bytes(int64_t n, size_t size);

/** Take uninitialised space for n objects; BP_ASSERTs that the plan was large enough. */
void *bp_arena_take(bp_arena *arena, int64_t n, size_t size);

/** Space in an arena. With arena->base NULL it only counts the size and returns NULL, so that one
 * function both measures and lays out memory. */
void *bp_arena_place(bp_arena *arena, int64_t n, size_t size);
float *bp_arena_floats(bp_arena *arena, int64_t floats);
