/* The watchdog's parts. Local. */
#pragma once

#include "run/watchdog/watch_state.h"
#include "run/watchdog/watchdog.h"
#include "run/watchdog/watchdog_wire_priv.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define WATCHDOG_PATH_BYTES 4096 /* of the run folder: longer paths were rejected earlier */
#define WATCHDOG_LONG       10.0 /* x seconds: the longest start */
#define LATER_HEARTBEATS                                                                           \
    5.0 /* others leave a silent rank 0 this many after rank 1, which orders all to exit */

/* The launcher of this rank: mpirun, orted or slurmstepd. */
typedef struct watchdog_launcher {
    pid_t pid; /* 0: started by something else, or without a launcher */
    int64_t start_ticks;
    char name[32];
    bool may_be_killed; /* it is Open MPI's, which may hang itself */
} watchdog_launcher;

typedef enum watchdog_cause {
    NO_PROGRESS, /* of any rank: all exit */
    NO_WORD,     /* this rank receives nothing from rank 0, and exits */
    NO_LAUNCHER  /* this rank and those of its host exit */
} watchdog_cause;

/* Why this rank exits, and which rank caused it. */
typedef struct watchdog_diagnosis {
    watchdog_cause cause;
    bp_watch_diagnosis is;
    bp_watch_heartbeat heartbeat;
    char collective[WIRE_NAME_BYTES];
} watchdog_diagnosis;

typedef struct watchdog {
    char run_dir[WATCHDOG_PATH_BYTES]; /* written before has_run */
    atomic_bool has_run;
    double seconds, heartbeat_seconds;
    pthread_mutex_t owner; /* of the next three */
    bool disowned;
    bool (*still_owner)(void *context);
    void *context;
    int64_t lock_number;
    int rank, size;
    atomic_int peers;
    bool first_of_host; /* the lowest rank of its host */
    watchdog_launcher launcher;

    int fd, wake; /* the socket; an eventfd that ends a wait */
    uint8_t token[WIRE_TOKEN_BYTES];
    wire_place *places;            /* [size] */
    struct sockaddr_in *confirmed; /* [size]: where packets came from; port 0: no packet yet */
    int64_t *sequences;            /* [size]: the last of each rank */
    char (*collectives)[WIRE_NAME_BYTES]; /* [size] */
    bp_watch *watch;                      /* of all ranks on rank 0, of rank 0 on the others */
    bool warned;                          /* warned of ranks that sent no datagram */
    double began;

    bp_watch_clock ear;
    int64_t progress; /* of this rank, while rank 0 has not answered yet, */
    double moved_at;  /* and since when */

    pthread_t thread;
    atomic_bool ends, exits, reported;
    bool speaks; /* this rank detected it, and reports it */
    watchdog_diagnosis diagnosis;
    double exits_at;
    int64_t sequence;
} watchdog;

/* watchdog_thread.c */
void *watchdog_run(void *self); /* the thread */
/** Send this rank's state to rank 0. Called by the thread, and by its creator before it starts. */
void watchdog_heartbeat(watchdog *self);
/** Exit at once, before the thread starts; this rank has the diagnosis. Does not return. */
void watchdog_leave_now(watchdog *self);

/* watchdog_report.c */
/* May hang if a file system hangs: call on a separate thread. */
/** Writes backtraces, and if this rank reports, the line on standard error, events.jsonl, run.json
 * and log.txt. */
void watchdog_report(watchdog *self);
/* Only the line, without files. Returns whether this rank had to print it and did so at once. */
bool watchdog_report_line(const watchdog *self);

/* watchdog_launcher.c */
void watchdog_launcher_find(watchdog_launcher *out);
bool watchdog_launcher_is_gone(const watchdog_launcher *launcher);
/** From a separate process: kill the launcher if it does not end by itself. */
void watchdog_launcher_guard(const watchdog_launcher *launcher);
