/* leakage measure: how much of what models wrote is text of the training, from the source of the
 * prompt and from anywhere. */
#include "leakage.h"

#include "base/numbers.h"
#include "leakage_runs.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/signals.h"
#include "file_tool.h"
#include "io/corpus/corpus_file.h"
#include "job/report/outputs.h"
#include "mesh/mesh.h"
#include "outputs.h"
#include "report.h"
#include "run/run_compare.h"
#include "statistics/ratio.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct cut_prompt {
    int64_t length, copies, source, at, document_tokens, first, count; /* first: of its
                                                                          continuation's tokens */
} cut_prompt;

/* The largest of the texts of one prompt. */
typedef struct measured {
    int64_t prefix, source_run, corpus_run, texts;
    bool extracted, whole; /* whole: all of a text, of 10 tokens or more, is in the corpora */
} measured;

typedef struct model_outputs {
    outputs outputs;
    measured *of; /* [outputs.prompts] */
    char *name;
} model_outputs;

typedef struct measuring {
    const leakage_arguments *arguments;
    char *prompts_path;
    cut_prompt *prompts; /* [prompt_count]; NULL: outputs of other prompts */
    int64_t prompt_count, prompt_capacity;
    int32_t *continuations;
    int64_t token_count, token_capacity;
    model_outputs *models; /* [model_count] */
    int model_count;
    run_index index;
    int64_t corpus_tokens, corpus_documents;
} measuring;

#define WHOLE_LEAST 10

/* ---- prompts ---- */

static bool get(const json_t *line, const char *key, int64_t *out)
{
    const json_t *value = json_object_get(line, key);

    *out = json_integer_value(value);
    return json_is_integer(value) && *out >= 0;
}

static bp_err add_prompt(void *context, const json_t *line, int64_t number)
{
    measuring *self = context;
    const json_t *tokens = json_object_get(line, "continuation");
    cut_prompt one = {.first = self->token_count, .count = (int64_t)json_array_size(tokens)};

    if (!get(line, "length", &one.length) || !get(line, "copies", &one.copies) ||
        !get(line, "source", &one.source) || !get(line, "at", &one.at) ||
        !get(line, "document_tokens", &one.document_tokens) || one.count == 0)
        return bp_output_fail(self->prompts_path, number, "continuation");
    self->prompts = bp_grow("tool.leakage", self->prompts, &self->prompt_capacity,
                            self->prompt_count + 1, sizeof *self->prompts);
    self->prompts[self->prompt_count++] = one;
    self->continuations = bp_grow("tool.leakage", self->continuations, &self->token_capacity,
                                  self->token_count + one.count, sizeof *self->continuations);
    for (int64_t k = 0; k < one.count; k++)
        self->continuations[self->token_count++] =
            (int32_t)json_integer_value(json_array_get(tokens, (size_t)k));
    return BP_OK;
}

/* Outputs of another file of prompts, as far as their run says. */
static bp_err check_prompts(const measuring *self, const model_outputs *model)
{
    const char *run = model->outputs.run, *path;
    run_pairs pairs = {0};
    bool other = model->outputs.prompts > self->prompt_count;
    bp_err err = bp_run_pairs_read(&pairs, run);

    if (err == BP_OK && (path = bp_run_pairs_find(&pairs, "generate.prompts"))) {
        char *theirs = realpath(path, NULL), *ours = realpath(self->prompts_path, NULL);

        other |= theirs && ours && strcmp(theirs, ours) != 0;
        free(theirs); /* realpath's */
        free(ours);
    }
    bp_run_pairs_clear(&pairs);
    if (err != BP_OK || !other)
        return err;
    return BP_FAIL(BP_ERR_FORMAT, "leakage.other_prompts",
                   "the outputs are of other prompts: at %s; generate with generate.prompts=%s",
                   run, shown_path(self->prompts_path));
}

static bp_err load(measuring *self)
{
    const leakage_arguments *arguments = self->arguments;
    bp_err err = BP_OK;

    if (arguments->prompts) {
        self->prompts_path = bp_path_join(arguments->prompts, "prompts.jsonl");
        err = json_lines_each(self->prompts_path, add_prompt, self);
    }
    self->models = bp_alloc("tool.leakage", arguments->outputs.count, sizeof *self->models);
    for (int k = 0; k < arguments->outputs.count && err == BP_OK; k++) {
        model_outputs *model = &self->models[self->model_count++];

        err = outputs_load(&model->outputs, arguments->outputs.list[k]);
        model->name = bp_strdup(bp_path_base(arguments->outputs.list[k]));
        if (err == BP_OK && self->prompts)
            err = check_prompts(self, model);
        if (err == BP_OK)
            model->of = bp_alloc("tool.leakage", model->outputs.prompts, sizeof *model->of);
    }
    return err;
}

