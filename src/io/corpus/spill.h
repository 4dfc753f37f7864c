/* A spill: bytes added at the end and read back later, in memory while they are few, then in an
 * unlinked file. For data that grows with the number of documents. Local: no MPI. */
#pragma once

#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

typedef struct bp_spill bp_spill;

/** Its file is created in `folder`, beside the output, once `memory_bytes` are exceeded. Copied. */
bp_spill *bp_spill_new(const char *folder, size_t memory_bytes);
void bp_spill_free(bp_spill **spill);

/** Errors: BP_ERR_IO disk full, BP_ERR_DENIED, BP_ERR_CREATE, BP_ERR_SYSTEM. */
bp_err bp_spill_add(bp_spill *spill, const void *data, size_t bytes);

/** data[bytes] from `offset` on; reading past the end is a bug. Errors: BP_ERR_IO. */
bp_err bp_spill_read(bp_spill *spill, int64_t offset, void *data, size_t bytes);

/** Bytes before `end` are not read again: gives their memory and disk back, where the file system
 * can. */
void bp_spill_forget(bp_spill *spill, int64_t end);
