/* The facts of a trained model: run.json, config.ini, metrics.jsonl, the manifest, corpora. */
#include "card.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "file_tool.h"
#include "infer/ensemble/ensemble.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "models/family.h"
#include "outputs.h"
#include "run/run_compare.h"
#include "run/run_fields.h"
#include "run/status/run_history.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RECORD_LIMIT ((int64_t)16 << 20)

typedef struct subject {
    card *card;
    char *run;       /* the run that trained it; NULL if there is none */
    json_t *record;  /* its run.json; NULL: likewise */
    json_t *machine; /* the run.json with the processor: of an ensemble its first member's */
    run_pairs pairs; /* its config.ini */
    bp_history history;
    bool has_history;
    const json_t *state;         /* of the checkpoint, or of the first member's. Borrowed */
    int64_t parameters, members; /* members: 0 if not an ensemble */
} subject;

/* ---- where it came from ---- */

/* The run.json that has the processor and threads: of an ensemble that of its first member, which
 * computed; else `record`. New reference. */
static json_t *machine_of(const char *run, json_t *record, const bp_history *history)
{
    json_t *out = NULL;

    if (history->curve_count > 1) {
        const bp_path member = bp_path_in(bp_path_in(run, "members").text, history->curves[0].name),
                      path = bp_path_in(member.text, "run.json");

        if (bp_path_exists(path.text) && bp_json_load_plain(&out, path.text, RECORD_LIMIT) != BP_OK)
            out = NULL;
    }
    return out ? out : json_incref(record);
}

/* A run folder is it, or has it among its checkpoints. */
static bp_err find_run(subject *self)
{
    const char *path = self->card->path;
    static const char *const places[] = {".", "../.."};
    bp_err err = BP_OK;

    for (int k = 0; k < 2 && !self->run; k++) {
        char *folder = k == 0 ? bp_strdup(path) : bp_path_join(path, places[k]);
        const bp_path record = bp_path_in(folder, "run.json");

        if (bp_path_exists(record.text))
            self->run = folder;
        else
            bp_free(folder);
    }
    if (!self->run)
        return BP_OK;
    err = bp_json_load_plain(&self->record, bp_path_in(self->run, "run.json").text, RECORD_LIMIT);
    if (err == BP_OK)
        err = bp_run_pairs_read(&self->pairs, self->run);
    if (err == BP_OK && !says(self->record, "job", "pretrain") &&
        !says(self->record, "job", "finetune") && !says(self->record, "job", "ensemble"))
        return BP_FAIL(BP_ERR_FORMAT, "card.no_model",
                       "a run of %s trains no model: at %s; name the run that trained one first, "
                       "and its results after it",
                       text_of(self->record, "job"), path);
    if (err == BP_OK && bp_path_exists(bp_path_in(self->run, "metrics.jsonl").text)) {
        err = bp_history_read(&self->history, self->run);
        self->has_history = err == BP_OK;
    }
    if (err == BP_OK)
        self->machine = machine_of(self->run, self->record, &self->history);
    return err;
}

static const char *key(const subject *self, const char *name)
{
    const char *value = bp_run_pairs_find(&self->pairs, name);

    return value ? value : "";
}

/* ---- the model ---- */

static int64_t count_parameters(const bp_checkpoint *checkpoint)
{
    int64_t sum = 0;

    for (int64_t k = 0; k < bp_checkpoint_tensors(checkpoint); k++) {
        bp_slice slice = bp_checkpoint_tensor(checkpoint, k);
        int64_t size = 1;

        if (strchr(slice.name, '/')) /* the optimizer's */
            continue;
        for (int d = 0; d < slice.dims; d++)
            size *= slice.shape[d];
        sum += size;
    }
    return sum;
}

static void add_digest(card *self, const char *digest)
{
    char *all = bp_sprintf("%s %s ", self->digests ? self->digests : "", digest);

    bp_free(self->digests);
    self->digests = all;
}

