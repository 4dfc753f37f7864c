/* Counted models: one step makes the model from the whole stream, and its checkpoint. Called by
 * pretrain.c instead of steps.c. */
#include "train/loop/counting.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/heartbeat.h"
#include "mesh/collective.h"
#include "models/counting.h"
#include "train/loop/commit.h"
#include "train/loop/reports/report.h"
#include "train/loop/start/corpora.h"
#include "train/loop/start/duration.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The results of the family's calls. */
typedef struct counting_view {
    trainer *self;
    double began, printed; /* of the part of the work that goes on */
    const char *what;
} counting_view;

static bp_err read_stream(void *context, int64_t first, int64_t count, int32_t *tokens)
{
    const counting_view *view = context;

    return bp_stream_read(view->self->data.stream, first, count, tokens);
}

static bp_err read_valid(void *context, int64_t first, int64_t count, int32_t *tokens)
{
    const counting_view *view = context;

    return bp_stream_read(view->self->data.valid_stream, first, count, tokens);
}

static void show_progress(void *context, const char *what, int64_t done, int64_t of)
{
    counting_view *view = context;
    double now = bp_clock_now();
    char left[64];

    if (!view->what || strcmp(view->what, what) != 0)
        view->began = now;
    view->what = what;
    if (!bp_log_progress_due(view->printed) || done <= 0 || of <= 0)
        return;
    bp_clock_duration(left, sizeof left,
                      done < of ? (now - view->began) * (double)(of - done) / (double)done : 0);
    bp_log_progress("%s  %.1f %%  %s left", what, 100 * (double)done / (double)of, left);
    view->printed = now;
}

/* A digest of what the counts depend on, except the family's keys. */
static void name_work(const trainer *self, char work[BP_SHA256_HEX])
{
    const char *cluster =
        trainer_bags(self->config) ? bp_corpus_keys_of(self->config)->cluster : NULL;
    char *text =
        bp_sprintf("%s %d %d %" PRId64 " %" PRId64 " %" PRId64 "%s%s", self->facts.hash,
                   trainer_bags(self->config), BP_BAG_VERSION,
                   trainer_bags(self->config) ? bp_run_keys_of(self->config)->seed : 0,
                   trainer_bags(self->config) ? bp_corpus_keys_of(self->config)->member : 0,
                   self->facts.tokens, cluster ? " " : "", cluster ? cluster : "");

    bp_sha256_of(text, strlen(text), work);
    bp_free(text);
}

static bp_err check_stream(const trainer *self)
{
    const char *path = bp_corpus_keys_of(self->config)->train;

    if (bp_config_is_set(self->config, "model.init"))
        return BP_FAIL(BP_ERR_CONFIG, "ngram.has_init",
                       "model.init = %s, but a model of counts starts from nothing: at model.init; "
                       "leave it out",
                       bp_model_keys_of(self->config)->init);
    if (bp_config_is_set(self->config, "corpus.weights"))
        return BP_FAIL(BP_ERR_CONFIG, "ngram.has_weights",
                       "corpus.weights = %s, but a model of counts counts each text once: at "
                       "corpus.weights; leave it out, or count a model of each file and mix them "
                       "with bagpipe-data mix",
                       bp_corpus_keys_of(self->config)->weights);
    if (self->facts.tokens == 0)
        return BP_FAIL(BP_ERR_FORMAT, "ngram.no_tokens",
                       "the corpus has no tokens to count: at %s; give one with documents", path);
    if (self->facts.eod_id < 0)
        return BP_FAIL(BP_ERR_FORMAT, "ngram.no_end",
                       "the corpus has no end-of-document token, by which histories begin: at %s; "
                       "make it with a tokenizer that has one",
                       path);
    return BP_OK;
}

/* The family's input. */
static bp_counting counting_of(trainer *self, counting_view *view)
{
    *view = (counting_view){.self = self, .printed = bp_clock_now()};
    return (bp_counting){.comm = self->mesh->compute,
                         .config = self->config,
                         .shape = &self->shape,
                         .tokens = self->facts.tokens,
                         .eod_id = self->facts.eod_id,
                         .read = read_stream,
                         .valid_tokens = self->facts.has_valid ? self->facts.valid_tokens : 0,
                         .read_valid = read_valid,
                         .progress = show_progress,
                         .context = view};
}

/* Sends the family's results from compute's root to a dedicated coordinator, which writes the
 * manifest. */
static void share_reported(const trainer *self, json_t **state, double *valid_loss)
{
    char *text = self->mesh->rank == 1 ? bp_json_line(*state) : NULL;

    bp_bcast_text(&text, 1, self->mesh->world);
    bp_bcast_bytes(valid_loss, sizeof *valid_loss, 1, self->mesh->world);
    if (self->mesh->coordinates) {
        json_decref(*state);
        BP_CHECK(bp_json_parse(state, text, strlen(text), "counts") == BP_OK);
    }
    bp_free(text);
}

