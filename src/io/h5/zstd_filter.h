/* HDF5's registered filter 32015 (zstd), for use inside the program and as a loadable plugin.
 *
 * One zstd frame per chunk; cd_values[0] is the level (default 3), as in the registered plugin.
 * This file and zstd_filter.c use nothing else: the plugin links neither bagpipe nor libhdf5.
 * Source: filter registry of The HDF Group, 32015; calling convention in H5Zpublic.h.
 */
#pragma once

#include <stddef.h>

#define BP_FILTER_ZSTD 32015
#define BP_ZSTD_LEVEL  3
/** The maximum decompressed size of a chunk: limits the allocation for a damaged or hostile size
 * field. */
#define BP_ZSTD_CHUNK_LIMIT ((size_t)1 << 30)

/** An H5Z_class2_t, for H5Zregister() and H5PLget_plugin_info(). */
extern const void *const bp_zstd_filter;
