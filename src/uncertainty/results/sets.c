/* Conformal sets of a method, from its score folder: coverage and mean size of the domain, of each
 * shift, by the labels of the domain's documents, and by outcome. */
#include "uncertainty/results/results.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "io/h5/h5.h"
#include "statistics/resample.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BLOCK   65536
#define VERSION 1   /* of score-tokens, score-documents and score-outcomes */
#define MOST    100 /* outcomes or values of a label with their own figures */

enum { KNOWN, RANK, LAC, APS, APS_NEXT, RAPS, RAPS_NEXT, LABEL, COLUMNS };
static const char *const NAMES[COLUMNS] = {"confidence",    "target_rank",  "set_size_lac",
                                           "set_size_aps",  "set_next_aps", "set_size_raps",
                                           "set_next_raps", "label"};

/* Sums over some predictions. */
typedef struct set_sums {
    double count, covered[BP_CONFORMAL_KINDS], size[BP_CONFORMAL_KINDS];
} set_sums;

/* A prediction in the domain whose outcome is known. */
typedef struct set_prediction {
    int64_t document;
    int32_t outcome;
    set_sums sums;
} set_prediction;

typedef struct set_reader {
    comparison_sets *out;
    const comparison_results *results;
    const int64_t *tokens;
    int64_t documents;
    int64_t clusters; /* one more than the largest number of one; 0: there are none */
    set_sums *sums;   /* [documents] */
    float *blocks[COLUMNS];
    bool labelled;
    bool *in_domain;             /* [documents] */
    set_prediction *predictions; /* of the domain, if outcomes have names */
    int64_t count, capacity;
} set_reader;

/* ---- groups ---- */

typedef struct set_world {
    const set_sums *sums; /* [documents] of the group */
    int64_t documents;
} set_world;

static void measure(double *values, const int32_t *const *counts, const void *data)
{
    const set_world *world = data;
    set_sums all = {0};

    for (int64_t d = 0; d < world->documents; d++) {
        double times = counts ? counts[0][d] : 1;
        const set_sums *one = &world->sums[d];

        all.count += times * one->count;
        for (int k = 0; k < BP_CONFORMAL_KINDS; k++) {
            all.covered[k] += times * one->covered[k];
            all.size[k] += times * one->size[k];
        }
    }
    for (int k = 0; k < BP_CONFORMAL_KINDS; k++) {
        values[2 * k] = all.covered[k] / all.count;
        values[2 * k + 1] = all.size[k] / all.count;
    }
}

static void add_sums(set_sums *to, const set_sums *from)
{
    to->count += from->count;
    for (int k = 0; k < BP_CONFORMAL_KINDS; k++) {
        to->covered[k] += from->covered[k];
        to->size[k] += from->size[k];
    }
}

/* Keep the documents with predictions, and make one of those of a cluster. ids: their numbers among
 * all; NULL: those from 0. Returns how many are left. */
static int64_t merge_clusters(const set_reader *self, set_sums *sums, int64_t documents,
                              const int64_t *ids, comparison_set_group *group)
{
    int64_t *place = bp_alloc("comparison.sets", self->clusters, sizeof *place), kept = 0;
    const int64_t *cluster = self->results->cluster;

    for (int64_t d = 0; d < documents; d++) {
        int64_t *at = cluster ? &place[cluster[ids ? ids[d] : d]] : NULL;

        if (sums[d].count <= 0)
            continue;
        group->documents++;
        group->predictions += (int64_t)sums[d].count;
        if (at && *at > 0) {
            add_sums(&sums[*at - 1], &sums[d]);
            continue;
        }
        sums[kept++] = sums[d];
        if (at)
            *at = kept;
    }
    bp_free(place);
    return kept;
}

/* Adds a group of these documents; only those with predictions count. `sums` is written. */
static bp_err add_group(set_reader *self, const char *of, const char *name, set_sums *sums,
                        int64_t documents, const int64_t *ids)
{
    enum { WIDTH = 2 * BP_CONFORMAL_KINDS };
    comparison_sets *out = self->out;
    int64_t resamples = self->results->resamples, kept;
    double *resampled, points[WIDTH];
    comparison_set_group group = {.of = of};
    bp_err err = BP_OK;

    kept = merge_clusters(self, sums, documents, ids, &group);
    if (kept == 0)
        return BP_OK;
    set_world world = {sums, kept};
    bp_bootstrap bootstrap = {.seed = self->results->seed,
                              .resamples = resamples,
                              .groups = 1,
                              .documents = &kept,
                              .width = WIDTH};
    measure(points, NULL, &world);
    resampled = bp_alloc("comparison.sets", resamples * WIDTH, sizeof *resampled);
    err = bp_bootstrap_run(resampled, &bootstrap, measure, &world);
    for (int c = 0; c < WIDTH && err == BP_OK; c++) {
        comparison_value *value = c % 2 == 0 ? &group.coverage[c / 2] : &group.size[c / 2];
        bool share = c % 2 == 0 && kept >= BP_FEW_DOCUMENTS &&
                     (group.predictions == kept || points[c] <= 0 || points[c] >= 1);
        bp_interval interval;

        err = bp_interval_of(&interval, resampled + c, resamples, WIDTH, kept);
        if (share)
            interval = bp_wilson_interval(points[c], kept);
        *value = (comparison_value){points[c], interval.low, interval.high};
    }
    bp_free(resampled);
    if (err != BP_OK)
        return err;
    group.name = bp_strdup(name);
    out->groups = bp_realloc("comparison.sets", out->groups, out->count + 1, sizeof group);
    out->groups[out->count++] = group;
    return BP_OK;
}