/* ---- the corpora ---- */

static const int32_t *tokens_of(const model_outputs *model, const output_line *line)
{
    return model->outputs.tokens + line->first_token;
}

static void add_texts(measuring *self)
{
    for (int k = 0; k < self->model_count; k++)
        for (int64_t n = 0; n < self->models[k].outputs.count; n++) {
            const output_line *line = &self->models[k].outputs.lines[n];

            run_index_add(&self->index, tokens_of(&self->models[k], line), line->count);
        }
}

/* This rank's documents of a corpus. */
static bp_err read_corpus(measuring *self, const char *path, MPI_Comm comm)
{
    bp_corpus_file *file = NULL;
    const int64_t *start;
    int32_t *tokens = NULL;
    int64_t capacity = 0, rank = bp_comm_rank(comm), size = bp_comm_size(comm);
    bp_err err = bp_corpus_file_open(&file, path);

    if (err == BP_OK)
        err = bp_corpus_file_doc_start(file, &start);
    if (err == BP_OK) {
        int64_t documents = bp_corpus_file_info(file)->documents;

        self->corpus_documents += documents;
        self->corpus_tokens += bp_corpus_file_info(file)->tokens;
        for (int64_t d = documents * rank / size; d < documents * (rank + 1) / size && err == BP_OK;
             d++) {
            int64_t count = start[d + 1] - start[d];

            tokens = bp_grow("tool.leakage", tokens, &capacity, count + 1, sizeof *tokens);
            err = bp_corpus_file_read(file, start[d], count, tokens);
            if (err == BP_OK)
                run_index_read(&self->index, tokens, count);
            if (err == BP_OK && bp_signals_stop_asked())
                err = bp_fail_stopped("nothing was kept; run the command again");
        }
    }
    bp_free(tokens);
    bp_corpus_file_close(&file);
    return err;
}

static bp_err read_corpora(measuring *self, MPI_Comm comm)
{
    const tool_files *files = &self->arguments->files;
    bp_err err = BP_OK;

    run_index_read(&self->index, NULL, 0); /* a rank may have no document */
    for (int k = 0; k < files->count && err == BP_OK; k++)
        err = read_corpus(self, files->list[k], comm);
    err = bp_agree(comm, err);
    for (int64_t at = 0; at < self->index.count && err == BP_OK; at += INT_MAX) {
        int64_t left = self->index.count - at;

        BP_MPI(MPI_Allreduce(MPI_IN_PLACE, self->index.found + at,
                             left < INT_MAX ? (int)left : INT_MAX, MPI_INT32_T, MPI_MAX, comm));
    }
    if (err == BP_OK)
        run_index_finish(&self->index);
    return err;
}

/* ---- a text ---- */

/* The longest run of tokens that two texts have in common. */
static int64_t common_run(const int32_t *a, int64_t m, const int32_t *b, int64_t n)
{
    int64_t *row = bp_alloc("tool.leakage", n + 1, sizeof *row), best = 0;

    for (int64_t i = 0; i < m; i++)
        for (int64_t j = n; j > 0; j--) {
            row[j] = a[i] == b[j - 1] ? row[j - 1] + 1 : 0;
            best = row[j] > best ? row[j] : best;
        }
    bp_free(row);
    return best;
}

static void measure_text(measuring *self, model_outputs *model, const output_line *line)
{
    measured *of = &model->of[line->index];
    const int32_t *tokens = tokens_of(model, line);
    int64_t start, run = run_index_longest(&self->index, tokens, line->count, &start);

    of->texts++;
    of->corpus_run = bp_max(of->corpus_run, run);
    of->whole |= run == line->count && run >= WHOLE_LEAST;
    if (self->prompts) {
        const cut_prompt *prompt = &self->prompts[line->index];
        const int32_t *source = self->continuations + prompt->first;
        int64_t prefix = 0;

        while (prefix < line->count && prefix < prompt->count && tokens[prefix] == source[prefix])
            prefix++;
        of->prefix = bp_max(of->prefix, prefix);
        of->source_run =
            bp_max(of->source_run, common_run(tokens, line->count, source, prompt->count));
        of->extracted |= prefix == prompt->count;
    }
}

/* ---- figures ---- */

