/* The merge of the choices' parts: score/candidates.jsonl, and the figures for summary.json. Called
 * by units.c after its last unit, on the coordinator. */
#include "infer/score/candidates/units_priv.h"

#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "infer/score/keys.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static json_t *line_of(const bp_candidates *all, const choice_result *results,
                       const double *logprobs_of, int64_t document)
{
    json_t *logprobs = json_array(), *tokens = json_array(), *bytes = json_array(),
           *greedy = json_array();
    int64_t best = bp_candidates_best(all, logprobs_of, document);
    json_t *line =
        json_pack("{s:I, s:o, s:o, s:o, s:o, s:o}", "document", (json_int_t)document, "logprobs",
                  logprobs, "tokens", tokens, "bytes", bytes, "greedy", greedy, "best",
                  best >= 0 ? json_integer((json_int_t)best) : json_null());

    for (int64_t r = all->first[document]; r < all->first[document + 1]; r++) {
        bool known = results[r].greedy != GREEDY_UNKNOWN && all->rows[r].scored > 0;

        (void)json_array_append_new(logprobs, bp_json_real(logprobs_of[r]));
        (void)json_array_append_new(tokens, json_integer((json_int_t)all->rows[r].scored));
        (void)json_array_append_new(greedy,
                                    known ? json_boolean(results[r].greedy > 0) : json_null());
        (void)json_array_append_new(bytes, json_integer((json_int_t)all->rows[r].bytes));
    }
    (void)json_object_set_new(
        line, "answer",
        all->answer[document] >= 0 ? json_integer((json_int_t)all->answer[document]) : json_null());
    return line;
}

static bp_err write_lines(const scorer *self, const bp_candidates *all,
                          const choice_result *results, const double *logprobs)
{
    char *path = bp_path_join(self->folder, "candidates.jsonl");
    bp_draft draft;
    bp_err err = bp_draft_open(&draft, path);

    bp_free(path);
    if (err != BP_OK)
        return err;
    for (int64_t d = 0; err == BP_OK && d < all->documents; d++) {
        json_t *line = line_of(all, results, logprobs, d);
        err = bp_json_write_line(&draft, line);
    }
    return bp_draft_end(&draft, err);
}

static json_t *figures_of(const scorer *self, const bp_candidates *all, const double *logprobs)
{
    json_t *figures = bp_candidates_summary(all, logprobs, self->clusters,
                                            (uint64_t)bp_run_keys_of(self->config)->seed);

    (void)json_object_set_new(figures, "documents", json_integer((json_int_t)all->documents));
    (void)json_object_set_new(figures, "choices",
                              json_integer((json_int_t)all->first[all->documents]));
    if (all->unscored > 0)
        (void)json_object_set_new(figures, "unscored", json_integer((json_int_t)all->unscored));
    return figures;
}

static void warn_of_ties(const scorer *self, const json_t *figures)
{
    const json_t *accuracy = json_object_get(figures, "accuracy");
    int64_t ties = json_integer_value(json_object_get(accuracy, "ties"));

    if (ties > 0)
        BP_WARN("choices.ties",
                "the answer of %" PRId64 " of %" PRId64 " documents is one of several equally "
                "probable choices, and counts as right where it is the first of them: accuracy "
                "%.4g, %.4g if each were taken equally often: at %s; report that, or leave such "
                "documents out",
                ties, (int64_t)json_integer_value(json_object_get(figures, "answered")),
                json_number_value(json_object_get(accuracy, "value")),
                json_number_value(json_object_get(accuracy, "shared")),
                bp_score_keys_of(self->config)->candidates);
}

bp_err candidates_merge(const scorer *self, candidate_units *own, bp_parts *parts)
{
    const chooser *c = &own->chooser;
    int64_t rows = c->starts[c->count];
    choice_result *results = bp_alloc("score.candidates", rows, sizeof *results);
    double *logprobs = bp_alloc("score.candidates", rows, sizeof *logprobs);
    bp_err err = chooser_take(c, parts, results, NULL);

    for (int64_t r = 0; r < rows; r++)
        logprobs[r] = c->all->rows[r].scored > 0 ? results[r].logprob : NAN;
    if (err == BP_OK)
        err = write_lines(self, c->all, results, logprobs);
    if (err == BP_OK)
        own->figures = figures_of(self, c->all, logprobs);
    if (err == BP_OK)
        warn_of_ties(self, own->figures);
    bp_free(logprobs);
    bp_free(results);
    return err;
}
