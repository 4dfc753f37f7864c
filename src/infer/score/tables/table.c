/* Sums of one document of a table. */
#include "infer/score/tables/table.h"

bp_err bp_score_counts_of(const bp_score_plan *plan, int64_t file, bp_score_counts *out)
{
    return bp_corpus_file_doc_counts(bp_corpus_file_at(plan->corpus, file), &out->bytes,
                                     &out->words, &out->words_split);
}

const bp_fixed *bp_score_document_statistics(const bp_score_table *table, int64_t document)
{
    return table->sums + document * (table->statistics->count - 1);
}

bp_score_sums bp_score_document_sums(const bp_score_table *table, const bp_score_counts *counts,
                                     int64_t file, int64_t document)
{
    const bp_score_row *row = &table->rows[document];
    int64_t inside = document - table->plan->first_document[file];

    return (bp_score_sums){.documents = 1,
                           .tokens = row->tokens,
                           .unscored = row->unscored,
                           .nll = row->nll,
                           .square = row->square,
                           .bytes = counts->bytes ? counts->bytes[inside] : 0,
                           .words = counts->words ? counts->words[inside] : 0,
                           .words_split = counts->words_split ? counts->words_split[inside] : 0,
                           .no_bytes = !counts->bytes,
                           .no_words = !counts->words,
                           .no_words_split = !counts->words_split};
}
