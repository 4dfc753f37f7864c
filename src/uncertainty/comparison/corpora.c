/* Finds the files that a comparison scores, and the documents of each group. Called by setup.c. */
#include "uncertainty/comparison/comparison.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "infer/score/tables/summary.h"

#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- files ---- */

static bool is_same_file(const char *a, const char *b)
{
    char *real_a = realpath(a, NULL), *real_b = realpath(b, NULL);
    bool same = strcmp(real_a ? real_a : a, real_b ? real_b : b) == 0;

    free(real_a);
    free(real_b);
    return same;
}

static int64_t find_file(const comparison_corpora *corpora, const char *path)
{
    for (int64_t k = 0; k < corpora->files; k++)
        if (is_same_file(corpora->paths[k], path))
            return k;
    return -1;
}

/* Call `visit` for each file that a corpus names. */
static bp_err each_file(const char *corpus, bp_err (*visit)(void *context, const char *path),
                        void *context)
{
    glob_t found = {0};
    bp_err err = BP_OK;
    int status;

    if (!comparison_is_glob(corpus))
        return visit(context, corpus);
    status = glob(corpus, 0, NULL, &found);
    if (status == GLOB_NOMATCH)
        err = BP_FAIL(BP_ERR_INPUT, "corpus.no_match",
                      "no corpus matches '%s': at this folder; check the pattern", corpus);
    else if (status != 0)
        err = bp_fail_memory("the files of a pattern", 1, sizeof(found));
    for (size_t k = 0; err == BP_OK && k < found.gl_pathc; k++)
        err = visit(context, found.gl_pathv[k]);
    globfree(&found);
    return err;
}

static bp_err visit_file(void *context, const char *path)
{
    comparison_corpora *corpora = context;

    if (find_file(corpora, path) >= 0)
        return BP_OK;
    corpora->paths = bp_realloc("comparison.corpora", corpora->paths, corpora->files + 1,
                                sizeof *corpora->paths);
    corpora->paths[corpora->files++] = bp_strdup(path);
    return BP_OK;
}

static bp_err list_files(comparison_corpora *corpora, const comparison_groups *groups)
{
    bp_err err = BP_OK;

    for (int64_t g = 0; g < groups->count; g++)
        for (int64_t k = 0; err == BP_OK && k < groups->items[g].part_count; k++)
            err = each_file(groups->items[g].parts[k].corpus, visit_file, corpora);
    return err;
}

/* ---- a glob without a name: one group per file ---- */

/* Append to the new list, with globs replaced by files. */
static bp_err visit_item(void *context, const char *path)
{
    bp_buffer *items = context;

    bp_buffer_printf(items, "%s%s", items->bytes > 0 ? "," : "", path);
    return BP_OK;
}

static bp_err unfold(comparison_groups *groups)
{
    bp_buffer items = {0};
    comparison_groups fresh = {0};
    bool any = false;
    bp_err err = BP_OK;

    for (int64_t g = 0; err == BP_OK && g < groups->count; g++) {
        const comparison_group *group = &groups->items[g];
        const comparison_part *part = &group->parts[0];

        if (!group->named && !part->label && comparison_is_glob(part->corpus)) {
            any = true;
            err = each_file(part->corpus, visit_item, &items);
            continue;
        }
        for (int64_t k = 0; k < group->part_count; k++) {
            part = &group->parts[k];
            bp_buffer_printf(&items, "%s%s%s%s%s%s%s%s", items.bytes > 0 ? "," : "",
                             group->named ? group->name : "", group->named ? "=" : "", part->corpus,
                             part->label ? ":" : "", part->label ? part->label : "",
                             part->label ? "=" : "", part->label ? part->value : "");
        }
    }
    if (err == BP_OK && any) {
        err = comparison_groups_parse(&fresh, "uncertainty.shifted", items.data, NULL);
        comparison_groups_clear(groups);
        *groups = fresh;
    }
    bp_buffer_clear(&items);
    return err;
}

/* ---- documents ---- */

