/* A list of document ids, one per line: documents to take, or to skip. Local: no MPI. */
#pragma once

#include "base/err.h"
#include "text/unicode/strmap.h"

#include <stdbool.h>
#include <stdint.h>

#define BP_LIST_HASH "sha256:" /* and 64 hexadecimal digits, on a line: the id with that hash */

typedef struct bp_document_list { /* {0} is an empty one */
    bp_strmap ids;                /* value: 0 until found */
    bool has_hashes;
} bp_document_list;

/** Read `path`, plain or compressed; empty lines are ignored. Owns: bp_document_list_clear(), after
 * an error too. Errors: BP_ERR_FORMAT no id, or a line of more than 1,024 bytes; those of
 * bp_documents_open. */
bp_err bp_document_list_load(bp_document_list *list, const char *path);
void bp_document_list_clear(bp_document_list *list);

/** Is it in the list? Marks it as found. */
bool bp_document_list_has(bp_document_list *list, const char *id);
