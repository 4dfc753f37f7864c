/* What the loader and its plan share. */
#pragma once

#define BP_LOADER_DEPTH 3 /* steps of windows made ahead */
