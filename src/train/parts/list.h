/* The parts of a training (train/loop/part.h). */
#ifndef BP_TRAIN_PARTS_LIST_H
#define BP_TRAIN_PARTS_LIST_H

#include "train/loop/part.h"

/* In the order in which they are called; NULL ends it. */
extern const bp_training_part *const bp_training_parts[];

/* A file each. */
extern const bp_training_part training_task, training_text, training_masks, training_pairs,
    training_noise, training_posterior, training_samples, training_teacher, training_sngp,
    training_trace, training_tensorboard;

#endif
