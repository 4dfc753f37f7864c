/* The corpora of a training: they are opened on the ranks that read, and what the coordinator finds
 * in them goes to all ranks. Called by setup.c. */
#include "train/loop/start/corpora.h"

#include "base/config/run_options.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/clusters.h"
#include "mesh/collective.h"
#include "statistics/clusters.h"
#include "text/tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

#define BAG_DOCUMENTS 100 /* a warning below that */

/* Checks that a given tokenizer matches the corpus. */
static bp_err check_tokenizer(const corpus_facts *facts, const bp_tokenizer *tokenizer,
                              const char *path)
{
    const char *hash = bp_tokenizer_hash(tokenizer);

    if (facts->tokenizer_hash[0] && !bp_tokenizer_same_hash(facts->tokenizer_hash, hash))
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                       "the tokenizer (%.12s...) is not the one that made the corpus (%.12s...): "
                       "at %s; give the corpus's tokenizer, or none",
                       hash, facts->tokenizer_hash, path);
    if (bp_tokenizer_size(tokenizer) < facts->vocab_size)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.mismatch",
                       "the tokenizer has %lld tokens, fewer than vocab_size = %lld of the corpus: "
                       "at %s; give the corpus's tokenizer, or none",
                       (long long)bp_tokenizer_size(tokenizer), (long long)facts->vocab_size, path);
    return BP_OK;
}

/* The tokenizer of the run: the corpus's, or, where the corpus has none, tokenizer.path's. */
static bp_err find_tokenizer(trainer *self)
{
    const char *path = bp_run_keys_of(self->config)->tokenizer_path;
    corpus_facts *facts = &self->facts;
    bp_tokenizer *tokenizer = NULL;
    size_t bytes;
    bp_err err;

    snprintf(facts->tokenizer_hash, sizeof facts->tokenizer_hash, "%s",
             bp_corpus_tokenizer_hash(self->data.corpus));
    if (bp_fault("tok.load"))
        return bp_fail_errno(BP_ERR_IO, "can't read the tokenizer", path ? path : "the corpus");
    if (!path)
        return bp_corpus_file_tokenizer(bp_corpus_file_at(self->data.corpus, 0),
                                        &self->data.tokenizer, &bytes);
    err = bp_tokenizer_load(&tokenizer, path);
    if (err == BP_OK)
        err = check_tokenizer(facts, tokenizer, path);
    if (err == BP_OK && !facts->tokenizer_hash[0]) /* else a run of an older version has it */
        snprintf(facts->tokenizer_hash, sizeof facts->tokenizer_hash, "%s",
                 bp_tokenizer_hash(tokenizer));
    if (err == BP_OK)
        self->data.tokenizer = bp_tokenizer_text(tokenizer);
    bp_tokenizer_free(&tokenizer);
    return err;
}

bp_err bp_trainer_weights(double **weights, const bp_config *config, const bp_corpus *corpus)
{
    const char *list = bp_corpus_keys_of(config)->weights;
    int64_t count, files = bp_corpus_files(corpus);
    bp_err err;

    *weights = NULL;
    if (!list)
        return BP_OK;
    err = bp_corpus_weights(weights, &count, list);
    if (err != BP_OK || count == files)
        return err;
    bp_free(*weights);
    *weights = NULL;
    return BP_FAIL(BP_ERR_CONFIG, "corpus.weights_mismatch",
                   "corpus.weights has %lld number%s, but corpus.train has %lld file%s: at "
                   "corpus.weights; give one for each file, in their order (of a glob, by name)",
                   (long long)count, count == 1 ? "" : "s", (long long)files,
                   files == 1 ? "" : "s");
}

