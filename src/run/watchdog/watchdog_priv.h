/* The watchdog's parts. Local. */
#ifndef BP_RUN_WATCHDOG_WATCHDOG_PRIV_H
#define BP_RUN_WATCHDOG_WATCHDOG_PRIV_H

#include "run/watchdog/watch_state.h"
#include "run/watchdog/watchdog.h"
#include "run/watchdog/watchdog_wire_priv.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define WATCHDOG_PATH_BYTES 4096 /* of the run folder: a longer one is refused before */
#define WATCHDOG_LONG       10.0 /* x seconds: what a start may take */
#define LATER_HEARTBEATS                                                                           \
    5.0 /* after rank 1, which orders all, others leave a silent rank 0 by themselves */

/* mpirun, orted, slurmstepd: what started this rank, if it is such. */
typedef struct watchdog_launcher {
    pid_t pid; /* 0: this process was started by something else, or without a launcher */
    int64_t start_ticks;
    char name[32];
    bool may_be_killed; /* one of Open MPI's: it may hang itself */
} watchdog_launcher;

typedef enum watchdog_cause {
    NO_PROGRESS, /* a rank of all: all leave */
    NO_WORD,     /* this rank receives nothing from rank 0, and leaves */
    NO_LAUNCHER  /* so do this rank and those beside it */
} watchdog_cause;

/* Why this rank leaves, and who is to blame for it. */
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
    bool first_of_host; /* the lowest rank there */
    watchdog_launcher launcher;

    int fd, wake; /* the socket; an eventfd that ends a wait */
    uint8_t token[WIRE_TOKEN_BYTES];
    wire_place *places;                   /* [size] */
    struct sockaddr_in *confirmed;        /* [size]: where packets came from; port 0: none came */
    int64_t *sequences;                   /* [size]: the last of each rank */
    char (*collectives)[WIRE_NAME_BYTES]; /* [size] */
    bp_watch *watch;                      /* of all ranks on rank 0, of rank 0 on the others */
    bool warned;                          /* of ranks that no datagram came from */
    double began;

    bp_watch_clock ear;
    int64_t progress; /* of this rank, while rank 0 has not answered yet, */
    double moved_at;  /* and since when */

    pthread_t thread;
    atomic_bool ends, exits, reported;
    bool speaks; /* this rank found it, and reports it */
    watchdog_diagnosis diagnosis;
    double exits_at;
    int64_t sequence;
} watchdog;

/* watchdog_thread.c */
void *watchdog_run(void *self); /* the thread */
/** Send rank 0 what this rank is doing. Called by the thread, and by its creator before it begins.
 */
void watchdog_heartbeat(watchdog *self);
/** Leave at once, before there is a thread; this rank has the diagnosis, and does not come back. */
void watchdog_leave_now(watchdog *self);

/* watchdog_report.c */
/* May hang where a file system does: for a thread of its own. */
/** Stacks, and where this rank speaks the line on standard error, events.jsonl,
 * run.json and log.txt. */
void watchdog_report(watchdog *self);
/* Only the line, without any file: was it this rank's to say, and said at once? */
bool watchdog_report_line(const watchdog *self);

/* watchdog_launcher.c */
void watchdog_launcher_find(watchdog_launcher *out);
bool watchdog_launcher_is_gone(const watchdog_launcher *launcher);
/** From a process of its own: kill it if it does not end by itself in a while. */
void watchdog_launcher_guard(const watchdog_launcher *launcher);

#endif
