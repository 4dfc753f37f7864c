/* Predictions of other programs as a method of the study: their statistics are written in the form
 * of a score run, so that all other code reads them alike. The labels are those used to score the
 * first model of the study. */
#include "uncertainty/comparison/predictions_priv.h"

#include "base/config/csv.h"
#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "io/corpus/corpus_writer.h"
#include "io/h5/h5.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define VERSION 1 /* of score-tokens, score-documents and score-outcomes */

/* The statistics written for each prediction, as for an ensemble with these sets and at this
 * temperature. */
typedef struct table_form {
    bp_model_info info;
    const comparison_calibrated *calibrated;
    int64_t columns;
} table_form;

static table_form form_of(const comparison_calibrated *calibrated)
{
    table_form form = {
        .info = {.sets = calibrated->sets.predictions > 0, .tempered = calibrated->temperature > 0},
        .calibrated = calibrated};

    form.columns = bp_model_first_member(&form.info);
    return form;
}

static const char *column_name(const table_form *form, int64_t c)
{
    int64_t first = bp_model_first_tempered(&form->info);

    return bp_model_statistic_name(c < first ? c : BP_MODEL_TEMPERED_LOGPROB + c - first);
}

/* ---- before any compute ---- */

bp_err comparison_read_predictions(comparison_metadata *metadata, const comparison_method *method,
                                   const comparison_metadata *model, const char *path)
{
    bp_predictions predictions = {.members = 0};
    char **classes = NULL;
    int64_t count = 0;
    bp_err err = BP_OK;

    *metadata = *model;
    if (!bp_task_is_softmax(&model->task) || bp_task_kind_of(&model->task)->over_positions)
        err = BP_FAIL(BP_ERR_CONFIG, "predictions.no_outcomes",
                      "the models predict values or ends of answers, which have no probabilities "
                      "by outcome: at uncertainty.models; leave the predictions out");
    if (err == BP_OK && bp_task_has_head(&model->task))
        err = comparison_read_classes(&classes, &count, path);
    if (err == BP_OK) {
        bool named = classes && count >= comparison_outcomes(model);

        err = bp_predictions_read(&predictions, method->path,
                                  (bp_outcome_names){named ? (const char *const *)classes : NULL,
                                                     comparison_outcomes(model)});
    }
    if (err == BP_OK)
        err = bp_sha256_of_file(method->path, metadata->digest, NULL);
    metadata->task.precision = 0;
    metadata->ensemble = predictions.members > 1;
    metadata->members = predictions.members;
    metadata->rows = predictions.rows;
    metadata->train_seconds = NAN;
    bp_names_free(&classes, count);
    bp_predictions_clear(&predictions);
    return err == BP_OK ? err : bp_err_prefix(err, "method %s", method->name);
}

/* ---- data used to score a model of the study ---- */

static bp_err read_names(scored_rows *rows, bp_h5 *file)
{
    bp_h5_shape shape;
    bp_err err = bp_h5_shape_of(file, "outcome_names", &shape);
    char *texts = NULL;

    if (err == BP_OK) {
        rows->outcomes = shape.count;
        rows->names = bp_alloc("comparison.predictions", shape.count, sizeof *rows->names);
        texts = bp_alloc("comparison.predictions", shape.count * (int64_t)shape.width, 1);
        err = bp_h5_read_text(file, "outcome_names", shape.width, 0, texts, shape.count);
    }
    for (int64_t k = 0; err == BP_OK && k < shape.count; k++)
        rows->names[k] = bp_sprintf("%.*s", (int)shape.width, texts + (size_t)k * shape.width);
    bp_free(texts);
    return err;
}

static bp_err read_column(float **out, bp_h5 *file, const char *name, int64_t count)
{
    *out = bp_try_alloc("comparison.predictions", count, sizeof **out);
    if (!*out)
        return bp_fail_memory("predictions", count, sizeof **out);
    return bp_h5_read(file, name, BP_H5_F32, 0, *out, count);
}

static bp_err read_counts(scored_rows *rows, bp_h5 *file, const char *name)
{
    bp_h5_shape shape = {0};
    bp_err err = bp_h5_shape_of(file, name, &shape);

    rows->documents = shape.count;
    rows->predictions = bp_alloc("comparison.predictions", shape.count, sizeof *rows->predictions);
    return err == BP_OK ? bp_h5_read(file, name, BP_H5_I64, 0, rows->predictions, shape.count)
                        : err;
}

