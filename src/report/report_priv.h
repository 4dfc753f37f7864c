/* What the files of src/report share. */
#ifndef BP_REPORT_REPORT_PRIV_H
#define BP_REPORT_REPORT_PRIV_H

#include "base/buffer.h"
#include "report/report.h"

/** Add text in single quotes, where gnuplot knows no escape but a doubled quote. */
void report_put_quoted(bp_buffer *out, const char *text);

#endif
