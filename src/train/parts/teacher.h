/* What other parts ask about a teacher (distill.*). */
#pragma once

#include "base/config/config.h"

/** Is there one? Local. */
bool teacher_is_asked(const bp_config *config);
/** Does the model learn its probabilities, with or without its states? Local. */
bool teacher_gives_targets(const bp_config *config);
