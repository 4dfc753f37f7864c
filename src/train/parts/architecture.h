/* The cell derived from the architecture weights of a mixed cell, in a training that searches
 * it. */
#pragma once

#include "models/recurrent/recurrent.h"
#include "train/loop/trainer.h"

/** Its text, in the form of model.cell; weights[BP_CELL_MIX] get the weights from which it is
 * derived. The model must be a mixed cell, and the engine must have its parameters. Collective over
 * mesh->model; equal on its ranks. */
void bp_architecture_cell(const trainer *self, double *weights, char cell[BP_CELL_TEXT]);
/** architecture.order. Local. */
int64_t bp_architecture_order(const trainer *self);
