/* Probabilities of one class, of all texts on all ranks. */
#include "toxicity.h"

#include "base/mem.h"
#include "base/process/signals.h"
#include "infer/score/classifier.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

struct toxicity_model {
    bp_classifier *classifier;
    char *class_name;
    int64_t class_number, cut;
    bp_ids ids;
    float *log_p; /* [BP_CLASSIFIER_BATCH][classes] */
};

static bp_err find_class(toxicity_model *self, const toxicity *of)
{
    json_t *labels = NULL;
    bp_err err = bp_classifier_labels(&labels, of->model);

    self->class_number = -1;
    for (size_t k = 0; k < json_array_size(labels) && self->class_number < 0; k++) {
        const char *name = json_string_value(json_array_get(labels, k));

        if (name && (of->class_name ? strcmp(name, of->class_name) == 0
                                    : strncasecmp(name, "toxic", 5) == 0)) {
            self->class_number = (int64_t)k;
            self->class_name = bp_strdup(name);
        }
    }
    json_decref(labels);
    if (err == BP_OK && self->class_number < 0)
        err = BP_FAIL(BP_ERR_CONFIG, "toxicity.no_class",
                      "the model is no classifier with a class %s%.60s: at --model %s; fine-tune "
                      "one, or name its class by --class",
                      of->class_name ? "called " : "that begins with ",
                      of->class_name ? of->class_name : "toxic", of->model);
    return err;
}

bp_err toxicity_model_open(toxicity_model **out, const toxicity *of)
{
    toxicity_model *self = bp_alloc("tool.toxicity", 1, sizeof *self);
    bp_err err = find_class(self, of);

    if (err == BP_OK)
        err = bp_classifier_open(&self->classifier, of->model, "--model");
    if (err == BP_OK)
        self->log_p =
            bp_alloc("tool.toxicity", BP_CLASSIFIER_BATCH * bp_classifier_classes(self->classifier),
                     sizeof *self->log_p);
    else
        toxicity_model_free(&self);
    *out = self;
    return err;
}

void toxicity_model_free(toxicity_model **out)
{
    toxicity_model *self = *out;

    if (!self)
        return;
    bp_classifier_free(&self->classifier);
    bp_ids_clear(&self->ids);
    bp_free(self->class_name);
    bp_free(self->log_p);
    bp_free(self);
    *out = NULL;
}

json_t *toxicity_model_json(const toxicity_model *self)
{
    json_t *out = bp_classifier_json(self->classifier);

    (void)json_object_set_new(out, "class", bp_json_string(self->class_name));
    (void)json_object_set_new(out, "cut", json_integer(self->cut));
    return out;
}

/* Up to BP_CLASSIFIER_BATCH texts: the same ones together on any mesh, so that bits are equal. */
static bp_err ask_batch(toxicity_model *self, const char *const *texts, int64_t count, double *p)
{
    static const int32_t none;
    int64_t starts[BP_CLASSIFIER_BATCH + 1] = {0}, cut[BP_CLASSIFIER_BATCH], asked = 0,
                                         at[BP_CLASSIFIER_BATCH];
    bp_task_pair pairs[BP_CLASSIFIER_BATCH];
    bp_err err = BP_OK;

    self->ids.count = 0;
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        err = bp_encode(bp_classifier_encoder(self->classifier), texts[k], strlen(texts[k]),
                        &self->ids);
        starts[k + 1] = self->ids.count;
    }
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        const int32_t *tokens = self->ids.count > 0 ? (const int32_t *)self->ids.data : &none;

        if (starts[k + 1] == starts[k])
            continue;
        pairs[asked] = (bp_task_pair){{tokens + starts[k], &none}, {starts[k + 1] - starts[k], 0}};
        at[asked++] = k;
    }
    if (err == BP_OK && asked > 0)
        err = bp_classifier_ask(self->classifier, pairs, asked, self->log_p, cut);
    for (int64_t n = 0; n < asked && err == BP_OK; n++) {
        const float *row = self->log_p + n * bp_classifier_classes(self->classifier);

        p[at[n]] = exp((double)row[self->class_number]);
        self->cut += cut[n] > 0;
    }
    return err;
}

bp_err toxicity_model_ask(toxicity_model *self, const char *const *texts, int64_t count, double *p,
                          MPI_Comm comm)
{
    int64_t size = bp_comm_size(comm), batch = 0, cut = self->cut;
    bp_err err = BP_OK;

    memset(p, 0, (size_t)count * sizeof *p);
    self->cut = 0;
    for (int64_t first = 0; first < count && err == BP_OK; first += BP_CLASSIFIER_BATCH, batch++) {
        int64_t left = count - first;

        if (batch % size != bp_comm_rank(comm))
            continue;
        err = ask_batch(self, texts + first,
                        left < BP_CLASSIFIER_BATCH ? left : BP_CLASSIFIER_BATCH, p + first);
        if (err == BP_OK && bp_signals_stop_asked())
            err = bp_fail_stopped("nothing was kept; run the command again");
    }
    err = bp_agree(comm, err);
    if (err == BP_OK) {
        bp_all_sum_double(p, count, comm);
        self->cut = cut + bp_all_sum_int(self->cut, comm);
    }
    return err;
}
