/* Run folders of a job that is made up: its keys, opening one with some of them, for tests of what
 * a run folder holds and refuses. */
#pragma once

#include "bp_test_mpi.h"

#include "run/run_folder.h"

#define COMM MPI_COMM_WORLD

static const bp_option OPTIONS[] = {
    {.key = "run.dir", .type = BP_OPTION_STRING, .help = "the run folder", .required = true},
    {.key = "run.seed", .type = BP_OPTION_INT, .value = "1", .help = "seed"},
    {.key = "corpus.train", .type = BP_OPTION_STRING, .help = "corpora"},
    {.key = "tokenizer.path", .type = BP_OPTION_STRING, .help = "tokenizer"},
    {.key = "train.steps", .type = BP_OPTION_INT, .value = "10", .help = "steps"},
    {.key = "train.batch", .type = BP_OPTION_INT, .value = "4", .help = "sequences"},
    {.key = "optimizer.lr", .type = BP_OPTION_REAL, .value = "3e-4", .help = "rate"},
    {.key = "optimizer.kind",
     .type = BP_OPTION_CHOICE,
     .value = "adamw",
     .choices = "adamw|sgd",
     .help = "which"},
    {.key = "mesh.data", .type = BP_OPTION_INT, .value = "0", .help = "ranks"},
    {.key = "math.precision",
     .type = BP_OPTION_CHOICE,
     .value = "auto",
     .choices = "auto|f32|bf16",
     .help = "bits"},
    {.key = NULL}};

static const char *const MAY_CHANGE[] = {"run.dir", "train.steps", NULL};
static const char *const OTHER_BITS[] = {"mesh.*", NULL};

static bp_mesh *mesh;

static inline bp_config *config_of(const char *run, const char *extra[], int count)
{
    static const bp_option *const tables[] = {OPTIONS, NULL};
    char *arguments[8];
    bp_config *config;

    arguments[0] = bp_sprintf("run.dir=%s", run);
    for (int k = 0; k < count; k++)
        arguments[k + 1] = (char *)extra[k];
    bp_test_expect(bp_config_new(&config, tables, tables), BP_OK);
    bp_test_expect(bp_config_read(config, NULL, count + 1, arguments), BP_OK);
    bp_free(arguments[0]);
    return config;
}

/* Open with key=value pairs; identities are the corpus's hash and the tokenizer's (NULL: "t0"). */
typedef struct opening {
    const char *run, *job, *hash, *tokenizer;
    const char *keys[6];
    int count;
} opening;

static inline bp_err open_run(bp_run **run, const opening *with)
{
    bp_config *config = config_of(with->run, (const char **)with->keys, with->count);
    static const bp_run_words words = {"tokenizer", "corpus.train and corpus.valid", "the place"};
    const bp_run_identity identities[] = {{"corpus.train", with->hash},
                                          {"tokenizer", with->tokenizer ? with->tokenizer : "t0"},
                                          {NULL, NULL}};
    json_t *extra = json_pack("{s:i, s:{s:s}}", "parameters", 42, "libraries", "onednn", "2.6");
    bp_run_spec spec = {.job = with->job == NULL ? "pretrain" : with->job,
                        .trains = true,
                        .may_change = MAY_CHANGE,
                        .other_bits = OTHER_BITS,
                        .identities = identities,
                        .words = &words,
                        .extra = extra,
                        .watch_seconds = 0.3};
    bp_err err = bp_run_open(run, mesh, config, &spec);

    json_decref(extra);
    bp_config_free(&config);
    return err;
}

/* Open and close at once, with this exit state. */
static inline void run_once(const opening *with, bp_err state)
{
    bp_run *run;

    bp_test_check_err(COMM, open_run(&run, with), BP_OK);
    bp_test_check_err(COMM, bp_run_close(&run, state), state);
    bp_test_check(COMM, run == NULL);
}

/* Refused on all ranks with one message that has these words; nothing is held after it. */
static inline void check_refused(const opening *with, bp_err expected, const char *words)
{
    bp_run *run;

    bp_test_check_err(COMM, open_run(&run, with), expected);
    bp_test_check(COMM, run == NULL);
    bp_test_check_said(COMM, words);
}

static inline const char *inside(const char *run, const char *name)
{
    char *path = bp_test_path_place();

    (void)snprintf(path, PATH_MAX, "%s/%s", run, name);
    return path;
}

static inline bool file_has(const char *run, const char *name, const char *words)
{
    char *text = NULL;
    size_t bytes;
    bool found = bp_file_read(inside(run, name), 1 << 20, &text, &bytes) == BP_OK &&
                 strstr(text, words) != NULL;

    bp_free(text);
    return found;
}

/* The first and the last test. */
static inline void mesh_is_made(void **state)
{
    bp_mesh_shape shape = {.members = 1, .pipeline = 1, .data = 0, .tensor = 1};

    (void)state;
    bp_test_check_err(COMM, bp_mesh_shape_fit(&shape, bp_comm_size(COMM)), BP_OK);
    bp_test_check_err(COMM, bp_mesh_new(&mesh, COMM, &shape), BP_OK);
}

static inline void mesh_is_freed(void **state)
{
    (void)state;
    bp_mesh_free(&mesh);
}
