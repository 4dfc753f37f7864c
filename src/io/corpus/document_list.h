/* A list of documents by their ids, a line each: which of them are to be taken, or left out.
 * Local: no MPI. */
#ifndef BP_IO_CORPUS_DOCUMENT_LIST_H
#define BP_IO_CORPUS_DOCUMENT_LIST_H

#include "base/err.h"
#include "text/unicode/strmap.h"

#include <stdbool.h>
#include <stdint.h>

#define BP_LIST_HASH "sha256:" /* a line of it and 64 hexadecimal digits: the id with that hash */

typedef struct bp_document_list { /* {0} is an empty one */
    bp_strmap ids;                /* value: 0 until it is found */
    bool has_hashes;
} bp_document_list;

/** Read `path`, plain or compressed; empty lines are ignored. Owns: bp_document_list_clear(), after
 * an error too. Errors: BP_ERR_FORMAT there is no id, or a line of more than 1,024 bytes; those of
 * bp_documents_open. */
bp_err bp_document_list_load(bp_document_list *list, const char *path);
void bp_document_list_clear(bp_document_list *list);

/** Is it there? It counts as found from then on. */
bool bp_document_list_has(bp_document_list *list, const char *id);

#endif
