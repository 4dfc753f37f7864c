#include "coordinator/work_desk_priv.h"

int64_t work_desk_answer(work_desk *desk, work_question question, int64_t amount)
{
    desk->amount += amount;
    if (question == WORK_LEAVE_EARLY)
        desk->closed = true;
    if (question != WORK_ASK) {
        desk->here--;
        return -1;
    }
    while (desk->next < desk->units && desk->done[desk->next])
        desk->next++;
    if (desk->closed || desk->next == desk->units)
        return -1;
    return desk->next++;
}