static bp_err read_scored(scored_rows *rows, const char *folder, bool classes)
{
    char *path = bp_path_join(folder, classes ? "outcomes.h5" : "tokens.h5");
    char *documents = bp_path_join(folder, "documents.h5");
    bp_h5 *file = NULL, *counts = NULL;
    bp_h5_shape shape = {0};
    bp_err err = bp_h5_open_kind(&file, path, classes ? "score-outcomes" : "score-tokens", VERSION);

    if (err == BP_OK)
        err = bp_h5_shape_of(file, "logprob", &shape);
    rows->count = shape.count;
    if (err == BP_OK)
        err = read_column(&rows->logprob, file, "logprob", rows->count);
    if (err == BP_OK)
        err = read_column(&rows->label, file, classes ? "label" : "tokens", rows->count);
    if (err == BP_OK && classes && bp_h5_has(file, "outcome_names"))
        err = read_names(rows, file);
    if (err == BP_OK && !classes)
        err = bp_h5_open_kind(&counts, documents, "score-documents", VERSION);
    if (err == BP_OK)
        err = read_counts(rows, classes ? file : counts, classes ? "predictions" : "tokens");
    for (int64_t k = 0; err == BP_OK && k < rows->count; k++)
        rows->total += comparison_row_predicts(rows, k, classes);
    bp_h5_drop(&counts);
    bp_h5_drop(&file);
    bp_free(documents);
    bp_free(path);
    return err;
}

static void clear_scored(scored_rows *rows)
{
    bp_names_free(&rows->names, rows->outcomes);
    bp_free(rows->logprob);
    bp_free(rows->label);
    bp_free(rows->predictions);
}

/* ---- statistics ---- */

static double entropy_term(double p)
{
    return p > 0 ? -p * log(p) : 0;
}

/* out[c * stride] of a row, whose members' probabilities are stride_p apart. */
static void fill_row(float *out, int64_t stride, const double *p, int64_t stride_p, int64_t members,
                     int64_t outcomes, int64_t label)
{
    double total = 0, expected = 0, squares = 0, top_p = -1, M = (double)members, mean = 0,
           variance = 0, target = 0;
    int64_t top = 0, agreeing = 0;

    for (int64_t k = 0; k < outcomes; k++) {
        double mixed = 0;

        for (int64_t m = 0; m < members; m++) {
            mixed += p[m * stride_p + k] / M;
            expected += entropy_term(p[m * stride_p + k]) / M;
        }
        total += entropy_term(mixed);
        squares += (mixed - (k == label)) * (mixed - (k == label));
        top = mixed > top_p ? k : top;
        top_p = fmax(top_p, mixed);
        target = k == label ? mixed : target;
    }
    for (int64_t m = 0; m < members; m++) {
        const double *row = p + m * stride_p;
        int64_t first = 0;

        for (int64_t k = 1; k < outcomes; k++)
            first = row[k] > row[first] ? k : first;
        agreeing += first == top;
        mean += label >= 0 ? log(row[label]) / M : 0;
    }
    for (int64_t m = 0; label >= 0 && m < members; m++)
        variance +=
            (log(p[m * stride_p + label]) - mean) * (log(p[m * stride_p + label]) - mean) / M;
    out[BP_MODEL_LOGPROB * stride] = label < 0 ? NAN : (float)log(target);
    out[BP_MODEL_EXPECTED_ENTROPY * stride] = (float)expected;
    out[BP_MODEL_MUTUAL_INFORMATION * stride] = (float)fmax(0, total - expected);
    out[BP_MODEL_TOTAL_ENTROPY * stride] = (float)total;
    out[BP_MODEL_LOGPROB_VARIANCE * stride] = label < 0 ? NAN : (float)variance;
    out[BP_MODEL_AGREEMENT * stride] = (float)((double)agreeing / M);
    out[BP_MODEL_CONFIDENCE * stride] = (float)top_p;
    out[BP_MODEL_CORRECT * stride] = label < 0 ? NAN : top == label ? 1.0F : 0.0F;
    out[BP_MODEL_BRIER * stride] = label < 0 ? NAN : (float)squares;
}

