/* The figures as CSV: a header, a row a line, numbers with all their digits, empty where there is
 * none. */
#include "analysis/uncertainty/results/results_priv.h"

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

void comparison_csv_text(bp_buffer *row, const char *text)
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
void comparison_csv_real(bp_buffer *row, double value)
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

static void put_value(bp_buffer *row, const comparison_value *value)
{
    comparison_csv_real(row, value->value);
    comparison_csv_real(row, value->low);
    comparison_csv_real(row, value->high);
}

static void put_value_header(bp_buffer *row, const char *name)
{
    bp_buffer_printf(row, ",%s,%s_low,%s_high", name, name, name);
}

static bp_err save(const comparison_results *results, const char *name, bp_buffer *table)
{
    char *path = bp_path_join(results->folder, name), *text = bp_buffer_take(table);
    bp_err err = path && text ? bp_file_write(path, text, strlen(text))
                              : BP_FAIL(BP_ERR_SYSTEM, "no memory for a table: at %s", name);

    bp_free(text);
    bp_free(path);
    return err;
}

static bp_err write_methods(const comparison_results *results)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,way,members,documents,tokens");
    for (int f = 0; f < COMPARISON_FIGURES; f++) {
        put_value_header(&table, comparison_figure_name(f));
        if (f == COMPARISON_FIGURE_NLL)
            put_value_header(&table, "perplexity");
        if (f == COMPARISON_FIGURE_SQUARED)
            put_value_header(&table, "rms_calibration_error");
    }
    bp_buffer_printf(&table, ",temperature,temperature_nll_before,temperature_nll,"
                             "temperature_at_edge,train_seconds,fit_seconds,score_seconds,"
                             "memory_mib\n");
    for (int64_t m = 0; m < results->methods.count; m++) {
        const comparison_result *result = &results->results[m];
        const comparison_cost *cost = &results->costs[m];
        const comparison_temperature *temperature = &results->temperatures[m];
        const comparison_value perplexity = comparison_perplexity(result),
                               rms = comparison_rms(result);
        const bool scaled = isfinite(temperature->temperature);

        comparison_csv_text(&table, results->methods.items[m].name);
        comparison_csv_text(&table, comparison_way_name(results->methods.items[m].way));
        put_int(&table, results->members[m]);
        put_int(&table, result->documents);
        put_int(&table, result->tokens);
        for (int f = 0; f < COMPARISON_FIGURES; f++) {
            put_value(&table, &result->values[f]);
            if (f == COMPARISON_FIGURE_NLL)
                put_value(&table, &perplexity);
            if (f == COMPARISON_FIGURE_SQUARED)
                put_value(&table, &rms);
        }
        comparison_csv_real(&table, temperature->temperature);
        comparison_csv_real(&table, temperature->before);
        comparison_csv_real(&table, temperature->after);
        comparison_csv_text(&table, scaled ? (temperature->at_edge ? "yes" : "no") : "");
        comparison_csv_real(&table, cost->train_seconds);
        comparison_csv_real(&table, cost->fit_seconds);
        comparison_csv_real(&table, cost->score_seconds);
        comparison_csv_real(&table, cost->memory_mib);
        bp_buffer_printf(&table, "\n");
    }
    return save(results, "methods.csv", &table);
}

static bp_err write_detection(const comparison_results *results)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,shift,score,in_domain,shifted");
    for (int d = 0; d < COMPARISON_DETECTIONS; d++)
        put_value_header(&table, comparison_detection_name(d));
    bp_buffer_printf(&table, "\n");
    for (int64_t m = 0; m < results->methods.count; m++)
        for (int64_t s = 0; s < results->shifted.count; s++)
            for (int c = 0; c < COMPARISON_SCORES; c++) {
                comparison_csv_text(&table, results->methods.items[m].name);
                comparison_csv_text(&table, results->shifted.items[s].name);
                comparison_csv_text(&table, comparison_score_name((comparison_score)c));
                put_int(&table, results->in_domain.items[0].document_count);
                put_int(&table, results->shifted.items[s].document_count);
                for (int d = 0; d < COMPARISON_DETECTIONS; d++)
                    put_value(
                        &table,
                        &results->results[m].values[comparison_column(s, (comparison_score)c, d)]);
                bp_buffer_printf(&table, "\n");
            }
    return save(results, "detection.csv", &table);
}

static void put_difference(bp_buffer *table, const comparison_results *results, int64_t i,
                           int64_t k, int64_t column, const char *const names[3])
{
    int64_t columns = comparison_columns(results->shifted.count);
    const comparison_value *values =
        results->differences + comparison_pair(i, k, results->methods.count) * columns;

    comparison_csv_text(table, results->methods.items[i].name);
    comparison_csv_text(table, results->methods.items[k].name);
    for (int n = 0; n < 3; n++)
        comparison_csv_text(table, names[n]);
    put_value(table, &values[column]);
    bp_buffer_printf(table, "\n");
}

