/* From a configuration to a study whose models and corpora fit together: what can be refused before
 * any compute is refused here. */
#include "analysis/uncertainty/job_priv.h"

#include "analysis/uncertainty/laplace.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "math/math.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bp_err out_of_memory(void)
{
    return BP_FAIL(BP_ERR_SYSTEM, "no memory for a study");
}

static bp_err open_mesh(study_job *self, bool alone)
{
    static const bp_mesh_shape one = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_mesh_shape *shape = &self->mesh_shape;
    bp_err err;

    *shape = bp_mesh_shape_of(self->config);
    if (alone)
        return bp_mesh_new(&self->mesh, self->world, &one);
    err = bp_mesh_shape_fit(shape, bp_comm_size(self->world));
    if (err == BP_OK)
        err = bp_mesh_new(&self->mesh, self->world, shape);
    if (err == BP_OK)
        bp_math_warn_of_threads(self->mesh->world, self->mesh->computes);
    return err;
}

/* ---- lists ---- */

/* argv as the kernel has it. */
static char *read_command(int ranks)
{
    FILE *file = fopen("/proc/self/cmdline", "r");
    char chunk[1024];
    bp_buffer text = {0};
    char *command;
    size_t bytes;

    if (ranks > 1)
        bp_buffer_printf(&text, "mpirun -n %d ", ranks);
    while (file && (bytes = fread(chunk, 1, sizeof(chunk), file)) > 0)
        for (size_t k = 0; k < bytes; k++)
            bp_buffer_printf(&text, "%c", chunk[k] == '\0' ? ' ' : chunk[k]);
    if (file)
        (void)fclose(file); /* only read from */
    command = bp_buffer_take(&text);
    for (size_t end = command ? strlen(command) : 0; end > 0 && command[end - 1] == ' '; end--)
        command[end - 1] = '\0';
    return command;
}

static bp_err parse_lists(study_job *self)
{
    study_outcome *outcome = &self->outcome;
    const bp_config *config = self->config;
    const char *shifted = bp_config_string(config, "uncertainty.shifted");
    bp_err err =
        study_methods_parse(&outcome->methods, bp_config_string(config, "uncertainty.models"));

    if (err == BP_OK)
        err = study_groups_parse(&outcome->in_domain, "uncertainty.in_domain",
                                 bp_config_string(config, "uncertainty.in_domain"), "in_domain");
    if (err == BP_OK && shifted)
        err = study_groups_parse(&outcome->shifted, "uncertainty.shifted", shifted, NULL);
    outcome->seed = (uint64_t)bp_config_int(config, "run.seed");
    outcome->resamples = bp_config_int(config, "uncertainty.resamples");
    outcome->tempered = bp_config_string(config, "corpus.valid") != NULL;
    outcome->folder = bp_path_join(bp_config_string(config, "run.dir"), "uncertainty");
    outcome->command = read_command(bp_comm_size(self->world));
    self->record_path = outcome->folder ? bp_path_join(outcome->folder, "record.json") : NULL;
    if (err == BP_OK && (!self->record_path || !outcome->command))
        err = out_of_memory();
    return err;
}

/* ---- on the coordinator: files ---- */

static bp_err hash_corpus(const char *list, char hash[BP_SHA256_HEX], int64_t *tokens,
                          const study_corpora *others)
{
    bp_corpus *corpus = NULL;
    const char *theirs;
    bp_err err;

    if (!list)
        return BP_OK;
    err = bp_corpus_open(&corpus, list);
    if (err == BP_OK) {
        memcpy(hash, bp_corpus_hash(corpus), BP_SHA256_HEX);
        *tokens = bp_corpus_tokens(corpus);
        theirs = bp_corpus_tokenizer_hash(corpus);
        if (theirs[0] && others->tokenizer_hash[0] && strcmp(theirs, others->tokenizer_hash) != 0)
            err = BP_FAIL(BP_ERR_FORMAT,
                          "the tokenizer is %.12s..., but that of %s is %.12s...: at %s; make all "
                          "corpora with one tokenizer",
                          theirs, others->paths[0], others->tokenizer_hash, list);
    }
    bp_corpus_close(&corpus);
    return err;
}

