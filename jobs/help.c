/* The help of bagpipe, its jobs and its commands. */
#include "help.h"

#include "job.h"
#include "models/family.h"
#include "requeue.h"
#include "words.h"

#include <string.h>
#include <strings.h>

static const bp_help_row NO_MPI_STATUSES[] = {
    {"0", "the configuration is right"},
    {"64", "wrong command line"},
    {"66", "the file is missing"},
    {"78", "the configuration is wrong; every fault has a line, 20 at most"},
    {0}};

static const bp_help CHECK_HELP = {
    .name = "bagpipe check",
    .usage = "JOB [CONFIG.ini] [section.key=value ...]",
    .summary = "checks a configuration without a start of the job",
    .text = "It needs no MPI and writes nothing. It does not look at the files that the "
            "configuration names; bagpipe doctor does.",
    .examples = "  bagpipe check pretrain small.ini train.steps=2000\n",
    .statuses = NO_MPI_STATUSES};

static const struct argp_option REQUEUE_OPTIONS[] = {
    {"status", 0, "N", 0,
     "the launcher's exit status as a shell has it, 128 + the number of a signal (required)", 0},
    {"most", 0, "N", 0,
     "most restarts of one Slurm job after starts that committed nothing (default " BP_REQUEUES ")",
     0},
    {"cause", 0, "TEXT", 0, "what ended the job, if known: the next start names it", 0},
    {0}};

static const bp_help_row REQUEUE_STATUSES[] = {{"0", "yes"},
                                               {"1", "no"},
                                               {"64", "wrong command line"},
                                               {"65", "run.json is damaged"},
                                               {"66", "the configuration is missing"},
                                               {"78", "the configuration is wrong"},
                                               {0}};

static const bp_help REQUEUE_HELP = {
    .name = "bagpipe requeue",
    .usage = "JOB [CONFIG.ini] [section.key=value ...] --status N",
    .summary = "decides for a batch script whether to queue a job again after its launcher ended",
    .text = "It reads run.dir and needs no MPI. It prints 'yes: ' or 'no: ' and the "
            "reason, and notes the status and the cause in the run's last_words.txt.\n"
            "Yes: the job stopped in time (75) or ranks died (134, 135, 137, 139, 205), unless "
            "the run is finished or halted, or three starts in a row have committed nothing.",
    .options = REQUEUE_OPTIONS,
    .examples = "  bagpipe requeue pretrain small.ini --status 75\n",
    .statuses = REQUEUE_STATUSES};

/* ---- jobs ---- */

#define JOB_TABLES_MOST 48

static const bp_help_row JOB_STATUSES[] = {{"0", "done"},
                                           {"64", "wrong command line"},
                                           {"65", "wrong content of an input"},
                                           {"66", "an input is missing"},
                                           {"69", "another running job holds the run folder"},
                                           {"70", "a bug, or the training diverged"},
                                           {"71", "memory, or the operating system"},
                                           {"73", "an output cannot be created"},
                                           {"74", "reading or writing failed, or the disk is full"},
                                           {"75", "stopped in time; the same command resumes"},
                                           {"77", "no permission"},
                                           {"78", "wrong configuration"},
                                           {0}};

/* The keys of a job with models: those of families are in groups. */
typedef struct job_keys {
    const bp_option *tables[JOB_TABLES_MOST + 1];
    bp_option shared[BP_MODEL_KEYS_MOST];
    bp_key_group groups[BP_MODEL_FAMILIES_MOST];
} job_keys;

/* The name that "model.kind=NAME" has, if it is a family's. */
static bp_err read_kind(const char **name, char *kind)
{
    static const bp_option *const TABLES[] = {bp_model_options, NULL};
    bp_config *config = NULL;
    bp_err err = bp_config_new(&config, TABLES, TABLES);

    if (err == BP_OK)
        err = bp_config_read(config, NULL, 1, &kind);
    if (err == BP_OK)
        *name = bp_model_family_find(bp_model_keys_of(config)->kind)->name;
    bp_config_free(&config);
    return err;
}

static bp_err find_keys(job_keys *out, const bp_job *job, char *kind)
{
    const char *name = NULL;
    bp_err err = kind ? read_kind(&name, kind) : BP_OK;
    size_t count = 0;

    *out = (job_keys){.tables = {NULL}};
    for (; err == BP_OK && job->options[count]; count++) {
        BP_ASSERT(count < JOB_TABLES_MOST);
        out->tables[count] = job->options[count];
        if (job->options[count] != bp_model_options)
            continue;
        bp_model_help_keys(out->shared, out->groups, name);
        out->tables[count] = out->shared;
    }
    return err;
}

