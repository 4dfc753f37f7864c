/* bagpipe: parses the command line and the configuration, and picks the job. */
#include "base/fault.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/process/launcher.h"
#include "base/process/signals.h"
#include "base/process/standard_output.h"
#include "doctor.h"
#include "help.h"
#include "io/corpus/corpus_file.h"
#include "job.h"
#include "mesh/mesh.h"
#include "mesh/mesh_search.h"
#include "mesh/world.h"
#include "requeue.h"
#include "run/run_folder.h"
#include "run/watchdog/watchdog.h"

#include "base/config/run_options.h"
#include "base/config/unused.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const bp_job *const bp_jobs[] = {
    &bp_job_pretrain, &bp_job_finetune,    &bp_job_ensemble, &bp_job_score, &bp_job_generate,
    &bp_job_explain,  &bp_job_uncertainty, &bp_job_search,   &bp_job_bench, NULL};
#define TABLES_MAX 64

typedef struct arguments {
    const bp_job *job;
    const char *config;
    char **rest; /* section.key=value */
    int rest_count;
    bool plan, check, requeue;
    bool bare;                      /* nothing says what to do: the help goes before the error */
    int64_t status, most;           /* of requeue */
    const char *cause;              /* of requeue; "": it is not known */
    int64_t ranks, nodes;           /* of --plan; 0: not given */
    const char *network, *schedule; /* files of --plan --ranks; NULL if not given */
} arguments;

static const bp_job *find_job(const char *name)
{
    for (const bp_job *const *job = bp_jobs; *job; job++)
        if (strcmp((*job)->name, name) == 0)
            return *job;
    return NULL;
}

/* "--ranks", or "--ranks=8". */
static bool is_option(const char *word, const char *name)
{
    size_t length = strlen(name);

    return strncmp(word, name, length) == 0 && (word[length] == '\0' || word[length] == '=');
}

#define NUMBER_MOST 1000000 /* of an option */

/* The number of an option, argv[*at], after its '=' or in the next word, from `least` on. */
static bp_err parse_number(int64_t *out, int64_t least, int argc, char **argv, int *at)
{
    const char *option = argv[*at], *text = strchr(option, '=');
    char *end;

    if (text)
        text++;
    else
        text = ++*at < argc ? argv[*at] : "";
    *out = strtoll(text, &end, 10);
    if (text[0] == '\0' || *end != '\0' || *out < least || *out > NUMBER_MOST)
        return BP_FAIL(
            BP_ERR_USAGE, "command.bad_number",
            "%.*s takes a whole number from %lld to %d, not '%s': at the command line; see bagpipe "
            "--help",
            (int)strcspn(option, "="), option, (long long)least, NUMBER_MOST, text);
    return BP_OK;
}

/* The word of an option, argv[*at], after its '=' or the next one. */
static bp_err parse_path(const char **out, int argc, char **argv, int *at)
{
    const char *option = argv[*at], *text = strchr(option, '=');

    if (text)
        text++;
    else
        text = ++*at < argc ? argv[*at] : "";
    *out = text;
    if (text[0] == '\0')
        return BP_FAIL(BP_ERR_USAGE, "command.no_file",
                       "%.*s takes a file: at the command line; see bagpipe pretrain --help",
                       (int)strcspn(option, "="), option);
    return BP_OK;
}

/* A job to come fills all of its nodes. */
static bp_err check_planned(const arguments *args)
{
    if ((args->ranks > 0 || args->nodes > 0) && !args->plan)
        return BP_FAIL(
            BP_ERR_USAGE, "command.no_plan",
            "--ranks and --nodes say for which job --plan plans, and it is not given: at "
            "the command line; mpirun or srun say how many ranks a job has");
    if (args->ranks > 0 && args->nodes > args->ranks)
        return BP_FAIL(
            BP_ERR_USAGE, "command.bad_nodes",
            "--nodes %lld is more than --ranks %lld: at the command line; a node has one "
            "rank or more",
            (long long)args->nodes, (long long)args->ranks);
    if ((args->network || args->schedule) &&
        (args->ranks == 0 || (args->job != &bp_job_pretrain && args->job != &bp_job_finetune)))
        return BP_FAIL(BP_ERR_USAGE, "command.no_scale",
                       "--network and --schedule are of pretrain and finetune with --plan --ranks "
                       "N: at the command "
                       "line; give them there");
    return BP_OK;
}

