/* A bilm-tf folder becomes a model: options.json, weights in HDF5, and the words of its vocabulary.
 * Called by elmo.c. */
#include "models/elmo/bilm_priv.h"

#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/suffix.h"
#include "io/h5/h5.h"
#include "io/h5/h5_apart.h"
#include "models/elmo/elmo.h"
#include "nn/core/layers.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define LEAST_SECONDS 30

typedef struct reader {
    char *options, *weights, *words, *tokenizer; /* paths; the last two NULL if absent */
    bp_model_shape shape;
    bilm_tensors tensors;
    float *values;  /* [tensors.floats] of all datasets, shared with the child */
    float *spelled; /* [V + 1][BP_WORD_CHARACTERS] */
    float *made;    /* values of the tensor fetched last */
    int64_t made_floats;
    bp_slice *slices;
} reader;

/* What the child reports. */
typedef struct found {
    bool softmax;
} found;

/* ---- the folder ---- */

/* Files of released models have names ending in these. */
static bp_err find_files(reader *self, const char *folder)
{
    char **names = NULL;
    int64_t count = 0;
    bp_err err = bp_dir_list(folder, &names, &count);

    for (int64_t k = 0; k < count; k++) {
        char **path = bp_ends_with(names[k], BILM_OPTIONS)    ? &self->options
                      : bp_ends_with(names[k], BILM_WEIGHTS)  ? &self->weights
                      : strcmp(names[k], BILM_WORDS) == 0     ? &self->words
                      : strcmp(names[k], BILM_TOKENIZER) == 0 ? &self->tokenizer
                                                              : NULL;

        if (path && *path)
            err =
                BP_FAIL(BP_ERR_FORMAT, "bilm.ambiguous",
                        "there are two files %s and %s: in %s; leave one", *path, names[k], folder);
        else if (path)
            *path = bp_path_join(folder, names[k]);
    }
    bp_names_free(&names, count);
    return err;
}

static void free_paths(reader *self)
{
    bp_free(self->options);
    bp_free(self->weights);
    bp_free(self->words);
    bp_free(self->tokenizer);
}

bool bilm_is(const char *folder)
{
    reader self = {0};
    bool is = bp_path_is_dir(folder);

    if (is)
        (void)find_files(&self, folder); /* bilm_read reports what is wrong */
    is = self.options && self.weights;
    free_paths(&self);
    return is;
}

/* ---- words ---- */

/* The folder's own words are as many as its options say; --tokenizer may provide other words for a
 * model without a softmax. */
static bp_err check_words(const reader *self, int64_t words)
{
    int64_t stated = self->shape.vocab_size;

    if (stated == 0 || stated == words)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "bilm.other_words",
                   "there are %lld words, but \"n_tokens_vocab\" is %lld: at %s; give the model's "
                   "own words",
                   (long long)words, (long long)stated, self->options);
}

static bp_err find_words(reader *self, const bp_tokenizer *given, bp_tokenizer **made)
{
    const bp_tokenizer *tokenizer = given;
    int64_t floats;
    bp_err err = BP_OK;

    if (!given && self->tokenizer)
        err = bp_tokenizer_load(made, self->tokenizer);
    else if (!given && self->words)
        err = bilm_load_words(made, self->words);
    else if (!given)
        err = BP_FAIL(BP_ERR_INPUT, "bilm.no_words",
                      "the folder has neither " BILM_TOKENIZER " nor " BILM_WORDS
                      ": beside %s; give the model's words with --tokenizer",
                      self->options);
    tokenizer = tokenizer ? tokenizer : *made;
    if (err == BP_OK && !given)
        err = check_words(self, bp_tokenizer_size(tokenizer));
    if (err == BP_OK) {
        self->shape.vocab_size = bp_tokenizer_size(tokenizer);
        err = bp_elmo_characters(&self->spelled, &floats, &self->shape, tokenizer);
    }
    return err;
}

/* ---- weights ---- */

