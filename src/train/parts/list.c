/* The list of a training's parts. */
#include "train/parts/list.h"

#define ROW(word) &training_##word,

const bp_training_part *const bp_training_parts[] = {BP_TRAINING_PARTS(ROW, ROW) NULL};
