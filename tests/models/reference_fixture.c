/* A folder of shared/reference: a model of Hugging Face or a GGUF file, a batch, and what other
 * software computed of them. */
#include "reference_fixture.h"

char *file_of(const char *folder, const char *file)
{
    static char path[4096];
    char relative[256];

    snprintf(relative, sizeof relative, "reference/%s/%s", folder, file);
    snprintf(path, sizeof path, "%s", bp_test_shared(relative));
    return path;
}

const json_t *figure(const fixture *f, const char *name)
{
    char full[64];

    snprintf(full, sizeof full, "%s%s", name, f->smoothed ? "_smoothed" : "");
    return json_object_get(f->figures, full);
}

/* numbers[rows][columns] of a list of lists, from `first` on, 0 after its end; a list of numbers
 * has one column. The caller's. */
static int32_t *numbers_of(const json_t *root, const char *name, int64_t columns, int64_t first)
{
    const json_t *rows = json_object_get(root, name);
    int64_t count = (int64_t)json_array_size(rows);
    int32_t *out = bp_alloc("test", count * columns, sizeof *out);

    for (int64_t k = 0; k < count * columns; k++) {
        const json_t *row = json_array_get(rows, (size_t)(k / columns));
        size_t at = (size_t)(k % columns + first);

        out[k] = (int32_t)json_integer_value(json_is_array(row) ? json_array_get(row, at) : row);
    }
    return out;
}

static void read_causal(fixture *f, const json_t *root)
{
    const json_t *rows = json_object_get(root, "tokens");

    f->B = (int64_t)json_array_size(rows);
    f->T = f->stored = (int64_t)json_array_size(json_array_get(rows, 0)) - 1;
    f->inputs = numbers_of(root, "tokens", f->T, 0);
    f->targets = numbers_of(root, "tokens", f->T, 1);
}

/* Padding stands at the right, and more of it lets four tensor ranks share rows out; no label is
 * -100 there. */
static void read_masked(fixture *f, const json_t *root)
{
    const json_t *rows = json_object_get(root, "input_ids");
    int32_t *seen;

    f->B = (int64_t)json_array_size(rows);
    f->stored = (int64_t)json_array_size(json_array_get(rows, 0));
    f->T = f->shape.task.kind == BP_TASK_SPANS ? f->stored /* a softmax over all positions */
                                               : (f->stored + 3) / 4 * 4;
    f->a_text = f->shape.task.kind == BP_TASK_CLASSES || f->shape.task.kind == BP_TASK_SPANS;
    f->inputs = numbers_of(root, "input_ids", f->T, 0);
    f->targets = f->shape.task.kind == BP_TASK_SPANS
                     ? numbers_of(root, "start_positions", 1, 0)
                     : numbers_of(root, "labels", f->a_text ? 1 : f->T, 0);
    f->lengths = bp_alloc("test", f->B, sizeof *f->lengths);
    seen = numbers_of(root, "attention_mask", f->T, 0);
    for (int64_t k = 0; k < f->B * f->T; k++) {
        f->lengths[k / f->T] += seen[k];
        if (!f->a_text)
            f->targets[k] = f->targets[k] < 0 || k % f->T >= f->stored ? -1 : f->targets[k];
    }
    bp_free(seen);
    if (json_object_get(root, "token_type_ids"))
        f->segments = numbers_of(root, "token_type_ids", f->T, 0);
    if (f->shape.task.kind == BP_TASK_SPANS)
        f->next = numbers_of(root, "end_positions", 1, 0);
    if (json_object_get(root, "next_sentence_label"))
        f->next = numbers_of(root, "next_sentence_label", 1, 0);
}

static int64_t columns_of(const json_t *root, const char *name)
{
    return (int64_t)json_array_size(json_array_get(json_object_get(root, name), 0));
}

/* Both streams are padded further, so that four tensor ranks share rows out; `lengths` are the
 * targets'. */
static void read_pairs(fixture *f, const json_t *root)
{
    int32_t *seen;

    f->B = (int64_t)json_array_size(json_object_get(root, "input_ids"));
    f->stored = columns_of(root, "labels");
    f->T = (f->stored + 3) / 4 * 4;
    f->S = (columns_of(root, "input_ids") + 3) / 4 * 4;
    f->inputs = numbers_of(root, "decoder_input_ids", f->T, 0);
    f->targets = numbers_of(root, "labels", f->T, 0);
    f->source = numbers_of(root, "input_ids", f->S, 0);
    seen = numbers_of(root, "attention_mask", f->S, 0);
    f->lengths = bp_alloc("test", f->B, sizeof *f->lengths);
    f->source_lengths = bp_alloc("test", f->B, sizeof *f->source_lengths);
    for (int64_t k = 0; k < f->B * f->S; k++)
        f->source_lengths[k / f->S] += seen[k];
    for (int64_t k = 0; k < f->B * f->T; k++) {
        f->targets[k] = f->targets[k] < 0 || k % f->T >= f->stored ? -1 : f->targets[k];
        f->lengths[k / f->T] += f->targets[k] >= 0;
    }
    bp_free(seen);
}

