/* Is corpus.valid, which temperatures and sets are fitted to, other text than what they are
 * measured on? Are both other texts than what the models learnt, and what their checkpoints were
 * chosen by? Called by setup.c. */
#include "uncertainty/comparison/job_priv.h"

#include "base/buffer.h"
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

/* ---- warnings ---- */

/* Some files of a corpus. */
typedef struct text_files {
    bp_corpus *corpus;
    bool *used; /* [files]; NULL: all */
} text_files;

static void add_content(bp_sha256 *hash, const bp_corpus_file *file)
{
    const char *content = bp_corpus_file_info(file)->content_hash;

    bp_sha256_update(hash, content, strlen(content));
    bp_sha256_update(hash, "\n", 1);
}

/* Is a corpus with this hash (bp_corpus_hash) all of the files, or one of them? */
static bool have_hash(const text_files *text, const char *wanted)
{
    bp_sha256 *all = bp_sha256_new();
    char hash[BP_SHA256_HEX];
    bool have = false;

    for (int64_t k = 0; k < bp_corpus_files(text->corpus); k++) {
        bp_sha256 *one = bp_sha256_new();

        add_content(one, bp_corpus_file_at(text->corpus, k));
        if (!text->used || text->used[k])
            add_content(all, bp_corpus_file_at(text->corpus, k));
        bp_sha256_finish(&one, hash);
        have = have || ((!text->used || text->used[k]) && strcmp(hash, wanted) == 0);
    }
    bp_sha256_finish(&all, hash);
    return have || strcmp(hash, wanted) == 0;
}

/* Is one of the files in corpus.train too? */
static bool have_training_text(const text_files *text, const char *train_list)
{
    bp_corpus *train = NULL;
    bool have = false;

    if (train_list && bp_corpus_open(&train, train_list) == BP_OK)
        for (int64_t k = 0; k < bp_corpus_files(text->corpus) && !have; k++)
            have = (!text->used || text->used[k]) &&
                   find_content(train, bp_corpus_file_at(text->corpus, k)) != NULL;
    bp_corpus_close(&train);
    return have;
}

static void add_name(bp_buffer *names, const char *name)
{
    bp_buffer_printf(names, "%s%s", names->bytes > 0 ? ", " : "", name);
}

/* The names of the methods that learnt the text, and of those whose checkpoint it chose. */
static void find_methods(const comparison_job *self, const text_files *text, bp_buffer *learnt,
                         bp_buffer *chosen)
{
    bool trained = have_training_text(text, bp_corpus_keys_of(self->config)->train);

    for (int64_t m = 0; m < self->results.methods.count; m++) {
        const comparison_method *method = &self->results.methods.items[m];
        const comparison_metadata *metadata = &self->results.metadata[m];

        if (comparison_is_predictions(method))
            continue;
        if (trained || have_hash(text, metadata->corpus_hash))
            add_name(learnt, method->name);
        else if (have_hash(text, metadata->chosen_by))
            add_name(chosen, method->name);
    }
}

static void warn_of_valid(const comparison_job *self)
{
    const char *list = bp_corpus_keys_of(self->config)->valid;
    bp_buffer learnt = {0}, chosen = {0};
    text_files text = {0};

    if (self->results.scaled && bp_corpus_open(&text.corpus, list) == BP_OK)
        find_methods(self, &text, &learnt, &chosen);
    if (learnt.bytes > 0)
        BP_WARN("comparison.calibrated_on_training",
                "corpus.valid is text of the training of %s, of which a model is surer than of new "
                "text, so that temperatures and sets are too small: at %s; calibrate on other text",
                learnt.data, list);
    if (chosen.bytes > 0)
        BP_WARN("comparison.calibrated_on_selection",
                "corpus.valid chose the best checkpoint of %s, and so is not like new text: at %s; "
                "calibrate on other text",
                chosen.data, list);
    bp_corpus_close(&text.corpus);
    bp_buffer_clear(&learnt);
    bp_buffer_clear(&chosen);
}

static void warn_of_domain(const comparison_job *self)
{
    const char *list = bp_uncertainty_keys_of(self->config)->in_domain;
    bp_buffer learnt = {0}, chosen = {0};
    text_files text = {0};
    int64_t first = 0;

    if (bp_corpus_open(&text.corpus, self->corpora.list) == BP_OK) {
        text.used = bp_alloc("comparison.texts", self->corpora.files, sizeof *text.used);
        for (int64_t k = 0; k < self->corpora.files; k++) {
            int64_t end = first + bp_corpus_file_info(bp_corpus_file_at(text.corpus, k))->documents;

            text.used[k] = count_within(&self->results.in_domain.items[0], first, end) > 0;
            first = end;
        }
        find_methods(self, &text, &learnt, &chosen);
    }
    if (learnt.bytes > 0)
        BP_WARN("comparison.measured_on_training",
                "uncertainty.in_domain is text of the training of %s, which a model predicts "
                "better than new text, so that its figures are too good: at %s; measure on text "
                "that no model was trained on",
                learnt.data, list);
    if (chosen.bytes > 0)
        BP_WARN("comparison.measured_on_selection",
                "uncertainty.in_domain chose the best checkpoint of %s, so that its figures are "
                "too good: at %s; measure on other text",
                chosen.data, list);
    bp_free(text.used);
    bp_corpus_close(&text.corpus);
    bp_buffer_clear(&learnt);
    bp_buffer_clear(&chosen);
}

void comparison_job_warn_of_texts(const comparison_job *self)
{
    warn_of_domain(self);
    warn_of_valid(self);
    if (self->results.cluster_label)
        comparison_corpora_warn_of_clusters(
            &self->corpora, &self->results.in_domain.items[0], self->results.cluster_label,
            bp_corpus_keys_of(self->config)->train, bp_corpus_keys_of(self->config)->valid);
}
