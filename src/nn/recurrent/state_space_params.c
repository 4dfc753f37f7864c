/* The parameters of a state-space layer, and their initial values. Called by state_space.c. */
#include "nn/recurrent/state_space_priv.h"

#include <math.h>
#include <stdio.h>

#define INIT_STD 0.02F

static const char *param_name(char *out, const state_space *self, const char *part)
{
    (void)snprintf(out, BP_PARAM_NAME, "h.%lld.%s", (long long)self->shape.number, part);
    return out;
}

/* `width` rows of each head: this rank's. */
static bp_param *add_head_rows(const state_space *self, bp_group *group, const char *part,
                               int64_t width, int64_t columns, float std)
{
    char name[BP_PARAM_NAME];

    return bp_group_add_matrix_part(group, param_name(name, self, part), self->shape.H * width,
                                    columns, std, 0, self->first_head * width, self->Hl * width);
}

static bp_param *add_head_values(const state_space *self, bp_group *group, const char *part,
                                 int64_t width, bp_init init)
{
    char name[BP_PARAM_NAME];
    bp_param *param =
        bp_group_add_vector_part(group, param_name(name, self, part), self->shape.H * width,
                                 self->first_head * width, self->Hl * width);

    param->init = init;
    return param;
}

/* Initial taps and biases are torch.nn.Conv1d's: uniform within 1 / sqrt(K). They do not decay. */
static void begin_uniform(bp_param *param, int64_t K)
{
    param->decays = false;
    param->init = BP_INIT_UNIFORM;
    param->init_std = 1 / sqrtf((float)K);
}

/* Initial rates of decay are 1 to H; initial steps are log-spaced between 0.001 and 0.1. Source:
 * Dao and Gu 2024, the reference code, which draws the steps. */
static void begin_heads(state_space *self)
{
    int64_t H = self->shape.H;

    self->first_steps = bp_alloc("nn.layer", H, sizeof *self->first_steps);
    self->first_decays = bp_alloc("nn.layer", H, sizeof *self->first_decays);
    for (int64_t h = 0; h < H; h++) {
        double dt = 0.001 * pow(100, ((double)h + 0.5) / (double)H);

        self->first_steps[h] = (float)(dt + log(-expm1(-dt)));
        self->first_decays[h] = logf((float)(h + 1));
    }
    self->step_bias->init = self->decay->init = BP_INIT_GIVEN;
    self->step_bias->given = self->first_steps;
    self->decay->given = self->first_decays;
}

static void add_split(state_space *self, bp_group *group)
{
    const bp_state_space_shape *s = &self->shape;
    char name[BP_PARAM_NAME];

    self->z = add_head_rows(self, group, "z.weight", s->P, s->C, INIT_STD);
    add_head_rows(self, group, "x.weight", s->P, s->C, INIT_STD);
    add_head_rows(self, group, "dt.weight", 1, s->C, INIT_STD);
    self->out = bp_group_add_matrix_part(group, param_name(name, self, "out.weight"), s->C,
                                         s->H * s->P, INIT_STD / sqrtf(2.0F * (float)s->layers), 1,
                                         self->first_head * s->P, self->Ml);
    for (int k = 0; k < group->count; k++)
        group->params[k].product_first = true;
    self->x.taps = add_head_rows(self, group, "x.taps", s->P, s->K, 0);
    self->x.bias = add_head_values(self, group, "x.bias", s->P, BP_INIT_ZERO);
    self->step_bias = add_head_values(self, group, "dt.bias", 1, BP_INIT_ZERO);
    self->decay = add_head_values(self, group, "decay", 1, BP_INIT_ZERO);
    self->skip = add_head_values(self, group, "skip", 1, BP_INIT_ONE);
    self->gate_gain = add_head_values(self, group, "gate.gain", s->P, BP_INIT_ONE);
    begin_heads(self);
}

static void add_whole(state_space *self, bp_group *group)
{
    const bp_state_space_shape *s = &self->shape;
    char name[BP_PARAM_NAME];

    group->partial = true;
    self->bc =
        bp_group_add_matrix(group, param_name(name, self, "bc.weight"), self->BC, s->C, INIT_STD);
    self->bc->product_first = true;
    self->both.taps =
        bp_group_add_matrix(group, param_name(name, self, "bc.taps"), self->BC, s->K, 0);
    self->both.bias =
        bp_group_add_vector(group, param_name(name, self, "bc.bias"), self->BC, BP_INIT_ZERO);
    self->gain = bp_group_add_vector(group, param_name(name, self, "ln.gain"), s->C, BP_INIT_ONE);
}

void state_space_add_params(state_space *self, bp_group *split, bp_group *whole)
{
    int64_t K = self->shape.K;

    add_split(self, split);
    add_whole(self, whole);
    begin_uniform(self->x.taps, K);
    begin_uniform(self->x.bias, K);
    begin_uniform(self->both.taps, K);
    begin_uniform(self->both.bias, K);
}
