/* Reading score folders. */
#include "scores.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "io/h5/h5.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define TOKENIZER_BYTES ((int64_t)1 << 30)
#define VERSION         1
#define SUMMARY_BYTES   ((int64_t)256 << 20)

/* ---- where they are ---- */

static bp_err find_files(score_folder *scores)
{
    static const char *const insides[] = {"score/summary.json", "summary.json"};

    for (size_t k = 0; k < 2; k++) {
        scores->summary_path = bp_path_join(scores->given, insides[k]);
        if (bp_path_exists(scores->summary_path))
            break;
        bp_free(scores->summary_path);
        scores->summary_path = NULL;
    }
    if (!scores->summary_path)
        return BP_FAIL(
            BP_ERR_INPUT, "scores.missing",
            "there is no summary.json of scores: at %s; name the run folder of a "
            "finished score job, or the folder score in it; texts of generate are compared by "
            "bagpipe-data metrics --hypothesis A --against B",
            scores->given);
    scores->documents_path = bp_sprintf(
        "%.*sdocuments.h5", (int)(bp_path_base(scores->summary_path) - scores->summary_path),
        scores->summary_path);
    return BP_OK;
}

/* ---- documents.h5 ---- */

static bp_err damaged(const score_folder *scores, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                   "damaged: '%s' is not as scores have it: at %s; score again", what,
                   scores->documents_path);
}

/* A whole column of `count` numbers. */
static bp_err read_column(void **out, const score_folder *scores, bp_h5 *h5, const char *name,
                          bp_h5_type type, int64_t count)
{
    bp_h5_shape shape;
    bp_err err = bp_h5_shape_of(h5, name, &shape);

    if (err != BP_OK)
        return err;
    if (shape.is_text || shape.dims != 1 || shape.count != count)
        return damaged(scores, name);
    *out = bp_try_alloc("tool.scores", count, bp_h5_type_bytes(type));
    if (!*out)
        return bp_fail_memory(name, count, bp_h5_type_bytes(type));
    return bp_h5_read(h5, name, type, 0, *out, count);
}

static bp_err check_numbers(const score_folder *scores)
{
    const int64_t *start = scores->corpus_start;

    for (int64_t k = 0; k < scores->corpora; k++)
        if (start[k] > start[k + 1])
            return damaged(scores, "corpus_start");
    if (start[0] != 0 || start[scores->corpora] != scores->documents)
        return damaged(scores, "corpus_start");
    for (int64_t d = 0; d < scores->documents; d++) {
        if (!isfinite(scores->nll[d]) && scores->nll[d] != INFINITY)
            return damaged(scores, "nll");
        if (scores->tokens[d] < 0)
            return damaged(scores, "tokens");
        if (scores->bytes[d] < -1 || scores->words[d] < -1)
            return damaged(scores, scores->bytes[d] < -1 ? "bytes" : "words");
    }
    return BP_OK;
}

static bp_err read_numbers(score_folder *scores, bp_h5 *h5)
{
    bp_h5_shape shape;
    bp_err err = bp_h5_shape_of(h5, "nll", &shape);
    const struct {
        const char *name;
        void *to;
        bp_h5_type type;
    } COLUMNS[] = {{"nll", &scores->nll, BP_H5_F64},
                   {"tokens", &scores->tokens, BP_H5_I64},
                   {"bytes", &scores->bytes, BP_H5_I64},
                   {"words", &scores->words, BP_H5_I64}};

    scores->documents = err == BP_OK ? shape.count : 0;
    if (err == BP_OK)
        err = read_column((void **)&scores->corpus_start, scores, h5, "corpus_start", BP_H5_I64,
                          scores->corpora + 1);
    for (size_t k = 0; k < sizeof COLUMNS / sizeof COLUMNS[0] && err == BP_OK; k++)
        err = read_column(COLUMNS[k].to, scores, h5, COLUMNS[k].name, COLUMNS[k].type,
                          scores->documents);
    if (err == BP_OK && bp_h5_has(h5, "token_hash")) {
        err = bp_h5_shape_of(h5, "token_hash", &shape);
        if (err == BP_OK && (shape.is_real || shape.is_signed))
            err = damaged(scores, "token_hash");
        if (err == BP_OK)
            err = read_column((void **)&scores->token_hash, scores, h5, "token_hash", BP_H5_U64,
                              scores->documents);
    }
    return err == BP_OK ? check_numbers(scores) : err;
}

