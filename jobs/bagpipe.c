/* bagpipe: parses the command line and the configuration, and picks the job. */
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/signals.h"
#include "coordinator/run_folder.h"
#include "doctor.h"
#include "job.h"
#include "mesh/mesh.h"
#include "requeue.h"
#include "train/verify_resume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const bp_job *const JOBS[] = {&bp_job_pretrain, &bp_job_ensemble, &bp_job_score,
                                     &bp_job_uncertainty, &bp_job_bench};
#define JOB_COUNT  (sizeof JOBS / sizeof JOBS[0])
#define TABLES_MAX 64

const bp_option bp_run_options[] = {
    {"run.dir", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, "the run folder", true},
    {"run.seed", BP_OPTION_INT, "1", 0, 9007199254740992.0, NULL, NULL,
     "initialisation, order, dropout", false},
    {"tokenizer.path", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL,
     "tokenizer.json, the one that the corpus names; a bench times it", false},
    {NULL, BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, NULL, false},
};

typedef struct arguments {
    const bp_job *job;
    const char *config;
    char **rest; /* section.key=value */
    int rest_count;
    bool help, plan, check, requeue;
    int64_t status, most; /* of requeue */
    int64_t verify_steps; /* of --verify-resume; 0: not asked for */
} arguments;

static void print_help(FILE *out)
{
    fprintf(out, "Usage: mpirun -q -n N bagpipe JOB CONFIG.ini [section.key=value ...]\n\n");
    for (size_t k = 0; k < JOB_COUNT; k++)
        fprintf(out, "  %-12s %s\n", JOBS[k]->name, JOBS[k]->help);
    fprintf(
        out,
        "\n  bagpipe JOB --help                  every key of the job\n"
        "  bagpipe JOB CONFIG.ini ... --plan   memory and time foreseen\n"
        "  bagpipe check JOB CONFIG.ini ...    is the configuration right?\n"
        "  bagpipe requeue JOB CONFIG.ini ... --status N [--most 10]\n"
        "                                      for batch scripts: a launcher ended with N, "
        "is the same\n                                      job to be queued again? "
        "exit status 0: yes, 1: no\n"
        "  bagpipe status RUN [RUN ...]        what runs are doing, and what to do next\n"
        "  bagpipe doctor [RUN|CONFIG.ini ...] under the launcher: is this machine fit for a job?\n"
        "  bagpipe --version\n");
}

static const bp_job *find_job(const char *name)
{
    for (size_t k = 0; k < JOB_COUNT; k++)
        if (strcmp(JOBS[k]->name, name) == 0)
            return JOBS[k];
    return NULL;
}

static bp_err no_job(const char *word)
{
    const char *words[JOB_COUNT + 5] = {"check", "requeue", "status", "doctor"};

    for (size_t k = 0; k < JOB_COUNT; k++)
        words[4 + k] = JOBS[k]->name;
    return BP_FAIL(
        BP_ERR_USAGE,
        "there is no job '%s': at the command line; the nearest is %s, see bagpipe --help", word,
        bp_nearest_word(word, words));
}

static void print_requeue_help(void)
{
    printf(
        "Usage: bagpipe requeue JOB CONFIG.ini [section.key=value ...] --status N [--most %s]\n"
        "For batch scripts, once a launcher has ended: is the same job to be queued again? It\n"
        "looks into run.dir, needs no MPI and writes nothing.\n\n"
        "  --status N   the launcher's exit status, as a shell has it (128 + a signal's number)\n"
        "  --most N     Slurm starts a job again so many times at most\n\n"
        "It prints 'yes: ' or 'no: ' and why. Yes: stopped in time (75) or ranks that died\n"
        "(134, 135, 137, 139, 205), unless the run is finished or halted, or three starts in a\n"
        "row have committed nothing.\n"
        "Exit status: 0 yes, 1 no; 64 the command line, 65 a damaged run.json, 66 no such\n"
        "configuration, 78 a wrong one.\n",
        BP_REQUEUES);
}

/* The number behind an option of requeue; argv[*at] is the option. */
static bp_err parse_number(int64_t *out, int argc, char **argv, int *at)
{
    const char *text = ++*at < argc ? argv[*at] : "";
    char *end;

    *out = strtoll(text, &end, 10);
    if (text[0] == '\0' || *end != '\0' || *out < 0 || *out > 1000000)
        return BP_FAIL(BP_ERR_USAGE,
                       "%s takes a whole number, not '%s': at the command line; see bagpipe --help",
                       argv[*at - 1], text);
    return BP_OK;
}

