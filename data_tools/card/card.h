/* The contents of a card, as JSON that the templates of src/job/report/pages show. Local: MPI only
 * on MPI_COMM_SELF. Texts in it are verbatim Markdown, or YAML. */
#pragma once

#include "base/config/json.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct card {
    const char *path;  /* as given */
    json_t *data;      /* of the template */
    char *digests;     /* of the model and of members, separated by blanks; NULL if unknown */
    char *corpus_hash; /* of the content of the sheet's corpus; NULL for a model */
    bool is_model, is_ensemble;
} card;

/** Text of one cell or line of Markdown, escaped. New reference. */
json_t *card_text(const char *text);
/** A code span of Markdown, with its backticks: more than the longest run of backticks in the text.
 * New reference. */
json_t *card_code(const char *text);
/** A scalar of YAML 1.2, for any text. New reference. */
json_t *card_yaml(const char *text);
/** The library whose code the Hub shows with a model of this kind: transformers, where it reads the
 * model's export. */
const char *card_library(const char *kind, bool ensemble);
/** Append {"name", "value"} to a list; nothing is added for "" (unknown). */
void card_fact(json_t *list, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Append a line to data.LIST, which is created if necessary. */
void card_line(card *self, const char *list, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Append the open questions of a model or a corpus to data.open: those that no file and no option
 * answers. */
void card_model_questions(card *self, bool is_trained);
void card_corpus_questions(card *self);
/** The list data.NAME, created if necessary. Borrowed. */
json_t *card_list(card *self, const char *name);
/** A number with its interval, "1.52 (1.49 to 1.55)"; "" if it is null. Free with bp_free(). */
char *card_figure(const json_t *value, const json_t *low, const json_t *high);
/** The same for {"value", "low", "high"}. */
char *card_figure_of(const json_t *figure);

/** Fill in the facts of a run, a checkpoint or an ensemble. Errors: BP_ERR_INPUT it does not exist;
 * BP_ERR_FORMAT not a model, or damaged; those of bp_checkpoint_open_any. */
bp_err card_model(card *self);
/** The same for a corpus. Errors: those of bp_corpus_file_open. */
bp_err card_corpus(card *self);
/** Add a folder of results: of score, generate, uncertainty, explain, or a report. Errors:
 * BP_ERR_FORMAT it is not one of these, or is of another model; those of bp_json_load. */
bp_err card_results(card *self, const char *folder);

/** Append facts of the files of a corpus to a list of {"facts"}: documents, tokens, sources,
 * hashes. */
struct bp_corpus_file;
bp_err card_corpus_facts(json_t *facts, struct bp_corpus_file *file);
