/* The figures as CSV: a header, a row a line, numbers with all their digits, empty where there is
 * none. */
#include "analysis/uncertainty/outcome_priv.h"

#include "base/fs.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void begin_cell(bp_buffer *row)
{
    if (row->bytes > 0 && row->data[row->bytes - 1] != '\n')
        bp_buffer_printf(row, ",");
}

void study_csv_text(bp_buffer *row, const char *text)
{
    begin_cell(row);
    if (!strpbrk(text, ",\"\n\r")) {
        bp_buffer_printf(row, "%s", text);
        return;
    }
    bp_buffer_printf(row, "\"");
    for (const char *c = text; *c; c++)
        bp_buffer_printf(row, "%s%c", *c == '"' ? "\"" : "", *c);
    bp_buffer_printf(row, "\"");
}

/* A first cell is a text everywhere, so an empty one is told from no cell by its comma. */
void study_csv_real(bp_buffer *row, double value)
{
    begin_cell(row);
    if (isfinite(value))
        bp_buffer_printf(row, "%.17g", value);
}

static void put_int(bp_buffer *row, int64_t value)
{
    begin_cell(row);
    bp_buffer_printf(row, "%" PRId64, value);
}

static void put_value(bp_buffer *row, const study_value *value)
{
    study_csv_real(row, value->value);
    study_csv_real(row, value->low);
    study_csv_real(row, value->high);
}

static void put_value_header(bp_buffer *row, const char *name)
{
    bp_buffer_printf(row, ",%s,%s_low,%s_high", name, name, name);
}

static bp_err save(const study_outcome *outcome, const char *name, bp_buffer *table)
{
    char *path = bp_path_join(outcome->folder, name), *text = bp_buffer_take(table);
    bp_err err = path && text ? bp_file_write(path, text, strlen(text))
                              : BP_FAIL(BP_ERR_SYSTEM, "no memory for a table: at %s", name);

    bp_free(text);
    bp_free(path);
    return err;
}

static bp_err write_methods(const study_outcome *outcome)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,way,members,documents,tokens");
    for (int f = 0; f < STUDY_FIGURES; f++) {
        put_value_header(&table, study_figure_name(f));
        if (f == STUDY_FIGURE_NLL)
            put_value_header(&table, "perplexity");
        if (f == STUDY_FIGURE_SQUARED)
            put_value_header(&table, "rms_calibration_error");
    }
    bp_buffer_printf(&table, ",temperature,temperature_nll_before,temperature_nll,"
                             "temperature_at_edge,train_seconds,fit_seconds,score_seconds,"
                             "memory_mib\n");
    for (int64_t m = 0; m < outcome->methods.count; m++) {
        const study_result *result = &outcome->results[m];
        const study_cost *cost = &outcome->costs[m];
        const study_temper *temper = &outcome->tempers[m];
        const study_value perplexity = study_perplexity(result), rms = study_rms(result);
        const bool tempered = isfinite(temper->temperature);

        study_csv_text(&table, outcome->methods.items[m].name);
        study_csv_text(&table, study_way_name(outcome->methods.items[m].way));
        put_int(&table, outcome->members[m]);
        put_int(&table, result->documents);
        put_int(&table, result->tokens);
        for (int f = 0; f < STUDY_FIGURES; f++) {
            put_value(&table, &result->values[f]);
            if (f == STUDY_FIGURE_NLL)
                put_value(&table, &perplexity);
            if (f == STUDY_FIGURE_SQUARED)
                put_value(&table, &rms);
        }
        study_csv_real(&table, temper->temperature);
        study_csv_real(&table, temper->before);
        study_csv_real(&table, temper->after);
        study_csv_text(&table, tempered ? (temper->at_edge ? "yes" : "no") : "");
        study_csv_real(&table, cost->train_seconds);
        study_csv_real(&table, cost->fit_seconds);
        study_csv_real(&table, cost->score_seconds);
        study_csv_real(&table, cost->memory_mib);
        bp_buffer_printf(&table, "\n");
    }
    return save(outcome, "methods.csv", &table);
}

static bp_err write_detection(const study_outcome *outcome)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,shift,score,in_domain,shifted");
    for (int d = 0; d < STUDY_DETECTIONS; d++)
        put_value_header(&table, study_detection_name(d));
    bp_buffer_printf(&table, "\n");
    for (int64_t m = 0; m < outcome->methods.count; m++)
        for (int64_t s = 0; s < outcome->shifted.count; s++)
            for (int c = 0; c < STUDY_SCORES; c++) {
                study_csv_text(&table, outcome->methods.items[m].name);
                study_csv_text(&table, outcome->shifted.items[s].name);
                study_csv_text(&table, study_score_name((study_score)c));
                put_int(&table, outcome->in_domain.items[0].document_count);
                put_int(&table, outcome->shifted.items[s].document_count);
                for (int d = 0; d < STUDY_DETECTIONS; d++)
                    put_value(&table,
                              &outcome->results[m].values[study_column(s, (study_score)c, d)]);
                bp_buffer_printf(&table, "\n");
            }
    return save(outcome, "detection.csv", &table);
}

