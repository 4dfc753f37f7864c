/* HDF5's registered filter 32015 (zstd), for use inside the program and as a loadable plugin.
 *
 * One zstd frame a chunk; cd_values[0] is the level (3 where it is missing), as the registered
 * plugin has it. This file and zstd_filter.c use nothing else: the plugin links neither bagpipe nor
 * libhdf5. Source: filter registry of The HDF Group, 32015; calling convention in H5Zpublic.h.
 */
#ifndef BP_IO_H5_ZSTD_FILTER_H
#define BP_IO_H5_ZSTD_FILTER_H

#include <stddef.h>

#define BP_FILTER_ZSTD 32015
#define BP_ZSTD_LEVEL  3
/** The most that one chunk may decompress to: what a damaged or hostile size field can make us
 * allocate. */
#define BP_ZSTD_CHUNK_LIMIT ((size_t)1 << 30)

/** An H5Z_class2_t, for H5Zregister() and H5PLget_plugin_info(). */
extern const void *const bp_zstd_filter;

#endif
