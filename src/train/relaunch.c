#include "train/relaunch_priv.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/launcher.h"
#include "base/mem.h"
#include "mesh/mesh.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOST_BYTES MPI_MAX_PROCESSOR_NAME
#define PATH_BYTES 4096
#define POLL       0.02

extern char **environ;

static bool begins_with(const char *text, const char *head)
{
    return strncmp(text, head, strlen(head)) == 0;
}

/* What the launcher around this program told its ranks: a launcher within would take itself for one
 * of them. What users set for Open MPI stays. */
static bool is_the_launchers(const char *variable)
{
    static const char *const THEIRS[] = {"PMIX_", "PMI_", "PMI2_", "OMPI_", "PRTE_", "BP_FAULT="};
    static const char *const OF_RANKS[] = {"ess",          "orte_",         "pmix",
                                           "initial_wdir", "shmem_RUNTIME", "mpi_oversubscribe"};
    bool theirs = false;

    if (begins_with(variable, "OMPI_ALLOW_RUN_AS_ROOT"))
        return false;
    if (begins_with(variable, "OMPI_MCA_")) {
        for (size_t k = 0; k < sizeof OF_RANKS / sizeof OF_RANKS[0]; k++)
            theirs = theirs || begins_with(variable + strlen("OMPI_MCA_"), OF_RANKS[k]);
        return theirs;
    }
    for (size_t k = 0; k < sizeof THEIRS / sizeof THEIRS[0]; k++)
        theirs = theirs || begins_with(variable, THEIRS[k]);
    return theirs;
}

/* The environment without that, and with BP_FAULT. Free with free_words(). */
static char **clean_environment(const char *fault)
{
    int64_t count = 0, used = 0;
    char **out;

    while (environ[count])
        count++;
    out = bp_alloc("relaunch", count + 4, sizeof *out);
    for (int64_t k = 0; out && k < count; k++)
        if (!is_the_launchers(environ[k]))
            out[used++] = bp_strdup(environ[k]);
    if (out && fault)
        out[used++] = bp_sprintf("BP_FAULT=%s", fault);
    if (out && fault && getenv("SLURM_JOB_ID"))
        out[used++] = bp_strdup("BP_FAULT_IN_JOB=yes");
    /* it counts cores against slots by hosts' names alone: more ranks than cores have to give way
     */
    const char *crowded = getenv("OMPI_MCA_mpi_oversubscribe");
    if (out && crowded && strcmp(crowded, "1") == 0 && !getenv("OMPI_MCA_mpi_yield_when_idle"))
        out[used++] = bp_strdup("OMPI_MCA_mpi_yield_when_idle=1");
    return out;
}

static void free_words(char **words)
{
    for (int k = 0; words && words[k]; k++)
        bp_free(words[k]);
    bp_free(words);
}

static relaunch_kind find_kind(int ranks)
{
    bp_launcher launcher = bp_launcher_find();

    if (!launcher.mpirun && getenv("SLURM_STEP_ID") && launcher.srun && launcher.pmix)
        return RELAUNCH_SRUN;
    if (launcher.mpirun || launcher.pmix || ranks > 1)
        return RELAUNCH_MPIRUN;
    return RELAUNCH_BARE;
}

/* "node01:2,node02:2", or for srun "node01,node02", in the order of ranks; *nodes of them. */
static char *host_list(const char *hosts, int ranks, bool slots, int *nodes)
{
    char *list = bp_strdup("");

    *nodes = 0;
    for (int k = 0; list && k < ranks; k++) {
        const char *host = hosts + (size_t)k * HOST_BYTES;
        int count = 0;
        bool is_new = true;

        for (int j = 0; j < ranks; j++) {
            bool same = strcmp(hosts + (size_t)j * HOST_BYTES, host) == 0;
            is_new = is_new && !(same && j < k);
            count += same;
        }
        if (!is_new)
            continue;
        char *longer = slots ? bp_sprintf("%s%s%s:%d", list, *nodes > 0 ? "," : "", host, count)
                             : bp_sprintf("%s%s%s", list, *nodes > 0 ? "," : "", host);
        bp_free(list);
        list = longer;
        (*nodes)++;
    }
    return list;
}

static bp_err add_word(relaunch *self, char *word)
{
    if (!word)
        return bp_fail_memory("a command line", 1, 64);
    self->words[self->count++] = word;
    return BP_OK;
}

static bp_err fill_words(relaunch *self, const char *hosts)
{
    int nodes;
    char *list = host_list(hosts, self->ranks, self->kind == RELAUNCH_MPIRUN, &nodes);
    bp_err err = BP_OK;

    self->words = bp_alloc("relaunch", 16, sizeof *self->words);
    if (!self->words || !list)
        err = bp_fail_memory("a command line", 16, sizeof *self->words);
    if (err == BP_OK && self->kind == RELAUNCH_MPIRUN) {
        /* ranks that are to end do so at once: mpirun around this one may give it a second */
        const char *const start[] = {"mpirun", "--mca", "odls_base_sigkill_timeout", "0", "--host"};
        for (int k = 0; k < 5 && err == BP_OK; k++)
            err = add_word(self, bp_strdup(start[k]));
        if (err == BP_OK)
            err = add_word(self, bp_strdup(list));
        if (err == BP_OK)
            err = add_word(self, bp_strdup("-n"));
        if (err == BP_OK)
            err = add_word(self, bp_sprintf("%d", self->ranks));
    } else if (err == BP_OK && self->kind == RELAUNCH_SRUN) {
        /* a rank that dies has to take the others with it: they would wait for it */
        const char *const start[] = {"srun", "--overlap", "--mpi=pmix", "--kill-on-bad-exit=1"};
        for (int k = 0; k < 4 && err == BP_OK; k++)
            err = add_word(self, bp_strdup(start[k]));
        if (err == BP_OK)
            err = add_word(self, bp_sprintf("--nodes=%d", nodes));
        if (err == BP_OK)
            err = add_word(self, bp_sprintf("--ntasks=%d", self->ranks));
        if (err == BP_OK)
            err = add_word(self, bp_sprintf("--nodelist=%s", list));
    }
    bp_free(list);
    return err;
}

