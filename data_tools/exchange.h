/* What import and export share: their command line, and the place of what they write. */
#ifndef BP_DATA_TOOLS_EXCHANGE_H
#define BP_DATA_TOOLS_EXCHANGE_H

#include "base/err.h"

#include <stdbool.h>

typedef struct exchange_arguments {
    const char *from;      /* the one thing that is named */
    char *out;             /* without slashes at its end */
    const char *tokenizer; /* --tokenizer, NULL: not given */
    bool no_tokenizer;     /* --no-tokenizer */
} exchange_arguments;

typedef struct exchange_tool {
    const char *name;      /* "import" */
    const char *arguments; /* "HF_FOLDER --out CHECKPOINT" */
    const char *doc;       /* for --help, as argp takes it */
    const char *tokenizer; /* help of --tokenizer */
    bp_err (*run)(const exchange_arguments *arguments);
} exchange_tool;

/** Parse the command line, refuse an output that is there (BP_ERR_CREATE), and run the tool on rank
 * 0. Collective over MPI_COMM_WORLD. */
bp_err exchange_run(const exchange_tool *tool, int argc, char **argv);

#endif
