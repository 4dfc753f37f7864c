/* What the loader and its plan share. */
#ifndef BP_DATA_LOADER_PRIV_H
#define BP_DATA_LOADER_PRIV_H

#define BP_LOADER_DEPTH 3 /* steps of windows made ahead */

#endif
