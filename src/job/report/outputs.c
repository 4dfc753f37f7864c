/* A line of outputs.jsonl. Called by generate's page, and by tools of bagpipe-data. */
#include "job/report/outputs.h"

#include <inttypes.h>
#include <math.h>

bp_err bp_output_fail(const char *path, int64_t number, const char *key)
{
    return BP_FAIL(BP_ERR_FORMAT, "outputs.bad_line",
                   "'%s' is missing, or is not what bagpipe writes there: at %s:%" PRId64
                   "; make the file again",
                   key, path, number);
}

static bool are_ids(const json_t *tokens)
{
    bool are = json_is_array(tokens);

    for (size_t k = 0; are && k < json_array_size(tokens); k++) {
        const json_t *id = json_array_get(tokens, k);

        are = json_is_integer(id) && json_integer_value(id) >= 0 &&
              json_integer_value(id) <= INT32_MAX;
    }
    return are;
}

static const json_t *string_of(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);

    return json_is_string(value) ? value : NULL;
}

bp_err bp_output_read(bp_output *out, const json_t *line, int64_t before, const char *path,
                      int64_t number)
{
    const json_t *index = json_object_get(line, "index");

    *out = (bp_output){.line = line,
                       .index = json_is_integer(index) ? json_integer_value(index) : -1,
                       .left_out = string_of(line, "error") != NULL,
                       .prompt = string_of(line, "prompt"),
                       .text = string_of(line, "text"),
                       .tokens = json_object_get(line, "tokens")};
    if (out->index < 0 || (out->index != before && out->index != before + 1))
        return bp_output_fail(path, number, "index");
    return are_ids(out->tokens) ? BP_OK : bp_output_fail(path, number, "tokens");
}

double bp_output_certainty(const json_t *line, int order)
{
    const json_t *values = json_object_get(line, order == 0 ? "logprobs" : "mutual_information");
    size_t count = json_array_size(values);
    double sum = 0;

    if (!values)
        return NAN;
    for (size_t k = 0; k < count; k++)
        sum += json_number_value(json_array_get(values, k));
    return count == 0 ? -INFINITY : (order == 0 ? sum : -sum) / (double)count;
}
