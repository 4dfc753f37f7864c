/* The rules of a masked model's examples: mask.*, and the special tokens of the corpus. */
#include "train/parts/list.h"

#include "base/log.h"
#include "base/mem.h"
#include "mesh/collective.h"
#include "train/loop/trainer.h"
#include "train/parts/keys.h"

#include <string.h>

typedef struct masks {
    bool *continues; /* of the rules, where whole words are masked; else NULL */
} masks;

static bp_err open_masks(trainer *self, void **own)
{
    (void)self;
    *own = bp_alloc("input", 1, sizeof(masks));
    return BP_OK;
}

static bp_err check_role(const trainer *self, bp_role role)
{
    if (self->facts.roles[role] >= 0)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "corpus.no_special_token",
                   "the corpus's tokenizer has no token for '%s', which a masked model needs: at "
                   "corpus.train; make the corpus with a tokenizer that has one",
                   bp_role_name(role));
}

static bool has_pairs_head(const trainer *self)
{
    const bp_model_family *family = self->shape.family;

    return family->has_pairs_head && family->has_pairs_head(&self->shape);
}

/* If the model has a head for pairs, examples are pairs unless a key says otherwise. */
static bool wants_pairs(const trainer *self)
{
    return bp_config_is_set(self->config, "mask.next_sentence")
               ? bp_mask_keys_of(self->config)->next_sentence
               : has_pairs_head(self);
}

/* A corpus whose pairs are all of one kind can't teach which pairs follow. */
static void warn_of_lone(const trainer *self)
{
    if (self->facts.has_lone_sentences)
        BP_WARN(
            "corpus.lone_sentences",
            "every document is one sentence, so no pair follows in the text: at corpus.train; make "
            "documents of several sentences, or set mask.next_sentence=no");
    if (self->facts.has_lone_document)
        BP_WARN("corpus.lone_document", "there is one document, so every pair follows in the text: "
                                        "at corpus.train; make several "
                                        "documents, or set mask.next_sentence=no");
}

static bp_err check_pairs(const trainer *self)
{
    bool given = bp_config_is_set(self->config, "mask.next_sentence");

    if (!self->rules.pairs)
        return BP_OK;
    if (!has_pairs_head(self))
        return BP_FAIL(BP_ERR_CONFIG, "mask.no_pooler",
                       "mask.next_sentence = yes, but this %s has no pooler with a head for it: at "
                       "mask.next_sentence; set it to no",
                       self->shape.family->name);
    if (self->shape.context < BP_PAIRS_CONTEXT)
        return BP_FAIL(
            BP_ERR_CONFIG, "mask.short_context",
            "model.context = %lld is too short for a pair of sentences: at model.context; "
            "use %d or more",
            (long long)self->shape.context, BP_PAIRS_CONTEXT);
    if (self->facts.has_segments && self->mesh->coordinates)
        warn_of_lone(self);
    if (self->facts.has_segments)
        return BP_OK;
    return BP_FAIL(BP_ERR_CONFIG, "corpus.no_sentences",
                   "mask.next_sentence = yes%s%s%s needs to know where sentences begin, which the "
                   "corpus %s does not mark: at mask.next_sentence; make it with bagpipe-data "
                   "corpus --sentences punctuation (or lines, of a sentence a line), or set "
                   "mask.next_sentence=no",
                   given ? "" : ", as of ", given ? "" : self->shape.family->name,
                   given ? "" : " if it is not given,", self->facts.unsegmented);
}

static bool may_set_first_position(const bp_model_family *family)
{
    for (const bp_model_size *size = family->sizes; size->name; size++)
        if (strcmp(size->name, "first_position") == 0)
            return true;
    return false;
}

/* Hugging Face counts positions of a RoBERTa by its padding token, and of an MPNet by 1: another
 * one would give an exported model other positions after a token of that number. */
