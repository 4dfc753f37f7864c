/* A run that is open. */
#ifndef BP_RUN_RUN_PRIV_H
#define BP_RUN_RUN_PRIV_H

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
    bool watched;   /* the watchdog knows of it */
    /* on the coordinator: */
    char *folder;
    run_lock *lock;
    json_t *record;         /* run.json */
    char *changes;          /* keys by which bits change from here on; NULL: none */
    char *config_text;      /* what config.ini is to be */
    int64_t steps_before;   /* bp_run_steps_before */
    int64_t log_every;      /* train.log_every of the start before; 0: not known */
    const char *missing;    /* a result that is gone of a run that was finished; NULL: none */
    const char *end_reason; /* of a finished run; NULL: all is done */
    bp_stop_request *stop_request;
    run_progress *progress;               /* status.json */
    run_journal metrics, samples, events; /* samples: open where there are some */
    bool for_tensorboard;
    run_journal tensorboard; /* open once training begins */
};

/** bp_run_check_owner of who only polls: a disk that can't be read stops nobody who does not write.
 * For bp_stop_request_owner. */
bp_err run_poll_owner(void *run);

#endif
