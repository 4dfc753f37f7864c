/* Files of n-gram models, after a user block that is made right: what is accepted can be walked by
 * any words, one by one and side by side, and no lookup leads out of the file. */
#include "base/mem.h"
#include "fuzz.h"
#include "models/ngram/ngram_lookup_priv.h"

#include <math.h>
#include <string.h>

#define STEPS 200
#define PARTS 3
#define FEW   4096 /* ids of a vocabulary whose distribution is asked for */

static const char *make_file(const uint8_t *data, size_t bytes)
{
    bp_user_block block = {.kind = NGRAM_FILE_KIND, .version = NGRAM_FILE_VERSION};
    char *file = bp_alloc("fuzz.file", BP_USER_BLOCK_BYTES + (int64_t)bytes, 1);
    const char *path;

    memcpy(file + BP_USER_BLOCK_BYTES, data, bytes);
    path = fuzz_file(file, BP_USER_BLOCK_BYTES + bytes);
    bp_free(file);
    FUZZ_CHECK(bp_user_block_seal(&block, path) == BP_OK);
    return path;
}

static void check_state(const ngram_file *file, ngram_state state)
{
    FUZZ_CHECK(state.order < file->order || file->order == 1);
    FUZZ_CHECK(state.order <= state.history);
    FUZZ_CHECK(state.order == 0 || state.at < file->header.count[state.order - 1]);
}

/* Words that the bytes choose; targets are the next inputs, others, or none. */
static void walk(const ngram_file *file, const uint8_t *data, size_t bytes)
{
    int32_t inputs[STEPS + 1];
    float values[STEPS], one[STEPS];
    ngram_sequence whole = {.inputs = inputs,
                            .targets = inputs + 1,
                            .values = values,
                            .length = STEPS,
                            .eod = (int32_t)(file->V - 1)};
    ngram_state state = ngram_start(file);

    for (size_t k = 0; k <= STEPS; k++)
        inputs[k] = (int32_t)((data[k % bytes] * 7 + k / bytes * 13) % (uint64_t)file->V);
    inputs[0] = whole.eod;
    for (size_t k = 0; k < STEPS; k++) {
        ngram_state next = state;
        int matched;

        if (inputs[k] == whole.eod)
            next = state = ngram_start(file);
        one[k] = (float)(ngram_step(file, &next, (uint32_t)inputs[k + 1], &matched) * M_LN10);
        FUZZ_CHECK(matched >= 1 && matched <= file->order);
        FUZZ_CHECK(!isnan(one[k]));
        check_state(file, next);
        state = next;
    }
    ngram_walk(file, &whole, 1);
    FUZZ_CHECK(memcmp(values, one, sizeof one) == 0);
}

static void ask_all(const ngram_file *file)
{
    float *values = bp_alloc("fuzz.values", file->V, sizeof *values);
    ngram_state states[] = {ngram_start(file), {0}};

    for (int k = 0; k < 2; k++) {
        ngram_distribution(file, states[k], values);
        for (int64_t w = 0; w < file->V; w++) {
            ngram_state next = states[k];
            double value = ngram_step(file, &next, (uint32_t)w, NULL) * M_LN10;

            FUZZ_CHECK(fabs(value - (double)values[w]) <= 1e-5 * fabs(value) + 1e-5);
        }
    }
    bp_free(values);
}

/* Its parts are sound where the whole is, and have all words among them. */
static void open_parts(const char *path, bool whole)
{
    int64_t next = 0;

    for (int part = 0; part < PARTS; part++) {
        ngram_file file;
        bp_err err = ngram_file_open_part(&file, path, part, PARTS);

        fuzz_check_error(err);
        FUZZ_CHECK(err == BP_OK || (err == BP_ERR_FORMAT && !whole));
        if (whole) {
            FUZZ_CHECK(ngram_file_cut(&file, part, PARTS) == next);
            next = ngram_file_cut(&file, part + 1, PARTS);
            FUZZ_CHECK(part + 1 < PARTS || next == file.V + 1);
        }
        ngram_file_close(&file);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path = make_file(data, bytes);
    ngram_file file;
    bp_err err;

    fuzz_begin();
    err = ngram_file_open(&file, path);
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err == BP_OK) {
        walk(&file, data, bytes);
        if (file.V <= FEW)
            ask_all(&file);
    }
    ngram_file_close(&file);
    open_parts(path, err == BP_OK);
    fuzz_end();
    return 0;
}
