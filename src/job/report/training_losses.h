/* What the losses of trainings are, in words for their page and plots. Local: no MPI. */
#pragma once

#include "base/config/json.h"
#include "run/status/run_history.h"

#define REPORT_AXIS_BYTES 64

/** The title of the axis of losses: "loss, nats a token", in axis[REPORT_AXIS_BYTES]. */
const char *report_loss_axis(char *axis, const bp_history *runs, int64_t count);
/** What the page says of losses: only what these runs have. */
void report_describe_losses(json_t *page, const bp_history *runs, int64_t count);
