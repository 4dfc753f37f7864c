#include "engine/schedule.h"

int64_t bp_schedule_slots(bp_schedule schedule, int stage, int stages, int64_t micro_batches)
{
    int64_t slots = schedule == BP_GPIPE ? micro_batches : stages - stage;

    return slots < micro_batches ? slots : micro_batches;
}

void bp_schedule_fill(bp_action *actions, bp_schedule schedule, int stage, int stages,
                      int64_t micro_batches)
{
    int64_t ahead = bp_schedule_slots(schedule, stage, stages,
                                      micro_batches); /* forwards before the first backward */
    int64_t forward = 0, backward = 0;

    for (int64_t k = 0; k < 2 * micro_batches; k++) {
        bool goes_back = forward == micro_batches || forward - backward == ahead;
        actions[k].backward = goes_back;
        actions[k].micro_batch = goes_back ? backward++ : forward++;
    }
}
