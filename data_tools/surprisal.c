/* bagpipe-data surprisal: the surprisal of each word of scored texts, one row per word. */
#include "arguments.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "document_texts.h"
#include "file_tool.h"
#include "mesh/mesh.h"
#include "table/scores.h"
#include "table/table_scores.h"
#include "table/words.h"
#include "text/unicode/characters.h"
#include "text/unicode/unicode.h"
#include "tools.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BY = 256, KEY_UNIT, KEY_BOUNDARIES, KEY_FREQUENCIES, KEY_FORMAT, KEY_FIELD };

static const struct argp_option OPTIONS[] = {
    {"by", KEY_BY, "word", 0, "what a row is (default word; 'table tokens.h5' has tokens)", 0},
    {"unit", KEY_UNIT, "bits|nats", 0, "of surprisal (default bits)", 0},
    {"boundaries", KEY_BOUNDARIES, NULL, 0,
     "correct for blanks that begin tokens (Pimentel and Meister 2024); the runs need "
     "score.boundaries=yes",
     0},
    {"frequencies", KEY_FREQUENCIES, "FILE", 0,
     "count words in this corpus (.h5) or text, and not in the scored texts; may be given several "
     "times",
     0},
    {"format", KEY_FORMAT, "FORMAT", 0, "of texts of --frequencies: text (default), lines or jsonl",
     0},
    {"text-field", KEY_FIELD, "NAME", 0, "with jsonl: the field that holds the text (default text)",
     0},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65", "a file is damaged, keeps no tokenizer, or the runs scored other texts"},
    {"66", "there are no scores of tokens, or a file is missing"},
    {0}};

/* A word, which may have bytes of 0. */
typedef struct word_text {
    const char *data;
    size_t at, bytes; /* in `texts`, until that is whole */
} word_text;

typedef struct surprisal_arguments {
    tool_files runs;
    const char *by, *unit, *format, *field;
    bool boundaries;
    tool_texts frequencies;
} surprisal_arguments;

typedef struct surprisal {
    scored_words *models; /* [count]: the first one has the words */
    char *const *given;   /* [count]: folders, or NAME=FOLDER */
    score_folder scores;  /* of the first, for its documents' labels */
    int64_t *unknown;     /* [count]: words with an unknown token */
    int64_t printed;      /* words */
    int count, opened;
    double unit;     /* nats in one */
    bool boundaries; /* surprisal is that of the word and its end */
    bp_buffer texts; /* all words of the first, to count them */
    word_text *sorted;
    int64_t words, word_capacity;
    int64_t *counts; /* [words]: how often the first of equal words is in other texts; NULL: there
                        are none */
} surprisal;

/* ---- frequencies ---- */

static int compare_texts(const void *a, const void *b)
{
    const word_text *one = a, *other = b;
    size_t least = one->bytes < other->bytes ? one->bytes : other->bytes;
    int order = least > 0 ? memcmp(one->data, other->data, least) : 0;

    return order ? order : (one->bytes > other->bytes) - (one->bytes < other->bytes);
}

/* Words of all documents, sorted. */
static bp_err collect(surprisal *self)
{
    scored_words *first = &self->models[0];
    bp_err err = BP_OK;

    for (int64_t d = 0; d < first->documents && err == BP_OK; d++) {
        err = scored_words_read(first, d);
        for (int64_t w = 0; w < first->word_count && err == BP_OK; w++) {
            const scored_word *word = &first->words[w];

            self->sorted = bp_grow("tool.words", self->sorted, &self->word_capacity,
                                   self->words + 1, sizeof *self->sorted);
            self->sorted[self->words++] = (word_text){NULL, self->texts.bytes, word->bytes};
            bp_buffer_add(&self->texts, first->text.data + word->at, word->bytes);
        }
    }
    for (int64_t w = 0; w < self->words; w++)
        self->sorted[w].data = self->texts.data + self->sorted[w].at;
    if (err == BP_OK && self->words > 0)
        qsort(self->sorted, (size_t)self->words, sizeof *self->sorted, compare_texts);
    return err;
}

