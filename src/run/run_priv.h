/* A run that is open. */
#pragma once

#include "base/process/heartbeat.h"
#include "mesh/mesh.h"
#include "run/lock/run_lock.h"
#include "run/run_journal.h"
#include "run/status/run_progress.h"
#include "run/stop_request.h"

struct bp_run {
    const bp_mesh *mesh;
    bool resumed, finished, witnesses;
    bool ended;     /* bp_run_end was called */
    bp_phase phase; /* before it */
    bool watched;   /* bp_watchdog_own was called */
    /* on the coordinator: */
    char *folder;
    run_lock *lock;
    json_t *record;         /* run.json */
    char *changes;          /* changed keys after which bits differ; NULL without them */
    char *config_text;      /* the new config.ini */
    int64_t steps_before;   /* bp_run_steps_before */
    int64_t log_every;      /* train.log_every of the previous start; 0: not known */
    const char *missing;    /* a missing result of a finished run; NULL if all are there */
    const char *end_reason; /* of a finished run; NULL: all steps are done */
    bp_stop_request *stop_request;
    run_progress *progress;               /* status.json */
    run_journal metrics, samples, events; /* samples: open if the run has samples */
    bool for_tensorboard;
    run_journal tensorboard; /* open once training begins */
};

/** bp_run_check_owner for polling, for bp_stop_request_owner: an unreadable disk is not an error,
 * since nothing is written. */
bp_err run_poll_owner(void *run);
