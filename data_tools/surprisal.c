/* bagpipe-data surprisal: the surprisal of each word of scored texts, one row per word, and the
 * test of critical words. */
#include "arguments.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "column_heads.h"
#include "critical.h"
#include "document_texts.h"
#include "file_tool.h"
#include "mesh/mesh.h"
#include "table/scores.h"
#include "table/table_scores.h"
#include "table/words.h"
#include "tools.h"
#include "word_counts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct argp_option OPTIONS[] = {
    {"by", 0, "word", 0, "what a row is (default word; 'table tokens.h5' has tokens)", 0},
    {"unit", 0, "bits|nats", 0, "of surprisal (default bits)", 0},
    {"boundaries", 0, NULL, 0,
     "correct for blanks that begin tokens (Pimentel and Meister 2024); the runs need "
     "score.boundaries=yes",
     0},
    {"frequencies", 0, "FILE", 0,
     "count words in this corpus (.h5) or text, and not in the scored texts; may be given several "
     "times",
     0},
    {"format", 0, "FORMAT", 0, "of texts of --frequencies: text (default), lines or jsonl", 0},
    {"text-field", 0, "NAME", 0, "with jsonl: the field that holds the text (default text)", 0},
    {"spillover", 0, "N", 0,
     "columns of the N words before, too: characters, frequency, surprisal and entropy", 0},
    {"critical", 0, "LABEL", 0,
     "only the word that this label of the document names: the word, or its position (4; 4-6 for "
     "several words, whose surprisal is added up)",
     0},
    {"between", 0, "LABEL", 0,
     "test the critical words of items in several conditions, the values of this label; needs "
     "--critical and --items",
     0},
    {"items", 0, "LABEL", 0, "the label that says which documents are of one item", 0},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65", "a file is damaged, keeps no tokenizer, lacks a label or critical word, or the runs "
           "scored other texts"},
    {"66", "there are no scores of tokens, or a file is missing"},
    {0}};

typedef struct surprisal_arguments {
    tool_files runs;
    const char *by, *unit, *format, *field, *critical, *between, *items;
    bool boundaries;
    int64_t spillover;
    tool_texts frequencies;
} surprisal_arguments;

typedef struct surprisal {
    scored_words *models; /* [count]: the first one has the words */
    char *const *given;   /* [count]: folders, or NAME=FOLDER */
    score_folder scores;  /* of the first, for its documents' labels */
    int64_t *unknown;     /* [count]: words with an unknown token, */
    int64_t *ends;        /* and whose end was not scored */
    int64_t printed;      /* words */
    int64_t spillover;    /* words before, that have columns too */
    int count, opened;
    double unit;                 /* nats in one */
    bool boundaries;             /* surprisal is that of the word and its end */
    word_counts counts;          /* of words of the first, in its texts or in others */
    const score_label *critical; /* NULL: all words are printed */
    double **tested;             /* [count][documents] of --between; else NULL */
    char **tested_words;         /* [documents] with `tested`: critical_test.words */
} surprisal;

/* ---- words of all models, and frequencies ---- */

static const char *folder_of(const surprisal *self, int m)
{
    return named_folder(self->given[m]);
}

/* All models have the same words of the document at hand. */
static bp_err check_words(const surprisal *self, int64_t document, int m)
{
    const scored_words *first = &self->models[0], *other = &self->models[m];
    int64_t w = 0;

    while (w < first->word_count && w < other->word_count &&
           first->words[w].bytes == other->words[w].bytes &&
           memcmp(first->text.data + first->words[w].at, other->text.data + other->words[w].at,
                  first->words[w].bytes) == 0)
        w++;
    if (w == first->word_count && w == other->word_count)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "surprisal.other_words",
                   "document %" PRId64 " has other words from word %" PRId64
                   " on: at %s and %s; score one text with both, by tokenizers that keep it as it "
                   "is",
                   document, w + 1, folder_of(self, 0), folder_of(self, m));
}

