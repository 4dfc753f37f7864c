/* The tools of bagpipe-data: each is a file of its own with one entry, called with its own argv
 * (argv[0] is the tool). */
#ifndef BP_DATA_TOOLS_H
#define BP_DATA_TOOLS_H

#include "base/err.h"

bp_err bp_tool_tokenizer(int argc, char **argv);
bp_err bp_tool_corpus(int argc, char **argv);
bp_err bp_tool_inspect(int argc, char **argv);
bp_err bp_tool_verify(int argc, char **argv);
bp_err bp_tool_table(int argc, char **argv);
bp_err bp_tool_import(int argc, char **argv);
bp_err bp_tool_export(int argc, char **argv);
bp_err bp_tool_compare(int argc, char **argv);

#endif
