/* Injected faults: the table of named points, and what BP_FAULT does at one. Off unless a test
 * arms it. */
#include "base/fault.h"
#include "base/process/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_FAULTS 16

typedef enum fault_action { FAIL, KILL, STOP, SPIN, BUG, DELAY } fault_action;

typedef struct fault {
    const char *name;
    size_t name_bytes;
    long nth;     /* acts at this call, counted from 1 */
    bool onwards; /* and at all after it */
    long rank;    /* -1: on every rank */
    fault_action action;
    int number;     /* errno of FAIL */
    double seconds; /* of DELAY */
    atomic_long calls;
} fault;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static fault faults[MAX_FAULTS];
static atomic_int fault_count;
static atomic_int own_rank;

static const char *const NAMES[] = {
    "allreduce.after",
    "allreduce.before",
    "base.alloc",
    "base.commit",
    "base.place",
    "base.read",
    "base.write",
    "bwd.mid",
    "ckpt.best",
    "ckpt.fence_check",
    "ckpt.fsync_dir",
    "ckpt.fsync_file",
    "ckpt.manifest_fsync",
    "ckpt.manifest_half",
    "ckpt.mkdir_tmp",
    "ckpt.prune_rename",
    "ckpt.prune_unlink",
    "ckpt.read_back",
    "ckpt.rename",
    "ckpt.shard_close",
    "ckpt.shard_half",
    "ckpt.shard_open",
    "ckpt.share",
    "ckpt.snapshot",
    "ckpt.verify",
    "config.read",
    "corpus.open",
    "count.exchange",
    "count.run",
    "count.spill",
    "count.write",
    "stop.flag",
    "ens.member_done",
    "exit.agree",
    "finalize",
    "fwd.mid",
    "init.after_mpi",
    "lock.acquired",
    "math.gemm",
    "math.weight",
    "mesh.round_robin",
    "metrics.append_half",
    "opt.after",
    "opt.before",
    "pp.recv",
    "pp.send",
    "step.begin",
    "step.end",
    "store.write",
    "text.read",
    "tok.load",
    "train.diverge",
    "train.flip_copy",
    "train.flip_gradient",
    "train.flip_loaded",
    "train.flip_moment",
    "train.flip_weight",
    "train.nan_gradient",
    "train.nan_moment",
    "train.nan_weight",
    "train.read_valid",
    "work.merge",
    "work.part",
    "work.unit_done",
    NULL,
};

static bool is_known(const char *name, size_t bytes)
{
    for (const char *const *known = NAMES; *known; known++)
        if (strlen(*known) == bytes && memcmp(*known, name, bytes) == 0)
            return true;
    return false;
}

/* "kill" and the like, up to `end`. */
static bool parse_action(fault *out, const char *text, const char *end)
{
    static const struct {
        const char *word;
        fault_action action;
        int number;
    } ACTIONS[] = {{"fail", FAIL, EIO}, {"eio", FAIL, EIO}, {"enospc", FAIL, ENOSPC},
                   {"kill", KILL, 0},   {"stop", STOP, 0},  {"spin", SPIN, 0},
                   {"bug", BUG, 0}};
    size_t bytes = (size_t)(end - text);
    char *after;

    for (size_t k = 0; k < sizeof ACTIONS / sizeof ACTIONS[0]; k++)
        if (strlen(ACTIONS[k].word) == bytes && memcmp(ACTIONS[k].word, text, bytes) == 0) {
            out->action = ACTIONS[k].action;
            out->number = ACTIONS[k].number;
            return true;
        }
    if (bytes <= 5 || memcmp(text, "delay", 5) != 0)
        return false;
    out->action = DELAY;
    out->seconds = strtod(text + 5, &after);
    return after == end && out->seconds >= 0 && out->seconds < 1e6;
}

