/* Shared by the files of src/job/report. */
#pragma once

#include "base/buffer.h"
#include "job/report/report.h"

/** Add text as a gnuplot expression, in single quotes, in which nothing is expanded. */
void report_put_quoted(bp_buffer *out, const char *text);
