/* Shared by the files of src/job/report. */
#ifndef BP_JOB_REPORT_REPORT_PRIV_H
#define BP_JOB_REPORT_REPORT_PRIV_H

#include "base/buffer.h"
#include "job/report/report.h"

/** Add text as gnuplot's expression of it: in single quotes, where nothing is expanded. */
void report_put_quoted(bp_buffer *out, const char *text);

#endif