/* On the ranks that compute: RUN/counts/model.bin. */
static bp_err count(trainer *self, const char *folder, json_t *state, double *valid_loss)
{
    char work[BP_SHA256_HEX];
    counting_view view;
    bp_counting counting = counting_of(self, &view);

    name_work(self, work);
    counting.folder = folder;
    counting.work = work;
    counting.state = bp_comm_is_root(self->mesh->compute) ? state : NULL;
    bp_err err = self->shape.family->counting->count(&counting);
    *valid_loss = counting.valid_loss;
    return err;
}

bp_err bp_trainer_count_plan(trainer *self)
{
    const bp_mesh_shape *shape = &self->mesh_shape;
    counting_view view;
    bp_err err = bp_agree(self->mesh->world, check_stream(self));

    if (err == BP_OK && self->mesh->coordinates) {
        bp_counting counting = counting_of(self, &view);

        err = self->shape.family->counting->plan(&counting, shape->data > 0 ? shape->data : 1);
    }
    return bp_agree(self->mesh->world, err);
}

static bool has_valid(const trainer *self)
{
    return self->facts.has_valid && self->facts.valid_tokens > 0;
}

static bp_err write_metric(trainer *self, double seconds, double valid_loss)
{
    json_t *line = json_pack("{s:i, s:I, s:n, s:f, s:f}", "step", 1, "tokens",
                             (json_int_t)self->facts.tokens, "loss", "seconds", seconds,
                             "tokens_per_second", (double)self->facts.tokens / seconds);
    bp_err err;

    if (has_valid(self)) {
        (void)json_object_set_new(line, "valid_loss", bp_json_real(valid_loss));
        bp_log("valid %.4f nats a token, perplexity %.2f", valid_loss, exp(valid_loss));
    }
    err = bp_run_metric(self->run, line);
    if (err == BP_OK && self->hooks && self->hooks->metric)
        self->hooks->metric(self->hooks->context, line);
    bp_log("counted %" PRId64 " tokens in %.1f s, %.0f tokens/s", self->facts.tokens, seconds,
           (double)self->facts.tokens / seconds);
    json_decref(line);
    return err;
}

static char *folder_of(const trainer *self)
{
    return bp_path_join(bp_run_keys_of(self->config)->dir, "counts");
}

void trainer_remove_counts(const trainer *self)
{
    char *folder = folder_of(self);

    if (bp_path_exists(folder) && bp_dir_remove(folder) != BP_OK)
        bp_warn_failure("%s", bp_err_text());
    bp_free(folder);
}

/* The file becomes a checkpoint; the runs are removed. */
static bp_err commit(trainer *self, const char *folder, json_t *state, double seconds,
                     double valid_loss)
{
    char *attachment = bp_path_join(folder, BP_COUNTING_FILE);
    commit_of what = {.attachment = attachment, .state = state};
    bp_err err = self->mesh->coordinates ? write_metric(self, seconds, valid_loss) : BP_OK;

    err = bp_agree(self->mesh->world, err);
    self->progress.step = self->progress.updates = 1;
    what.best = has_valid(self) && trainer_take_validation(self, valid_loss);
    if (err == BP_OK)
        err = trainer_commit(self, &what);
    report_last_commit(self);
    bp_log_keep_progress();
    if (err == BP_OK && self->mesh->coordinates)
        trainer_remove_counts(self);
    bp_free(attachment);
    return err;
}

static bp_err begin(trainer *self, const char *folder)
{
    bool resumed = bp_run_is_resumed(self->run);
    bp_err err = bp_run_cut_metrics(self->run, 0);

    bp_run_take_changes(self->run);
    if (err == BP_OK)
        err = bp_run_event(self->run, resumed ? "resumed" : "started", NULL);
    if (err == BP_OK && self->hooks)
        err = self->hooks->started(self->hooks->context, 0);
    return err == BP_OK ? bp_dir_make(folder) : err;
}

bp_err trainer_count(trainer *self)
{
    char *folder = folder_of(self);
    bp_phase before = bp_heartbeat_phase(BP_PHASE_COUNT);
    json_t *state = json_object(); /* what the family adds to the checkpoint's */
    double began = bp_clock_now(), valid_loss = 0;
    bp_err err = bp_agree(self->mesh->world, check_stream(self));

    if (err == BP_OK)
        err = bp_agree(self->mesh->world, self->mesh->coordinates ? begin(self, folder) : BP_OK);
    if (err == BP_OK)
        err = bp_agree(self->mesh->world,
                       self->mesh->computes ? count(self, folder, state, &valid_loss) : BP_OK);
    if (err == BP_OK && self->mesh->dedicated)
        share_reported(self, &state, &valid_loss);
    if (err == BP_OK)
        err = commit(self, folder, state, bp_clock_now() - began, valid_loss);
    (void)bp_heartbeat_phase(before);
    json_decref(state);
    bp_free(folder);
    return err;
}
