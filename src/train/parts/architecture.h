/* The cell that a mixed one's architecture weights stand for, of a training that searches it. */
#ifndef BP_TRAIN_PARTS_ARCHITECTURE_H
#define BP_TRAIN_PARTS_ARCHITECTURE_H

#include "models/recurrent/recurrent.h"
#include "train/loop/trainer.h"

/** Its text, as model.cell has it; weights[BP_CELL_MIX] get what it is derived from. The model is a
 * mixed cell, and the engine has its parameters. Collective over mesh->model; equal on its ranks.
 */
void bp_architecture_cell(const trainer *self, double *weights, char cell[BP_CELL_TEXT]);
/** architecture.order. Local. */
int64_t bp_architecture_order(const trainer *self);

#endif
