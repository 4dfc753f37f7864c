/* The documents of a corpus under way, on rank 0. Private to src/io/corpus. */
#ifndef BP_IO_CORPUS_CORPUS_JOIN_PRIV_H
#define BP_IO_CORPUS_CORPUS_JOIN_PRIV_H

#include "base/buffer.h"
#include "corpus_build_priv.h"
#include "io/corpus/dictionary.h"

typedef struct bp_corpus_join {
    const bp_corpus_build *build;
    bp_corpus_writer *writer; /* made by whoever has the join */
    bp_buffer skip_list;      /* a line of JSON for each bad document */
    char *first_bad;          /* for a message */

    bp_text_tally tally;     /* of the document under way */
    int64_t newlines;        /* of its pieces, where it is a whole file */
    int64_t document_tokens; /* of its text */
    int64_t unknown_id;
    const char **labels;                /* [label_count], of the record at hand */
    struct bp_label_types *label_types; /* [label_count] */
    bp_corpus_built built;
} bp_corpus_join;

/** Owns: bp_corpus_join_clear(), which frees the writer too. Local, as all that follows. */
void bp_corpus_join_init(bp_corpus_join *join, const bp_corpus_build *build);
void bp_corpus_join_clear(bp_corpus_join *join);

/** The next record: a piece of a document, or a document that is left out. Errors: BP_ERR_FORMAT a
 * label of two types, more bad documents than are allowed; those of the writer. */
bp_err bp_corpus_join_take(bp_corpus_join *join, const bp_record *record);

/** At the end of the input: may as many documents be left out? Errors: BP_ERR_FORMAT. */
bp_err bp_corpus_join_check_skipped(const bp_corpus_join *join);

#endif
