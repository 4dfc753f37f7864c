/* The parts of a training (train/loop/part.h). */
#pragma once

#include "train/loop/part.h"

/** A line a part, in the order in which they are called: WORD.c defines training_WORD. KEYS instead
 * of PART: it also has keys, training_WORD_options. Later parts depend on earlier ones: pairs needs
 * the separator of text; text's shape follows the task, which refuses another head; noise's rules
 * follow those of pairs. */
#define BP_TRAINING_PARTS(PART, KEYS)                                                              \
    PART(task)                                                                                     \
    PART(text)                                                                                     \
    PART(masks)                                                                                    \
    PART(pairs)                                                                                    \
    PART(noise)                                                                                    \
    PART(posterior)                                                                                \
    KEYS(samples)                                                                                  \
    KEYS(teacher)                                                                                  \
    PART(sngp)                                                                                     \
    KEYS(architecture)                                                                             \
    KEYS(trace)                                                                                    \
    KEYS(tensorboard)

#define BP_DECLARE_PART(word) extern const bp_training_part training_##word;
#define BP_DECLARE_KEYS(word)                                                                      \
    extern const bp_training_part training_##word;                                                 \
    extern const bp_option training_##word##_options[];
BP_TRAINING_PARTS(BP_DECLARE_PART, BP_DECLARE_KEYS)
#undef BP_DECLARE_PART
#undef BP_DECLARE_KEYS

extern const bp_training_part *const bp_training_parts[]; /* all of them; NULL-ended */
