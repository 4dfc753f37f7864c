/* bagpipe doctor: is this machine fit for a job? Under the launcher of the job to come. */
#include "doctor.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "doctor_config.h"
#include "help.h"
#include "math/math.h"
#include "math/scalapack/distributed.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include "models/family.h"
#include "run/probe/probe.h"
#include "run/status/run_status.h"

#include "base/config/run_options.h"
#include "train/engine/engine.h"
#include "train/loop/pretrain.h"

#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GEMM_SECONDS 0.3
#define TEXT_COLUMN  28 /* of the report */
#define COPY_SECONDS 0.2

typedef struct doctor {
    MPI_Comm world;
    bool json;
    const char *target; /* RUN_FOLDER or CONFIG.ini; NULL if there is none */
    char **keys;        /* section.key=value */
    int key_count;
    bp_config *config; /* NULL if none was named */
    json_t *rows;      /* on rank 0; NULL elsewhere */
    int host_count;    /* on rank 0 */
} doctor;

/* ---- command line ---- */

static const struct argp_option OPTIONS[] = {
    {"json", 0, NULL, 0, "print an object instead of a table", 0}, {0}};

static const bp_help_row STATUSES[] = {{"0", "all is well, or there are only warnings"},
                                       {"64", "wrong command line"},
                                       {"66", "a file is missing"},
                                       {"71", "the system"},
                                       {"73", "no file can be created"},
                                       {"74", "writing failed, or there is not enough space"},
                                       {"77", "no permission"},
                                       {"78", "wrong configuration"},
                                       {0}};

const bp_help bp_doctor_help = {
    .name = "bagpipe doctor",
    .usage = "[RUN | [CONFIG.ini] [section.key=value ...]] [--json]",
    .summary = "checks that a machine and its ranks are fit for a job",
    .text =
        "Start it with the launcher, the ranks and the hosts of the job to come. It says for each "
        "thing whether it is right, and what to do where it is not: ranks and hosts, binding, idle "
        "cores, MPI "
        "and its launcher, libraries, processors, memory, limits, speed (slow hosts are "
        "named), and the bits of a sum over ranks.\n"
        "With a run folder, or a configuration that names one, it checks the file system: kind, "
        "space for checkpoints, and whether files are written, renamed, linked and seen "
        "from all hosts as a run needs it. With a configuration it checks also whether the job "
        "accepts it, whether the mesh fits these ranks, and whether the files that it names are "
        "there.\n"
        "It writes one hidden folder, and removes it. It does not make a run folder that is "
        "missing.",
    .options = OPTIONS,
    .examples = "  mpirun -n 4 bagpipe doctor\n"
                "  mpirun -n 4 bagpipe doctor small.ini run.dir=runs/small\n",
    .statuses = STATUSES};

static bp_err parse(doctor *self, int argc, char **argv)
{
    self->keys = argv; /* moved to the front as they are found */
    for (int k = 0; k < argc; k++) {
        if (strcmp(argv[k], "--json") == 0)
            self->json = true;
        else if (argv[k][0] == '-')
            return BP_FAIL(BP_ERR_USAGE, "command.unknown_option",
                           "there is no option '%s': at the command line; see bagpipe doctor "
                           "--help",
                           argv[k]);
        else if (bp_config_is_pair(argv[k]))
            self->keys[self->key_count++] = argv[k];
        else if (self->target)
            return BP_FAIL(BP_ERR_USAGE, "command.too_many_names",
                           "one folder or configuration is enough, '%s' is a second: at the "
                           "command line; see bagpipe doctor --help",
                           argv[k]);
        else
            self->target = argv[k];
    }
    return BP_OK;
}

/* A file is a configuration, and so is what is called one. */
static bp_err read_config(doctor *self, const bp_option *const *tables)
{
    static const bp_option *const none[] = {NULL}; /* no key is required here */
    const char *target = self->target;
    bool named = !target && self->key_count > 0;
    bp_err err = BP_OK;

    if (target)
        named = (bp_path_exists(target) && !bp_path_is_dir(target)) ||
                (strlen(target) > 4 && strcmp(target + strlen(target) - 4, ".ini") == 0);
    if (named) {
        err = bp_config_new(&self->config, tables, none);
        if (err == BP_OK)
            err = bp_config_read(self->config, target, self->key_count, self->keys);
    } else if (self->key_count > 0) {
        err = BP_FAIL(BP_ERR_USAGE, "command.keys_of_folder",
                      "'%s' belongs to a configuration, but %s is a folder: at the command line; "
                      "name a CONFIG.ini",
                      self->keys[0], target);
    }
    return bp_agree(self->world, err);
}