/* Options may be anywhere after the job; the rest is the configuration file and key=value. */
static bp_err parse(arguments *out, int argc, char **argv)
{
    int at = 1;
    bp_err err = BP_OK;

    *out = (arguments){.status = -1, .most = strtoll(BP_REQUEUES, NULL, 10), .cause = ""};
    if (at < argc && strcmp(argv[at], "requeue") == 0) {
        out->requeue = true;
        at++;
    }
    if (at < argc && strcmp(argv[at], "check") == 0) {
        out->check = true;
        at++;
    }
    out->bare = at >= argc;
    if (out->bare)
        return BP_FAIL(BP_ERR_USAGE, "command.no_job",
                       "no job was named: at the command line; see the help above");
    out->job = find_job(argv[at]);
    if (!out->job)
        return bp_fail_no_job(argv[at]);
    out->rest = argv + at + 1;
    for (at++; at < argc && err == BP_OK; at++) {
        if (strcmp(argv[at], "--plan") == 0)
            out->plan = true;
        else if (is_option(argv[at], "--verify-resume"))
            return BP_FAIL(BP_ERR_USAGE, "command.is_script",
                           "--verify-resume is a script: at the command line; without mpirun or "
                           "srun, run jobs/verify_resume.sh CONFIG [key=value ...] (installed as "
                           "share/bagpipe/jobs/verify_resume.sh)");
        else if (is_option(argv[at], "--ranks"))
            err = parse_number(&out->ranks, 1, argc, argv, &at);
        else if (is_option(argv[at], "--nodes"))
            err = parse_number(&out->nodes, 1, argc, argv, &at);
        else if (is_option(argv[at], "--network"))
            err = parse_path(&out->network, argc, argv, &at);
        else if (is_option(argv[at], "--schedule"))
            err = parse_path(&out->schedule, argc, argv, &at);
        else if (out->requeue && is_option(argv[at], "--status"))
            err = parse_number(&out->status, 0, argc, argv, &at);
        else if (out->requeue && is_option(argv[at], "--most"))
            err = parse_number(&out->most, 0, argc, argv, &at);
        else if (out->requeue && strncmp(argv[at], "--cause=", strlen("--cause=")) == 0)
            out->cause = argv[at] + strlen("--cause=");
        else if (argv[at][0] == '-')
            return BP_FAIL(BP_ERR_USAGE, "command.unknown_option",
                           "there is no option '%s': at the command line; see bagpipe %s --help",
                           argv[at], out->job->name);
        else if (!out->config && !bp_config_is_pair(argv[at]))
            out->config = argv[at];
        else
            out->rest[out->rest_count++] = argv[at];
    }
    if (err == BP_OK && out->requeue && out->status < 0)
        err = BP_FAIL(BP_ERR_USAGE, "command.no_status",
                      "requeue needs --status N: at the command line; see bagpipe requeue --help");
    if (err == BP_OK)
        err = check_planned(out);
    if (err != BP_OK || out->config)
        return err;
    out->bare = out->rest_count == 0 && !out->plan;
    if (out->bare) /* keys are enough */
        err = BP_FAIL(BP_ERR_USAGE, "command.no_config",
                      "no configuration was given: at the command line; use bagpipe %s CONFIG.ini, "
                      "or give all keys that it needs as section.key=value",
                      out->job->name);
    return err;
}

