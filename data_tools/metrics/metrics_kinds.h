/* What bagpipe-data metrics measures: its kinds, and how each counts a system's answers. */
#pragma once

#include "arguments.h"
#include "metrics_files.h"
#include "metrics_model.h"

#define METRICS_KINDS_MOST 10

typedef struct metrics_arguments {
    tool_files files;
    tool_texts references;
    const char *kind, *hypothesis, *against, *words, *wordnet, *out;
    bool table; /* --short */
    metrics_model_spec model;
    int64_t seed;
} metrics_arguments;

/* Those of one kind are filled. */
typedef struct metrics_answers {
    bp_text_answers text;
    bp_class_answers classes;
    bp_real_answers real;
    bp_tag_answers tags;
    bp_span_answers spans;
    int32_t *codes;
    bp_entity_counts *entities;
    double *numbers[2];
} metrics_answers;

typedef struct metrics_inputs {
    const metrics_arguments *arguments;
    const answer_file *references; /* [arguments->references.count] */
    const bp_line **lines;         /* of each */
    bp_wordnet *wordnet;           /* meteor; NULL: not there */
    metrics_model *model;          /* bertscore, perplexity */
} metrics_inputs;

typedef struct metrics_kind {
    const bp_metric *metric;
    bool several; /* references */
    bp_err (*count)(metrics_answers *, const metrics_inputs *, const answer_file *);
    size_t answers;        /* where they are in metrics_answers; they begin with the documents */
    const char *signature; /* sacreBLEU's, for the number of references and the words; NULL: none */
    bool of_texts;         /* without a model: such kinds may be asked for together */
    bool needs_model, needs_no_reference;
} metrics_kind;

/* The kinds of --kind, in its order. */
typedef struct metrics_kinds {
    const metrics_kind *list[METRICS_KINDS_MOST];
    int count;
} metrics_kinds;

/** The kinds that --kind names, with commas between them; NULL: none. Local. Errors: BP_ERR_USAGE
 * an unknown name, a name twice, kinds that do not go together. */
bp_err metrics_kinds_find(metrics_kinds *out, const char *names);
void metrics_answers_clear(metrics_answers *answers);
