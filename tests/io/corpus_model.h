/* A small corpus whose every value is a function of its place, for tests that write, damage and
 * read corpora. */
#pragma once

#include "io/corpus/corpus_file.h"
#include "io/corpus/corpus_writer.h"

typedef struct corpus_model {
    int64_t documents;
    int64_t
        mean_tokens; /* a document has 0 to twice as many; document 3 has none, document 4 one */
    int64_t vocab_size;
    int64_t eod_id; /* -1: none */
    bool is_task;   /* a segment of 0 to 6 tokens after another, and values */
} corpus_model;

/** Tokens of document d without the end-of-document token, and token k of it. */
int64_t corpus_model_tokens(const corpus_model *model, int64_t document);
uint32_t corpus_model_token(const corpus_model *model, int64_t document, int64_t k);

/** Write it with the writer, with ids and two labels ("genre" of 5 values, "odd" of 2). */
bp_err corpus_model_write(const corpus_model *model, const char *path);

/** Read the whole file and compare every value; returns the first failure to read, fails the test
 * on a difference. */
bp_err corpus_model_read(const corpus_model *model, const char *path);
