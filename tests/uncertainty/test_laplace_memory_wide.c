/* Of a model much wider than its vocabulary. */
#define LINEAR_VOCABULARY 64
#define LINEAR_WIDTH      1100
#include "laplace_memory.h"
