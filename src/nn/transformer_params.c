/* Parameters of a Transformer layer, and this tensor rank's part of each. */
#include "nn/transformer_priv.h"

#include <math.h>
#include <stdio.h>

const char *layer_param_name(char *buffer, const layer *self, const char *part)
{
    snprintf(buffer, BP_PARAM_NAME, "%s.%lld.%s", self->shape.stack, (long long)self->shape.number,
             part);
    return buffer;
}

/* Attention's: q, k and v are logical tensors of their own; their slabs lie in a row so that one
 * product makes all three. */
static void add_attention_params(layer *self, bp_group *group)
{
    static const char *const NAMES[3] = {"q", "k", "v"};
    int64_t C = self->shape.C, at = self->block.nn->tensor_at, tensors = self->block.nn->tensors;
    float residual_std = INIT_STD / sqrtf(2.0F * (float)self->shape.layers);
    char name[BP_PARAM_NAME], part[32];

    for (int k = 0; k < 3; k++) {
        int64_t rows = (k == 0 ? self->Hl : self->Gl) * self->D;

        snprintf(part, sizeof part, "attn.%s.weight", NAMES[k]);
        bp_param *p = bp_group_add_matrix_part(group, layer_param_name(name, self, part),
                                               tensors * rows, C, INIT_STD, 0, at * rows, rows);
        if (k == 0)
            self->q_weight = p;
    }
    for (int k = 0; k < 3 && (!self->shape.no_bias || self->shape.qkv_bias); k++) {
        int64_t rows = (k == 0 ? self->Hl : self->Gl) * self->D;

        snprintf(part, sizeof part, "attn.%s.bias", NAMES[k]);
        bp_param *p = bp_group_add_vector_part(group, layer_param_name(name, self, part),
                                               tensors * rows, at * rows, rows);
        if (k == 0)
            self->q_bias = p;
    }
    self->out_weight =
        bp_group_add_matrix_part(group, layer_param_name(name, self, "attn.out.weight"), C,
                                 tensors * self->Cl, residual_std, 1, at * self->Cl, self->Cl);
}

/* The MLP's: the gate lies before up, so that one product makes both. */
static void add_mlp_params(layer *self, bp_group *group)
{
    int64_t C = self->shape.C, F = self->shape.F, at = self->block.nn->tensor_at;
    float residual_std = INIT_STD / sqrtf(2.0F * (float)self->shape.layers);
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
                                 residual_std, 1, at * self->Fl, self->Fl);
}

static bp_param *add_vector(layer *self, bp_group *group, const char *part, bp_init init)
{
    char name[BP_PARAM_NAME];

    return bp_group_add_vector(group, layer_param_name(name, self, part), self->shape.C, init);
}

static void add_whole_params(layer *self, bp_group *group)
{
    bool rms = self->shape.rms, biases = !self->shape.no_bias;

    self->gain[ATTENTION] = add_vector(self, group, "ln1.gain", BP_INIT_ONE);
    self->bias[ATTENTION] = rms ? NULL : add_vector(self, group, "ln1.bias", BP_INIT_ZERO);
    self->out_bias = biases ? add_vector(self, group, "attn.out.bias", BP_INIT_ZERO) : NULL;
    self->gain[MLP] = add_vector(self, group, "ln2.gain", BP_INIT_ONE);
    self->bias[MLP] = rms ? NULL : add_vector(self, group, "ln2.bias", BP_INIT_ZERO);
    self->down_bias = biases ? add_vector(self, group, "mlp.down.bias", BP_INIT_ZERO) : NULL;
}

void layer_add_params(layer *self, bp_group *split, bp_group *whole)
{
    add_attention_params(self, split);
    add_mlp_params(self, split);
    add_whole_params(self, whole);
    if (self->shape.crosses)
        cross_add_params(self, split, whole);
}