/* valid: of corpus.valid; NULL if it was not scored. */
static bp_err check_rows(const bp_predictions *predictions, const scored_rows *rows,
                         const scored_rows *valid, bool classes, const char *path)
{
    char *with =
        valid ? bp_sprintf(" (%" PRId64 " with those of corpus.valid)", rows->total + valid->total)
              : bp_sprintf("%s", "");
    bp_err err = BP_OK;

    if (predictions->rows != rows->total + (valid ? valid->total : 0) &&
        predictions->rows != rows->total)
        err = BP_FAIL(BP_ERR_FORMAT, "predictions.unlike_rows",
                      "it has %" PRId64 " rows, the corpora have %" PRId64 " predictions%s: at %s; "
                      "give one for each %s of uncertainty.in_domain and uncertainty.shifted, in "
                      "the order of their files, then all or none of corpus.valid",
                      predictions->rows, rows->total, with, path,
                      classes ? "prediction" : "scored token");
    bp_free(with);
    return err;
}

/* Where rows have no doc_id, nothing but their number shows that they are in another order. */
static void log_order(const comparison_job *self, const comparison_method *method, bool named,
                      bool calibrates)
{
    const comparison_corpora *corpora = &self->corpora;
    bp_buffer order = {0};

    for (int64_t k = 0; k < corpora->files; k++)
        bp_buffer_printf(&order, "%s%s", k > 0 ? ", then of " : "", corpora->paths[k]);
    if (calibrates)
        bp_buffer_printf(&order, ", then of corpus.valid, which calibrates it (%s)",
                         bp_corpus_keys_of(self->config)->valid);
    bp_log("%s: predictions of %s, in the order of %s: %s", method->name, method->path, order.data,
           named ? "each row's doc_id is compared"
                 : "nothing in the file confirms it (a column doc_id would)");
    bp_buffer_clear(&order);
}

/* As a cell of ours: a spreadsheet's formula follows an apostrophe. */
static bool is_id(const char *cell, const char *id)
{
    return strcmp(cell, id) == 0 ||
           (cell[0] == '\'' && bp_csv_is_formula(id, strlen(id)) && strcmp(cell + 1, id) == 0);
}

/* The rows of document d of a file, from `row` on. */
static bp_err check_document(const bp_predictions *of, int64_t row, int64_t rows,
                             bp_corpus_file *file, int64_t d, const char *path)
{
    char id[BP_CORPUS_ID_BYTES + 1];
    bp_err err = bp_corpus_file_doc_id(file, d, id, sizeof id);

    for (int64_t r = row; r < row + rows && err == BP_OK; r++)
        if (!is_id(of->documents[r], id))
            err = BP_FAIL(BP_ERR_FORMAT, "predictions.unlike_documents",
                          "doc_id is '%s', and document %" PRId64 " of %s, which this row should "
                          "predict, has '%s': at row %" PRId64 " of %s; give the rows in the order "
                          "of the corpora",
                          of->documents[r], d, bp_corpus_file_path(file), id, r, path);
    return err;
}

/* Is each row, from `row` on, of the document of the corpora that has its place? */
static bp_err check_documents(const char *list, const bp_predictions *of, int64_t row,
                              const scored_rows *rows, const char *path)
{
    bp_corpus *corpus = NULL;
    int64_t document = 0;
    bp_err err = bp_corpus_open(&corpus, list);

    for (int64_t k = 0; err == BP_OK && k < bp_corpus_files(corpus); k++) {
        bp_corpus_file *file = bp_corpus_file_at(corpus, k);

        for (int64_t d = 0; err == BP_OK && d < bp_corpus_file_info(file)->documents; d++) {
            int64_t count = rows->predictions[document++];

            err = check_document(of, row, count, file, d, path);
            row += count;
        }
    }
    bp_corpus_close(&corpus);
    return err;
}

