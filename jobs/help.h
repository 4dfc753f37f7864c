/* What `bagpipe help` and --help print. */
#pragma once

#include "base/config/help.h"

/** The help of a job or a command ("pretrain", "check"); of bagpipe itself for NULL. `kind`
 * ("model.kind=NAME", or NULL): of the keys of models, print only those of that family.
 *
 * Errors:     BP_ERR_CONFIG no such family; BP_ERR_USAGE no job or command of that name (names the
 *             nearest); BP_ERR_SYSTEM. */
bp_err bp_print_help(FILE *out, const char *word, char *kind);

/** BP_ERR_USAGE: `word` is neither a job nor a command; names the nearest. */
bp_err bp_fail_no_job(const char *word);

extern const bp_help bp_doctor_help, bp_plot_help, bp_status_help; /* next to their commands */
