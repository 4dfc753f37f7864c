/* The queue's decisions: which rank gets which unit next. work_queue.c sends and receives; in tests
 * a simulator does. Called by work_queue.c. */
#include "job/work_scheduler_priv.h"

int64_t work_scheduler_answer(work_scheduler *scheduler, work_question question, int64_t amount)
{
    scheduler->amount += amount;
    if (question == WORK_LEAVE_EARLY)
        scheduler->closed = true;
    if (question != WORK_ASK) {
        scheduler->here--;
        return -1;
    }
    while (scheduler->next < scheduler->units && scheduler->done[scheduler->next])
        scheduler->next++;
    if (scheduler->closed || scheduler->next == scheduler->units)
        return -1;
    return scheduler->next++;
}
