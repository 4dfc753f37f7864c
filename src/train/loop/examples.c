/* Examples of a training: their number, memory for those of a step, and the loader that makes them.
 * Called by start/setup.c. */
#include "train/loop/examples.h"

#include "base/log.h"
#include "base/mem.h"
#include "train/loop/learning.h"
#include "train/loop/start/corpora.h"

#include <string.h>

const char *trainer_examples_name(const trainer *self)
{
    static const char *const NAMES[] = {[BP_FEED_WINDOWS] = "windows",
                                        [BP_FEED_DOCUMENTS] = "documents",
                                        [BP_FEED_RUNS] = "runs of sentences"};

    return NAMES[self->examples.maker.feed];
}

bp_err bp_trainer_open_table(const trainer *self, bp_stream *stream, bp_document_table **out)
{
    return bp_document_table_new(
        out, &(bp_document_table_spec){.stream = stream,
                                       .columns = self->examples.columns,
                                       .run_tokens = self->examples.maker.window});
}

/* Counts entries: of files with a weight above 0, and of all files. */
static bp_err count_entries(const trainer *self, bp_stream *stream, int64_t *used, int64_t *all)
{
    const double *weights = bp_stream_weights(stream);
    bp_document_table *table = NULL;
    bp_err err = bp_trainer_open_table(self, stream, &table);

    if (err != BP_OK)
        return err;
    *used = *all = bp_document_table_count(table);
    for (int64_t k = 0; weights && k < bp_stream_files(stream); k++) {
        int64_t first, count;

        bp_document_table_file(table, k, &first, &count);
        *used -= weights[k] > 0 ? 0 : count;
    }
    bp_document_table_free(&table);
    return BP_OK;
}

/* An epoch of all bags is as long as one of the corpus itself. */
static bp_err count_training(trainer *self)
{
    bp_stream *plain = NULL;
    bp_err err;

    if (!trainer_bags(self->config))
        return count_entries(self, self->data.stream, &self->facts.epoch_windows,
                             &self->facts.documents);
    err = bp_stream_new(&plain, &(bp_stream_spec){.corpus = self->data.corpus,
                                                  .weights = bp_stream_weights(self->data.stream)});
    if (err == BP_OK)
        err = count_entries(self, plain, &self->facts.epoch_windows, &self->facts.documents);
    bp_stream_free(&plain);
    return err;
}

bp_err trainer_count_documents(trainer *self)
{
    int64_t used;
    bp_err err = count_training(self);

    if (err == BP_OK && self->data.valid_stream)
        err = count_entries(self, self->data.valid_stream, &used, &self->facts.valid_documents);
    return err;
}

/* Batches of similar lengths are shortened, micro-batch by micro-batch. Runs of sentences are
 * sorted by their length without noise; a pair of runs, of next sentences, fills its positions. */
static bp_err open_bucket(trainer *self, int64_t slots)
{
    const bp_objective *objective = bp_model_objective(&self->shape);
    bool of_documents = !self->examples.columns.spans && !self->learner &&
                        (self->examples.maker.feed == BP_FEED_DOCUMENTS ||
                         (self->examples.maker.feed == BP_FEED_RUNS && objective->noises));

    if (bp_corpus_keys_of(self->config)->bucket == 0)
        return BP_OK;
    if (!of_documents || self->facts.mixed_files > 0)
        return BP_FAIL(BP_ERR_CONFIG, "corpus.bucket_unused",
                       "corpus.bucket sorts examples by length, but %s: at corpus.bucket; leave it "
                       "out",
                       !of_documents ? "here all are of one length"
                                     : "corpus.weights takes them from several corpora in turns");
    self->examples.fits = bp_alloc("input", (slots / self->spec.micro_batch + 1) * BP_STREAMS,
                                   sizeof *self->examples.fits);
    return BP_OK;
}

/* Does each batch slot read one text in order? */
static bool in_sequence(const trainer *self)
{
    const char *order = bp_corpus_keys_of(self->config)->order;

    return strcmp(order, "stream") == 0 || strcmp(order, "documents") == 0 ||
           (strcmp(order, "auto") == 0 && self->shape.family->carries_state);
}

/* The table and the window that validation reads. */
static bp_err open_valid(trainer *self)
{
    const bp_example_maker *maker = &self->examples.maker;

    self->examples.window = bp_alloc("input", maker->window, sizeof *self->examples.window);
    if (maker->feed == BP_FEED_WINDOWS || !self->data.valid_stream)
        return BP_OK;
    return bp_trainer_open_table(self, self->data.valid_stream, &self->data.valid_table);
}

static bp_err open_loader(trainer *self, int64_t slots)
{
    bp_loader_spec spec = {.stream = self->data.stream,
                           .maker = self->examples.maker,
                           .columns = self->examples.columns,
                           .batch = self->spec.batch,
                           .seed = self->spec.seed,
                           .slots = slots,
                           .bucket = bp_corpus_keys_of(self->config)->bucket,
                           .in_sequence = in_sequence(self)};

    if (spec.in_sequence && bp_stream_weights(self->data.stream))
        return BP_FAIL(BP_ERR_CONFIG, "corpus.weights_unused",
                       "corpus.weights takes windows of several corpora in turns, but "
                       "here each batch slot reads one text in order (corpus.order): "
                       "at corpus.weights; leave it out");
    if (self->engine)
        bp_engine_slots(self->engine, &spec.first_slot, &spec.slots);
    return bp_loader_new(&self->data.loader, &spec);
}

bp_err trainer_open_examples(trainer *self)
{
    int64_t slots = bp_trainer_slots(self, &self->spec, self->mesh->data_ranks);
    size_t bytes = bp_batch_bytes(&self->examples.maker.form, slots);
    bp_err err;

    self->examples.buffer = bp_try_alloc("input", (int64_t)bytes, 1);
    if (!self->examples.buffer)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "memory is short: at the batch; use a smaller train.batch");
    err = open_bucket(self, slots);
    if (err == BP_OK && self->data.leads)
        err = open_valid(self);
    if (err == BP_OK && self->data.leads)
        err = open_loader(self, slots);
    return err;
}

void trainer_warn_of_few(const trainer *self)
{
    const bp_loader *loader = self->data.loader;

    if (!loader || !bp_loader_repeat(loader) || self->mesh->data_rank > 0)
        return;
    if (bp_stream_weights(self->data.stream))
        BP_WARN("corpus.few_windows",
                "a step takes more windows of a corpus than it has, by corpus.weights: windows "
                "repeat within a step; use a smaller batch or a shorter context");
    else
        BP_WARN("corpus.few_windows",
                "the corpus has %lld %s, fewer than train.batch = %lld: they repeat within a step; "
                "use a smaller batch or a shorter context",
                (long long)bp_loader_windows(loader), trainer_examples_name(self),
                (long long)self->spec.batch);
}

void trainer_close_examples(trainer *self)
{
    bp_free(self->examples.buffer);
    bp_free(self->examples.fits);
    bp_free(self->examples.window);
}
