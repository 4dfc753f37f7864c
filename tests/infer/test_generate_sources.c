/* Beams of an encoder-decoder, decoded with its caches: of full width they are exhaustive search,
 * in which each text is scored whole, without a cache. */
#include "bp_test_mpi.h"
#include "bp_test_perturb.h"

#include "infer/generate/search/search.h"
#include "math/math.h"
#include "models/list.h"
#include "models/network/network_inside_priv.h"
#include "models/network/network_model.h"
#include "models/open.h"
#include "models/seq2seq/seq2seq.h"
#include "train/engine/stage.h"

#include <math.h>

#define WORLD MPI_COMM_WORLD

enum { V = 7, T = 5, ALL = 16807 /* 7^5 */, WIDE = 2401 /* 7^4 */, START = 0, END = 4, SOURCE = 4 };

static const int32_t source[SOURCE] = {3, 6, 2, 4};

typedef struct world {
    bp_mesh *mesh;
    bp_config *config;
    bp_model *model;
    bp_stage *stage;
} world;

/* Relative positions whose buckets a text of 5 fills; larger weights than the initial ones, so that
 * distributions have a shape. */
static void open_world(world *w)
{
    static const bp_option *const tables[] = {bp_math_options, NULL};
    bp_mesh_shape on = {1, 1, 1, 1, BP_COORDINATOR_SHARED};
    bp_stage_spec spec = {
        .most = {1, {T, SOURCE}}, .micro_batches = 1, .schedule = BP_1F1B, .stages = 1};
    bp_model_shape shape = {.family = &bp_t5_family,
                            .layers = 2,
                            .width = 8,
                            .heads = 2,
                            .context = 8,
                            .vocab_size = V};

    shape.stack.relative_buckets = 4;
    shape.stack.relative_distance = 4;
    shape.family->fill_defaults(&shape);
    bp_test_expect(bp_config_new(&w->config, tables, tables), BP_OK);
    bp_test_expect(bp_config_set(w->config, "math.precision", "f32"), BP_OK);
    bp_test_expect(bp_mesh_new(&w->mesh, WORLD, &on), BP_OK);
    bp_test_expect(bp_model_new(&w->model, w->mesh, w->config, &shape, 7), BP_OK);
    network_model *model = (network_model *)w->model;
    for (int g = 0; g < model->network->group_count; g++) {
        const bp_group *group = &model->network->groups[g];

        for (int64_t i = 0; !group->replicated && i < group->floats; i++)
            model->values[group->place + i] *= 4;
    }
    bp_test_perturb(model->network, 3, 0.3F);
    bp_network_refresh(model->network);
    bp_test_expect(bp_stage_new(&w->stage, w->mesh, model->network, &spec), BP_OK);
}

static void close_world(world *w)
{
    bp_stage_free(&w->stage);
    bp_model_free(&w->model);
    bp_mesh_free(&w->mesh);
    bp_config_free(&w->config);
}

/* ---- exhaustive search ---- */

typedef struct found {
    double score;
    int32_t tokens[T];
    int64_t count;
} found;

static double logprob_of(const world *w, const found *text)
{
    int32_t inputs[T] = {START}, targets[T] = {0}, length = SOURCE;
    double sums[BP_TERMS];
    int64_t counts[BP_TERMS];
    bp_batch batch = bp_batch_of_positions(1, T, inputs, targets);

    for (int64_t t = 0; t < T; t++) {
        targets[t] = t < text->count ? text->tokens[t] : -1;
        if (t > 0)
            inputs[t] = t <= text->count ? text->tokens[t - 1] : 0;
    }
    batch.stream[1].T = SOURCE;
    batch.stream[1].inputs = source;
    batch.stream[1].lengths = &length;
    bp_stage_evaluate(w->stage, &(bp_evaluation){.batch = &batch}, sums, counts);
    assert_int_equal(counts[0], text->count);
    return -sums[0];
}

/* All texts that go on from `one`. */
static void enumerate(const world *w, found *all, int64_t *count, found one)
{
    if (one.count == T || (one.count > 0 && one.tokens[one.count - 1] == END)) {
        one.score = logprob_of(w, &one) / (double)one.count;
        all[(*count)++] = one;
        return;
    }
    one.count++;
    for (int32_t v = 0; v < V; v++) {
        one.tokens[one.count - 1] = v;
        enumerate(w, all, count, one);
    }
}

