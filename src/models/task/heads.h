/* Last blocks of tasks' networks. */
#pragma once

#include "models/family.h"
#include "nn/core/layers.h"

/** For named outcomes: a softmax over shape->task.outcomes, or a Dirichlet over them. */
bp_block *bp_task_new_softmax(bp_network *network, const bp_model_shape *shape);
/** The head for numbers, or for the positions of a text (nn/core/layers.h: bp_text_head_new). */
bp_block *bp_task_new_text_head(bp_network *network, const bp_model_shape *shape, bool finds_spans);