/* The documents of a group of the study. */
static bp_err add_documents(set_reader *self, const char *of, const comparison_group *group)
{
    set_sums *sums = bp_alloc("comparison.sets", group->document_count, sizeof *sums);
    bp_err err;

    for (int64_t k = 0; k < group->document_count; k++)
        sums[k] = self->sums[group->documents[k]];
    err = add_group(self, of, group->name, sums, group->document_count, group->documents);
    bp_free(sums);
    return err;
}

/* ---- by outcome ---- */

static bp_err add_outcome(set_reader *self, int64_t outcome, const char *name)
{
    set_sums *sums = bp_alloc("comparison.sets", self->documents, sizeof *sums);
    bp_err err;

    for (int64_t k = 0; k < self->count; k++)
        if (self->predictions[k].outcome == outcome)
            add_sums(&sums[self->predictions[k].document], &self->predictions[k].sums);
    err = add_group(self, "outcome", name, sums, self->documents, NULL);
    bp_free(sums);
    return err;
}

/* Calls `add` for each of the texts of a dataset, unless they are too many. */
static bp_err each_name(set_reader *self, bp_h5 *file, const char *dataset,
                        bp_err (*add)(set_reader *self, int64_t k, const char *name))
{
    bp_h5_shape shape;
    char *texts;
    bp_err err = bp_h5_shape_of(file, dataset, &shape);

    if (err != BP_OK || shape.count > MOST || shape.count == 0)
        return err;
    texts = bp_alloc("comparison.sets", shape.count * (int64_t)shape.width, 1);
    err = bp_h5_read_text(file, dataset, shape.width, 0, texts, shape.count);
    for (int64_t k = 0; k < shape.count && err == BP_OK; k++) {
        char *name = bp_sprintf("%.*s", (int)shape.width, texts + (size_t)k * shape.width);

        err = name[0] ? add(self, k, name) : BP_OK;
        bp_free(name);
    }
    bp_free(texts);
    return err;
}

/* ---- by a label of the domain's documents ---- */

typedef struct label_codes {
    set_reader *reader;
    const char *label;
    uint32_t *codes; /* [documents] */
} label_codes;

static bp_err add_value(const label_codes *label, int64_t k, const char *value)
{
    set_reader *self = label->reader;
    set_sums *sums = bp_alloc("comparison.sets", self->documents, sizeof *sums);
    char *name = bp_sprintf("%s=%s", label->label, value);
    bp_err err;

    for (int64_t d = 0; d < self->documents; d++)
        if (self->in_domain[d] && label->codes[d] == (uint32_t)k)
            sums[d] = self->sums[d];
    err = add_group(self, "label", name, sums, self->documents, NULL);
    bp_free(name);
    bp_free(sums);
    return err;
}

static bp_err add_label(set_reader *self, bp_h5 *file, const char *label)
{
    char *codes_name = bp_sprintf("labels/%s", label);
    char *names_name = bp_sprintf("label_names/%s", label), *texts = NULL;
    label_codes codes = {self, label, bp_alloc("comparison.sets", self->documents, 4)};
    bp_h5_shape shape = {0};
    bp_err err = bp_h5_shape_of(file, names_name, &shape);

    if (err == BP_OK)
        err = bp_h5_read(file, codes_name, BP_H5_U32, 0, codes.codes, self->documents);
    if (err == BP_OK && shape.count <= MOST) {
        texts = bp_alloc("comparison.sets", shape.count * (int64_t)shape.width, 1);
        err = bp_h5_read_text(file, names_name, shape.width, 0, texts, shape.count);
        for (int64_t k = 0; k < shape.count && err == BP_OK; k++) {
            char *value = bp_sprintf("%.*s", (int)shape.width, texts + (size_t)k * shape.width);

            err = add_value(&codes, k, value);
            bp_free(value);
        }
    }
    bp_free(texts);
    bp_free(codes.codes);
    bp_free(names_name);
    bp_free(codes_name);
    return err;
}

/* For a language model; a task's folder has none. */
static bp_err add_labels(set_reader *self, const char *folder)
{
    char *path = bp_path_join(folder, "documents.h5"), **labels = NULL;
    int64_t count = 0;
    bp_h5 *file = NULL;
    bp_err err = bp_h5_open_kind(&file, path, "score-documents", VERSION);

    if (err == BP_OK)
        err = bp_h5_names(file, "labels", &labels, &count);
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        err = add_label(self, file, labels[k]);
    bp_names_free(&labels, count);
    bp_h5_drop(&file);
    bp_free(path);
    return err;
}

/* ---- reading ---- */