typedef struct group_sums {
    int64_t prompts, extracted, whole;
    bp_ratio prefix, source_run, corpus_run;
} group_sums;

static void add(group_sums *sums, const measured *of)
{
    sums->prompts++;
    sums->extracted += of->extracted;
    sums->whole += of->whole;
    bp_ratio_add(&sums->prefix, (double)of->prefix, 1);
    bp_ratio_add(&sums->source_run, (double)of->source_run, 1);
    bp_ratio_add(&sums->corpus_run, (double)of->corpus_run, 1);
}

/* For lengths, which are not below 0. */
static json_t *mean_json(const bp_ratio *ratio)
{
    bp_interval interval = bp_ratio_interval(ratio);

    if (interval.low < 0)
        interval.low = 0;
    return tool_figure(bp_ratio_mean(ratio), interval);
}

static json_t *sums_json(const measuring *self, const group_sums *sums)
{
    json_t *out = json_pack("{s:I}", "prompts", (json_int_t)sums->prompts);

    if (self->prompts) {
        (void)json_object_set_new(out, "extracted", json_integer(sums->extracted));
        (void)json_object_set_new(out, "share", tool_share(sums->extracted, sums->prompts));
        (void)json_object_set_new(out, "prefix_tokens", mean_json(&sums->prefix));
        (void)json_object_set_new(out, "source_run_tokens", mean_json(&sums->source_run));
    }
    (void)json_object_set_new(out, "corpus_run_tokens", mean_json(&sums->corpus_run));
    (void)json_object_set_new(out, "whole", json_integer(sums->whole));
    (void)json_object_set_new(out, "whole_share", tool_share(sums->whole, sums->prompts));
    return out;
}

/* Groups of prompts, by a number of each: an object of those that have some. */
static json_t *groups_json(const measuring *self, const model_outputs *model,
                           int64_t (*key)(const cut_prompt *prompt), char *(*name)(int64_t value))
{
    json_t *out = json_object();
    int64_t last = -1;

    for (;;) {
        group_sums sums = {0};
        int64_t next = INT64_MAX;

        for (int64_t k = 0; k < model->outputs.prompts; k++)
            if (key(&self->prompts[k]) > last && key(&self->prompts[k]) < next)
                next = key(&self->prompts[k]);
        if (next == INT64_MAX)
            return out;
        for (int64_t k = 0; k < model->outputs.prompts; k++)
            if (key(&self->prompts[k]) == next)
                add(&sums, &model->of[k]);
        char *text = name(next);
        (void)json_object_set_new(out, text, sums_json(self, &sums));
        bp_free(text);
        last = next;
    }
}

static int64_t length_key(const cut_prompt *prompt)
{
    return prompt->length;
}

static int64_t copies_key(const cut_prompt *prompt)
{
    return leakage_copies_group(prompt->copies);
}

/* Quarters of the document, of the place where the continuation begins. */
static int64_t position_key(const cut_prompt *prompt)
{
    return prompt->document_tokens > 0 && prompt->at < prompt->document_tokens
               ? 4 * prompt->at / prompt->document_tokens
               : 3;
}

static char *length_name(int64_t value)
{
    return bp_sprintf("%" PRId64, value);
}

static char *copies_name(int64_t group)
{
    int64_t most = INT64_C(1) << group;

    if (group + 1 == LEAKAGE_COPIES)
        return bp_sprintf("%" PRId64 " or more", most / 2 + 1);
    return group < 2 ? bp_sprintf("%" PRId64, most)
                     : bp_sprintf("%" PRId64 "-%" PRId64, most / 2 + 1, most);
}

static char *position_name(int64_t quarter)
{
    static const char *const names[] = {"first quarter", "second quarter", "third quarter",
                                        "last quarter"};

    return bp_strdup(names[quarter]);
}

static json_t *model_json(const measuring *self, const model_outputs *model)
{
    group_sums all = {0};
    json_t *out;

    for (int64_t k = 0; k < model->outputs.prompts; k++)
        add(&all, &model->of[k]);
    out = json_pack("{s:o, s:O, s:I, s:o}", "name", bp_json_string(model->name), "model",
                    model->outputs.model, "texts", (json_int_t)model->outputs.count, "all",
                    sums_json(self, &all));
    if (self->prompts) {
        (void)json_object_set_new(out, "lengths",
                                  groups_json(self, model, length_key, length_name));
        (void)json_object_set_new(out, "copies", groups_json(self, model, copies_key, copies_name));
        (void)json_object_set_new(out, "positions",
                                  groups_json(self, model, position_key, position_name));
    }
    return out;
}

