/* score.states of models that read whole texts, as units of work: a unit is a few consecutive
 * texts, and its part has their states. (For models that return keys see keys.c.) A set of
 * sets.h. */
#include "infer/score/states/states.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "infer/score/unit.h"
#include "mesh/collective.h"
#include "models/open.h"

#include <inttypes.h>
#include <string.h>

#define TEXT_TOKENS 2048 /* of a text that is read whole, unless score.context says otherwise */
#define UNIT_TOKENS 512  /* of the texts of a unit together; one text may be longer */

/* A run of a document's text that is read whole, and the place of its rows. */
typedef struct state_text {
    int64_t file, first, count; /* in the file's /tokens */
    int64_t row;                /* of /layer_K */
} state_text;

typedef struct state_texts {
    scorer *self;
    bp_work_units units;
    int64_t most;      /* tokens of a text */
    int64_t count;     /* on leads and the coordinator, as the next four */
    state_text *texts; /* [count] */
    int64_t *starts;   /* [units + 1]: the texts of unit u are [starts[u], starts[u + 1]) */
    int64_t tokens_in_all;
    char key[BP_SHA256_HEX];
    int32_t *tokens; /* [most], on the computing ranks */
    float *states;   /* [layers][most][columns]; not on a lead, */
    float *to;       /* where it points into the unit's result */
} state_texts;

static state_texts *texts_of(const void *context)
{
    return scorer_own(context, &score_states_set);
}

/* The start of the next text. */
typedef struct place {
    int64_t document, token;
} place;

/* ---- the texts ---- */

/* The next text of the plan, from `at` on; its count is 0 at the end. Pieces of a document longer
 * than a text are separate texts. */
static bp_err next_text(const state_texts *s, place *at, state_text *out)
{
    const bp_score_plan *plan = &s->self->plan;
    bp_err err = BP_OK;

    out->count = 0;
    while (at->document < plan->documents && out->count == 0 && err == BP_OK) {
        bp_score_document document;
        int64_t left;

        err = bp_score_plan_document(plan, at->document, &document);
        if (err != BP_OK)
            return err;
        left = bp_score_plan_has(plan, at->document) ? document.text - at->token : 0;
        if (left <= 0) {
            *at = (place){at->document + 1, 0};
            continue;
        }
        *out = (state_text){.file = document.file,
                            .first = document.start + at->token,
                            .count = left < s->most ? left : s->most};
        out->row = plan->first_token[out->file] + out->first;
        at->token += out->count;
    }
    return err;
}

static bp_err list_texts(state_texts *s)
{
    place at = {0, 0};
    int64_t capacity = 0;
    bp_err err;

    for (;;) {
        if (s->count == capacity) {
            capacity = 2 * capacity + 256;
            s->texts = bp_realloc("score.states", s->texts, capacity, sizeof *s->texts);
        }
        err = next_text(s, &at, &s->texts[s->count]);
        if (err != BP_OK || s->texts[s->count].count == 0)
            return err;
        s->count++;
    }
}

/* Warns about documents that are cut because no key sets the length of a text. */
static void warn_of_pieces(const state_texts *s)
{
    int64_t documents = 0, longest = 0, tokens = 0;

    for (int64_t k = 0; k < s->count; k++) {
        const state_text *text = &s->texts[k], *before = k > 0 ? &s->texts[k - 1] : NULL;
        bool goes_on = before && text->row == before->row + before->count;

        documents += goes_on && tokens == before->count;
        tokens = goes_on ? tokens + text->count : text->count;
        longest = tokens > longest ? tokens : longest;
    }
    if (documents > 0 && bp_score_rule_keys_of(s->self->config)->context == 0)
        BP_WARN("score.cut_states",
                "%" PRId64 " documents are longer than %" PRId64
                " tokens and are read in pieces, each without what is around it: at "
                "score.states; score.context=%" PRId64 " reads them whole, in more memory",
                documents, s->most, longest);
}

/* The most tokens of a unit. */
static int64_t unit_tokens(const state_texts *s)
{
    return s->most > UNIT_TOKENS ? s->most : UNIT_TOKENS;
}