/* How many sorted words come before `text`, those that equal it too if `equal`. */
static int64_t count_before(const surprisal *self, const word_text *text, bool equal)
{
    int64_t low = 0, high = self->words;

    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        int order = compare_texts(&self->sorted[middle], text);

        if (order < 0 || (equal && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The words of a piece of another text: runs of characters that are not white space. */
static bp_err count_piece(void *context, const document_piece *piece)
{
    surprisal *self = context;
    size_t begin = 0, at = 0;

    while (at <= piece->bytes) {
        uint32_t c = 0;
        size_t length = bp_utf8_decode((const uint8_t *)piece->text + at, piece->bytes - at, &c);

        if (length == 0) { /* a byte that is not UTF-8, and no blank */
            length = 1;
            c = 0;
        }
        if (at == piece->bytes || bp_character_is_space(c)) {
            const word_text word = {piece->text + begin, 0, at - begin};
            int64_t found = word.bytes > 0 ? count_before(self, &word, false) : self->words;

            if (found < self->words && compare_texts(&self->sorted[found], &word) == 0)
                self->counts[found]++;
            begin = at + length;
        }
        at += length;
    }
    return BP_OK;
}

static bp_err count_others(surprisal *self, const surprisal_arguments *arguments)
{
    document_texts texts = {.paths = arguments->frequencies.list,
                            .path_count = arguments->frequencies.count};
    int64_t *first = NULL;
    bp_err err;

    if (texts.path_count == 0)
        return BP_OK;
    err = document_texts_format(&texts, arguments->format, arguments->field, "text-field");
    if (err != BP_OK)
        return err;
    document_texts_warn(&texts);
    self->counts = bp_alloc("tool.words", self->words, sizeof *self->counts);
    err = document_texts_read(&texts, 0, 1, &first, count_piece, self);
    bp_free(first);
    return err;
}

static int64_t frequency_of(const surprisal *self, const word_text *text)
{
    int64_t first = count_before(self, text, false);

    return self->counts ? self->counts[first] : count_before(self, text, true) - first;
}

/* ---- rows ---- */

static const char *folder_of(const surprisal *self, int m)
{
    return named_folder(self->given[m]);
}

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

static const char *const columns[] = {"document",   "doc_id",    "sentence", "position", "word",
                                      "characters", "frequency", "tokens",   "surprisal"};
#define ALL_COLUMNS   (sizeof columns / sizeof columns[0])
#define FIRST_COLUMNS (ALL_COLUMNS - 2) /* before those of labels and of models */

typedef struct heads {
    char **names;
    int64_t count;
} heads;

/* Takes the name. */
static void add_head(heads *all, char *name)
{
    all->names = bp_realloc("tool.words", all->names, all->count + 1, sizeof *all->names);
    all->names[all->count++] = name;
}

static bool has_head(const heads *all, const char *name)
{
    for (int64_t k = 0; k < all->count; k++)
        if (strcmp(all->names[k], name) == 0)
            return true;
    return false;
}

/* Labels that have another column's name are told apart. */
static void add_label_heads(heads *all, const surprisal *self)
{
    for (int64_t k = 0; k < self->scores.label_count; k++) {
        char *name = bp_strdup(self->scores.labels[k].name);

        while (has_head(all, name)) {
            char *longer = bp_sprintf("label_%s", name);

            bp_free(name);
            name = longer;
        }
        add_head(all, name);
    }
}

static void put_heads(const heads *all, int64_t first, int64_t end)
{
    for (int64_t k = first; k < end; k++) {
        if (k > 0)
            putchar(',');
        put_csv(stdout, all->names[k], SIZE_MAX);
    }
}

static bp_err put_head(const surprisal *self)
{
    bool is_plain = self->count == 1 && folder_of(self, 0) == self->given[0];
    char **names = bp_alloc("tool.words", self->count, sizeof *names);
    heads all = {NULL, 0};
    int64_t labels;
    bp_err err;

    for (size_t k = 0; k < ALL_COLUMNS; k++)
        add_head(&all, bp_strdup(columns[k]));
    for (int m = 0; m < self->count; m++) {
        names[m] = name_of(self, m);
        for (size_t k = FIRST_COLUMNS; k < ALL_COLUMNS; k++)
            add_head(&all,
                     is_plain ? bp_strdup(columns[k]) : bp_sprintf("%s_%s", columns[k], names[m]));
    }
    err = check_names((const char *const *)names, self->given, self->count);
    labels = all.count;
    add_label_heads(&all, self);
    if (err == BP_OK) {
        put_heads(&all, 0, FIRST_COLUMNS);
        put_heads(&all, labels, all.count);
        put_heads(&all, ALL_COLUMNS, labels);
        putchar('\n');
    }
    bp_names_free(&all.names, all.count);
    bp_names_free(&names, self->count);
    return err;
}

static void put_word(surprisal *self, int64_t document, int64_t w)
{
    const scored_words *first = &self->models[0];
    const scored_word *word = &first->words[w];
    const word_text text = {first->text.data + word->at, 0, word->bytes};

    printf("%" PRId64 ",", document);
    put_csv(stdout, first->ids + (size_t)document * first->id_bytes, first->id_bytes);
    printf(",%" PRId64 ",%" PRId64 ",", word->sentence, w + 1);
    put_csv(stdout, text.data, text.bytes);
    printf(",%" PRId64 ",%" PRId64, word->characters, frequency_of(self, &text));
    put_labels(self, document);
    self->printed++;
    for (int m = 0; m < self->count; m++) {
        const scored_word *one = &self->models[m].words[w];
        double logprob = one->logprob + (self->boundaries ? one->ends : 0);

        self->unknown[m] += one->unknown;
        printf(",%" PRId64 ",", one->pieces);
        if (one->pieces > 0 && !isnan(logprob))
            printf("%.9g", logprob == 0 ? 0 : -logprob / self->unit);
    }
    putchar('\n');
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

static bp_err put_documents(surprisal *self)
{
    bp_err err = BP_OK;

    for (int64_t d = 0; d < self->models[0].documents && err == BP_OK && !ferror(stdout); d++) {
        for (int m = 0; m < self->count && err == BP_OK; m++)
            err = scored_words_read(&self->models[m], d);
        for (int m = 1; m < self->count && err == BP_OK; m++)
            err = check_words(self, d, m);
        for (int64_t w = 0; err == BP_OK && w < self->models[0].word_count; w++)
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

static void warn_of_unknown(const surprisal *self)
{
    for (int m = 0; m < self->count; m++)
        if (self->unknown[m] > 0)
            BP_WARN("surprisal.unknown_words",
                    "%" PRId64 " of %" PRId64
                    " words have the unknown token, and the surprisal of any word that the "
                    "tokenizer does not know: at %s; leave them out, or score by a tokenizer that "
                    "spells all words (bagpipe-data tokenizer --kind bpe)",
                    self->unknown[m], self->printed, folder_of(self, m));
}

static bp_err put_all(const surprisal_arguments *arguments)
{
    const tool_files *files = &arguments->runs;
    surprisal self = {.models = bp_alloc("tool.words", files->count, sizeof *self.models),
                      .given = files->list,
                      .unknown = bp_alloc("tool.words", files->count, sizeof *self.unknown),
                      .count = files->count,
                      .unit = strcmp(arguments->unit, "bits") == 0 ? log(2) : 1,
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
        err = put_head(&self);
    if (err == BP_OK)
        err = put_documents(&self);
    if (err == BP_OK)
        warn_of_unknown(&self);
    score_folder_clear(&self.scores);
    bp_free(self.unknown);
    for (int m = 0; m < self.opened; m++)
        scored_words_clear(&self.models[m]);
    bp_free(self.models);
    bp_free(self.sorted);
    bp_free(self.counts);
    bp_buffer_clear(&self.texts);
    return err;
}

/* ---- the tool ---- */

static bp_err run(int argc, char **argv)
{
    surprisal_arguments arguments = {.by = "word", .unit = "bits"};
    const tool_value values[] = {{.key = KEY_BY, .text = &arguments.by},
                                 {.key = KEY_UNIT, .text = &arguments.unit},
                                 {.key = KEY_BOUNDARIES, .flag = &arguments.boundaries},
                                 {.key = KEY_FREQUENCIES, .texts = &arguments.frequencies},
                                 {.key = KEY_FORMAT, .text = &arguments.format},
                                 {.key = KEY_FIELD, .text = &arguments.field},
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
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        err = put_all(&arguments);
    bp_free(arguments.frequencies.list);
    return bp_agree(MPI_COMM_WORLD, err);
}

const bp_tool bp_tool_surprisal = {
    .name = "surprisal",
    .help = {.name = "bagpipe-data surprisal",
             .usage = "RUN... [OPTION...]",
             .summary = "prints the surprisal of each word of scored texts",
             .text =
                 "A RUN is a score job's, with score.tokens=yes; several of the same texts stand "
                 "side by side. It prints CSV, a row a word: document (from 0), doc_id, sentence "
                 "and position (from 1 in the document), the word as it is in the text, its "
                 "characters, its frequency in these texts (or those of --frequencies), the "
                 "document's labels, and of each RUN (or NAME=RUN) the number of tokens and the "
                 "surprisal, minus the logarithm of the "
                 "probability of all of its tokens "
                 "given what precedes. It is empty where a token was not scored.\n"
                 "A word is a run of characters that are not white space. A token belongs to the "
                 "word of its first such character, so a blank before a word is a part of it. A "
                 "sentence ends with a word that ends with a full stop, ! or ?, and closing quotes "
                 "or brackets.\n"
                 "With --boundaries the probability is that of the word and of its end: the "
                 "product of its tokens' probabilities, times the probability that a new word or "
                 "the document's end follows, divided by the same probability before its first "
                 "token, where that begins with white space. The last word of a document has it "
                 "with score.end=yes.",
             .options = OPTIONS,
             .examples = "  bagpipe-data surprisal runs/scored > words.csv\n"
                         "  bagpipe-data surprisal runs/small runs/large --unit nats\n"
                         "  bagpipe-data surprisal runs/scored --frequencies train.h5\n",
             .statuses = STATUSES},
    .run = run};
