/* safetensors: what is accepted has all its tensors inside the file, side by side. Inputs that
 * begin with '{' are a header without its length, ended by a newline; then data. Others are files
 * as they are. */
#include "base/mem.h"
#include "fuzz.h"
#include "io/huggingface/safetensors.h"

#include <math.h>
#include <string.h>

#define CAPACITY 64

static int64_t data_bytes; /* of the file under test, where its header fits it */

static const char *make_file(const uint8_t *data, size_t bytes)
{
    const uint8_t *end = bytes > 0 && data[0] == '{' ? memchr(data, '\n', bytes) : NULL;
    uint64_t header = end == NULL ? 0 : (size_t)(end - data);
    uint8_t *file;
    const char *path;

    if (end == NULL) {
        uint64_t length = 0;

        memcpy(&length, data, bytes < 8 ? bytes : 8);
        data_bytes = (int64_t)bytes - 8 - (length < bytes ? (int64_t)length : 0);
        return fuzz_file(data, bytes);
    }
    data_bytes = (int64_t)(bytes - header - 1);
    file = bp_alloc("fuzz.file", (int64_t)bytes + 8, 1);
    FUZZ_CHECK(file != NULL);
    memcpy(file, &header, 8);
    memcpy(file + 8, data, header);
    memcpy(file + 8 + header, end + 1, (size_t)data_bytes);
    path = fuzz_file(file, 8 + header + (size_t)data_bytes);
    bp_free(file);
    return path;
}

/* The first and the last values; those of a float type are finite, or refused. */
static void read_some(bp_safetensors *file, const bp_safetensor *tensor)
{
    float values[CAPACITY];
    int64_t count = tensor->count < CAPACITY ? tensor->count : CAPACITY;
    int64_t firsts[2] = {0, tensor->count - count};

    for (int k = 0; k < 2; k++) {
        bp_err err = bp_safetensors_read(file, tensor, firsts[k], count, values);

        fuzz_check_error(err);
        FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
        for (int64_t i = 0; err == BP_OK && i < count; i++)
            FUZZ_CHECK(isfinite(values[i]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path;
    bp_safetensors *file;
    int64_t sum = 0;
    bp_err err;

    fuzz_begin();
    path = make_file(data, bytes);
    err = bp_safetensors_open(&file, path);
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err == BP_OK) {
        for (int64_t k = 0; k < bp_safetensors_count(file); k++) {
            const bp_safetensor *tensor = bp_safetensors_at(file, k);

            FUZZ_CHECK(tensor->first == sum && tensor->bytes >= 0);
            sum += tensor->bytes;
            FUZZ_CHECK(sum <= data_bytes);
            FUZZ_CHECK(bp_safetensors_find(file, tensor->name) == tensor);
            read_some(file, tensor);
        }
        FUZZ_CHECK(sum == data_bytes);
        FUZZ_CHECK(bp_safetensors_find(file, "\x01") == NULL);
        FUZZ_CHECK(strcmp(bp_safetensors_path(file), path) == 0);
    }
    bp_safetensors_close(&file);
    fuzz_end();
    return 0;
}
