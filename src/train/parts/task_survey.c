/* A survey of the documents of a fine-tuning before it begins: how many are cut, how much is
 * padding, which classes are rare. On the coordinator. Called by task.c. */
#include "train/parts/task_survey.h"

#include "base/log.h"
#include "train/loop/examples.h"

#include <inttypes.h>

/* Counts a question's window: does it hold the answer, and is the question cut? */
static void survey_window(const trainer *self, task_survey *task, const bp_document *document,
                          bool *holds)
{
    bp_task_pair pair = bp_task_window(document, &self->rules.windows);
    int64_t first = pair.text[1] - document->tokens, more = document->starts[1] - pair.tokens[0];

    task->windows++;
    task->padding += (double)bp_task_positions(&self->rules.frame, &pair);
    if (document->window == 0) {
        task->documents++;
        task->documents_cut += more > 0;
        task->tokens_cut += more;
        *holds = document->answer[1] == 0;
        task->answers_lost += !*holds;
    }
    if (!*holds && document->answer[0] >= first && document->answer[1] <= first + pair.tokens[1]) {
        *holds = true;
        task->answers_lost--;
    }
}

/* Counts classes of documents and cut tokens. */
static bp_err survey_document(const trainer *self, task_survey *task, const bp_document *document,
                              int64_t *of_class)
{
    bp_task_pair pair = bp_task_texts(document, self->rules.pairs);
    int64_t more = bp_task_positions(&self->rules.frame, &pair) - self->shape.context;

    if (document->label >= 0)
        of_class[document->label]++;
    task->documents_cut += more > 0;
    task->tokens_cut += more > 0 ? more : 0;
    task->padding += (double)(self->shape.context + (more < 0 ? more : 0));
    return bp_task_check_document(document, bp_corpus_keys_of(self->config)->train);
}

static void warn_of_rare_class(const trainer *self, const int64_t *of_class)
{
    for (int64_t k = 0; k < self->examples.columns.class_count; k++)
        if (of_class[k] == 1) {
            BP_WARN("task.rare_class",
                    "the class '%.60s' has one document: at corpus.train; what the model says of "
                    "it is worth little",
                    self->examples.columns.classes[k]);
            return;
        }
}

bp_err task_survey_run(task_survey *out, const trainer *self)
{
    int64_t *of_class = bp_alloc("input", self->examples.columns.class_count, sizeof *of_class);
    bp_document_table *table = NULL;
    bp_stream *plain = NULL;
    const bp_document *document;
    int64_t entries = 0;
    bool holds = true;
    bp_err err = bp_stream_new(&plain, &(bp_stream_spec){.corpus = self->data.corpus});

    if (err == BP_OK)
        err = bp_trainer_open_table(self, plain, &table);
    if (err == BP_OK)
        entries = bp_document_table_count(table);
    if (!self->examples.columns.spans)
        out->documents = entries;
    for (int64_t d = 0; d < entries && err == BP_OK; d++) {
        err = bp_document_table_read(table, d, NULL, &document);
        if (err == BP_OK && self->examples.columns.spans)
            survey_window(self, out, document, &holds);
        else if (err == BP_OK)
            err = survey_document(self, out, document, of_class);
    }
    if (err == BP_OK)
        warn_of_rare_class(self, of_class);
    if (entries > 0) /* so far it counts positions that are filled */
        out->padding = 1 - out->padding / ((double)entries * (double)self->shape.context);
    bp_document_table_free(&table);
    bp_stream_free(&plain);
    bp_free(of_class);
    return err;
}

void task_survey_log_cuts(const task_survey *survey, const trainer *self)
{
    if (self->examples.columns.spans)
        bp_log("task: %" PRId64 " questions in %" PRId64 " windows; %" PRId64
               " answers are in none, %" PRId64 " questions are cut, by %" PRId64 " tokens",
               survey->documents, survey->windows, survey->answers_lost, survey->documents_cut,
               survey->tokens_cut);
    else if (survey->documents_cut > 0)
        bp_log("task: %" PRId64 " of %" PRId64 " documents are longer than model.context = %" PRId64
               ": %" PRId64 " tokens are cut in all, from the ends of %s",
               survey->documents_cut, survey->documents, self->shape.context, survey->tokens_cut,
               self->rules.pairs ? "their longer texts" : "these");
}