/* The name, tasks and links of a model as the Hub knows them. */
static const char *pipeline_of(const json_t *model)
{
    static const char *const tasks[][2] = {{"classes", "text-classification"},
                                           {"regression", "text-classification"},
                                           {"tags", "token-classification"},
                                           {"spans", "question-answering"},
                                           {"text", "text2text-generation"}};
    const bp_model_family *family = bp_model_family_find(text_of(model, "kind"));
    const bp_objective *objective = family ? family->objective : NULL;

    for (size_t k = 0; k < sizeof tasks / sizeof tasks[0]; k++)
        if (says(model, "task", tasks[k][0]))
            return tasks[k][1];
    if (says(model, "kind", "ngram") || objective == &bp_objective_causal)
        return "text-generation";
    if (objective == &bp_objective_masked)
        return "fill-mask";
    if (objective && (objective->pairs || objective->noises))
        return "text2text-generation";
    return "feature-extraction";
}

static void add_shape(subject *self, json_t *details)
{
    const json_t *model = json_object_get(self->state, "model"), *value;
    const char *name;

    json_object_foreach((json_t *)model, name, value)
    {
        if (json_is_integer(value))
            card_fact(details, name, "%s", grouped(json_integer_value(value)));
        else if (json_is_real(value))
            card_fact(details, name, "%.9g", json_real_value(value));
        else if (json_is_boolean(value))
            card_fact(details, name, "%s", json_is_true(value) ? "yes" : "no");
        else if (json_is_string(value)) {
            json_t *text = card_text(json_string_value(value));

            card_fact(details, name, "%s", json_string_value(text));
            json_decref(text);
        }
    }
}

static bp_err add_checkpoint(subject *self, bp_checkpoint *checkpoint, json_t *details)
{
    const char *tokenizer;

    self->state = bp_checkpoint_state(checkpoint);
    self->parameters = count_parameters(checkpoint);
    tokenizer = text_of(self->state, "tokenizer_hash");
    add_shape(self, details);
    if (self->parameters > 0)
        card_fact(details, "parameters", "%s", grouped(self->parameters));
    if (has(self->state, "step"))
        card_fact(details, "step", "%s", grouped(integer_of(self->state, "step")));
    if (self->members == 0)
        card_fact(details, "digest of the weights", "`%s`", bp_checkpoint_digest(checkpoint));
    card_fact(details, "SHA-256 of the tokenizer", tokenizer[0] ? "`%s`" : "%s", tokenizer);
    if (bp_checkpoint_base(checkpoint))
        card_fact(details, "an adapter of", "weights with the digest `%s`",
                  bp_checkpoint_digest(bp_checkpoint_base(checkpoint)));
    return BP_OK;
}

static bp_err open_members(subject *self, bp_checkpoint **out, json_t *details)
{
    bp_ensemble_list list = {0};
    double sum = 0;
    int64_t known = 0;
    char all[65];
    bp_err err = bp_ensemble_list_load(&list, self->card->path);
    const char **digests = bp_alloc("tool.card", list.count + 1, sizeof *digests);

    for (int64_t k = 0; k < list.count && err == BP_OK; k++) {
        bp_checkpoint *member = NULL;

        err = bp_checkpoint_open_any(MPI_COMM_SELF, list.members[k].path, &member);
        if (err == BP_OK) {
            digests[k] = bp_strdup(bp_checkpoint_digest(member));
            add_digest(self->card, digests[k]);
        }
        if (err == BP_OK && !isnan(list.members[k].oob_perplexity)) {
            sum += list.members[k].oob_perplexity;
            known++;
        }
        if (k == 0)
            *out = member;
        else
            bp_checkpoint_close(&member);
    }
    if (err == BP_OK) {
        bp_ensemble_digest(NULL, digests, list.count, all);
        add_digest(self->card, all);
    }
    for (int64_t k = 0; k < list.count; k++)
        bp_free((char *)digests[k]);
    bp_free(digests);
    self->members = list.count;
    self->card->is_ensemble = true;
    if (err == BP_OK)
        card_fact(details, "members", "%s; what follows is of each", grouped(list.count));
    if (err == BP_OK && known > 0)
        card_fact(details, "perplexity of documents that a member's bag lacks",
                  "%.4g, the mean of members", sum / (double)known);
    bp_ensemble_list_clear(&list);
    return err;
}

