/* Warns of micro-batches with too few rows for fast matrix products. Called by pretrain.c before
 * the first step. */
#include "train/loop/memory/rows.h"

#include "base/log.h"
#include "base/mem.h"
#include "mesh/mesh_search.h"

#define FAST_ROWS   1024 /* of a product: at their speed */
#define SLOW_ROWS   512  /* fewer cost more than noise */
#define LEAST_WIDTH 128  /* of a narrower model other work takes the time */
#define STAGE_FILL  2    /* micro-batches for each stage, that a pipeline is to have at least */

/* Measured on a step of two layers (bf16 with AMX, one thread, 4,096 tokens, microseconds of
 * processor time a token) at 64, 128, 256, 512 and 1,024 rows:
 *
 *     width  64    9.6   8.2   8.8   8.5   7.8
 *     width 128   23.7  20.3  18.9  17.1  16.0
 *     width 256   66.5  49.2  46.4  43.1  41.8
 *
 * So a warning is worth it below 512 rows, from width 128 on, and where rows can be doubled. */

static bool fits(const trainer *self, const memory_case *one)
{
    const bp_node_memory *node = &self->estimate.node;
    bp_rank_memory *all = NULL;
    bool fits = true;

    if (node->ranks > 0 && node->has_bytes >= 0)
        fits = memory_case_list(&all, self, one) == BP_OK &&
               bp_node_memory_fullest(all, bp_mesh_shape_ranks(&one->mesh), node->nodes) <=
                   node->has_bytes;
    bp_free(all);
    return fits;
}

/* The micro-batch that the batch and the pipeline allow, of FAST_ROWS or as many as there can be;
 * 0: none that doubles the rows. */
static int64_t better_micro_batch(const trainer *self, const memory_case *one)
{
    int64_t slots = one->spec.batch / one->mesh.data, best = 0;
    int64_t least = one->mesh.pipeline > 1 ? STAGE_FILL * one->mesh.pipeline : 1;

    for (int64_t m = 2 * one->spec.micro_batch; m <= slots; m++) {
        memory_case other = *one;

        other.spec.micro_batch = m;
        if (slots % m != 0 || slots / m < least ||
            !bp_training_memory_case_is_valid(self, &other) || !fits(self, &other))
            continue;
        best = m;
        if (m * self->shape.context >= FAST_ROWS)
            break;
    }
    return best;
}

void bp_trainer_warn_of_rows(const trainer *self, const memory_case *one)
{
    bool slow =
        self->shape.width >= LEAST_WIDTH && one->spec.micro_batch * self->shape.context < SLOW_ROWS;
    int64_t better = slow ? better_micro_batch(self, one) : 0;

    if (better > 0)
        BP_WARN(
            "mesh.few_rows",
            "mesh.micro_batch = %lld x model.context = %lld makes matrix products of %lld rows, "
            "which are slower than those of %d: at mesh.micro_batch; use mesh.micro_batch=%lld",
            (long long)one->spec.micro_batch, (long long)self->shape.context,
            (long long)(one->spec.micro_batch * self->shape.context), FAST_ROWS, (long long)better);
}
