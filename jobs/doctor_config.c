/* What `bagpipe doctor` finds wrong in a configuration. Called by doctor.c. */
#include "doctor_config.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "job.h"
#include "mesh/mesh.h"
#include "run/probe/probe.h"

#include <ctype.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct findings {
    json_t *rows;
    bp_err first; /* what fails, with its message */
    char message[BP_ERR_MESSAGE_BYTES];
} findings;

static void note(findings *self, bp_err err)
{
    if (self->first != BP_OK || err == BP_OK)
        return;
    self->first = err;
    (void)snprintf(self->message, sizeof self->message, "%s", bp_err_message());
}

/* By the first of these keys that is given: of several jobs that take it, the one that asks for
 * it. */
static const bp_job *job_of(const bp_config *read)
{
    static const struct {
        const char *key;
        const bp_job *job;
    } SIGNS[] = {{"uncertainty.models", &bp_job_uncertainty},
                 {"ensemble.members", &bp_job_ensemble},
                 {"task.kind", &bp_job_finetune},
                 {"corpus.train", &bp_job_pretrain},
                 {"generate.model", &bp_job_generate},
                 {"score.model", &bp_job_score}};

    for (size_t k = 0; k < sizeof SIGNS / sizeof SIGNS[0]; k++)
        if (bp_config_is_given(read, SIGNS[k].key))
            return SIGNS[k].job;
    return NULL;
}

static void check_mesh(findings *self, const bp_config *config, int ranks)
{
    bp_mesh_shape shape = bp_mesh_shape_of(config);
    bp_err err = bp_mesh_shape_fit(&shape, ranks);
    bool alone = ranks == 1; /* asked without the launcher: it may be started with more */

    if (err == BP_OK)
        bp_probe_add(self->rows, BP_PROBE_OK, "mesh", NULL, "fits %d rank%s", ranks,
                     alone ? "" : "s");
    else
        bp_probe_add(self->rows, alone ? BP_PROBE_WARN : BP_PROBE_FAIL, "mesh",
                     alone ? "ask with the ranks of the job to come"
                           : "start another number of ranks, or change mesh.*",
                     "%s", bp_err_message());
    if (!alone)
        note(self, err);
}

static void check_path(findings *self, const char *key, const char *path)
{
    bool is_there = bp_path_exists(path);
    const char *missing = is_there ? "it can't be read" : "there is no such file";

    if (access(path, R_OK) == 0)
        return;
    note(self, BP_FAIL(is_there ? BP_ERR_DENIED : BP_ERR_INPUT, "config.path_missing",
                       "%s: at %s = %s", missing, key, path));
    bp_probe_add(self->rows, BP_PROBE_FAIL, key, "name another one, or put it there", "%s: %s",
                 missing, path);
}

/* A path or a glob, as bp_corpus_open takes it. */
static void check_item(findings *self, const char *key, char *item)
{
    glob_t found = {0};
    size_t bytes;

    while (isspace((unsigned char)*item))
        item++;
    for (bytes = strlen(item); bytes > 0 && isspace((unsigned char)item[bytes - 1]);)
        item[--bytes] = '\0';
    if (item[0] == '\0')
        return;
    if (!strpbrk(item, "*?[") || bp_path_exists(item) || glob(item, 0, NULL, &found) != 0)
        check_path(self, key, item);
    for (size_t k = 0; k < found.gl_pathc; k++)
        check_path(self, key, found.gl_pathv[k]);
    globfree(&found);
}

/* The whole list may be one file whose name has a comma. */
static void check_corpora(findings *self, const char *key, const char *value)
{
    char *list = bp_path_exists(value) ? NULL : bp_strdup(value), *rest;

    if (!list) {
        check_path(self, key, value);
        return;
    }
    for (char *item = strtok_r(list, ",", &rest); item; item = strtok_r(NULL, ",", &rest))
        check_item(self, key, item);
    bp_free(list);
}

static void check_files(void *context, const bp_option *option, const char *value)
{
    static const struct {
        const char *key;
        void (*check)(findings *self, const char *key, const char *value);
    } FILES[] = {{"corpus.train", check_corpora},
                 {"corpus.valid", check_corpora},
                 {"score.corpus", check_corpora},
                 {"tokenizer.path", check_path},
                 {"model.init", check_path}};

    for (size_t k = 0; value && value[0] != '\0' && k < sizeof FILES / sizeof FILES[0]; k++)
        if (strcmp(option->key, FILES[k].key) == 0)
            FILES[k].check(context, option->key, value);
}

bp_err bp_doctor_check_config(json_t *rows, const bp_config *read, const bp_doctor_config *what)
{
    findings self = {.rows = rows};
    const bp_job *job = job_of(read);
    bp_config *config = NULL;
    bp_err err;

    if (!job) {
        bp_probe_add(rows, BP_PROBE_NOTE, "configuration", NULL,
                     "of no job: none of corpus.train, ensemble.members, generate.model, "
                     "score.model, task.kind, uncertainty.models is given");
        return BP_OK;
    }
    err = bp_config_new(&config, what->tables, job->options);
    if (err == BP_OK)
        bp_config_require_by(config, job->require);
    if (err == BP_OK)
        err = bp_config_read(config, what->path, what->key_count, what->keys);
    if (err == BP_OK)
        err = bp_config_check(config);
    if (err == BP_OK) {
        if (job->check)
            job->check(config);
        err = bp_config_faults(config);
    }
    if (err == BP_OK) {
        bp_probe_add(rows, BP_PROBE_OK, "configuration", NULL, "%s takes it", job->name);
        check_mesh(&self, config, what->ranks);
        bp_config_each(config, check_files, &self);
        err = self.first;
        if (err != BP_OK)
            bp_err_set_message(self.message);
    } else {
        bp_probe_add(rows, BP_PROBE_FAIL, "configuration", "change it as is said", "%s: %s",
                     job->name, bp_err_message());
    }
    bp_config_free(&config);
    return err;
}
