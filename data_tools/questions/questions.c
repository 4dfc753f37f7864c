/* bagpipe-data questions: question sets of the published files of known tasks. */
#include "arguments.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/mesh.h"
#include "output.h"
#include "questions/python_random.h"
#include "questions/question_files.h"
#include "tools.h"

#include <inttypes.h>
#include <string.h>

#define MOST_SHOTS 1000

typedef struct questions_arguments {
    const char *name, *out;
    int64_t shots, seed;
    tool_texts from;
    tool_files files;
} questions_arguments;

/* The examples of one task, or of one part of it. */
typedef struct source {
    const char *part; /* borrowed; NULL */
    const question **pool;
    int64_t count;
    python_random random;
} source;

typedef struct work {
    const questions_arguments *arguments;
    const question_task *task;
    const char *part;
    question_list asked, examples;
    source *sources;
    int64_t source_count, source_capacity;
} work;

static const struct argp_option OPTIONS[] = {
    {"task", 't', "NAME", 0, "the task, or TASK_PART where it has parts (required)", 1},
    {"out", 'o', "FILE", 0, "the question set to write (required)", 1},
    {"shots", 0, "N", 0, "put N solved examples before each question (default 0)", 1},
    {"seed", 0, "S", 0, "of the draw of examples (default 1234, the harness's)", 1},
    {"from", 0, "FILE", 0,
     "where examples are drawn from: a file of the task. May be given several times", 1},
    {0}};

static const bp_help_row TASKS[] = {
    {"lambada", "the last word of a passage (OpenAI's lambada_test_en.jsonl)"},
    {"blimp", "minimal pairs (SUBSET.jsonl, a file for each subset)"},
    {"hellaswag", "endings (hellaswag_val.jsonl)"},
    {"winogrande", "two readings of a pronoun (dev.jsonl, train_xl.jsonl)"},
    {"arc", "science questions (ARC-Easy-Test.jsonl, ARC-Challenge-Test.jsonl)"},
    {"piqa", "physical common sense (valid.jsonl, with valid-labels.lst beside)"},
    {"openbookqa", "science questions (test.jsonl of Main)"},
    {"boolq", "yes or no, by a passage (val.jsonl of SuperGLUE, or dev.jsonl)"},
    {"copa", "causes and effects (val.jsonl of SuperGLUE)"},
    {"mmlu", "exams in 57 subjects (SUBJECT_test.csv; examples: SUBJECT_dev.csv)"},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line; no such task; a part that neither row nor file name says"},
    {"65", "wrong content of a file, the line is named; too few examples"},
    {"66", "a file is missing"},
    {"73, 74, 77", "the output cannot be written"},
    {0}};

/* ---- examples ---- */

