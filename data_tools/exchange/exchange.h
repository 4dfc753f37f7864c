/* Shared by import and export: the command line, and the output path. */
#pragma once

#include "base/err.h"
#include "tools.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct exchange_arguments {
    const char *from;      /* the one argument */
    char *out;             /* without slashes at its end */
    const char *tokenizer; /* --tokenizer; NULL if not given */
    bool no_tokenizer;     /* --no-tokenizer */
    bool list;             /* import: --list */
    const char *dtype;     /* export: --dtype, by its name in safetensors: "F32" */
    int64_t shard_bytes;   /* export: --shard-size; 0 if not given */
    bool gguf;             /* export: --form gguf */
    int type;              /* export: --type, a bp_gguf_type */
} exchange_arguments;

typedef struct exchange_tool {
    const bp_tool *tool; /* its options are some of the options above */
    bp_err (*run)(const exchange_arguments *arguments);
} exchange_tool;

/** Progress of a long copy: prints a line every few seconds with the remaining time. Initialize all
 * fields except `what` to zero. */
typedef struct exchange_progress {
    const char *what; /* "reading weights" */
    double began, shown;
} exchange_progress;
void exchange_show_progress(exchange_progress *progress, int64_t done_bytes, int64_t total_bytes);

/** Parse the command line, refuse an existing output (BP_ERR_CREATE), and run the tool on rank 0.
 * Collective over MPI_COMM_WORLD. */
bp_err exchange_run(const exchange_tool *tool, int argc, char **argv);