/* texts[count][*width], each ended by a zero byte. */
static bp_err read_texts(char **out, size_t *width, int64_t *count, bp_h5 *h5, const char *name)
{
    bp_h5_shape shape;
    bp_err err = bp_h5_shape_of(h5, name, &shape);
    char *packed;

    if (err != BP_OK)
        return err;
    if (!shape.is_text || shape.dims != 1)
        return BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                       "damaged: '%s' is not a list of texts: at %s; score again", name,
                       bp_h5_path(h5));
    *width = shape.width + 1;
    *count = shape.count;
    packed = bp_try_alloc("tool.scores", shape.count, shape.width);
    *out = bp_try_alloc("tool.scores", shape.count, *width);
    if (!packed || !*out)
        err = bp_fail_memory(name, shape.count, *width);
    else
        err = bp_h5_read_text(h5, name, shape.width, 0, packed, shape.count);
    for (int64_t k = 0; k < shape.count && err == BP_OK; k++)
        memcpy(*out + (size_t)k * *width, packed + (size_t)k * shape.width, shape.width);
    bp_free(packed);
    return err;
}

/* ---- labels ---- */

static bp_err read_label(score_folder *scores, bp_h5 *h5, const char *name)
{
    score_label *label = &scores->labels[scores->label_count++];
    char *codes = bp_sprintf("labels/%s", name), *values = bp_sprintf("label_names/%s", name);
    char *texts = NULL;
    size_t width;
    int64_t count;
    bp_err err = read_texts(&texts, &width, &count, h5, values);

    label->name = bp_strdup(name);
    if (err == BP_OK)
        label->values = bp_try_alloc("tool.scores", count, sizeof *label->values);
    if (err == BP_OK && !label->values)
        err = bp_fail_memory(values, count, sizeof *label->values);
    while (err == BP_OK && label->value_count < count) {
        label->values[label->value_count] = bp_strdup(texts + (size_t)label->value_count * width);
        label->value_count++;
    }
    if (err == BP_OK)
        err = read_column((void **)&label->codes, scores, h5, codes, BP_H5_I64, scores->documents);
    for (int64_t d = 0; d < scores->documents && err == BP_OK; d++) {
        if (label->codes[d] < 0 || label->codes[d] > label->value_count)
            err = damaged(scores, codes);
        else if (label->codes[d] == label->value_count)
            label->codes[d] = -1;
    }
    bp_free(texts);
    bp_free(values);
    bp_free(codes);
    return err;
}

static bp_err read_documents(score_folder *scores)
{
    const char *path = scores->documents_path;
    char **labels = NULL;
    int64_t count = 0;
    bp_h5 *h5 = NULL;
    bp_err err = bp_h5_open_kind(&h5, path, "score-documents", VERSION);

    if (err == BP_OK)
        err = read_numbers(scores, h5);
    if (err == BP_OK)
        err = read_texts(&scores->ids, &scores->id_width, &count, h5, "doc_id");
    if (err == BP_OK && count != scores->documents)
        err = damaged(scores, "doc_id");
    count = 0;
    if (err == BP_OK)
        err = bp_h5_names(h5, "labels", &labels, &count);
    scores->labels = bp_alloc("tool.scores", count, sizeof *scores->labels);
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        err = read_label(scores, h5, labels[k]);
    bp_names_free(&labels, count);
    bp_h5_drop(&h5);
    return err;
}

/* ---- summary.json ---- */

static bp_err read_summary(score_folder *scores)
{
    bp_err err = bp_json_load(&scores->summary, scores->summary_path, SUMMARY_BYTES);
    const json_t *corpora;
    const char *name;
    json_t *figures;

    if (err != BP_OK)
        return err;
    if (json_is_object(json_object_get(scores->summary, "task")))
        return BP_FAIL(BP_ERR_FORMAT, "scores.of_task",
                       "these are scores of a task, which have no documents.h5 to compare: at %s; "
                       "bagpipe uncertainty compares fine-tuned models",
                       scores->summary_path);
    const char *format = json_string_value(json_object_get(scores->summary, "format"));

    if (format && strcmp(format, "bagpipe-questions") == 0)
        return BP_FAIL(BP_ERR_FORMAT, "scores.of_questions",
                       "these are answers to questions (score.questions), which have no scores of "
                       "documents: at %s; bagpipe-data table and compare read runs of questions "
                       "alone, other tools scores of a corpus",
                       scores->summary_path);
    corpora = json_object_get(scores->summary, "corpora");
    if (!json_is_object(corpora) || !json_is_object(json_object_get(scores->summary, "convention")))
        return BP_FAIL(BP_ERR_FORMAT, "scores.not_scores",
                       "no summary of scores: at %s; name the run folder of a score job",
                       scores->summary_path);
    scores->corpus_names =
        bp_alloc("tool.scores", (int64_t)json_object_size(corpora), sizeof *scores->corpus_names);
    json_object_foreach((json_t *)corpora, name, figures) scores->corpus_names[scores->corpora++] =
        name;
    return BP_OK;
}

