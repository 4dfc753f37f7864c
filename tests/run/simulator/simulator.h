/* Histories of jobs on one run folder, drawn from a seed: they contend for the lock, train, commit,
 * are stopped, killed, cut off from power, and go on, until the run is done. What is decided is
 * decided by the code that jobs run (run_lock_record.c, commit_steps.c, work_scheduler.c); disk,
 * messages and clocks are simulated. One thread, no real clock and no file: the same seed is the
 * same history.
 *
 * After every event the promises are checked:
 *   - a folder with a step's name is whole, now and after a power cut, always;
 *   - it got its name after good reports of all writers, with a manifest that matches its files;
 *   - no job renames one once a later owner has looked for leftovers (it may until then: that owner
 *     finds it, whole);
 *   - no step is announced twice, and what was announced is there, or a newer one;
 *   - a start goes on from the newest whole step, and finds none damaged;
 *   - numbers of the lock are won in order, each by one job; nobody whose heartbeat moves loses it;
 *   - no line of a journal comes from a job that another has followed, and a checkpoint's lines are
 *     all there, once, in order;
 *   - no job fails that nothing was done to; and every history ends.
 */
#pragma once

#include "disk.h"
#include "io/checkpoint/commit_steps.h"
#include "run/lock/run_lock_record_priv.h"

#include <stdio.h>

/** Rules that can be broken, to see that the simulator notices. */
typedef enum sim_break {
    BREAK_NOTHING,
    BREAK_FENCE,          /* the owner is not asked for before the rename */
    BREAK_SYNC_PLACED,    /* the rename is not brought to disk */
    BREAK_SYNC_LIST,      /* nor are the hidden folder's names */
    BREAK_SYNC_MANIFEST,  /* nor the manifest */
    BREAK_SYNC_SHARD,     /* nor a shard */
    BREAK_ANNOUNCE_EARLY, /* announced after the rename, before the sync */
    BREAK_REPORTS,        /* bad reports count as good ones */
    BREAK_RECHECK,        /* the root does not look at the files */
    BREAK_PRUNE,          /* old ones removed without a sync after their renaming */
    BREAK_PRUNE_ALL,      /* too many removed */
    BREAK_CLEAN_IN_PLACE, /* leftovers removed under their own names */
    BREAK_SYNC_CLEAN,     /* leftovers removed without a sync after their renaming */
    BREAK_CLEAN_UNASKED,  /* without asking for the owner after the listing */
    BREAK_SYNC_FOUND,     /* a run goes on from a step whose name may not be on disk */
    BREAK_DISCOVERY,      /* the oldest step is taken */
    BREAK_CONFIRM,        /* the highest number is not looked at again */
    BREAK_LINK,           /* a number can be taken twice */
    BREAK_WATCH,          /* the last look at a heartbeat may be an old one */
    BREAK_SWEEP,          /* drafts of challengers are swept, whatever their number */
    BREAK_REFRESH,        /* listings are as old as the host's cache */
    BREAK_LINES,          /* lines are written without a look at the lock */
    BREAK_JOURNAL_SYNC,   /* lines are not brought to disk before a commit */
    BREAK_HAND_OUT,       /* a unit of work is handed out twice */
    BREAK_CLOSE,          /* work is handed out after somebody failed */
    BREAKS
} sim_break;
extern const char *const SIM_BREAK_NAMES[BREAKS];

#define SIM_HOSTS     3
#define SIM_JOBS      64
#define SIM_WRITERS   3
#define SIM_STEPS     8 /* of training; every second one is committed */
#define SIM_LINES     512
#define SIM_LISTS     1024
#define SIM_NAMES     128
#define SIM_KINDS     4
#define SIM_NEVER     1e18
#define SIM_WATCH     60.0
#define SIM_HEARTBEAT 10.0

typedef enum job_phase {
    JOB_TAKE,
    JOB_SWEEP,
    JOB_CLEAN,
    JOB_DISCOVER,
    JOB_TRAIN,
    JOB_COMMIT,
    JOB_TIDY,
    JOB_RELEASE,
    JOB_GONE
} job_phase;

typedef enum writer_stage {
    WRITER_IDLE,
    WRITER_CREATE,
    WRITER_SYNC,
    WRITER_REPORT,
    WRITER_DONE
} writer_stage;

typedef struct sim_writer {
    writer_stage stage;
    double ready;
    int64_t content, reported;
    bool good, lost;
    int host;
} sim_writer;

