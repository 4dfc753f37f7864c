/* Decoding in beams, of long prompts, and its memory. test_decoding_families.c compares it with
 * scoring. */
#include "bp_test_mpi.h"

#include "bp_test_memory.h"

#include "decoding_world.h"

#include "base/fault.h"

/* Sequences by what they have become, fed anew in one step: the same bits. */
static bool is_as_fed_anew(const world *w, const fed *f, const sequence *of, bp_decoding *decoding)
{
    int64_t here = w->model->info.vocab_count, tokens = 0;
    bool equal = true;
    fed anew;

    open_fed(&anew, w);
    bp_model_decode_reset(decoding, 1);
    for (int s = 0; s < SLOTS; s++) {
        anew.counts[s] = (int32_t)of[s].length;
        memcpy(anew.tokens + tokens, of[s].ids, (size_t)of[s].length * sizeof *of[s].ids);
        tokens += of[s].length;
    }
    bp_model_decode(decoding, 1, &anew.step, anew.logits, NULL);
    for (int s = 0; is_last(w) && s < SLOTS; s++)
        equal = equal && (f->counts[s] == 0 || memcmp(f->logits + s * here, anew.logits + s * here,
                                                      (size_t)here * sizeof(float)) == 0);
    bp_free(anew.logits);
    return equal;
}

/* Slots go on from each other at random, and have lengths of their own, so that they would write
 * over what others still read if cells were not looked for. */
static void beams_equal_fresh_sequences(void **state)
{
    bp_model_shape shapes[] = {gpt,
                               llama(2, 7),
                               scaled(BP_ROPE_LONGROPE),
                               recurrent(&bp_lstm_family, 0),
                               recurrent(&bp_gru_family, 20),
                               recurrent(&bp_cell_family, 0),
                               feedforward(4, true)};
    const int count = bp_comm_size(WORLD) == 4 ? 6 : 7; /* no four stages of its three blocks */

    (void)state;
    for (int k = 0; k < count * mesh_count(); k++) {
        sequence of[SLOTS] = {0}, before[SLOTS];
        bp_decoding *decoding;
        bool equal = true;
        world w;
        fed f;

        open_world(&w, &shapes[k % count], k / count);
        open_fed(&f, &w);
        bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.model, 2, SLOTS, CAPACITY),
                          BP_OK);
        for (int n = 0; n < 14; n++) {
            f.step.parents = n == 0 ? NULL : f.parents;
            f.step.slots = n % 5 == 4 ? SLOTS - 1 : SLOTS;
            memcpy(before, of, sizeof of);
            for (int s = 0; s < SLOTS; s++) {
                f.parents[s] = draw(SLOTS);
                f.counts[s] = s >= f.step.slots ? 0 : n == 0 ? 1 + draw(4) : draw(3);
                if (n > 0 && s < f.step.slots)
                    of[s] = before[f.parents[s]];
            }
            feed(&f, of, decoding, 0, false);
            equal = is_as_fed_anew(&w, &f, of, decoding) && equal;
        }
        bp_test_check(WORLD, equal);
        bp_model_decode_free(&decoding);
        bp_free(f.logits);
        close_world(&w);
    }
}

/* A prompt longer than the rows that are on their way at once: as one token after the other. */
static void long_prompts_go_piece_by_piece(void **state)
{
    enum { LONG = 300 };
    bp_model_shape shape = gpt;
    static int32_t ids[LONG];
    int32_t all = LONG, one = 1;
    bp_decoding *decoding;
    bool equal = true;
    world w;

    (void)state;
    shape.context = LONG;
    open_world(&w, &shape, 0);
    float *logits = bp_alloc("test", 2 * w.model->info.vocab_count + 1, sizeof *logits),
          *other = logits + w.model->info.vocab_count;
    bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.model, 2, 1, LONG), BP_OK);
    for (int t = 0; t < LONG; t++) {
        ids[t] = draw(V);
        bp_model_decode(decoding, 0, &(bp_decode_step){1, &one, &ids[t], NULL}, logits, NULL);
    }
    bp_model_decode(decoding, 1, &(bp_decode_step){1, &all, ids, NULL}, other, NULL);
    for (int64_t v = 0; is_last(&w) && v < w.model->info.vocab_count; v++)
        equal = equal && logits[v] == other[v];
    bp_test_check(WORLD, equal);
    bp_model_decode_free(&decoding);
    bp_free(logits);
    close_world(&w);
}