static bp_err print_job_help(FILE *out, const bp_job *job, char *kind)
{
    bool trains = job == &bp_job_pretrain || job == &bp_job_finetune;
    struct argp_option options[6] = {
        {"plan", 0, NULL, 0, "estimate memory and time on this mesh, and do nothing else", 0},
        {"ranks", 0, "N", 0, "of --plan: one process plans for a job of N ranks", 0},
        {"nodes", 0, "K", 0, "of --plan: N ranks fill K nodes like this one (default 1)", 0},
        {"network", 0, "FILE", 0,
         "of --plan --ranks: what the network reaches, as bench writes it (network.ini); else "
         "100 Gbit/s",
         0},
        {"schedule", 0, "FILE", 0,
         "of --plan --ranks: write the step of this mesh as JSON, for a simulator", 0}};
    char name[64];
    job_keys keys;
    bp_err err = find_keys(&keys, job, kind);
    bp_help help = {.name = name,
                    .usage = "[CONFIG.ini] [section.key=value ...] [OPTION...]",
                    .summary = job->help,
                    .text = job->text,
                    .options = options,
                    .keys = keys.tables,
                    .groups = keys.groups,
                    .examples = job->examples,
                    .statuses = JOB_STATUSES};

    if (err != BP_OK)
        return err;
    if (!trains) /* it plans for no network */
        memset(&options[3], 0, 2 * sizeof *options);
    (void)snprintf(name, sizeof name, "bagpipe %s", job->name);
    return bp_help_print(out, &help);
}

/* ---- by name ---- */

static const struct {
    const char *word;
    const bp_help *help;
} COMMANDS[] = {{"check", &CHECK_HELP},
                {"requeue", &REQUEUE_HELP},
                {"status", &bp_status_help},
                {"plot", &bp_plot_help},
                {"doctor", &bp_doctor_help}};
#define COMMAND_COUNT (sizeof COMMANDS / sizeof COMMANDS[0])
#define LIST_MOST     32

static const struct argp_option OPTIONS[] = {{"version", 0, NULL, 0, "print the version", 0}, {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"}, {"64 to 78", "it failed; see the help of a job"}, {0}};

static bp_err print_program_help(FILE *out)
{
    bp_help_row list[LIST_MOST + 1] = {{0}};
    size_t count = 0;
    const bp_help help = {
        .name = "bagpipe",
        .usage = "JOB [CONFIG.ini] [section.key=value ...] [OPTION...]\nCOMMAND [ARGUMENT...]\n"
                 "help JOB|COMMAND",
        .summary = "trains language models and ensembles of them, and scores corpora",
        .text = "A job runs on one rank as it is, and on N ranks under mpirun -n N or srun. The "
                "programs for text, corpora and tables are in bagpipe-data.",
        .list_head = "Jobs and commands:",
        .list = list,
        .options = OPTIONS,
        .examples = "  mpirun -n 4 bagpipe doctor\n"
                    "  mpirun -n 4 bagpipe pretrain small.ini run.dir=runs/small\n"
                    "  bagpipe check pretrain small.ini\n"
                    "  bagpipe status runs/small\n"
                    "  bagpipe help pretrain\n",
        .statuses = STATUSES};

    for (const bp_job *const *job = bp_jobs; *job; job++)
        list[count++] = (bp_help_row){(*job)->name, (*job)->help};
    BP_ASSERT(count + COMMAND_COUNT <= LIST_MOST);
    for (size_t k = 0; k < COMMAND_COUNT; k++)
        list[count++] = (bp_help_row){COMMANDS[k].word, COMMANDS[k].help->summary};
    return bp_help_print(out, &help);
}

/* A job, a command, or one of the other program. */
static bool is_known(const char *name)
{
    for (size_t k = 0; k < COMMAND_COUNT; k++)
        if (strcmp(COMMANDS[k].word, name) == 0)
            return true;
    for (const bp_job *const *job = bp_jobs; *job; job++)
        if (strcmp((*job)->name, name) == 0)
            return true;
    return strncmp(name, "bagpipe-data ", strlen("bagpipe-data ")) == 0;
}

/* The meaning of a word that is not a job; NULL if unknown. */
static const bp_job_word *find_word(const char *word)
{
    for (const bp_job_word *row = bp_job_words; row->word; row++)
        if (strcasecmp(row->word, word) == 0 && (!row->command || is_known(row->command)))
            return row;
    return NULL;
}

bp_err bp_fail_no_job(const char *word)
{
    const char *words[LIST_MOST + 1] = {NULL};
    const bp_job_word *row = find_word(word);
    size_t count = 0;

    if (row && !row->command)
        return BP_FAIL(BP_ERR_USAGE, "command.unknown_job",
                       "there is no job '%s': at the command line; %s", word, row->note);
    if (row)
        return BP_FAIL(BP_ERR_USAGE, "command.unknown_job",
                       "there is no job '%s': at the command line; use %s%s%s%s%s", word,
                       strchr(row->command, ' ') ? "" : "bagpipe ", row->command,
                       row->note ? " (" : "", row->note ? row->note : "", row->note ? ")" : "");

    for (; count < COMMAND_COUNT; count++)
        words[count] = COMMANDS[count].word;
    for (const bp_job *const *job = bp_jobs; *job; job++)
        words[count++] = (*job)->name;
    return BP_FAIL(
        BP_ERR_USAGE, "command.unknown_job",
        "there is no job '%s': at the command line; the nearest is %s, see bagpipe --help", word,
        bp_nearest_word(word, words));
}

bp_err bp_print_help(FILE *out, const char *word, char *kind)
{
    if (!word)
        return print_program_help(out);
    for (size_t k = 0; k < COMMAND_COUNT; k++)
        if (strcmp(COMMANDS[k].word, word) == 0)
            return bp_help_print(out, COMMANDS[k].help);
    for (const bp_job *const *job = bp_jobs; *job; job++)
        if (strcmp((*job)->name, word) == 0)
            return print_job_help(out, *job, kind);
    return bp_fail_no_job(word);
}