/* Words of all documents, before anything is printed. */
static bp_err collect(surprisal *self)
{
    scored_words *first = &self->models[0];
    bp_err err = BP_OK;

    for (int64_t d = 0; d < first->documents && err == BP_OK; d++) {
        for (int m = 0; m < self->count && err == BP_OK; m++)
            err = scored_words_read(&self->models[m], d);
        for (int m = 1; m < self->count && err == BP_OK; m++)
            err = check_words(self, d, m);
        for (int64_t w = 0; w < first->word_count && err == BP_OK; w++)
            word_counts_add(&self->counts, first->text.data + first->words[w].at,
                            first->words[w].bytes);
    }
    word_counts_sort(&self->counts);
    return err;
}

static bp_err count_others(surprisal *self, const surprisal_arguments *arguments)
{
    document_texts texts = {.paths = arguments->frequencies.list,
                            .path_count = arguments->frequencies.count};
    bp_err err;

    if (texts.path_count == 0)
        return BP_OK;
    err = document_texts_format(&texts, arguments->format, arguments->field, "text-field");
    if (err != BP_OK)
        return err;
    document_texts_warn(&texts);
    return word_counts_take(&self->counts, &texts);
}

/* ---- rows ---- */

/* Of a column: what was given, or the last name of the folder, or all of it where several have that
 * one. bp_free(). */
static char *name_of(const surprisal *self, int m)
{
    const char *folder = folder_of(self, m), *name = bp_path_base(folder);

    if (folder != self->given[m])
        return bp_sprintf("%.*s", (int)(folder - 1 - self->given[m]), self->given[m]);
    for (int k = 0; k < self->count; k++)
        if (k != m && strcmp(bp_path_base(folder_of(self, k)), name) == 0)
            return bp_strdup(folder);
    return bp_strdup(name);
}

static void put_labels(const surprisal *self, int64_t document)
{
    for (int64_t k = 0; k < self->scores.label_count; k++) {
        const score_label *label = &self->scores.labels[k];
        int64_t code = label->codes[document];

        putchar(',');
        put_csv(stdout, code < 0 ? "" : label->values[code], SIZE_MAX);
    }
}

/* ---- heads of columns ---- */

static const char *const columns[] = {"document",  "doc_id",     "sentence",  "position",
                                      "word",      "characters", "frequency", "tokens",
                                      "surprisal", "entropy"};
#define ALL_COLUMNS   (sizeof columns / sizeof columns[0])
#define FIRST_COLUMNS (ALL_COLUMNS - 3)   /* before those of labels and of models */
#define OF_WORD       (FIRST_COLUMNS - 2) /* characters and frequency, of words before too */
#define OF_MODEL      (ALL_COLUMNS - 2)   /* surprisal and entropy, too */

/* Of the word k places before. */
static void add_spillover_heads(column_heads *all, const surprisal *self, char *const *names,
                                bool is_plain, int64_t k)
{
    for (size_t c = OF_WORD; c < FIRST_COLUMNS; c++)
        column_heads_add(all, bp_sprintf("spillover%" PRId64 "_%s", k, columns[c]));
    for (int m = 0; m < self->count; m++)
        for (size_t c = OF_MODEL; c < ALL_COLUMNS - !self->models[m].entropy; c++)
            column_heads_add(all, bp_sprintf("spillover%" PRId64 "_%s%s%s", k, columns[c],
                                             is_plain ? "" : "_", is_plain ? "" : names[m]));
}

