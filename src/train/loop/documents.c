/* Trainings whose examples are documents, or runs of sentences: how many there are. */
#include "train/loop/trainer.h"

const char *trainer_examples_name(const trainer *self)
{
    static const char *const NAMES[] = {[BP_FEED_WINDOWS] = "windows",
                                        [BP_FEED_DOCUMENTS] = "documents",
                                        [BP_FEED_RUNS] = "runs of sentences"};

    return NAMES[self->maker.feed];
}

bp_err trainer_open_table(const trainer *self, bp_stream *stream, bp_document_table **out)
{
    return bp_document_table_new(out, &(bp_document_table_spec){.stream = stream,
                                                                .columns = self->columns,
                                                                .run_tokens = self->maker.window});
}

/* Those of files whose weight is above 0, and all. */
static bp_err count_entries(const trainer *self, bp_stream *stream, int64_t *used, int64_t *all)
{
    const double *weights = bp_stream_weights(stream);
    bp_document_table *table = NULL;
    bp_err err = trainer_open_table(self, stream, &table);

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
        return count_entries(self, self->stream, &self->epoch_windows, &self->facts.documents);
    err = bp_stream_new(&plain, &(bp_stream_spec){.corpus = self->corpus,
                                                  .weights = bp_stream_weights(self->stream)});
    if (err == BP_OK)
        err = count_entries(self, plain, &self->epoch_windows, &self->facts.documents);
    bp_stream_free(&plain);
    return err;
}

bp_err trainer_count_documents(trainer *self)
{
    int64_t used;
    bp_err err = count_training(self);

    if (err == BP_OK && self->valid_stream)
        err = count_entries(self, self->valid_stream, &used, &self->facts.valid_documents);
    return err;
}

bp_err trainer_open_documents(trainer *self)
{
    if (self->maker.feed == BP_FEED_WINDOWS || !self->valid_stream)
        return BP_OK;
    return trainer_open_table(self, self->valid_stream, &self->valid_table);
}
