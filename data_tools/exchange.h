/* What import and export share: their command line, and the place of what they write. */
#ifndef BP_DATA_TOOLS_EXCHANGE_H
#define BP_DATA_TOOLS_EXCHANGE_H

#include "base/err.h"
#include "tools.h"

#include <stdbool.h>

typedef struct exchange_arguments {
    const char *from;      /* the one thing that is named */
    char *out;             /* without slashes at its end */
    const char *tokenizer; /* --tokenizer, NULL: not given */
    bool no_tokenizer;     /* --no-tokenizer */
} exchange_arguments;

typedef struct exchange_tool {
    const bp_tool *tool; /* its options are --out, --tokenizer and --no-tokenizer */
    bp_err (*run)(const exchange_arguments *arguments);
} exchange_tool;

enum { EXCHANGE_TOKENIZER = 256, EXCHANGE_NO_TOKENIZER }; /* keys of the latter two */

/** Parse the command line, refuse an output that is there (BP_ERR_CREATE), and run the tool on rank
 * 0. Collective over MPI_COMM_WORLD. */
bp_err exchange_run(const exchange_tool *tool, int argc, char **argv);

#endif