static bp_err put_head(const surprisal *self)
{
    bool is_plain = self->count == 1 && folder_of(self, 0) == self->given[0];
    char **names = bp_alloc("tool.words", self->count, sizeof *names);
    column_heads all = {NULL, 0};
    int64_t labels;
    bp_err err;

    for (size_t k = 0; k < ALL_COLUMNS; k++) /* labels get no such name */
        column_heads_add(&all, bp_strdup(columns[k]));
    for (int m = 0; m < self->count; m++) {
        names[m] = name_of(self, m);
        for (size_t k = FIRST_COLUMNS; k < ALL_COLUMNS - !self->models[m].entropy; k++)
            column_heads_add(&all, is_plain ? bp_strdup(columns[k])
                                            : bp_sprintf("%s_%s", columns[k], names[m]));
    }
    for (int64_t k = 1; k <= self->spillover; k++)
        add_spillover_heads(&all, self, names, is_plain, k);
    err = check_names((const char *const *)names, self->given, self->count);
    labels = all.count;
    for (int64_t k = 0; k < self->scores.label_count; k++)
        column_heads_add_label(&all, self->scores.labels[k].name);
    if (err == BP_OK) {
        column_heads_put(&all, 0, FIRST_COLUMNS);
        column_heads_put(&all, labels, all.count);
        column_heads_put(&all, ALL_COLUMNS, labels);
        putchar('\n');
    }
    bp_names_free(&all.names, all.count);
    bp_names_free(&names, self->count);
    return err;
}

static double surprisal_of(const surprisal *self, const scored_word *word)
{
    double logprob = word->logprob + (self->boundaries ? word->ends : 0);

    return word->pieces == 0 || isnan(logprob) ? NAN : logprob == 0 ? 0 : -logprob / self->unit;
}

static void put_value(double value)
{
    putchar(',');
    if (!isnan(value))
        printf("%.9g", value);
}

/* Characters and frequency of a word. Neither is that of a word in the text that is unknown. */
static void put_facts(const surprisal *self, const scored_word *word)
{
    const char *text = self->models[0].text.data + word->at;

    if (word->unknown)
        printf(",,");
    else
        printf(",%" PRId64 ",%" PRId64, word->characters,
               word_counts_of(&self->counts, text, word->bytes));
}

/* The words before, as far as the document has them. */
static void put_spillover(const surprisal *self, int64_t w)
{
    for (int64_t k = 1; k <= self->spillover; k++) {
        if (w >= k)
            put_facts(self, &self->models[0].words[w - k]);
        else
            printf(",,");
        for (int m = 0; m < self->count; m++) {
            const scored_word *one = w >= k ? &self->models[m].words[w - k] : NULL;

            put_value(one ? surprisal_of(self, one) : NAN);
            if (self->models[m].entropy)
                put_value(one ? one->entropy / self->unit : NAN);
        }
    }
}

static void put_word(surprisal *self, int64_t document, int64_t w)
{
    const scored_words *first = &self->models[0];
    const scored_word *word = &first->words[w];
    const char *text = first->text.data + word->at;

    printf("%" PRId64 ",", document);
    put_csv(stdout, first->ids + (size_t)document * first->id_bytes, first->id_bytes);
    printf(",%" PRId64 ",%" PRId64 ",", word->sentence, w + 1);
    put_csv(stdout, text, word->bytes);
    put_facts(self, word);
    put_labels(self, document);
    self->printed++;
    for (int m = 0; m < self->count; m++) {
        const scored_word *one = &self->models[m].words[w];

        self->unknown[m] += one->unknown;
        self->ends[m] += one->pieces > 0 && !isnan(one->logprob) && isnan(one->ends);
        printf(",%" PRId64, one->pieces);
        put_value(surprisal_of(self, one));
        if (self->models[m].entropy)
            put_value(one->entropy / self->unit);
    }
    put_spillover(self, w);
    putchar('\n');
}

/* Words [*first, *end) of the document that are printed or tested: none of one without a critical
 * word. */
static bp_err find_words_of(const surprisal *self, int64_t document, int64_t *first, int64_t *end)
{
    int64_t code = self->critical ? self->critical->codes[document] : -1;

    *first = 0;
    *end = self->critical ? 0 : self->models[0].word_count;
    return code < 0 || self->critical->values[code][0] == '\0'
               ? BP_OK
               : critical_find(&self->models[0], self->critical->values[code], document, first,
                               end);
}

