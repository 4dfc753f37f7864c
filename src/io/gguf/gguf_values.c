/* The values of a GGUF file's tensors. */
#include "io/gguf/gguf_priv.h"

#include "base/files/fs.h"
#include "io/huggingface/half.h"

#include <string.h>

#define PART_VALUES 16384

static uint16_t half_at(const unsigned char *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static void take_halves(float *out, const unsigned char *bytes, bp_gguf_type type, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        out[k] = type == BP_GGUF_F16 ? bp_float_of_f16(half_at(bytes + 2 * k))
                                     : bp_float_of_bf16(half_at(bytes + 2 * k));
}

/* Values [skip, skip + count) of the blocks: a half times a byte is exact in float32. */
static void take_blocks(float *out, const unsigned char *bytes, int64_t skip, int64_t count)
{
    for (int64_t k = 0; k < count; k++) {
        const unsigned char *block = bytes + (skip + k) / BP_GGUF_BLOCK * GGUF_BLOCK_BYTES;
        int8_t q = (int8_t)block[2 + (skip + k) % BP_GGUF_BLOCK];

        out[k] = bp_float_of_f16(half_at(block)) * (float)q;
    }
}

bp_err bp_gguf_read(const bp_gguf *file, const bp_gguf_tensor *tensor, int64_t first, int64_t count,
                    float *out)
{
    unsigned char part[sizeof(float) * PART_VALUES];

    BP_ASSERT(first >= 0 && count >= 0 && first <= tensor->count && count <= tensor->count - first);
    for (int64_t done = 0, take; done < count; done += take) {
        int64_t at = first + done, skip = tensor->type == BP_GGUF_Q8_0 ? at % BP_GGUF_BLOCK : 0,
                read;

        take = PART_VALUES - skip;
        take = take < count - done ? take : count - done;
        read = skip + take;
        if (tensor->type == BP_GGUF_Q8_0)
            read = (read + BP_GGUF_BLOCK - 1) / BP_GGUF_BLOCK * BP_GGUF_BLOCK;
        if (bp_pread_all(file->fd, part, (size_t)bp_gguf_bytes(tensor->type, read),
                         tensor->place + bp_gguf_bytes(tensor->type, at - skip)) != 0)
            return bp_fail_errno(BP_ERR_IO, "can't read", file->path);
        if (tensor->type == BP_GGUF_F32)
            memcpy(out + done, part, (size_t)take * sizeof *out);
        else if (tensor->type == BP_GGUF_Q8_0)
            take_blocks(out + done, part, skip, take);
        else
            take_halves(out + done, part, tensor->type, take);
    }
    return BP_OK;
}