/* ---- hosts ---- */

static void look_at_hosts(doctor *self)
{
    int size = bp_comm_size(self->world), asked = 0;
    bp_probe_host *all = bp_alloc("doctor", size, sizeof *all), own;
    bp_precision precision;

    bp_probe_host_read(&own);
    if (self->config)
        asked = (int)bp_math_keys_of(self->config)->threads;
    own.threads = bp_math_threads_for(self->world, asked);
    own.job_cores = bp_math_cores_of_job();
    bp_math_set_threads(own.threads);
    precision = bp_all_max_int(!bp_math_has_bf16(), self->world) ? BP_F32 : BP_BF16;
    BP_MPI(MPI_Barrier(self->world)); /* measured all at once, as they will run */
    own.flops = bp_math_gemm_peak(precision, GEMM_SECONDS);
    BP_MPI(MPI_Barrier(self->world));
    own.copy_bytes = bp_probe_copy_speed(COPY_SECONDS);
    BP_MPI(MPI_Gather(&own, (int)sizeof own, MPI_BYTE, all, (int)sizeof own, MPI_BYTE, 0,
                      self->world));
    if (self->rows)
        self->host_count = bp_probe_check_hosts(self->rows, all, size);
    bp_free(all);
}

/* ---- MPI and libraries ---- */

static void check_mpi(const doctor *self)
{
    static const struct {
        int level;
        const char *name;
    } LEVELS[] = {{MPI_THREAD_MULTIPLE, "multiple"},
                  {MPI_THREAD_SERIALIZED, "serialized"},
                  {MPI_THREAD_FUNNELED, "funneled"},
                  {MPI_THREAD_SINGLE, "single"}};
    const char *job = getenv("SLURM_JOB_ID");
    const char *launcher = getenv("OMPI_UNIVERSE_SIZE") || getenv("HYDI_CONTROL_FD") ? "mpirun"
                           : getenv("SLURM_STEP_ID") && getenv("SLURM_PROCID")       ? "srun"
                                                                                     : NULL;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int bytes, level, at = 0;

    BP_MPI(MPI_Get_library_version(text, &bytes));
    text[strcspn(text, "\n,")] = '\0';
    BP_MPI(MPI_Query_thread(&level));
    while (at < 3 && LEVELS[at].level != level)
        at++;
    bp_probe_add(self->rows, at == 3 ? BP_PROBE_FAIL : BP_PROBE_OK, "mpi",
                 "use an MPI with threads", "%s, threads %s", text, LEVELS[at].name);
    if (launcher)
        bp_probe_add(self->rows, BP_PROBE_OK, "launcher", NULL, "%s%s%s", launcher,
                     job ? " in Slurm job " : "", job ? job : "");
    else
        bp_probe_add(self->rows, BP_PROBE_NOTE, "launcher", NULL,
                     "none: one rank, as without mpirun; start it as the job is to be started");
}

static void check_libraries(const doctor *self)
{
    unsigned int major = 0, minor = 0, release = 0;
    bool known = H5get_libversion(&major, &minor, &release) >= 0;

    bp_probe_add(
        self->rows,
        known && major == H5_VERS_MAJOR && minor == H5_VERS_MINOR ? BP_PROBE_OK : BP_PROBE_WARN,
        "hdf5", "load the module that bagpipe was built with", "%u.%u.%u, built with %d.%d.%d",
        major, minor, release, H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE);
    bp_probe_add(self->rows, BP_PROBE_OK, "matrix products", NULL, "%s", bp_math_library());
    bp_probe_add(self->rows, bp_distributed_library() ? BP_PROBE_OK : BP_PROBE_NOTE, "scalapack",
                 NULL, "%s",
                 bp_distributed_library() ? "built in" : "not in this build: no Laplace");
}

/* ---- the bits of a sum over ranks ---- */