/* The surprisal and the text of words [first, end), for the test. */
static void keep_document(surprisal *self, int64_t document, int64_t first, int64_t end)
{
    for (int m = 0; m < self->count; m++) {
        double *sum = &self->tested[m][document];

        *sum = first < end ? 0 : NAN;
        for (int64_t w = first; w < end; w++)
            *sum += surprisal_of(self, &self->models[m].words[w]);
    }
    if (first < end)
        self->tested_words[document] = critical_text(&self->models[0], first, end);
}

static bp_err put_documents(surprisal *self)
{
    int64_t first = 0, end = 0;
    bp_err err = BP_OK;

    for (int64_t d = 0; d < self->models[0].documents && err == BP_OK && !ferror(stdout); d++) {
        for (int m = 0; m < self->count && err == BP_OK; m++)
            err = scored_words_read(&self->models[m], d);
        if (err == BP_OK)
            err = find_words_of(self, d, &first, &end);
        if (err == BP_OK && self->tested)
            keep_document(self, d, first, end);
        for (int64_t w = first; err == BP_OK && !self->tested && w < end; w++)
            put_word(self, d, w);
    }
    return err;
}

static bp_err open_models(surprisal *self)
{
    bp_err err = BP_OK;

    for (; self->opened < self->count && err == BP_OK; self->opened++) {
        const char *folder = folder_of(self, self->opened);

        err = scored_words_open(&self->models[self->opened], folder);
        if (err == BP_OK && self->boundaries && !self->models[self->opened].boundaries)
            err = BP_FAIL(BP_ERR_INPUT, "scores.no_boundaries",
                          "the scores do not say where words may begin: at %s; score with "
                          "score.tokens=yes score.boundaries=yes; n-gram models and ensembles do "
                          "not have it: print their words without --boundaries",
                          folder);
        if (err == BP_OK && self->models[self->opened].documents != self->models[0].documents)
            err = BP_FAIL(BP_ERR_FORMAT, "surprisal.other_words",
                          "%" PRId64 " and %" PRId64 " documents were scored: at %s and %s; score "
                          "one text with both",
                          self->models[0].documents, self->models[self->opened].documents,
                          folder_of(self, 0), folder);
    }
    return err;
}

/* The labels of documents, where the folder has them. */
static bp_err load_labels(surprisal *self)
{
    const char *folder = folder_of(self, 0);
    bp_err err = table_is_of_scores(folder) ? score_folder_load(&self->scores, folder) : BP_OK;

    if (err == BP_OK && self->scores.label_count > 0 &&
        self->scores.documents != self->models[0].documents)
        err = BP_FAIL(
            BP_ERR_FORMAT, "scores.damaged",
            "damaged: documents.h5 and tokens.h5 have other documents: at %s; score again", folder);
    return err;
}

/* *out: the label of this name, or NULL if there is no name. */
static bp_err find_label(const surprisal *self, const score_label **out, const char *name)
{
    *out = name ? score_folder_label(&self->scores, name) : NULL;
    return !name || *out ? BP_OK : score_folder_refuse_label(&self->scores, name, "");
}

/* All words, or the critical ones, or the test of those. */
static bp_err put_results(surprisal *self, const surprisal_arguments *arguments)
{
    critical_test test = {.models = self->count, .documents = self->models[0].documents};
    char **names = bp_alloc("tool.words", self->count, sizeof *names);
    bp_err err = find_label(self, &self->critical, arguments->critical);

    if (err == BP_OK)
        err = find_label(self, &test.between, arguments->between);
    if (err == BP_OK)
        err = find_label(self, &test.items, arguments->items);
    if (err == BP_OK && test.between)
        err = critical_check(&test);
    self->tested = test.between ? bp_alloc("tool.words", self->count, sizeof *self->tested) : NULL;
    if (self->tested)
        self->tested_words = bp_alloc("tool.words", test.documents, sizeof *self->tested_words);
    for (int m = 0; m < self->count; m++) {
        names[m] = name_of(self, m);
        if (self->tested)
            self->tested[m] = bp_alloc("tool.words", test.documents, sizeof **self->tested);
    }
    if (err == BP_OK && !self->tested)
        err = put_head(self);
    if (err == BP_OK)
        err = put_documents(self);
    test.values = (const double *const *)self->tested;
    test.names = (const char *const *)names;
    test.words = self->tested_words;
    if (err == BP_OK && self->tested)
        err = critical_print(&test);
    for (int m = 0; self->tested && m < self->count; m++)
        bp_free(self->tested[m]);
    bp_free(self->tested);
    bp_names_free(&self->tested_words, test.documents);
    bp_names_free(&names, self->count);
    return err;
}

