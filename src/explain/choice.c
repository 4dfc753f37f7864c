/* explain.choose: separate units, done before the others, compute the hardness of each document.
 * Called by explain.c and document.c. */
#include "explain/explainer.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"

#include <string.h>

#define PARTS "choice"

static void share(int32_t *values, int64_t count, MPI_Comm group)
{
    bp_bcast_bytes(values, count * (int64_t)sizeof *values, 0, group);
}

void explain_share_document(explainer *self, bool *example)
{
    explain_reading *read = &self->read;
    MPI_Comm group = self->settings.group;
    int64_t sizes[] = {read->document.K,     read->document.T,      read->document.S,
                       read->document.hides, read->document.number, *example,
                       read->document.set,   read->document.of};
    double value = read->document.value;

    bp_bcast_bytes(sizes, sizeof sizes, 0, group);
    bp_bcast_bytes(&value, sizeof value, 0, group);
    *example = sizes[5];
    read->document = (bp_explained){.number = sizes[4],
                                    .rankings = self->rankings,
                                    .K = sizes[0],
                                    .T = sizes[1],
                                    .S = sizes[2],
                                    .hides = sizes[3],
                                    .set = sizes[6],
                                    .of = sizes[7],
                                    .value = value,
                                    .labels = read->labels,
                                    .inputs = read->inputs,
                                    .segments = self->texts.framed ? read->segments : NULL,
                                    .sources = read->sources,
                                    .targets = read->targets,
                                    .positions = read->positions,
                                    .foils = read->foils};
    share(read->inputs, sizes[1], group);
    share(read->segments, self->texts.framed ? sizes[1] : 0, group);
    share(read->sources, sizes[2], group);
    share(read->targets, sizes[0], group);
    share(read->positions, sizes[0], group);
    share(read->labels, sizes[0], group);
}

static bp_err prepare(void *context)
{
    explainer *self = context;

    explain_reading_new(&self->read, &self->texts);
    self->log_p = bp_alloc("explain", self->settings.most, sizeof *self->log_p);
    return BP_OK;
}

static void release(void *context)
{
    explainer *self = context;

    bp_free(self->log_p);
    explain_reading_clear(&self->read);
    self->log_p = NULL;
    self->read = (explain_reading){0};
}

/* The sum of -log p of a document's targets, on all ranks of the group. */
static bp_err score(explainer *self, double *sum)
{
    const bp_explained *document = &self->read.document;
    int32_t *targets = bp_alloc("explain", document->T, sizeof *targets), source_length;
    bp_model_batch batch = bp_explain_whole(document, targets, &source_length);
    bp_err err = bp_model_score(self->job->model, &batch, self->log_p);

    for (int64_t k = 0; k < document->K && err == BP_OK; k++)
        *sum -= (double)self->log_p[document->positions[k]];
    bp_free(targets);
    return err;
}

/* The mean of -log p of a document's targets. */
static bp_err run_unit(void *context, int64_t unit, bp_buffer *out, bool *stopped)
{
    explainer *self = context;
    bool example = false;
    double mean = 0;
    bp_err err = BP_OK, given = BP_OK;

    (void)stopped;
    bp_heartbeat_progress();
    self->read.document = (bp_explained){0};
    if (self->job->leads) {
        err = explain_texts_read(&self->texts, unit, &self->read);
        if (err != BP_OK)
            self->read.document = (bp_explained){0};
        bp_work_ask_next(self->job);
    }
    explain_share_document(self, &example);
    if (self->read.document.K > 0) {
        given = score(self, &mean);
        mean /= (double)self->read.document.K;
    }
    if (err == BP_OK && given == BP_OK && self->job->leads)
        bp_buffer_add(out, &mean, sizeof mean);
    return err == BP_OK ? given : err;
}

void explain_choice_units(explainer *self)
{
    const bp_explain_keys *keys = bp_explain_keys_of(self->job->config);

    if (strcmp(keys->choose, "hardest") == 0 && keys->examples > 0)
        self->choice = (bp_work_units){.parts = PARTS,
                                       .key = self->key,
                                       .count = self->texts.documents,
                                       .mesh_keys = "mesh.tensor",
                                       .prepare = prepare,
                                       .run = run_unit,
                                       .release = release};
}

/* hardness[documents] of the parts. */
static bp_err read_hardness(const explainer *self, double *hardness)
{
    char *folder = bp_path_join(self->job->folder, PARTS);
    bp_part_result part = {0};
    bp_parts *parts = NULL;
    bp_err err;

    bp_dir_refresh(folder); /* other nodes wrote there */
    err = bp_parts_open(&parts, folder, self->key, self->texts.documents, true);
    while (err == BP_OK && bp_parts_next(parts, &part, &err)) {
        err = bp_part_result_expect(&part, sizeof *hardness);
        if (err == BP_OK)
            memcpy(&hardness[part.unit], part.data, sizeof *hardness);
    }
    bp_parts_free(&parts);
    bp_free(folder);
    return err;
}

bp_err explain_choose(explainer *self)
{
    const bp_explain_keys *keys = bp_explain_keys_of(self->job->config);
    explain_choice choice = strcmp(keys->choose, "hardest") == 0  ? EXPLAIN_HARDEST
                            : strcmp(keys->choose, "random") == 0 ? EXPLAIN_RANDOM
                                                                  : EXPLAIN_FIRST;
    int64_t documents = self->texts.documents;
    double *hardness;
    bp_err err = BP_OK;

    if (self->chosen)
        return BP_OK;
    hardness = bp_alloc("explain.examples", documents, sizeof *hardness);
    if (self->choice.run)
        err = read_hardness(self, hardness);
    if (err == BP_OK) {
        explain_examples_choose(&self->examples, choice, keys->examples, &self->texts, hardness,
                                (uint64_t)bp_run_keys_of(self->job->config)->seed);
        self->chosen = true;
    }
    bp_free(hardness);
    return err;
}