/* Values whose sum depends on the order of additions have one sum on all ranks. */
static bp_err check_bits(const doctor *self)
{
    static const int64_t sizes[] = {1000, 65536}; /* they go different ways */
    float *x = bp_alloc("doctor", sizes[1], sizeof *x);
    float *scratch = bp_alloc("doctor", sizes[1], sizeof *x);
    bp_err err = BP_OK;

    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0] && err == BP_OK; k++) {
        int64_t digest, n = sizes[k];

        for (int64_t i = 0; i < n; i++)
            x[i] = 1.0F / (float)(1 + (i * 977 + bp_comm_rank(self->world)) % 40503);
        bp_all_sum(x, n, scratch, self->world);
        digest = (int64_t)(bp_xxh3(x, (size_t)n * sizeof *x) >> 1);
        if (bp_all_max_int(digest, self->world) != -bp_all_max_int(-digest, self->world))
            err = BP_FAIL(BP_ERR_SYSTEM, "mpi.sums_differ",
                          "ranks hold sums with different bits: at a sum of %lld "
                          "values; leave hosts out in turn, and test them",
                          (long long)n);
    }
    bp_free(scratch);
    bp_free(x);
    if (self->rows)
        bp_probe_add(self->rows, err == BP_OK ? BP_PROBE_OK : BP_PROBE_FAIL, "sum over ranks",
                     "leave hosts out in turn, and test them", "%s",
                     err == BP_OK ? "the same bits on all ranks" : bp_err_message());
    return err;
}

/* ---- the run folder: rank 0's ---- */

/* Parameters and moments in float32, which is all but a thousandth of a checkpoint. 0 if unknown.
 */
static int64_t estimated_bytes(const doctor *self)
{
    bp_config *config = self->config;
    const char *train = bp_corpus_keys_of(config)->train;
    bp_model_shape known = {0}, shape;
    bp_optimizer_rule rule = bp_engine_spec_of(config).optimizer;
    int64_t copies = 1 + bp_optimizer_moments(&rule);

    if (!train || !bp_config_is_set(config, "model.layers") ||
        !bp_config_is_set(config, "model.width") || !bp_config_is_set(config, "model.context") ||
        bp_corpus_read_vocab_size(train, &known.vocab_size) != BP_OK)
        return 0;
    if (known.vocab_size == 0) {
        bp_probe_add(self->rows, BP_PROBE_NOTE, "checkpoints", NULL,
                     "their size is not estimated: another program wrote %s, whose vocab_size is "
                     "not read before all of it was inspected",
                     train);
        return 0;
    }
    shape = bp_model_shape_of(config, &known);
    bp_model_shape_check(&shape, 1, 1, config);
    if (bp_config_faults(config) != BP_OK || !bp_model_shape_is_whole(&shape))
        return 0; /* a row of the configuration says it */
    return 4 * copies * bp_model_parameters(&shape);
}

/* What the run's newest checkpoint takes, or its first one will. */
static int64_t checkpoint_bytes(const doctor *self, const char *folder)
{
    json_t *status = NULL;
    int64_t bytes = 0;

    if (bp_path_is_dir(folder) && bp_run_status_read(&status, folder, 0, NULL) == BP_OK)
        bytes = json_integer_value(json_object_get(json_object_get(status, "commit"), "bytes"));
    json_decref(status);
    return bytes == 0 && self->config ? estimated_bytes(self) : bytes;
}

/* Rows are added up to what failed; *ground is left for others to look at. Whether anything can be
 * made there comes first: a folder where nothing can has no space either. */
static bp_err try_folder(const doctor *self, const char *folder, char **ground)
{
    int64_t keep = self->config ? bp_checkpoint_keys_of(self->config)->keep : 3;
    char *existing = bp_probe_existing(folder);
    bp_err err = bp_probe_ground(ground, existing);

    if (strcmp(existing, folder) != 0)
        bp_probe_add(self->rows, BP_PROBE_NOTE, "run folder", NULL,
                     "%s is not there yet: tried in %s", folder, existing);
    if (err != BP_OK)
        bp_probe_add(self->rows, BP_PROBE_FAIL, "run folder",
                     "ask for access there, or use another run.dir", "%s", bp_err_message());
    if (err == BP_OK)
        err = bp_probe_disk(self->rows, existing, checkpoint_bytes(self, folder), keep);
    if (err == BP_OK)
        err = bp_probe_files(self->rows, *ground);
    bp_free(existing);
    return err;
}