static bp_err find_program(relaunch *self)
{
    char path[PATH_BYTES];
    ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 1);

    if (bytes <= 0)
        return bp_fail_errno(BP_ERR_SYSTEM, "can't find this program", "/proc/self/exe");
    path[bytes] = '\0';
    self->program = bp_strdup(path);
    return self->program ? BP_OK : bp_fail_memory("a path", 1, (size_t)bytes);
}

bp_err relaunch_init(relaunch *out, MPI_Comm world)
{
    int ranks = bp_comm_size(world), length;
    char host[HOST_BYTES] = "", *hosts = NULL;
    bp_err err = BP_OK;

    *out = (relaunch){.ranks = ranks, .kind = find_kind(ranks)};
    BP_MPI(MPI_Get_processor_name(host, &length));
    if (bp_comm_is_root(world)) {
        hosts = bp_alloc("relaunch", ranks, HOST_BYTES);
        err = hosts ? find_program(out) : bp_fail_memory("hosts' names", ranks, HOST_BYTES);
    }
    err = bp_agree(world, err);
    if (err == BP_OK) {
        BP_MPI(MPI_Gather(host, HOST_BYTES, MPI_CHAR, hosts, HOST_BYTES, MPI_CHAR, 0, world));
        if (bp_comm_is_root(world) && out->kind != RELAUNCH_BARE)
            err = fill_words(out, hosts);
        err = bp_agree(world, err);
    }
    bp_free(hosts);
    return err;
}

void relaunch_clear(relaunch *self)
{
    free_words(self->words);
    bp_free(self->program);
    *self = (relaunch){0};
}

/* Launcher, program and arguments; borrowed words. */
static char **command_of(const relaunch *self, char *const *arguments, const char *fault)
{
    static char pass_on[] = "-x", variable[] = "BP_FAULT";
    int64_t more = 0, used = 0;
    char **out;

    while (arguments[more])
        more++;
    out = bp_alloc("relaunch", self->count + more + 4, sizeof *out);
    for (int k = 0; out && k < self->count; k++)
        out[used++] = self->words[k];
    if (out && fault && self->kind == RELAUNCH_MPIRUN) { /* to other nodes too */
        out[used++] = pass_on;
        out[used++] = variable;
    }
    if (out)
        out[used++] = self->program;
    for (int64_t k = 0; out && k < more; k++)
        out[used++] = arguments[k];
    return out;
}

/* In a group of its own, so that it hears signals from here alone, with both outputs to a file. */
static int spawn(char *const *command, char *const *environment, const char *output, pid_t *child)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    int status = posix_spawn_file_actions_init(&actions);

    if (status != 0)
        return status;
    status = posix_spawnattr_init(&attributes);
    if (status == 0) {
        (void)sigemptyset(&defaults); /* these can't fail: the numbers are real */
        (void)sigaddset(&defaults, SIGPIPE);
        (void)sigaddset(&defaults, SIGXFSZ);
        status = posix_spawnattr_setsigdefault(&attributes, &defaults);
        if (status == 0)
            status = posix_spawnattr_setflags(&attributes,
                                              POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
        if (status == 0)
            status = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        if (status == 0)
            status = posix_spawn_file_actions_addopen(&actions, 1, output,
                                                      O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (status == 0)
            status = posix_spawn_file_actions_adddup2(&actions, 1, 2);
        if (status == 0)
            status = posix_spawnp(child, command[0], &actions, &attributes, command, environment);
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&actions);
    return status;
}

bp_err relaunch_start(const relaunch *self, char *const *arguments, const char *output,
                      const char *fault, pid_t *child)
{
    char **command = command_of(self, arguments, fault), **environment = clean_environment(fault);
    cpu_set_t own, all;
    bp_err err = BP_OK;

    if (!command || !environment) {
        bp_free(command);
        free_words(environment);
        return bp_fail_memory("a command line", 64, sizeof *command);
    }
    /* a launcher has all cores to share out; this rank may be bound to one */
    bool rebind = self->kind != RELAUNCH_BARE && sched_getaffinity(0, sizeof own, &own) == 0;
    memset(&all, 0xff, sizeof all);
    rebind = rebind && sched_setaffinity(0, sizeof all, &all) == 0;
    errno = spawn(command, environment, output, child);
    if (errno != 0)
        err = bp_fail_errno(BP_ERR_SYSTEM, "can't be started", command[0]);
    if (rebind)
        (void)sched_setaffinity(0, sizeof own, &own); /* it was so before */
    bp_free(command);
    free_words(environment);
    return err;
}

bool relaunch_has_ended(pid_t child, int *status)
{
    int raw;
    pid_t done = waitpid(child, &raw, WNOHANG);

    if (done == 0 || (done < 0 && errno == EINTR))
        return false;
    if (done < 0)
        *status = BP_ERR_SYSTEM;
    else
        *status = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
    return true;
}

void relaunch_end(pid_t child, double seconds)
{
    double begin = bp_clock_now();
    bool killed = false;
    int status;

    (void)kill(child, SIGTERM); /* one that has ended by itself is seen below */
    while (!relaunch_has_ended(child, &status)) {
        if (!killed && bp_clock_now() - begin > seconds) {
            (void)kill(-child, SIGKILL);
            killed = true;
        }
        bp_clock_sleep(POLL);
    }
}
