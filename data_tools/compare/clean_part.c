/* Overlap of documents as a label of scores. */
#include "clean_part.h"

#include "base/mem.h"
#include "text/unicode/strmap.h"

#include <inttypes.h>
#include <string.h>

#define VERSION 1

enum { CLEAN, OVERLAPPING, TOO_SHORT, CLEAN_VALUES };

typedef struct overlaps {
    const char *path;
    int64_t documents, words;  /* of an n-gram */
    uint64_t *grams, *matched; /* [documents] */
    char *ids;                 /* [documents][width], padded with zeros */
    size_t width;
    bp_strmap places; /* of ids; value: the document, + 1 */
    bool in_order;
} overlaps;

static bp_err damaged(const char *path, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "overlap.damaged",
                   "damaged: '%s' is not as bagpipe-data overlap writes it: at %s; write it again",
                   what, path);
}

static bp_err read_counts(overlaps *o, bp_h5 *h5, const char *name, uint64_t **out)
{
    bp_h5_shape shape;
    bp_err err = bp_h5_shape_of(h5, name, &shape);

    if (err != BP_OK)
        return err;
    if (shape.is_text || shape.is_real || shape.dims != 1 || shape.count != o->documents)
        return damaged(o->path, name);
    *out = bp_try_alloc("tool.overlap", o->documents, sizeof **out);
    if (!*out)
        return bp_fail_memory(name, o->documents, sizeof **out);
    return bp_h5_read(h5, name, BP_H5_U64, 0, *out, o->documents);
}

static bp_err read_ids(overlaps *o, bp_h5 *h5)
{
    bp_h5_shape shape;
    bp_err err = bp_h5_shape_of(h5, "doc_id", &shape);

    if (err != BP_OK)
        return err;
    if (!shape.is_text || shape.dims != 1)
        return damaged(o->path, "doc_id");
    o->documents = shape.count;
    o->width = shape.width;
    o->ids = bp_try_alloc("tool.overlap", shape.count, shape.width);
    if (!o->ids)
        return bp_fail_memory("doc_id", shape.count, shape.width);
    return bp_h5_read_text(h5, "doc_id", shape.width, 0, o->ids, shape.count);
}

static bp_err load(overlaps *o)
{
    bp_h5 *h5 = NULL;
    bp_err err = bp_h5_open_kind(&h5, o->path, "overlap", VERSION);

    if (err == BP_OK)
        err = bp_h5_get_int(h5, "/", "words", &o->words);
    if (err == BP_OK)
        err = read_ids(o, h5);
    if (err == BP_OK)
        err = read_counts(o, h5, "ngrams", &o->grams);
    if (err == BP_OK)
        err = read_counts(o, h5, "matched", &o->matched);
    bp_h5_drop(&h5);
    return err;
}

static const char *scored_id(const score_folder *scores, int64_t d)
{
    return scores->ids + (size_t)d * scores->id_width;
}

static const char *id_at(const overlaps *o, int64_t d, size_t *bytes)
{
    const char *id = o->ids + (size_t)d * o->width;

    *bytes = strnlen(id, o->width);
    return id;
}

/* By order, or else by ids. */
static bp_err match(overlaps *o, const score_folder *scores)
{
    bp_err err = BP_OK;
    size_t bytes;

    o->in_order = o->documents == scores->documents;
    for (int64_t d = 0; d < o->documents && o->in_order; d++) {
        const char *id = id_at(o, d, &bytes), *other = scored_id(scores, d);

        o->in_order = strlen(other) == bytes && memcmp(id, other, bytes) == 0;
    }
    for (int64_t d = 0; d < o->documents && !o->in_order && err == BP_OK; d++) {
        const char *id = id_at(o, d, &bytes);
        int64_t index;

        if (bp_strmap_find(&o->places, id, bytes))
            return BP_FAIL(BP_ERR_FORMAT, "overlap.same_ids",
                           "an id is there twice, and the scored documents are others: at %s, "
                           "document %" PRId64 "; give the scored corpora to bagpipe-data overlap, "
                           "in their order",
                           o->path, d);
        err = bp_strmap_add(&o->places, id, bytes, d + 1, &index);
    }
    return err;
}

static bp_err fill(const overlaps *o, const score_folder *scores, int64_t *codes)
{
    for (int64_t d = 0; d < scores->documents; d++) {
        const char *id = scored_id(scores, d);
        const bp_strmap_entry *entry =
            o->in_order ? NULL : bp_strmap_find(&o->places, id, strlen(id));
        int64_t at = o->in_order ? d : entry ? entry->value - 1 : -1;

        if (at < 0)
            return BP_FAIL(BP_ERR_FORMAT, "overlap.other_documents",
                           "document %" PRId64 " of %s is not among its %" PRId64
                           ": at %s; give the scored corpora to bagpipe-data overlap",
                           d, scores->given, o->documents, o->path);
        codes[d] = o->grams[at] == 0 ? TOO_SHORT : o->matched[at] == 0 ? CLEAN : OVERLAPPING;
    }
    return BP_OK;
}

/* Documents without a scored token are not counted. */
static void count(clean_part *part, const score_folder *scores)
{
    for (int64_t d = 0; d < scores->documents; d++) {
        if (scores->tokens[d] == 0)
            continue;
        part->documents++;
        part->overlapping += part->label->codes[d] == OVERLAPPING;
        part->too_short += part->label->codes[d] == TOO_SHORT;
    }
}

bool clean_part_has(const clean_part *part, int64_t document)
{
    return !part || !part->label || part->label->codes[document] != OVERLAPPING;
}

char *clean_part_note(const clean_part *part)
{
    char *left_out = bp_sprintf("of %" PRId64 " documents %" PRId64 " %s left out, with n-grams of "
                                "%" PRId64 " words that the training text has",
                                part->documents, part->overlapping,
                                part->overlapping == 1 ? "is" : "are", part->words);
    char *note = part->too_short == 0
                     ? bp_strdup(left_out)
                     : bp_sprintf("%s; %" PRId64 " of fewer words cannot be examined, and count",
                                  left_out, part->too_short);

    bp_free(left_out);
    return note;
}

bp_err clean_part_add(clean_part *part, score_folder *scores, const char *path)
{
    static const char *const names[CLEAN_VALUES] = {"clean", "overlapping", "too_short"};
    overlaps o = {.path = path};
    int64_t *codes = bp_alloc("tool.scores", scores->documents, sizeof *codes);
    bp_err err = BP_OK;

    if (score_folder_label(scores, CLEAN_LABEL))
        err = BP_FAIL(BP_ERR_FORMAT, "overlap.same_label",
                      "the scores have a label '" CLEAN_LABEL
                      "' already: at %s; make the corpus without it",
                      scores->given);
    if (err == BP_OK)
        err = load(&o);
    if (err == BP_OK)
        err = match(&o, scores);
    if (err == BP_OK)
        err = fill(&o, scores, codes);
    if (err == BP_OK) {
        *part = (clean_part){
            .label = score_folder_add_label(scores, CLEAN_LABEL, names, CLEAN_VALUES, codes),
            .words = o.words};
        codes = NULL;
        count(part, scores);
    }
    bp_free(codes);
    bp_free(o.grams);
    bp_free(o.matched);
    bp_free(o.ids);
    bp_strmap_clear(&o.places);
    return err;
}
