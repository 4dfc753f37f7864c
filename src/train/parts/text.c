/* Fine-tuning for texts (task.kind=text): a model learns to write a target for a source, with the
 * head that it has. Called by task.c. */
#include "train/parts/text.h"

#include "base/config/json.h"
#include "base/config/run_options.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "mesh/collective.h"
#include "models/task/task.h"
#include "text/tokenizer/tokenizer.h"
#include "train/loop/trainer.h"
#include "train/parts/keys.h"
#include "train/parts/list.h"

#include <inttypes.h>
#include <string.h>

#define BEGINS "sources_begin" /* of a checkpoint's state */

typedef struct writing {
    int32_t *separator; /* between a source and its target, of a causal model; NULL without a
                           separator */
} writing;

bool text_is_asked(const bp_config *config)
{
    return bp_task_is_asked(config) && strcmp(bp_task_keys_of(config)->kind, "text") == 0;
}

static bp_err open_text(trainer *self, void **own)
{
    *own = text_is_asked(self->config) ? bp_alloc("input", 1, sizeof(writing)) : NULL;
    return BP_OK;
}

/* Causal models of pairs need no state except attention's. */
static bp_err shape(trainer *self, void *own)
{
    const bp_model_family *family = self->shape.family;
    bool causal = family->objective == &bp_objective_causal && bp_family_has_backbone(family);

    if (!own)
        return BP_OK;
    if (!family->source && !causal)
        return BP_FAIL(BP_ERR_CONFIG, "task.no_text",
                       "model.kind = %s writes no text for a source: at model.kind; use an "
                       "encoder-decoder, or a causal Transformer",
                       family->name);
    self->shape.objective = family->source ? &bp_objective_seq2seq : &bp_objective_text;
    return BP_OK;
}

/* The ids of task.separator, on the coordinator, which has the tokenizer. */
static bp_err encode_separator(const trainer *self, bp_ids *ids)
{
    const char *text = bp_task_keys_of(self->config)->separator;
    bp_tokenizer *tokenizer = NULL;
    bp_err err = keys_tokenizer(self, "task.separator", &tokenizer);

    if (err == BP_OK && self->facts.eod_id < 0)
        err = BP_FAIL(BP_ERR_CONFIG, "corpus.no_special_token",
                      "the corpus's tokenizer has no token for 'end', which ends a target: at "
                      "corpus.train; make the corpus with a tokenizer that has one");
    if (err == BP_OK)
        err = keys_encode(tokenizer, text, ids);
    bp_tokenizer_free(&tokenizer);
    for (int64_t k = 0; err == BP_OK && k < ids->count; k++)
        if ((int64_t)ids->data[k] == self->facts.roles[BP_ROLE_UNKNOWN] ||
            (int64_t)ids->data[k] >= self->facts.vocab_size)
            err = BP_FAIL(BP_ERR_CONFIG, "task.separator_unknown",
                          "task.separator = '%s' has characters that the tokenizer does not know: "
                          "at task.separator; use another text",
                          text);
    if (err == BP_OK && (ids->count == 0 || ids->count >= self->shape.context))
        err = BP_FAIL(BP_ERR_CONFIG, "task.separator_length",
                      "task.separator = '%s' has %" PRId64 " tokens: at task.separator; use 1 to "
                      "%" PRId64,
                      text, ids->count, self->shape.context - 1);
    return err;
}

/* A run that an earlier version began without the token stays without it. */
static bool may_begin(const char *run_dir)
{
    char *folder = NULL;
    json_t *manifest = NULL;
    bool is = bp_checkpoint_read_metadata(run_dir, &folder, &manifest) == BP_OK && manifest;
    bool may = !is || json_is_true(json_object_get(json_object_get(manifest, "state"), BEGINS));

    json_decref(manifest);
    bp_free(folder);
    return may;
}

/* Whether a source begins with the token that the tokenizer puts before texts, as prompts do. */
static void find_first(trainer *self)
{
    int64_t first = self->facts.roles[BP_ROLE_FIRST];
    bool begins = first >= 0 && first < self->facts.vocab_size;

    if (begins && self->mesh->coordinates)
        begins = may_begin(bp_run_keys_of(self->config)->dir);
    bp_bcast_bytes(&begins, sizeof begins, 0, self->mesh->world);
    self->rules.begins = begins;
    self->rules.first = begins ? (int32_t)first : 0;
}

/* The separator of a causal model. */
static bp_err rules(trainer *self, void *part)
{
    MPI_Comm world = self->mesh->world;
    writing *own = part;
    bp_ids ids = {0};
    int64_t count;
    bp_err err;

    if (!own || self->shape.family->source)
        return BP_OK;
    err = bp_agree(world, self->mesh->coordinates ? encode_separator(self, &ids) : BP_OK);
    count = ids.count;
    if (err == BP_OK) {
        bp_bcast_bytes(&count, sizeof count, 0, world);
        own->separator = bp_alloc("input", count, sizeof *own->separator);
        if (self->mesh->coordinates)
            memcpy(own->separator, ids.data, (size_t)count * sizeof *own->separator);
        bp_bcast_bytes(own->separator, count * (int64_t)sizeof *own->separator, 0, world);
        self->rules.separator = own->separator;
        self->rules.separator_count = count;
        find_first(self);
    }
    bp_ids_clear(&ids);
    return err;
}

bp_err text_save(const trainer *self)
{
    char *path = bp_path_join(bp_run_keys_of(self->config)->dir, "task.json");
    json_t *task =
        json_pack("{s:s, s:I}", "kind", "text", "documents", (json_int_t)self->facts.documents);
    bp_err err;

    if (!self->shape.family->source)
        (void)json_object_set_new(task, "separator",
                                  bp_json_string(bp_task_keys_of(self->config)->separator));
    bp_log("task: text, %" PRId64 " pairs", self->facts.documents);
    err = bp_json_save(path, task);
    json_decref(task);
    bp_free(path);
    return err;
}

static void put_state(const trainer *self, const void *own, bool best, json_t *state)
{
    (void)own, (void)best;
    if (self->rules.begins)
        (void)json_object_set_new(state, BEGINS, json_true());
}

static void close_text(void *own)
{
    bp_free(((writing *)own)->separator);
    bp_free(own);
}

const bp_training_part training_text = {
    .name = "text",
    .open = open_text,
    .at = {[PART_SHAPE] = shape, [PART_RULES] = rules},
    .put_state = put_state,
    .close = close_text,
};
