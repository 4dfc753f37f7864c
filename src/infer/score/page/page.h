/* index.html of a scoring job: the distribution of documents' perplexities, the hardest and the
 * easiest documents, and texts coloured token by token. Local: no MPI. */
#pragma once

#include "base/config/json.h"
#include "infer/score/tables/table.h"
#include "statistics/calibration.h"
#include "text/tokenizer/tokenizer.h"

struct scorer;

/** Write `folder`/index.html after tokens.h5 is written (or was not requested). A failure is a
 * warning; if gnuplot fails, the page says so. */
void score_page_write(const struct scorer *self, const bp_score_table *table);

/** Any bytes as a string of valid UTF-8 (bp_text_escape). New reference. */
json_t *bp_score_page_text(const char *text, size_t bytes);

/** A figure formatted for people, next to its error (bp_report_figure). */
void bp_score_page_add_figure(json_t *object, const char *key, double value, double error);

/** "Scores of MODEL". New reference. */
json_t *score_page_title(const char *model);

/** object[key]: the value as text, or null if it is not finite. */
void bp_score_page_add_value(json_t *object, const char *key, const char *format, double value);

/** The tokenizer that the corpora keep, else that of tokenizer.path if it matches; NULL if there is
 * no tokenizer. Errors: those of bp_tokenizer_parse and bp_tokenizer_load. */
bp_err bp_score_page_tokenizer(bp_tokenizer **out, const bp_corpus *corpus,
                               const bp_config *config);
/** row.text: the beginning of a document, and row.more: there is more text. Errors: those of
 * reading. */
bp_err score_page_add_beginning(json_t *row, const bp_tokenizer *tokenizer,
                                const bp_score_plan *plan, int64_t document);

/** The same of a document of two texts: row.text and row.more of the first one, row.second and
 * row.more_second. Errors: those of reading. */
bp_err score_page_add_pair(json_t *row, const bp_tokenizer *tokenizer, const bp_score_plan *plan,
                           int64_t document);

/** page.plot and page.ece: the reliability diagram of predictions. independent: each prediction is
 * of another text, so that bins have intervals. Errors: those of bp_report_plot. */
bp_err score_page_add_reliability(json_t *page, const bp_calibration *sums, bool independent);
