#include "train/verify_resume.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signals.h"
#include "mesh/mesh.h"
#include "store/checkpoint.h"
#include "train/relaunch_priv.h"
#include "train/verify_compare_priv.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#define POLL        0.05 /* seconds between looks at a child */
#define SLEEP       0.1  /* of ranks that only wait */
#define SAY_SECONDS 10.0 /* between progress lines */
#define END_SECONDS 15.0 /* what a launcher is given to end its ranks */
#define OWN_KEYS    11
#define STATUS_KILL (128 + SIGKILL)

/* One proof, on the root. */
typedef struct proof {
    const bp_verify_spec *spec;
    relaunch launch;
    char *scratch, *straight, *broken; /* run folders; broken is the one that is killed */
    int64_t every, kill_step;          /* of checkpoints; where the kill comes */
    int kill_rank;
    bool behind;    /* checkpoints are written behind the training, as the user's are */
    double seconds; /* of the run without a kill */
} proof;

/* Random enough for a place to kill at. */
static bp_err draw(int64_t *out, int64_t below)
{
    char token[BP_TOKEN_BYTES];
    bp_err err = bp_token_new(token);

    *out = err == BP_OK ? (int64_t)(strtoull(token, NULL, 16) % (uint64_t)below) : 0;
    return err;
}

/* A rank that computes, and the end of a step after the first commit and before the last. A
 * checkpoint behind the training is certainly in place once the next one has begun, which waits for
 * it: at the end of that one's step. */
static bp_err choose_kill(proof *self, const bp_config *config)
{
    bp_mesh_shape shape = bp_mesh_shape_of(config);
    int64_t steps = self->spec->steps, place = 0, rank = 0;
    bp_err err = bp_mesh_shape_fit(&shape, self->launch.ranks);
    int first = shape.coordinator == BP_COORDINATOR_DEDICATED ? 1 : 0;

    self->every = steps / 3;
    self->behind = bp_config_bool(config, "checkpoint.behind");
    int64_t after = self->behind ? 2 * self->every - 1 : self->every;
    if (err == BP_OK)
        err = draw(&place, steps - after - 1);
    if (err == BP_OK)
        err = draw(&rank, self->launch.ranks - first);
    self->kill_step = after + 1 + place;
    self->kill_rank = first + (int)rank;
    return err;
}

static bp_err make_scratch(proof *self, const bp_config *config)
{
    const char *run = bp_config_string(config, "run.dir");
    size_t bytes = strlen(run);
    char token[BP_TOKEN_BYTES];
    bp_err err = bp_token_new(token);

    while (bytes > 1 && run[bytes - 1] == '/')
        bytes--;
    if (err != BP_OK)
        return err;
    self->scratch = bp_sprintf("%.*s.verify-%.8s", (int)bytes, run, token);
    self->straight = self->scratch ? bp_path_join(self->scratch, "straight") : NULL;
    self->broken = self->scratch ? bp_path_join(self->scratch, "killed") : NULL;
    if (!self->straight || !self->broken)
        return bp_fail_memory("a path", 1, bytes);
    return bp_dir_make(self->scratch);
}

static void free_arguments(const proof *self, char **arguments)
{
    for (int k = 0; arguments && k < OWN_KEYS; k++)
        bp_free(arguments[2 + self->spec->key_count + k]);
    bp_free(arguments);
}

