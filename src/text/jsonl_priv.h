/* One line of JSON Lines: an object with a field of text, perhaps `id`, and label fields. */
#ifndef BP_TEXT_JSONL_PRIV_H
#define BP_TEXT_JSONL_PRIV_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct bp_jsonl_record {
    const char *text; /* borrowed until the next parse, as all that follows */
    size_t text_bytes;
    char *id;      /* NULL: none */
    char **labels; /* [label_count] values; all of them "" before the first parse */
    char *types;   /* [label_count]: bp_label_type */
    char **names;  /* [label_count] */
    char *text_field;
    bool lacks_text; /* what was wrong with the last line */
    int label_count;
    json_t *object;
} bp_jsonl_record;

/** Errors: BP_ERR_SYSTEM. End with bp_jsonl_record_clear in any case. */
void bp_jsonl_record_init(bp_jsonl_record *record, const char *text_field, const char *const *names,
                          int label_count);
/** Errors: BP_ERR_FORMAT (bp_documents_next tells), BP_ERR_SYSTEM. */
bp_err bp_jsonl_record_parse(bp_jsonl_record *record, const char *line, size_t bytes);
void bp_jsonl_record_clear(bp_jsonl_record *record);

#endif