/* ---- training ---- */

/* Does a section of keys, or all of it but the key that turns it on, do nothing in this run? */
static bool is_idle(const subject *self, const char *name)
{
    const json_t *model = json_object_get(self->state, "model");
    const bp_model_family *family = bp_model_family_find(text_of(model, "kind"));
    const bp_objective *objective = family ? family->objective : NULL;
    bool other = key(self, "train.objective")[0] != '\0';

    return (strncmp(name, "adapter.", 8) == 0 && strcmp(key(self, "adapter.kind"), "none") == 0) ||
           (strncmp(name, "distill.", 8) == 0 && key(self, "distill.model")[0] == '\0') ||
           (strncmp(name, "mask.", 5) == 0 && objective != &bp_objective_masked && !other) ||
           (strncmp(name, "noise.", 6) == 0 && !(objective && objective->noises) && !other);
}

/* Keys that decide what the training does, by their sections. */
static bool is_shown(const char *name, const char *value)
{
    static const char *const sections[] = {"model.", "train.",    "optimizer.", "corpus.",  "mask.",
                                           "noise.", "task.",     "adapter.",   "distill.", "head.",
                                           "ngram.", "word2vec.", "ensemble."},
                             *const left_out[] = {"corpus.train",       "corpus.valid",
                                                  "train.log_every",    "train.trace",
                                                  "train.profile",      "train.tensorboard",
                                                  "train.digest_every", NULL};

    if (value[0] == '\0' || is_among(name, left_out) || strncmp(name, "train.sample_", 13) == 0)
        return false;
    for (size_t k = 0; k < sizeof sections / sizeof sections[0]; k++)
        if (strncmp(name, sections[k], strlen(sections[k])) == 0)
            return true;
    return strcmp(name, "run.seed") == 0 || strcmp(name, "math.precision") == 0;
}

static void add_keys(subject *self)
{
    json_t *keys = card_list(self->card, "keys");

    for (int64_t k = 0; k < self->pairs.count; k++) {
        const char *name = self->pairs.texts[2 * k], *value = self->pairs.texts[2 * k + 1];

        if (value && is_shown(name, value) && !is_idle(self, name)) {
            json_t *text = card_text(value);

            card_fact(keys, name, "%s", json_string_value(text));
            json_decref(text);
        }
    }
    (void)json_object_set_new(self->card->data, "has_keys", json_boolean(json_array_size(keys)));
}

/* Are examples texts of any length, which padding makes as long as the context? */
static bool pads(const subject *self)
{
    const json_t *model = json_object_get(self->state, "model");
    const bp_model_family *family = bp_model_family_find(text_of(model, "kind"));
    const bp_objective *objective = family ? family->objective : NULL;

    return has(model, "task") || (objective && (objective->pairs || objective->noises));
}

#define PADDED ", each example counted as `model.context`"

/* Of a run that is too old to tell how many of its tokens are padding. */
static const char *padding_of(const subject *self)
{
    return pads(self) && bp_history_main(&self->history)->padded ? PADDED : "";
}

static void add_figures(subject *self, json_t *procedure, json_t *environment)
{
    int64_t members;
    const bp_curve_figures figures = bp_history_figures(&self->history, &members);
    const json_t *mesh = json_object_get(self->machine, "mesh");
    double cores = (double)(integer_of(mesh, "ranks") * integer_of(self->machine, "threads"));
    const char *of = members > 1 ? " (all members together)" : "",
               *mean = of[0] ? " (mean of the members)" : "";

    if (figures.step > 0)
        card_fact(procedure, "steps", "%s", grouped(figures.step));
    if (figures.tokens > 0)
        card_fact(procedure, "tokens", "%s%s%s", grouped(figures.tokens), of, padding_of(self));
    if (!isnan(figures.loss))
        card_fact(procedure, "loss of the last batches, nats", "%.4g%s", figures.loss, mean);
    if (!isnan(figures.best_valid_loss))
        card_fact(procedure, "best validation loss, nats", "%.4g at step %s%s",
                  figures.best_valid_loss, grouped(figures.best_step), mean);
    if (!isnan(figures.median_speed))
        card_fact(procedure, "tokens a second", "%.4g%s", figures.median_speed,
                  pads(self) ? PADDED : "");
    if (!isnan(figures.hours) && figures.hours > 0) {
        card_fact(procedure, "hours of training steps", "%.3g%s", figures.hours, of);
        if (cores > 0)
            card_fact(environment, "core hours of training steps",
                      "%.3g (hours times ranks times threads; without validation and checkpoints)",
                      figures.hours * cores);
    }
}

