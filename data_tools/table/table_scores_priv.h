/* Shared by table_scores.c, table_plot.c, table_studies.c and table_questions.c. */
#pragma once

#include "base/config/json.h"
#include "compare/clean_part.h"
#include "file_tool.h"
#include "score_groups.h"
#include "statistics/resample.h"

typedef struct score_figure {
    double value; /* NaN if not defined */
    bp_interval interval;
} score_figure;

/* A model on a group of documents. */
typedef struct score_cell {
    score_scope scope;
    char *name, *value; /* NULL if there is none */
    int64_t model, documents, tokens;
    int64_t draws; /* what intervals are over: documents, or clusters of them */
    /* of a corpus, of all its documents: */
    int64_t documents_all;
    uint64_t content, token_content; /* score_group_content, score_group_tokens */
    score_figure figures[SCORE_FIGURES];
} score_cell;

typedef struct score_table {
    char **models; /* [models]: the folders, or the names of NAME=RUN */
    bool *named;   /* [models]: by NAME= */
    json_t **conventions;
    char **lost;      /* [models]: what their tokens do not say of the text; NULL: nothing */
    char *note;       /* why figures of the models do not compare; NULL if they do */
    char *clean_note; /* which documents are left out; NULL: none */
    char **known;     /* [models]: what score_folder_known says */
    char **clusters;  /* [models]: score_folder_cluster; NULL: documents */
    int64_t model_count;
    score_cell *cells;
    int64_t cell_count;
    int figure; /* the one that a table to read shows */
} score_table;

/** A form of a table other than CSV: text, Markdown, LaTeX. */
typedef struct form form;
/** The form of --form and of the ending of --out; NULL: CSV, or a picture. Errors: BP_ERR_USAGE. */
bp_err table_choose_form(const form **f, const file_options *options);
/** A cell's text: control characters are shown, those of the form escaped. bp_free(). */
char *table_spell(const form *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
/** "0.712 [0.660, 0.762]", or a dash. bp_free(). */
char *table_spell_figure(const form *f, const score_figure *figure);
/** Print texts[rows][columns], the first row of heads, and a note below them; NULL: none. */
void table_put_texts(FILE *out, const form *f, char **texts, int64_t rows, int64_t columns,
                     const char *note);

/** Print `table`, by `form_put` if there is a form and by `rows_put` (CSV) else, into the file
 * `path`, which appears when it is whole; NULL: standard output.
 *
 * Errors: those of table_file_begin and table_file_save. */
bp_err table_write(const char *path, const form *f, const void *table,
                   void (*form_put)(FILE *out, const void *table, const form *f),
                   void (*rows_put)(FILE *out, const void *table));
/** Does the name of --out ask for a picture (.svg, .png)? False for NULL. */
bool table_is_picture(const char *path);

/** The run folder that a user has named: without "/" at its end, and without `part` ("/score") that
 * names the folder in it. bp_free(). */
char *table_run_folder(const char *given, const char *part);
/** The last part of a model's path, or the whole path if two models share that part. */
const char *score_table_short_name(const score_table *table, int64_t model);
/** The cell of another model on the same group; NULL if there is none. */
const score_cell *score_table_find(const score_table *table, const score_cell *like, int64_t model);
/** Is the cell's model the first one with its group? */
bool score_table_is_first(const score_table *table, const score_cell *cell);
/** The group's name in words. bp_free(). */
char *score_table_spell_group(const score_cell *cell);
/** table_plot.c: draw a figure into `path` (.svg, .png).
 * Errors: BP_ERR_FORMAT no cell has it; BP_ERR_SYSTEM gnuplot is missing; BP_ERR_IO. */
bp_err score_table_draw(const score_table *table, int figure, const char *path);

/** A hash of the ids, bytes and words of a corpus's documents, the same by several tokenizers; 0:
 * not known. */
uint64_t score_group_content(const score_folder *scores, const score_group *group);
/** A hash of its documents' tokens; 0: not known. */
uint64_t score_group_tokens(const score_folder *scores, const score_group *group);
/** A new cell's corpus of another name that is the text of an earlier model's corpus gets its name,
 * and so is in its row. */
void score_table_name_by_content(score_table *table, score_cell *cell);
/** Each setting that differs is said once: table->note is for below the table; as a warning too, if
 * `warn`, where the table is not seen. */
void score_table_add_note(score_table *table, bool warn);
/** What a model's figures leave out, each sentence once: models mostly have the same documents. */
void score_table_add_clean(score_table *table, const clean_part *clean);
/** The label whose clusters the intervals of the next model are over; NULL: documents. */
void score_table_add_cluster(score_table *table, const char *label);
/** Put that, and text that models know from training, into table->note, first; as warnings too, if
 * `warn`. */
void score_table_join_notes(score_table *table, bool warn);
/** What is written below a table to read: table->note, and why some cells have no interval. NULL:
 * nothing. bp_free(). */
char *score_table_form_note(const score_table *table, int figure);
