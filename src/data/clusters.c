/* Clusters of documents that share a label's value. */
#include "data/clusters.h"

#include "base/buffer.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A value of the label in a file. */
typedef struct file_value {
    const char *text;
    int64_t file, code, cluster;
} file_value;

static int by_text(const void *a, const void *b)
{
    const file_value *x = a, *y = b;

    return strcmp(x->text, y->text);
}

static int by_place(const void *a, const void *b)
{
    const file_value *x = a, *y = b;

    return x->file != y->file ? (x->file > y->file) - (x->file < y->file)
                              : (x->code > y->code) - (x->code < y->code);
}

/* Every document's code is that of a value. */
static bp_err check_codes(const bp_corpus_label *label, bp_corpus_file *file)
{
    for (int64_t d = 0; d < bp_corpus_file_info(file)->documents; d++)
        if (label->codes[d] >= label->value_count)
            return BP_FAIL(
                BP_ERR_FORMAT, "label.unknown_code",
                "label %s has %" PRId64 " values, but a document has number %" PRIu32 ": at %s",
                label->name, label->value_count, label->codes[d], bp_corpus_file_path(file));
    return BP_OK;
}

bp_err bp_corpus_find_label(bp_corpus_label *labels, bp_corpus *corpus, const char *name)
{
    bp_err err = BP_OK;

    for (int64_t f = 0; f < bp_corpus_files(corpus) && err == BP_OK; f++) {
        bp_corpus_file *file = bp_corpus_file_at(corpus, f);

        for (int k = 0; k < bp_corpus_file_info(file)->labels && err == BP_OK; k++) {
            bp_corpus_label label;

            err = bp_corpus_file_label(file, k, &label);
            if (err != BP_OK || strcmp(label.name, name) != 0)
                continue;
            labels[f] = label;
            err = check_codes(&label, file);
        }
    }
    return err;
}

static bp_err refuse_label(bp_corpus_file *file, const char *name)
{
    bp_buffer known = {0};
    bp_err err = BP_OK;

    for (int k = 0; k < bp_corpus_file_info(file)->labels && err == BP_OK; k++) {
        bp_corpus_label label;

        err = bp_corpus_file_label(file, k, &label);
        if (err == BP_OK)
            bp_buffer_printf(&known, " %s", label.name);
    }
    if (err == BP_OK)
        err =
            BP_FAIL(BP_ERR_FORMAT, "label.unknown",
                    "there is no label '%s': at %s; it has%s: make the corpus with --label %.100s",
                    name, bp_corpus_file_path(file), known.bytes > 0 ? known.data : " none", name);
    bp_buffer_clear(&known);
    return err;
}

/* The files of these documents (NULL: all files) have the label; else it is refused. */
static bp_err check_label(bp_corpus *corpus, const bp_corpus_label *labels, const char *name,
                          const int64_t *documents, int64_t count)
{
    int64_t first = 0, k = 0;

    for (int64_t f = 0; f < bp_corpus_files(corpus); f++) {
        bp_corpus_file *file = bp_corpus_file_at(corpus, f);
        int64_t end = first + bp_corpus_file_info(file)->documents;
        bool needed = documents ? k < count && documents[k] < end : end > first;

        while (documents && k < count && documents[k] < end)
            k++;
        if (needed && !labels[f].codes)
            return refuse_label(file, name);
        first = end;
    }
    return BP_OK;
}

/* Values of one text in several files are one cluster. Returns how many clusters there are. */
static int64_t number_values(file_value *values, int64_t count)
{
    int64_t clusters = 0;

    qsort(values, (size_t)count, sizeof *values, by_text);
    for (int64_t k = 0; k < count; k++)
        values[k].cluster =
            k > 0 && strcmp(values[k].text, values[k - 1].text) == 0 ? clusters - 1 : clusters++;
    qsort(values, (size_t)count, sizeof *values, by_place);
    return clusters;
}

static void number_documents(int64_t *cluster, bp_corpus *corpus, const bp_corpus_label *labels)
{
    int64_t files = bp_corpus_files(corpus), count = 0, next, at = 0, document = 0;
    file_value *values;

    for (int64_t f = 0; f < files; f++)
        count += labels[f].codes ? labels[f].value_count : 0;
    values = bp_alloc("data.clusters", count, sizeof *values);
    for (int64_t f = 0; f < files; f++)
        for (int64_t v = 0; labels[f].codes && v < labels[f].value_count; v++)
            values[at++] = (file_value){labels[f].values[v], f, v, 0};
    next = count > 0 ? number_values(values, count) : 0;
    at = 0;
    for (int64_t f = 0; f < files; f++) {
        const bp_corpus_label *label = &labels[f];

        for (int64_t d = 0; d < bp_corpus_file_info(bp_corpus_file_at(corpus, f))->documents; d++) {
            const file_value *value = label->codes ? &values[at + label->codes[d]] : NULL;

            cluster[document++] = value && value->text[0] ? value->cluster : next++;
        }
        at += label->codes ? label->value_count : 0;
    }
    bp_free(values);
}

bp_err bp_corpus_clusters(int64_t **cluster, bp_corpus *corpus, const char *label,
                          const int64_t *documents, int64_t count)
{
    int64_t files = bp_corpus_files(corpus), all = 0;
    bp_corpus_label *labels = bp_alloc("data.clusters", files, sizeof *labels);
    bp_err err = bp_corpus_find_label(labels, corpus, label);

    *cluster = NULL;
    if (err == BP_OK)
        err = check_label(corpus, labels, label, documents, count);
    for (int64_t f = 0; f < files; f++)
        all += bp_corpus_file_info(bp_corpus_file_at(corpus, f))->documents;
    if (err == BP_OK) {
        *cluster = bp_try_alloc("data.clusters", all, sizeof **cluster);
        if (!*cluster)
            err = bp_fail_memory("clusters of documents", all, sizeof **cluster);
    }
    if (err == BP_OK)
        number_documents(*cluster, corpus, labels);
    bp_free(labels);
    return err;
}