/* All jobs' tables, each once: a key of another job is accepted. */
static void all_tables(const bp_option *tables[TABLES_MAX])
{
    int count = 0;

    for (const bp_job *const *job = bp_jobs; *job; job++)
        for (const bp_option *const *table = (*job)->options; *table; table++) {
            bool known = false;
            for (int j = 0; j < count; j++)
                known = known || tables[j] == *table;
            if (known)
                continue;
            BP_ASSERT(count < TABLES_MAX - 1);
            tables[count++] = *table;
        }
    tables[count] = NULL;
}

static bp_err read_config(bp_config **out, const arguments *args)
{
    const bp_option *tables[TABLES_MAX];
    const bp_option *const *used = args->job->options;
    bp_err err;

    all_tables(tables);
    if (args->plan && args->job->plan_options)
        used = args->job->plan_options;
    err = bp_config_new(out, tables, used);
    if (err == BP_OK)
        bp_config_require_by(*out, args->job->require);
    if (err == BP_OK && args->config && bp_path_is_dir(args->config))
        err = bp_fail(BP_ERR_INPUT, "file.is_folder",
                      "a folder is where a file is needed: at %s; name a configuration; a run is "
                      "named by a key, such as generate.model=%s",
                      args->config, args->config);
    if (err == BP_OK)
        err = bp_config_read(*out, args->config, args->rest_count, args->rest);
    if (err == BP_OK)
        err = bp_config_check(*out);
    if (err == BP_OK) {
        bp_run_check_place(*out);
        if (args->job->check)
            args->job->check(*out);
        err = bp_config_faults(*out);
    }
    return err;
}

/* Warn about keys that the job does not use, and about doubtful settings. */
static void warn(const bp_job *job, const bp_config *config)
{
    int64_t at = 0;
    const char *key;

    while ((key = bp_config_next_unused(config, &at)))
        BP_WARN(
            "config.other_job",
            "%s is a key of other jobs, and does nothing here: at the command line; see bagpipe "
            "%s --help",
            key, job->name);
    if (job->warn)
        job->warn(config);
}

/* What needs no MPI: check, requeue (*again: its answer). */
static bp_err run_alone(const arguments *args, bool *again)
{
    bp_config *config = NULL;
    bp_err err;

    err = read_config(&config, args);
    if (err == BP_OK && args->requeue)
        err =
            bp_requeue(args->job->name, config, (int)args->status, args->most, args->cause, again);
    if (err == BP_OK && !args->requeue)
        warn(args->job, config);
    bp_config_free(&config);
    if (err == BP_OK && !args->requeue)
        printf("%s: %s takes this configuration (the files that it names were not looked at)\n",
               args->config ? args->config : "the command line", args->job->name);
    return err;
}

/* Before the folder was held, nobody else writes what a start failed with. */
static void note_failure(const bp_job *job, const bp_config *config, bp_err err)
{
    const char *run_dir = bp_run_keys_of(config)->dir;

    if (run_dir && !(job->part_key && bp_config_is_set(config, job->part_key)))
        bp_run_start_failed(run_dir, err);
}

static bp_err start(const bp_job *job, const bp_job_call *call)
{
    const char *run_dir = bp_run_keys_of(call->config)->dir;
    bool works = call->plan || !run_dir || bp_run_has_work(call->world, run_dir);
    bp_err err;

    /* once for all, by the coordinator or, where it opens none, the first rank that computes; every
     * rank checks what it reads of one */
    (void)bp_corpus_file_hash_whole(works && bp_comm_rank(call->world) < 2);
    bp_run_note_request(job->name, call->config);
    err =
        job->run ? job->run(call) : bp_work_start(job->work, call->world, call->config, call->plan);
    if (err != BP_ERR_INPUT || call->plan || !run_dir ||
        !bp_run_needs_no_input(call->world, run_dir))
        return err;
    bp_log("the run is finished: in %s; an input is gone, so that none was compared", run_dir);
    return BP_OK;
}

