/* Columns of the tables that `bagpipe-data compare` prints. */
#pragma once

#include "statistics/inference.h"
#include "table/scores.h"

/** A text, filled up with blanks. */
void put_name(const char *text, int width);
/** A number, "-" for NaN. */
void put_number(int width, int digits, double value);
/** `format` takes the digits before each end, as "[%.*f, %.*f]"; "-" for NaN. */
void put_interval(int width, bp_interval interval, int digits, const char *format);
/** A p-value and the adjusted one: "<0.001", "-". */
void put_p_value(double p);
/** "A: runs/scored (model e7a913806162, step 200)" */
void put_side(const char *name, const score_folder *scores);
