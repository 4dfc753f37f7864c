/* factors.html: the factors of factors.h5 that each token of an example activates, as in Ecco
 * (Alammar 2021). Called by pages/pages.c. */
#include "explain/pages/tables.h"

#include "base/mem.h"
#include "infer/score/page/page.h"

#include <math.h>
#include <string.h>

#define NEURONS     5 /* neurons named per factor */
#define TOKEN_BYTES 30

typedef struct factors {
    bp_h5 *h5;
    int64_t k, columns, documents;
    int64_t *start; /* [documents + 1] */
    const json_t *layers;
} factors;

/* The values of each column of W as shares of the largest, in 255ths; base64, one factor after the
 * other. `scale` gets the largest of each. */
static json_t *lights_of(const factors *self, const float *w, int64_t T, json_t *scale)
{
    uint8_t *bytes = bp_alloc("explain.page", T * self->k, 1);
    json_t *out;

    for (int64_t f = 0; f < self->k; f++) {
        double most = 0;

        for (int64_t t = 0; t < T; t++)
            most = fmax(most, (double)w[t * self->k + f]);
        for (int64_t t = 0; t < T && most > 0; t++)
            bytes[f * T + t] = (uint8_t)lround((double)w[t * self->k + f] / most * 255);
        (void)json_array_append_new(scale, explain_number_json(most));
    }
    out = explain_base64_json(bytes, (size_t)(T * self->k));
    bp_free(bytes);
    return out;
}

/* The neurons with the largest shares of a factor: [layer, neuron, share of its length]. */
static json_t *neurons_of(const factors *self, const float *row)
{
    int64_t width = self->columns / (int64_t)json_array_size(self->layers), best[NEURONS],
            count = 0;
    double square = 0;
    json_t *list = json_array();

    for (int64_t c = 0; c < self->columns; c++) {
        int64_t at = count < NEURONS ? count++ : NEURONS;

        square += (double)row[c] * (double)row[c];
        for (; at > 0 && row[best[at - 1]] < row[c]; at--)
            if (at < NEURONS)
                best[at] = best[at - 1];
        if (at < NEURONS)
            best[at] = c;
    }
    for (int64_t n = 0; n < count && row[best[n]] > 0; n++)
        (void)json_array_append_new(
            list, json_pack("[OIo]", json_array_get(self->layers, (size_t)(best[n] / width)),
                            (json_int_t)(best[n] % width),
                            explain_number_json((double)row[best[n]] / sqrt(square))));
    return list;
}

static bp_err add_document(json_t *list, const factors *self, int64_t d,
                           const explain_gathered *gathered, const explainer *whole)
{
    int64_t T = self->start[d + 1] - self->start[d];
    float *w = bp_alloc("explain.page", T * self->k, sizeof *w),
          *h = bp_alloc("explain.page", self->k * self->columns, sizeof *h), left = NAN;
    int32_t *inputs = bp_alloc("explain.page", T, sizeof *inputs);
    explain_spans spans = {0};
    json_t *scale = json_array(), *neurons = json_array();
    bp_err err = bp_h5_read(self->h5, "w", BP_H5_F32, self->start[d] * self->k, w, T * self->k);

    if (err == BP_OK)
        err = bp_h5_read(self->h5, "h", BP_H5_F32, d * self->k * self->columns, h,
                         self->k * self->columns);
    if (err == BP_OK)
        err = bp_h5_read(self->h5, "input", BP_H5_U32, self->start[d], inputs, T);
    if (err == BP_OK)
        err = bp_h5_read(self->h5, "left", BP_H5_F32, d, &left, 1);
    if (err == BP_OK)
        err = explain_spans_of(&spans, &gathered->speller, inputs, T);
    for (int64_t f = 0; f < self->k && err == BP_OK; f++)
        (void)json_array_append_new(neurons, neurons_of(self, h + f * self->columns));
    if (err == BP_OK)
        (void)json_array_append_new(
            list, json_pack("{so so so so so so}", "id", explain_id_of(whole, d), "inputs",
                            explain_spans_json(&spans), "left", explain_number_json((double)left),
                            "lights", lights_of(self, w, T, scale), "scale", json_incref(scale),
                            "neurons", json_incref(neurons)));
    json_decref(scale);
    json_decref(neurons);
    explain_spans_clear(&spans);
    bp_free(inputs);
    bp_free(h);
    bp_free(w);
    return err;
}

/* The layers of factors: explain.layers without the embedding. */
static json_t *layers_of(const explainer *self)
{
    json_t *list = json_array();

    for (int64_t at = 0; at < self->settings.layer_count; at++)
        if (self->settings.layers[at] > 0)
            (void)json_array_append_new(list, json_integer(self->settings.layers[at]));
    return list;
}

/* The examples, as many as fit on the page. */
static bp_err fill(json_t *data, json_t *page, bp_h5 *h5, const explain_gathered *gathered,
                   explainer *self, const json_t *figures)
{
    json_t *list = json_array(), *example, *layers = layers_of(self);
    factors of = {.h5 = h5, .layers = layers};
    int64_t rows = 0, bytes = 0;
    const json_t *share = json_object_get(figures, "left");
    size_t n;
    bp_err err = explain_table_read(h5, "place_start", BP_H5_I64, (void **)&of.start, &rows, NULL);

    of.documents = rows - 1;
    of.k = json_integer_value(json_object_get(figures, "factors"));
    of.columns = self->settings.info->keys * (int64_t)json_array_size(layers);
    json_array_foreach(gathered->examples, n, example)
    {
        int64_t d = json_integer_value(json_object_get(example, "document"));

        bytes += (of.start[d + 1] - of.start[d]) * (of.k * 4 / 3 + TOKEN_BYTES);
        if (err != BP_OK || (n > 0 && bytes > EXPLAIN_PAGE_BYTES))
            break;
        err = add_document(list, &of, d, gathered, self);
    }
    bp_score_page_add_value(page, "left", "%.3f",
                            json_is_number(share) ? json_number_value(share) : (double)NAN);
    (void)json_object_set_new(page, "shown", json_integer((json_int_t)json_array_size(list)));
    (void)json_object_set_new(page, "of", json_integer((json_int_t)of.documents));
    (void)json_object_set_new(data, "documents", list);
    bp_free(of.start);
    json_decref(layers);
    return err;
}

const explain_page explain_page_factors = {.method = &bp_explain_factors,
                                           .file = "factors.html",
                                           .template = "explain-factors",
                                           .title = "Factors of the activations",
                                           .link = "Which factor each token lights up, to look at",
                                           .fill = fill};
