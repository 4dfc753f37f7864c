/* Operands of matrix products: their bytes and parts. */
#include "math/gemm/operand.h"

#include "base/err.h"

static size_t element_bytes(bp_operand_form form)
{
    return form == BP_OPERAND_BF16 ? sizeof(uint16_t) : sizeof(float);
}

size_t bp_operand_bytes(bp_operand_form form, int64_t rows, int64_t columns)
{
    return (size_t)(rows * columns) * element_bytes(form);
}

bp_operand bp_operand_part(const bp_operand *all, int64_t first, int64_t rows)
{
    bp_operand part = *all;

    BP_ASSERT(first >= 0 && rows >= 0 && first + rows <= all->rows);
    part.rows = rows;
    if (all->data) /* an operand without rows may have no memory */
        part.data = (char *)all->data + (size_t)(first * all->stride) * element_bytes(all->form);
    return part;
}