static void warn_of_unknown(const surprisal *self)
{
    for (int m = 0; m < self->count; m++)
        if (self->unknown[m] > 0)
            BP_WARN("surprisal.unknown_words",
                    "%" PRId64 " of %" PRId64
                    " words have the unknown token: their surprisal is that of any word that the "
                    "tokenizer does not know, and the word, its characters and frequency are not "
                    "known: at %s; leave them out, or score by a tokenizer that spells all words "
                    "(bagpipe-data tokenizer --kind bpe)",
                    self->unknown[m], self->printed, folder_of(self, m));
    for (int m = 0; m < self->count; m++)
        if (self->boundaries && self->ends[m] > 0)
            BP_WARN("surprisal.no_end",
                    "%" PRId64 " last words of documents have no surprisal, as the end of the "
                    "document was not scored: at %s; score with score.end=yes",
                    self->ends[m], folder_of(self, m));
}

static bp_err put_all(const surprisal_arguments *arguments)
{
    const tool_files *files = &arguments->runs;
    surprisal self = {.models = bp_alloc("tool.words", files->count, sizeof *self.models),
                      .given = files->list,
                      .unknown = bp_alloc("tool.words", files->count, sizeof *self.unknown),
                      .ends = bp_alloc("tool.words", files->count, sizeof *self.ends),
                      .count = files->count,
                      .unit = strcmp(arguments->unit, "bits") == 0 ? log(2) : 1,
                      .spillover = arguments->spillover,
                      .boundaries = arguments->boundaries};
    bp_err err;

    bp_log_set_member("", true); /* standard output is the table's, and not the log's */
    (void)bp_log_use(BP_LOG_MEMBER);
    err = open_models(&self);
    if (err == BP_OK)
        err = load_labels(&self);
    if (err == BP_OK)
        err = collect(&self);
    if (err == BP_OK)
        err = count_others(&self, arguments);
    if (err == BP_OK)
        err = put_results(&self, arguments);
    if (err == BP_OK)
        warn_of_unknown(&self);
    score_folder_clear(&self.scores);
    bp_free(self.unknown);
    bp_free(self.ends);
    for (int m = 0; m < self.opened; m++)
        scored_words_clear(&self.models[m]);
    bp_free(self.models);
    word_counts_clear(&self.counts);
    return err;
}

/* ---- the tool ---- */

