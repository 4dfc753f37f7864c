/* What validation reads, in pieces: which windows or documents of the valid stream each has. Called
 * by validation.c. */
#include "train/loop/valid_pieces.h"

#include "base/fault.h"
#include "train/loop/examples.h"

valid_layout valid_layout_of(const trainer *self)
{
    bool of_windows = self->examples.maker.feed == BP_FEED_WINDOWS;
    int64_t stride = of_windows ? trainer_stride(self) : 1, each = self->spec.micro_batch,
            batch = self->spec.batch,
            predictions = self->facts.valid_tokens > 0 ? self->facts.valid_tokens - 1 : 0;
    valid_layout out = {.whole = of_windows ? predictions / stride : self->facts.valid_documents,
                        .tail = of_windows ? predictions % stride : 0,
                        .carries = of_windows && self->shape.family->carries_state};

    out.slots = out.carries && batch < out.whole ? batch : out.whole;
    out.groups = out.slots > 0 ? (out.slots + each - 1) / each : 1;
    out.rounds = out.slots > 0 ? (out.whole + out.slots - 1) / out.slots : 0;
    out.rounds += out.tail > 0;
    return out;
}

static int64_t slot_windows(const valid_layout *all, int64_t slot)
{
    return all->whole / all->slots + (slot < all->whole % all->slots);
}

/* The first window of a slot. */
static int64_t slot_first(const valid_layout *all, int64_t slot)
{
    int64_t longer = all->whole % all->slots;

    return slot * (all->whole / all->slots) + (slot < longer ? slot : longer);
}

valid_piece valid_piece_at(const trainer *self, const valid_layout *all, int64_t k)
{
    int64_t each = self->spec.micro_batch, group = k / all->rounds, first = group * each;
    valid_piece out = {.slot = first, .round = k % all->rounds, .T = self->shape.context};

    while (out.windows < each && first + out.windows < all->slots &&
           slot_windows(all, first + out.windows) > out.round)
        out.windows++;
    if (out.windows == 0 && group == all->groups - 1 && out.round == all->rounds - 1 &&
        all->tail > 0) {
        out.windows = 1;
        out.T = all->tail + self->shape.context - trainer_stride(self); /* with its frame */
        out.slot = all->slots > 0 ? all->slots - 1 : 0;
        out.place = out.slot - (all->slots > 0 ? first : 0);
    }
    return out;
}

/* Where window w of a piece begins. */
static int64_t token_of(const trainer *self, const valid_layout *all, const valid_piece *p,
                        int64_t w)
{
    int64_t stride = trainer_stride(self);

    return p->T < self->shape.context ? all->whole * stride
                                      : (slot_first(all, p->slot + w) + p->round) * stride;
}

/* A run of another document, the same whenever it is asked for. */
static bp_err read_other(trainer *self, int64_t entry, const bp_document **out)
{
    bp_rng_key key = bp_rng_key_of(self->spec.seed, BP_RNG_PAIR, 0, 0, entry);
    int64_t other = bp_document_table_other(self->data.valid_table, entry, 0,
                                            self->facts.valid_documents, &key);

    return other >= 0 ? bp_document_table_read(self->data.valid_table, other, NULL, out) : BP_OK;
}

static bp_err read_documents(trainer *self, const valid_layout *all, const valid_piece *p,
                             const bp_example_maker *maker)
{
    bp_err err = BP_OK;

    for (int64_t w = 0; w < p->windows && err == BP_OK; w++) {
        int64_t entry = slot_first(all, p->slot + w);
        const bp_document *document, *other = NULL;

        if (maker->feed == BP_FEED_RUNS)
            err = read_other(self, entry, &other);
        if (err == BP_OK)
            err = bp_document_table_read(self->data.valid_table, entry, other, &document);
        if (err == BP_OK)
            bp_example_make_document(maker, document, 0, entry, self->examples.buffer, p->windows,
                                     w);
    }
    return err;
}

/* Windows overlap by a token: of a causal model the last target of one is the first input of the
 * next. Examples of validation are those of a step 0. */
bp_err valid_piece_read(trainer *self, const valid_layout *all, const valid_piece *p,
                        const bp_example_maker *maker)
{
    bp_err err = BP_OK;

    if (maker->feed != BP_FEED_WINDOWS)
        return read_documents(self, all, p, maker);
    for (int64_t w = 0; w < p->windows && err == BP_OK; w++) {
        int64_t first = token_of(self, all, p, w);

        err = bp_stream_read(self->data.valid_stream, first, maker->window, self->examples.window);
        if (err == BP_OK && bp_fault("train.read_valid"))
            err = BP_FAIL(BP_ERR_IO, "fault.injected", "a fault was injected: at token %lld",
                          (long long)first);
        if (err == BP_OK)
            bp_example_make(maker, self->examples.window, 0, first / trainer_stride(self),
                            self->examples.buffer, p->windows, w);
    }
    return err;
}
