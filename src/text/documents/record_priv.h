/* The contents of a line of JSON Lines, of a table (tsv) or of two files (pairs): texts, perhaps an
 * id, labels and values. jsonl.c and tsv.c fill it in, one line at a time. */
#pragma once

#include "base/buffer.h"
#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#define BP_FIELDS_MAX 2 /* texts of a line */

typedef struct bp_text_record {
    const char *text; /* borrowed until the next line, like everything below */
    size_t text_bytes;
    char *id;                     /* NULL if none */
    char **labels;                /* [label_count] values; all of them "" before the first line */
    char *types;                  /* [label_count]: bp_label_type */
    float *values;                /* [value_count] */
    size_t starts[BP_FIELDS_MAX]; /* tsv, pairs: where texts begin [field_count] */
    size_t answer[2];             /* squad: bytes of the first one; 0, 0 if there is none */
    bool lacks_text;              /* what was wrong with the last line */

    char **names, **value_names, **fields; /* as requested */
    int label_count, value_count, field_count;
    char *text_field; /* of jsonl */
    bool no_tags;     /* of conll: each is "" */
    json_t *object;
    const char **keys; /* jsonl: members that are read [key_count], borrowed from here */
    int key_count;
    bp_buffer joined; /* texts of a line, one after the other; words of a sentence */
    bp_buffer tags;   /* conll: of words, each ended by a zero byte; squad: context and answers */
    int *columns;     /* tsv: of fields, labels, values, of each kind as asked for */
    int id_column, column_count;
} bp_text_record;

/** Names are copied. End with bp_text_record_clear. */
void bp_text_record_init(bp_text_record *record, const bp_documents_options *options);
void bp_text_record_clear(bp_text_record *record);
/** The value of a label or id, which was checked for its length. Copied. */
void bp_text_record_set(char **to, const char *text, size_t bytes);

/** Errors: BP_ERR_FORMAT (bp_documents_next lists them), BP_ERR_SYSTEM. */
bp_err bp_jsonl_parse(bp_text_record *record, const char *line, size_t bytes);

/** Find the columns by the names in a table's first line. Errors: BP_ERR_FORMAT a missing or
 * duplicate column. */
bp_err bp_tsv_head(bp_text_record *record, const char *line, size_t bytes);
/** Errors: BP_ERR_FORMAT more or fewer fields than columns, a value that is not a number, a label
 * or id that is not UTF-8, has a zero byte or is too long. */
bp_err bp_tsv_parse(bp_text_record *record, const char *line, size_t bytes);

/** A word and its tag, the first and the last field of a line; the word goes to the end of
 * `joined`, after a space if it is not the first. Errors: BP_ERR_FORMAT a single field (without
 * no_tags), a carriage return; the tag is not UTF-8, has a zero byte or is too long. */
bp_err bp_conll_add(bp_text_record *record, const char *line, size_t bytes);

/** Two texts one after the other. Errors: BP_ERR_FORMAT one of them is empty or white space. */
bp_err bp_pair_join(bp_text_record *record, const char *const text[2], const size_t bytes[2]);
