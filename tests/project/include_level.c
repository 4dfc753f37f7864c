/* A library of the base that stays on its floor. */
#include "base/err.h"
