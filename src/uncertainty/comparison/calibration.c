/* Is corpus.valid, which temperatures and sets are fitted to, other text than what they are
 * measured on, what the models learnt, and what their checkpoints were chosen by? Called by
 * setup.c. */
#include "uncertainty/comparison/job_priv.h"

#include "base/buffer.h"
#include "base/config/run_options.h"
#include "base/log.h"
#include "data/corpus.h"

#include <inttypes.h>
#include <string.h>

/* A file of `corpus` with the content of `file`; NULL if there is none. */
static bp_corpus_file *find_content(bp_corpus *corpus, bp_corpus_file *file)
{
    const char *content = bp_corpus_file_info(file)->content_hash;

    for (int64_t k = 0; k < bp_corpus_files(corpus); k++)
        if (strcmp(bp_corpus_file_info(bp_corpus_file_at(corpus, k))->content_hash, content) == 0)
            return bp_corpus_file_at(corpus, k);
    return NULL;
}

/* Documents of a group within [first, end) of all scored ones. */
static int64_t count_within(const comparison_group *group, int64_t first, int64_t end)
{
    int64_t count = 0;

    for (int64_t k = 0; k < group->document_count; k++)
        count += group->documents[k] >= first && group->documents[k] < end;
    return count;
}

bp_err comparison_job_check_calibration(const comparison_job *self)
{
    const char *list = bp_corpus_keys_of(self->config)->valid;
    bp_corpus *valid = NULL, *scored = NULL;
    int64_t first = 0;
    bp_err err = list ? bp_corpus_open(&valid, list) : BP_OK;

    if (list && err == BP_OK)
        err = bp_corpus_open(&scored, self->corpora.list);
    for (int64_t k = 0; scored && err == BP_OK && k < bp_corpus_files(scored); k++) {
        bp_corpus_file *file = bp_corpus_file_at(scored, k), *same = find_content(valid, file);
        int64_t end = first + bp_corpus_file_info(file)->documents;
        int64_t shared = same ? count_within(&self->results.in_domain.items[0], first, end) : 0;

        if (shared > 0)
            err =
                BP_FAIL(BP_ERR_CONFIG, "comparison.calibrated_in_domain",
                        "corpus.valid has %" PRId64 " documents of uncertainty.in_domain, those "
                        "of %s: at %s; calibrate on other text, as what is fitted to the text that "
                        "measures it looks better than it is",
                        shared, bp_corpus_file_path(file), bp_corpus_file_path(same));
        first = end;
    }
    bp_corpus_close(&scored);
    bp_corpus_close(&valid);
    return err;
}

static bool holds_training_text(const comparison_job *self)
{
    const char *valid_list = bp_corpus_keys_of(self->config)->valid,
               *train_list = bp_corpus_keys_of(self->config)->train;
    bp_corpus *valid = NULL, *train = NULL;
    bool holds = false;

    if (train_list && bp_corpus_open(&valid, valid_list) == BP_OK &&
        bp_corpus_open(&train, train_list) == BP_OK)
        for (int64_t k = 0; k < bp_corpus_files(valid) && !holds; k++)
            holds = find_content(train, bp_corpus_file_at(valid, k)) != NULL;
    bp_corpus_close(&train);
    bp_corpus_close(&valid);
    return holds;
}

static void add_name(bp_buffer *names, const char *name)
{
    bp_buffer_printf(names, "%s%s", names->bytes > 0 ? ", " : "", name);
}

void comparison_job_warn_of_calibration(const comparison_job *self)
{
    const comparison_results *results = &self->results;
    bool trained = results->scaled && holds_training_text(self);
    bp_buffer learnt = {0}, chosen = {0};

    for (int64_t m = 0; results->scaled && m < results->methods.count; m++) {
        const comparison_method *method = &results->methods.items[m];
        const comparison_metadata *metadata = &results->metadata[m];

        if (comparison_is_predictions(method))
            continue;
        if (trained || strcmp(metadata->corpus_hash, self->valid_hash) == 0)
            add_name(&learnt, method->name);
        else if (strcmp(metadata->chosen_by, self->valid_hash) == 0)
            add_name(&chosen, method->name);
    }
    if (learnt.bytes > 0)
        BP_WARN("comparison.calibrated_on_training",
                "corpus.valid is text of the training of %s, of which a model is surer than of new "
                "text, so that temperatures and sets are too small: at %s; calibrate on other text",
                learnt.data, bp_corpus_keys_of(self->config)->valid);
    if (chosen.bytes > 0)
        BP_WARN("comparison.calibrated_on_selection",
                "corpus.valid chose the best checkpoint of %s, and so is not like new text: at %s; "
                "calibrate on other text",
                chosen.data, bp_corpus_keys_of(self->config)->valid);
    bp_buffer_clear(&learnt);
    bp_buffer_clear(&chosen);
}
