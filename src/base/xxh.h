/* xxHash, by the widest registers of the CPU at hand where the library was built with that. */
#ifndef BP_BASE_XXH_H
#define BP_BASE_XXH_H

#ifdef BP_HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#endif