/* ---- files ---- */

static bp_err write_lines(const measuring *self)
{
    const bp_path path = bp_path_in(self->arguments->out, "continuations.jsonl");
    bp_draft draft;
    bp_err err = bp_draft_open(&draft, path.text);

    for (int m = 0; m < self->model_count; m++)
        for (int64_t k = 0; k < self->models[m].outputs.prompts && err == BP_OK; k++) {
            const measured *of = &self->models[m].of[k];
            json_t *line =
                json_pack("{s:o, s:I, s:I, s:I, s:b}", "run", bp_json_string(self->models[m].name),
                          "index", (json_int_t)k, "texts", (json_int_t)of->texts, "corpus_run",
                          (json_int_t)of->corpus_run, "whole", (int)of->whole);

            if (self->prompts) {
                (void)json_object_set_new(line, "length", json_integer(self->prompts[k].length));
                (void)json_object_set_new(line, "copies", json_integer(self->prompts[k].copies));
                (void)json_object_set_new(line, "prefix", json_integer(of->prefix));
                (void)json_object_set_new(line, "source_run", json_integer(of->source_run));
                (void)json_object_set_new(line, "extracted", json_boolean(of->extracted));
            }
            err = bp_json_write_line(&draft, line);
        }
    return bp_draft_end(&draft, err);
}

static double percent(const json_t *figure, const char *key)
{
    return 100 * json_number_value(json_object_get(figure, key));
}

static void add_statements(json_t *report)
{
    json_t *list = json_array(), *model, *group;
    const char *length;
    size_t k;

    (void)json_object_set_new(report, "title",
                              json_string("Training text that is continued word for word"));
    (void)json_object_set_new(
        report, "about",
        json_sprintf(
            "Outputs of `bagpipe generate` beside %s tokens of training text, token by token "
            "(bagpipe-data leakage; Carlini et al. 2023).",
            grouped(json_integer_value(json_object_get(report, "corpus_tokens")))));
    json_array_foreach(json_object_get(report, "models"), k, model)
    {
        const json_t *all = json_object_get(model, "all"), *share;
        const char *name = json_string_value(json_object_get(model, "name"));

        json_object_foreach(json_object_get(model, "lengths"), length, group)
        {
            share = json_object_get(group, "share");
            (void)json_array_append_new(
                list,
                json_sprintf("%s: of prompts of %s tokens %.3g %% are continued as in the "
                             "source, to the end (95 %% interval %.3g to %.3g %%, %s prompts)",
                             name, length, percent(share, "value"), percent(share, "low"),
                             percent(share, "high"),
                             grouped(json_integer_value(json_object_get(group, "prompts")))));
        }
        share = json_object_get(all, "whole_share");
        (void)json_array_append_new(
            list,
            json_sprintf("%s: of %.3g %% of the prompts a whole output is in the training text "
                         "(%.3g to %.3g %%)",
                         name, percent(share, "value"), percent(share, "low"),
                         percent(share, "high")));
    }
    (void)json_object_set_new(report, "statements", list);
}

static json_t *row_of(const char *name, const json_t *group)
{
    return json_pack("{s:s, s:O, s:o, s:o, s:o, s:o, s:o}", "name", name, "prompts",
                     json_object_get(group, "prompts"), "share",
                     tool_figure_shown(json_object_get(group, "share"), true), "prefix",
                     tool_figure_shown(json_object_get(group, "prefix_tokens"), false), "source",
                     tool_figure_shown(json_object_get(group, "source_run_tokens"), false),
                     "corpus",
                     tool_figure_shown(json_object_get(group, "corpus_run_tokens"), false), "whole",
                     tool_figure_shown(json_object_get(group, "whole_share"), true));
}