/* The most consecutive texts with at most UNIT_TOKENS together, at least one. */
static void cut_units(state_texts *s)
{
    int64_t tokens = 0;

    s->starts = bp_alloc("score.states", s->count + 1, sizeof *s->starts);
    for (int64_t k = 0; k < s->count; k++) {
        if (k == 0 || tokens + s->texts[k].count > UNIT_TOKENS) {
            s->starts[s->units.count++] = k;
            tokens = 0;
        }
        tokens += s->texts[k].count;
        s->tokens_in_all += s->texts[k].count;
    }
    s->starts[s->units.count] = s->count;
}

static int64_t count_tokens(const void *context, int64_t number)
{
    const state_texts *s = texts_of(context);
    int64_t tokens = 0;

    for (int64_t k = s->starts[number]; k < s->starts[number + 1]; k++)
        tokens += s->texts[k].count;
    return tokens;
}

/* ---- a unit ---- */

/* A unit's result, of the size of the largest one: states are computed in place. */
static bp_err make_room(const state_texts *s, bp_buffer *out)
{
    size_t bytes =
        (size_t)(s->self->info.states.layers * unit_tokens(s) * s->self->info.states.columns) *
        sizeof(float);

    return bp_buffer_try_reserve(out, "score.states", bytes) ? BP_OK : states_no_memory(s->most);
}

typedef struct text_asked {
    int64_t tokens;
    int32_t eod; /* the lead's corpus decides */
} text_asked;

/* A text through the model. */
static bp_err answer(void *context, const void *what)
{
    const scorer *self = context;
    const state_texts *s = texts_of(self);
    const text_asked *it = what;

    bp_heartbeat_progress();
    bp_bcast_bytes(s->tokens, it->tokens * (int64_t)sizeof *s->tokens, 0, self->mesh->replica);
    return self->model->ops->states(self->model, &(bp_model_text){s->tokens, it->tokens, it->eod},
                                    self->leads ? s->to : s->states);
}

static bp_err load_text(state_texts *s, const state_text *text)
{
    bp_corpus_file *file = bp_corpus_file_at(s->self->corpus, text->file);

    return bp_corpus_file_read(file, text->first, text->count, s->tokens);
}

static bp_err run_unit(void *context, int64_t number, bp_buffer *out, bool *stopped)
{
    const scorer *self = context;
    const bp_state_form *form = &self->info.states;
    state_texts *s = texts_of(self);
    bp_err err = make_room(s, out);

    for (int64_t k = s->starts[number]; err == BP_OK && k < s->starts[number + 1]; k++) {
        const state_text *text = &s->texts[k];
        const text_asked it = {text->count, (int32_t)self->rule.eod};

        *stopped = bp_work_between(self->job);
        if (*stopped)
            break;
        if (k + 1 == s->starts[number + 1])
            bp_work_ask_next(self->job);
        err = load_text(s, text);
        s->to = (float *)(void *)(out->data + out->bytes);
        if (err == BP_OK)
            err = bp_request(&self->job->requests, &it, sizeof it);
        if (err == BP_OK)
            out->bytes += (size_t)(form->layers * text->count * form->columns) * sizeof(float);
    }
    return err;
}

/* ---- before and after ---- */

static bp_err prepare(void *context)
{
    const scorer *self = context;
    state_texts *s = texts_of(self);
    int64_t floats = self->info.states.layers * s->most * self->info.states.columns;

    s->tokens = bp_alloc("score.states", s->most, sizeof *s->tokens);
    if (!self->leads)
        s->states = bp_try_alloc("score.states", floats, sizeof *s->states);
    return self->leads || s->states ? BP_OK : states_no_memory(s->most);
}

static void release(void *context)
{
    state_texts *s = texts_of(context);

    bp_free(s->states);
    bp_free(s->tokens);
}

static bp_err write_unit(const state_texts *s, const bp_part_result *part, state_file *file)
{
    size_t row = (size_t)(file->form.layers * file->form.columns) * sizeof(float);
    const char *data = part->data;
    bp_err err = bp_part_result_expect(part, (size_t)count_tokens(s->self, part->unit) * row);

    for (int64_t k = s->starts[part->unit]; err == BP_OK && k < s->starts[part->unit + 1]; k++) {
        const state_text *text = &s->texts[k];

        err = state_file_rows(file, text->row, text->count, (const float *)(const void *)data);
        data += (size_t)text->count * row;
    }
    return err;
}

