/* Lists of documents: one id per line. */
#include "document_list.h"

#include "base/files/hash.h"
#include "io/corpus/corpus_writer.h"
#include "text/documents/text_source.h"

#include <inttypes.h>
#include <string.h>

static bp_err add_line(bp_document_list *list, const bp_piece *piece, const char *path)
{
    int64_t index;

    if (piece->bytes > BP_CORPUS_ID_BYTES)
        return BP_FAIL(BP_ERR_FORMAT, "list.too_long",
                       "an id of more than %d bytes: at %s, line %" PRId64 "; give an id a line",
                       BP_CORPUS_ID_BYTES, path, piece->line);
    bp_err err = bp_strmap_add(&list->ids, piece->text, piece->bytes, 0, &index);
    if (err == BP_OK)
        list->ids.entries[index].value = 0;
    list->has_hashes =
        list->has_hashes || (piece->bytes == strlen(BP_LIST_HASH) + BP_SHA256_HEX - 1 &&
                             memcmp(piece->text, BP_LIST_HASH, strlen(BP_LIST_HASH)) == 0);
    return err;
}

bp_err bp_document_list_load(bp_document_list *list, const char *path)
{
    const bp_documents_options options = {.format = BP_TEXT_LINES};
    bp_documents *documents = NULL;
    bp_piece piece = {.text = ""};
    bp_err err = bp_documents_open(&documents, &path, 1, &options);

    while (err == BP_OK && piece.text) {
        err = bp_documents_next(documents, &piece);
        if (err == BP_OK && piece.text)
            err = add_line(list, &piece, bp_text_source_shown(path));
    }
    bp_documents_close(&documents);
    if (err == BP_OK && list->ids.count == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "list.empty", "there is no id: at %s; give an id a line",
                      bp_text_source_shown(path));
    return err;
}

void bp_document_list_clear(bp_document_list *list)
{
    bp_strmap_clear(&list->ids);
}

static bool find(bp_document_list *list, const char *line)
{
    const bp_strmap_entry *found = bp_strmap_find(&list->ids, line, strlen(line));

    if (found)
        list->ids.entries[found - list->ids.entries].value = 1;
    return found != NULL;
}

bool bp_document_list_has(bp_document_list *list, const char *id)
{
    char line[sizeof BP_LIST_HASH + BP_SHA256_HEX] = BP_LIST_HASH;

    if (find(list, id))
        return true;
    if (!list->has_hashes)
        return false;
    bp_sha256_of(id, strlen(id), line + strlen(BP_LIST_HASH));
    return find(list, line);
}
