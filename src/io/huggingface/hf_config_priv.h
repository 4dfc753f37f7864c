/* config.json, by tables. */
#ifndef BP_IO_HUGGINGFACE_HF_CONFIG_PRIV_H
#define BP_IO_HUGGINGFACE_HF_CONFIG_PRIV_H

#include "base/buffer.h"
#include "io/huggingface/hf_model.h"

#define HF_MAX_LAYERS    10000
#define HF_PAIRS         16  /* of a list of pairs */
#define HF_UNKNOWN_BYTES 400 /* of unknown keys' names in a message, about */

/** By the table of its model_type. Errors: BP_ERR_FORMAT what this program's models do not have;
 * `path` is for messages. */
bp_err hf_config_read(bp_hf_shape *out, json_t *config, const bp_hf_table *const *tables,
                      const char *path);

/* hf_classes.c. */
/** The part of config.json that a language model is described by: of a model of images and text its
 * text_config. New reference; the same object where it has none. */
json_t *hf_text_config(const json_t *config, const bp_hf_table *const *tables);
#define HF_CLASS_NAME 96
/** The class without a head, "BertModel". Returns name. */
const char *hf_base_class(char name[HF_CLASS_NAME], const bp_hf_table *table);
/** Does config.json name the table's class? */
bool hf_config_names(const json_t *config, const bp_hf_table *table);
/** Is the class that config.json names one that is read? Errors: BP_ERR_FORMAT it is another one;
 * a type that no table has is none. */
bp_err hf_check_class(const json_t *config, const bp_hf_table *const *tables, const char *path);

/** What a size is that is not given. */
double hf_otherwise(const bp_hf_shape *shape, const bp_hf_size *size);
/** Has it a list? */
bool hf_is_list(const bp_hf_size *size);
/** The list of size k; and its numbers from an array, `name` of `path`. Errors: BP_ERR_FORMAT. */
double *hf_list_of(bp_hf_shape *shape, int k);
bp_err hf_read_list(double *list, double *count, const json_t *array, const char *name,
                    const char *path);
/** The same of BP_HF_PAIRS from a text; and their text, a new reference. */
bp_err hf_read_pairs(double *list, double *count, const bp_hf_size *size, const json_t *text,
                     const char *path);
json_t *hf_pairs_json(const bp_hf_size *size, const double *list);
/** The number of a choice's word; -1: it is not one of them. */
int hf_choice_of(const bp_hf_size *size, const char *word);
/** A value of a setting's list, of `bytes`. New reference. */
json_t *hf_setting_value(const bp_hf_shape *shape, const char *text, size_t bytes);
/** What theirs is more than ours. */
int64_t hf_surplus(const bp_hf_shape *shape, const bp_hf_size *size);

/* hf_config_write.c. */
/** A size as JSON has it, by our words. New reference. */
json_t *hf_size_json(const bp_hf_shape *shape, int k);
/** New reference. */
json_t *hf_config_json(const bp_hf_shape *shape);

/* hf_labels.c. How many an object of labels has, "0" and so on. Errors: BP_ERR_FORMAT others. */
bp_err hf_labels_count(double *count, const json_t *object, const char *name, const char *path);
/** Their names, a new reference; NULL where there is no such object, or no name of a class. */
json_t *hf_labels_read(const json_t *object);
/** "id2label" and "label2id" of config.json; labels NULL: LABEL_0, LABEL_1... */
void hf_labels_write(json_t *config, int64_t count, const json_t *labels);

/* hf_period.c. Of a list with a word a layer, n where each n-th is the second of the size's words.
 * Errors: BP_ERR_FORMAT any other list. And that list, a new reference. */
bp_err hf_period_read(double *out, const bp_hf_shape *shape, const bp_hf_size *size,
                      const json_t *list, const char *path);
json_t *hf_period_json(const bp_hf_shape *shape, const bp_hf_size *size, double n);
/* The same of the layers, a size k, that are the second of its words, or numbers from 0. Errors:
 * BP_ERR_FORMAT a word that is neither, a number that is not a layer's, too many layers. */
bp_err hf_layers_read(bp_hf_shape *shape, int k, const json_t *list, const char *path);
json_t *hf_layers_json(const bp_hf_shape *shape, int k);

/* hf_keys.c. Settings of all tables: read, not written. */
extern const bp_hf_setting hf_common_settings[]; /* except for those that a table has itself */
/** Does the list name this key? */
bool hf_is_set_by(const bp_hf_setting *settings, const char *key);
/** Each key is one that the table reads, a setting, or known to change nothing; null is not a key.
 * Errors: BP_ERR_FORMAT the names of others. */
bp_err hf_config_check_unknown(const bp_hf_table *table, json_t *config, const char *path);
/** In objects that sizes are in, each member belongs to a size. Errors: BP_ERR_FORMAT. */
bp_err hf_config_check_members(const bp_hf_table *table, json_t *config, const char *path);

/** Does a model have what is there only if a flag is set, "!FLAG": is not? NULL: any has. */
bool hf_is_set(const bp_hf_shape *shape, const char *flag);

#endif
