/* Published files of tasks: a byte picks the task, one whether the file has labels beside it. What
 * is accepted are questions of one form, of texts, whose answer is one of the options. */
#include "fuzz.h"
#include "questions/question_files.h"

#include <string.h>

static void check_texts(const json_t *list)
{
    FUZZ_CHECK(json_array_size(list) > 0);
    for (size_t k = 0; k < json_array_size(list); k++)
        FUZZ_CHECK(json_is_string(json_array_get(list, k)));
}

static void check_question(const question *self)
{
    const json_t *context = json_object_get(self->asked, "context"), *shown, *solution;
    const json_t *contexts = json_object_get(self->asked, "contexts");
    const json_t *choices = json_object_get(self->asked, "choices");
    const json_t *target = json_object_get(self->asked, "target");
    const json_t *answer = json_object_get(self->asked, "answer");

    FUZZ_CHECK(json_is_string(json_object_get(self->asked, "task")));
    FUZZ_CHECK(!context != !contexts && !choices != !target && !(contexts && choices));
    FUZZ_CHECK((!context || json_is_string(context)) && (!target || json_is_string(target)));
    if (contexts)
        check_texts(contexts);
    if (choices)
        check_texts(choices);
    if (answer) {
        size_t options = json_array_size(contexts ? contexts : choices);

        FUZZ_CHECK(json_integer_value(answer) >= 0 && (size_t)json_integer_value(answer) < options);
    }
    if (question_solved(self, &shown, &solution))
        FUZZ_CHECK(json_is_string(shown) && json_is_string(solution));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *const NAMES[] = {"lambada",  "blimp",      "hellaswag", "winogrande",
                                        "arc_easy", "openbookqa", "piqa",      "boolq",
                                        "copa",     "mmlu"};
    fuzz_bytes in = {data, bytes};
    const char *name = NAMES[fuzz_below(&in, 10)], *part, *path;
    bool labels = fuzz_below(&in, 8) == 1;
    const question_task *task;
    question_list list = {0};
    bp_err err;

    fuzz_begin();
    path = fuzz_file_named(labels ? "labelled.jsonl" : "plain.jsonl", in.data, in.left);
    if (labels)
        (void)fuzz_file_named("labelled-labels.lst", "0\n1\n", 4);
    FUZZ_CHECK(question_task_find(&task, &part, name) == BP_OK);
    err = question_list_read(&list, task, part, path);
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    FUZZ_CHECK(err != BP_OK || list.count > 0);
    for (int64_t k = 0; k < list.count && err == BP_OK; k++)
        check_question(&list.all[k]);
    question_list_clear(&list);
    fuzz_end();
    return 0;
}