/* summary.json has as many documents, in all and of each corpus, if all were to be scored. */
static bp_err check_counts(const score_folder *scores)
{
    const json_t *corpora = json_object_get(scores->summary, "corpora");
    const json_t *convention = json_object_get(scores->summary, "convention");
    const char *select = json_string_value(json_object_get(convention, "select"));
    const char *path = scores->summary_path;
    int64_t stated;
    bp_err err;
    bool same;

    if (select && strcmp(select, "all") != 0)
        return BP_OK;
    err = bp_json_get_int(scores->summary, "documents", &stated, path);
    same = err == BP_OK && stated == scores->documents;
    for (int64_t k = 0; err == BP_OK && same && k < scores->corpora; k++) {
        err = bp_json_get_int(json_object_get(corpora, scores->corpus_names[k]), "documents",
                              &stated, path);
        same = stated == scores->corpus_start[k + 1] - scores->corpus_start[k];
    }
    if (err != BP_OK || same)
        return err;
    return BP_FAIL(BP_ERR_FORMAT, "scores.not_of_one_run",
                   "documents.h5 has other numbers of documents than summary.json: at %s; they are "
                   "not of one run, score again",
                   scores->given);
}

/* Are both files of one run? */
static bp_err check_sums(const score_folder *scores)
{
    int64_t stated, tokens = 0;
    double stated_nll, nll = 0;
    bp_err err = bp_json_get_int(scores->summary, "tokens", &stated, scores->summary_path);

    for (int64_t d = 0; d < scores->documents; d++) {
        tokens += scores->tokens[d];
        nll += scores->nll[d];
    }
    stated_nll = nll; /* of a token of probability 0 the summary has null, not a sum */
    if (err == BP_OK && isfinite(nll))
        err = bp_json_get_real(scores->summary, "nll_nats", &stated_nll, scores->summary_path);
    if (err != BP_OK)
        return err;
    if (!isfinite(nll) && !json_is_null(json_object_get(scores->summary, "nll_nats")))
        stated_nll = 0;
    if (tokens != stated || isfinite(nll) != isfinite(stated_nll) ||
        (isfinite(nll) && fabs(nll - stated_nll) > 1e-9 * fabs(stated_nll) + 1e-9))
        return BP_FAIL(BP_ERR_FORMAT, "scores.not_of_one_run",
                       "documents.h5 has %" PRId64
                       " tokens of %.17g nats, and summary.json %" PRId64
                       " of %.17g: at %s; they are not of one run, score again",
                       tokens, nll, stated, stated_nll, scores->given);
    return BP_OK;
}

bp_err score_folder_load(score_folder *scores, const char *given)
{
    bp_err err;

    *scores = (score_folder){.given = given};
    err = find_files(scores);
    if (err == BP_OK)
        err = read_summary(scores);
    if (err == BP_OK)
        err = read_documents(scores);
    if (err == BP_OK)
        err = check_counts(scores);
    if (err == BP_OK)
        err = check_sums(scores);
    if (err == BP_OK && score_folder_cluster(scores) &&
        !score_folder_label(scores, score_folder_cluster(scores)))
        err = damaged(scores, "labels");
    return err;
}

bp_err score_folder_check_zeros(const score_folder *scores)
{
    for (int64_t d = 0; d < scores->documents; d++)
        if (!isfinite(scores->nll[d]))
            return BP_FAIL(BP_ERR_FORMAT, "scores.zero_probability",
                           "document %" PRId64 " has a token of probability 0, and so no "
                           "perplexity: at %s; score a model that is smoothed",
                           d, scores->documents_path);
    return BP_OK;
}

void score_folder_clear(score_folder *scores)
{
    for (int64_t k = 0; k < scores->label_count; k++) {
        bp_free(scores->labels[k].name);
        bp_names_free(&scores->labels[k].values, scores->labels[k].value_count);
        bp_free(scores->labels[k].codes);
    }
    bp_free(scores->labels);
    bp_free(scores->ids);
    bp_free(scores->token_hash);
    bp_free(scores->words);
    bp_free(scores->bytes);
    bp_free(scores->tokens);
    bp_free(scores->nll);
    bp_free(scores->corpus_start);
    bp_free(scores->corpus_names);
    json_decref(scores->summary);
    bp_free(scores->documents_path);
    bp_free(scores->summary_path);
    *scores = (score_folder){0};
}

