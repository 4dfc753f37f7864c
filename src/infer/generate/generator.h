/* The state of a running generation job. */
#pragma once

#include "infer/ensemble/ensemble.h"
#include "infer/generate/keys.h"
#include "infer/generate/prompts/prompts.h"
#include "infer/generate/results/least_sure.h"
#include "infer/generate/search/search.h"
#include "infer/generate/units.h"
#include "job/work.h"
#include "statistics/metric_coverage.h"
#include "text_metrics/text_metrics.h"

typedef struct generator {
    bp_work_job *job;
    bp_tokenizer *tokenizer;          /* on all ranks; NULL if there is none */
    bp_stops stops;                   /* on all ranks */
    bp_search_spec rule;              /* on all ranks */
    bp_forced forced;                 /* on all ranks: forced and excluded tokens of texts, */
    int64_t start;                    /* the start token of targets, */
    int64_t before, after;            /* and language tags in sources; -1 if absent */
    bp_prompts_most most;             /* on all ranks, before prompts are read */
    int64_t entailment_bytes;         /* on all ranks; the classifier of meanings */
    bp_prompts prompts;               /* on all ranks; texts only on the coordinator */
    char prompts_hash[BP_SHA256_HEX]; /* on all ranks */
    bp_generate_plan plan;            /* on all ranks */
    char key[BP_SHA256_HEX];          /* names the work in part files */
    bp_unit *unit;                    /* on computing ranks, while units are done */
    json_t *summary;                  /* on the coordinator, at the end; */
    bp_least_sure least[2];           /* by perplexity, and by mutual information of an ensemble */
    /* On the coordinator, with generate.references; else NULL: */
    char *reference_text;
    bp_line *references; /* [prompts] its lines; they point into it */
    /* Of the first text of each prompt: counts of BLEU and of chrF, and how sure the model is of it
       (NULL: unknown). */
    bp_text_answers answers[2];
    double *certainty[BP_CERTAINTIES]; /* [prompts] */
    bool *measured;                    /* [prompts] */
} generator;

/** The rule of generate.*, without stops. Local. */
bp_search_spec generator_rule(const bp_config *config, const bp_model_info *model);
/** The token put before prompts; -1 if there is none. */
int64_t generator_first(const bp_config *config, const bp_model_info *model);
/** Errors: BP_ERR_CONFIG keys that do not fit the model. Local. */
bp_err generator_check_rule(const bp_config *config, const bp_model_info *model);

/** Fill in `forced`, `start`, `before`, `after` and rule.choice.forced, after the tokenizer is
 * loaded. Errors: BP_ERR_CONFIG a token or a language that the tokenizer lacks, or a model without
 * sources. Local. */
bp_err generator_find_forced(generator *self);
/** Adds to the key of the work; nothing if no token is forced. */
void generator_name_forced(const generator *self, bp_buffer *out);

/** bp_work.describe, .open_model, .open (except for its units) and .close (setup.c, memory.c). */
bp_err generator_describe(void *self, MPI_Comm world, bp_work_memory *out);
bp_err generator_open_model(void *self, bp_model **out);
bp_err generator_open(void *self);
void generator_close(void *self);

/* results/references.c: on the coordinator, local. */
/** Errors: those of bp_file_read; BP_ERR_FORMAT the numbers of references and prompts differ, or a
 * reference is not UTF-8. */
bp_err generator_read_references(generator *self);
void generator_clear_references(generator *self);
/** If there are references: put "reference", "sentence_bleu" and "sentence_chrf2" into a line of
 * outputs.jsonl, and count it, if it is the first of its prompt. Errors: BP_ERR_SYSTEM. */
bp_err generator_note_text(generator *self, int64_t index, json_t *line);
/** "figures" and "coverage" of the summary, if there are references. Errors: BP_ERR_SYSTEM. */
bp_err generator_measure_texts(generator *self, json_t *summary);

/** What the coordinator writes at the end: local. */
bp_err generator_write_outputs(generator *self, bp_parts *parts);
/** index.html, of outputs.jsonl. */
void generator_write_page(const generator *self);