/* Do the corpora's tokens mean what the method's mean? */
static bp_err check_tokenizer(const study_job *self, int64_t m)
{
    const study_method *method = &self->outcome.methods.items[m];
    const study_peek *peek = &self->outcome.peeks[m];
    const study_corpora *corpora = &self->corpora;

    if (peek->tokenizer_hash[0] && corpora->tokenizer_hash[0] &&
        strcmp(peek->tokenizer_hash, corpora->tokenizer_hash) != 0)
        return BP_FAIL(BP_ERR_FORMAT,
                       "the tokenizer of method %s (%.12s...) is not that of the corpora "
                       "(%.12s...): at %s and %s",
                       method->name, peek->tokenizer_hash, corpora->tokenizer_hash, method->path,
                       corpora->paths[0]);
    if (peek->vocab_size > 0 && peek->vocab_size < corpora->vocab_size)
        return BP_FAIL(BP_ERR_FORMAT,
                       "method %s has vocab_size %" PRId64 ", the corpora %" PRId64
                       ": at %s and %s; make the corpora with the model's tokenizer",
                       method->name, peek->vocab_size, corpora->vocab_size, method->path,
                       corpora->paths[0]);
    return BP_OK;
}

static bp_err check_same_vocabulary(const study_job *self, int64_t m)
{
    const study_method *methods = self->outcome.methods.items;
    const study_peek *first = &self->outcome.peeks[0], *peek = &self->outcome.peeks[m];

    if (first->vocab_size > 0 && peek->vocab_size > 0 && first->vocab_size != peek->vocab_size)
        return BP_FAIL(BP_ERR_FORMAT,
                       "methods %s and %s have vocab_size %" PRId64 " and %" PRId64
                       ": at %s and %s; only models of one tokenizer can be compared",
                       methods[0].name, methods[m].name, first->vocab_size, peek->vocab_size,
                       methods[0].path, methods[m].path);
    if (methods[m].way == STUDY_LAPLACE && peek->vocab_size > BP_LAPLACE_VOCAB_MAX)
        return BP_FAIL(BP_ERR_CONFIG,
                       "method %s has a vocabulary of %" PRId64
                       ", but :laplace takes %d at most: at %s; leave it out",
                       methods[m].name, peek->vocab_size, BP_LAPLACE_VOCAB_MAX, methods[m].path);
    return BP_OK;
}

/* Two weights have two manifests. */
static bp_err hash_models(study_job *self)
{
    bp_buffer text = {0};
    char *all;
    bp_err err;

    for (int64_t m = 0; m < self->outcome.methods.count; m++)
        bp_buffer_printf(&text, "%s %s %s\n", self->outcome.methods.items[m].name,
                         study_way_name(self->outcome.methods.items[m].way),
                         self->outcome.peeks[m].digest);
    all = bp_buffer_take(&text);
    err = all ? bp_sha256_of(all, strlen(all), self->models_hash) : out_of_memory();
    bp_free(all);
    return err;
}

static bp_err look_at_files(study_job *self)
{
    study_outcome *outcome = &self->outcome;
    const bp_config *config = self->config;
    int64_t tokens;
    bp_err err = BP_OK;

    for (int64_t m = 0; err == BP_OK && m < outcome->methods.count; m++)
        err = study_peek_at(&outcome->peeks[m], &outcome->methods.items[m]);
    for (int64_t m = 1; err == BP_OK && m < outcome->methods.count; m++)
        err = check_same_vocabulary(self, m);
    if (err == BP_OK)
        err = check_same_vocabulary(self, 0);
    if (err == BP_OK)
        err = study_corpora_open(&self->corpora, &outcome->in_domain, &outcome->shifted);
    for (int64_t m = 0; err == BP_OK && m < outcome->methods.count; m++)
        err = check_tokenizer(self, m);
    if (err == BP_OK) {
        memcpy(self->corpora_hash, self->corpora.hash, BP_SHA256_HEX);
        err = hash_corpus(bp_config_string(config, "corpus.valid"), self->valid_hash, &tokens,
                          &self->corpora);
    }
    if (err == BP_OK)
        err = hash_corpus(bp_config_string(config, "corpus.train"), self->train_hash,
                          &self->train_tokens, &self->corpora);
    return err == BP_OK ? hash_models(self) : err;
}

/* ---- what tells little, and is not refused ---- */

#define LITTLE_TEXT 10000 /* tokens, of a Laplace approximation */

