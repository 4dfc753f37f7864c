/* The loss of the model just written, on the validation corpus, computed by all ranks. Called last
 * by ngram.c. */
#include "models/ngram/ngram_count_priv.h"

#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "mesh/collective.h"
#include "models/ngram/ngram_lookup_priv.h"

#include <math.h>

#define BLOCK ((int64_t)1 << 16) /* tokens of a partial sum, on any rank */

/* -sum of log10 over tokens [first, end). Earlier tokens are the first ones' histories. */
static bp_err sum_block(const bp_counting *counting, const ngram_file *file, int64_t first,
                        int64_t end, int32_t *tokens, double *sum)
{
    int64_t before = first < file->order - 1 ? first : file->order - 1, at = first - before;
    ngram_state state = at == 0 ? ngram_start(file) : (ngram_state){0};
    bp_err err = counting->read_valid(counting->context, at, end - at, tokens);

    *sum = 0;
    for (int64_t k = 0; k < end - at && err == BP_OK; k++) {
        double log10_prob = ngram_step(file, &state, (uint32_t)tokens[k], NULL);

        if (k >= before)
            *sum -= NGRAM_IS_ZERO(log10_prob) ? -INFINITY : log10_prob;
        if (tokens[k] == counting->eod_id)
            state = ngram_start(file);
    }
    return err;
}

static bp_err sum_blocks(const bp_counting *counting, const char *path, double *sums,
                         int64_t blocks)
{
    int64_t rank = bp_comm_rank(counting->comm), size = bp_comm_size(counting->comm);
    int32_t *tokens = bp_alloc("ngram.validate", BLOCK + NGRAM_ORDER_MOST, sizeof *tokens);
    ngram_file file;
    bp_err err = ngram_file_open(&file, path);

    for (int64_t b = rank; b < blocks && err == BP_OK; b += size) {
        int64_t first = b * BLOCK, end = first + BLOCK;

        end = end < counting->valid_tokens ? end : counting->valid_tokens;
        bp_heartbeat_progress();
        counting->progress(counting->context, "validating", b, blocks);
        err = bp_counting_check_stop(counting, "validating");
        if (err == BP_OK)
            err = sum_block(counting, &file, first, end, tokens, &sums[b]);
    }
    ngram_file_close(&file);
    bp_free(tokens);
    return err;
}

bp_err ngram_validate(bp_counting *counting, const char *path)
{
    int64_t blocks = (counting->valid_tokens + BLOCK - 1) / BLOCK;
    double *sums = bp_alloc("ngram.validate", blocks, sizeof *sums), sum = 0;
    bp_err err = bp_agree(counting->comm, sum_blocks(counting, path, sums, blocks));

    if (err == BP_OK) { /* each has one nonzero addend, and they are added in order */
        bp_all_sum_double(sums, blocks, counting->comm);
        for (int64_t b = 0; b < blocks; b++)
            sum += sums[b];
        counting->valid_loss = sum * M_LN10 / (double)counting->valid_tokens;
    }
    bp_free(sums);
    return err;
}
