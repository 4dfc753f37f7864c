/* One token file while it is read: token_layouts.c knows headers and indices, token_files.c makes
 * documents of the ids. */
#pragma once

#include "io/corpus/token_files.h"

/** A column of little-endian integers in a file, read sequentially. */
typedef struct token_column {
    const char *path; /* borrowed */
    int fd, width;
    bool is_signed;
    int64_t offset, count; /* its offset in the file; number of values */
    int64_t at;            /* values read so far */
    int64_t first, held;   /* of them in `buffer` */
    unsigned char *buffer; /* [TOKEN_COLUMN_VALUES][width] */
} token_column;

#define TOKEN_COLUMN_VALUES ((int64_t)65536)

/** The next value, which must exist. Errors: BP_ERR_IO; BP_ERR_FORMAT the file became shorter. */
bp_err token_column_next(token_column *column, int64_t *value);
/** The byte of the file where the last value read begins. */
int64_t token_column_byte(const token_column *column);

typedef struct token_file {
    const struct token_layout *layout;
    char *path, *index_path; /* index_path NULL if there is none */
    int fd, index_fd;
    token_column tokens;
    int64_t vocab_size, eod_id; /* the layout's, where not given */
    /* The index. */
    int64_t documents; /* -1 if there is none */
    token_column ends; /* datatrove: tokens before the end of each document; megatron: sequences */
    token_column lengths, pointers; /* megatron: of sequences */
    int64_t end;                    /* tokens before the end of the current document */
} token_file;

typedef struct token_layout {
    const char *name;
    const char *endings[3]; /* of the files of an input; NULL if there are no more */
    /** Open the files and check their headers and sizes. */
    bp_err (*open)(token_file *file, const char *given, const bp_token_files *files);
    /** For layouts with an index: file->end of the next document. */
    bp_err (*next_end)(token_file *file);
} token_layout;

/** NULL if there is none. Owns: the path is the caller's. */
char *token_layout_path(const token_layout *layout, const char *given, int k);
/** NULL if there is none. */
const token_layout *token_layout_of(const char *name);
void token_file_close(token_file *file);