/* An infinite NLL has no mean. A member may give the truth probability 0, if another does not. */
static bp_err check_truth(const bp_predictions *of, int64_t row, const scored_rows *rows,
                          bool classes, const char *path)
{
    for (int64_t k = 0; k < rows->count; k++) {
        double p = 0;

        if (!comparison_row_predicts(rows, k, classes))
            continue;
        for (int64_t m = 0; rows->label[k] >= 0 && m < of->members; m++)
            p += of->p[(m * of->rows + row) * of->outcomes + (int64_t)rows->label[k]];
        if (rows->label[k] >= 0 && !(p > 0))
            return BP_FAIL(BP_ERR_FORMAT, "predictions.zero_probability",
                           "the true outcome has the probability 0, so that its NLL is infinite: "
                           "at row %" PRId64 " of %s; smooth the probabilities",
                           row, path);
        row++;
    }
    return BP_OK;
}

static void fill_table(float *table, const table_form *form, const bp_predictions *of,
                       const scored_rows *rows, bool classes)
{
    int64_t row = 0, stride = rows->count;

    for (int64_t k = 0; k < rows->count; k++) {
        if (!comparison_row_predicts(rows, k, classes)) {
            for (int64_t c = 0; c < form->columns; c++)
                table[c * stride + k] = NAN;
            continue;
        }
        int64_t label = (int64_t)rows->label[k];

        fill_row(table + k, stride, of->p + row * of->outcomes, of->rows * of->outcomes,
                 of->members, of->outcomes, label);
        if (form->info.sets)
            comparison_fill_sets(table + k, stride, of, row, label, &form->calibrated->sets.rule);
        if (form->info.tempered)
            comparison_fill_tempered(table + bp_model_first_tempered(&form->info) * stride + k,
                                     stride, of, row, label, form->calibrated->temperature);
        row++;
    }
}

/* ---- files ---- */

static bp_err write_table(const char *path, const float *table, const table_form *form,
                          const scored_rows *rows, bool classes)
{
    bp_h5_draft draft = {0};
    bp_err err = bp_h5_draft_begin(&draft, path, VERSION);

    for (int64_t c = 0; c < form->columns && err == BP_OK; c++)
        err = bp_h5_write(draft.file, column_name(form, c), BP_H5_F32, table + c * rows->count,
                          rows->count);
    if (err == BP_OK && classes)
        err = bp_h5_write(draft.file, "predictions", BP_H5_I64, rows->predictions, rows->documents);
    if (err == BP_OK && rows->names)
        err = bp_h5_write(draft.file, "label", BP_H5_F32, rows->label, rows->count);
    if (err == BP_OK && rows->names)
        err = bp_h5_write_texts(draft.file, "outcome_names", (const char *const *)rows->names,
                                rows->outcomes);
    if (err == BP_OK)
        err = bp_h5_draft_commit(&draft, classes ? "score-outcomes" : "score-tokens", VERSION);
    bp_h5_draft_end(&draft);
    return err;
}

static bp_err write_documents(const char *path, const scored_rows *rows)
{
    bp_h5_draft draft = {0};
    bp_err err = bp_h5_draft_begin(&draft, path, VERSION);

    if (err == BP_OK)
        err = bp_h5_write(draft.file, "tokens", BP_H5_I64, rows->predictions, rows->documents);
    if (err == BP_OK)
        err = bp_h5_draft_commit(&draft, "score-documents", VERSION);
    bp_h5_draft_end(&draft);
    return err;
}

static bp_err write_files(const char *folder, const float *table, const table_form *form,
                          const scored_rows *rows, bool classes)
{
    char *score = bp_path_join(folder, "score");
    char *path = bp_path_join(score, classes ? "outcomes.h5" : "tokens.h5");
    char *documents = bp_path_join(score, "documents.h5");
    bp_err err = bp_dir_make(folder);

    if (err == BP_OK)
        err = bp_dir_make(score);
    bp_dir_sweep(score);
    if (err == BP_OK)
        err = write_table(path, table, form, rows, classes);
    if (err == BP_OK && !classes)
        err = write_documents(documents, rows);
    bp_free(documents);
    bp_free(path);
    bp_free(score);
    return err;
}

/* The folder of a method's scores. */
static char *folder_of(const comparison_job *self, int64_t m)
{
    return bp_sprintf("%s/scores/%s", self->results.folder, self->results.methods.items[m].name);
}

