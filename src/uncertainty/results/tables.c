/* The figures as CSV: a header, one row per line, numbers with all their digits, empty if there is
 * none. Called by uncertainty/comparison/job.c. */
#include "uncertainty/results/results.h"

#include "base/config/csv.h"
#include "base/files/fs.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

static void begin_cell(bp_buffer *row)
{
    if (row->bytes > 0 && row->data[row->bytes - 1] != '\n')
        bp_buffer_printf(row, ",");
}

/* The first cell is always a text, so a comma distinguishes an empty cell from none. */
void comparison_csv_put(bp_buffer *row, const char *cells, ...)
{
    const comparison_value *v;
    const char *text;
    double real;
    va_list list;

    va_start(list, cells);
    for (const char *c = cells; *c; c++) {
        if (!strchr("v\n", *c)) /* a value adds its own comma */
            begin_cell(row);
        switch (*c) {
        case 't':
            text = va_arg(list, const char *);
            bp_csv_add(row, text, strlen(text));
            break;
        case 'i':
            bp_buffer_printf(row, "%" PRId64, va_arg(list, int64_t));
            break;
        case 'r':
            real = va_arg(list, double);
            if (isfinite(real))
                bp_buffer_printf(row, "%.17g", real);
            break;
        case 'v':
            v = va_arg(list, const comparison_value *);
            comparison_csv_put(row, "rrr", v->value, v->low, v->high);
            break;
        default:
            bp_buffer_printf(row, "\n");
        }
    }
    va_end(list);
}

static void put_value_header(bp_buffer *row, const char *name)
{
    bp_buffer_printf(row, ",%s,%s_low,%s_high", name, name, name);
}

static bp_err save(const comparison_results *results, const char *name, bp_buffer *table)
{
    char *path = bp_path_join(results->folder, name);
    bp_err err = bp_file_write(path, table->data, table->bytes);

    bp_buffer_clear(table);
    bp_free(path);
    return err;
}

static bp_err write_methods(const comparison_results *results)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,way,members,documents,tokens");
    for (int f = 0; f < comparison_figures(results); f++) {
        if (!comparison_figure_name(results, f))
            continue;
        put_value_header(&table, comparison_figure_name(results, f));
        if (f == COMPARISON_FIGURE_NLL)
            put_value_header(&table, "perplexity");
        if (comparison_has_root(f))
            put_value_header(&table, comparison_root_name(results, f));
    }
    bp_buffer_printf(&table, ",temperature,temperature_nll_before,temperature_nll,"
                             "temperature_at_edge,train_seconds,fit_seconds,score_seconds,"
                             "memory_mib\n");
    for (int64_t m = 0; m < results->methods.count; m++) {
        const comparison_result *result = &results->results[m];
        const comparison_cost *cost = &results->costs[m];
        const comparison_temperature *t = &results->temperatures[m];
        const comparison_value perplexity = comparison_perplexity(results, result);

        comparison_csv_put(&table, "ttiii", results->methods.items[m].name,
                           results->methods.items[m].way->word, results->members[m],
                           result->documents, result->tokens);
        for (int f = 0; f < comparison_figures(results); f++) {
            const comparison_value root = comparison_rms(result, f);

            if (!comparison_figure_name(results, f))
                continue;
            comparison_csv_put(&table, "v", &result->values[f]);
            if (f == COMPARISON_FIGURE_NLL)
                comparison_csv_put(&table, "v", &perplexity);
            if (comparison_has_root(f))
                comparison_csv_put(&table, "v", &root);
        }
        comparison_csv_put(&table, "rrrtrrrr\n", t->temperature, t->before, t->after,
                           !isfinite(t->temperature) ? ""
                           : t->at_edge              ? "yes"
                                                     : "no",
                           cost->train_seconds, cost->fit_seconds, cost->score_seconds,
                           cost->memory_mib);
    }
    return save(results, "methods.csv", &table);
}

static bp_err write_detection(const comparison_results *results)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,shift,score,in_domain,shifted");
    for (int d = 0; d < COMPARISON_DETECTIONS; d++)
        put_value_header(&table, comparison_detection_names[d]);
    bp_buffer_printf(&table, "\n");
    for (int64_t m = 0; m < results->methods.count; m++)
        for (int64_t s = 0; s < results->shifted.count; s++)
            for (int c = 0; c < COMPARISON_SCORES; c++) {
                if (c > COMPARISON_NLL && !results->results[m].has[c])
                    continue;
                comparison_csv_put(
                    &table, "tttii", results->methods.items[m].name, results->shifted.items[s].name,
                    comparison_score_name(results, c), results->in_domain.items[0].document_count,
                    results->shifted.items[s].document_count);
                for (int d = 0; d < COMPARISON_DETECTIONS; d++)
                    comparison_csv_put(&table, "v",
                                       &results->results[m].values[comparison_column(s, c, d)]);
                comparison_csv_put(&table, "\n");
            }
    return save(results, "detection.csv", &table);
}