static bp_err open_streams(trainer *self)
{
    bp_config *config = self->config;
    const char *valid = bp_corpus_keys_of(config)->valid;
    bp_stream_spec spec = {.bag = trainer_bags(config),
                           .seed = (uint64_t)bp_run_keys_of(config)->seed,
                           .member = bp_corpus_keys_of(config)->member,
                           .cluster = bp_corpus_keys_of(config)->cluster};
    double *weights = NULL;
    bp_err err = bp_corpus_open(&self->data.corpus, bp_corpus_keys_of(config)->train);

    spec.corpus = self->data.corpus;
    if (err == BP_OK)
        err = bp_trainer_weights(&weights, config, self->data.corpus);
    spec.weights = weights;
    if (err == BP_OK)
        err = bp_stream_new(&self->data.stream, &spec);
    bp_free(weights);
    if (err == BP_OK && valid)
        err = bp_corpus_open(&self->data.valid_corpus, valid);
    if (err == BP_OK && valid)
        err = bp_stream_new(&self->data.valid_stream,
                            &(bp_stream_spec){.corpus = self->data.valid_corpus});
    return err;
}

static bp_err check_valid_corpus(const corpus_facts *facts, const training_data *data,
                                 const char *path)
{
    const char *train = bp_corpus_tokenizer_hash(data->corpus),
               *valid = bp_corpus_tokenizer_hash(data->valid_corpus);
    int64_t vocab_size = bp_corpus_vocab_size(data->valid_corpus);

    if (vocab_size != facts->vocab_size)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.mismatch",
                       "vocab_size is %lld, but that of corpus.train is %lld: at %s; make both "
                       "with one tokenizer",
                       (long long)vocab_size, (long long)facts->vocab_size, path);
    if (train[0] && valid[0] && !bp_tokenizer_same_hash(train, valid))
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                       "the tokenizer is %.12s..., but that of corpus.train is %.12s...: at %s; "
                       "make both with one tokenizer",
                       valid, train, path);
    return BP_OK;
}

/* NULL: all files have segments. */
static const char *find_unsegmented(const bp_corpus *corpus)
{
    for (int64_t k = 0; k < bp_corpus_files(corpus); k++)
        if (!bp_corpus_file_info(bp_corpus_file_at(corpus, k))->has_segments)
            return bp_corpus_file_path(bp_corpus_file_at(corpus, k));
    return NULL;
}

static void find_segments(corpus_facts *facts, const training_data *data)
{
    const char *path = find_unsegmented(data->corpus);

    if (!path && data->valid_corpus)
        path = find_unsegmented(data->valid_corpus);
    facts->has_segments = !path;
    snprintf(facts->unsegmented, sizeof facts->unsegmented, "%s", path ? path : "");
}

/* Whether BERT's pairs of sentences can be made of a corpus. */
static void count_sentences(corpus_facts *facts, const bp_corpus *corpus)
{
    int64_t segments = 0, documents = 0;

    for (int64_t k = 0; k < bp_corpus_files(corpus); k++) {
        const bp_corpus_info *info = bp_corpus_file_info(bp_corpus_file_at(corpus, k));

        segments += info->segments;
        documents += info->documents;
    }
    facts->has_lone_sentences = segments <= documents;
    facts->has_lone_document = documents == 1;
}

static void find_roles(corpus_facts *facts, const bp_corpus *corpus)
{
    facts->eod_id = bp_corpus_eod(corpus);
    memcpy(facts->roles, bp_corpus_roles(corpus), sizeof facts->roles);
    for (int64_t k = 0; k < bp_corpus_files(corpus); k++)
        if (!bp_corpus_file_info(bp_corpus_file_at(corpus, k))->has_bos)
            facts->roles[BP_ROLE_BOS] = -1; /* it is not trained */
    facts->roles[BP_ROLE_FIRST] = facts->roles[BP_ROLE_BOS];
    facts->begin_id =
        facts->roles[BP_ROLE_BOS] >= 0 ? facts->roles[BP_ROLE_BOS] : bp_corpus_eod(corpus);
}