static bp_err read_weights(void *context, void *result)
{
    const reader *self = context;
    found *facts = result;
    bp_h5 *file = NULL;
    bp_err err = bp_h5_open(&file, self->weights);

    if (err == BP_OK)
        facts->softmax = bp_h5_has(file, "softmax/W");
    if (err == BP_OK &&
        bp_elmo_filters(&self->shape) == bp_elmo_sizes_of(&self->shape)->projection &&
        bp_h5_has(file, "CNN_proj"))
        err = bilm_refuse(self->options, "a projection (CNN_proj) of as many columns as filters",
                          "there");
    for (int64_t k = 0; k < self->tensors.count && err == BP_OK; k++) {
        const bilm_tensor *one = &self->tensors.list[k];

        if (one->again || one->form == BILM_SPELLED || (one->is_softmax && !facts->softmax))
            continue;
        err = bp_h5_read_array(file, one->theirs, one->their_dims, one->extent,
                               self->values + one->place);
    }
    bp_h5_drop(&file);
    return err;
}

/* Memory shared with the child, which fills it. */
static bp_err map_values(reader *self)
{
    void *at = mmap(NULL, (size_t)self->tensors.floats * sizeof *self->values,
                    PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        return bp_fail_memory("the model's weights", self->tensors.floats, sizeof *self->values);
    self->values = at;
    return BP_OK;
}

static bp_err load_weights(reader *self, found *facts)
{
    bp_h5_apart job = {.path = self->weights,
                       .doing = "read",
                       .cpu_seconds =
                           bp_h5_apart_seconds(LEAST_SECONDS, bp_file_size(self->weights)),
                       .work = read_weights,
                       .context = self,
                       .result = facts,
                       .result_bytes = sizeof *facts};

    self->tensors = bilm_tensors_of(&self->shape);
    bp_err err = map_values(self);

    return err == BP_OK ? bp_h5_run_apart(&job) : err;
}

static bp_err fetch(void *context, const bp_slice *slice, int64_t index, const float **data)
{
    reader *self = context;
    const bilm_tensor *one = &self->tensors.list[index];
    int64_t floats = one->shape[0] * (one->dims == 2 ? one->shape[1] : 1);

    (void)slice;
    if (one->form == BILM_SPELLED) {
        *data = self->spelled;
        return BP_OK;
    }
    if (floats > self->made_floats) {
        bp_free(self->made);
        self->made = bp_try_alloc("elmo.bilm", floats, sizeof *self->made);
        self->made_floats = self->made ? floats : 0;
        if (!self->made)
            return bp_fail_memory("a tensor", floats, sizeof *self->made);
    }
    bilm_take(self->made, self->values + one->place, one);
    *data = self->made;
    return BP_OK;
}

static void list_slices(reader *self)
{
    self->slices = bp_alloc("elmo.bilm", self->tensors.count, sizeof *self->slices);
    for (int64_t k = 0; k < self->tensors.count; k++) {
        const bilm_tensor *one = &self->tensors.list[k];
        bp_slice *slice = &self->slices[k];

        slice->dims = one->dims;
        (void)snprintf(slice->name, sizeof slice->name, "%s", one->ours);
        memcpy(slice->shape, one->shape, sizeof one->shape);
        memcpy(slice->extent, one->shape, sizeof one->shape);
    }
}

static void close_reader(bp_model_folder *folder)
{
    reader *self = folder->context;

    if (!self)
        return;
    if (self->values)
        (void)munmap(self->values, (size_t)self->tensors.floats * sizeof *self->values);
    bp_free(self->tensors.list);
    bp_free(self->spelled);
    bp_free(self->made);
    bp_free(self->slices);
    free_paths(self);
    bp_free(self);
    folder->context = NULL;
}

bp_err bilm_read(const bp_model_family *family, bp_model_folder *out, const char *folder,
                 const bp_tokenizer *tokenizer)
{
    reader *self = bp_alloc("elmo.bilm", 1, sizeof *self);
    found facts = {0};
    bp_err err = find_files(self, folder);

    *out = (bp_model_folder){.fetch = fetch, .context = self, .close = close_reader};
    if (err == BP_OK)
        err = bilm_read_options(&self->shape, family, self->options);
    if (err == BP_OK)
        err = find_words(self, tokenizer, &out->tokenizer);
    if (err == BP_OK)
        err = load_weights(self, &facts);
    if (err != BP_OK)
        return err;
    if (!facts.softmax)
        BP_WARN("bilm.no_softmax",
                "the weights have no softmax, as bilm-tf writes none: at %s; every word is as "
                "probable as any other until the model is trained, its states are whole",
                self->weights);
    list_slices(self);
    out->shape = self->shape;
    out->slices = self->slices;
    out->count = self->tensors.count;
    return BP_OK;
}
