/* Shared by inspect, verify and table: the command line, the kind of a path, and the datasets of an
 * HDF5 file. */
#pragma once

#include "base/err.h"
#include "base/suffix.h"
#include "io/h5/h5.h"
#include "io/h5/user_block.h"
#include "tools.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct file_options {
    int64_t head;           /* --head N; -1: all rows */
    const char *tokenizer;  /* --tokenizer FILE; NULL if not given */
    const char *form, *out; /* --form FORM, --out FILE; NULL if not given */
    const char *figure;     /* --figure NAME */
    const char *clean;      /* --clean OVERLAP.h5 */
} file_options;

typedef struct file_tool {
    const bp_tool *tool; /* its options are rows of --head and --tokenizer, or NULL */
    bp_err (*run)(const char *path, const file_options *options);
    /* all of them at once, if one is a folder; NULL: one by one */
    bp_err (*run_folders)(char *const *paths, int count, const file_options *options);
    bp_err (*run_form)(char *const *paths, int count, const file_options *options); /* --form */
} file_tool;

/** Parse the command line and run the tool on each FILE in turn, on rank 0. A failure of one is
 * reported, and the others are still processed; the first failure's code is the result. Collective
 * over MPI_COMM_WORLD. */
bp_err file_tool_run(const file_tool *tool, int argc, char **argv);

/** Print the trainings among `folders` side by side as CSV, the best first. Errors: those of
 * bp_history_read; a name that is not a training is an error if it is the only one. */
bp_err table_of_runs(char *const *folders, int count, const file_options *options);

typedef enum path_kind {
    PATH_CORPUS,  /* ours */
    PATH_TABLE,   /* another HDF5 file of ours: score tables, shards */
    PATH_FOREIGN, /* an HDF5 file of another program */
    PATH_JSON,    /* a tokenizer.json */
    PATH_CHECKPOINT,
    PATH_FOLDER /* another folder: a run's */
} path_kind;

/** The kind of a path; `block` is filled for files of ours. Errors: BP_ERR_INPUT, BP_ERR_DENIED;
 * BP_ERR_FORMAT "damaged": neither HDF5 nor JSON. */
bp_err path_kind_of(path_kind *kind, bp_user_block *block, const char *path);

/** The path in NAME=PATH, which exists; the whole text if it names a file itself, or none does. */
const char *named_folder(const char *given);

/** Errors: BP_ERR_USAGE two of the names of what was given are equal. */
bp_err check_names(const char *const *names, char *const *given, int64_t count);

/** Paths of all datasets of a file, in the order of names, groups followed to a depth of 8. Free
 * with bp_names_free(). */
bp_err list_datasets(bp_h5 *h5, char ***names, int64_t *count);

/** Print text of a foreign file, up to `limit` bytes or its end: control characters as \xNN, so
 * that no terminal acts on them, except for those in `kept`. */
void put_clean(const char *text, size_t limit, const char *kept);

/** A path or name without control characters (bp_printable), in one of a few static buffers; valid
 * for a few more calls. */
const char *shown_path(const char *path);

/** A field of CSV (RFC 4180). Line breaks are data in a quoted field; other control characters are
 * removed. */
void put_csv(FILE *out, const char *text, size_t limit);

/** Columns of a terminal that a text takes: characters, as UTF-8 has them. */
int text_width(const char *text);

/** A comma and a number in all its digits; no number if it is not finite. */
void put_csv_real(FILE *out, double value);

/** A table in memory, which becomes a file when it is whole. */
typedef struct table_file {
    FILE *out; /* write the table here */
    char *text;
    size_t bytes;
} table_file;

/** Errors: BP_ERR_SYSTEM memory; nothing is to be saved then. */
bp_err table_file_begin(table_file *file);
/** Write the file, and free the table, after an error too.
 * Errors: BP_ERR_SYSTEM memory; those of bp_file_write. */
bp_err table_file_save(table_file *file, const char *path);

/** "1,340,447", in one of a few static buffers; valid for a few more calls. */
const char *grouped(int64_t value);
