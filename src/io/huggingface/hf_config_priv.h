/* config.json, by tables. */
#pragma once

#include "base/buffer.h"
#include "io/huggingface/hf_model.h"

#define HF_MAX_LAYERS    10000
#define HF_PAIRS         16  /* of a list of pairs */
#define HF_UNKNOWN_BYTES 400 /* approximate bytes of unknown keys' names in a message */

/** Read it by the table of its model_type. Errors: BP_ERR_FORMAT unsupported settings; `path` is
 * for messages. */
bp_err hf_config_read(bp_hf_shape *out, json_t *config, const bp_hf_table *const *tables,
                      const char *path);

/* hf_classes.c. */
/** The part of config.json that describes a language model: text_config in a model of images and
 * text, else the whole object. New reference. */
json_t *hf_text_config(const json_t *config, const bp_hf_table *const *tables);
#define HF_CLASS_NAME 96
/** The class without a head, "BertModel". Returns name. */
const char *hf_base_class(char name[HF_CLASS_NAME], const bp_hf_table *table);
/** Does config.json name the table's class? */
bool hf_config_names(const json_t *config, const bp_hf_table *table);
/** Check that config.json's class is supported. Errors: BP_ERR_FORMAT another class; a type
 * without a table is no error. */
bp_err hf_check_class(const json_t *config, const bp_hf_table *const *tables, const char *path);

/** The default of a size. */
double hf_otherwise(const bp_hf_shape *shape, const bp_hf_size *size);
/** Does it have a list? */
bool hf_is_list(const bp_hf_size *size);
/** The list of size k; and its numbers from an array, `name` of `path`. Errors: BP_ERR_FORMAT. */
double *hf_list_of(bp_hf_shape *shape, int k);
bp_err hf_read_list(double *list, double *count, const json_t *array, const char *name,
                    const char *path);
/** The same for BP_HF_PAIRS from a text; and their text, a new reference. */
bp_err hf_read_pairs(double *list, double *count, const bp_hf_size *size, const json_t *text,
                     const char *path);
json_t *hf_pairs_json(const bp_hf_size *size, const double *list);
/** The number of a choice's word; -1 if it is not one of them. */
int hf_choice_of(const bp_hf_size *size, const char *word);
/** A value of a setting's list, of `bytes`. New reference. */
json_t *hf_setting_value(const bp_hf_shape *shape, const char *text, size_t bytes);
/** The difference, theirs minus ours. */
int64_t hf_surplus(const bp_hf_shape *shape, const bp_hf_size *size);

/* hf_config_write.c. */
/** A size as JSON, with our words. New reference. */
json_t *hf_size_json(const bp_hf_shape *shape, int k);
/** New reference. */
json_t *hf_config_json(const bp_hf_shape *shape);
/** generation_config.json by a config.json: how transformers' generate begins, ends and pads. New
 * reference; NULL: the model writes no targets for sources. */
json_t *hf_generation_json(const bp_hf_shape *shape, const json_t *config);

/* hf_labels.c. The number of labels in an object, with keys "0" and so on. Errors: BP_ERR_FORMAT
 * other keys. */
bp_err hf_labels_count(double *count, const json_t *object, const char *name, const char *path);
/** Their names, a new reference; NULL if there is no such object, or no class name. */
json_t *hf_labels_read(const json_t *object);
/** "id2label" and "label2id" of config.json; labels NULL: LABEL_0, LABEL_1... */
void hf_labels_write(json_t *config, int64_t count, const json_t *labels);

/* hf_period.c. For a list with one word per layer: n, where every n-th word is the second of the
 * size's words. Errors: BP_ERR_FORMAT any other list. And that list, a new reference. */
bp_err hf_period_read(double *out, const bp_hf_shape *shape, const bp_hf_size *size,
                      const json_t *list, const char *path);
json_t *hf_period_json(const bp_hf_shape *shape, const bp_hf_size *size, double n);
/* The same for size k, the layers that have the second of its words, or that are listed from 0.
 * Errors: BP_ERR_FORMAT another word, an invalid layer, too many layers. */
bp_err hf_layers_read(bp_hf_shape *shape, int k, const json_t *list, const char *path);
json_t *hf_layers_json(const bp_hf_shape *shape, int k);

/* hf_keys.c. Settings of all tables: read, not written. */
extern const bp_hf_setting hf_common_settings[]; /* except for those that a table has itself */
/** Does the list name this key? */
bool hf_is_set_by(const bp_hf_setting *settings, const char *key);
/** Check that each key is read by the table, a setting, or known to have no effect; null values are
 * ignored. Errors: BP_ERR_FORMAT with the names of others. */
bp_err hf_config_check_unknown(const bp_hf_table *table, json_t *config, const char *path);
/** Check that each member of an object with sizes belongs to a size. Errors: BP_ERR_FORMAT. */
bp_err hf_config_check_members(const bp_hf_table *table, json_t *config, const char *path);

/** Does a model have a part that requires a flag to be set, or not set ("!FLAG")? NULL: always. */
bool hf_is_set(const bp_hf_shape *shape, const char *flag);
