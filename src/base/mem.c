/* The heap: counted by label, checked for overflow, huge pages for large blocks. */
#include "base/mem.h"
#include "base/bounds.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/pages.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN      64
#define MAX_LABELS 1024 /* a power of two; labels are literals in the code, a few hundred */
#define MAGIC      UINT64_C(0xba6b1bea110ca7ed)

/* The header in the 64 bytes before the memory handed out. */
typedef struct block_head {
    uint64_t magic;
    void *raw;        /* what calloc or bp_pages_take returned, */
    size_t raw_bytes; /* the latter; 0: calloc */
    size_t bytes;
    struct label *label;
} block_head;

typedef struct label {
    const char *name; /* NULL: free place */
    size_t now_bytes;
} label;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static label labels[MAX_LABELS];
static label other = {"(other labels)", 0};
static size_t now_bytes, peak_bytes;

/* The label's place in the hash table; called with the lock held. */
static label *find_label(const char *name)
{
    uint32_t hash = 2166136261u;

    for (const char *p = name; *p != 0; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    for (uint32_t i = 0; i < MAX_LABELS; i++) {
        label *at = &labels[(hash + i) % MAX_LABELS];
        if (!at->name)
            at->name = name;
        if (at->name == name || strcmp(at->name, name) == 0)
            return at;
    }
    return &other;
}

static void lock_labels(void)
{
    BP_CHECK(pthread_mutex_lock(&lock) == 0);
}

static void unlock_labels(void)
{
    BP_CHECK(pthread_mutex_unlock(&lock) == 0);
}

static bool total_bytes(size_t *bytes, int64_t n, size_t size)
{
    if (n < 0 || __builtin_mul_overflow((size_t)n, size, bytes))
        return false;
    return *bytes <= SIZE_MAX - 2 * ALIGN;
}

static block_head *head_of(void *p)
{
    block_head *head = (block_head *)(void *)((char *)p - ALIGN);

    BP_ASSERT(head->magic == MAGIC); /* not from bp_alloc, freed twice, or overwritten */
    return head;
}

/* Zeroed; its header precedes it in ALIGN bytes. Large blocks are fresh pages, which cost nothing
 * until they are touched. */
static char *take_block(size_t bytes, void **raw, size_t *raw_bytes)
{
    char *p = bytes >= BP_PAGES_LEAST ? bp_pages_take(bytes, ALIGN, raw, raw_bytes) : NULL;

    if (p)
        return p;
    *raw_bytes = 0;
    *raw = calloc(1, bytes + 2 * ALIGN);
    if (!*raw)
        return NULL;
    p = (char *)*raw + 2 * ALIGN - (uintptr_t)*raw % ALIGN;
    bp_bounds_set(p + bytes, 0, (uintptr_t)*raw % ALIGN);
    return p;
}

static void *take(const char *name, int64_t n, size_t size)
{
    size_t bytes, raw_bytes;
    void *raw;

    if (!total_bytes(&bytes, n, size))
        return NULL;
    char *p = take_block(bytes, &raw, &raw_bytes);
    if (!p)
        return NULL;
    block_head *head = (block_head *)(void *)(p - ALIGN);
    lock_labels();
    *head = (block_head){MAGIC, raw, raw_bytes, bytes, find_label(name)};
    head->label->now_bytes += bytes;
    now_bytes += bytes;
    if (now_bytes > peak_bytes)
        peak_bytes = now_bytes;
    unlock_labels();
    bp_bounds_set(head, sizeof(*head), ALIGN - sizeof(*head));
    return p;
}

void *bp_try_alloc(const char *name, int64_t n, size_t size)
{
    return bp_fault("base.alloc") ? NULL : take(name, n, size);
}

void *bp_alloc(const char *name, int64_t n, size_t size)
{
    void *p = take(name, n, size);

    if (!p)
        bp_memory_ended(name, n, size);
    return p;
}

static void *move(void *q, void *p)
{
    if (!p || !q)
        return q;
    size_t bytes = head_of(p)->bytes, new_bytes = head_of(q)->bytes;
    memcpy(q, p, new_bytes < bytes ? new_bytes : bytes);
    bp_free(p);
    return q;
}

void *bp_try_realloc(const char *name, void *p, int64_t n, size_t size)
{
    return move(bp_try_alloc(name, n, size), p);
}

void *bp_realloc(const char *name, void *p, int64_t n, size_t size)
{
    return move(bp_alloc(name, n, size), p);
}

void *bp_grow(const char *name, void *p, int64_t *capacity, int64_t needed, size_t size)
{
    if (needed <= *capacity)
        return p;
    *capacity = needed > 2 * *capacity ? needed : 2 * *capacity;
    if (*capacity < 16)
        *capacity = 16;
    return bp_realloc(name, p, *capacity, size);
}

void bp_free(void *p)
{
    if (!p)
        return;
    block_head *head = head_of(p);
    lock_labels();
    head->label->now_bytes -= head->bytes;
    now_bytes -= head->bytes;
    unlock_labels();
    head->magic = 0;
    if (head->raw_bytes > 0)
        bp_pages_free(head->raw, head->raw_bytes);
    else
        free(head->raw);
}

char *bp_strdup(const char *s)
{
    size_t bytes = strlen(s) + 1;

    return memcpy(bp_alloc("base.string", (int64_t)bytes, 1), s, bytes);
}

char *bp_vsprintf(const char *format, va_list arguments)
{
    va_list again;

    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    BP_ASSERT(length >= 0);
    char *out = bp_alloc("base.string", (int64_t)length + 1, 1);
    (void)vsnprintf(out, (size_t)length + 1, format, again);
    va_end(again);
    return out;
}

char *bp_sprintf(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    char *out = bp_vsprintf(format, arguments);
    va_end(arguments);
    return out;
}

size_t bp_mem_now_bytes(void)
{
    lock_labels();
    size_t bytes = now_bytes;
    unlock_labels();
    return bytes;
}

size_t bp_mem_peak_bytes(void)
{
    lock_labels();
    size_t bytes = peak_bytes;
    unlock_labels();
    return bytes;
}

int bp_mem_balance(char *out, size_t out_bytes)
{
    size_t used = 0;
    int count = 0;

    if (out_bytes > 0)
        out[0] = 0;
    lock_labels();
    for (int i = 0; i <= MAX_LABELS; i++) {
        const label *at = i < MAX_LABELS ? &labels[i] : &other;
        if (at->now_bytes == 0)
            continue;
        count++;
        if (used >= out_bytes)
            continue;
        int wrote = snprintf(out + used, out_bytes - used, "%s %zu\n", at->name, at->now_bytes);
        if (wrote > 0)
            used += (size_t)wrote;
    }
    unlock_labels();
    return count;
}

/* A line of /proc/self/status, "VmRSS:  1234 kB". */
static size_t status_bytes(const char *name)
{
    FILE *file = fopen("/proc/self/status", "r");
    char line[256];
    size_t kib = 0;

    if (!file)
        return 0;
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, name, strlen(name)) == 0) {
            kib = strtoull(line + strlen(name), NULL, 10);
            break;
        }
    (void)fclose(file); /* only read from */
    return kib * 1024;
}