const score_label *score_folder_label(const score_folder *scores, const char *name)
{
    for (int64_t k = 0; k < scores->label_count; k++)
        if (strcmp(scores->labels[k].name, name) == 0)
            return &scores->labels[k];
    return NULL;
}

const score_label *score_folder_add_label(score_folder *scores, const char *name,
                                          const char *const *values, int64_t value_count,
                                          int64_t *codes)
{
    scores->labels =
        bp_realloc("tool.scores", scores->labels, scores->label_count + 1, sizeof *scores->labels);
    score_label *label = &scores->labels[scores->label_count++];

    *label = (score_label){.name = bp_strdup(name),
                           .values = bp_alloc("tool.scores", value_count, sizeof *label->values),
                           .value_count = value_count,
                           .codes = codes};
    for (int64_t k = 0; k < value_count; k++)
        label->values[k] = bp_strdup(values[k]);
    return label;
}

bp_err score_tokenizer_load(bp_tokenizer **out, bp_h5 *h5)
{
    bp_h5_shape shape;
    char *text = NULL;
    bp_err err;

    *out = NULL;
    if (!bp_h5_has(h5, "source/tokenizer"))
        return BP_OK;
    err = bp_h5_shape_of(h5, "source/tokenizer", &shape);
    if (err == BP_OK && (shape.dims != 1 || shape.count > TOKENIZER_BYTES))
        err =
            BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                    "damaged: 'source/tokenizer' is not text: at %s; score again", bp_h5_path(h5));
    if (err == BP_OK) {
        text = bp_alloc("tool.tokenizer", shape.count + 1, 1);
        err = bp_h5_read(h5, "source/tokenizer", BP_H5_U8, 0, text, shape.count);
    }
    if (err == BP_OK)
        err = bp_tokenizer_parse(out, text, (size_t)shape.count, bp_h5_path(h5));
    bp_free(text);
    return err;
}

/* ---- figures ---- */

const char *const score_figure_names[SCORE_FIGURES] = {"perplexity", "bits_per_byte",
                                                       "word_perplexity"};

bp_err score_figure_find(int *figure, const char *name)
{
    *figure = PERPLEXITY;
    for (int k = 0; name && k < SCORE_FIGURES; k++)
        if (strcmp(name, score_figure_names[k]) == 0) {
            *figure = k;
            return BP_OK;
        }
    if (!name)
        return BP_OK;
    return BP_FAIL(BP_ERR_USAGE, "table.bad_figure",
                   "'%.100s' is not perplexity, bits_per_byte or word_perplexity: at the "
                   "command line; give one of them",
                   name);
}

bp_err score_folder_refuse_label(const score_folder *scores, const char *name, const char *remedy)
{
    bp_buffer known = {0};
    bp_err err;

    for (int64_t k = 0; k < scores->label_count; k++)
        bp_buffer_printf(&known, " %s", scores->labels[k].name);
    err = BP_FAIL(BP_ERR_FORMAT, "label.unknown",
                  "there is no label '%.100s': at %s; it has%s: make the corpus with --label "
                  "%.100s%s",
                  name, scores->given, known.bytes > 0 ? known.data : " none", name, remedy);
    bp_buffer_clear(&known);
    return err;
}

char *score_folder_known(const score_folder *scores)
{
    const json_t *known = json_object_get(scores->summary, "training_text");
    int64_t documents = json_integer_value(json_object_get(known, "documents"));

    if (documents <= 0)
        return NULL;
    return bp_sprintf("%" PRId64 " of %" PRId64 " documents, %.3g %% of the tokens, are in the "
                      "model's training text",
                      documents, (int64_t)json_integer_value(json_object_get(known, "of")),
                      100 * json_number_value(json_object_get(known, "share")));
}

const char *score_folder_cluster(const score_folder *scores)
{
    return json_string_value(json_object_get(scores->summary, "cluster"));
}

int64_t *score_folder_clusters(const score_folder *scores)
{
    const char *name = score_folder_cluster(scores);
    const score_label *label = name ? score_folder_label(scores, name) : NULL;
    int64_t *cluster, next;

    if (!label)
        return NULL;
    cluster = bp_alloc("tool.clusters", scores->documents, sizeof *cluster);
    next = label->value_count;
    for (int64_t d = 0; d < scores->documents; d++) {
        int64_t code = label->codes[d];

        cluster[d] = code >= 0 && label->values[code][0] ? code : next++;
    }
    return cluster;
}

const char *score_folder_lost(const score_folder *scores)
{
    const json_t *all = json_object_get(scores->summary, "convention");

    if (json_integer_value(json_object_get(scores->summary, "oov")) > 0)
        return "unknown words";
    return json_string_value(json_object_get(all, "loses"));
}
