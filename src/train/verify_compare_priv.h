/* Two runs of one training, compared bit by bit. */
#ifndef BP_TRAIN_VERIFY_COMPARE_PRIV_H
#define BP_TRAIN_VERIFY_COMPARE_PRIV_H

#include "base/err.h"
#include "base/hash.h"

#include <stdint.h>

/** The checkpoints of `step` have equal tensors, and metrics.jsonl equal lines but for what a clock
 *  says. digest: of the model (both runs' files are verified first). Local, but for MPI_COMM_SELF.
 *  Errors: BP_ERR_SOFTWARE, with the first tensor or metric that differs, and both values; those of
 *  bp_checkpoint_open and bp_file_read. */
bp_err verify_compare(const char *straight, const char *resumed, int64_t step,
                      char digest[BP_SHA256_HEX]);

/** The text of the last line of a file that tells an error, else the last line; "" where there is
 * none. Free with bp_free(); NULL: memory is short. */
char *verify_last_words(const char *path);

#endif
