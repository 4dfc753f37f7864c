/* Shared by the files of src/job/report. */
#ifndef BP_JOB_REPORT_REPORT_PRIV_H
#define BP_JOB_REPORT_REPORT_PRIV_H

#include "base/buffer.h"
#include "job/report/report.h"

/** Add text as a gnuplot expression, in single quotes, in which nothing is expanded. */
void report_put_quoted(bp_buffer *out, const char *text);

#endif