static void put_difference(bp_buffer *table, const study_outcome *outcome, int64_t i, int64_t k,
                           int64_t column, const char *const names[3])
{
    int64_t columns = study_columns(outcome->shifted.count);
    const study_value *values =
        outcome->differences + study_pair(i, k, outcome->methods.count) * columns;

    study_csv_text(table, outcome->methods.items[i].name);
    study_csv_text(table, outcome->methods.items[k].name);
    for (int n = 0; n < 3; n++)
        study_csv_text(table, names[n]);
    put_value(table, &values[column]);
    bp_buffer_printf(table, "\n");
}

static bp_err write_differences(const study_outcome *outcome)
{
    int64_t methods = outcome->methods.count;
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,other,figure,shift,score,difference,difference_low,"
                             "difference_high\n");
    for (int64_t i = 0; i < methods; i++)
        for (int64_t k = i + 1; k < methods; k++) {
            for (int f = 0; f < STUDY_FIGURES; f++)
                put_difference(&table, outcome, i, k, f,
                               (const char *[]){study_figure_name(f), "", ""});
            for (int64_t s = 0; s < outcome->shifted.count; s++)
                for (int c = 0; c < STUDY_SCORES; c++)
                    put_difference(&table, outcome, i, k,
                                   study_column(s, (study_score)c, STUDY_AUROC),
                                   (const char *[]){"auroc", outcome->shifted.items[s].name,
                                                    study_score_name((study_score)c)});
        }
    return save(outcome, "differences.csv", &table);
}

static bp_err write_reliability(const study_outcome *outcome)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,low,high,tokens,confidence,accuracy\n");
    for (int64_t m = 0; m < outcome->methods.count; m++)
        for (int b = 0; b < BP_CALIBRATION_BINS; b++) {
            const bp_reliability *bar = &outcome->results[m].bars[b];

            study_csv_text(&table, outcome->methods.items[m].name);
            study_csv_real(&table, bar->low);
            study_csv_real(&table, bar->high);
            put_int(&table, bar->tokens);
            study_csv_real(&table, bar->confidence);
            study_csv_real(&table, bar->accuracy);
            bp_buffer_printf(&table, "\n");
        }
    return save(outcome, "reliability.csv", &table);
}

static bp_err write_risk(const study_outcome *outcome)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,score,coverage,error,nll\n");
    for (int64_t m = 0; m < outcome->methods.count; m++)
        for (int o = 0; o < STUDY_ORDERS; o++)
            for (int p = 0; p < BP_RISK_POINTS; p++) {
                study_csv_text(&table, outcome->methods.items[m].name);
                study_csv_text(&table, study_order_name((study_order)o));
                study_csv_real(&table, (p + 1) / (double)BP_RISK_POINTS);
                study_csv_real(&table, outcome->results[m].risk[o].error[p]);
                study_csv_real(&table, outcome->results[m].risk[o].nll[p]);
                bp_buffer_printf(&table, "\n");
            }
    return save(outcome, "risk_coverage.csv", &table);
}

static bp_err write_curves(const study_outcome *outcome)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,shift,score,fpr,tpr\n");
    for (int64_t m = 0; m < outcome->methods.count; m++)
        for (int64_t s = 0; s < outcome->shifted.count; s++)
            for (int c = 0; c < STUDY_SCORES; c++) {
                const study_curve *curve = &outcome->results[m].curves[s * STUDY_SCORES + c];

                for (int64_t p = 0; p < curve->count; p++) {
                    study_csv_text(&table, outcome->methods.items[m].name);
                    study_csv_text(&table, outcome->shifted.items[s].name);
                    study_csv_text(&table, study_score_name((study_score)c));
                    study_csv_real(&table, curve->points[p].fpr);
                    study_csv_real(&table, curve->points[p].tpr);
                    bp_buffer_printf(&table, "\n");
                }
            }
    return save(outcome, "roc.csv", &table);
}

static bp_err write_histograms(const study_outcome *outcome)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,group,low,high,documents\n");
    for (int64_t m = 0; m < outcome->methods.count; m++)
        for (int64_t g = 0; g <= outcome->shifted.count; g++)
            for (int b = 0; b < STUDY_HISTOGRAM_BINS; b++) {
                const study_histogram *histogram = &outcome->results[m].histogram;

                study_csv_text(&table, outcome->methods.items[m].name);
                study_csv_text(&table, g == 0 ? "in_domain" : outcome->shifted.items[g - 1].name);
                study_csv_real(&table, study_histogram_edge(histogram, b));
                study_csv_real(&table, study_histogram_edge(histogram, b + 1));
                put_int(&table, histogram->counts[g * STUDY_HISTOGRAM_BINS + b]);
                bp_buffer_printf(&table, "\n");
            }
    return save(outcome, "histogram.csv", &table);
}

bp_err study_tables_write(const study_outcome *outcome)
{
    bp_err err = write_methods(outcome);

    if (err == BP_OK)
        err = write_detection(outcome);
    if (err == BP_OK)
        err = write_differences(outcome);
    if (err == BP_OK)
        err = write_reliability(outcome);
    if (err == BP_OK)
        err = write_risk(outcome);
    if (err == BP_OK)
        err = write_curves(outcome);
    if (err == BP_OK)
        err = write_histograms(outcome);
    return err;
}
