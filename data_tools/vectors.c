/* bagpipe-data vectors: nearest words, analogies, and rank correlation with judgements. */
#include "models/word2vec/vectors.h"
#include "arguments.h"
#include "base/config/decimal.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "file_tool.h"
#include "mesh/mesh.h"
#include "models/list.h"
#include "statistics/correlation.h"
#include "tools.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES ((int64_t)256 << 20)
#define NEAREST    10

typedef struct vectors_arguments {
    tool_files words; /* CHECKPOINT ACTION WORD... */
    const char *tokenizer;
    int64_t count, first;
} vectors_arguments;

static const struct argp_option OPTIONS[] = {
    {"count", 0, "N", 0, "words to print (default: 10)", 1},
    {"first", 0, "N", 0, "use only the N most frequent words (default: all)", 2},
    {"tokenizer", 0, "FILE", 0, "the model's tokenizer.json, where the checkpoint keeps none", 3},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65", "a word has no vector, a line of a file is not as it should be, or the checkpoint is "
           "damaged"},
    {"66", "a file is missing"},
    {"78", "the checkpoint is of another kind of model"},
    {0}};

/* The vectors, of length 1, and workspace for their dot products with one. */
typedef struct space {
    bp_word_vectors *vectors;
    int64_t count; /* words that are looked at */
    float *query;  /* [padded] */
    float *products;
} space;

static bp_err find(const space *self, const char *word, int64_t *k)
{
    *k = bp_word_vectors_find(self->vectors, word);
    if (*k >= 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "vectors.no_such_word",
                   "the word '%.60s' has no vector: at the command line; take a word of the "
                   "training text",
                   word);
}

static void add(const space *self, int64_t k, float sign)
{
    const float *v = bp_word_vectors_at(self->vectors, k);

    for (int64_t c = 0; c < bp_word_vectors_width(self->vectors); c++)
        self->query[c] += sign * v[c];
}

/* Cosines of the query with all words; those of `given` count as none, and so does the end of a
 * document, which is the first. */
static void look(const space *self, const int64_t *given, int givens)
{
    int64_t C = bp_word_vectors_width(self->vectors);
    double length = 0;

    for (int64_t c = 0; c < C; c++)
        length += (double)self->query[c] * (double)self->query[c];
    for (int64_t c = 0; c < C && length > 0; c++)
        self->query[c] = (float)((double)self->query[c] / sqrt(length));
    bp_word_vectors_products(self->vectors, self->query, self->products);
    for (int g = 0; g < givens; g++)
        self->products[given[g]] = -INFINITY;
    if (self->count > 0 && strcmp(bp_word_vectors_word(self->vectors, 0), "</s>") == 0)
        self->products[0] = -INFINITY;
    memset(self->query, 0, (size_t)C * sizeof *self->query);
}

static int64_t best(const space *self)
{
    int64_t at = 0;

    for (int64_t k = 1; k < self->count; k++)
        if (self->products[k] > self->products[at])
            at = k;
    return at;
}

static void print_best(const space *self, int64_t count)
{
    for (int64_t n = 0; n < count && n < self->count; n++) {
        int64_t k = best(self);

        if (!(self->products[k] > -INFINITY))
            return;
        put_clean(bp_word_vectors_word(self->vectors, k), SIZE_MAX, "");
        printf("\t%.6f\n", (double)self->products[k]);
        self->products[k] = -INFINITY;
    }
}

static bp_err nearest(const space *self, char **words, int count, int64_t asked)
{
    bp_err err = BP_OK;

    for (int w = 0; w < count && err == BP_OK; w++) {
        int64_t k;

        err = find(self, words[w], &k);
        if (err != BP_OK)
            return err;
        if (count > 1) {
            printf("%s", w > 0 ? "\n" : "");
            put_clean(words[w], SIZE_MAX, "");
            putchar('\n');
        }
        add(self, k, 1);
        look(self, &k, 1);
        print_best(self, asked);
    }
    return err;
}

/* a is to b as c is to what: the word nearest to b - a + c. Source: Mikolov et al. 2013, 3CosAdd in
 * Levy and Goldberg 2014. */
static void ask(const space *self, const int64_t given[3])
{
    add(self, given[0], -1);
    add(self, given[1], 1);
    add(self, given[2], 1);
    look(self, given, 3);
}

static bp_err analogy(const space *self, char **words, int64_t asked)
{
    int64_t given[3];
    bp_err err = BP_OK;

    for (int w = 0; w < 3 && err == BP_OK; w++)
        err = find(self, words[w], &given[w]);
    if (err != BP_OK)
        return err;
    ask(self, given);
    print_best(self, asked);
    return BP_OK;
}

/* ---- files ---- */

/* Lines of a text, in place. */
static char *next_line(char **at)
{
    char *line = *at, *end;

    if (!line || !*line)
        return NULL;
    end = line + strcspn(line, "\n");
    *at = *end ? end + 1 : NULL;
    *end = '\0';
    if (end > line && end[-1] == '\r')
        end[-1] = '\0';
    return line;
}

