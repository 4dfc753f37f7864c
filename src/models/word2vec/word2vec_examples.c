/* From text to products: which occurrences are used, windows, and noise. All draws are functions of
 * (seed, step, slot, place, number). Called by word2vec_learner.c for each batch. */
#include "models/word2vec/word2vec_examples_priv.h"

#include "base/mem.h"

/* Blocks of random words of a place: 0 for the occurrence and its window, then two noise words
 * each. The most is 1 + 2 windows x ceil(noise / 2). */
#define PLACE_SHIFT 16

void w2v_group_init(w2v_group *group, const bp_model_shape *shape, const w2v_vocabulary *words)
{
    int64_t inputs = W2V_GROUP * 2 * w2v_sizes_of(shape)->window,
            targets = 1 + w2v_sizes_of(shape)->negative;
    bool cbow = w2v_sizes_of(shape)->mode == W2V_CBOW;

    if (words->code_start)
        targets = 0;
    for (int64_t id = 0; words->code_start && id < words->V; id++)
        if (words->code_start[id + 1] - words->code_start[id] > targets)
            targets = words->code_start[id + 1] - words->code_start[id];
    *group = (w2v_group){.unit_capacity = cbow ? W2V_GROUP : inputs};
    group->target_capacity = group->unit_capacity * targets;
    group->units = bp_alloc("word2vec.group", group->unit_capacity, sizeof *group->units);
    group->inputs = bp_alloc("word2vec.group", inputs, sizeof *group->inputs);
    group->targets = bp_alloc("word2vec.group", group->target_capacity, sizeof *group->targets);
    group->labels = bp_alloc("word2vec.group", group->target_capacity, sizeof *group->labels);
}

size_t w2v_group_bytes(const bp_model_shape *shape, size_t row_bytes)
{
    bool cbow = w2v_sizes_of(shape)->mode == W2V_CBOW,
         tree = w2v_sizes_of(shape)->output == W2V_HIERARCHICAL;
    size_t inputs = W2V_GROUP * 2 * (size_t)w2v_sizes_of(shape)->window,
           units = cbow ? W2V_GROUP : inputs,
           targets = units * (tree ? W2V_CODE_BITS : 1 + (size_t)w2v_sizes_of(shape)->negative);

    return units * (sizeof(w2v_unit) + row_bytes * (cbow ? 2 : 1)) + inputs * sizeof(int32_t) +
           targets * (sizeof(int32_t) + sizeof(uint8_t) + 2 * sizeof(float));
}

void w2v_group_clear(w2v_group *group)
{
    bp_free(group->units);
    bp_free(group->inputs);
    bp_free(group->targets);
    bp_free(group->labels);
    *group = (w2v_group){0};
}

void w2v_group_empty(w2v_group *group)
{
    group->unit_count = group->input_count = group->target_count = group->centres = 0;
}

void w2v_text_read(w2v_text *text, const int32_t *tokens, int64_t T, int64_t eod_id,
                   const w2v_vocabulary *words, const bp_rng_key *key)
{
    int32_t sentence = 0;

    text->count = 0;
    for (int64_t t = 0; t < T; t++) {
        float kept = words->kept[tokens[t]];
        uint32_t draw[4] = {0};

        sentence += tokens[t] == eod_id;
        if (kept == 0)
            continue;
        if (kept < 1)
            bp_rng_block(draw, key, (uint64_t)t << PLACE_SHIFT);
        if (kept < 1 && (double)draw[0] / 4294967296.0 >= (double)kept)
            continue;
        text->words[text->count] = tokens[t];
        text->positions[text->count] = (int32_t)t;
        text->sentences[text->count++] = sentence;
    }
}

static void add_target(w2v_group *group, int32_t row, bool label)
{
    group->targets[group->target_count] = row;
    group->labels[group->target_count++] = label;
}

/* The targets of one prediction of `word`; `number` distinguishes the predictions of a centre.
 * Noise equal to the word is omitted, as the original tool does. */
static void add_targets(w2v_group *group, int32_t word, const bp_model_shape *shape,
                        const w2v_vocabulary *words, const bp_rng_key *key, uint64_t first_block)
{
    uint32_t draws[W2V_NEGATIVE_MOST / 2][4]; /* two words each */
    int64_t negative = w2v_sizes_of(shape)->negative;

    if (words->code_start) {
        for (int64_t k = words->code_start[word]; k < words->code_start[word + 1]; k++)
            add_target(group, words->points[k], words->codes[k] == 0);
        return;
    }
    add_target(group, word, true);
    for (int64_t k = 0; k < negative; k += 2) {
        uint32_t *draw = draws[k / 2];

        bp_rng_block(draw, key, first_block + (uint64_t)k / 2);
        __builtin_prefetch(w2v_noise_cell_at(words, draw[0]));
        __builtin_prefetch(w2v_noise_cell_at(words, draw[2]));
    }
    for (int64_t k = 0; k < negative; k++) {
        const uint32_t *draw = &draws[k / 2][k % 2 * 2];
        const w2v_noise_cell *cell = w2v_noise_cell_at(words, draw[0]);
        int32_t noise = cell->ids[draw[1] >= cell->threshold];

        if (noise != word)
            add_target(group, noise, false);
    }
}

void w2v_group_add(w2v_group *group, const w2v_text *text, int64_t at, const bp_model_shape *shape,
                   const w2v_vocabulary *words, const bp_rng_key *key)
{
    bool cbow = w2v_sizes_of(shape)->mode == W2V_CBOW;
    int64_t most = w2v_sizes_of(shape)->window, blocks = (w2v_sizes_of(shape)->negative + 1) / 2;
    uint64_t place = (uint64_t)text->positions[at] << PLACE_SHIFT;
    uint32_t draw[4];
    w2v_unit unit = {.first_input = (int32_t)group->input_count,
                     .first_target = (int32_t)group->target_count};

    bp_rng_block(draw, key, place);
    int64_t reach = 1 + (int64_t)((uint64_t)draw[1] * (uint64_t)most >> 32);

    group->centres++;
    for (int64_t j = at - reach; j <= at + reach; j++) {
        if (j == at || j < 0 || j >= text->count || text->sentences[j] != text->sentences[at])
            continue;
        group->inputs[group->input_count++] = text->words[j];
        if (cbow)
            continue;
        uint64_t number = (uint64_t)(j - at + most);

        add_targets(group, text->words[at], shape, words, key,
                    place + 1 + number * (uint64_t)blocks);
        unit.end_input = (int32_t)group->input_count;
        unit.end_target = (int32_t)group->target_count;
        group->units[group->unit_count++] = unit;
        unit.first_input = unit.end_input;
        unit.first_target = unit.end_target;
    }
    if (!cbow || group->input_count == unit.first_input)
        return;
    add_targets(group, text->words[at], shape, words, key, place + 1);
    unit.end_input = (int32_t)group->input_count;
    unit.end_target = (int32_t)group->target_count;
    group->units[group->unit_count++] = unit;
}
