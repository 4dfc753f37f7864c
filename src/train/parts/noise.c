/* The objective of families that have a choice, and the rules of noised texts: noise.* and the
 * special tokens that they need. */
#include "train/parts/list.h"

#include "base/mem.h"
#include "mesh/collective.h"
#include "train/loop/trainer.h"
#include "train/parts/keys.h"

#include <stdio.h>
#include <string.h>

#define SENTINEL "<extra_id_"

typedef struct noise {
    int32_t *sentinels; /* of the rules; NULL without sentinels */
} noise;

static bp_err open_noise(trainer *self, void **own)
{
    (void)self;
    *own = bp_alloc("input", 1, sizeof(noise));
    return BP_OK;
}

static bool has_task(const trainer *self)
{
    return bp_task_is_asked(self->config);
}

static bp_err choose(trainer *self, const char *given)
{
    const bp_model_family *family = self->shape.family;
    const bp_objective *own = bp_model_objective(&self->shape), *other = family->other_objective;

    if (given && has_task(self))
        return BP_FAIL(BP_ERR_CONFIG, "model.unused_key",
                       "train.objective = %s is of pretraining, and a task has its own: at "
                       "train.objective; leave the key out",
                       given);
    if (has_task(self) || (given && own && strcmp(given, own->name) == 0))
        return BP_OK;
    if (given && (!other || strcmp(given, other->name) != 0))
        return BP_FAIL(BP_ERR_CONFIG, "model.other_objective",
                       "model.kind = %s does not learn by train.objective = %s: at "
                       "train.objective; it has %s%s%s",
                       family->name, given, own ? own->name : "none", other ? " and " : "",
                       other ? other->name : "");
    if (other && (given || !self->facts.has_pairs))
        self->shape.objective = other;
    return BP_OK;
}

/* Chooses the objective, by train.objective or by the kind of the corpora; sets the key if the
 * family has a choice. */
static bp_err shape(trainer *self, void *own)
{
    bool is_given = bp_config_is_set(self->config, "train.objective");
    const char *given = is_given ? bp_noise_keys_of(self->config)->objective : NULL;
    bp_err err = choose(self, given);

    (void)own;
    if (err == BP_OK && self->shape.family->other_objective && !has_task(self))
        err =
            bp_config_set(self->config, "train.objective", bp_model_objective(&self->shape)->name);
    return bp_agree(self->mesh->world, err);
}

/* ---- rules ---- */

static bool has(const trainer *self, bp_noise kind)
{
    return (self->rules.noises >> kind & 1) != 0;
}

static int noise_of(const char *name, size_t bytes)
{
    for (int k = 0; k < BP_NOISES; k++)
        if (strlen(bp_noise_names[k]) == bytes && strncmp(bp_noise_names[k], name, bytes) == 0)
            return k;
    return -1;
}

static bp_err read_kinds(trainer *self, const char *kinds)
{
    for (const char *at = kinds;; at++) {
        size_t bytes = strcspn(at, ",");
        int kind = noise_of(at, bytes);

        if (kind < 0)
            return BP_FAIL(
                BP_ERR_CONFIG, "noise.bad_kinds",
                "noise.kinds = %s has '%.*s', which is not a kind of noise: at noise.kinds; there "
                "are permute, mask, delete, infill, rotate and sentinels, with commas",
                kinds, (int)bytes, at);
        self->rules.noises |= 1U << kind;
        at += bytes;
        if (*at == '\0')
            break;
    }
    if (has(self, BP_NOISE_SENTINELS) && self->rules.noises != 1U << BP_NOISE_SENTINELS)
        return BP_FAIL(BP_ERR_CONFIG, "noise.bad_kinds",
                       "noise.kinds = %s has sentinels and others, but their target is not the "
                       "text: at noise.kinds; use only sentinels",
                       kinds);
    return BP_OK;
}

