/* The results of question sets, for table and compare. */
#include "questions/answers.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/mem.h"
#include "file_tool.h"

#include <math.h>
#include <string.h>

#define SUMMARY_BYTES ((int64_t)1 << 30)
#define LINES_BYTES   ((int64_t)1 << 33)

const char *const answers_way_names[ANSWERS_WAYS] = {"acc", "acc_norm", "acc_token"};

/* summary.json of a folder; NULL: there is none. */
static char *find_summary(const char *folder)
{
    static const char *const INSIDES[] = {"score/summary.json", "summary.json"};

    for (size_t k = 0; k < sizeof INSIDES / sizeof INSIDES[0]; k++) {
        char *path = bp_path_join(folder, INSIDES[k]);

        if (bp_path_exists(path))
            return path;
        bp_free(path);
    }
    return NULL;
}

static bool is_of_questions(const json_t *summary)
{
    const char *format = json_string_value(json_object_get(summary, "format"));

    return format && strcmp(format, "bagpipe-questions") == 0;
}

bool answers_are_at(const char *given)
{
    char *path = find_summary(named_folder(given));
    json_t *summary = NULL;
    bool are =
        path && bp_json_load(&summary, path, SUMMARY_BYTES) == BP_OK && is_of_questions(summary);

    json_decref(summary);
    bp_free(path);
    return are;
}

/* ---- a line ---- */

static uint64_t hash_of(const json_t *line)
{
    static const char *const KEYS[] = {"context", "contexts", "choices", "target", "answer"};
    json_t *asked = json_object();
    char *text;
    uint64_t hash;

    for (size_t k = 0; k < sizeof KEYS / sizeof KEYS[0]; k++)
        if (json_object_get(line, KEYS[k]))
            (void)json_object_set(asked, KEYS[k], json_object_get(line, KEYS[k]));
    text = bp_json_line(asked);
    hash = bp_xxh3(text, strlen(text));
    bp_free(text);
    json_decref(asked);
    return hash;
}

/* NaN: the option has no value. */
static double value_of(const json_t *line, size_t option, answers_way way)
{
    static const char *const SIZES[ANSWERS_WAYS] = {NULL, "bytes", "tokens"};
    const json_t *logprob = json_array_get(json_object_get(line, "logprobs"), option);
    double size =
        way == ANSWERS_ACC
            ? 1
            : json_number_value(json_array_get(json_object_get(line, SIZES[way]), option));

    return json_is_number(logprob) ? json_number_value(logprob) / size : NAN;
}

static void check_answer(answers_line *to, const json_t *line, answers_way way)
{
    const json_t *answer = json_object_get(line, "answer");
    size_t options = json_array_size(json_object_get(line, "logprobs")), best = 0, equal = 0;
    double of_answer, most = NAN;

    if (!json_is_integer(answer))
        return;
    of_answer = value_of(line, (size_t)json_integer_value(answer), way);
    for (size_t k = 0; k < options; k++) {
        double value = value_of(line, k, way);

        if (!isnan(value) && (isnan(most) || value > most)) {
            most = value;
            best = k;
        }
    }
    for (size_t k = 0; k < options; k++)
        equal += value_of(line, k, way) == most;
    if (isnan(most))
        return;
    to->right = best == (size_t)json_integer_value(answer);
    to->tie = equal > 1 && of_answer == most;
}

static bp_err take_line(void *context, const json_t *line, int64_t number)
{
    answers *all = context;
    const char *task = json_string_value(json_object_get(line, "task")),
               *group = json_string_value(json_object_get(line, "group"));
    bool is_target = !json_object_get(line, "choices") && !json_object_get(line, "contexts");
    const json_t *greedy = json_array_get(json_object_get(line, "greedy"), 0);
    answers_line *to;

    if (!json_is_array(json_object_get(line, "logprobs")))
        return BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                       "line %lld has no \"logprobs\": at %s; score again", (long long)number,
                       all->lines_path);
    if (all->count == all->capacity) {
        all->capacity = all->capacity ? 2 * all->capacity : 256;
        all->lines = bp_realloc("tool.answers", all->lines, all->capacity, sizeof *all->lines);
    }
    to = &all->lines[all->count++];
    *to = (answers_line){.task = bp_strdup(task ? task : "questions"),
                         .group = group ? bp_strdup(group) : NULL,
                         .asked = hash_of(line),
                         .right = NAN};
    if (!is_target)
        check_answer(to, line, all->way);
    else if (json_is_boolean(greedy) && all->way == ANSWERS_ACC)
        to->right = json_is_true(greedy);
    return BP_OK;
}

/* ---- all ---- */

static bp_err read_lines(answers *all)
{
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = bp_file_read(all->lines_path, LINES_BYTES, &text, &bytes);

    if (err == BP_OK)
        err = bp_json_lines(text, bytes, all->lines_path, take_line, all);
    bp_free(text);
    return err;
}

bp_err answers_load(answers *all, const char *given, bool lines)
{
    bp_err err;

    all->given = given;
    all->summary_path = find_summary(given);
    if (!all->summary_path)
        return BP_FAIL(BP_ERR_INPUT, "scores.missing",
                       "there is no summary.json of scores: at %s; name the run folder of a "
                       "finished score job",
                       given);
    all->lines_path =
        bp_sprintf("%.*squestions.jsonl",
                   (int)(bp_path_base(all->summary_path) - all->summary_path), all->summary_path);
    err = bp_json_load(&all->summary, all->summary_path, SUMMARY_BYTES);
    if (err == BP_OK && !is_of_questions(all->summary))
        err = BP_FAIL(BP_ERR_FORMAT, "scores.not_questions",
                      "this run has other results than answers to questions: at %s; name runs of "
                      "score.questions alone, or runs of other scores alone",
                      all->summary_path);
    return err == BP_OK && lines ? read_lines(all) : err;
}

void answers_clear(answers *all)
{
    for (int64_t k = 0; k < all->count; k++) {
        bp_free(all->lines[k].task);
        bp_free(all->lines[k].group);
    }
    bp_free(all->lines);
    json_decref(all->summary);
    bp_free(all->lines_path);
    bp_free(all->summary_path);
    *all = (answers){0};
}

/* A context of 0 has no limit, as that of n-gram models. */
static void put_setting(bp_buffer *out, const json_t *value)
{
    if (json_is_string(value))
        bp_buffer_printf(out, "%s", json_string_value(value));
    else if (json_integer_value(value) > 0)
        bp_buffer_printf(out, "%lld", (long long)json_integer_value(value));
    else
        bp_buffer_printf(out, "none");
}

char *answers_differences(const json_t *summary, const json_t *other)
{
    static const char *const KEYS[] = {"context", "prefix", "precision"};
    const json_t *of[] = {json_object_get(summary, "convention"),
                          json_object_get(other, "convention")};
    bp_buffer out = {0};

    for (size_t k = 0; k < sizeof KEYS / sizeof KEYS[0]; k++) {
        const json_t *values[] = {json_object_get(of[0], KEYS[k]), json_object_get(of[1], KEYS[k])};

        if (json_equal(values[0], values[1]))
            continue;
        bp_buffer_printf(&out, "%s%s (", out.bytes > 0 ? ", " : "", KEYS[k]);
        put_setting(&out, values[0]);
        bp_buffer_printf(&out, " and ");
        put_setting(&out, values[1]);
        bp_buffer_printf(&out, ")");
    }
    return out.bytes > 0 ? bp_buffer_take(&out) : NULL;
}
