/* Of a vocabulary much larger than the model. */
#define LINEAR_VOCABULARY 1500
#define LINEAR_WIDTH      40
#include "laplace_memory.h"
