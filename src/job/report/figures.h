/* Figures as text for pages and people. Local: no MPI. */
#pragma once

#include <stdbool.h>

/** A figure with three significant digits, and with as many decimals as its error needs for two;
 * without an error (NaN, 0) with four digits. `difference`: with its sign. Free with bp_free();
 * NULL if it is not finite. */
char *bp_report_figure(double value, double error, bool difference);
/** Text of a number with commas between thousands of its integer part. Free with bp_free(). */
char *bp_report_thousands(const char *digits);
