/* What people read at the end. */
#include "score/scorer_priv.h"

#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#define HUGE_REAL 1e5 /* more does not fit into 10 places with 4 behind the point */

/* A figure in a column of 10, "-" where there is none. */
static void put_real(char *out, size_t bytes, const json_t *figures, const char *key)
{
    const json_t *value = json_object_get(figures, key);

    if (json_is_number(value))
        snprintf(out, bytes, fabs(json_number_value(value)) < HUGE_REAL ? "%.4f" : "%.5g",
                 json_number_value(value));
    else
        snprintf(out, bytes, "-");
}

static void print_line(const char *name, const json_t *figures)
{
    char perplexity[32], error[32], bits[32], word[32];

    put_real(perplexity, sizeof(perplexity), figures, "perplexity");
    put_real(error, sizeof(error), figures, "perplexity_stderr_documents");
    put_real(bits, sizeof(bits), figures, "bits_per_byte");
    put_real(word, sizeof(word), figures, "word_perplexity");
    bp_log("%-28s %10lld %12lld %12s %10s %10s %14s", name,
           (long long)json_integer_value(json_object_get(figures, "documents")),
           (long long)json_integer_value(json_object_get(figures, "tokens")), perplexity, error,
           bits, word);
}

/* What the members disagree about: the mixture beside the best and the worst of them. */
static void print_ensemble_line(const char *name, const json_t *figures)
{
    const json_t *members = json_object_get(figures, "members");
    char mixture[32], low[32] = "-", high[32] = "-", information[32], accuracy[32];
    double least = INFINITY, most = -INFINITY;

    for (size_t m = 0; m < json_array_size(members); m++) {
        const json_t *value = json_object_get(json_array_get(members, m), "perplexity");

        if (json_is_number(value)) {
            least = fmin(least, json_number_value(value));
            most = fmax(most, json_number_value(value));
        }
    }
    if (isfinite(least)) {
        snprintf(low, sizeof(low), least < HUGE_REAL ? "%.4f" : "%.5g", least);
        snprintf(high, sizeof(high), most < HUGE_REAL ? "%.4f" : "%.5g", most);
    }
    put_real(mixture, sizeof(mixture), figures, "perplexity");
    put_real(information, sizeof(information), figures, "mutual_information");
    put_real(accuracy, sizeof(accuracy), figures, "accuracy");
    bp_log("%-28s %12s %12s %12s %18s %10s", name, mixture, low, high, information, accuracy);
}

typedef void print_row(const char *name, const json_t *figures);

static void print_group(const char *prefix, const json_t *group, print_row *row)
{
    const char *name;
    const json_t *figures;

    json_object_foreach((json_t *)group, name, figures)
    {
        char line[128];

        snprintf(line, sizeof(line), "%s%s", prefix, name);
        row(line, figures);
    }
}

/* All, each corpus and each label value. */
static void print_table(const json_t *summary, print_row *row)
{
    const json_t *corpora = json_object_get(summary, "corpora");
    const char *name;
    const json_t *values;

    row("all", summary);
    if (json_object_size(corpora) > 1)
        print_group("corpus ", corpora, row);
    json_object_foreach(json_object_get(summary, "labels"), name, values)
    {
        char prefix[64];

        snprintf(prefix, sizeof(prefix), "%s ", name);
        print_group(prefix, values, row);
    }
}

void scorer_report(const scorer *self)
{
    bp_log("%-28s %10s %12s %12s %10s %10s %14s", "", "documents", "tokens", "perplexity",
           "+/- docs", "bits/byte", "per word");
    print_table(self->summary, print_line);
    if (self->channels.members > 0) {
        bp_log("%-28s %12s %12s %12s %18s %10s", "", "mixture", "best member", "worst member",
               "mutual information", "accuracy");
        print_table(self->summary, print_ensemble_line);
    }
    if (self->unscored > 0)
        bp_log("%" PRId64 " text tokens were not scored: score.convention = %s, score.prefix = %s",
               self->unscored, bp_score_convention_name(self->rule.convention),
               self->rule.prefix ? "eod" : "none");
    bp_log("in %s: summary.json, documents.h5%s", self->folder,
           bp_config_bool(self->config, "score.tokens") ? ", tokens.h5" : "");
}
