/* Tables of options for what tests and fuzzes the reader: a key of each type, keys that must be
 * given, and a table that the job does not use. */
#pragma once

#include "base/config/config.h"

#include <math.h>

/* TRAIN_STEPS_REQUIRED: must train.steps be given? Before the include. */
static const bp_option train_table[] = {
    {"train.steps", BP_OPTION_INT, NULL, 1, 1000000, NULL, "steps", "optimizer steps",
     TRAIN_STEPS_REQUIRED},
    {"train.rate", BP_OPTION_REAL, "3e-4", 0, 10, NULL, NULL, "learning rate", false},
    {"train.memory", BP_OPTION_BYTES, "1 GiB", 0, 0x1p50, NULL, NULL, "memory for sums", false},
    {"train.trace", BP_OPTION_BOOL, "no", 0, 0, NULL, NULL, "write a trace", false},
    {"train.order", BP_OPTION_CHOICE, "tree", 0, 0, "tree|running", NULL, "of the sums", false},
    {"train.shift", BP_OPTION_INT, "-3", -INFINITY, INFINITY, NULL, NULL, "any integer", false},
    {"train.seed", BP_OPTION_INT, "1", 0, 0x1p53, NULL, NULL, "of random numbers", false},
    {"train.limit", BP_OPTION_REAL, NULL, 0, 0, NULL, NULL, "any number", false},
    {NULL, BP_OPTION_INT, NULL, 0, 0, NULL, NULL, NULL, false}};
static const bp_option run_table[] = {
    {"run.dir", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, "the run folder", true},
    {"run.note", BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, "free text", false},
    {NULL, BP_OPTION_INT, NULL, 0, 0, NULL, NULL, NULL, false}};
static const bp_option score_table[] = {
    {"score.stride", BP_OPTION_INT, NULL, 1, 100, NULL, "tokens", "of windows", true},
    {NULL, BP_OPTION_INT, NULL, 0, 0, NULL, NULL, NULL, false}};

static const bp_option *const all_tables[] = {train_table, run_table, score_table, NULL};
static const bp_option *const used_tables[] = {train_table, run_table, NULL};