static bp_err write_differences(const comparison_results *results)
{
    int64_t methods = results->methods.count, shifts = results->shifted.count;
    const comparison_value *values = results->differences;
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,other,figure,shift,score,difference,difference_low,"
                             "difference_high\n");
    for (int64_t i = 0; i < methods; i++)
        for (int64_t k = i + 1; k < methods; k++, values += comparison_columns(shifts)) {
            const char *one = results->methods.items[i].name,
                       *other = results->methods.items[k].name;

            for (int f = 0; f < comparison_figures(results); f++)
                if (comparison_figure_name(results, f))
                    comparison_csv_put(&table, "tttttv\n", one, other,
                                       comparison_figure_name(results, f), "", "", &values[f]);
            for (int64_t s = 0; s < shifts; s++)
                for (int c = 0; c < COMPARISON_SCORES; c++)
                    if (comparison_has_score(results, c))
                        comparison_csv_put(&table, "tttttv\n", one, other, "auroc",
                                           results->shifted.items[s].name,
                                           comparison_score_name(results, c),
                                           &values[comparison_column(s, c, COMPARISON_AUROC)]);
        }
    return save(results, "differences.csv", &table);
}

static bp_err write_reliability(const comparison_results *results)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table,
                     "method,low,high,tokens,confidence,accuracy,accuracy_low,accuracy_high\n");
    for (int64_t m = 0; m < results->methods.count; m++)
        for (int b = 0; b < BP_CALIBRATION_BINS; b++) {
            const bp_reliability *bar = &results->results[m].bars[b];

            const bp_interval *limits = &results->results[m].bar_limits[b];

            comparison_csv_put(&table, "trrirrrr\n", results->methods.items[m].name, bar->low,
                               bar->high, bar->tokens, bar->confidence, bar->accuracy, limits->low,
                               limits->high);
        }
    return save(results, "reliability.csv", &table);
}

static bp_err write_risk(const comparison_results *results)
{
    bp_buffer table = {0};

    bp_buffer_printf(&table, "method,score,coverage,error,nll,error_low,error_high\n");
    for (int64_t m = 0; m < results->methods.count; m++)
        for (int o = 0; o < COMPARISON_ORDERS; o++)
            for (int p = 0; p < BP_RISK_POINTS; p++)
                comparison_csv_put(
                    &table, "ttrrrrr\n", results->methods.items[m].name, comparison_order_names[o],
                    (p + 1) / (double)BP_RISK_POINTS, results->results[m].risk[o].error[p],
                    results->results[m].risk[o].nll[p], results->results[m].risk_limits[o][p].low,
                    results->results[m].risk_limits[o][p].high);
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

                for (int64_t p = 0; p < curve->count; p++)
                    comparison_csv_put(&table, "tttrr\n", results->methods.items[m].name,
                                       results->shifted.items[s].name,
                                       comparison_score_name(results, c), curve->points[p].fpr,
                                       curve->points[p].tpr);
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

                comparison_csv_put(&table, "ttrri\n", results->methods.items[m].name,
                                   g == 0 ? "in_domain" : results->shifted.items[g - 1].name,
                                   comparison_histogram_edge(histogram, b),
                                   comparison_histogram_edge(histogram, b + 1),
                                   histogram->counts[g * COMPARISON_HISTOGRAM_BINS + b]);
            }
    return save(results, "histogram.csv", &table);
}

static bp_err write_sets(const comparison_results *results)
{
    bp_buffer table = {0};

    if (!comparison_has_sets(results))
        return BP_OK;
    bp_buffer_printf(&table, "method,of,group,sets,documents,predictions,coverage,coverage_low,"
                             "coverage_high,size,size_low,size_high\n");
    for (int64_t m = 0; m < results->methods.count; m++)
        for (int64_t g = 0; g < results->sets[m].count; g++)
            for (int k = 0; k < BP_CONFORMAL_KINDS; k++) {
                const comparison_set_group *group = &results->sets[m].groups[g];

                comparison_csv_put(&table, "ttttiivv\n", results->methods.items[m].name, group->of,
                                   group->name, bp_conformal_names[k], group->documents,
                                   group->predictions, &group->coverage[k], &group->size[k]);
            }
    return save(results, "sets.csv", &table);
}

bp_err comparison_tables_write(const comparison_results *results)
{
    static bp_err (*const WRITE[])(const comparison_results *) = {
        write_methods, write_detection, write_differences, write_reliability,
        write_risk,    write_curves,    write_histograms,  write_sets};
    bp_err err = BP_OK;

    for (size_t k = 0; err == BP_OK && k < sizeof WRITE / sizeof(WRITE[0]); k++)
        err = WRITE[k](results);
    return err;
}
