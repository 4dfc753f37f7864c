/* The table of optimizers. */
#include "train/optimizers/optimizer.h"

#define DECLARE(NUMBER, name) extern const bp_optimizer_row bp_optimizer_##name;
BP_OPTIMIZER_LIST(DECLARE)

const bp_optimizer_row *bp_optimizer_row_of(bp_optimizer_kind kind)
{
#define ROW(NUMBER, name) [BP_##NUMBER] = &bp_optimizer_##name,
    static const bp_optimizer_row *const rows[BP_OPTIMIZERS] = {BP_OPTIMIZER_LIST(ROW)};

    return rows[kind];
}