/* A half of ELECTRA has its term alone, of weight 1. A label 1 tells that the text has another
 * token. */
static void take_half(fixture *f)
{
    f->objective = bp_objective_replaced;
    f->objective.weight[BP_ELECTRA_REPLACED] = 1;
    f->family = bp_electra_family;
    f->family.objective = &f->objective;
    f->shape.family = &f->family;
    f->judges = bp_electra_sizes_of(&f->shape)->part == BP_ELECTRA_DISCRIMINATOR;
    for (int64_t k = 0; f->judges && k < f->B * f->T; k++) {
        bool real = k % f->T < f->lengths[k / f->T];

        f->targets[k] = real ? (f->inputs[k] + f->targets[k]) % (int32_t)f->shape.vocab_size : -1;
    }
}

bp_batch batch_of(const fixture *f)
{
    bp_batch batch = bp_batch_of_positions(f->B, f->T, f->inputs, f->targets);

    batch.term[0].count = f->a_text ? 1 : f->T;
    if (f->source) {
        batch.stream[1].T = f->S;
        batch.stream[1].inputs = f->source;
        batch.stream[1].lengths = f->source_lengths;
        return batch;
    }
    batch.stream[0].lengths = f->lengths;
    batch.stream[0].segments = f->segments;
    batch.term[1].count = f->next ? 1 : 0;
    batch.term[1].targets = f->next;
    if (f->judges) {
        batch.term[BP_ELECTRA_REPLACED] = batch.term[0];
        batch.term[0].count = 0;
        batch.term[0].targets = NULL;
    }
    return batch;
}

static void open_model(fixture *f, const char *gguf)
{
    if (!gguf) {
        bp_test_expect(
            bp_hf_open(&f->model, file_of(f->folder, "."), bp_model_huggingface_tables()), BP_OK);
        return;
    }
    bp_test_expect(bp_gguf_open(&f->gguf, file_of(f->folder, gguf)), BP_OK);
    bp_test_expect(bp_gguf_model_open(&f->model, f->gguf, bp_model_huggingface_tables()), BP_OK);
}

void open_fixture(fixture *f, const char *folder, const char *gguf)
{
    json_t *root, *state = json_object();
    char expected[2][128];

    for (int k = 0; k < 2; k++)
        snprintf(expected[k], sizeof expected[k], "%.*s%sexpected.%s",
                 gguf ? (int)(strrchr(gguf, '.') - gguf) : 0, gguf ? gguf : "", gguf ? "." : "",
                 k == 0 ? "safetensors" : "json");
    *f = (fixture){.folder = folder};
    open_model(f, gguf);
    f->hf = bp_hf_shape_of(f->model);
    json_object_set_new(state, "model", bp_hf_model_json(&f->hf));
    bp_test_expect(bp_model_shape_read(&f->shape, state, folder), BP_OK);
    json_decref(state);
    bp_test_expect(bp_safetensors_open(&f->expected, file_of(folder, expected[0])), BP_OK);
    bp_test_expect(bp_json_load(&f->figures, file_of(folder, expected[1]), 1 << 20), BP_OK);
    bp_test_expect(bp_json_load(&root, file_of(folder, "tokens.json"), 1 << 20), BP_OK);
    if (json_object_get(root, "tokens"))
        read_causal(f, root);
    else if (json_object_get(root, "decoder_input_ids"))
        read_pairs(f, root);
    else
        read_masked(f, root);
    if (f->shape.family == &bp_electra_family)
        take_half(f);
    if (f->shape.family->any_context && f->T > f->shape.context)
        f->shape.context = f->T; /* of positions that go by a text's length */
    f->V = f->shape.task.kind == BP_TASK_NONE ? f->shape.vocab_size : f->shape.task.outcomes;
    json_decref(root);
}

void check_old_config(fixture *f)
{
    char path[4200];
    bp_hf_shape old;
    json_t *config;

    snprintf(path, sizeof path, "%s/config-old.json", file_of(f->folder, "."));
    if (access(path, F_OK) != 0)
        return;
    bp_test_expect(bp_json_load_python(&config, path, 1 << 20), BP_OK);
    bp_test_expect(hf_config_read(&old, config, bp_model_huggingface_tables(), path), BP_OK);
    assert_ptr_equal(old.table, f->hf.table);
    for (int k = 0; old.table->sizes[k].ours; k++)
        if (old.sizes[k] != f->hf.sizes[k])
            fail_msg("%s: %s is %g, and %g", path, old.table->sizes[k].ours, old.sizes[k],
                     f->hf.sizes[k]);
    json_decref(config);
}

void close_fixture(fixture *f)
{
    bp_hf_close(&f->model);
    bp_gguf_close(&f->gguf);
    bp_safetensors_close(&f->expected);
    json_decref(f->figures);
    bp_free(f->inputs);
    bp_free(f->targets);
    bp_free(f->lengths);
    bp_free(f->segments);
    bp_free(f->next);
    bp_free(f->source);
    bp_free(f->source_lengths);
}