static bp_err write_differences(const comparison_results *results)
{
    int64_t methods = results->methods.count;
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,other,figure,shift,score,difference,difference_low,"
                             "difference_high\n");
    for (int64_t i = 0; i < methods; i++)
        for (int64_t k = i + 1; k < methods; k++) {
            for (int f = 0; f < COMPARISON_FIGURES; f++)
                put_difference(&table, results, i, k, f,
                               (const char *[]){comparison_figure_name(f), "", ""});
            for (int64_t s = 0; s < results->shifted.count; s++)
                for (int c = 0; c < COMPARISON_SCORES; c++)
                    put_difference(&table, results, i, k,
                                   comparison_column(s, (comparison_score)c, COMPARISON_AUROC),
                                   (const char *[]){"auroc", results->shifted.items[s].name,
                                                    comparison_score_name((comparison_score)c)});
        }
    return save(results, "differences.csv", &table);
}

static bp_err write_reliability(const comparison_results *results)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,low,high,tokens,confidence,accuracy\n");
    for (int64_t m = 0; m < results->methods.count; m++)
        for (int b = 0; b < BP_CALIBRATION_BINS; b++) {
            const bp_reliability *bar = &results->results[m].bars[b];

            comparison_csv_text(&table, results->methods.items[m].name);
            comparison_csv_real(&table, bar->low);
            comparison_csv_real(&table, bar->high);
            put_int(&table, bar->tokens);
            comparison_csv_real(&table, bar->confidence);
            comparison_csv_real(&table, bar->accuracy);
            bp_buffer_printf(&table, "\n");
        }
    return save(results, "reliability.csv", &table);
}

static bp_err write_risk(const comparison_results *results)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,score,coverage,error,nll\n");
    for (int64_t m = 0; m < results->methods.count; m++)
        for (int o = 0; o < COMPARISON_ORDERS; o++)
            for (int p = 0; p < BP_RISK_POINTS; p++) {
                comparison_csv_text(&table, results->methods.items[m].name);
                comparison_csv_text(&table, comparison_order_name((comparison_order)o));
                comparison_csv_real(&table, (p + 1) / (double)BP_RISK_POINTS);
                comparison_csv_real(&table, results->results[m].risk[o].error[p]);
                comparison_csv_real(&table, results->results[m].risk[o].nll[p]);
                bp_buffer_printf(&table, "\n");
            }
    return save(results, "risk_coverage.csv", &table);
}

static bp_err write_curves(const comparison_results *results)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,shift,score,fpr,tpr\n");
    for (int64_t m = 0; m < results->methods.count; m++)
        for (int64_t s = 0; s < results->shifted.count; s++)
            for (int c = 0; c < COMPARISON_SCORES; c++) {
                const comparison_curve *curve =
                    &results->results[m].curves[s * COMPARISON_SCORES + c];

                for (int64_t p = 0; p < curve->count; p++) {
                    comparison_csv_text(&table, results->methods.items[m].name);
                    comparison_csv_text(&table, results->shifted.items[s].name);
                    comparison_csv_text(&table, comparison_score_name((comparison_score)c));
                    comparison_csv_real(&table, curve->points[p].fpr);
                    comparison_csv_real(&table, curve->points[p].tpr);
                    bp_buffer_printf(&table, "\n");
                }
            }
    return save(results, "roc.csv", &table);
}

static bp_err write_histograms(const comparison_results *results)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,group,low,high,documents\n");
    for (int64_t m = 0; m < results->methods.count; m++)
        for (int64_t g = 0; g <= results->shifted.count; g++)
            for (int b = 0; b < COMPARISON_HISTOGRAM_BINS; b++) {
                const comparison_histogram *histogram = &results->results[m].histogram;

                comparison_csv_text(&table, results->methods.items[m].name);
                comparison_csv_text(&table,
                                    g == 0 ? "in_domain" : results->shifted.items[g - 1].name);
                comparison_csv_real(&table, comparison_histogram_edge(histogram, b));
                comparison_csv_real(&table, comparison_histogram_edge(histogram, b + 1));
                put_int(&table, histogram->counts[g * COMPARISON_HISTOGRAM_BINS + b]);
                bp_buffer_printf(&table, "\n");
            }
    return save(results, "histogram.csv", &table);
}

bp_err comparison_tables_write(const comparison_results *results)
{
    bp_err err = write_methods(results);

    if (err == BP_OK)
        err = write_detection(results);
    if (err == BP_OK)
        err = write_differences(results);
    if (err == BP_OK)
        err = write_reliability(results);
    if (err == BP_OK)
        err = write_risk(results);
    if (err == BP_OK)
        err = write_curves(results);
    if (err == BP_OK)
        err = write_histograms(results);
    return err;
}