/* Words of a line, in place; one more than requested if there are more. */
static int cut(char *line, const char *by, char **words, int most)
{
    char *state = NULL, *word = strtok_r(line, by, &state);
    int count = 0;

    for (; word && count <= most; word = strtok_r(NULL, by, &state)) {
        if (count < most)
            words[count] = word;
        count++;
    }
    return count;
}

static bp_err wrong_line(const char *path, int64_t line, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "vectors.wrong_line", "%s: at %s, line %" PRId64 "; mend it",
                   what, path, line);
}

typedef struct tally {
    int64_t right, asked, left;
} tally;

static void print_tally(const char *name, const tally *t)
{
    put_clean(name, SIZE_MAX, "");
    printf("\t%.2f %%\t%" PRId64 " of %" PRId64 "\t%" PRId64 " left out\n",
           t->asked > 0 ? 100 * (double)t->right / (double)t->asked : NAN, t->right, t->asked,
           t->left);
}

/* A question whose words have no vectors is left out, and counted. */
static void answer(const space *self, char **words, tally *t)
{
    int64_t given[4];

    for (int w = 0; w < 4; w++) {
        given[w] = bp_word_vectors_find(self->vectors, words[w]);
        if (given[w] < 0 || given[w] >= self->count) {
            t->left++;
            return;
        }
    }
    ask(self, given);
    t->asked++;
    t->right += best(self) == given[3];
}

/* Sections begin with ": NAME". */
static bp_err answer_file(const space *self, char *text, const char *path)
{
    tally all = {0}, section = {0};
    const char *name = NULL;
    char *line;

    for (int64_t n = 1; (line = next_line(&text)); n++) {
        char *words[4];

        if (line[0] == ':') {
            if (name)
                print_tally(name, &section);
            name = line + 1 + strspn(line + 1, " ");
            section = (tally){0};
            continue;
        }
        if (line[strspn(line, " \t")] == '\0')
            continue;
        if (cut(line, " \t", words, 4) != 4)
            return wrong_line(path, n, "a question is not four words");
        tally before = section;
        answer(self, words, &section);
        all.right += section.right - before.right;
        all.asked += section.asked - before.asked;
        all.left += section.left - before.left;
    }
    if (name)
        print_tally(name, &section);
    print_tally("all", &all);
    return BP_OK;
}

static double cosine(const space *self, int64_t a, int64_t b)
{
    const float *x = bp_word_vectors_at(self->vectors, a),
                *y = bp_word_vectors_at(self->vectors, b);
    double sum = 0;

    for (int64_t c = 0; c < bp_word_vectors_width(self->vectors); c++)
        sum += (double)x[c] * (double)y[c];
    return sum;
}

static bp_err check_line(const space *self, char *line, double *given, double *found, bool *counts)
{
    char *words[3];
    int64_t a, b;

    if (cut(line, " \t,;", words, 3) < 3)
        return BP_ERR_FORMAT;
    if (!bp_decimal(given, words[2], strlen(words[2])))
        return BP_ERR_FORMAT;
    a = bp_word_vectors_find(self->vectors, words[0]);
    b = bp_word_vectors_find(self->vectors, words[1]);
    *counts = a >= 0 && b >= 0 && a < self->count && b < self->count;
    *found = *counts ? cosine(self, a, b) : 0;
    return BP_OK;
}

/* Two words and a number a line; a first line without a number is a head. */
static bp_err check_file(const space *self, char *text, const char *path)
{
    int64_t capacity = 0, pairs = 0, left = 0;
    double *given = NULL, *found = NULL;
    bp_err err = BP_OK;
    char *line;

    for (int64_t n = 1; err == BP_OK && (line = next_line(&text)); n++) {
        bool counts = false;

        if (line[0] == '#' || line[strspn(line, " \t")] == '\0')
            continue;
        if (pairs == capacity) {
            capacity = 2 * capacity + 64;
            given = bp_realloc("tool.vectors", given, capacity, sizeof *given);
            found = bp_realloc("tool.vectors", found, capacity, sizeof *found);
        }
        if (check_line(self, line, &given[pairs], &found[pairs], &counts) != BP_OK) {
            if (n > 1)
                err = wrong_line(path, n, "it is not two words and a number");
            continue;
        }
        pairs += counts;
        left += !counts;
    }
    if (err == BP_OK && pairs < 2)
        err = BP_FAIL(BP_ERR_FORMAT, "vectors.no_pairs",
                      "of %" PRId64 " pairs %" PRId64 " have vectors, and a correlation needs two: "
                      "at %s; take a file with words of the training text",
                      pairs + left, pairs, path);
    if (err == BP_OK)
        printf("spearman\t%.6f\npearson\t%.6f\npairs\t%" PRId64 "\nleft out\t%" PRId64 "\n",
               bp_spearman(given, found, pairs), bp_pearson(given, found, pairs), pairs, left);
    bp_free(given);
    bp_free(found);
    return err;
}