static bp_err merge(void *context, bp_parts *parts)
{
    const scorer *self = context;
    const state_texts *s = texts_of(self);
    state_file file;
    bp_part_result part = {0};
    bp_err err = state_file_begin(&file, self, s->most);

    while (bp_parts_next(parts, &part, &err)) {
        err = states_look_for_stop();
        if (err == BP_OK)
            err = write_unit(s, &part, &file);
    }
    return state_file_end(&file, err);
}

static int64_t bytes_of(const bp_config *config, const bp_state_form *form, int64_t inputs,
                        int64_t context)
{
    int64_t asked = bp_score_rule_keys_of(config)->context, most = asked, rows;

    if (asked == 0)
        most = context < TEXT_TOKENS ? context : TEXT_TOKENS;
    /* all layers of this rank, with several stages also in a buffer; the mix, and rows of a gap */
    rows = form->layers * ((most > UNIT_TOKENS ? most : UNIT_TOKENS) + most) + 2 * most;
    if (form->keys) /* of a batch, a unit and a gap */
        rows = bp_score_batch_tokens(inputs) + BP_SCORE_UNIT_INPUTS + inputs + STATE_GAP;
    return rows * form->columns * (int64_t)sizeof(float);
}

/* Nothing for a job without score.states. */
static int64_t bytes(const bp_work_models *models, int64_t inputs)
{
    const bp_score_keys *keys = bp_score_keys_of(models->config);
    bp_state_form form =
        keys && keys->states ? bp_model_state_form_of(models->states[0]) : (bp_state_form){0};

    return form.layers > 0
               ? bytes_of(models->config, &form, inputs, bp_model_state_context(models->states[0]))
               : 0;
}

static bp_err list_units(state_texts *s)
{
    const scorer *self = s->self;
    bp_err err;

    if (self->rule.eod < 0)
        return BP_FAIL(BP_ERR_CONFIG, "score.no_states",
                       "score.states = yes reads a text between end-of-document tokens, but "
                       "neither corpus nor model names one: at score.states; make the corpus with "
                       "a tokenizer that has one");
    err = list_texts(s);
    if (err != BP_OK)
        return err;
    if (self->mesh->coordinates)
        warn_of_pieces(s);
    cut_units(s);
    bp_work_key(s->key, "states 1 %s %" PRId64 " %d", self->key, s->most, UNIT_TOKENS);
    return BP_OK;
}

/* ---- the set ---- */

static bool is_asked(const scorer *self)
{
    return bp_score_keys_of(self->config)->states && !bp_task_has_head(&self->info.task);
}

static bp_err open_set(scorer *self, void **own)
{
    bool asked = bp_score_rule_keys_of(self->config)->context > 0,
         reads = self->leads || self->mesh->coordinates;
    state_texts *s;

    if (self->info.states.keys)
        return BP_OK;
    s = *own = bp_alloc("score.states", 1, sizeof *s);
    s->self = self;
    s->most = self->rule.context < TEXT_TOKENS || asked ? self->rule.context : TEXT_TOKENS;
    return bp_agree(self->mesh->world, reads ? list_units(s) : BP_OK);
}

static void close_set(void *own)
{
    state_texts *s = own;

    bp_free(s->starts);
    bp_free(s->texts);
    bp_free(s);
}

static const bp_work_units *units(scorer *self)
{
    state_texts *s = texts_of(self);

    if (!s)
        return NULL;
    s->units = (bp_work_units){.parts = "states-parts",
                               .key = s->key,
                               .count = s->units.count,
                               .mesh_keys = "mesh.tensor",
                               .again = "computed",
                               .amount = (double)s->tokens_in_all,
                               .noun = "tokens of states",
                               .speed = "tokens/s",
                               .prepare = prepare,
                               .run = run_unit,
                               .answer = answer,
                               .amount_of = count_tokens,
                               .release = release,
                               .merge = merge};
    return &s->units;
}

const score_set score_states_set = {
    .is_asked = is_asked,
    .files = (const score_file[]){{.name = "states.h5"}, {0}},
    .open = open_set,
    .close = close_set,
    .units = units,
    .merge_windows = states_merge_keys,
    .bytes = bytes,
};