static json_t *page_of(const measuring *self, const json_t *report)
{
    static const char *const keys[][2] = {{"lengths", "Tokens of the prompt"},
                                          {"copies", "Copies in the training text"},
                                          {"positions", "Place in the document"}};
    json_t *models = json_array(), *model, *group;
    const char *name;
    size_t k;

    json_array_foreach(json_object_get(report, "models"), k, model)
    {
        json_t *tables = json_array(), *rows = json_array();

        (void)json_array_append_new(rows, row_of("all", json_object_get(model, "all")));
        (void)json_array_append_new(tables,
                                    json_pack("{s:s, s:o}", "title", "Prompts", "rows", rows));
        for (size_t n = 0; n < sizeof keys / sizeof keys[0] && self->prompts; n++) {
            rows = json_array();
            json_object_foreach(json_object_get(model, keys[n][0]), name, group)(void)
                json_array_append_new(rows, row_of(name, group));
            (void)json_array_append_new(tables,
                                        json_pack("{s:s, s:o}", "title", keys[n][1], "rows", rows));
        }
        (void)json_array_append_new(
            models, json_pack("{s:O, s:O, s:o}", "name", json_object_get(model, "name"), "texts",
                              json_object_get(model, "texts"), "tables", tables));
    }
    return json_pack("{s:s, s:o, s:b}", "title", "Training text that is continued word for word",
                     "models", models, "has_prompts", self->prompts != NULL);
}

static void print_table(const json_t *report)
{
    json_t *model, *group;
    const char *length;
    size_t k;

    printf("%-20s %8s %8s %10s %22s %10s\n", "run", "length", "prompts", "extracted",
           "95 % interval", "corpus run");
    json_array_foreach(json_object_get(report, "models"), k, model)
    {
        const char *name = json_string_value(json_object_get(model, "name"));

        json_object_foreach(json_object_get(model, "lengths"), length, group)
        {
            const json_t *share = json_object_get(group, "share");

            printf("%-20s %8s %8s %8.2f %% %9.2f to %6.2f %% %10.2f\n", name, length,
                   grouped(json_integer_value(json_object_get(group, "prompts"))),
                   percent(share, "value"), percent(share, "low"), percent(share, "high"),
                   percent(json_object_get(group, "corpus_run_tokens"), "value") / 100);
        }
        group = json_object_get(model, "all");
        printf("%-20s %8s %8s: the longest run in the training text has %.2f tokens on average, "
               "%s whole outputs are in it\n",
               name, "all", grouped(json_integer_value(json_object_get(group, "prompts"))),
               percent(json_object_get(group, "corpus_run_tokens"), "value") / 100,
               grouped(json_integer_value(json_object_get(group, "whole"))));
    }
}

static bp_err save(measuring *self, int ranks)
{
    json_t *report = tool_report_begin("leakage"), *models = json_array();
    bp_err err;

    for (int k = 0; k < self->model_count; k++)
        (void)json_array_append_new(models, model_json(self, &self->models[k]));
    (void)json_object_set(report, "model", json_object_get(json_array_get(models, 0), "model"));
    (void)json_object_set_new(report, "corpus_documents", json_integer(self->corpus_documents));
    (void)json_object_set_new(report, "corpus_tokens", json_integer(self->corpus_tokens));
    (void)json_object_set_new(report, "models", models);
    tool_report_corpora(report, (const char *const *)self->arguments->files.list,
                        self->arguments->files.count);
    add_statements(report);
    err = bp_dir_make(self->arguments->out);
    if (err == BP_OK)
        err = write_lines(self);
    if (err == BP_OK)
        err =
            tool_report_save(self->arguments->out, "leakage", report, page_of(self, report), ranks);
    if (err == BP_OK)
        print_table(report);
    json_decref(report);
    return err;
}

static void clear(measuring *self)
{
    for (int k = 0; k < self->model_count; k++) {
        outputs_clear(&self->models[k].outputs);
        bp_free(self->models[k].of);
        bp_free(self->models[k].name);
    }
    bp_free(self->models);
    bp_free(self->prompts);
    bp_free(self->continuations);
    bp_free(self->prompts_path);
    run_index_clear(&self->index);
}

bp_err leakage_measure(const leakage_arguments *arguments)
{
    measuring self = {.arguments = arguments};
    MPI_Comm comm = MPI_COMM_WORLD;
    bp_err err = BP_OK;

    if (arguments->outputs.count == 0)
        err = BP_FAIL(BP_ERR_USAGE, "command.bad_value",
                      "it is missing: at --outputs; see bagpipe-data leakage --help");
    if (err == BP_OK)
        err = load(&self); /* every rank has all outputs */
    err = bp_agree(comm, err);
    if (err == BP_OK) {
        add_texts(&self);
        err = read_corpora(&self, comm);
    }
    if (err == BP_OK && bp_comm_is_root(comm)) {
        for (int k = 0; k < self.model_count; k++)
            for (int64_t n = 0; n < self.models[k].outputs.count; n++)
                measure_text(&self, &self.models[k], &self.models[k].outputs.lines[n]);
        err = save(&self, bp_comm_size(comm));
    }
    clear(&self);
    return bp_agree(comm, err);
}