static int by_score(const void *a, const void *b)
{
    const found *x = a, *y = b;

    return x->score > y->score ? -1 : x->score < y->score;
}

static const found *find(const found *all, int64_t count, const bp_search_text *text)
{
    for (int64_t k = 0; k < count; k++)
        if (all[k].count == text->count &&
            memcmp(all[k].tokens, text->tokens, (size_t)text->count * sizeof *text->tokens) == 0)
            return &all[k];
    return NULL;
}

/* ---- beams ---- */

/* What a search asks for is fed, until it is over. */
static bp_search *search_all(const world *w, const bp_search_spec *spec)
{
    static const int64_t starts[] = {0, SOURCE};
    static const int32_t begin[] = {START};
    int64_t K = bp_search_slots(spec);
    int32_t *counts = bp_alloc("test", K, sizeof *counts),
            *tokens = bp_alloc("test", K, sizeof *tokens);
    float *logits = bp_alloc("test", K * V, sizeof *logits);
    double *log_sums = bp_alloc("test", K, sizeof *log_sums);
    bp_decode_step step = {.slots = K, .counts = counts, .tokens = tokens};
    bp_decode_sources sources = {1, K, starts, source};
    bp_search_rows rows = {.logits = logits, .log_sums = log_sums};
    bp_search_next next;
    bp_decoding *decoding;
    bp_search *search;
    bp_choice choice;

    bp_test_expect(bp_model_decode_new(&decoding, w->model, 1, K, T), BP_OK);
    bp_model_decode_sources(decoding, 0, &sources);
    bp_choice_init(&choice, &spec->choice);
    bp_search_new(&search, spec, begin, 1, 0, T, false);
    counts[0] = 1;
    tokens[0] = START;
    do {
        bp_model_decode(decoding, 0, &step, logits, NULL);
        for (int64_t k = 0; k < K; k++) {
            double sum = 0;

            for (int64_t v = 0; step.counts[k] && v < V; v++)
                sum += exp((double)logits[k * V + v]);
            log_sums[k] = log(sum);
        }
        if (!bp_search_step(search, &choice, &rows, &next))
            break;
        step.counts = next.counts;
        step.parents = next.parents;
        for (int64_t k = 0, fed = 0; k < K; k++)
            if (next.counts[k])
                tokens[fed++] = next.tokens[k];
    } while (true);
    bp_choice_clear(&choice);
    bp_model_decode_free(&decoding);
    bp_free(counts);
    bp_free(tokens);
    bp_free(logits);
    bp_free(log_sums);
    return search;
}

/* Scores are float32 sums in another order: texts may change positions where they are as near. */
static void full_width_is_exhaustive_search(void **state)
{
    enum { TEXTS = 300 };
    found *all = bp_alloc("test", ALL, sizeof *all);
    bp_search_spec spec = {
        .choice = {.vocab_size = V, .temperature = 1, .top_p = 1, .repetition_penalty = 1},
        .beams = WIDE,
        .texts = TEXTS,
        .length_penalty = 1,
        .end = END};
    int64_t count = 0;
    double worst = 0;
    world w;

    (void)state;
    open_world(&w);
    enumerate(&w, all, &count, (found){0});
    qsort(all, (size_t)count, sizeof *all, by_score);
    assert_true(all[0].score - all[TEXTS].score > 0.5); /* they have a shape */
    bp_search *search = search_all(&w, &spec);
    assert_int_equal(bp_search_texts(search), TEXTS);
    for (int64_t i = 0; i < TEXTS; i++) {
        bp_search_text text = bp_search_text_at(search, i);
        const found *same = find(all, count, &text);

        assert_non_null(same);
        worst = fmax(worst, fabs(text.score - same->score));
        worst = fmax(worst, fabs(text.score - all[i].score));
    }
    assert_true(worst < 2e-5);
    bp_search_free(&search);
    close_world(&w);
    bp_free(all);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(full_width_is_exhaustive_search)};

    return BP_TEST_RUN_MPI(argc, argv, tests);
}
