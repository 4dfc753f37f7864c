/* A run folder that a test fills in, for the tests of src/run/status. */
#pragma once

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "bp_test.h"
#include "run/lock/run_lock.h"
#include "run/status/run_progress.h"
#include "run/status/run_status.h"
#include "run/status/run_status_priv.h"
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void put(const char *run, const char *name, const char *text);

const char *fresh(const char *name);

/* ---- what the job writes of itself ---- */

typedef struct progress_of {
    const char *run;
    run_lock *lock;
    run_progress *progress;
} progress_of;

/* A start of a run; `ended`: how the one before did, NULL: it left no word. */
void begin(progress_of *self, const char *run, int start, const char *ended);

void end(progress_of *self);

void event(const progress_of *self, const char *text);

void metric(const progress_of *self, const char *text);

json_t *written(const progress_of *self);
