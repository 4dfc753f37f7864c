/* Tables of classes with a task's head, derived from those of causal language models. */
#include "models/task/causal_classes.h"

#include "models/bert/bert.h"

#include <stdio.h>
#include <string.h>

#define TABLES 64
#define SIZES  2048
#define ROWS   1024

/* Added sizes, for a value, for classes and for tags; and rows. */
static const bp_hf_size VALUE[] = {BP_BERT_TASK("2", "3"), BP_BERT_LABELS, {0}},
                        CLASS[] = {BP_BERT_TASK("1", "3"), BP_BERT_LABELS, {0}},
                        TAG[] = {BP_BERT_TASK("3", "0"), BP_BERT_LABELS, {0}};
static const bp_hf_row
    SCORE_ROWS[] = {{"score.weight", "outcomes", "width", false, 1, {"task.weight"}}, {0}},
    SCORE_TAG_ROWS[] = {{"score.weight", "outcomes", "width", false, 1, {"task.weight"}},
                        {"score.bias", "outcomes", NULL, false, 1, {"task.bias"}},
                        {0}},
    CLASSIFIER_TAG_ROWS[] = {{"classifier.weight", "outcomes", "width", false, 1, {"task.weight"}},
                             {"classifier.bias", "outcomes", NULL, false, 1, {"task.bias"}},
                             {0}};
static const char *const HEADS[] = {"score.", "classifier.", NULL};

static struct {
    bp_hf_table tables[TABLES];
    const bp_hf_table *of[TABLES];
    char names[TABLES][64];
    bp_hf_size sizes[SIZES];
    bp_hf_row rows[ROWS];
    int table_count, size_count, row_count;
} made;

static const bp_hf_size *join_sizes(const bp_hf_size *all, const bp_hf_size *more)
{
    bp_hf_size *first = &made.sizes[made.size_count];

    for (const bp_hf_size *from = all; from; from = from == all ? more : NULL)
        for (const bp_hf_size *size = from; size->ours; size++) {
            BP_ASSERT(made.size_count < SIZES - 1);
            made.sizes[made.size_count++] = *size;
        }
    made.size_count++; /* ends with a zero element */
    BP_ASSERT(made.size_count - 1 - (first - made.sizes) <= BP_HF_SIZES);
    return first;
}

/* The language model without its head. */
static const bp_hf_row *join_rows(const bp_hf_row *all, const bp_hf_row *more)
{
    const bp_hf_row *first = &made.rows[made.row_count];

    for (const bp_hf_row *from = all; from; from = from == all ? more : NULL)
        for (const bp_hf_row *row = from; row->theirs; row++) {
            BP_ASSERT(made.row_count < ROWS - 1);
            if (strcmp(row->ours[0], "head") != 0 && strcmp(row->ours[0], "head.bias") != 0)
                made.rows[made.row_count++] = *row;
        }
    made.row_count++;
    return first;
}

/* Their heads have the width of the projection before words. */
static bp_err check(const bp_hf_shape *shape, const char *path)
{
    const bp_hf_table *of = made.of[shape->table - made.tables];

    if (bp_hf_has_size(of, "projected") && bp_hf_size_of(shape, "projected") != 0)
        return BP_FAIL(BP_ERR_FORMAT, "huggingface.unsupported",
                       "\"architectures\" is %s with a \"word_embed_proj_dim\" other than "
                       "\"hidden_size\", which this program's %s does not read: at %s; give "
                       "another model",
                       shape->table->architecture, of->kind, path);
    return of->check(shape, path);
}

static bp_hf_table *new_table(const bp_hf_table *of, const char *class)
{
    int k = made.table_count++;
    bp_hf_table *table = &made.tables[k];

    BP_ASSERT(k < TABLES);
    *table = *of;
    made.of[k] = of;
    (void)snprintf(made.names[k], sizeof made.names[k], "%s%s", of->stem, class);
    table->architecture = made.names[k];
    table->head = NULL;
    table->bare = HEADS;
    table->check = check;
    table->classes = NULL;
    table->members = "{\"begins\": true}";
    return table;
}

int bp_causal_classes(const bp_hf_table *out[BP_CAUSAL_CLASSES], const bp_hf_table *of)
{
    int count = 0;

    if (of->scores) {
        const bp_hf_row *rows = join_rows(of->rows, SCORE_ROWS);

        for (; count < 2; count++) {
            bp_hf_table *table = new_table(of, "ForSequenceClassification");

            table->sizes = join_sizes(of->sizes, count == 0 ? VALUE : CLASS);
            table->rows = rows;
            table->unbiased = true;
            table->trims = true;
            table->members = "{\"begins\": true, \"unbiased\": true, \"unframed\": true}";
            out[count] = table;
        }
    }
    if (of->tags) {
        bp_hf_table *table = new_table(of, "ForTokenClassification");

        table->sizes = join_sizes(of->sizes, TAG);
        table->rows = join_rows(of->rows, strcmp(of->tags, "score") == 0 ? SCORE_TAG_ROWS
                                                                         : CLASSIFIER_TAG_ROWS);
        out[count++] = table;
    }
    return count;
}
