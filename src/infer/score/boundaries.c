/* What whole distributions say in addition to the probability of each token: the probability that a
 * word begins next, and the entropy. Opened by setup.c. */
#include "infer/score/boundaries.h"

#include "base/mem.h"
#include "io/corpus/corpus_file.h"
#include "text/tokenizer/tokenizer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct bounded_model {
    bp_model face;
    bp_model *model;
    MPI_Comm group;
    int64_t memory_bytes;
    uint8_t *begins; /* [vocab_size] */
    float *log_p;    /* [capacity][vocab_size] */
    int64_t capacity;
} bounded_model;

/* Windows whose distributions are in memory at once. */
static int64_t windows_at_once(int64_t vocab_size, int64_t windows, int64_t length,
                               int64_t memory_bytes)
{
    int64_t most = memory_bytes / (vocab_size * length * (int64_t)sizeof(float));

    return most < 1 ? 1 : most < windows ? most : windows;
}

int64_t bp_boundaries_bytes(int64_t vocab_size, int64_t windows, int64_t length,
                            int64_t memory_bytes)
{
    return windows_at_once(vocab_size, windows, length, memory_bytes) * length * vocab_size *
           (int64_t)sizeof(float);
}

static bp_err reserve(bounded_model *self, int64_t rows)
{
    int64_t V = self->face.info.vocab_size;

    if (rows <= self->capacity)
        return BP_OK;
    bp_free(self->log_p);
    self->log_p = bp_try_alloc("score.boundaries", rows * V, sizeof *self->log_p);
    self->capacity = self->log_p ? rows : 0;
    return self->log_p ? BP_OK : bp_fail_memory("distributions", rows * V, sizeof *self->log_p);
}

static double begin_logprob(const bounded_model *self, const float *log_p)
{
    double sum = 0;

    for (int64_t v = 0; v < self->face.info.vocab_size; v++)
        if (self->begins[v])
            sum += exp((double)log_p[v]);
    return fmax(log(sum), BP_MODEL_ZERO); /* finite */
}

static double entropy_of(const bounded_model *self, const float *log_p)
{
    double sum = 0;

    for (int64_t v = 0; v < self->face.info.vocab_size; v++) {
        double p = exp((double)log_p[v]);

        if (p > 0)
            sum -= p * (double)log_p[v];
    }
    return fmax(sum, 0);
}

typedef double row_figure(const bounded_model *self, const float *log_p);

/* log_p: of the positions that have a target. Each thread's rows are whole: sums do not depend on
 * how many there are. */
static void find_figure(const bounded_model *self, row_figure *figure, const bp_model_batch *batch,
                        const float *log_p, float *out)
{
    int64_t rows = bp_model_batch_rows(batch), V = self->face.info.vocab_size;

#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++)
        out[r] = (float)figure(self, log_p + r * V);
    for (int64_t i = batch->windows * batch->length - 1; i >= 0; i--) /* to its place: no row is */
        out[i] = batch->targets[i] < 0 ? NAN : out[--rows];           /* beyond it */
}

/* values: each statistic `stride` after the one before. */
static void find_figures(const bounded_model *self, const bp_model_batch *batch, const float *log_p,
                         float *values, int64_t stride)
{
    const bp_model_info *info = &self->face.info;

    if (info->boundaries)
        find_figure(self, begin_logprob, batch, log_p, values + BP_MODEL_BOUNDARY * stride);
    if (info->entropy)
        find_figure(self, entropy_of, batch, log_p, values + (info->statistics - 1) * stride);
}

/* Windows of a batch: values of the token, and figures of its distribution. */
static bp_err score_part(bounded_model *self, const bp_model_batch *part, float *values,
                         int64_t stride)
{
    bp_err err = bp_agree(self->group, reserve(self, bp_model_batch_rows(part)));

    if (err == BP_OK)
        err = self->model->ops->distribution(self->model, part, BP_MODEL_NO_DROPOUT, self->log_p,
                                             values);
    if (err == BP_OK)
        find_figures(self, part, self->log_p, values, stride);
    return err;
}

static bp_err score(bp_model *model, const bp_model_batch *batch, float *values)
{
    bounded_model *self = (bounded_model *)model;
    int64_t positions = batch->windows * batch->length, T = batch->length,
            most = windows_at_once(model->info.vocab_size, batch->windows, T, self->memory_bytes);
    bp_err err = BP_OK;

    for (int64_t first = 0; first < batch->windows && err == BP_OK; first += most) {
        int64_t left = batch->windows - first;
        bp_model_batch part = bp_model_batch_part(batch, first, left < most ? left : most);

        err = score_part(self, &part, values + first * T, positions);
    }
    return err;
}

static bp_err find_distribution(bp_model *model, const bp_model_batch *batch, int64_t pass,
                                float *log_p, float *values)
{
    const bounded_model *self = (bounded_model *)model;
    bp_err err = self->model->ops->distribution(self->model, batch, pass, log_p, values);

    if (err == BP_OK && values)
        find_figures(self, batch, log_p, values, batch->windows * batch->length);
    return err;
}

/* The decoding of the model inside, which is also its `model`. */
static bp_err decode_new(bp_decoding **out, bp_model *model, int groups, int64_t slots,
                         int64_t capacity)
{
    return bp_model_decode_new(out, ((bounded_model *)model)->model, groups, slots, capacity);
}