size_t bp_mem_resident_bytes(void)
{
    return status_bytes("VmRSS:");
}

size_t bp_mem_resident_peak_bytes(void)
{
    return status_bytes("VmHWM:");
}

void bp_mem_resident_peak_reset(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w"); /* 5: VmHWM := VmRSS, proc(5) */

    if (!file)
        return;
    (void)fputs("5\n", file);
    (void)fclose(file);
}

size_t bp_arena_bytes(int64_t n, size_t size)
{
    size_t bytes;
    bool fits = total_bytes(&bytes, n, size);

    BP_ASSERT(fits);
    return (bytes + BP_ARENA_ALIGN - 1) / BP_ARENA_ALIGN * BP_ARENA_ALIGN;
}

void *bp_arena_take(bp_arena *arena, int64_t n, size_t size)
{
    size_t bytes = bp_arena_bytes(n, size), used = (size_t)n * size;

    BP_ASSERT(bytes <= arena->size_bytes - arena->used_bytes);
    void *p = arena->base + arena->used_bytes;
    bp_bounds_set(p, used, bytes - used);
    arena->used_bytes += bytes;
    return p;
}

void *bp_arena_place(bp_arena *arena, int64_t n, size_t size)
{
    if (arena->base)
        return bp_arena_take(arena, n, size);
    arena->used_bytes += bp_arena_bytes(n, size);
    return NULL;
}

float *bp_arena_floats(bp_arena *arena, int64_t floats)
{
    return bp_arena_place(arena, floats, sizeof(float));
}
