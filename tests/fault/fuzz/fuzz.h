/* What the fuzz targets share. A target is a function from bytes to checks: libFuzzer looks for
 * bytes that break them (BAGPIPE_FUZZ, run.sh), and replay.c feeds it the seeds in every build. */
#pragma once

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The target. Always returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/** A promise of the code under test: where it does not hold, say so and abort. */
#define FUZZ_CHECK(condition) ((condition) ? (void)0 : fuzz_broken(#condition, __FILE__, __LINE__))
void fuzz_broken(const char *condition, const char *file, int line) __attribute__((noreturn));

/** Around each input: what bp_alloc gave must have come back. What is made once is made before
 * fuzz_begin. */
void fuzz_begin(void);
void fuzz_end(void);

/** `err` is an exit status of the contract but BP_ERR_SOFTWARE, which is a bug of ours; a failure
 * has a message of printable lines, one of them unless a configuration is wrong, none beyond
 * BP_ERR_LINE_BYTES. */
void fuzz_check_error(bp_err err);

/** A file with this content, always the same one; its path. */
const char *fuzz_file(const void *data, size_t bytes);
/** A folder of this process, for files that need names. */
const char *fuzz_folder(void);
/** Write `name` in it; its path, good for four more calls. */
const char *fuzz_file_named(const char *name, const void *data, size_t bytes);

/** libFuzzer's counters of this program; none in other builds. */
char *fuzz_counters(size_t *count);

/* ---- an input taken apart: what is missing is zero ---- */

typedef struct fuzz_bytes {
    const uint8_t *data;
    size_t left;
} fuzz_bytes;

uint8_t fuzz_u8(fuzz_bytes *in);
uint16_t fuzz_u16(fuzz_bytes *in);
int64_t fuzz_i64(fuzz_bytes *in);
/** From 0 to n - 1, of one byte (n <= 256) or two; 0 < n <= 65536. */
int fuzz_below(fuzz_bytes *in, int n);