/* The marks of documents. */
typedef struct marking {
    bp_corpus *corpus;
    const comparison_corpora *corpora;
    int64_t *first_document; /* [files + 1] */
    unsigned char *marks;    /* [documents] */
    const comparison_part *part;
    bool label_found, value_found;
    bp_buffer known; /* existing labels or values, for a message */
} marking;

static void mark_values(marking *self, int64_t file, const bp_corpus_label *label)
{
    int64_t first = self->first_document[file], end = self->first_document[file + 1];

    self->label_found = true;
    for (int64_t v = 0; v < label->value_count; v++) {
        if (strcmp(label->values[v], self->part->value) != 0)
            continue;
        self->value_found = true;
        for (int64_t d = first; d < end; d++)
            if (label->codes[d - first] == (uint32_t)v)
                self->marks[d] = 1;
    }
}

static bp_err visit_marked(void *context, const char *path)
{
    marking *self = context;
    int64_t file = find_file(self->corpora, path);
    bp_corpus_file *opened = bp_corpus_file_at(self->corpus, file);
    bp_err err = BP_OK;

    if (!self->part->label) {
        memset(self->marks + self->first_document[file], 1,
               (size_t)(self->first_document[file + 1] - self->first_document[file]));
        return BP_OK;
    }
    for (int k = 0; err == BP_OK && k < bp_corpus_file_info(opened)->labels; k++) {
        bp_corpus_label label;

        err = bp_corpus_file_label(opened, k, &label);
        if (err == BP_OK && strcmp(label.name, self->part->label) == 0)
            mark_values(self, file, &label);
    }
    return err;
}

/* The existing names, for a request that does not exist. */
static bp_err visit_known(void *context, const char *path)
{
    marking *self = context;
    bp_corpus_file *opened = bp_corpus_file_at(self->corpus, find_file(self->corpora, path));
    bp_err err = BP_OK;

    for (int k = 0; err == BP_OK && k < bp_corpus_file_info(opened)->labels; k++) {
        bp_corpus_label label;

        err = bp_corpus_file_label(opened, k, &label);
        if (err == BP_OK && !self->label_found)
            bp_buffer_printf(&self->known, " %s", label.name);
        if (err != BP_OK || !self->label_found || strcmp(label.name, self->part->label) != 0)
            continue;
        for (int64_t v = 0; v < label.value_count; v++)
            bp_buffer_printf(&self->known, " %s", label.values[v]);
    }
    return err;
}

static bp_err refuse_label(marking *self)
{
    const comparison_part *part = self->part;
    bp_err err = each_file(part->corpus, visit_known, self);
    const char *known = self->known.bytes > 0 ? self->known.data : " none";

    if (err == BP_OK && !self->label_found)
        err = BP_FAIL(BP_ERR_FORMAT, "label.unknown", "there is no label '%s': at %s; it has%s",
                      part->label, part->corpus, known);
    else if (err == BP_OK)
        err = BP_FAIL(BP_ERR_FORMAT, "label.unknown_value",
                      "the label '%s' has no value '%s': at %s; it has%s", part->label, part->value,
                      part->corpus, known);
    return err;
}

static void list_marked(comparison_group *group, const unsigned char *marks, int64_t documents)
{
    int64_t count = 0;

    for (int64_t d = 0; d < documents; d++)
        count += marks[d];
    bp_free(group->documents);
    group->documents = bp_alloc("comparison.documents", count, sizeof *group->documents);
    group->document_count = count;
    for (int64_t d = 0, at = 0; d < documents; d++)
        if (marks[d])
            group->documents[at++] = d;
}

static bp_err find_documents(comparison_group *group, marking *self)
{
    bp_err err = BP_OK;

    memset(self->marks, 0, (size_t)self->corpora->documents);
    for (int64_t k = 0; err == BP_OK && k < group->part_count; k++) {
        self->part = &group->parts[k];
        self->label_found = self->value_found = false;
        err = each_file(self->part->corpus, visit_marked, self);
        if (err == BP_OK && self->part->label && !self->value_found)
            err = refuse_label(self);
    }
    if (err == BP_OK)
        list_marked(group, self->marks, self->corpora->documents);
    if (err == BP_OK && group->document_count < 2)
        err = BP_FAIL(BP_ERR_FORMAT, "comparison.group_too_small",
                      "the group '%s' has %" PRId64 " document%s: at %s; 2 or more are needed",
                      group->name, group->document_count, group->document_count == 1 ? "" : "s",
                      group->parts[0].corpus);
    return err;
}

