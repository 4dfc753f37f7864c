/* What import and export share: their command line, and the place of what they write. */
#ifndef BP_DATA_TOOLS_EXCHANGE_H
#define BP_DATA_TOOLS_EXCHANGE_H

#include "base/err.h"
#include "tools.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct exchange_arguments {
    const char *from;      /* the one thing that is named */
    char *out;             /* without slashes at its end */
    const char *tokenizer; /* --tokenizer, NULL: not given */
    bool no_tokenizer;     /* --no-tokenizer */
    bool list;             /* import: --list */
    const char *dtype;     /* export: --dtype, as safetensors files have it: "F32" */
    int64_t shard_bytes;   /* export: --shard-size; 0: not given */
    bool gguf;             /* export: --form gguf */
    int type;              /* export: --type, a bp_gguf_type */
} exchange_arguments;

typedef struct exchange_tool {
    const bp_tool *tool; /* its options are some of those here */
    bp_err (*run)(const exchange_arguments *arguments);
} exchange_tool;

/* Keys of options, besides 'o' of --out. */
enum {
    EXCHANGE_TOKENIZER = 256,
    EXCHANGE_NO_TOKENIZER,
    EXCHANGE_LIST,
    EXCHANGE_DTYPE,
    EXCHANGE_SHARD_SIZE,
    EXCHANGE_FORM,
    EXCHANGE_TYPE
};

/** How far a long copy is: a line every few seconds with the time that is left. All zero but `what`
 * at first. */
typedef struct exchange_progress {
    const char *what; /* "reading weights" */
    double began, shown;
} exchange_progress;
void exchange_show_progress(exchange_progress *progress, int64_t done_bytes, int64_t total_bytes);

/** Parse the command line, refuse an output that is there (BP_ERR_CREATE), and run the tool on rank
 * 0. Collective over MPI_COMM_WORLD. */
bp_err exchange_run(const exchange_tool *tool, int argc, char **argv);

#endif
