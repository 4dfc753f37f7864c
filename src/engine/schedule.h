/* The order in which a pipeline stage runs its micro-batches forward and backward.
 * Sources: GPipe, Huang et al. 2019; 1F1B (PipeDream-Flush), Narayanan et al. 2021. */
#ifndef BP_ENGINE_SCHEDULE_H
#define BP_ENGINE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum bp_schedule { BP_GPIPE, BP_1F1B } bp_schedule;

typedef struct bp_action {
    bool backward;
    int64_t micro_batch;
} bp_action;

/** Fill actions[2 * micro_batches] for stage `stage` of `stages`. Backward goes in slot order in
 * both schedules, so that gradients are summed by the same tree. */
void bp_schedule_fill(bp_action *actions, bp_schedule schedule, int stage, int stages,
                      int64_t micro_batches);
/** Micro-batches whose activations are kept at once. */
int64_t bp_schedule_slots(bp_schedule schedule, int stage, int stages, int64_t micro_batches);

#endif