/* pretrain CONFIG, the user's keys, and ours, which win. The first two words are borrowed. */
static char **arguments_of(const proof *self, const char *run)
{
    static char job[] = "pretrain";
    const bp_verify_spec *spec = self->spec;
    char **out = bp_alloc("verify", spec->key_count + OWN_KEYS + 3, sizeof *out);
    int at = 2 + spec->key_count;

    if (!out)
        return NULL;
    out[0] = job;
    out[1] = (char *)spec->config_path;
    for (int k = 0; k < spec->key_count; k++)
        out[2 + k] = spec->keys[k];
    out[at] = bp_sprintf("run.dir=%s", run);
    out[at + 1] = bp_sprintf("train.steps=%lld", (long long)spec->steps);
    out[at + 2] = bp_sprintf("checkpoint.every=%lld", (long long)self->every);
    out[at + 3] = bp_strdup("checkpoint.keep=2");
    out[at + 4] = bp_strdup("train.log_every=1");
    out[at + 5] = bp_strdup("train.valid_every=0");
    out[at + 6] = bp_strdup("corpus.valid="); /* none: it may be large */
    out[at + 7] = bp_strdup("train.trace=");
    out[at + 8] = bp_sprintf("checkpoint.behind=%s", self->behind ? "yes" : "no");
    out[at + 9] = bp_strdup("train.epochs="); /* train.steps is there instead */
    out[at + 10] = bp_strdup("train.patience=0");
    for (int k = 0; k < OWN_KEYS; k++)
        if (!out[at + k]) {
            free_arguments(self, out);
            return NULL;
        }
    return out;
}

/* The newest step in metrics.jsonl, for progress lines alone. */
static int64_t steps_done(const char *run)
{
    char *path = bp_path_join(run, "metrics.jsonl"), *text = NULL;
    size_t bytes = 0;
    int64_t lines = 0;

    if (path && bp_path_exists(path) && bp_file_read(path, 1 << 26, &text, &bytes) == BP_OK)
        for (size_t k = 0; k < bytes; k++)
            lines += text[k] == '\n';
    bp_free(path);
    bp_free(text);
    return lines;
}

/* Until the child has ended, or this job was asked to stop. */
static bp_err watch(const proof *self, pid_t child, const char *run, const char *what, int *status)
{
    double said = bp_clock_now();

    while (!relaunch_has_ended(child, status)) {
        if (bp_signals_stop_asked()) {
            relaunch_end(child, END_SECONDS);
            return bp_fail_stopped("during the %s; nothing was proved", what);
        }
        if (bp_clock_now() - said > SAY_SECONDS) {
            said = bp_clock_now();
            bp_log_progress("%s: step %lld of %lld", what, (long long)steps_done(run),
                            (long long)self->spec->steps);
        }
        bp_clock_sleep(POLL);
    }
    return BP_OK;
}

/* One training as a program of its own. wanted: its exit status, or STATUS_KILL. */
static bp_err train(const proof *self, const char *run, const char *what, const char *fault,
                    int wanted)
{
    char *output = bp_path_join(self->scratch, "output.txt"), **arguments = arguments_of(self, run);
    int status = 0;
    pid_t child;
    bp_err err = output && arguments
                     ? relaunch_start(&self->launch, arguments, output, fault, &child)
                     : bp_fail_memory("a command line", 1, 64);

    if (err == BP_OK)
        err = watch(self, child, run, what, &status);
    /* launchers tell a killed rank in ways of their own, but never by one of our codes */
    bool ours = status >= BP_ERR_USAGE && status <= BP_ERR_CONFIG;
    bool as_wanted = wanted == STATUS_KILL ? status != 0 && !ours : status == wanted;
    if (err == BP_OK && !as_wanted) {
        char *words = verify_last_words(output);
        err = BP_FAIL(ours && status != BP_ERR_STOPPED ? (bp_err)status : BP_ERR_SYSTEM,
                      "the %s failed with status %d: %s", what, status,
                      words && words[0] != '\0' ? words : "it left no word");
        bp_free(words);
    }
    free_arguments(self, arguments);
    bp_free(output);
    return err;
}

/* The kill came after a commit, and that commit is there; the last one may have been on its way. */
static bp_err check_killed(const proof *self)
{
    char *folder = bp_path_join(self->broken, "checkpoints");
    int64_t expected = self->kill_step / self->every * self->every;
    int64_t newest = folder ? bp_checkpoint_newest_step(folder) : -1;

    bp_free(folder);
    if (newest == expected || (self->behind && newest == expected - self->every))
        return BP_OK;
    return BP_FAIL(BP_ERR_SOFTWARE,
                   "the newest checkpoint is that of step %lld, but step %lld was committed: after "
                   "kill -9 of rank %d at step %lld; please report it",
                   (long long)newest, (long long)expected, self->kill_rank,
                   (long long)self->kill_step);
}

