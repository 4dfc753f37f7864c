/* Maps bilm-tf's datasets to our tensors. Called by bilm_read.c and bilm_write.c. */
#include "models/elmo/bilm_priv.h"

#include "nn/core/layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GATES 4

static bilm_tensor *add(bilm_tensors *to, const char *ours, const char *theirs, bilm_form form)
{
    bilm_tensor *one;

    to->list = bp_realloc("elmo.bilm", to->list, to->count + 1, sizeof *to->list);
    one = &to->list[to->count++];
    *one = (bilm_tensor){.form = form, .place = to->floats};
    (void)snprintf(one->ours, sizeof one->ours, "%s", ours);
    (void)snprintf(one->theirs, sizeof one->theirs, "%s", theirs);
    return one;
}

static void set_theirs(bilm_tensors *to, bilm_tensor *one, int dims, const int64_t *extent)
{
    int64_t floats = 1;

    one->their_dims = dims;
    memcpy(one->extent, extent, (size_t)dims * sizeof *extent);
    for (int d = 0; d < dims; d++)
        floats *= extent[d];
    to->floats += floats;
}

static bilm_tensor *add_vector(bilm_tensors *to, const char *ours, const char *theirs, int64_t n,
                               bilm_form form)
{
    bilm_tensor *one = add(to, ours, theirs, form);

    one->dims = 1;
    one->shape[0] = n;
    set_theirs(to, one, 1, &n);
    return one;
}

/* Ours [outs][ins], theirs of these sizes. */
static bilm_tensor *add_matrix(bilm_tensors *to, const char *ours, const char *theirs, int64_t outs,
                               int64_t ins, bilm_form form)
{
    bilm_tensor *one = add(to, ours, theirs, form);
    int64_t extent[] = {form == BILM_SAME ? outs : ins, form == BILM_SAME ? ins : outs};

    one->dims = 2;
    one->shape[0] = outs;
    one->shape[1] = ins;
    set_theirs(to, one, 2, extent);
    return one;
}

static void add_map(bilm_tensors *to, const char *ours, const char *theirs, const char *weight,
                    const char *bias, int64_t outs, int64_t ins)
{
    char name[96], their[96];

    (void)snprintf(name, sizeof name, "%s.weight", ours);
    (void)snprintf(their, sizeof their, "%s/%s", theirs, weight);
    add_matrix(to, name, their, outs, ins, BILM_TRANSPOSED);
    (void)snprintf(name, sizeof name, "%s.bias", ours);
    (void)snprintf(their, sizeof their, "%s/%s", theirs, bias);
    add_vector(to, name, their, outs, BILM_SAME);
}

static void add_words(bilm_tensors *to, const bp_model_shape *shape)
{
    int64_t D = bp_elmo_sizes_of(shape)->embedding, F = bp_elmo_filters(shape),
            P = bp_elmo_sizes_of(shape)->projection;
    char ours[96], theirs[96];

    add_matrix(to, "char_embed", "char_embed", BP_CHARACTERS, D, BILM_SAME);
    for (int k = 0; k < BP_MODEL_PAIRS && bp_elmo_sizes_of(shape)->filters[k] != 0; k++) {
        int64_t pair = bp_elmo_sizes_of(shape)->filters[k], width = bp_pair_first(pair),
                count = bp_pair_second(pair);
        bilm_tensor *one;

        (void)snprintf(ours, sizeof ours, "cnn.%d.weight", k);
        (void)snprintf(theirs, sizeof theirs, "CNN/W_cnn_%d", k);
        one = add_matrix(to, ours, theirs, count, width * D, BILM_TRANSPOSED);
        one->their_dims = 4;
        memcpy(one->extent, (int64_t[]){1, width, D, count}, sizeof one->extent);
        (void)snprintf(ours, sizeof ours, "cnn.%d.bias", k);
        (void)snprintf(theirs, sizeof theirs, "CNN/b_cnn_%d", k);
        add_vector(to, ours, theirs, count, BILM_SAME);
    }
    for (int k = 0; k < bp_elmo_sizes_of(shape)->highway; k++) {
        (void)snprintf(theirs, sizeof theirs, "CNN_high_%d", k);
        (void)snprintf(ours, sizeof ours, "highway.%d.carry", k);
        add_map(to, ours, theirs, "W_carry", "b_carry", F, F);
        (void)snprintf(ours, sizeof ours, "highway.%d.transform", k);
        add_map(to, ours, theirs, "W_transform", "b_transform", F, F);
    }
    if (F != P)
        add_map(to, "projection", "CNN_proj", "W_proj", "b_proj", P, F);
}

