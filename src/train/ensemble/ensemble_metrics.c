/* A merge of the members' metrics.jsonl by step, each read a block at a time. Called by
 * ensemble_scheduler.c, on the coordinator. */
#include "train/ensemble/ensemble_priv.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES 8192 /* a line is some 300 bytes */

/* Where one member's file has been read to. */
typedef struct reader {
    char *path;
    int64_t certain;     /* lines up to this step stay; INT64_MAX: all that are there */
    bool complete;       /* no line will come */
    bool exhausted;      /* and none is left */
    ensemble_end end;    /* how it ended */
    int64_t taken_bytes; /* of the file: lines that were taken */
    char *block;         /* what follows them; NULL before the first look */
    int64_t bytes, at;
    /* the next line */
    bool there;
    int64_t line_bytes, step;
    double loss, valid_loss;
    bool validated;
} reader;

struct ensemble_metrics {
    const ensemble *self;
    reader *readers; /* [members] */
};

bp_err ensemble_metrics_new(ensemble_metrics **out, const ensemble *self)
{
    ensemble_metrics *metrics = bp_alloc("ensemble.metrics", 1, sizeof *metrics);

    *out = metrics;
    metrics->readers = bp_alloc("ensemble.metrics", self->members, sizeof *metrics->readers);
    metrics->self = self;
    for (int64_t k = 0; k < self->members; k++) {
        metrics->readers[k].path = ensemble_member_path(self, k, "metrics.jsonl");
        metrics->readers[k].certain = ensemble_member_step(self, k); /* whole or not: the run itself
                                                                        verifies */
    }
    return bp_run_cut_metrics(self->run, -1);
}

void ensemble_metrics_free(ensemble_metrics **metrics)
{
    if (!*metrics)
        return;
    for (int64_t k = 0; (*metrics)->readers && k < (*metrics)->self->members; k++) {
        bp_free((*metrics)->readers[k].path);
        bp_free((*metrics)->readers[k].block);
    }
    bp_free((*metrics)->readers);
    bp_free(*metrics);
    *metrics = NULL;
}

/* Data that was read but not taken may have been removed. */
static void look_again(reader *self)
{
    self->bytes = self->at = 0;
    self->there = self->exhausted = false;
}

bp_err ensemble_metrics_started(ensemble_metrics *metrics, int64_t member, int64_t step)
{
    reader *one = &metrics->readers[member];
    bool again = step < one->certain && one->taken_bytes > 0;
    bp_err err = BP_OK;

    one->certain = INT64_MAX;
    look_again(one);
    if (!again)
        return BP_OK;
    /* its newest checkpoint was damaged, and lines that were taken are gone: from the start */
    err = bp_run_cut_metrics(metrics->self->run, -1);
    for (int64_t k = 0; k < metrics->self->members; k++) {
        metrics->readers[k].taken_bytes = 0;
        look_again(&metrics->readers[k]);
    }
    return err;
}

void ensemble_metrics_look(const ensemble *self, int64_t member)
{
    char *path = ensemble_member_path(self, member, "metrics.jsonl");

    if (bp_file_size(path) <= 0)
        BP_WARN("metrics.missing",
                "the metrics of a member that is trained are lost: at %s; those of the ensemble "
                "may lack them",
                path);
    bp_free(path);
}

void ensemble_metrics_ended(ensemble_metrics *metrics, int64_t member, ensemble_end how)
{
    reader *one = &metrics->readers[member];

    if (how == ENSEMBLE_TRAINED)
        ensemble_metrics_look(metrics->self, member);
    one->certain = INT64_MAX;
    one->complete = true;
    one->end = how;
    if (!one->there)
        look_again(one);
}

/* ---- reading ---- */

static bp_err read_block(reader *self)
{
    ssize_t got;
    int fd;
    bp_err err = bp_plain_open(self->path, O_RDONLY, &fd);

    look_again(self);
    if (err != BP_OK)
        return err == BP_ERR_INPUT ? BP_OK : err;
    if (!self->block)
        self->block = bp_alloc("ensemble.metrics", BLOCK_BYTES, 1);
    got = pread(fd, self->block, BLOCK_BYTES, self->taken_bytes);
    if (got < 0)
        err = bp_fail_errno(BP_ERR_IO, "can't read", self->path);
    self->bytes = got < 0 ? 0 : got;
    (void)close(fd); /* it was only read */
    return err;
}

/* The bytes of the next whole line, with its newline; 0 if there is none. */
static int64_t line_ahead(const reader *self)
{
    const char *from = self->block ? self->block + self->at : NULL;
    const char *end =
        self->at < self->bytes ? memchr(from, '\n', (size_t)(self->bytes - self->at)) : NULL;

    return end ? end - from + 1 : 0;
}

static void take(reader *self)
{
    self->taken_bytes += self->line_bytes;
    self->at += self->line_bytes;
    self->there = false;
}