/* The number of documents in both groups; *first: the first of them. Both lists ascend. */
static int64_t count_common(const comparison_group *one, const comparison_group *other,
                            int64_t *first)
{
    int64_t i = 0, k = 0, common = 0;

    while (i < one->document_count && k < other->document_count) {
        int64_t a = one->documents[i], b = other->documents[k];

        if (a == b && common++ == 0)
            *first = a;
        i += a <= b;
        k += b <= a;
    }
    return common;
}

static bp_err check_apart(const marking *self, const comparison_group *in_domain,
                          const comparison_group *shifted)
{
    int64_t first = 0, file = 0, common = count_common(in_domain, shifted, &first);

    if (common == 0)
        return BP_OK;
    while (first >= self->first_document[file + 1])
        file++;
    return BP_FAIL(BP_ERR_CONFIG, "comparison.shared_documents",
                   "%" PRId64 " document%s %s in uncertainty.in_domain and in the shift '%s', the "
                   "first of %s: at uncertainty.shifted; name what is in the domain by a label",
                   common, common == 1 ? "" : "s", common == 1 ? "is" : "are", shifted->name,
                   self->corpora->paths[file]);
}

static bp_err find_all(comparison_corpora *corpora, bp_corpus *corpus, comparison_groups *in_domain,
                       comparison_groups *shifted)
{
    marking self = {.corpus = corpus, .corpora = corpora};
    bp_err err;

    self.first_document = bp_alloc("comparison.documents", corpora->files + 1, sizeof(int64_t));
    self.marks = bp_alloc("comparison.documents", corpora->documents, 1);
    for (int64_t k = 0; k < corpora->files; k++)
        self.first_document[k + 1] =
            self.first_document[k] + bp_corpus_file_info(bp_corpus_file_at(corpus, k))->documents;
    err = find_documents(&in_domain->items[0], &self);
    for (int64_t g = 0; err == BP_OK && g < shifted->count; g++) {
        err = find_documents(&shifted->items[g], &self);
        if (err == BP_OK)
            err = check_apart(&self, &in_domain->items[0], &shifted->items[g]);
    }
    bp_buffer_clear(&self.known);
    bp_free(self.marks);
    bp_free(self.first_document);
    return err;
}

bp_err comparison_corpora_open(comparison_corpora *corpora, comparison_groups *in_domain,
                               comparison_groups *shifted)
{
    bp_corpus *corpus = NULL;
    bp_err err = unfold(shifted);

    *corpora = (comparison_corpora){0};
    if (err == BP_OK)
        err = list_files(corpora, in_domain);
    if (err == BP_OK)
        err = list_files(corpora, shifted);
    bp_buffer list = {0};
    for (int64_t k = 0; k < corpora->files; k++)
        bp_buffer_printf(&list, "%s%s", k > 0 ? "," : "", corpora->paths[k]);
    corpora->list = bp_buffer_take(&list);
    if (err == BP_OK)
        err = bp_corpus_open(&corpus, corpora->list);
    if (err == BP_OK)
        err = bp_score_check_names(corpus);
    if (err == BP_OK) {
        corpora->documents = bp_corpus_documents(corpus);
        corpora->vocab_size = bp_corpus_vocab_size(corpus);
        memcpy(corpora->hash, bp_corpus_hash(corpus), BP_SHA256_HEX);
        memcpy(corpora->tokenizer_hash, bp_corpus_tokenizer_hash(corpus), BP_SHA256_HEX);
        err = find_all(corpora, corpus, in_domain, shifted);
    }
    bp_corpus_close(&corpus);
    return err;
}

void comparison_corpora_clear(comparison_corpora *corpora)
{
    bp_names_free(&corpora->paths, corpora->files);
    bp_free(corpora->list);
    *corpora = (comparison_corpora){0};
}