/* --verify-resume, or --verify-resume=STEPS. */
static bp_err parse_verify(int64_t *out, const char *word)
{
    const char *number = strchr(word, '=');
    char *end = NULL;

    *out = number ? strtoll(number + 1, &end, 10) : BP_VERIFY_STEPS;
    if (number != NULL && (number[1] == '\0' || *end != '\0' || *out < 3 || *out > 1000000))
        return BP_FAIL(BP_ERR_USAGE,
                       "--verify-resume takes 3 to 1000000 steps, not '%s': at the command line; "
                       "leave them out for %d",
                       number + 1, BP_VERIFY_STEPS);
    return BP_OK;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static bool is_verify(const char *word)
{
    static const char NAME[] = "--verify-resume";

    return strncmp(word, NAME, sizeof NAME - 1) == 0 &&
           (word[sizeof NAME - 1] == '\0' || word[sizeof NAME - 1] == '=');
}

/* Options may stand anywhere after the job; what is left is the configuration file and key=value.
 */
static bp_err parse(arguments *out, int argc, char **argv)
{
    int at = 1;
    bp_err err = BP_OK;

    *out = (arguments){.status = -1, .most = strtoll(BP_REQUEUES, NULL, 10)};
    if (at < argc && strcmp(argv[at], "requeue") == 0) {
        out->requeue = true;
        at++;
        if (at < argc && is_help(argv[at])) {
            out->help = true;
            return BP_OK;
        }
    }
    if (at < argc && strcmp(argv[at], "check") == 0) {
        out->check = true;
        at++;
        if (at < argc && is_help(argv[at])) {
            out->help = true;
            return BP_OK;
        }
    }
    if (at >= argc)
        return BP_FAIL(BP_ERR_USAGE, "no job was named: at the command line; see bagpipe --help");
    out->job = find_job(argv[at]);
    if (!out->job)
        return no_job(argv[at]);
    out->rest = argv + at + 1;
    for (at++; at < argc && err == BP_OK; at++) {
        if (is_help(argv[at]))
            out->help = true;
        else if (strcmp(argv[at], "--plan") == 0)
            out->plan = true;
        else if (out->job->verifies_resume && is_verify(argv[at]))
            err = parse_verify(&out->verify_steps, argv[at]);
        else if (out->requeue && strcmp(argv[at], "--status") == 0)
            err = parse_number(&out->status, argc, argv, &at);
        else if (out->requeue && strcmp(argv[at], "--most") == 0)
            err = parse_number(&out->most, argc, argv, &at);
        else if (argv[at][0] == '-')
            return BP_FAIL(BP_ERR_USAGE,
                           "there is no option '%s': at the command line; see bagpipe %s --help",
                           argv[at], out->job->name);
        else if (!out->config && !strchr(argv[at], '='))
            out->config = argv[at];
        else
            out->rest[out->rest_count++] = argv[at];
    }
    if (err == BP_OK && out->requeue && out->status < 0 && !out->help)
        err = BP_FAIL(BP_ERR_USAGE,
                      "requeue needs --status N: at the command line; see bagpipe --help");
    if (err != BP_OK)
        return err;
    if (!out->config && !out->help && !out->job->needs_no_config)
        return BP_FAIL(BP_ERR_USAGE,
                       "no configuration was given: at the command line; use bagpipe %s CONFIG.ini",
                       out->job->name);
    return BP_OK;
}

/* All jobs' tables, each once: a key of another job is accepted. */
static void all_tables(const bp_option *tables[TABLES_MAX])
{
    int count = 0;

    for (size_t k = 0; k < JOB_COUNT; k++)
        for (const bp_option *const *table = JOBS[k]->options; *table; table++) {
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
        err = bp_config_read(*out, args->config, args->rest_count, args->rest);
    if (err == BP_OK)
        err = bp_config_check(*out);
    if (err == BP_OK) {
        args->job->check(*out);
        err = bp_config_faults(*out);
    }
    return err;
}

static bp_err print_job_help(const bp_job *job)
{
    char *text = bp_config_help(job->options);

    if (!text)
        return BP_FAIL(BP_ERR_SYSTEM, "memory is short: at the help; free some");
    printf("Usage: mpirun -n N bagpipe %s %s [section.key=value ...] [--plan]%s\n%s %s.\n",
           job->name, job->needs_no_config ? "[CONFIG.ini]" : "CONFIG.ini",
           job->verifies_resume ? " [--verify-resume[=STEPS]]" : "", job->name, job->help);
    if (job->needs_no_config)
        printf("Without a configuration: mpirun -n N bagpipe %s run.dir=DIR\n", job->name);
    if (job->verifies_resume)
        printf(
            "--verify-resume trains STEPS (%d) steps beside run.dir, once straight and once with "
            "kill -9 and\nresume, demands equal bits, and says so in one line.\n",
            BP_VERIFY_STEPS);
    printf("\n%s", text);
    bp_free(text);
    return BP_OK;
}

/* What needs no MPI: help, check, requeue (*again: its answer). */
static bp_err run_alone(const arguments *args, bool *again)
{
    bp_config *config = NULL;
    bp_err err;

    if (args->help && args->requeue) {
        print_requeue_help();
        return BP_OK;
    }
    if (args->help && !args->job) {
        print_help(stdout);
        return BP_OK;
    }
    if (args->help)
        return print_job_help(args->job);
    err = read_config(&config, args);
    if (err == BP_OK && args->requeue)
        err = bp_requeue(args->job->name, config, (int)args->status, args->most, again);
    if (err == BP_OK && !args->requeue && args->job->warn)
        args->job->warn(config);
    bp_config_free(&config);
    if (err == BP_OK && !args->requeue)
        printf("%s: %s takes this configuration (the files that it names were not looked at)\n",
               args->config ? args->config : "the command line", args->job->name);
    return err;
}

/* Before the folder was held, nobody else writes what a start failed with. */
static void note_failure(const bp_job *job, const bp_config *config, bp_err err)
{
    const char *run_dir = bp_config_string(config, "run.dir");

    /* a job of one member holds the member's folder, not run.dir */
    if (run_dir && !(job == &bp_job_ensemble && bp_config_is_set(config, "ensemble.only")))
        bp_run_start_failed(run_dir, err);
}

static bp_err run_job(const arguments *args)
{
    bp_job_call call = {.name = args->job->name,
                        .world = MPI_COMM_WORLD,
                        .plan = args->plan,
                        .verify_steps = args->verify_steps,
                        .config_path = args->config,
                        .keys = args->rest,
                        .key_count = args->rest_count};
    bp_err err = read_config(&call.config, args);

    if (err == BP_OK && bp_fault("config.read"))
        err = bp_fail_errno(BP_ERR_IO, "can't read",
                            args->config ? args->config : "the command line");
    err = bp_agree(call.world, err);

    if (err == BP_OK && args->job->warn)
        args->job->warn(call.config); /* of the root alone: it speaks */
    if (err == BP_OK)
        err = args->job->run(&call);
    if (err != BP_OK && call.config != NULL && !call.plan && call.verify_steps == 0 &&
        bp_comm_is_root(call.world))
        note_failure(args->job, call.config, err);
    bp_config_free(&call.config);
    bp_log_close();
    return err;
}

int main(int argc, char **argv)
{
    arguments args;
    bp_err err;

    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("bagpipe %s\n", BAGPIPE_VERSION);
        return 0;
    }
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_help(argc < 2 ? stderr : stdout);
        return argc < 2 ? BP_ERR_USAGE : 0;
    }
    if (strcmp(argv[1], "status") == 0)
        return bp_status_command(argc - 2, argv + 2);
    if (strcmp(argv[1], "doctor") == 0) {
        const bp_option *tables[TABLES_MAX];

        all_tables(tables);
        return bp_doctor_command(argc - 2, argv + 2, tables);
    }
    err = parse(&args, argc, argv);
    if (args.requeue || (err == BP_OK && (args.help || args.check))) {
        bool again = args.help || !args.requeue;

        if (err == BP_OK)
            err = run_alone(&args, &again);
        if (err != BP_OK)
            bp_err_print("bagpipe", err);
        return err == BP_OK && !again ? 1 : (int)err;
    }
    bp_signals_init(); /* a warning that comes while MPI starts is not lost, and kills nobody */
    /* a wrong command line is wrong on every rank: MPI tells who says so */
    bp_err started = bp_mpi_start(&argc, &argv);
    err = started != BP_OK ? started : err;
    if (err == BP_OK)
        err = run_job(&args);
    if (err != BP_OK && bp_log_speaks()) /* all ranks have it: one says it */
        bp_err_print("bagpipe", err);
    bp_mpi_finish();
    return (int)err;
}