static int64_t decode_bytes(const bp_model *model, int groups, int64_t slots, int64_t capacity)
{
    return bp_model_decode_bytes(((const bounded_model *)model)->model, groups, slots, capacity);
}

static void free_model(bp_model *model)
{
    bounded_model *self = (bounded_model *)model;

    bp_model_free(&self->model);
    bp_free(self->begins);
    bp_free(self->log_p);
    bp_free(self);
}

static const bp_model_ops OPS = {.score = score,
                                 .distribution = find_distribution,
                                 .free = free_model,
                                 .decode_new = decode_new,
                                 .decode_bytes = decode_bytes};

static bp_err refuse(const bp_model_info *info, bool boundaries)
{
    bool mixed = info->members == 0 && info->statistics > 1;
    char *what = info->members > 0 ? bp_strdup("an ensemble")
                 : mixed           ? bp_strdup("a model with score.neighbours")
                                   : bp_sprintf("a model of kind %s", info->kind);
    bp_err err;

    if (boundaries)
        err = BP_FAIL(BP_ERR_CONFIG, "score.no_boundaries",
                      "score.boundaries needs one causal network with a softmax, which %s is not: "
                      "at score.boundaries; leave it out",
                      what);
    else if (info->members > 0)
        err = BP_FAIL(BP_ERR_CONFIG, "score.no_entropy",
                      "score.entropy is of one network, and an ensemble writes /total_entropy to "
                      "tokens.h5 without it: at score.entropy; leave it out");
    else
        err = BP_FAIL(BP_ERR_CONFIG, "score.no_entropy",
                      "score.entropy needs one network with a softmax, which %s is not: at "
                      "score.entropy; leave it out",
                      what);
    bp_free(what);
    return err;
}

bp_err bp_boundaries_new(bp_model **out, bp_model *model, const bp_mesh *mesh, bool boundaries,
                         bool entropy, int64_t memory_bytes)
{
    bounded_model *self = bp_alloc("score.boundaries", 1, sizeof *self);
    const bp_model_info *info = &model->info;

    self->face = (bp_model){.ops = &OPS, .info = *info};
    self->face.info.statistics = info->statistics + boundaries + entropy;
    self->face.info.boundaries = boundaries;
    self->face.info.entropy = entropy;
    self->face.info.states = (bp_state_form){0};
    self->model = model;
    self->group = mesh->model;
    self->memory_bytes = memory_bytes;
    self->begins = bp_alloc("score.boundaries", info->vocab_size, sizeof *self->begins);
    *out = &self->face;
    if (info->members == 0 && !(boundaries && info->masks) && model->ops->distribution &&
        !info->log_probabilities && !info->may_be_zero)
        return BP_OK;
    *out = NULL;
    bp_err err = refuse(info, boundaries);
    free_model(&self->face);
    return err;
}

void bp_boundaries_use(bp_model *model, const uint8_t *begins)
{
    memcpy(((bounded_model *)model)->begins, begins, (size_t)model->info.vocab_size);
}

/* ---- which tokens begin words ---- */

static bp_err mark(uint8_t *begins, const bp_tokenizer *tokenizer, int64_t eod, int64_t vocab_size)
{
    int64_t size = bp_tokenizer_size(tokenizer);
    bool *continues = bp_alloc("score.boundaries", size, sizeof *continues);
    bp_err err = bp_tokenizer_word_parts(tokenizer, continues);

    for (int64_t v = 0; v < size && v < vocab_size; v++)
        begins[v] = !continues[v];
    for (int role = 0; role < BP_ROLES; role++) {
        int64_t id = bp_tokenizer_role(tokenizer, (bp_role)role);

        if (id >= 0 && id < vocab_size && role != BP_ROLE_UNKNOWN)
            begins[id] = 0;
    }
    if (eod >= 0 && eod < vocab_size)
        begins[eod] = 1;
    bp_free(continues);
    return err;
}

bp_err bp_boundaries_of(uint8_t **begins, const bp_corpus *corpus, int64_t vocab_size)
{
    bp_corpus_file *file = bp_corpus_file_at(corpus, 0);
    bp_tokenizer *tokenizer = NULL;
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = bp_corpus_file_tokenizer(file, &text, &bytes);

    *begins = NULL;
    if (err == BP_OK && !text)
        err = BP_FAIL(BP_ERR_CONFIG, "score.no_boundaries",
                      "the corpus keeps no tokenizer, which says where words begin: at %s; make it "
                      "with --tokenizer, or leave score.boundaries out",
                      bp_corpus_file_path(file));
    if (err == BP_OK)
        err = bp_tokenizer_parse(&tokenizer, text, bytes, bp_corpus_file_path(file));
    if (err == BP_OK && bp_tokenizer_word_end(tokenizer))
        err = BP_FAIL(BP_ERR_CONFIG, "score.no_boundaries",
                      "tokens end words with '%s', so a word's tokens have its end in them, and "
                      "nothing is to be corrected: at %s; leave score.boundaries out, and read "
                      "surprisal without --boundaries",
                      bp_tokenizer_word_end(tokenizer), bp_corpus_file_path(file));
    if (err == BP_OK) {
        *begins = bp_alloc("score.boundaries", vocab_size, sizeof **begins);
        err = mark(*begins, tokenizer, bp_corpus_eod(corpus), vocab_size);
    }
    if (err != BP_OK) {
        bp_free(*begins);
        *begins = NULL;
    }
    bp_tokenizer_free(&tokenizer);
    bp_free(text);
    return err;
}