/* Read the line ahead. Errors: BP_ERR_FORMAT it can't be read. */
static bp_err read_line(reader *self)
{
    json_t *line;
    bp_err err = bp_json_parse(&line, self->block + self->at, (size_t)self->line_bytes, self->path);

    if (err == BP_OK)
        err = bp_json_get_int(line, "step", &self->step, self->path);
    self->there = err == BP_OK;
    self->loss = bp_json_number(line, "loss");
    self->valid_loss = bp_json_number(line, "valid_loss");
    self->validated = json_object_get(line, "valid_loss") != NULL;
    json_decref(line);
    return err;
}

/* Is there a next line, and will it stay? One that can't be read is skipped: the member has warned
 * of it. */
static bp_err read_ahead(reader *self, bool *there)
{
    bp_err err = BP_OK;

    *there = false;
    while (!self->there && !self->exhausted) {
        if (line_ahead(self) == 0)
            err = read_block(self);
        self->line_bytes = line_ahead(self);
        self->exhausted = self->complete && self->line_bytes == 0;
        if (err == BP_OK && self->line_bytes == 0 && self->bytes == BLOCK_BYTES)
            err = BP_FAIL(BP_ERR_FORMAT, "metrics.damaged",
                          "metrics are damaged: a line of more than %d bytes after byte %" PRId64
                          ": in %s; remove that line, or the member's folder to train it anew",
                          BLOCK_BYTES, self->taken_bytes, self->path);
        if (err != BP_OK || self->line_bytes == 0)
            return err;
        err = read_line(self);
        if (err == BP_ERR_FORMAT) {
            take(self);
            err = BP_OK;
        }
        if (err != BP_OK)
            return err;
    }
    *there = self->there && self->step <= self->certain;
    return BP_OK;
}

/* ---- writing ---- */

/* {"m00": ..., "m01": ...}, and of what is there the mean and the sample standard deviation. */
static void add_values(const ensemble_metrics *metrics, json_t *line, int64_t step, bool valid)
{
    const char *key = valid ? "valid_loss" : "loss";
    json_t *values = json_object();
    double sum = 0, squares = 0, mean;
    char name[ENSEMBLE_NAME_BYTES], mean_key[32], spread_key[32];
    int64_t n = 0;

    for (int pass = 0; pass < 2; pass++) {
        mean = n > 0 ? sum / (double)n : NAN;
        for (int64_t k = 0; k < metrics->self->members; k++) {
            const reader *one = &metrics->readers[k];
            double value = valid ? one->valid_loss : one->loss;

            if (!one->there || one->step != step || (valid && !one->validated))
                continue;
            if (pass > 0) {
                squares += (value - mean) * (value - mean);
                continue;
            }
            sum += value;
            n++;
            ensemble_name(metrics->self, k, name);
            json_object_set_new(values, name, bp_json_real(value));
        }
    }
    if (valid && n == 0) {
        json_decref(values);
        return;
    }
    snprintf(mean_key, sizeof mean_key, "%s_mean", key);
    snprintf(spread_key, sizeof spread_key, "%s_spread", key);
    json_object_set_new(line, key, values);
    json_object_set_new(line, mean_key, bp_json_real(mean));
    json_object_set_new(line, spread_key,
                        bp_json_real(n > 1 ? sqrt(squares / (double)(n - 1)) : NAN));
}

static bp_err write_step(const ensemble_metrics *metrics, int64_t step)
{
    json_t *line = json_object();
    bp_err err;

    json_object_set_new(line, "step", json_integer(step));
    add_values(metrics, line, step, false);
    add_values(metrics, line, step, true);
    err = bp_run_metric(metrics->self->run, line);
    json_decref(line);
    return err;
}

/* The state of the lowest step that any member has next. */
enum { NOTHING_THERE, WAIT_FOR_IT, NOT_IN_ALL, IN_ALL };

static bp_err find_next_step(ensemble_metrics *metrics, int64_t *step, int *state)
{
    int64_t members = metrics->self->members;
    bool waits = false, lacks = false, there;

    *step = INT64_MAX;
    for (int64_t k = 0; k < members; k++) {
        reader *one = &metrics->readers[k];
        bp_err err = read_ahead(one, &there);

        if (err != BP_OK)
            return err;
        if (there && one->step < *step)
            *step = one->step;
        waits = waits || (!there && !one->complete);
        lacks = lacks || (!there && one->complete && one->end == ENSEMBLE_TRAINED);
    }
    for (int64_t k = 0; k < members; k++) {
        const reader *one = &metrics->readers[k];
        lacks = lacks || (one->there && one->step != *step && one->end != ENSEMBLE_DIVERGED);
    }
    *state = *step == INT64_MAX ? NOTHING_THERE : waits ? WAIT_FOR_IT : lacks ? NOT_IN_ALL : IN_ALL;
    return BP_OK;
}

bp_err ensemble_metrics_flush(ensemble_metrics *metrics)
{
    for (;;) {
        int64_t step;
        int state;
        bp_err err = find_next_step(metrics, &step, &state);

        if (err == BP_OK && state == IN_ALL)
            err = write_step(metrics, step);
        if (err != BP_OK || state == NOTHING_THERE || state == WAIT_FOR_IT)
            return err;
        for (int64_t k = 0; k < metrics->self->members; k++)
            if (metrics->readers[k].there && metrics->readers[k].step == step)
                take(&metrics->readers[k]);
    }
}
