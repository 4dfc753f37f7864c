/* Pairs of texts through a classifier. Called by results/outputs.c on the coordinator. */
#include "infer/generate/entailment.h"

#include "base/log.h"
#include "base/mem.h"
#include "infer/score/classifier.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

struct bp_entailment {
    bp_classifier *classifier;
    int64_t entails;               /* the class */
    int64_t pairs, shortened, cut; /* pairs tested; with shortened prompts; with shortened texts */
    bp_ids ids;                    /* of the pairs of a batch */
    float *log_p;                  /* [BP_CLASSIFIER_BATCH][classes] */
};

/* ---- opening ---- */

/* The class that begins with "entail"; -1 if there is none. */
static int64_t find_class(const json_t *labels)
{
    for (size_t k = 0; k < json_array_size(labels); k++) {
        const char *name = json_string_value(json_array_get(labels, k));

        if (name && strncasecmp(name, "entail", 6) == 0)
            return (int64_t)k;
    }
    return -1;
}

static bp_err find_entailment(int64_t *entails, const char *path)
{
    json_t *labels = NULL;
    bp_err err = bp_classifier_labels(&labels, path);

    *entails = find_class(labels);
    json_decref(labels);
    if (err == BP_OK && *entails < 0)
        return BP_FAIL(
            BP_ERR_CONFIG, "generate.no_entailment",
            "the model is not a classifier with a class that begins with 'entail': at "
            "generate.entails = %s; fine-tune one on pairs of texts, as SICK or MNLI are",
            path);
    return err;
}

bp_err bp_entailment_check(const char *path)
{
    int64_t entails;

    return find_entailment(&entails, path);
}

bp_err bp_entailment_estimate(int64_t *bytes, const char *path)
{
    bp_err err = bp_entailment_check(path);

    *bytes = 0;
    return err == BP_OK ? bp_classifier_estimate(bytes, path) : err;
}

bp_err bp_entailment_open(bp_entailment **out, const char *path)
{
    bp_entailment *self = bp_alloc("generate.entailment", 1, sizeof *self);
    bp_err err = find_entailment(&self->entails, path);

    if (err == BP_OK)
        err = bp_classifier_open(&self->classifier, path, "generate.entails");
    if (err == BP_OK)
        self->log_p = bp_alloc("generate.entailment",
                               BP_CLASSIFIER_BATCH * bp_classifier_classes(self->classifier),
                               sizeof *self->log_p);
    else
        bp_entailment_free(&self);
    *out = self;
    return err;
}

void bp_entailment_free(bp_entailment **out)
{
    bp_entailment *self = *out;

    if (!self)
        return;
    bp_free(self->log_p);
    bp_ids_clear(&self->ids);
    bp_classifier_free(&self->classifier);
    bp_free(self);
    *out = NULL;
}

json_t *bp_entailment_json(const bp_entailment *self)
{
    return bp_classifier_json(self->classifier);
}

/* ---- pairs ---- */

/* Remove tokens of a prompt from the front of both texts until the pair fits. */
static bool shorten(bp_task_pair *pair, const bp_task_frame *frame, int64_t prompt, int64_t T)
{
    bool too_long = bp_task_positions(frame, pair) > T;

    for (int64_t k = 0; k < prompt && bp_task_positions(frame, pair) > T; k++)
        for (int side = 0; side < 2; side++)
            if (pair->tokens[side] > 1) {
                pair->text[side]++;
                pair->tokens[side]--;
            }
    return too_long;
}

/* Texts of both sides, one after another. starts[2 * count + 1]: in self->ids. */
static bp_err encode(bp_entailment *self, const char *const *premises,
                     const char *const *hypotheses, int64_t count, int64_t *starts)
{
    bp_encoder *encoder = bp_classifier_encoder(self->classifier);
    bp_err err = BP_OK;

    self->ids.count = 0;
    starts[0] = 0;
    for (int64_t k = 0; k < 2 * count && err == BP_OK; k++) {
        const char *text = k % 2 == 0 ? premises[k / 2] : hypotheses[k / 2];

        err = bp_encode(encoder, text, strlen(text), &self->ids);
        starts[k + 1] = self->ids.count;
    }
    return err;
}

/* A text without tokens neither entails nor is entailed. */
static bool entails(const bp_entailment *self, const bp_task_pair *pair, const float *row)
{
    int64_t best = 0;

    for (int64_t k = 1; k < bp_classifier_classes(self->classifier); k++)
        best = row[k] > row[best] ? k : best;
    return best == self->entails && pair->tokens[0] > 0 && pair->tokens[1] > 0;
}

/* Up to BP_CLASSIFIER_BATCH pairs, whose texts begin with `prompt` tokens of their prompt. */
static bp_err ask_batch(bp_entailment *self, int64_t prompt, const char *const *premises,
                        const char *const *hypotheses, int64_t count, bool *holds)
{
    static const int32_t none;
    int64_t starts[2 * BP_CLASSIFIER_BATCH + 1], cut[BP_CLASSIFIER_BATCH];
    bp_task_pair pairs[BP_CLASSIFIER_BATCH];
    bp_err err = encode(self, premises, hypotheses, count, starts);
    const int32_t *tokens = self->ids.count > 0 ? (const int32_t *)self->ids.data : &none;

    for (int64_t w = 0; w < count && err == BP_OK; w++) {
        const int64_t *at = starts + 2 * w;

        pairs[w] = (bp_task_pair){{tokens + at[0], tokens + at[1]}, {at[1] - at[0], at[2] - at[1]}};
        self->shortened += shorten(&pairs[w], bp_classifier_frame(self->classifier), prompt,
                                   bp_classifier_context(self->classifier));
        self->pairs++;
    }
    if (err == BP_OK)
        err = bp_classifier_ask(self->classifier, pairs, count, self->log_p, cut);
    for (int64_t w = 0; w < count && err == BP_OK; w++) {
        self->cut += cut[w] > 0;
        holds[w] =
            entails(self, &pairs[w], self->log_p + w * bp_classifier_classes(self->classifier));
    }
    return err;
}

bp_err bp_entailment_ask(bp_entailment *self, const char *prompt, const char *const *premises,
                         const char *const *hypotheses, int64_t count, bool *holds)
{
    bp_ids before = {0};
    bp_err err =
        bp_encode(bp_classifier_encoder(self->classifier), prompt, strlen(prompt), &before);

    for (int64_t first = 0; first < count && err == BP_OK; first += BP_CLASSIFIER_BATCH) {
        int64_t left = count - first;

        err = ask_batch(self, before.count, premises + first, hypotheses + first,
                        left < BP_CLASSIFIER_BATCH ? left : BP_CLASSIFIER_BATCH, holds + first);
    }
    bp_ids_clear(&before);
    return err;
}

void bp_entailment_warn(const bp_entailment *self)
{
    if (self->shortened > 0)
        BP_WARN("generate.cut_pairs",
                "%" PRId64 " of %" PRId64 " pairs of texts have more tokens than the classifier's "
                "context of %" PRId64
                ": at generate.entails; prompts before them lose their beginning, "
                "and %" PRId64 " pairs the end of a text too%s",
                self->shortened, self->pairs, bp_classifier_context(self->classifier), self->cut,
                self->cut > 0 ? ": use a classifier of a longer context, or fewer generate.tokens"
                              : "");
}
