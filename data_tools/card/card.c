/* bagpipe-data card: a model card, or the data sheet of a corpus. */
#include "card.h"

#include "arguments.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/process/command_line.h"
#include "document_texts.h"
#include "file_tool.h"
#include "job/report/report.h"
#include "mesh/mesh.h"
#include "output.h"
#include "tools.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const struct argp_option OPTIONS[] = {
    {"out", 'o', "FILE.md", 0, "write the card there (default: standard output)", 1},
    {"license", 0, "ID", 0, "the licence, as the Hub spells it (apache-2.0)", 1},
    {"language", 0, "CODE", 0, "the language, as in ISO 639 (en), or several: de,en", 1},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65", "no model or corpus, a damaged one, or results of another model"},
    {"66", "something is missing"},
    {"73, 74, 77", "the card cannot be written"},
    {0}};

/* What the user knows, in the characters of such words; of several, "de,en", a list. */
static bp_err take_word(card *self, const char *name, const char *word, bool several)
{
    bp_buffer list = {0};

    if (!word)
        return BP_OK;
    for (const char *c = word; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr(several ? ".-+_," : ".-+_", *c))
            return BP_FAIL(BP_ERR_USAGE, "command.bad_value",
                           "'%.60s' is no such word: at --%s; see bagpipe-data card --help", word,
                           name);
    if (!strchr(word, ',')) {
        (void)json_object_set_new(self->data, name, card_yaml(word));
        return BP_OK;
    }
    for (const char *at = word; *at != '\0'; at += strspn(at, ",")) {
        char *one = bp_sprintf("%.*s", (int)strcspn(at, ","), at);
        json_t *spelled = card_yaml(one);

        bp_buffer_printf(&list, "%s%s", list.bytes > 0 ? ", " : "[", json_string_value(spelled));
        at += strcspn(at, ",");
        json_decref(spelled);
        bp_free(one);
    }
    bp_buffer_printf(&list, "]");
    (void)json_object_set_new(self->data, name, bp_json_string(list.data));
    bp_buffer_clear(&list);
    return BP_OK;
}

static bp_err write_card(const card *self, const char *out)
{
    char *text = NULL;
    bp_err err =
        bp_report_text(&text, self->is_model ? "model-card.md" : "corpus-card.md", self->data);

    if (err == BP_OK && out)
        err = bp_file_write(out, text, strlen(text));
    else if (err == BP_OK)
        (void)fputs(text, stdout); /* main() looks at standard output */
    bp_free(text);
    return err;
}

static bp_err make(card *self, const tool_files *files, const char *out)
{
    char *command = bp_command_line(1);
    bp_err err = self->is_model ? card_model(self) : card_corpus(self);

    (void)json_object_set_new(self->data, "command", card_code(command));
    (void)json_object_set_new(self->data, "version", json_string(BAGPIPE_VERSION));
    for (int k = 1; k < files->count && err == BP_OK; k++)
        err = card_results(self, files->list[k]);
    if (err == BP_OK && out)
        err = bp_output_is_not(out, files->list[0]);
    if (err == BP_OK)
        err = write_card(self, out);
    if (err == BP_OK && out)
        bp_log("%s: %zu open questions", shown_path(out),
               json_array_size(json_object_get(self->data, "open")));
    bp_free(command);
    return err;
}

static bp_err run(int argc, char **argv)
{
    card self = {.data = json_object()};
    const char *out = NULL, *license = NULL, *language = NULL;
    const tool_value values[] = {{.option = "out", .text = &out},
                                 {.option = "license", .text = &license},
                                 {.option = "language", .text = &language},
                                 {0}};
    tool_files files;
    bp_err err = tool_parse(&bp_tool_card, values, &files, argc, argv);

    if (err == BP_OK && files.count == 0)
        err =
            BP_FAIL(BP_ERR_USAGE, "command.no_input",
                    "nothing is named: at the command line; name a run, a checkpoint or a corpus");
    if (err == BP_OK)
        err = take_word(&self, "license", license, false);
    if (err == BP_OK)
        err = take_word(&self, "language", language, true);
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD)) {
        self.path = files.list[0];
        self.is_model = !document_is_corpus(self.path);
        err = make(&self, &files, out);
    }
    json_decref(self.data);
    bp_free(self.digests);
    bp_free(self.corpus_hash);
    return bp_agree(MPI_COMM_WORLD, err);
}

const bp_tool bp_tool_card = {
    .name = "card",
    .help = {.name = "bagpipe-data card",
             .usage = "MODEL [RESULTS...] [OPTION...]\nCORPUS.h5 [REPORT...] [OPTION...]",
             .summary = "writes a model card, or the data sheet of a corpus",
             .text =
                 "MODEL is a run, a checkpoint or an ensemble. The card has the sections and the "
                 "front matter (YAML) of Hugging Face's cards, filled from the run's files: model, "
                 "corpora, keys, figures of the training, machine. RESULTS are run folders of "
                 "score, generate (with generate.references), uncertainty and explain, which must "
                 "be of this model, and folders of the reports pii, toxicity and leakage. A data "
                 "sheet has the questions of Gebru et "
                 "al. 2021, with counts, lengths, labels, duplicates, sources and hashes.\n"
                 "Nothing is invented: what only people know is listed as open questions.",
             .options = OPTIONS,
             .examples = "  bagpipe-data card runs/gpt runs/scored reports/pii --out README.md\n"
                         "  bagpipe-data card runs/gpt --license apache-2.0 --language en\n"
                         "  bagpipe-data card runs/translator runs/translations\n"
                         "  bagpipe-data card train.h5 reports/pii --out train.md\n",
             .statuses = STATUSES},
    .run = run};