static bp_err look_at_folder(const doctor *self)
{
    const char *folder = self->config ? bp_run_keys_of(self->config)->dir : self->target;
    char *ground = NULL, *message;
    bp_err err;

    if (!folder)
        return BP_OK;
    err = bp_agree(self->world, self->rows ? try_folder(self, folder, &ground) : BP_OK);
    if (err == BP_OK) {
        bp_bcast_text(&ground, 0, self->world);
        err = bp_probe_shared(self->world, ground);
        if (self->rows && err != BP_OK)
            bp_probe_add(self->rows, BP_PROBE_FAIL, "seen by others",
                         "use a run.dir that all hosts share", "%s", bp_err_message());
        else if (self->rows && bp_comm_size(self->world) == 1)
            bp_probe_add(self->rows, BP_PROBE_NOTE, "seen by others", NULL,
                         "not tried: there is only one rank");
        else if (self->rows)
            bp_probe_add(self->rows, BP_PROBE_OK, "seen by others", NULL,
                         "a file of rank 0 is seen by all ranks, on %d host%s", self->host_count,
                         self->host_count == 1 ? "" : "s");
    }
    if (self->rows && ground) {
        message = bp_strdup(bp_err_message());
        if (bp_dir_remove(ground) != BP_OK)
            bp_warn_failure("%s", bp_err_text());
        bp_err_set_message(message);
        bp_free(message);
    }
    bp_free(ground);
    return err;
}

/* ---- the report ---- */

static void print_row(const char *level, const char *check, const char *before, const char *text)
{
    char *line = bp_sprintf("%-5s %-21s %s%s", level, check, before, text);
    bp_print_lines(line, TEXT_COLUMN);
    bp_free(line);
}

static void print_rows(const doctor *self)
{
    int warnings = 0, failures = 0;
    size_t k;
    json_t *row;

    json_array_foreach(self->rows, k, row)
    {
        const char *level = json_string_value(json_object_get(row, "level"));
        const char *remedy = json_string_value(json_object_get(row, "remedy"));
        bool fails = strcmp(level, "fail") == 0;

        warnings += strcmp(level, "warn") == 0;
        failures += fails;
        print_row(fails ? "FAIL" : level, json_string_value(json_object_get(row, "check")), "",
                  json_string_value(json_object_get(row, "text")));
        if (remedy)
            print_row("", "", "-> ", remedy);
    }
    if (failures > 0)
        printf("%d failure%s: a job would not run here\n", failures, failures == 1 ? "" : "s");
    else if (warnings > 0)
        printf("%d warning%s: a job would run here\n", warnings, warnings == 1 ? "" : "s");
    else
        printf("all is well\n");
}

/* Besides what was found before, which is the failure to report. */
static bp_err check_config(const doctor *self, const bp_option *const *tables, bp_err before)
{
    char message[BP_ERR_MESSAGE_BYTES];
    const bp_doctor_config what = {.path = self->target,
                                   .keys = self->keys,
                                   .key_count = self->key_count,
                                   .ranks = bp_comm_size(self->world),
                                   .tables = tables};
    bp_err err = BP_OK;

    (void)snprintf(message, sizeof message, "%s", bp_err_message());
    if (self->rows && self->config)
        err = bp_doctor_check_config(self->rows, self->config, &what);
    err = bp_agree(self->world, err);
    if (before != BP_OK)
        bp_err_set_message(message);
    return before != BP_OK ? before : err;
}

static bp_err examine(doctor *self, const bp_option *const *tables)
{
    bp_err err = read_config(self, tables);

    if (err != BP_OK)
        return err;
    if (bp_comm_is_root(self->world))
        self->rows = json_array();
    look_at_hosts(self);
    if (self->rows) {
        check_mpi(self);
        bp_probe_leftovers(self->rows);
    }
    err = check_bits(self);
    if (err == BP_OK)
        err = look_at_folder(self);
    err = check_config(self, tables, err);
    if (self->rows)
        check_libraries(self); /* last: who asks HDF5 first can't set it up any more */
    if (self->rows && self->json) {
        json_t *report =
            json_pack("{s:i, s:i, s:i, s:O}", "status", (int)err, "ranks",
                      bp_comm_size(self->world), "hosts", self->host_count, "checks", self->rows);
        char *text = bp_json_text(report);

        (void)fputs(text, stdout);
        bp_free(text);
        json_decref(report);
    } else if (self->rows) {
        print_rows(self);
    }
    return err;
}

int bp_doctor_command(int argc, char **argv, const bp_option *const *tables)
{
    doctor self = {.world = MPI_COMM_WORLD};
    bp_err err, started;

    err = parse(&self, argc, argv);
    started = bp_mpi_start(&argc, &argv);
    err = started != BP_OK ? started : err;
    if (err == BP_OK)
        err = examine(&self, tables);
    if (err != BP_OK && bp_log_speaks())
        bp_err_print(err);
    bp_config_free(&self.config);
    json_decref(self.rows);
    bp_mpi_finish();
    return (int)err;
}
