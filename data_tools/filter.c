/* bagpipe-data filter: ids of scored documents whose figure is between two percentiles. */
#include "arguments.h"
#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sort.h"
#include "mesh/mesh.h"
#include "output.h"
#include "table/scores.h"
#include "text/unicode/strmap.h"
#include "tools.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct argp_option OPTIONS[] = {
    {"by", 0, "FIGURE", 0,
     "perplexity, word_perplexity, bits_per_byte, nll, tokens, bytes or words (required)", 1},
    {"keep", 0, "A..B%", 0, "the percentiles between which documents are kept (required)", 1},
    {"within", 0, "LABEL", 0, "percentiles are those among documents of one value of LABEL", 1},
    {"out", 'o', "LIST", 0, "write the ids there (default: standard output)", 1},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65", "a file is damaged, has no such figure, or no document is kept"},
    {"66", "there are no scores"},
    {"73, 74, 77", "the list cannot be written"},
    {0}};

/* A document with a figure. */
typedef struct scored_document {
    int64_t group, document; /* of --within; 0 without it */
    double figure;
} scored_document;

typedef struct filter {
    score_folder scores;
    const char *by, *within;
    double low, high;               /* percent */
    scored_document *sorted;        /* [count]: by group, then by figure */
    int64_t count, groups, several; /* `several`: ids of more than one document */
    bool *kept;                     /* [documents] */
    int64_t kept_count;
} filter;

/* ---- figures ---- */

static double per(const filter *self, int64_t d, const int64_t *units, bool exponential)
{
    double nll = self->scores.nll[d];

    if (self->scores.tokens[d] <= 0 || units[d] <= 0)
        return NAN;
    return exponential ? exp(nll / (double)units[d]) : nll / (double)units[d] / log(2);
}

static double count_of(int64_t count)
{
    return count >= 0 ? (double)count : NAN;
}

/* NaN if the document has none. */
static double figure_of(const filter *self, int64_t d)
{
    const score_folder *scores = &self->scores;

    if (strcmp(self->by, "perplexity") == 0)
        return per(self, d, scores->tokens, true);
    if (strcmp(self->by, "word_perplexity") == 0)
        return per(self, d, scores->words, true);
    if (strcmp(self->by, "bits_per_byte") == 0)
        return per(self, d, scores->bytes, false);
    if (strcmp(self->by, "nll") == 0)
        return scores->tokens[d] > 0 ? scores->nll[d] : NAN;
    return strcmp(self->by, "tokens") == 0  ? count_of(scores->tokens[d])
           : strcmp(self->by, "bytes") == 0 ? count_of(scores->bytes[d])
                                            : count_of(scores->words[d]);
}

static bp_err check_figure(const char *by)
{
    static const char *const names[] = {"perplexity", "word_perplexity", "bits_per_byte", "nll",
                                        "tokens",     "bytes",           "words"};

    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (strcmp(by, names[k]) == 0)
            return BP_OK;
    return BP_FAIL(
        BP_ERR_USAGE, "command.bad_value",
        "'%.100s' is not a figure of documents: at --by; give perplexity, word_perplexity, "
        "bits_per_byte, nll, tokens, bytes or words",
        by);
}

/* A decimal number up to `end`; false if it is not one. */
static bool read_percent(const char *text, const char *end, double *out)
{
    char digits[32], *stop;
    size_t bytes = (size_t)(end - text);

    if (bytes == 0 || bytes >= sizeof digits || strspn(text, "0123456789.") < bytes ||
        text[0] == '.')
        return false;
    memcpy(digits, text, bytes);
    digits[bytes] = '\0';
    *out = strtod(digits, &stop);
    return *stop == '\0';
}

/* A..B% */
static bp_err take_range(filter *self, const char *text)
{
    const char *dots = strstr(text, ".."), *end = text + strlen(text);

    if (end > text && end[-1] == '%')
        end--;
    if (dots && dots + 2 < end && read_percent(text, dots, &self->low) &&
        read_percent(dots + 2, end, &self->high) && self->low < self->high && self->high <= 100)
        return BP_OK;
    return BP_FAIL(
        BP_ERR_USAGE, "command.bad_value",
        "'%.100s' is not a range within 0..100%%: at --keep; give the lower and the upper "
        "percentile, as 10..90%%",
        text);
}

/* ---- which are kept ---- */

static int compare(const void *a, const void *b)
{
    const scored_document *one = a, *other = b;

    if (one->group != other->group)
        return one->group < other->group ? -1 : 1;
    return one->figure != other->figure ? BP_ORDER(one->figure, other->figure)
                                        : BP_ORDER(one->document, other->document);
}

static bp_err sort_documents(filter *self)
{
    const score_folder *scores = &self->scores;
    const score_label *label = self->within ? score_folder_label(scores, self->within) : NULL;

    if (self->within && !label)
        return score_folder_refuse_label(scores, self->within, ", or leave --within out");
    self->sorted = bp_alloc("tool.filter", scores->documents, sizeof *self->sorted);
    for (int64_t d = 0; d < scores->documents; d++) {
        double figure = figure_of(self, d);

        if (!isnan(figure))
            self->sorted[self->count++] = (scored_document){label ? label->codes[d] : 0, d, figure};
    }
    if (self->count == 0)
        return BP_FAIL(BP_ERR_FORMAT, "filter.no_figure",
                       "no document has the figure %s: at %s; choose another one", self->by,
                       scores->documents_path);
    qsort(self->sorted, (size_t)self->count, sizeof *self->sorted, compare);
    return BP_OK;
}