static void add_machine(subject *self, json_t *environment)
{
    const json_t *mesh = json_object_get(self->record, "mesh"),
                 *libraries = json_object_get(self->record, "libraries"), *value;
    const char *name;
    size_t hosts = json_object_size(json_object_get(self->record, "hosts"));

    card_fact(environment, "processor", "%s", text_of(self->machine, "cpu"));
    if (hosts > 0)
        card_fact(environment, "nodes, ranks, threads a rank", "%zu, %lld, %lld", hosts,
                  integer_of(mesh, "ranks"), integer_of(self->machine, "threads"));
    card_fact(environment, "matrix products", "%s", text_of(self->machine, "math_library"));
    json_object_foreach((json_t *)libraries, name, value)
        card_fact(environment, name, "%s", json_is_string(value) ? json_string_value(value) : "");
}

/* What events.jsonl tells of starts after the first. */
typedef struct later_starts {
    int64_t interrupted, extended;
    int64_t from;     /* the step at which the last extension began; 0: not known */
    bool is_extended; /* the start that is read */
} later_starts;

static bp_err take_event(void *context, const json_t *line, int64_t number)
{
    static const char *const begins[] = {"resumed", "member_started", NULL};
    later_starts *starts = context;
    const char *after = text_of(line, "after");

    (void)number;
    if (says(line, "event", "opened")) {
        starts->is_extended = strncmp(after, "was complete", strlen("was complete")) == 0;
        starts->extended += starts->is_extended;
        starts->interrupted += after[0] != '\0' && !starts->is_extended;
    } else if (starts->is_extended && is_among(text_of(line, "event"), begins) &&
               integer_of(line, "step") > 0)
        starts->from = integer_of(line, "step");
    return BP_OK;
}

/* A run that was complete goes on if it is asked for more steps. */
static void add_starts(const subject *self, json_t *procedure)
{
    const bp_path path = bp_path_in(self->run, "events.jsonl");
    later_starts starts = {0};
    bp_buffer text = {0};

    if (integer_of(self->record, "starts") < 2)
        return;
    bp_buffer_printf(&text, "%lld", integer_of(self->record, "starts"));
    if (bp_path_exists(path.text))
        (void)json_lines_each(path.text, take_event, &starts);
    if (starts.interrupted > 0)
        bp_buffer_printf(&text, ": it was interrupted, and went on");
    if (starts.extended > 0)
        bp_buffer_printf(&text, "%s it was extended", starts.interrupted > 0 ? ";" : ":");
    if (starts.from > 0)
        bp_buffer_printf(&text, " from %s", grouped(starts.from));
    if (starts.from > 0)
        bp_buffer_printf(&text, " to %s steps", grouped(run_steps(self->record, &self->pairs)));
    card_fact(procedure, "starts", "%s", text.data);
    bp_buffer_clear(&text);
}

