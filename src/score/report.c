/* What people read at the end. */
#include "score/scorer_priv.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>

/* A figure in a column of 10, "-" where there is none. */
static void put_real(char *out, size_t bytes, const json_t *figures, const char *key)
{
    const json_t *value = json_object_get(figures, key);

    if (json_is_number(value))
        snprintf(out, bytes, "%.4f", json_number_value(value));
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

static void print_group(const char *prefix, const json_t *group)
{
    const char *name;
    const json_t *figures;

    json_object_foreach((json_t *)group, name, figures)
    {
        char line[128];

        snprintf(line, sizeof(line), "%s%s", prefix, name);
        print_line(line, figures);
    }
}

void scorer_report(const scorer *self)
{
    const json_t *corpora = json_object_get(self->summary, "corpora");
    const json_t *labels = json_object_get(self->summary, "labels");
    const char *name;
    const json_t *values;

    bp_log("%-28s %10s %12s %12s %10s %10s %14s", "", "documents", "tokens", "perplexity",
           "+/- docs", "bits/byte", "per word");
    print_line("all", self->summary);
    if (json_object_size(corpora) > 1)
        print_group("corpus ", corpora);
    json_object_foreach((json_t *)labels, name, values)
    {
        char prefix[64];

        snprintf(prefix, sizeof(prefix), "%s ", name);
        print_group(prefix, values);
    }
    if (self->unscored > 0)
        bp_log("%" PRId64 " text tokens were not scored: score.convention = %s, score.prefix = %s",
               self->unscored, bp_score_convention_name(self->rule.convention),
               self->rule.prefix ? "eod" : "none");
    bp_log("in %s: summary.json, documents.h5%s", self->folder,
           bp_config_bool(self->config, "score.tokens") ? ", tokens.h5" : "");
}