bp_err comparison_job_has_more_rows(const comparison_job *self, bool *more)
{
    const comparison_results *results = &self->results;
    char *folder = folder_of(self, comparison_first_model(&results->methods)),
         *from = bp_path_join(folder, "score");
    scored_rows rows = {0};
    int64_t most = 0;
    bp_err err = BP_OK;

    for (int64_t m = 0; m < results->methods.count; m++)
        most = results->metadata[m].rows > most ? results->metadata[m].rows : most;
    if (most > 0)
        err = read_scored(&rows, from, results->classes);
    *more = err == BP_OK && most > rows.total;
    clear_scored(&rows);
    bp_free(from);
    bp_free(folder);
    return err;
}

/* valid: of corpus.valid; NULL if it was not scored. */
static bp_err check_content(const comparison_job *self, int64_t m, const bp_predictions *of,
                            const scored_rows *rows, const scored_rows *valid)
{
    const comparison_method *method = &self->results.methods.items[m];
    bool classes = self->results.classes, calibrates = of->rows > rows->total;
    const struct {
        const scored_rows *rows;
        const char *corpora;
        int64_t first;
    } parts[] = {{rows, self->corpora.list, 0},
                 {valid, bp_corpus_keys_of(self->config)->valid, rows->total}};
    bp_err err = check_rows(of, rows, valid, classes, method->path);

    if (err == BP_OK)
        log_order(self, method, of->documents != NULL, calibrates);
    for (int k = 0; k <= calibrates && err == BP_OK; k++) {
        if (of->documents)
            err =
                check_documents(parts[k].corpora, of, parts[k].first, parts[k].rows, method->path);
        if (err == BP_OK)
            err = check_truth(of, parts[k].first, parts[k].rows, classes, method->path);
    }
    return err;
}

/* The statistics of the rows and, with predictions of corpus.valid, their sets and those at the
 * temperature. */
static bp_err save(const comparison_job *self, int64_t m, const bp_predictions *of,
                   const scored_rows *rows, const scored_rows *valid)
{
    bool classes = self->results.classes;
    char *to = folder_of(self, m);
    comparison_calibrated calibrated = {.temperature = 0};
    float *table = NULL;
    bp_err err = comparison_job_forget_fits(self, m);
    table_form form;

    if (err == BP_OK && of->rows > rows->total)
        err = comparison_calibrate_predictions(self, m, of, rows->total, valid, &calibrated);
    form = form_of(&calibrated);
    if (err == BP_OK) {
        table = bp_try_alloc("comparison.predictions", form.columns * rows->count, sizeof *table);
        err = table ? BP_OK
                    : bp_fail_memory("predictions", form.columns * rows->count, sizeof *table);
    }
    if (err == BP_OK) {
        fill_table(table, &form, of, rows, classes);
        err = write_files(to, table, &form, rows, classes);
    }
    bp_free(table);
    bp_free(to);
    return err;
}

bp_err comparison_job_import(const comparison_job *self, int64_t m, const char *valid)
{
    const comparison_results *results = &self->results;
    const comparison_method *method = &results->methods.items[m];
    char *model = folder_of(self, comparison_first_model(&results->methods)),
         *from = bp_path_join(model, "score"),
         *of_valid = bp_path_join(valid ? valid : "", "score");
    bp_predictions predictions = {.members = 0};
    scored_rows rows = {0}, calibrating = {0};
    bp_err err = read_scored(&rows, from, results->classes);

    if (err == BP_OK && valid)
        err = read_scored(&calibrating, of_valid, results->classes);
    if (err == BP_OK)
        err = bp_predictions_read(
            &predictions, method->path,
            (bp_outcome_names){(const char *const *)rows.names,
                               rows.names ? rows.outcomes
                                          : comparison_outcomes(&results->metadata[m])});
    if (err == BP_OK)
        err = check_content(self, m, &predictions, &rows, valid ? &calibrating : NULL);
    if (err == BP_OK)
        err = save(self, m, &predictions, &rows, &calibrating);
    clear_scored(&calibrating);
    clear_scored(&rows);
    bp_predictions_clear(&predictions);
    bp_free(of_valid);
    bp_free(from);
    bp_free(model);
    return err == BP_OK ? err : bp_err_prefix(err, "method %s", method->name);
}