static bp_err check_positions(const trainer *self)
{
    int64_t pad = self->facts.roles[BP_ROLE_PAD], first = self->shape.stack.first_position;

    if (first == 0 || pad < 0 || first == pad + 1)
        return BP_OK;
    if (!may_set_first_position(self->shape.family))
        return BP_FAIL(BP_ERR_CONFIG, "model.other_padding",
                       "a model of kind %s counts positions from %lld, but the padding token of "
                       "the corpus's tokenizer is %lld: at corpus.train; take a tokenizer whose "
                       "padding token is %lld",
                       self->shape.family->name, (long long)first, (long long)pad,
                       (long long)first - 1);
    return BP_FAIL(
        BP_ERR_CONFIG, "model.other_padding",
        "model.first_position = %lld, but the padding token of the corpus's tokenizer is "
        "%lld: at model.first_position; set it to %lld, as Hugging Face counts positions",
        (long long)first, (long long)pad, (long long)pad + 1);
}

static bp_err check_keys(const trainer *self)
{
    const bp_mask_keys *keys = bp_mask_keys_of(self->config);

    if (keys->keep + keys->random > 1)
        return BP_FAIL(BP_ERR_CONFIG, "mask.shares",
                       "mask.keep = %g and mask.random = %g are more than all masked tokens: at "
                       "mask.random; make it smaller",
                       keys->keep, keys->random);
    return BP_OK;
}

/* Which tokens go on with a word, on the coordinator, which has the tokenizer. */
static bp_err find_words(const trainer *self, bool *continues)
{
    bp_tokenizer *tokenizer = NULL;
    bool *parts = NULL; /* tokenizer.path may have more tokens than the corpus states */
    bp_err err = keys_tokenizer(self, "mask.whole_words", &tokenizer);

    if (err == BP_OK) {
        int64_t size = bp_tokenizer_size(tokenizer), V = self->facts.vocab_size;

        parts = bp_alloc("input", size, sizeof *parts);
        err = bp_tokenizer_word_parts(tokenizer, parts);
        memcpy(continues, parts, (size_t)(size < V ? size : V) * sizeof *parts);
    }
    bp_free(parts);
    bp_tokenizer_free(&tokenizer);
    return err;
}

static bp_err share_words(trainer *self, masks *own)
{
    int64_t V = self->facts.vocab_size;
    bp_err err = BP_OK;

    own->continues = bp_alloc("input", V, sizeof *own->continues);
    if (self->mesh->coordinates)
        err = find_words(self, own->continues);
    err = bp_agree(self->mesh->world, err);
    if (err == BP_OK)
        bp_bcast_bytes(own->continues, V * (int64_t)sizeof *own->continues, 0, self->mesh->world);
    return err;
}

static bp_err rules(trainer *self, void *part)
{
    const bp_mask_keys *keys = bp_mask_keys_of(self->config);
    const bp_objective *objective = bp_model_objective(&self->shape);
    masks *own = part;
    bp_err err;

    self->rules.rate = keys->rate;
    self->rules.keep = keys->keep;
    self->rules.random = keys->random;
    self->rules.span = keys->span;
    if (!objective || !objective->masks)
        return keys_refuse(self, bp_mask_options, "mask.");
    self->rules.pairs = wants_pairs(self);
    self->shape.asks_no_pairs = !self->rules.pairs;
    err = check_pairs(self);
    if (err == BP_OK)
        err = check_positions(self);
    if (err == BP_OK)
        err = check_keys(self);
    if (err == BP_OK)
        err = check_role(self, BP_ROLE_CLS);
    if (err == BP_OK)
        err = check_role(self, BP_ROLE_SEP);
    if (err == BP_OK)
        err = check_role(self, BP_ROLE_MASK);
    if (err == BP_OK && keys->whole_words)
        err = share_words(self, own);
    self->rules.continues = own->continues;
    return err;
}

static void close_masks(void *own)
{
    bp_free(((masks *)own)->continues);
    bp_free(own);
}

const bp_training_part training_masks = {
    .name = "masks", .open = open_masks, .at = {[PART_RULES] = rules}, .close = close_masks};
