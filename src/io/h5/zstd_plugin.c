/* libh5zstd.so: the two entry points by which HDF5 finds a plugin's filter. */
#include "zstd_filter.h"

#include <H5PLextern.h>

H5PL_type_t H5PLget_plugin_type(void)
{
    return H5PL_TYPE_FILTER;
}

const void *H5PLget_plugin_info(void)
{
    return bp_zstd_filter;
}
