/* The 16-bit floats of safetensors files: IEEE 754's half precision and bfloat16. Local: no MPI. */
#pragma once

#include <stdint.h>

/** The float32 of half-precision and of bfloat16 bits: exact. */
float bp_float_of_f16(uint16_t bits);
float bp_float_of_bf16(uint16_t bits);

/** Round to nearest, ties to even; infinity beyond the largest. A NaN stays a NaN. Source: IEEE
 * 754-2019, 4.3.1. */
uint16_t bp_f16_of_float(float value);
uint16_t bp_bf16_of_float(float value);