/* --ranks: one rank plans for all of a job to come, whatever number was started. */
static bp_err run_plan_alone(const arguments *args, bp_job_call *call)
{
    bool root = bp_comm_is_root(call->world);
    MPI_Comm all = call->world;

    call->world = MPI_COMM_SELF;
    bp_err err = bp_agree(all, root ? start(args->job, call) : BP_OK);
    call->world = all;
    return err;
}

/* Nodes of a job to come whose ranks are those that the mesh names. */
static bp_err check_nodes(const arguments *args, const bp_config *config)
{
    if (args->nodes == 0 || args->ranks > 0)
        return BP_OK;

    bp_mesh_shape shape = bp_mesh_shape_of(config);
    bp_err err = bp_mesh_shape_plan(&shape, 0);

    if (err != BP_OK || args->nodes <= bp_mesh_shape_ranks(&shape))
        return err;
    return BP_FAIL(BP_ERR_USAGE, "command.no_ranks",
                   "--nodes %lld says on how many nodes --ranks are, and --ranks is not given: "
                   "at the command line; give both, and one process plans for them",
                   (long long)args->nodes);
}

static bp_err run_job(const arguments *args)
{
    const bp_planned_world planned = {.ranks = (int)args->ranks,
                                      .nodes = args->nodes > 0 ? (int)args->nodes : 1,
                                      .network = args->network,
                                      .schedule = args->schedule};
    bp_job_call call = {
        .name = args->job->name, .world = MPI_COMM_WORLD, .plan = args->plan ? &planned : NULL};
    bp_err err = read_config(&call.config, args);

    if (err == BP_OK && bp_fault("config.read"))
        err = bp_fail_errno(BP_ERR_IO, "can't read",
                            args->config ? args->config : "the command line");
    if (err == BP_OK)
        err = check_nodes(args, call.config);
    if (!args->plan)
        bp_watchdog_start(call.world, bp_watchdog_seconds(err == BP_OK ? call.config : NULL));
    err = bp_agree(call.world, err);

    if (err == BP_OK)
        warn(args->job, call.config); /* only of the root: it speaks */
    if (err == BP_OK && args->ranks == 0)
        call.world = bp_world_of(call.world, call.config);
    if (!args->plan && call.world != MPI_COMM_WORLD)
        bp_watchdog_reorder(call.world, bp_watchdog_seconds(call.config));
    if (err == BP_OK)
        err = args->ranks > 0 ? run_plan_alone(args, &call) : start(args->job, &call);
    if (err != BP_OK && call.config && !call.plan && bp_comm_is_root(call.world))
        note_failure(args->job, call.config, err);
    bp_config_free(&call.config);
    bp_log_close();
    return args->plan ? bp_agree(MPI_COMM_WORLD, err == BP_OK ? bp_stdout_flush() : err) : err;
}

/* Requests other than work: *word is the subject, NULL for bagpipe itself. */
static bool asks_for_help(const char **word, int argc, char **argv)
{
    bool help = argc > 1 && strcmp(argv[1], "help") == 0;

    *word = help ? (argc > 2 ? argv[2] : NULL) : argc > 1 ? argv[1] : NULL;
    if (*word && bp_help_is_asked(1, (char *[]){(char *)*word})) {
        *word = NULL;
        return true;
    }
    return help || (argc > 2 && bp_help_is_asked(argc - 2, argv + 2));
}

/* A command line that says nothing gets help; what is wrong with it is said after that. */
static void help_with(const arguments *args)
{
    if (args->bare && bp_log_speaks())
        (void)bp_print_help(stderr,
                            args->check     ? "check"
                            : args->requeue ? "requeue"
                            : args->job     ? args->job->name
                                            : NULL,
                            NULL);
}

/* The last "model.kind=..." of the command line; NULL if there is none. */
static char *find_kind(int argc, char **argv)
{
    for (int at = argc - 1; at > 0; at--)
        if (strncmp(argv[at], "model.kind=", strlen("model.kind=")) == 0)
            return argv[at];
    return NULL;
}

