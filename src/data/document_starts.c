/* A window over /doc_start of the files of a corpus. */
#include "data/document_starts.h"

#include "base/mem.h"

struct bp_document_starts {
    bp_corpus *corpus;
    int64_t file, first, documents; /* of the window; no documents: nothing is read yet */
    int64_t *values;                /* [documents + 1] */
};

bp_document_starts *bp_document_starts_new(bp_corpus *corpus)
{
    bp_document_starts *self = bp_alloc("data.document_starts", 1, sizeof *self);
    int64_t most = 0;

    for (int64_t k = 0; k < bp_corpus_files(corpus); k++) {
        int64_t documents = bp_corpus_file_info(bp_corpus_file_at(corpus, k))->documents;

        most = documents > most ? documents : most;
    }
    self->corpus = corpus;
    self->values =
        bp_alloc("data.document_starts",
                 (most < BP_DOCUMENT_STARTS ? most : BP_DOCUMENT_STARTS) + 1, sizeof *self->values);
    return self;
}

void bp_document_starts_free(bp_document_starts **starts)
{
    if (!*starts)
        return;
    bp_free((*starts)->values);
    bp_free(*starts);
    *starts = NULL;
}

static bp_err move_window(bp_document_starts *self, int64_t file, int64_t document)
{
    bp_corpus_file *from = bp_corpus_file_at(self->corpus, file);
    int64_t first = document - document % BP_DOCUMENT_STARTS;
    int64_t left = bp_corpus_file_info(from)->documents - first;
    int64_t count = left < BP_DOCUMENT_STARTS ? left : BP_DOCUMENT_STARTS;
    bp_err err = bp_corpus_file_read_doc_start(from, first, count + 1, self->values);

    self->file = file;
    self->first = first;
    self->documents = err == BP_OK ? count : 0;
    return err;
}

bp_err bp_document_starts_at(bp_document_starts *starts, int64_t file, int64_t document,
                             const int64_t **start)
{
    int64_t at = document - starts->first;
    bp_err err = BP_OK;

    if (file != starts->file || at < 0 || at >= starts->documents) {
        err = move_window(starts, file, document);
        at = document - starts->first;
    }
    *start = starts->values + (err == BP_OK ? at : 0);
    return err;
}

bp_err bp_document_starts_check(bp_document_starts *starts, int64_t file)
{
    int64_t documents = bp_corpus_file_info(bp_corpus_file_at(starts->corpus, file))->documents;
    bp_err err = BP_OK;

    for (int64_t d = 0; (d == 0 || d < documents) && err == BP_OK; d += BP_DOCUMENT_STARTS)
        err = move_window(starts, file, d);
    return err;
}
