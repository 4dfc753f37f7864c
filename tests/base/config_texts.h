/* Configurations read from texts, for the tests of src/base/config. */
#pragma once

#include "base/config/config.h"
#include "base/fault.h"
#include "bp_test.h"
#include <limits.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>
#define TRAIN_STEPS_REQUIRED true
#include "base/config_tables.h"

bp_config *new_config(void);

bp_err read_text(bp_config *config, const char *text);

/* Read and let go; the message stays. */
bp_err try_text(const char *text);

bp_err try_argument(const char *argument);

int count_lines(const char *text);