/* Help, check, requeue, status: where MPI can't start, too. */
static int answer(int argc, char **argv, const arguments *args, bp_err err)
{
    const char *word;
    bool again = !args->requeue, help = asks_for_help(&word, argc, argv);

    bp_log_set_speaker(bp_launcher_find().first);
    if (help) {
        err = bp_log_speaks() ? bp_print_help(stdout, word, find_kind(argc, argv)) : BP_OK;
    } else if (err == BP_OK) {
        err = run_alone(args, &again);
    }
    if (err != BP_OK && !help)
        help_with(args);
    if (err != BP_OK && bp_log_speaks())
        bp_err_print(err);
    return err == BP_OK && !help && !again ? 1 : (int)err;
}

/* The loader calls it before the constructors of libraries, which take some hundredths of a second:
 * a request to stop that comes so early kills nobody. */
__attribute__((section(".preinit_array"),
               used)) static void (*const before_libraries)(void) = bp_signals_keep;

/* A word that is not a job's, or a question about one. */
static int command(int argc, char **argv)
{
    const bp_option *tables[TABLES_MAX];

    if (strcmp(argv[1], "--version") == 0) {
        printf("bagpipe %s\n", BAGPIPE_VERSION);
        return 0;
    }
    if (strcmp(argv[1], "status") == 0)
        return bp_status_command(argc - 2, argv + 2);
    if (strcmp(argv[1], "plot") == 0)
        return bp_plot_command(argc - 1, argv + 1);
    all_tables(tables);
    return bp_doctor_command(argc - 2, argv + 2, tables);
}

/* The exit status, after what it printed has got out. */
static int end_output(int status)
{
    bp_err err = status == 0 ? bp_stdout_flush() : BP_OK;

    if (err != BP_OK)
        bp_err_print(err);
    return status == 0 ? (int)err : status;
}

static bool is_command(int argc, char **argv, bool help)
{
    static const char *const names[] = {"status", "plot", "doctor"};

    if (argc > 1 && strcmp(argv[1], "--version") == 0)
        return true;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (!help && argc > 1 && strcmp(argv[1], names[k]) == 0)
            return true;
    return false;
}

/* The seconds in which ranks have to meet inside of MPI's start: ten times watchdog.seconds, as of
 * everything else that a start waits for. What is wrong with the configuration is said later. */
static double start_limit(const arguments *args)
{
    bp_config *config = NULL;
    bool speaks = bp_log_speaks();
    double seconds;

    bp_log_set_speaker(false);
    if (read_config(&config, args) != BP_OK)
        bp_config_free(&config);
    seconds = bp_watchdog_seconds(config);
    bp_config_free(&config);
    bp_log_set_speaker(speaks);
    return 10 * seconds;
}

int main(int argc, char **argv)
{
    arguments args = {.job = NULL};
    const char *word;
    bool help = asks_for_help(&word, argc, argv);
    bp_err err;

    bp_stdout_init();
    if (is_command(argc, argv, help)) {
        bp_signals_default();
        return end_output(command(argc, argv));
    }
    err = help ? BP_OK : parse(&args, argc, argv);
    if (help || args.requeue || args.check) {
        bp_signals_default();
        return end_output(answer(argc, argv, &args, err));
    }
    bp_signals_init(); /* a warning that comes while MPI starts is not lost, and kills nobody */
    if (err == BP_OK)
        bp_mpi_start_within(start_limit(&args));
    /* a wrong command line is wrong on every rank: MPI decides which rank prints it */
    bp_err started = bp_mpi_start(&argc, &argv);
    err = started != BP_OK ? started : err;
    if (err == BP_OK)
        err = run_job(&args);
    else if (started == BP_OK)
        help_with(&args);
    if (err != BP_OK && bp_log_speaks()) /* all ranks have it: one says it */
        bp_err_print(err);
    bp_mpi_finish();
    return (int)err;
}
