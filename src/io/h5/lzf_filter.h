/* HDF5's filter 32000 (LZF, h5py's `compression="lzf"`), only decoding: foreign corpora may
 * have it. Source: the LZF format of Marc Lehmann's liblzf; cd_values of h5py's lzf_filter: [2] is
 * the chunk's bytes. */
#pragma once

#include <stddef.h>

#define BP_FILTER_LZF 32000

/** Decode `bytes` of LZF to out[capacity]; returns the number of bytes written, or 0 if the data is
 * invalid or longer than `capacity`. */
size_t bp_lzf_decode(void *out, size_t capacity, const void *data, size_t bytes);

/** An H5Z_class2_t without an encoder. */
extern const void *const bp_lzf_filter;
