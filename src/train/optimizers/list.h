/* All optimizers: a line a rule, with the name of its number. */
#pragma once

/** NAME.c defines bp_optimizer_NAME, its row (optimizer.h). The name is also optimizer.kind. */
#define BP_OPTIMIZER_LIST(OPTIMIZER)                                                               \
    OPTIMIZER(ADAMW, adamw)                                                                        \
    OPTIMIZER(SGD, sgd)                                                                            \
    OPTIMIZER(ADAGRAD, adagrad)                                                                    \
    OPTIMIZER(ADADELTA, adadelta)                                                                  \
    OPTIMIZER(RMSPROP, rmsprop)                                                                    \
    OPTIMIZER(LAMB, lamb)                                                                          \
    OPTIMIZER(ADAFACTOR, adafactor)                                                                \
    OPTIMIZER(SGLD, sgld)                                                                          \
    OPTIMIZER(VOGN, vogn)

#define BP_OPTIMIZER_NUMBER(NUMBER, name) BP_##NUMBER,
typedef enum bp_optimizer_kind {
    BP_OPTIMIZER_LIST(BP_OPTIMIZER_NUMBER) BP_OPTIMIZERS
} bp_optimizer_kind;

/** "adamw|sgd|...": the choices of optimizer.kind. */
#define BP_OPTIMIZER_WORD(NUMBER, name) "|" #name
#define BP_OPTIMIZER_KINDS              (&BP_OPTIMIZER_LIST(BP_OPTIMIZER_WORD)[1])
