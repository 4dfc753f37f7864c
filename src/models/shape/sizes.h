/* Sizes of a model as keys and checkpoints have them: what the files that read and write them
 * share. */
#pragma once

#include "models/family.h"

#define KEY_BYTES  64
#define TEXT_BYTES 4096

/** Fill in bp_model_options with the keys of all families, a list ended by NULL, and the values of
 * model.kind with their names. */
void keys_list(const bp_model_family *const *of);
/** The row of this key in a table; NULL if it has none. */
const bp_option *key_row(const bp_option *rows, const char *key);
/** Can a configuration of this family set it? */
bool family_has_key(const bp_model_family *family, const char *key);

/** A value as a double, for all types. */
double size_value(const bp_model_shape *shape, const bp_model_size *size);
void size_set(bp_model_shape *shape, const bp_model_size *size, double value);
/** Fill in the defaults of a shape that is otherwise complete. */
void shape_fill_defaults(bp_model_shape *shape);
/** Its key, and its name in a checkpoint. */
void size_key(char key[KEY_BYTES], const bp_model_family *family, const bp_model_size *size);
const char *size_stored_name(const bp_model_size *size);
/** The section of its keys: "model" unless it has its own. */
const char *family_section(const bp_model_family *family);
/** Is it written, into a checkpoint and config.ini? */
bool size_is_given(const bp_model_shape *shape, const bp_model_size *size);
/** The number of a choice's word; -1 if it is not one of them. */
int size_number(const bp_model_size *size, const char *word);
/** A value as a key's text; and the same for a shape's value. */
void size_set_text(char text[TEXT_BYTES], const bp_model_size *size, double value);
void size_write(char text[TEXT_BYTES], const bp_model_shape *shape, const bp_model_size *size);
/** Reads "1,1.5"; false if a number is not above 0, or there are too many. */
bool size_read_reals(double reals[BP_MODEL_REALS], const char *text);
void size_write_reals(char text[TEXT_BYTES], const double reals[BP_MODEL_REALS]);
/** The numbers of a BP_SIZE_REALS in the shape: [BP_MODEL_REALS], borrowed. */
double *size_reals(const bp_model_shape *shape, const bp_model_size *size);
/** Reads a list of pairs, bilm-tf's [[1, 32], [2, 64]]; false if it is invalid, or too long
 * (bp_pairs_read). */
bool size_read_pairs(int64_t pairs[BP_MODEL_PAIRS], const bp_model_size *size, const char *text);
void size_write_pairs(char text[TEXT_BYTES], const bp_model_size *size,
                      const int64_t pairs[BP_MODEL_PAIRS]);
/** The numbers of a BP_SIZE_PAIRS in the shape: [BP_MODEL_PAIRS], borrowed; and sets them. */
const int64_t *size_pairs(const bp_model_shape *shape, const bp_model_size *size);
void size_set_pairs(bp_model_shape *shape, const bp_model_size *size, const int64_t *pairs);
/** Are its layers those of Transformers, which adapters may change? */
bool shape_has_adapters(const bp_model_family *family);