static bp_err check_noises(const trainer *self)
{
    const char *kinds = bp_noise_keys_of(self->config)->kinds;
    bool masks = has(self, BP_NOISE_MASK) || has(self, BP_NOISE_INFILL);

    if (masks && self->facts.roles[BP_ROLE_MASK] < 0)
        return BP_FAIL(BP_ERR_CONFIG, "corpus.no_special_token",
                       "the corpus's tokenizer has no token for '%s', which noise.kinds = %s "
                       "needs: at corpus.train; make the corpus with a tokenizer that has one, or "
                       "use other noises",
                       bp_role_name(BP_ROLE_MASK), kinds);
    if (has(self, BP_NOISE_PERMUTE) && !self->facts.has_segments)
        return BP_FAIL(BP_ERR_CONFIG, "corpus.no_sentences",
                       "noise.kinds = %s needs to know where sentences begin, which the corpus %s "
                       "does not mark: at noise.kinds; make it with bagpipe-data corpus "
                       "--sentences punctuation (or lines, of a sentence a line), or leave permute "
                       "out",
                       kinds, self->facts.unsegmented);
    if (self->shape.context < BP_DENOISE_CONTEXT)
        return BP_FAIL(BP_ERR_CONFIG, "noise.short_context",
                       "model.context = %lld is too short for a text with noise: at model.context; "
                       "use %d or more",
                       (long long)self->shape.context, BP_DENOISE_CONTEXT);
    return BP_OK;
}

/* ids[k] = the id of <extra_id_K>, up to the first that is missing. */
static bp_err find_sentinels(const bp_tokenizer *tokenizer, int64_t V, int32_t *ids, int64_t *count)
{
    bp_buffer text = {0};
    bp_err err = BP_OK;

    for (int64_t k = 0; k < V; k++)
        ids[k] = -1;
    for (int64_t id = 0; id < V && id < bp_tokenizer_size(tokenizer) && err == BP_OK; id++) {
        long number = -1;
        char end = '\0';

        bp_buffer_clear(&text);
        err = bp_tokenizer_token_text(tokenizer, id, &text);
        if (err == BP_OK && text.data && strncmp(text.data, SENTINEL, sizeof SENTINEL - 1) == 0 &&
            sscanf(text.data + sizeof SENTINEL - 1, "%9ld%c", &number, &end) == 2 && end == '>' &&
            number >= 0 && number < V)
            ids[number] = (int32_t)id;
    }
    bp_buffer_clear(&text);
    for (*count = 0; *count < V && ids[*count] >= 0;)
        ++*count;
    return err;
}

static bp_err read_sentinels(const trainer *self, int32_t *ids, int64_t *count)
{
    bp_tokenizer *tokenizer = NULL;
    bp_err err = keys_tokenizer(self, "noise.kinds = sentinels", &tokenizer);

    if (err == BP_OK)
        err = find_sentinels(tokenizer, self->facts.vocab_size, ids, count);
    bp_tokenizer_free(&tokenizer);
    if (err == BP_OK && *count == 0)
        err = BP_FAIL(BP_ERR_CONFIG, "corpus.no_special_token",
                      "the corpus's tokenizer has no token '%s0>', which noise.kinds = sentinels "
                      "needs: at corpus.train; make it with bagpipe-data tokenizer --kind unigram "
                      "--sentinels N",
                      SENTINEL);
    return err;
}

static bp_err share_sentinels(trainer *self, noise *own)
{
    int64_t V = self->facts.vocab_size, count = 0;
    bp_err err = BP_OK;

    own->sentinels = bp_alloc("input", V, sizeof *own->sentinels);
    if (self->mesh->coordinates)
        err = read_sentinels(self, own->sentinels, &count);
    err = bp_agree(self->mesh->world, err);
    if (err != BP_OK)
        return err;
    bp_bcast_bytes(&count, sizeof count, 0, self->mesh->world);
    bp_bcast_bytes(own->sentinels, count * (int64_t)sizeof *own->sentinels, 0, self->mesh->world);
    self->rules.sentinels = own->sentinels;
    self->rules.sentinel_count = count;
    return BP_OK;
}

static bp_err rules(trainer *self, void *own)
{
    const bp_objective *objective = bp_model_objective(&self->shape);
    const bp_noise_keys *keys = bp_noise_keys_of(self->config);
    bp_err err;

    if (!objective || !objective->noises)
        return keys_refuse(self, bp_noise_options, "noise.");
    err = read_kinds(self, keys->kinds);
    self->rules.noise_rate = keys->rate;
    self->rules.noise_span = keys->span;
    self->rules.has_sentences = self->facts.has_segments;
    if (err == BP_OK)
        err = check_noises(self);
    err = bp_agree(self->mesh->world, err);
    return err == BP_OK && has(self, BP_NOISE_SENTINELS) ? share_sentinels(self, own) : err;
}

static void close_noise(void *own)
{
    bp_free(((noise *)own)->sentinels);
    bp_free(own);
}

const bp_training_part training_noise = {
    .name = "noise",
    .open = open_noise,
    .at = {[PART_SHAPE] = shape, [PART_RULES] = rules},
    .close = close_noise,
};