/* Document r of n in a group, from 0, is at percentile 100 (r + 1/2) / n. */
static void choose(filter *self)
{
    self->kept = bp_alloc("tool.filter", self->scores.documents, sizeof *self->kept);
    for (int64_t first = 0, end; first < self->count; first = end, self->groups++) {
        end = first;
        while (end < self->count && self->sorted[end].group == self->sorted[first].group)
            end++;
        for (int64_t k = first; k < end; k++) {
            double percentile = 100 * ((double)(k - first) + 0.5) / (double)(end - first);

            if (percentile >= self->low && (percentile < self->high || self->high == 100)) {
                self->kept[self->sorted[k].document] = true;
                self->kept_count++;
            }
        }
    }
}

/* ---- the list ---- */

static bp_err add_ids(filter *self, bp_buffer *out)
{
    bp_strmap ids = {0};
    bp_err err = BP_OK;

    for (int64_t d = 0; d < self->scores.documents && err == BP_OK; d++) {
        const char *id = self->scores.ids + (size_t)d * self->scores.id_width;
        int64_t index;

        err = bp_strmap_add(&ids, id, strlen(id), 1, &index);
        if (err == BP_OK && ids.entries[index].value == 2)
            self->several++;
        if (err != BP_OK || !self->kept[d])
            continue;
        if (id[0] == '\0' || strpbrk(id, "\r\n"))
            err = BP_FAIL(BP_ERR_FORMAT, "filter.bad_id",
                          "the id of document %" PRId64 " is empty, or has a line break: at %s; "
                          "make the corpus with ids of one line",
                          d, self->scores.documents_path);
        bp_buffer_printf(out, "%s\n", id);
    }
    bp_strmap_clear(&ids);
    return err;
}

static void report(const filter *self, const char *out)
{
    int64_t lacking = self->scores.documents - self->count;

    if (self->several > 0)
        BP_WARN("filter.same_ids",
                "%" PRId64 " ids are those of several documents, which a list takes or leaves out "
                "together: at %s",
                self->several, self->scores.documents_path);
    if (lacking > 0)
        BP_WARN("filter.no_figures",
                "%" PRId64 " of %" PRId64 " documents have no %s, and are not kept: at %s", lacking,
                self->scores.documents, self->by, self->scores.documents_path);
    if (out)
        bp_log("%s: %" PRId64 " of %" PRId64 " documents", out, self->kept_count,
               self->scores.documents);
}

static bp_err run_filter(filter *self, const char *folder, const char *out)
{
    bp_buffer text = {0};
    bp_err err = score_folder_load(&self->scores, folder);

    if (err == BP_OK && out)
        err = bp_output_is_not(out, self->scores.documents_path);
    if (err == BP_OK)
        err = sort_documents(self);
    if (err == BP_OK)
        choose(self);
    if (err == BP_OK && self->kept_count == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "filter.none",
                      "no document of %" PRId64 " is between percentiles %g and %g: at %s; keep "
                      "more",
                      self->count, self->low, self->high, folder);
    if (err == BP_OK)
        err = add_ids(self, &text);
    if (err == BP_OK && out)
        err = bp_file_write(out, text.data, text.bytes);
    else if (err == BP_OK)
        (void)fwrite(text.data, 1, text.bytes, stdout); /* main() looks at standard output */
    if (err == BP_OK)
        report(self, out);
    bp_buffer_clear(&text);
    bp_free(self->sorted);
    bp_free(self->kept);
    score_folder_clear(&self->scores);
    return err;
}

static bp_err run(int argc, char **argv)
{
    filter self = {.by = NULL};
    const char *keep = NULL, *out = NULL;
    const tool_value values[] = {{.option = "by", .text = &self.by},
                                 {.option = "keep", .text = &keep},
                                 {.option = "within", .text = &self.within},
                                 {.option = "out", .text = &out},
                                 {0}};
    tool_files files;
    bp_err err = tool_parse(&bp_tool_filter, values, &files, argc, argv);

    if (err == BP_OK && files.count != 1)
        err = BP_FAIL(BP_ERR_USAGE, "command.no_input",
                      "%d folders are named: at the command line; name the run folder of one score "
                      "job",
                      files.count);
    if (err == BP_OK && (!self.by || !keep))
        err = BP_FAIL(BP_ERR_USAGE, "command.bad_value",
                      "it is missing: at %s; see bagpipe-data filter --help",
                      !self.by ? "--by" : "--keep");
    if (err == BP_OK)
        err = check_figure(self.by);
    if (err == BP_OK)
        err = take_range(&self, keep);
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        err = run_filter(&self, files.list[0], out);
    return bp_agree(MPI_COMM_WORLD, err);
}

const bp_tool bp_tool_filter = {
    .name = "filter",
    .help = {.name = "bagpipe-data filter",
             .usage = "RUN --by FIGURE --keep A..B% [OPTION...]",
             .summary = "lists scored documents by percentiles of a figure",
             .text =
                 "RUN is the run folder of a score job. The list has an id a line, in the order of "
                 "the scored corpora: bagpipe-data corpus takes it as --only or --without. Of n "
                 "documents in ascending order of the figure the one with number r, from 0, is at "
                 "percentile 100 (r + 1/2) / n; it is kept from A on and below B. Equal figures "
                 "keep the order of the documents. Documents that have no such figure (nothing was "
                 "scored) are not kept.",
             .options = OPTIONS,
             .examples =
                 "  bagpipe-data filter runs/scored --by perplexity --keep 0..30% --out head\n"
                 "  bagpipe-data corpus --tokenizer t.json --format jsonl --only head \\\n"
                 "      --out head.h5 crawl.jsonl.zst\n"
                 "  bagpipe-data filter runs/scored --by bits_per_byte --keep 5..95% \\\n"
                 "      --within language --out list\n",
             .statuses = STATUSES},
    .run = run};