typedef struct sim_job {
    int id, host;
    job_phase phase;
    int sub; /* within a phase or step */
    double ready, paused_until, heartbeat_ready, dies_at;
    lock_record lock_record;
    bool heartbeats, lost, stops, failed;
    bool hurt; /* something was done to it: it may fail */
    int64_t heartbeat_count;
    int64_t step, resumed;
    sim_name names[SIM_NAMES]; /* of a listing, worked off one after the other */
    int name_count, name_at;
    bp_commit commit;
    sim_name hidden, final;
    int tries, writers, keep, list;
    sim_writer writer[SIM_WRITERS];
} sim_job;

typedef struct sim_manifest {
    int64_t step;
    int writers;
    int64_t content[SIM_WRITERS];
} sim_manifest;

/* What a host remembers of a folder. */
typedef struct sim_view {
    bool known;
    double seen;
    sim_name names[SIM_NAMES];
    int count;
} sim_view;

typedef enum trouble_kind {
    TROUBLE_START, /* another job */
    TROUBLE_KILL,
    TROUBLE_HOST,  /* all of a host dies */
    TROUBLE_STOP,  /* SIGSTOP, and SIGCONT later */
    TROUBLE_CUT,   /* no power, for all */
    TROUBLE_LEAVE, /* it is asked to stop */
    TROUBLE_RANK,  /* a writer is lost */
    TROUBLES
} trouble_kind;

typedef struct sim_world {
    sim_random random;
    sim_break broken;
    FILE *trace;
    char why[200]; /* the promise that did not hold; "" */
    double now;
    int64_t events;
    /* what goes wrong in this history */
    bool faults, stale, slow, torn;
    trouble_kind kinds[SIM_KINDS];
    int kind_count;
    int trouble; /* how often still */
    double trouble_rate;
    bool tempted;
    int burst; /* operations among which more comes soon */
    double clock_offset[SIM_HOSTS], clock_rate[SIM_HOSTS];
    sim_disk disk;
    sim_view views[SIM_HOSTS][FOLDERS];
    sim_job jobs[SIM_JOBS];
    int job_count;
    sim_manifest lists[SIM_LISTS];
    int list_count;
    int64_t contents; /* given so far */
    struct {
        int64_t step;
        int job;
    } lines[SIM_LINES];
    int line_count, lines_synced;
    /* what was promised */
    int64_t last_won, last_cleaned;   /* numbers of the lock */
    int64_t announced;                /* the newest step */
    unsigned announced_steps;         /* a bit each */
    double heartbeat_moved[SIM_JOBS]; /* when a job's heartbeat last changed */
    bool finished;
} sim_world;

/* ---- world.c ---- */

/** One history. False: a promise did not hold, and world->why says which. trace: NULL, or what
 * happens, line by line. */
bool sim_run(sim_world *world, uint64_t seed, sim_break broken, FILE *trace);
void sim_fail(sim_world *world, const sim_job *job, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sim_note(sim_world *world, const sim_job *job, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** An injected failure of this operation of this job. */
bool sim_hit(sim_world *world, sim_job *job);
/** Trouble would hurt here: it comes more often after this operation. */
void sim_tempt(sim_world *world);
/** How long an operation takes. */
double sim_takes(sim_world *world);
/** Names of a folder as a host sees them; `fresh`: as they are. */
int sim_list(sim_world *world, int host, int folder, bool fresh, sim_name names[SIM_NAMES]);
/** This host has changed the folder: its next listing is fresh. */
void sim_changed(sim_world *world, int host, int folder);
bool sim_step_is_whole(const sim_world *world, sim_name name);
void sim_check_disk(sim_world *world);

/* ---- job.c, lock.c ---- */

void sim_job_start(sim_world *world, int host);
/** The main thread's next operation. */
void sim_job_act(sim_world *world, sim_job *job);
void sim_job_heartbeat(sim_world *world, sim_job *job);
void sim_writer_act(sim_world *world, sim_job *job, int writer);
void sim_job_end(sim_world *world, sim_job *job, bool failed, const char *why);
void sim_next_phase(sim_job *job, job_phase phase);
bool sim_is_ours(sim_world *world, sim_job *job);
void sim_take(sim_world *world, sim_job *job);
void sim_sweep(sim_world *world, sim_job *job);
void sim_release(sim_world *world, sim_job *job);
/** Remove one entry of a folder of STEPS, or the empty folder; true when it is gone. */
bool sim_remove_some(sim_world *world, sim_job *job, sim_name folder);
void sim_commit(sim_world *world, sim_job *job);

/** Leads, units of work and deaths: the same for the queue of scoring. */
bool sim_run_work(char why[200], uint64_t seed, sim_break broken, FILE *trace);