static void add_training(subject *self)
{
    json_t *procedure = card_list(self->card, "procedure"),
           *environment = card_list(self->card, "environment");

    if (self->record) {
        const json_t *exit = json_object_get(self->record, "exit");
        json_t *command = card_text(text_of(self->record, "command"));

        card_fact(procedure, "job", "%s", text_of(self->record, "job"));
        card_fact(procedure, "command", "%s", json_string_value(command));
        card_fact(procedure, "version of bagpipe", "%s", text_of(self->record, "version"));
        card_fact(procedure, "started", "%s", text_of(self->record, "started"));
        card_fact(procedure, "ended", "%s (%s)", text_of(exit, "time"), text_of(exit, "state"));
        add_starts(self, procedure);
        add_machine(self, environment);
        json_decref(command);
    }
    if (self->has_history)
        add_figures(self, procedure, environment);
    if (self->record)
        add_keys(self);
    (void)json_object_set_new(self->card->data, "has_procedure",
                              json_boolean(json_array_size(procedure)));
    (void)json_object_set_new(self->card->data, "has_environment",
                              json_boolean(json_array_size(environment)));
}

/* ---- corpora ---- */

/* The corpora that config.ini names, where they are still there with the content they had. */
static void add_corpora(subject *self)
{
    const char *list = key(self, "corpus.train"),
               *hash = text_of(json_object_get(self->record, "identities"), "corpus.train");
    card *to = self->card;
    bp_corpus *corpus = NULL;
    const char *note = NULL;

    if (list[0] == '\0')
        return;
    if (bp_corpus_open(&corpus, list) != BP_OK) {
        note =
            "The files of the corpus can't be read from here: run `card` where the training ran.";
    } else if (hash[0] && strcmp(hash, bp_corpus_hash(corpus)) != 0) {
        note = "The files of the corpus have another content now than in training.";
    } else {
        for (int64_t k = 0; k < bp_corpus_files(corpus); k++) {
            bp_corpus_file *file = bp_corpus_file_at(corpus, k);
            const char *base = bp_path_base(bp_corpus_file_path(file));
            json_t *facts = json_array(), *text = card_text(base);
            char *name = bp_sprintf("%.*s", (int)strcspn(base, "."), base);

            card_fact(facts, "corpus", "%s", json_string_value(text));
            if (card_corpus_facts(facts, file) != BP_OK)
                note = "A corpus is damaged, and says less.";
            (void)json_array_append_new(card_list(to, "corpora"),
                                        json_pack("{s:o}", "facts", facts));
            (void)json_array_append_new(card_list(to, "datasets"), card_yaml(name));
            json_decref(text);
            bp_free(name);
        }
    }
    if (json_array_size(json_object_get(to->data, "corpora")) == 0) {
        json_t *facts = json_array(), *text = card_text(list);

        card_fact(facts, "corpora", "%s", json_string_value(text));
        card_fact(facts, "SHA-256 of their contents", hash[0] ? "`%s`" : "%s", hash);
        (void)json_array_append_new(card_list(to, "corpora"), json_pack("{s:o}", "facts", facts));
        json_decref(text);
    }
    if (note)
        (void)json_object_set_new(to->data, "corpus_note", json_string(note));
    bp_corpus_close(&corpus);
}

/* ---- what follows from it ---- */

static void add_uses(subject *self, const char *pipeline)
{
    const json_t *model = json_object_get(self->state, "model");
    long long context = integer_of(model, "context");
    card *to = self->card;

    if (strcmp(pipeline, "text-generation") == 0)
        card_line(
            to, "can",
            "continues texts, and gives their probabilities (`bagpipe generate`, `bagpipe score`)");
    else if (strcmp(pipeline, "fill-mask") == 0)
        card_line(to, "can",
                  "gives the probabilities of masked tokens (`bagpipe score`), and fills masks in "
                  "(`generate.strategy=fill`)");
    else if (strcmp(pipeline, "text2text-generation") == 0)
        card_line(to, "can", "makes texts from texts (`bagpipe generate`)");
    else if (strcmp(pipeline, "feature-extraction") == 0)
        card_line(to, "can", "gives vectors of words or tokens");
    else
        card_line(to, "can", "predicts the outcomes of its task (`bagpipe score`): %s", pipeline);
    if (self->members > 0)
        card_line(to, "can", "says how much its %s members disagree", grouped(self->members));
    if (context > 0)
        card_line(to, "limits", "It reads at most %lld tokens at once.", context);
}