static void warn_of_laplace(const study_job *self, int64_t m)
{
    const study_method *method = &self->outcome.methods.items[m];
    const char *trained_on = self->outcome.peeks[m].corpus_hash;
    const char *corpus = bp_config_string(self->config, "corpus.train");
    int64_t tokens = bp_config_int(self->config, "laplace.tokens");
    bool less = self->train_tokens < tokens;

    if (trained_on[0] && self->train_hash[0] && strcmp(trained_on, self->train_hash) != 0)
        bp_warn("method %s was trained on another corpus than corpus.train, to which its Laplace "
                "approximation is fitted: at %s; name the corpus of its training",
                method->name, corpus);
    if ((less ? self->train_tokens : tokens) < LITTLE_TEXT)
        bp_warn("the Laplace approximation of method %s is fitted to %" PRId64
                " tokens, fewer than %d, and says little: at %s; %s",
                method->name, less ? self->train_tokens : tokens, LITTLE_TEXT,
                less ? corpus : "laplace.tokens", less ? "take more text" : "raise it");
}

static void warn_of_dropout(const study_job *self, int64_t m)
{
    const char *name = self->outcome.methods.items[m].name;

    if (!(bp_config_real(self->config, "uncertainty.dropout") > 0))
        bp_warn("all passes of method %s are the same without dropout: at uncertainty.dropout; "
                "give a rate, such as 0.1",
                name);
    if (bp_config_int(self->config, "uncertainty.passes") == 1)
        bp_warn("one pass of method %s has nothing to disagree with: at uncertainty.passes; take "
                "2 or more",
                name);
}

static void warn_of_methods(const study_job *self)
{
    for (int64_t m = 0; m < self->outcome.methods.count; m++) {
        if (self->outcome.methods.items[m].way == STUDY_LAPLACE)
            warn_of_laplace(self, m);
        if (self->outcome.methods.items[m].way == STUDY_DROPOUT)
            warn_of_dropout(self, m);
    }
}

/* ---- what all ranks know ---- */

static int64_t count_members(const study_job *self, int64_t m)
{
    switch (self->outcome.methods.items[m].way) {
    case STUDY_DROPOUT:
        return bp_config_int(self->config, "uncertainty.passes");
    case STUDY_LAPLACE:
        return bp_config_int(self->config, "laplace.samples");
    default:
        return self->outcome.peeks[m].members;
    }
}

static void share(study_job *self)
{
    study_outcome *outcome = &self->outcome;

    bp_bcast_text(&self->corpora.list, 0, self->world);
    bp_bcast_bytes(outcome->peeks, outcome->methods.count * (int64_t)sizeof(*outcome->peeks), 0,
                   self->world);
    bp_bcast_bytes(self->corpora_hash, BP_SHA256_HEX, 0, self->world);
    bp_bcast_bytes(self->valid_hash, BP_SHA256_HEX, 0, self->world);
    bp_bcast_bytes(self->train_hash, BP_SHA256_HEX, 0, self->world);
    for (int64_t m = 0; m < outcome->methods.count; m++)
        outcome->members[m] = count_members(self, m);
}

/* All methods see the same windows: of the smallest context, if none was asked for. */
static bp_err resolve_context(study_job *self)
{
    int64_t context = 0;
    char text[32];

    for (int64_t m = 0; m < self->outcome.methods.count; m++) {
        int64_t one = self->outcome.peeks[m].context;

        if (one > 0 && (context == 0 || one < context))
            context = one;
    }
    if (context == 0 || bp_config_is_set(self->config, "score.context"))
        return BP_OK;
    snprintf(text, sizeof(text), "%" PRId64, context);
    return bp_config_set(self->config, "score.context", text);
}

bp_err study_job_open(study_job *self, MPI_Comm world, bp_config *config,
                      const bp_option *const *score_tables, bool alone)
{
    bp_err err;

    *self = (study_job){.world = world, .config = config, .score_tables = score_tables};
    bp_math_set_threads(bp_math_threads_for(world, (int)bp_config_int(config, "math.threads")));
    err = bp_agree(world, open_mesh(self, alone));
    if (err == BP_OK) {
        err = parse_lists(self);
        if (err == BP_OK) /* shifts are not all known yet: room for them comes below */
            err = study_outcome_init(&self->outcome);
        err = bp_agree(world, err);
    }
    if (err == BP_OK)
        err = bp_agree(world, self->mesh->coordinates ? look_at_files(self) : BP_OK);
    if (err == BP_OK)
        share(self);
    if (err == BP_OK)
        err = bp_agree(world, resolve_context(self));
    if (err == BP_OK && self->mesh->coordinates)
        warn_of_methods(self);
    return err;
}

void study_job_close(study_job *self)
{
    json_decref(self->record);
    bp_free(self->record_path);
    study_corpora_clear(&self->corpora);
    study_outcome_clear(&self->outcome);
    bp_mesh_free(&self->mesh);
}
