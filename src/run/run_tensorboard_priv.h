/* The figures of metrics.jsonl for TensorBoard, in RUN/tensorboard. Local. */
#pragma once

#include "run/run_journal.h"

/** Open a new event file, sorted after existing ones. It begins with the start of training at
 * `step`: TensorBoard drops values of that step and later ones in earlier files. Close with
 * run_journal_close(), also after an error.
 *
 * Errors: BP_ERR_CREATE, BP_ERR_DENIED, BP_ERR_IO, BP_ERR_SYSTEM.
 * Source: the format of TensorFlow's record files and TensorBoard's event.proto. */
bp_err run_tensorboard_open(run_journal *out, const char *run_dir, int64_t step);
/** Append the figures of a line of metrics.jsonl, all or nothing; null figures are left out.
 * Errors: BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err run_tensorboard_add(run_journal *file, const json_t *line);
