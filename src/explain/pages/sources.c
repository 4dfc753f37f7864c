/* The nearest entries of a datastore on the page of an example, with their texts. Called by
 * pages/gather.c and pages/example.c. */
#include "explain/pages/sources.h"

#include "base/mem.h"
#include "infer/score/page/page.h"

#include <inttypes.h>
#include <string.h>

#define SHOWN  5  /* nearest ones of a target */
#define BEFORE 16 /* tokens before an entry */
#define AFTER  8
#define BEGIN  40 /* tokens of a whole document */

bp_err explain_entries_open(explain_entries *out, const char *path)
{
    bp_h5_shape shape = {0};
    bp_err err;

    *out = (explain_entries){0};
    if (!path)
        return BP_OK;
    err = bp_h5_open(&out->h5, path);
    if (err == BP_OK)
        err = bp_h5_shape_of(out->h5, "doc_id", &shape);
    out->documents = shape.count;
    out->id_bytes = shape.width;
    out->has_tokens = err == BP_OK && bp_h5_has(out->h5, "tokens");
    out->has_documents = err == BP_OK && bp_h5_has(out->h5, "vector");
    if (!out->has_tokens)
        return err;
    out->starts = bp_alloc("explain.page", out->documents + 1, sizeof *out->starts);
    return bp_h5_read(out->h5, "doc_start", BP_H5_I64, 0, out->starts, out->documents + 1);
}

void explain_entries_clear(explain_entries *entries)
{
    if (entries->h5)
        (void)bp_h5_close(&entries->h5);
    bp_free(entries->starts);
    *entries = (explain_entries){0};
}

/* The text of spans [first, end). New reference. */
static json_t *text_of(const explain_spans *spans, int64_t first, int64_t end)
{
    return explain_spans_text(spans, first, end, SIZE_MAX);
}

/* The beginning of a document that is an entry. */
static bp_err add_beginning(json_t *entry, const explain_entries *self,
                            const explain_speller *speller, int64_t document)
{
    int64_t start = self->starts[document], count = self->starts[document + 1] - start;
    int32_t tokens[BEGIN];
    explain_spans spans = {0};
    bp_err err;

    count = count < BEGIN ? count : BEGIN;
    err = bp_h5_read(self->h5, "tokens", BP_H5_U32, start, tokens, count);
    if (err == BP_OK)
        err = explain_spans_of(&spans, speller, tokens, count);
    if (err == BP_OK)
        (void)json_object_set_new(entry, "after", text_of(&spans, 0, spans.count));
    explain_spans_clear(&spans);
    return err;
}

/* The tokens around an entry. */
static bp_err add_text(json_t *entry, const explain_entries *self, const explain_speller *speller,
                       int64_t document, int64_t place)
{
    int64_t start = self->starts[document], row = start + place,
            first = row - start < BEFORE ? start : row - BEFORE,
            left = self->starts[document + 1] - row,
            count = row - first + (left < AFTER + 1 ? left : AFTER + 1), s = 0;
    int32_t *tokens = bp_alloc("explain.page", count, sizeof *tokens);
    explain_spans spans = {0};
    bp_err err = bp_h5_read(self->h5, "tokens", BP_H5_U32, first, tokens, count);

    if (err == BP_OK)
        err = explain_spans_of(&spans, speller, tokens, count);
    if (err == BP_OK) {
        while (s + 1 < spans.count && spans.list[s + 1].first <= row - first)
            s++;
        (void)json_object_set_new(entry, "before", text_of(&spans, 0, s));
        (void)json_object_set_new(entry, "token", text_of(&spans, s, s + (spans.count > 0)));
        (void)json_object_set_new(entry, "after",
                                  text_of(&spans, s + (spans.count > 0), spans.count));
    }
    explain_spans_clear(&spans);
    bp_free(tokens);
    return err;
}

static bp_err add_entry(json_t *list, const explain_entries *self, const explain_speller *speller,
                        int64_t document, int64_t place)
{
    char *id = bp_alloc("explain.page", (int64_t)self->id_bytes + 1, 1);
    bool there = document >= 0 && document < self->documents &&
                 (self->has_documents || !self->has_tokens ||
                  (place >= 0 && place < self->starts[document + 1] - self->starts[document]));
    bp_err err = there ? bp_h5_read_text(self->h5, "doc_id", self->id_bytes, document, id, 1)
                       : BP_FAIL(BP_ERR_FORMAT, "explain.other_datastore",
                                 "the datastore has no entry %" PRId64 " of document %" PRId64
                                 ": at explain.datastore; it was changed: start again in another "
                                 "run folder",
                                 place, document);
    json_t *entry = json_object();

    if (err == BP_OK && id[0] == '\0')
        (void)json_object_set_new(entry, "id", json_sprintf("document %" PRId64, document));
    else if (err == BP_OK)
        (void)json_object_set_new(entry, "id", bp_score_page_text(id, strlen(id)));
    if (err == BP_OK && self->has_tokens)
        err = self->has_documents ? add_beginning(entry, self, speller, document)
                                  : add_text(entry, self, speller, document, place);
    (void)json_array_append_new(list, entry);
    bp_free(id);
    return err;
}

bp_err explain_entries_json(json_t **out, const explain_entries *entries,
                            const explain_speller *speller, const float *const near[3], int64_t K,
                            int64_t k)
{
    json_t *list = json_array(), *by_target = json_array(), *known = json_object();
    bp_err err = BP_OK;

    for (int64_t t = 0; t < K && err == BP_OK; t++) {
        json_t *of = json_array();

        for (int64_t m = 0; m < k && m < SHOWN && err == BP_OK; m++) {
            int64_t document = (int64_t)near[0][t * k + m], place = (int64_t)near[1][t * k + m];
            char *key = bp_sprintf("%" PRId64 " %" PRId64, document, place);

            if (!json_object_get(known, key)) {
                (void)json_object_set_new(known, key,
                                          json_integer((json_int_t)json_array_size(list)));
                err = add_entry(list, entries, speller, document, place);
            }
            (void)json_array_append_new(
                of, json_pack("[Of]", json_object_get(known, key), (double)near[2][t * k + m]));
            bp_free(key);
        }
        (void)json_array_append_new(by_target, of);
    }
    json_decref(known);
    *out = json_pack("{so so}", "entries", list, "near", by_target);
    return err;
}
