/* The list of a training's parts: one that is not in it is not called. */
#include "train/parts/list.h"

/* Later ones go by what earlier ones found: pairs by the separator of text;
 * text's shape after the task has refused another head, noise's rules after those of pairs. */
const bp_training_part *const bp_training_parts[] = {
    &training_task,  &training_text,      &training_masks,       &training_pairs,
    &training_noise, &training_posterior, &training_samples,     &training_teacher,
    &training_sngp,  &training_trace,     &training_tensorboard, NULL};