static void foresee(int run, const char *what, double seconds)
{
    char time[64] = "";

    bp_clock_duration(time, sizeof time, seconds);
    bp_log("verify-resume, training %d of 3: %s%s%s", run, what, seconds > 0 ? ", about " : "",
           seconds > 0 ? time : "");
}

static bp_err prove(proof *self, char digest[BP_SHA256_HEX])
{
    const char *others = getenv("BP_FAULT"); /* faults of this program's own user */
    long long steps = (long long)self->spec->steps, at = (long long)self->kill_step;
    char *fault = bp_sprintf("%s%sstep.end:%lld@%d=kill", others ? others : "", others ? "," : "",
                             at, self->kill_rank);
    double begin = bp_clock_now();
    char what[96];
    bp_err err = fault ? BP_OK : bp_fail_memory("a fault's name", 1, 64);

    snprintf(what, sizeof what, "%lld steps straight", steps);
    foresee(1, what, 0);
    if (err == BP_OK)
        err = train(self, self->straight, "straight run", others, 0);
    self->seconds = bp_clock_now() - begin;
    snprintf(what, sizeof what, "%lld steps, then kill -9 of rank %d", at, self->kill_rank);
    if (err == BP_OK) {
        foresee(2, what, self->seconds * (double)at / (double)steps);
        err = train(self, self->broken, "run to be killed", fault, STATUS_KILL);
    }
    if (err == BP_OK)
        err = check_killed(self);
    if (err == BP_OK) {
        long long committed = at / self->every * self->every;

        foresee(3, "the same command goes on",
                self->seconds * (double)(steps - committed) / (double)steps);
        err = train(self, self->broken, "resumed run", others, 0);
    }
    if (err == BP_OK)
        err = verify_compare(self->straight, self->broken, self->spec->steps, digest);
    bp_free(fault);
    return err;
}

/* The root's part. Scratch stays only where it shows what is wrong. */
static bp_err prove_alone(proof *self, const bp_config *config)
{
    char digest[BP_SHA256_HEX] = "";
    bp_err err = choose_kill(self, config);

    if (err == BP_OK)
        err = make_scratch(self, config);
    if (err == BP_OK)
        err = prove(self, digest);
    if (err == BP_ERR_SOFTWARE)
        return bp_err_prefix(err, "verify-resume, see %s", self->scratch);
    if (self->scratch) {
        char *message = bp_strdup(bp_err_message());
        bp_err removed = bp_dir_remove(self->scratch);

        if (removed != BP_OK)
            bp_warn("%s", bp_err_message());
        if (err != BP_OK && message)
            bp_err_set_message(message);
        bp_free(message);
    }
    if (err == BP_OK)
        bp_log("resume verified: %lld steps straight, and %lld steps + kill -9 of rank %d + resume "
               "on %d rank%s, have equal bits (digest %.12s...)",
               (long long)self->spec->steps, (long long)self->kill_step, self->kill_rank,
               self->launch.ranks, self->launch.ranks == 1 ? "" : "s", digest);
    return err;
}

/* All ranks come back when the root does, and leave their cores to the trainings meanwhile. */
static void wait_for_root(MPI_Comm world)
{
    MPI_Request request;
    int done = 0;

    BP_MPI(MPI_Ibarrier(world, &request));
    while (!done) {
        BP_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        if (!done)
            bp_clock_sleep(SLEEP);
    }
}

bp_err bp_verify_resume(MPI_Comm world, const bp_config *config, const bp_verify_spec *spec)
{
    proof self = {.spec = spec};
    bp_err err = relaunch_init(&self.launch, world);

    if (err == BP_OK) {
        if (bp_comm_is_root(world))
            err = prove_alone(&self, config);
        wait_for_root(world);
        err = bp_agree(world, err);
    }
    relaunch_clear(&self.launch);
    bp_free(self.scratch);
    bp_free(self.straight);
    bp_free(self.broken);
    return err;
}
