/* Products in blocks of a fixed number of rows. */
#include "math/gemm/linear_parts.h"
#include <string.h>

void *bp_workspace_of(bp_workspace *workspace, size_t bytes)
{
    if (bytes > workspace->bytes) {
        bp_free(workspace->data);
        workspace->data = bp_alloc("math.gemm.scratch", (int64_t)bytes, 1);
        workspace->bytes = bytes;
    }
    return workspace->data;
}

void bp_workspace_free(bp_workspace *workspace)
{
    bp_free(workspace->data);
    workspace->data = NULL;
    workspace->bytes = 0;
}

void bp_in_row_blocks(const bp_rows *all, bp_workspace *workspace,
                      void (*product)(const void *context, float *y, const float *x, int64_t rows),
                      const void *context)
{
    int64_t y_floats = BP_ROW_BLOCK * all->y_columns, x_floats = BP_ROW_BLOCK * all->x_stride,
            r = 0;

    for (; r + BP_ROW_BLOCK <= all->rows; r += BP_ROW_BLOCK)
        product(context, all->y + r * all->y_columns, all->x + r * all->x_stride, BP_ROW_BLOCK);
    if (r == all->rows)
        return;
    int64_t tail = all->rows - r;
    float *y = bp_workspace_of(workspace, (size_t)(y_floats + x_floats) * sizeof *y),
          *x = y + y_floats;
    memset(x, 0, (size_t)x_floats * sizeof *x);
    for (int64_t i = 0; i < tail; i++)
        memcpy(x + i * all->x_stride, all->x + (r + i) * all->x_stride,
               (size_t)all->x_columns * sizeof *x);
    product(context, y, x, BP_ROW_BLOCK);
    memcpy(all->y + r * all->y_columns, y, (size_t)(tail * all->y_columns) * sizeof *y);
}
