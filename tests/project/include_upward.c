/* A library of the base that reaches up. */
#include "mesh/mesh.h"