static void add_limits(subject *self)
{
    int64_t members = 1;
    const bp_curve_figures figures = self->has_history
                                         ? bp_history_figures(&self->history, &members)
                                         : (bp_curve_figures){.best_valid_loss = NAN};
    card *to = self->card;

    if (self->parameters > 0 && figures.tokens > 0)
        card_line(to, "limits", "%s trained on %.3g tokens a parameter, counting repetitions%s.",
                  members > 1 ? "Each member was" : "It was",
                  (double)figures.tokens / (double)members / (double)self->parameters,
                  padding_of(self));
    if (self->record && !says(json_object_get(self->record, "exit"), "state", "finished"))
        card_line(to, "limits", "Its training is not finished: %s.",
                  text_of(json_object_get(self->record, "exit"), "state"));
    if (figures.best_step > 0 && figures.best_step < integer_of(self->state, "step"))
        card_line(to, "limits",
                  "By validation step %s was better than this one: `checkpoints/best` has it.",
                  grouped(figures.best_step));
    card_line(
        to, "limits",
        "It gives what is probable in its training text, whether or not that is true, fair or "
        "harmless. Nothing was measured but what this card shows.");
}

/* "runs/gpt/checkpoints/best" is called gpt. */
static void add_name(subject *self)
{
    char *real = realpath(self->run ? self->run : self->card->path, NULL);
    const char *name = bp_path_base(real ? real : self->card->path);
    char *take = bp_sprintf("bagpipe-data card %s SCORES", self->card->path);

    (void)json_object_set_new(self->card->data, "name", card_text(name));
    (void)json_object_set_new(self->card->data, "yaml_name", card_yaml(name));
    (void)json_object_set_new(self->card->data, "take", card_code(take));
    bp_free(take);
    free(real); /* realpath's */
}

static void add_all(subject *self, json_t *details)
{
    const json_t *model = json_object_get(self->state, "model");
    const char *pipeline = pipeline_of(model), *kind = text_of(model, "kind");
    json_t *tags = card_list(self->card, "tags");
    const char *init = key(self, "model.init");

    (void)json_object_set_new(self->card->data, "pipeline", card_yaml(pipeline));
    (void)json_object_set_new(self->card->data, "library",
                              json_string(card_library(kind, self->members > 0)));
    (void)json_array_append_new(tags, json_string("bagpipe"));
    (void)json_array_append_new(tags, card_yaml(kind));
    if (self->members > 0)
        (void)json_array_append_new(tags, json_string("ensemble"));
    if (init[0]) {
        json_t *text = card_text(init);

        card_fact(details, "began with the weights of", "%s", json_string_value(text));
        json_decref(text);
    }
    add_name(self);
    add_uses(self, pipeline);
    add_training(self);
    add_limits(self);
    add_corpora(self);
    (void)json_object_set_new(
        self->card->data, "has_datasets",
        json_boolean(json_array_size(json_object_get(self->card->data, "datasets"))));
    card_model_questions(self->card, self->record != NULL);
}

bp_err card_model(card *self)
{
    subject s = {.card = self};
    bp_checkpoint *checkpoint = NULL;
    json_t *details = card_list(self, "details");
    bp_err err = find_run(&s);

    if (err == BP_OK && bp_ensemble_is(self->path))
        err = open_members(&s, &checkpoint, details);
    else if (err == BP_OK)
        err = bp_checkpoint_open_any(MPI_COMM_SELF, self->path, &checkpoint);
    if (err == BP_OK) {
        bp_checkpoint_warn_not_best(self->path);
        add_digest(self, bp_checkpoint_digest(checkpoint));
        err = add_checkpoint(&s, checkpoint, details);
    }
    if (err == BP_OK)
        add_all(&s, details);
    bp_checkpoint_close(&checkpoint);
    if (s.has_history)
        bp_history_clear(&s.history);
    bp_run_pairs_clear(&s.pairs);
    json_decref(s.record);
    json_decref(s.machine);
    bp_free(s.run);
    return err;
}