static set_sums sums_of(const set_reader *self, int64_t i, double u)
{
    const bp_conformal_set sets[] = {
        {(int64_t)self->blocks[LAC][i], -1},
        {(int64_t)self->blocks[APS][i], (double)self->blocks[APS_NEXT][i]},
        {(int64_t)self->blocks[RAPS][i], (double)self->blocks[RAPS_NEXT][i]}};
    set_sums sums = {.count = 1};

    for (int k = 0; k < BP_CONFORMAL_KINDS; k++) {
        int64_t size = bp_conformal_size(&sets[k], u);

        sums.size[k] = (double)size;
        sums.covered[k] = (int64_t)self->blocks[RANK][i] <= size;
    }
    return sums;
}

static void keep_prediction(set_reader *self, int64_t document, int32_t outcome,
                            const set_sums *sums)
{
    if (self->count == self->capacity) {
        self->capacity = 2 * self->capacity + 1024;
        self->predictions = bp_realloc("comparison.sets", self->predictions, self->capacity,
                                       sizeof *self->predictions);
    }
    self->predictions[self->count++] = (set_prediction){document, outcome, *sums};
}

static bp_err unlike(const char *path)
{
    return BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                   "the table has other numbers of predictions than its documents: at %s; remove "
                   "its folder, to score again",
                   path);
}

static bp_err read_predictions(set_reader *self, bp_h5 *file, const char *path)
{
    int64_t document = 0, position = 0;
    bp_h5_shape shape;
    bp_err err = bp_h5_shape_of(file, NAMES[RANK], &shape);

    for (int64_t first = 0; err == BP_OK && first < shape.count; first += BLOCK) {
        int64_t count = shape.count - first < BLOCK ? shape.count - first : BLOCK;

        for (int c = 0; err == BP_OK && c < COLUMNS - !self->labelled; c++)
            err = bp_h5_read(file, NAMES[c], BP_H5_F32, first, self->blocks[c], count);
        for (int64_t i = 0; err == BP_OK && i < count; i++) {
            if (isnan(self->blocks[KNOWN][i]))
                continue;
            while (document < self->documents && position == self->tokens[document]) {
                document++;
                position = 0;
            }
            if (document == self->documents) {
                err = unlike(path);
                break;
            }
            double u =
                bp_conformal_uniform(self->results->seed, BP_CONFORMAL_SETS, document, position++);
            if (isnan(self->blocks[RANK][i])) /* an outcome unknown to the models */
                continue;
            set_sums sums = sums_of(self, i, u);
            add_sums(&self->sums[document], &sums);
            if (self->labelled && self->in_domain[document])
                keep_prediction(self, document, (int32_t)self->blocks[LABEL][i], &sums);
        }
    }
    return err;
}

bp_err comparison_sets_read(comparison_sets *out, const comparison_results *results,
                            const char *folder, const int64_t *tokens, int64_t documents)
{
    const comparison_group *domain = &results->in_domain.items[0];
    char *path = bp_path_join(folder, results->classes ? "outcomes.h5" : "tokens.h5");
    set_reader self = {.out = out, .results = results, .tokens = tokens, .documents = documents};
    bp_h5 *file = NULL;
    bp_err err =
        bp_h5_open_kind(&file, path, results->classes ? "score-outcomes" : "score-tokens", VERSION);

    for (int64_t d = 0; results->cluster && d < documents; d++)
        if (results->cluster[d] >= self.clusters)
            self.clusters = results->cluster[d] + 1;
    self.sums = bp_alloc("comparison.sets", documents, sizeof *self.sums);
    self.in_domain = bp_alloc("comparison.sets", documents, sizeof *self.in_domain);
    for (int c = 0; c < COLUMNS; c++)
        self.blocks[c] = bp_alloc("comparison.sets", BLOCK, sizeof(float));
    for (int64_t k = 0; k < domain->document_count; k++)
        self.in_domain[domain->documents[k]] = true;
    if (err == BP_OK && bp_h5_has(file, NAMES[RANK])) {
        self.labelled = bp_h5_has(file, NAMES[LABEL]);
        err = read_predictions(&self, file, path);
        if (err == BP_OK)
            err = add_documents(&self, "domain", domain);
        for (int64_t s = 0; err == BP_OK && s < results->shifted.count; s++)
            err = add_documents(&self, "shift", &results->shifted.items[s]);
        if (err == BP_OK && !results->classes)
            err = add_labels(&self, folder);
        if (err == BP_OK && self.labelled && bp_h5_has(file, "outcome_names"))
            err = each_name(&self, file, "outcome_names", add_outcome);
    }
    bp_h5_drop(&file);
    for (int c = 0; c < COLUMNS; c++)
        bp_free(self.blocks[c]);
    bp_free(self.predictions);
    bp_free(self.in_domain);
    bp_free(self.sums);
    bp_free(path);
    return err;
}

void comparison_sets_clear(comparison_sets *sets)
{
    for (int64_t k = 0; k < sets->count; k++)
        bp_free(sets->groups[k].name);
    bp_free(sets->groups);
    *sets = (comparison_sets){.count = 0};
}