/* What is estimated of the first tensor rank before there is a model; it has the most. */
static bool is_estimated(const world *w, int64_t planned)
{
    bp_mesh_shape on = {1, w->mesh->pipeline_ranks, 1, w->mesh->tensor_ranks,
                        BP_COORDINATOR_SHARED};
    bp_model_task task = {.mesh = &on,
                          .stage = w->mesh->pipeline_rank,
                          .groups = GROUPS,
                          .slots = SLOTS,
                          .capacity = CAPACITY};
    bp_model_memory memory;

    bp_test_expect(bp_model_estimate_shape(&memory, &gpt, w->config, &task), BP_OK);
    return memory.work_bytes == 0 && (w->mesh->tensor_rank == 0 ? memory.decode_bytes == planned
                                                                : memory.decode_bytes >= planned);
}

static void a_step_allocates_nothing_and_the_plan_is_right(void **state)
{
    (void)state;
    for (int number = 0; number < mesh_count(); number++) {
        sequence of[SLOTS] = {0};
        bp_decoding *decoding;
        world w;
        fed f;

        open_world(&w, &gpt, number);
        open_fed(&f, &w);
        int64_t planned = bp_model_decode_bytes(w.model, GROUPS, SLOTS, CAPACITY);
        bp_test_check(WORLD, is_estimated(&w, planned));
        size_t before = bp_mem_now_bytes();
        bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.model, GROUPS, SLOTS, CAPACITY),
                          BP_OK);
        int64_t taken = (int64_t)(bp_mem_now_bytes() - before);
        bp_test_check(WORLD, taken >= planned && taken <= planned + 4096);
        bp_test_peak peak = bp_test_peak_begin();
        for (int n = 0; n < 4; n++) {
            for (int s = 0; s < SLOTS; s++)
                f.counts[s] = n == 0 ? 1 + 2 * s : s % (n + 1) != n;
            feed(&f, of, decoding, 0, true);
        }
        bp_test_check(WORLD, bp_test_peak_end(&peak) == 0);
        bp_model_decode_free(&decoding);
        bp_free(f.logits);
        close_world(&w);
    }
}

static void what_can_not_be_done_is_refused_on_all_ranks(void **state)
{
    bp_decoding *decoding;
    world w;

    (void)state;
    open_world(&w, &gpt, 0);
    bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.model, 1, 1, CONTEXT + 1),
                      BP_ERR_CONFIG);
    bp_test_message_has("context of 40");
    bp_test_check(WORLD, decoding == NULL);
    bp_fault_arm(bp_comm_size(WORLD) > 1 ? "base.alloc:1@1" : "base.alloc:1");
    bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.model, 1, SLOTS, CAPACITY),
                      BP_ERR_SYSTEM);
    bp_fault_arm(NULL);
    bp_test_check(WORLD, decoding == NULL);
    const bp_model_ops *ops = w.model->ops;
    bp_model_ops none = *ops;
    none.decode_new = NULL;
    none.decode_bytes = NULL;
    w.model->ops = &none;
    bp_test_check_err(WORLD, bp_model_decode_new(&decoding, w.model, 1, SLOTS, CAPACITY),
                      BP_ERR_CONFIG);
    bp_test_check(WORLD, bp_model_decode_bytes(w.model, 1, SLOTS, CAPACITY) == 0);
    w.model->ops = ops;
    close_world(&w);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(beams_equal_fresh_sequences),
        cmocka_unit_test(long_prompts_go_piece_by_piece),
        cmocka_unit_test(a_step_allocates_nothing_and_the_plan_is_right),
        cmocka_unit_test(what_can_not_be_done_is_refused_on_all_ranks),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