static bp_err with_file(const space *self, const char *path,
                        bp_err (*use)(const space *, char *, const char *))
{
    char *text = NULL;
    size_t bytes;
    bp_err err = bp_file_read(path, FILE_BYTES, &text, &bytes);

    if (err == BP_OK)
        err = use(self, text, path);
    bp_free(text);
    return err;
}

/* ---- the tool ---- */

static bp_err open_space(space *self, const vectors_arguments *arguments)
{
    bp_checkpoint *checkpoint = NULL;
    bp_tokenizer *tokenizer = NULL;
    const char *path;
    bp_err err = bp_checkpoint_open_any(MPI_COMM_SELF, arguments->words.list[0], &checkpoint);

    if (err != BP_OK)
        return err;
    path = arguments->tokenizer ? arguments->tokenizer : bp_checkpoint_tokenizer(checkpoint);
    if (path)
        err = bp_tokenizer_load(&tokenizer, path);
    if (err == BP_OK)
        err = bp_word_vectors_open(&self->vectors, &bp_word2vec_family, checkpoint, tokenizer);
    bp_tokenizer_free(&tokenizer);
    bp_checkpoint_close(&checkpoint);
    if (err != BP_OK)
        return err;
    bp_word_vectors_normalise(self->vectors);
    self->count = bp_word_vectors_count(self->vectors);
    self->query = bp_alloc("tool.vectors", bp_word_vectors_padded(self->vectors), sizeof(float));
    self->products = bp_alloc("tool.vectors", self->count + 1, sizeof(float));
    if (arguments->first > 0 && arguments->first < self->count)
        self->count = arguments->first;
    return BP_OK;
}

static bp_err act(const space *self, const vectors_arguments *arguments)
{
    const char *action = arguments->words.list[1];
    char **words = arguments->words.list + 2;
    int count = arguments->words.count - 2;

    if (strcmp(action, "nearest") == 0)
        return nearest(self, words, count, arguments->count);
    if (strcmp(action, "similarity") == 0)
        return with_file(self, words[0], check_file);
    return count == 1 ? with_file(self, words[0], answer_file)
                      : analogy(self, words, arguments->count);
}

static bp_err check(const vectors_arguments *arguments)
{
    const char *action = arguments->words.count > 1 ? arguments->words.list[1] : "";
    int count = arguments->words.count - 2;

    if ((strcmp(action, "nearest") == 0 && count > 0) ||
        (strcmp(action, "similarity") == 0 && count == 1) ||
        (strcmp(action, "analogy") == 0 && (count == 1 || count == 3)))
        return BP_OK;
    return BP_FAIL(BP_ERR_USAGE, "command.wrong_count",
                   "it takes a checkpoint and nearest WORD..., analogy A B C, analogy FILE or "
                   "similarity FILE: at the command line; see bagpipe-data vectors --help");
}

static bp_err run(int argc, char **argv)
{
    vectors_arguments arguments = {.count = NEAREST};
    const tool_value values[] = {
        {.option = "tokenizer", .text = &arguments.tokenizer},
        {.option = "count", .number = &arguments.count, .low = 1, .high = INT64_MAX},
        {.option = "first", .number = &arguments.first, .low = 1, .high = INT64_MAX},
        {0}};
    bp_err err = tool_parse(&bp_tool_vectors, values, &arguments.words, argc, argv);
    space all = {0};

    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD)) {
        err = check(&arguments);
        if (err == BP_OK)
            err = open_space(&all, &arguments);
        if (err == BP_OK)
            err = act(&all, &arguments);
        bp_word_vectors_free(&all.vectors);
        bp_free(all.query);
        bp_free(all.products);
    }
    return bp_agree(MPI_COMM_WORLD, err);
}

const bp_tool bp_tool_vectors = {
    .name = "vectors",
    .help = {.name = "bagpipe-data vectors",
             .usage = "CHECKPOINT nearest WORD...\nCHECKPOINT analogy A B C\n"
                      "CHECKPOINT analogy FILE\nCHECKPOINT similarity FILE",
             .summary = "finds nearest words and analogies, and compares vectors with judgements",
             .text = "CHECKPOINT is one of word2vec, trained or imported. The words are those that "
                     "came in its training text.\n"
                     "nearest prints the words with the largest cosines.\n"
                     "analogy A B C prints what is to C as B is to A: the words nearest to "
                     "B - A + C of vectors of length 1, without the three (3CosAdd).\n"
                     "analogy FILE answers questions of four words a line, in sections that begin "
                     "with ': NAME', and prints how many of the fourth words were found. Questions "
                     "of other words are left out.\n"
                     "similarity FILE reads two words and a number a line, and prints Spearman's "
                     "and Pearson's correlation of the numbers with the cosines.",
             .options = OPTIONS,
             .examples = "  bagpipe-data vectors runs/vectors nearest paris\n"
                         "  bagpipe-data vectors runs/vectors analogy man king woman\n"
                         "  bagpipe-data vectors runs/vectors analogy questions-words.txt\n"
                         "  bagpipe-data vectors runs/vectors similarity wordsim353.tsv\n",
             .statuses = STATUSES},
    .run = run};