/* Their kernel [2 P][4 H] has the rows of the input first, then those of the state. */
static void add_layer(bilm_tensors *to, const bp_model_shape *shape, int direction, int layer)
{
    int64_t P = bp_elmo_sizes_of(shape)->projection, H = shape->width,
            kernel[] = {2 * P, GATES * H};
    const char *name = direction == BP_ELMO_BACKWARD ? "backward" : "forward";
    char ours[64], theirs[64], part[96], dataset[96];
    bilm_tensor *one;

    (void)snprintf(ours, sizeof ours, "%s.%d", name, layer);
    (void)snprintf(theirs, sizeof theirs, "RNN_%d/RNN/MultiRNNCell/Cell%d/LSTMCell", direction,
                   layer);
    (void)snprintf(dataset, sizeof dataset, "%s/W_0", theirs);
    for (int side = 0; side < 2; side++) {
        int64_t place = to->floats;

        (void)snprintf(part, sizeof part, "%s.%s.weight", ours, side == 0 ? "input" : "hidden");
        one = add(to, part, dataset, BILM_GATES);
        one->dims = 2;
        one->shape[0] = GATES * H;
        one->shape[1] = P;
        one->first_row = side * P;
        one->again = side == 1;
        set_theirs(to, one, 2, kernel);
        if (side == 1) { /* it is there already */
            to->floats = place;
            one->place = place - 2 * P * GATES * H;
        }
    }
    (void)snprintf(part, sizeof part, "%s.bias", ours);
    (void)snprintf(dataset, sizeof dataset, "%s/B", theirs);
    add_vector(to, part, dataset, GATES * H, BILM_GATE_BIAS);
    if (P != H) {
        (void)snprintf(part, sizeof part, "%s.projection.weight", ours);
        (void)snprintf(dataset, sizeof dataset, "%s/W_P_0", theirs);
        add_matrix(to, part, dataset, P, H, BILM_TRANSPOSED);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const bilm_tensor *)a)->ours, ((const bilm_tensor *)b)->ours);
}

bilm_tensors bilm_tensors_of(const bp_model_shape *shape)
{
    int64_t V = shape->vocab_size;
    bilm_tensors to = {0};
    bilm_tensor *spelled;

    add_words(&to, shape);
    for (int layer = 0; layer < shape->layers; layer++)
        for (int direction = 0; direction < 2; direction++)
            add_layer(&to, shape, direction, layer);
    add_matrix(&to, "head", "softmax/W", V, bp_elmo_sizes_of(shape)->projection, BILM_SAME)
        ->is_softmax = true;
    add_vector(&to, "head.bias", "softmax/b", V, BILM_SAME)->is_softmax = true;
    spelled = add(&to, "characters", "", BILM_SPELLED);
    spelled->dims = 2;
    spelled->shape[0] = V + 1;
    spelled->shape[1] = BP_WORD_CHARACTERS;
    qsort(to.list, (size_t)to.count, sizeof *to.list, by_name);
    return to;
}

/* ---- values ---- */

/* The index of our gate in their order: i, f, g, o among i, j, f, o. */
static int64_t their_gate(int64_t gate)
{
    static const int64_t PLACE[GATES] = {0, 2, 1, 3};

    return PLACE[gate];
}

/* The index of our element in their dataset. */
static int64_t place_of(const bilm_tensor *of, int64_t row, int64_t column)
{
    int64_t rows = of->shape[0], H = rows / GATES, column_of_gates;

    switch (of->form) {
    case BILM_TRANSPOSED:
        return column * rows + row;
    case BILM_GATES:
    case BILM_GATE_BIAS:
        column_of_gates = their_gate(row / H) * H + row % H;
        return (of->first_row + column) * rows + column_of_gates;
    default:
        return row * (of->dims == 2 ? of->shape[1] : 1) + column;
    }
}

void bilm_take(float *ours, const float *theirs, const bilm_tensor *of)
{
    int64_t columns = of->dims == 2 ? of->shape[1] : 1;

    for (int64_t r = 0; r < of->shape[0]; r++)
        for (int64_t c = 0; c < columns; c++)
            ours[r * columns + c] = theirs[place_of(of, r, c)];
}

void bilm_give(float *theirs, const float *ours, const bilm_tensor *of)
{
    int64_t columns = of->dims == 2 ? of->shape[1] : 1;

    for (int64_t r = 0; r < of->shape[0]; r++)
        for (int64_t c = 0; c < columns; c++)
            theirs[place_of(of, r, c)] = ours[r * columns + c];
}