static bp_err find_valid(corpus_facts *facts, const training_data *data, const bp_config *config)
{
    facts->has_valid = data->valid_corpus != NULL;
    if (!facts->has_valid)
        return BP_OK;
    facts->valid_tokens = bp_stream_tokens(data->valid_stream);
    snprintf(facts->valid_hash, sizeof facts->valid_hash, "%s", bp_corpus_hash(data->valid_corpus));
    return check_valid_corpus(facts, data, bp_corpus_keys_of(config)->valid);
}

void trainer_say_clusters(const trainer *self)
{
    const char *label = bp_corpus_keys_of(self->config)->cluster;
    int64_t all, drawn = bp_stream_clusters(self->data.stream, &all);

    if (all > 0)
        bp_log("the bag has %lld of %lld clusters of documents, those with one value of the label "
               "%s",
               (long long)drawn, (long long)all, label);
    else if (label)
        BP_WARN("config.unused_key",
                "corpus.cluster has no effect without corpus.resample=bag; leave it out");
}

/* Finds the facts of the corpora on the coordinator, and broadcasts them. */
static bp_err find_facts(trainer *self)
{
    const training_data *data = &self->data;
    corpus_facts *facts = &self->facts;
    bp_err err;

    facts->vocab_size = bp_corpus_vocab_size(data->corpus);
    find_roles(facts, data->corpus);
    facts->tokens = bp_stream_tokens(data->stream);
    facts->mixed_files = bp_stream_weights(data->stream) ? bp_stream_files(data->stream) : 0;
    snprintf(facts->hash, sizeof facts->hash, "%s", bp_corpus_hash(data->corpus));
    err = bp_corpus_has_pairs(&facts->has_pairs, data->corpus);
    find_segments(facts, data);
    count_sentences(facts, data->corpus);
    if (err == BP_OK)
        err = find_valid(facts, data, self->config);
    return err == BP_OK ? find_tokenizer(self) : err;
}

bp_err trainer_open_corpora(trainer *self)
{
    const bp_mesh *mesh = self->mesh;
    bp_err err = BP_OK;

    self->data.leads = mesh->computes && bp_comm_is_root(mesh->model);
    if (self->data.leads || mesh->coordinates)
        err = open_streams(self);
    if (err == BP_OK && mesh->coordinates)
        err = find_facts(self);
    err = bp_agree(mesh->world, err);
    if (err == BP_OK)
        bp_bcast_bytes(&self->facts, sizeof self->facts, 0, mesh->world);
    return err;
}

bp_err bp_trainer_check_bag(bp_corpus *corpus, const char *cluster)
{
    int64_t documents = bp_corpus_documents(corpus), draws = documents, *numbers = NULL;
    const char *path = bp_corpus_file_path(bp_corpus_file_at(corpus, 0));
    bp_err err = cluster ? bp_corpus_clusters(&numbers, corpus, cluster, NULL, 0) : BP_OK;

    if (err != BP_OK)
        return err;
    if (cluster)
        draws = bp_clusters_of(NULL, numbers, NULL, documents);
    bp_free(numbers);
    if (documents < 2)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.too_few_documents",
                       "a bag needs at least 2 documents to draw from, but there are %lld: at %s; "
                       "cut the corpus into documents, or train without bags",
                       (long long)documents, path);
    if (draws < 2)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.too_few_documents",
                       "a bag needs at least 2 clusters to draw from, but all documents have one "
                       "value of '%s': at %s; leave corpus.cluster out",
                       cluster, path);
    if (draws < BAG_DOCUMENTS)
        BP_WARN("ensemble.few_documents",
                "bags are drawn from %lld %s: at %s; with fewer than %d they differ by "
                "chance more than by what they hold",
                (long long)draws, cluster ? "clusters of documents" : "documents", path,
                BAG_DOCUMENTS);
    return BP_OK;
}

void trainer_close_corpora(trainer *self)
{
    training_data *data = &self->data;

    bp_document_table_free(&data->valid_table);
    bp_stream_free(&data->stream);
    bp_stream_free(&data->valid_stream);
    bp_corpus_close(&data->corpus);
    bp_corpus_close(&data->valid_corpus);
    bp_free(data->tokenizer);
}
