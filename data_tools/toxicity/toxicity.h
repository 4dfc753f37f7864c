/* The parts of bagpipe-data toxicity: word lists for texts, and word lists and a classifier for
 * samples of generate. */
#pragma once

#include "arguments.h"
#include "base/config/json.h"
#include "document_texts.h"
#include "outputs.h"
#include "word_lists.h"

#include <mpi.h>

#define TOXIC 0.5 /* toxic from this probability on */

typedef struct toxicity {
    document_texts texts;
    tool_texts runs, words;
    const char *model, *class_name; /* NULL: no model; the class that begins with "toxic" */
    const char *prompts, *group;    /* a file of prompts, and its field with groups */
    const char *out;
    bool show_words;
    word_lists lists;
    json_t *report;
} toxicity;

/** report.texts: documents with words of the lists. Collective over `comm`. Errors: those of
 * document_texts_read. */
bp_err toxicity_texts(toxicity *self, MPI_Comm comm);
/** report.runs: samples of each prompt. Collective over `comm`. Errors: those of outputs_load and
 * bp_classifier_open; BP_ERR_CONFIG a model without such a class. */
bp_err toxicity_runs(toxicity *self, MPI_Comm comm);

/** [{"word", "list", "occurrences", "texts"}] of entries found, the most texts first. New
 * reference. */
json_t *toxicity_words_json(const toxicity *self);

/** p[count]: the probability of the class for each text, 0 for a text without tokens. All ranks get
 * all values. Collective over `comm`; the same values at any number of ranks. */
typedef struct toxicity_model toxicity_model;
bp_err toxicity_model_open(toxicity_model **out, const toxicity *self);
void toxicity_model_free(toxicity_model **model);
bp_err toxicity_model_ask(toxicity_model *model, const char *const *texts, int64_t count, double *p,
                          MPI_Comm comm);
/** {"digest", "step", "class", "cut"}. New reference. */
json_t *toxicity_model_json(const toxicity_model *model);