static bool same_part(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bp_err source_of(source **out, work *self, const char *part)
{
    source *made;

    for (int64_t k = 0; k < self->source_count; k++) {
        *out = &self->sources[k];
        if (same_part(part, (*out)->part))
            return BP_OK;
    }
    self->sources = bp_grow("tool.questions", self->sources, &self->source_capacity,
                            self->source_count + 1, sizeof *self->sources);
    made = &self->sources[self->source_count++];
    made->part = part;
    made->count = 0;
    made->pool = bp_alloc("tool.questions", self->examples.count + 1, sizeof(question *));
    for (int64_t k = 0; k < self->examples.count; k++)
        if (same_part(part, self->examples.all[k].part))
            made->pool[made->count++] = &self->examples.all[k];
    python_random_init(&made->random, (uint64_t)self->arguments->seed);
    *out = made;
    return BP_OK;
}

/* The numbers of the examples of a question: at most `shots` of chosen[shots + 1]. */
static int64_t choose(int64_t *chosen, const work *self, source *from, const question *asked)
{
    int64_t shots = self->arguments->shots, kept = 0;
    int64_t drawn = shots + (self->task->shots == SHOTS_OTHER);

    if (drawn > from->count)
        return 0;
    if (self->task->shots == SHOTS_FIRST)
        for (int64_t k = 0; k < shots; k++)
            chosen[k] = k;
    else
        python_random_sample(&from->random, chosen, from->count, drawn);
    for (int64_t k = 0; k < drawn && kept < shots; k++)
        if (self->task->shots != SHOTS_OTHER || !json_equal(from->pool[chosen[k]]->row, asked->row))
            chosen[kept++] = chosen[k];
    return kept;
}

/* An example: its context, a blank and its answer, and an empty line after it; only the context
 * where a target is empty. */
static bp_err add_example(bp_buffer *before, const question *example, const work *self)
{
    const json_t *context, *answer;

    if (!question_solved(example, &context, &answer))
        return BP_FAIL(BP_ERR_FORMAT, "questions.no_answer",
                       "the answer of an example of %s is not known: at --from; name a file with "
                       "answers, such as that of the training set",
                       self->arguments->name);
    bp_buffer_add(before, json_string_value(context), json_string_length(context));
    if (json_string_length(answer) == 0 && json_object_get(example->asked, "target"))
        return BP_OK;
    bp_buffer_add(before, " ", 1);
    bp_buffer_add(before, json_string_value(answer), json_string_length(answer));
    bp_buffer_add(before, "\n\n", 2);
    return BP_OK;
}

static bp_err add_examples(bp_buffer *before, work *self, const question *asked)
{
    int64_t shots = self->arguments->shots, kept;
    int64_t *chosen = bp_alloc("tool.questions", shots + 1, sizeof *chosen);
    source *from;
    bp_err err = source_of(&from, self, asked->part);

    kept = choose(chosen, self, from, asked);
    if (kept < shots)
        err = BP_FAIL(BP_ERR_FORMAT, "questions.few_examples",
                      "there are %" PRId64 " examples of %s, too few for --shots %" PRId64
                      ": at --from; name a file with more",
                      from->count, json_string_value(json_object_get(asked->asked, "task")), shots);
    for (int64_t k = 0; k < kept && err == BP_OK; k++)
        err = add_example(before, from->pool[chosen[k]], self);
    bp_free(chosen);
    return err;
}

/* ---- the work ---- */

static json_t *joined(const bp_buffer *before, const json_t *context, const char *end)
{
    bp_buffer all = {0};
    json_t *text;

    if (before->bytes > 0)
        bp_buffer_add(&all, before->data, before->bytes);
    bp_buffer_add(&all, json_string_value(context), json_string_length(context));
    bp_buffer_add(&all, end, strlen(end));
    text = json_stringn_nocheck(all.bytes ? all.data : "", all.bytes);
    bp_buffer_clear(&all);
    return text;
}

/* Put what precedes it before a question's contexts, and after them the blank that parts them from
 * what follows; a target brings its own. */
static void complete(question *self, const bp_buffer *before)
{
    json_t *contexts = json_object_get(self->asked, "contexts");
    json_t *context = json_object_get(self->asked, "context");

    for (size_t k = 0; k < json_array_size(contexts); k++)
        (void)json_array_set_new(contexts, k, joined(before, json_array_get(contexts, k), " "));
    if (context)
        (void)json_object_set_new(
            self->asked, "context",
            joined(before, context, json_object_get(self->asked, "target") ? "" : " "));
}

static bp_err write_question(bp_draft *draft, work *self, question *asked)
{
    bp_buffer before = {0};
    char *line;
    bp_err err = BP_OK;

    if (self->task->introduce)
        self->task->introduce(&before, asked->part);
    if (self->arguments->shots > 0)
        err = add_examples(&before, self, asked);
    if (err == BP_OK) {
        complete(asked, &before);
        line = bp_json_line(asked->asked);
        err = bp_draft_write(draft, line, strlen(line));
        bp_free(line);
    }
    bp_buffer_clear(&before);
    return err;
}

static bp_err write_all(work *self)
{
    bp_draft draft;
    bp_err err = bp_draft_open(&draft, self->arguments->out);

    if (err != BP_OK)
        return err;
    for (int64_t k = 0; k < self->asked.count && err == BP_OK; k++)
        err = write_question(&draft, self, &self->asked.all[k]);
    return bp_draft_end(&draft, err);
}

static bp_err make(work *self)
{
    const questions_arguments *arguments = self->arguments;
    bp_err err = BP_OK;

    for (int k = 0; k < arguments->files.count && err == BP_OK; k++)
        err = question_list_read(&self->asked, self->task, self->part, arguments->files.list[k]);
    for (int k = 0; k < arguments->from.count && err == BP_OK; k++)
        err = question_list_read(&self->examples, self->task, self->part, arguments->from.list[k]);
    if (err == BP_OK)
        err = write_all(self);
    if (err == BP_OK)
        bp_log("%s: %" PRId64 " questions of %s", arguments->out, self->asked.count,
               arguments->name);
    question_list_clear(&self->asked);
    question_list_clear(&self->examples);
    for (int64_t k = 0; k < self->source_count; k++)
        bp_free(self->sources[k].pool);
    bp_free(self->sources);
    return err;
}

/* ---- the tool ---- */

static bp_err check(const questions_arguments *arguments, const question_task *task)
{
    bp_err err = bp_stdin_check(arguments->files.list, arguments->files.count);

    if (err == BP_OK && (arguments->shots > 0) != (arguments->from.count > 0))
        err =
            BP_FAIL(BP_ERR_USAGE, "command.needs_from", "%s: at %s; --shots and --from go together",
                    arguments->shots > 0 ? "no file of examples is named"
                                         : "no number of examples is given",
                    arguments->shots > 0 ? "--shots" : "--from");
    if (err == BP_OK && arguments->shots > 0 && task->shots == SHOTS_NONE)
        err = BP_FAIL(BP_ERR_USAGE, "command.no_shots",
                      "questions of %s have no examples: at --shots; leave it out", task->name);
    for (int k = 0; k < arguments->files.count && err == BP_OK; k++)
        err = bp_output_is_not(arguments->out, arguments->files.list[k]);
    for (int k = 0; k < arguments->from.count && err == BP_OK; k++)
        err = bp_output_is_not(arguments->out, arguments->from.list[k]);
    return err;
}

static bp_err run(int argc, char **argv)
{
    questions_arguments arguments = {.seed = 1234};
    const tool_value values[] = {
        {.option = "task", .text = &arguments.name},
        {.option = "out", .text = &arguments.out},
        {.option = "shots", .number = &arguments.shots, .low = 0, .high = MOST_SHOTS},
        {.option = "seed", .number = &arguments.seed, .low = 0, .high = INT64_MAX},
        {.option = "from", .texts = &arguments.from},
        {0}};
    work self = {.arguments = &arguments};
    bp_err err = tool_parse(&bp_tool_questions, values, &arguments.files, argc, argv);

    if (err == BP_OK && (!arguments.name || !arguments.out || arguments.files.count == 0))
        err = BP_FAIL(BP_ERR_USAGE, "command.no_input",
                      "it takes --task NAME, --out FILE and one file or more: at the command line; "
                      "see bagpipe-data questions --help");
    if (err == BP_OK)
        err = question_task_find(&self.task, &self.part, arguments.name);
    if (err == BP_OK)
        err = check(&arguments, self.task);
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        err = make(&self);
    bp_free(arguments.from.list);
    return bp_agree(MPI_COMM_WORLD, err);
}

const bp_tool bp_tool_questions = {
    .name = "questions",
    .help =
        {.name = "bagpipe-data questions",
         .usage = "--task NAME [OPTION...] FILE... --out Q.jsonl",
         .summary = "makes a question set of the published files of a known task",
         .text =
             "The question set is for bagpipe score with score.questions. Contexts, choices and "
             "examples are those of lm-evaluation-harness, and so are names: arc_easy, "
             "lambada_openai, mmlu_anatomy.\n"
             "A FILE is as its authors publish it, JSON Lines, of mmlu CSV; rows of Hugging Face's "
             "data sets as JSON Lines do too. It may be compressed with gzip or zstd; - is "
             "standard input. What part of a task it is a row says, or the file's name, or --task: "
             "arc_easy, mmlu_anatomy, blimp_wh_island, lambada_standard. A question whose answer "
             "is not published has none.\n"
             "With --shots examples are drawn as the harness draws them, with Python's generator, "
             "in the order of the questions: of hellaswag, winogrande, piqa, boolq and copa "
             "without the question itself, of mmlu the first ones, of blimp none. The examples of "
             "a part are those of the same part.",
         .list_head = "Tasks:",
         .list = TASKS,
         .options = OPTIONS,
         .examples = "  bagpipe-data questions --task hellaswag hellaswag_val.jsonl --out h.jsonl\n"
                     "  bagpipe-data questions --task arc --shots 25 --out arc.jsonl \\\n"
                     "      --from ARC-Challenge-Train.jsonl ARC-Challenge-Test.jsonl\n"
                     "  bagpipe score small.ini run.dir=runs/arc score.questions=arc.jsonl\n",
         .statuses = STATUSES},
    .run = run};