static bp_err run(int argc, char **argv)
{
    surprisal_arguments arguments = {.by = "word", .unit = "bits"};
    const tool_value values[] = {{.option = "by", .text = &arguments.by},
                                 {.option = "unit", .text = &arguments.unit},
                                 {.option = "boundaries", .flag = &arguments.boundaries},
                                 {.option = "frequencies", .texts = &arguments.frequencies},
                                 {.option = "format", .text = &arguments.format},
                                 {.option = "text-field", .text = &arguments.field},
                                 {.option = "critical", .text = &arguments.critical},
                                 {.option = "between", .text = &arguments.between},
                                 {.option = "items", .text = &arguments.items},
                                 {.option = "spillover", .number = &arguments.spillover, .high = 9},
                                 {0}};
    bp_err err = tool_parse(&bp_tool_surprisal, values, &arguments.runs, argc, argv);

    if (err == BP_OK && arguments.runs.count == 0)
        err = BP_FAIL(BP_ERR_USAGE, "command.no_input",
                      "there are no scores: at the command line; name the run folder of a score "
                      "job");
    if (err == BP_OK && strcmp(arguments.by, "word") != 0)
        err = BP_FAIL(BP_ERR_USAGE, "command.bad_value",
                      "'%.100s' is not word: at --by; tokens are in bagpipe-data table "
                      "RUN/score/tokens.h5",
                      arguments.by);
    if (err == BP_OK && strcmp(arguments.unit, "bits") != 0 && strcmp(arguments.unit, "nats") != 0)
        err = BP_FAIL(BP_ERR_USAGE, "command.bad_value",
                      "'%.100s' is not bits or nats: at --unit; give one of them", arguments.unit);
    if (err == BP_OK && arguments.frequencies.count == 0 && (arguments.format || arguments.field))
        err = BP_FAIL(BP_ERR_USAGE, "surprisal.no_frequencies",
                      "it is of texts of --frequencies, and there are none: at --%s; leave it out, "
                      "or name a text",
                      arguments.format ? "format" : "text-field");
    if (err == BP_OK &&
        (!arguments.between != !arguments.items || (arguments.between && !arguments.critical)))
        err =
            BP_FAIL(BP_ERR_USAGE, "surprisal.no_items",
                    "the test of critical words needs --critical, --between and --items: at --%s; "
                    "give all three, or --critical alone for the words",
                    arguments.between ? "between" : "items");
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        err = put_all(&arguments);
    bp_free(arguments.frequencies.list);
    return bp_agree(MPI_COMM_WORLD, err);
}

const bp_tool bp_tool_surprisal = {
    .name = "surprisal",
    .help =
        {.name = "bagpipe-data surprisal",
         .usage = "RUN... [OPTION...]",
         .summary = "prints the surprisal of each word of scored texts",
         .text =
             "A RUN is a score job's, with score.tokens=yes; several of the same texts stand "
             "side by side. It prints CSV, a row a word: document (from 0), doc_id, sentence "
             "and position (from 1 in the document, not in the sentence), the word as it is in the "
             "text (for a spreadsheet, with ' before = + - @), its "
             "characters, its frequency in these texts (or those of --frequencies), the "
             "document's labels, and of each RUN (or NAME=RUN) the number of tokens and the "
             "surprisal, minus the logarithm of the "
             "probability of all of its tokens "
             "given what precedes. It is empty where a token was not scored. Of a RUN with "
             "score.entropy=yes, or of an ensemble, entropy is that of the token that the word "
             "begins with, before it is read. With --spillover 2 the same of the words one "
             "and two places before follow, in columns spillover1_... and spillover2_...; the "
             "first "
             "words of a document have none.\n"
             "A word is a run of characters that are not white space. A token belongs to the "
             "word of its first such character, so a blank before a word is a part of it. A "
             "sentence ends with a word that ends with a full stop, ! or ?, and closing quotes "
             "or brackets.\n"
             "With --boundaries the probability is that of the word and of its end: the "
             "product of its tokens' probabilities, times the probability that a new word or "
             "the document's end follows, divided by the same probability before its first "
             "token, where that begins with white space. The last word of a document has it "
             "with score.end=yes.\n"
             "With --between it prints a row a RUN and pair of conditions: means over items of "
             "the surprisal of the critical word, their difference with Student's t of paired "
             "items, its 95 % interval, p, and p by Holm over all rows. Condition a of a pair is "
             "the "
             "one that comes first in the corpus, and the difference is a minus b. An item's "
             "documents in "
             "one condition are averaged first.",
         .options = OPTIONS,
         .examples = "  bagpipe-data surprisal runs/scored > words.csv\n"
                     "  bagpipe-data surprisal runs/small runs/large --unit nats\n"
                     "  bagpipe-data surprisal runs/scored --frequencies train.h5 --spillover 2\n"
                     "  bagpipe-data surprisal runs/items --critical verb \\\n"
                     "      --between condition --items item\n",
         .statuses = STATUSES},
    .run = run};