/* NAME[:N[+]][@RANK][=ACTION], `bytes` long. */
static bool parse_one(fault *out, const char *text, size_t bytes)
{
    const char *p = text, *end = text + bytes;
    char *after;

    *out = (fault){.name = text, .nth = 1, .rank = -1, .number = EIO};
    while (p < end && !strchr(":@=", *p))
        p++;
    out->name_bytes = (size_t)(p - text);
    if (p < end && *p == ':') {
        out->nth = strtol(p + 1, &after, 10);
        if (after == p + 1 || out->nth < 1)
            return false;
        p = after;
        if (p < end && *p == '+') {
            out->onwards = true;
            p++;
        }
    }
    if (p < end && *p == '@') {
        out->rank = strtol(p + 1, &after, 10);
        if (after == p + 1 || out->rank < 0)
            return false;
        p = after;
    }
    if (p < end && *p == '=')
        return parse_action(out, p + 1, end);
    return p == end;
}

void bp_fault_arm(const char *specification)
{
    int count = 0;

    atomic_store(&fault_count, 0);
    while (specification && *specification != 0 && count < MAX_FAULTS) {
        size_t bytes = strcspn(specification, ",");

        count += bytes > 0 && parse_one(&faults[count], specification, bytes);
        specification += bytes;
        specification += *specification == ',';
    }
    atomic_store(&fault_count, count);
}

bp_err bp_fault_check(void)
{
    const char *specification = getenv("BP_FAULT"), *allowed = getenv("BP_FAULT_IN_JOB");
    int count = 0;

    if (!specification || *specification == 0)
        return BP_OK;
    if (getenv("SLURM_JOB_ID") && (!allowed || strcmp(allowed, "yes") != 0))
        return BP_FAIL(BP_ERR_USAGE, "fault.not_allowed",
                       "BP_FAULT = '%s' injects faults into a Slurm job: at the environment; unset "
                       "it, or set BP_FAULT_IN_JOB=yes too",
                       specification);
    for (const char *p = specification; *p != 0;) {
        size_t bytes = strcspn(p, ",");
        fault one;

        if (bytes > 0 && (!parse_one(&one, p, bytes) || !is_known(one.name, one.name_bytes)))
            return BP_FAIL(BP_ERR_USAGE, "fault.unknown",
                           "'%.*s' names no fault: at BP_FAULT; write NAME[:N[+]][@RANK][=ACTION]",
                           (int)bytes, p);
        if (++count > MAX_FAULTS)
            return BP_FAIL(BP_ERR_USAGE, "fault.too_many",
                           "more than %d faults: at BP_FAULT; leave some out", MAX_FAULTS);
        p += bytes + (p[bytes] == ',');
    }
    return BP_OK;
}

static void arm_from_environment(void)
{
    const char *specification = getenv("BP_FAULT");

    if (specification)
        bp_fault_arm(specification);
}

void bp_fault_set_rank(int rank)
{
    atomic_store(&own_rank, rank);
}

/* True when the operation is to fail. */
static bool act(const fault *at)
{
    switch (at->action) {
    case KILL:
        (void)raise(SIGKILL);
        break;
    case STOP:
        (void)kill(getpid(), SIGSTOP); /* all threads */
        break;
    case SPIN:
        for (volatile unsigned k = 0;; k++) /* which may begin anew */
            ;
    case BUG:
        bp_assert_failed("no bug was injected", __FILE__, __LINE__);
    case DELAY:
        bp_clock_sleep(at->seconds);
        break;
    case FAIL:
        errno = at->number;
        return true;
    }
    return false;
}

bool bp_fault(const char *name)
{
    (void)pthread_once(&once, arm_from_environment); /* can't fail on a valid control */
    int count = atomic_load(&fault_count);
    size_t bytes = count > 0 ? strlen(name) : 0;
    bool fails = false;

    BP_ASSERT(count == 0 || is_known(name, bytes));
    for (int i = 0; i < count; i++) {
        fault *at = &faults[i];

        if (at->name_bytes != bytes || memcmp(at->name, name, bytes) != 0)
            continue;
        if (at->rank >= 0 && at->rank != atomic_load(&own_rank))
            continue;
        long call = atomic_fetch_add(&at->calls, 1) + 1;
        if (call == at->nth || (at->onwards && call > at->nth))
            fails = act(at) || fails;
    }
    return fails;
}

bool bp_fault_is_armed(void)
{
    (void)pthread_once(&once, arm_from_environment); /* can't fail on a valid control */
    return atomic_load(&fault_count) > 0;
}

void bp_fault_point(const char *name)
{
    bool fails = bp_fault(name);

    BP_ASSERT(!fails && "a fault without an action at a point that can't fail");
}
