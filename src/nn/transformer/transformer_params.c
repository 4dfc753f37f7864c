/* Parameters of a Transformer layer, and this tensor rank's part of each. Called by
 * transformer_layer.c when a layer is made. */
#include "nn/transformer/transformer_priv.h"

#include <stdio.h>

/* Rows of q (k 0), k and v of which this rank has its own; repeated keys are cut like a
 * vocabulary. */
static void own_rows(const layer *self, int k, int64_t *all, int64_t *first, int64_t *count)
{
    *all = (k == 0 ? self->shape.H : self->shape.G) * self->D;
    *first = (k == 0 ? self->first_head : self->first_key) * self->D;
    *count = (k == 0 ? self->Hl : self->Gl) * self->D;
    if (k > 0 && self->repeats)
        bp_vocab_share(self->block.nn, *all, first, count);
}

static bool has_qkv_bias(const layer *self)
{
    return (!self->shape.no_bias && !self->shape.no_attention_bias) || self->shape.qkv_bias;
}

/* Attention's: q, k and v are separate logical tensors; their slices are contiguous so that one
 * product makes all three. */
static void add_attention_params(layer *self, bp_group *group)
{
    static const char *const NAMES[3] = {"q", "k", "v"};
    int64_t C = self->shape.C, at = self->block.nn->tensor_rank,
            tensors = self->block.nn->tensor_ranks;
    int64_t all, first, count;
    char name[BP_PARAM_NAME], part[32];

    for (int k = 0; k < 3; k++) {
        own_rows(self, k, &all, &first, &count);
        snprintf(part, sizeof part, "attn.%s.weight", NAMES[k]);
        bp_param *p =
            bp_group_add_matrix_part(group, layer_param_name(name, self, part), all, C,
                                     k == 0 ? layer_query_std(self) : INIT_STD, 0, first, count);
        if (k == 0)
            self->q_weight = p;
        else
            self->key_weight[k - 1] = p;
    }
    for (int k = 0; k < 3 && has_qkv_bias(self); k++) {
        own_rows(self, k, &all, &first, &count);
        snprintf(part, sizeof part, "attn.%s.bias", NAMES[k]);
        bp_param *p =
            bp_group_add_vector_part(group, layer_param_name(name, self, part), all, first, count);
        if (k == 0)
            self->q_bias = p;
        else
            self->key_bias[k - 1] = p;
    }
    self->out_weight = bp_group_add_matrix_part(
        group, layer_param_name(name, self, "attn.out.weight"), C, tensors * self->Cl,
        layer_residual_std(self), 1, at * self->Cl, self->Cl);
}

/* The MLP's: the gate comes before up, so that one product makes both. */
static void add_mlp_params(layer *self, bp_group *group)
{
    int64_t C = self->shape.C, F = self->shape.F, at = self->block.nn->tensor_rank;
    char name[BP_PARAM_NAME];

    if (layer_is_gated(self))
        self->up_weight =
            bp_group_add_matrix_part(group, layer_param_name(name, self, "mlp.gate.weight"), F, C,
                                     INIT_STD, 0, at * self->Fl, self->Fl);
    bp_param *up = bp_group_add_matrix_part(group, layer_param_name(name, self, "mlp.up.weight"), F,
                                            C, INIT_STD, 0, at * self->Fl, self->Fl);
    if (!layer_is_gated(self))
        self->up_weight = up;
    if (!self->shape.no_bias)
        self->up_bias = bp_group_add_vector_part(group, layer_param_name(name, self, "mlp.up.bias"),
                                                 F, at * self->Fl, self->Fl);
    self->down_weight =
        bp_group_add_matrix_part(group, layer_param_name(name, self, "mlp.down.weight"), C, F,
                                 layer_residual_std(self), 1, at * self->Fl, self->Fl);
}

static bp_param *add_vector(layer *self, bp_group *group, const char *part, bp_init init)
{
    char name[BP_PARAM_NAME];

    return bp_group_add_vector(group, layer_param_name(name, self, part), self->shape.C, init);
}

static bool lacks_norm_bias(const layer *self)
{
    return self->shape.rms || self->shape.no_norm_bias;
}

static void add_norm(layer *self, bp_group *group, branch_kind branch, const char *gain,
                     const char *bias)
{
    if (self->shape.closing_only || (self->shape.no_first_norm && branch == ATTENTION))
        return;
    self->gain[branch] = add_vector(self, group, gain, BP_INIT_ONE);
    self->bias[branch] = lacks_norm_bias(self) ? NULL : add_vector(self, group, bias, BP_INIT_ZERO);
}

static void add_whole_params(layer *self, bp_group *group)
{
    bool biases = !self->shape.no_bias;

    if (layer_attends(self))
        add_norm(self, group, ATTENTION, "ln1.gain", "ln1.bias");
    self->out_bias = biases && layer_attends(self) && !self->shape.no_attention_bias
                         ? add_vector(self, group, "attn.out.bias", BP_INIT_ZERO)
                         : NULL;
    if (self->shape.one_norm) {
        self->gain[MLP] = self->gain[ATTENTION];
        self->bias[MLP] = self->bias[ATTENTION];
    } else {
        add_norm(self, group, MLP, "ln2.gain", "ln2.bias");
    }
    self->down_bias = biases ? add_vector(self, group, "mlp.down.bias", BP_INIT_ZERO) : NULL;
}

static void add_closing_norm(layer *self, bp_group *group, branch_kind branch, const char *gain,
                             const char *bias)
{
    self->closing_gain[branch] = add_vector(self, group, gain, BP_INIT_ONE);
    self->closing_bias[branch] =
        lacks_norm_bias(self) ? NULL : add_vector(self, group, bias, BP_INIT_ZERO);
}

void layer_add_params(layer *self, bp_group *split, bp_group *whole)
{
    if (layer_attends(self))
        add_attention_params(self, split);
    if (self->shape.experts.count > 0)
        experts_add_params(self);
    else
        add_mlp_params(self, split);
    apart_add_params(self, split);
    add_whole_params(self, whole);
    if (self->shape.closing_norms) {
        add_closing_norm(self, whole, ATTENTION, "attn.ln.gain", "attn.ln.bias");
        add_closing_norm(self, whole, MLP, "mlp.ln.gain", "mlp.ln.bias");
    }
    if (self->shape.query_norm != BP_QUERY_NORM_NONE)
        query_add_params(self, self->shape.query_group);
    if (self->shape.crosses)
        cross_add_params(self, split, whole);
}
