/* The documents of a task's corpora, in memory: their texts, and what each is asked for. Local: no
 * MPI. */
#ifndef BP_DATA_TASK_TEXTS_H
#define BP_DATA_TASK_TEXTS_H

#include "base/json.h"
#include "data/corpus.h"

typedef struct bp_task_texts {
    int64_t documents;
    int32_t *tokens; /* without those that end documents */
    int64_t *start;  /* [documents + 1] */
    int64_t *second; /* [documents] where the second text begins; start[d + 1]: there is but one */
    int32_t *target; /* [documents] a class, or a value (bp_target_of_value) */
} bp_task_texts;

/** The label column that `name` is, in all files, or with `numbers` a column of values; NULL: the
 * only one there is.
 *
 * Owns:       *out is the caller's, bp_free(); NULL after an error.
 * Errors:     BP_ERR_FORMAT a file without such a column; BP_ERR_CONFIG several, and no name.
 */
bp_err bp_task_label_column(char **out, const bp_corpus *corpus, const char *name, bool numbers);

/** The classes of that column, sorted by name: a list of strings. New reference.
 *
 * Errors:     those of bp_corpus_file_label; BP_ERR_FORMAT all documents have one class.
 */
bp_err bp_task_classes(json_t **out, const bp_corpus *corpus, const char *column);

/** Documents of the class that has fewest, and its number. */
int64_t bp_task_rarest(const bp_task_texts *texts, int64_t classes, int64_t *rarest);

/** Read all. classes NULL: the column holds numbers. Documents of two segments each are pairs.
 * open: a document without that column, or of a class that is none of these, has the target -1.
 *
 * Owns:       bp_task_texts_clear(), also after an error.
 * Errors:     BP_ERR_FORMAT a class that is none of these, a value that is no finite number; an
 *             empty document; BP_ERR_SYSTEM memory; those of reading.
 */
bp_err bp_task_texts_read(bp_task_texts *out, const bp_corpus *corpus, const char *column,
                          const json_t *classes, bool open);
void bp_task_texts_clear(bp_task_texts *texts);

#endif
