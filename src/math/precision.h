/* What matrix products multiply. */
#ifndef BP_MATH_PRECISION_H
#define BP_MATH_PRECISION_H

typedef enum bp_precision { BP_F32, BP_BF16 } bp_precision;

#endif
