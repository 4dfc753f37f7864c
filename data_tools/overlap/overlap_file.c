/* overlap.h5 and its JSON. docs/formats.md has the layout. */
#include "overlap_file.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/h5/h5.h"

#include <math.h>

#define KIND    "overlap"
#define VERSION 1

static const char *id_of(const overlap *self, int64_t d)
{
    return self->ids.data + self->documents[d].id_at;
}

static double share_of(const overlap_document *document)
{
    return document->grams > 0 ? (double)document->matched / (double)document->grams : NAN;
}

overlap_totals overlap_total(const overlap *self)
{
    overlap_totals all = {.documents = self->document_count};

    for (int64_t d = 0; d < self->document_count; d++) {
        const overlap_document *document = &self->documents[d];

        all.words += document->words;
        all.grams += document->grams;
        all.matched += document->matched;
        all.too_short += document->grams == 0;
        all.clean += document->grams > 0 && document->matched == 0;
        all.overlapping += document->matched > 0;
    }
    return all;
}

/* ---- HDF5 ---- */

static int64_t words_of(const overlap_document *document)
{
    return document->words;
}

static int64_t grams_of(const overlap_document *document)
{
    return document->grams;
}

static int64_t matched_of(const overlap_document *document)
{
    return document->matched;
}

static bp_err write_counts(bp_h5 *h5, const overlap *self, const char *name,
                           int64_t (*get)(const overlap_document *document))
{
    uint64_t *column = bp_alloc("tool.overlap", self->document_count, sizeof *column);
    bp_err err;

    for (int64_t d = 0; d < self->document_count; d++)
        column[d] = (uint64_t)get(&self->documents[d]);
    err = bp_h5_write(h5, name, BP_H5_U64, column, self->document_count);
    bp_free(column);
    return err;
}

static bp_err write_shares(bp_h5 *h5, const overlap *self)
{
    double *column = bp_alloc("tool.overlap", self->document_count, sizeof *column);
    const char **ids = bp_alloc("tool.overlap", self->document_count, sizeof *ids);
    bp_err err;

    for (int64_t d = 0; d < self->document_count; d++) {
        column[d] = share_of(&self->documents[d]);
        ids[d] = id_of(self, d);
    }
    err = bp_h5_write(h5, "share", BP_H5_F64, column, self->document_count);
    if (err == BP_OK)
        err = bp_h5_write_texts(h5, "doc_id", ids, self->document_count);
    bp_free(column);
    bp_free(ids);
    return err;
}

static int file_of(const overlap *self, int64_t document)
{
    int file = 0;

    while (document >= self->train_first[file + 1])
        file++;
    return file;
}

static bp_err write_places(bp_h5 *h5, const overlap *self)
{
    uint64_t *start = bp_alloc("tool.overlap", self->document_count + 1, sizeof *start);
    int64_t count = 0;

    for (int64_t d = 0; d < self->document_count; d++)
        start[d + 1] = (uint64_t)(count += self->documents[d].place_count);
    uint64_t *grams = bp_alloc("tool.overlap", count, sizeof *grams);
    uint32_t *files = bp_alloc("tool.overlap", count, sizeof *files);
    const char **ids = bp_alloc("tool.overlap", count, sizeof *ids);
    for (int64_t d = 0, at = 0; d < self->document_count; d++)
        for (int k = 0; k < self->documents[d].place_count; k++, at++) {
            const overlap_place *place = &self->documents[d].places[k];

            grams[at] = (uint64_t)place->grams;
            files[at] = (uint32_t)file_of(self, place->document);
            ids[at] = place->id;
        }
    bp_err err = bp_h5_write(h5, "where_start", BP_H5_U64, start, self->document_count + 1);
    if (err == BP_OK)
        err = bp_h5_write_texts(h5, "where_id", ids, count);
    if (err == BP_OK)
        err = bp_h5_write(h5, "where_file", BP_H5_U32, files, count);
    if (err == BP_OK)
        err = bp_h5_write(h5, "where_ngrams", BP_H5_U64, grams, count);
    bp_free(ids);
    bp_free(files);
    bp_free(grams);
    bp_free(start);
    return err;
}

static bp_err write_names(bp_h5 *h5, const char *name, const document_texts *texts)
{
    const char **names = bp_alloc("tool.overlap", texts->path_count, sizeof *names);
    bp_err err;

    for (int k = 0; k < texts->path_count; k++)
        names[k] = bp_text_source_id(texts->paths[k]);
    err = bp_h5_write_texts(h5, name, names, texts->path_count);
    bp_free(names);
    return err;
}

bp_err overlap_save(const overlap *self, const char *path)
{
    bp_h5_draft draft = {.file = NULL};
    bp_err err = bp_h5_draft_begin(&draft, path, VERSION);

    if (err == BP_OK)
        err = bp_h5_put_int(draft.file, "/", "words", self->words);
    if (err == BP_OK)
        err = write_shares(draft.file, self);
    if (err == BP_OK)
        err = write_counts(draft.file, self, "words", words_of);
    if (err == BP_OK)
        err = write_counts(draft.file, self, "ngrams", grams_of);
    if (err == BP_OK)
        err = write_counts(draft.file, self, "matched", matched_of);
    if (err == BP_OK)
        err = write_places(draft.file, self);
    if (err == BP_OK)
        err = write_names(draft.file, "source/train", &self->train);
    if (err == BP_OK)
        err = write_names(draft.file, "source/test", &self->test);
    if (err == BP_OK)
        err = bp_h5_draft_commit(&draft, KIND, VERSION);
    bp_h5_draft_end(&draft);
    return err;
}

/* ---- JSON ---- */

static json_t *document_object(const overlap *self, int64_t d)
{
    const overlap_document *document = &self->documents[d];
    json_t *where = json_array();

    for (int k = 0; k < document->place_count; k++) {
        const overlap_place *place = &document->places[k];
        const char *file = self->train.paths[file_of(self, place->document)];

        (void)json_array_append_new(where,
                                    json_pack("{so so sI}", "id", bp_json_string(place->id), "file",
                                              bp_json_string(bp_text_source_id(file)), "ngrams",
                                              (json_int_t)place->grams));
    }
    return json_pack("{sI so sI sI sI so so}", "document", (json_int_t)d, "id",
                     bp_json_string(id_of(self, d)), "words", (json_int_t)document->words, "ngrams",
                     (json_int_t)document->grams, "matched", (json_int_t)document->matched, "share",
                     bp_json_real(share_of(document)), "where", where);
}

bp_err overlap_save_json(const overlap *self, const char *path)
{
    const overlap_totals all = overlap_total(self);
    json_t *list = json_array();

    for (int64_t d = 0; d < self->document_count; d++)
        if (self->documents[d].matched > 0)
            (void)json_array_append_new(list, document_object(self, d));
    json_t *root =
        json_pack("{si sI sI sI sI sI sI sI so}", "words_of_an_ngram", self->words, "documents",
                  (json_int_t)all.documents, "clean", (json_int_t)all.clean, "overlapping",
                  (json_int_t)all.overlapping, "too_short", (json_int_t)all.too_short, "words",
                  (json_int_t)all.words, "ngrams", (json_int_t)all.grams, "matched",
                  (json_int_t)all.matched, "overlaps", list);
    bp_err err = root ? bp_json_save(path, root) : bp_fail_memory("JSON", 1, 1);

    json_decref(root);
    return err;
}
