/* What matrix products multiply. */
#pragma once

typedef enum bp_precision { BP_F32, BP_BF16 } bp_precision;
