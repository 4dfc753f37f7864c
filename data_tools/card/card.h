/* What a card says, as JSON that the templates of src/job/report/pages show. Local: no MPI but on
 * MPI_COMM_SELF. Texts in it are Markdown, or YAML, as they are. */
#ifndef BP_DATA_TOOLS_CARD_H
#define BP_DATA_TOOLS_CARD_H

#include "base/config/json.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct card {
    const char *path; /* as given */
    json_t *data;     /* of the template */
    char *digests;    /* of the model and of members, between blanks; NULL: none is known */
    char
        *corpus_hash; /* of the content of the corpus that the sheet is of; NULL: it is a model's */
    bool is_model, is_ensemble;
} card;

/** Text of one cell or line of Markdown, which says nothing else to it. New reference. */
json_t *card_text(const char *text);
/** A code span of Markdown, with its backticks: more of them than the text has side by side. New
 * reference. */
json_t *card_code(const char *text);
/** A scalar of YAML 1.2, whatever is in it. New reference. */
json_t *card_yaml(const char *text);
/** {"name", "value"} to the end of a list; "": nothing is known, and nothing is added. */
void card_fact(json_t *list, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** A line to the end of data.LIST, which is made. */
void card_line(card *self, const char *list, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** The list data.NAME, which is made. Borrowed. */
json_t *card_list(card *self, const char *name);
/** A number with its interval, "1.52 (1.49 to 1.55)"; "" where it is null. Free with bp_free(). */
char *card_figure(const json_t *value, const json_t *low, const json_t *high);
/** The same of {"value", "low", "high"}. */
char *card_figure_of(const json_t *figure);

/** Fill in all that a run, a checkpoint or an ensemble says of itself.
 * Errors: BP_ERR_INPUT nothing is there; BP_ERR_FORMAT it is no model, or damaged; those of
 * bp_checkpoint_open_any. */
bp_err card_model(card *self);
/** The same of a corpus. Errors: those of bp_corpus_file_open. */
bp_err card_corpus(card *self);
/** Take in a folder of results: of score, uncertainty, explain, or a report.
 * Errors: BP_ERR_FORMAT it is none of them, or of another model; those of bp_json_load. */
bp_err card_results(card *self, const char *folder);

/** Facts of the files of a corpus to a list of {"facts"}: documents, tokens, sources, hashes. */
struct bp_corpus_file;
bp_err card_corpus_facts(json_t *facts, struct bp_corpus_file *file);

#endif
