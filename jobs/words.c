/* One row a word. A row whose command is a job (or a command of bagpipe) that this version does not
 * have is passed by; of several rows of one word the first such one counts. */
#include "words.h"

#include <stddef.h>

#define NO_FINETUNE                                                                                \
    "a model is trained on with model.init=CHECKPOINT; tasks are not in this version"

const bp_job_word bp_job_words[] = {{"train", "pretrain", NULL},
                                    {"training", "pretrain", NULL},
                                    {"trainer", "pretrain", NULL},
                                    {"pretraining", "pretrain", NULL},
                                    {"fit", "pretrain", NULL},
                                    {"run", "pretrain", NULL},
                                    {"continue", "pretrain", "the same command again goes on"},
                                    {"resume", "pretrain", "the same command again goes on"},
                                    {"finetune", "finetune", NULL},
                                    {"finetune", "pretrain", NO_FINETUNE},
                                    {"fine-tune", "finetune", NULL},
                                    {"fine-tune", "pretrain", NO_FINETUNE},
                                    {"sft", "finetune", NULL},
                                    {"sft", "pretrain", NO_FINETUNE},

                                    {"eval", "score", NULL},
                                    {"evaluate", "score", NULL},
                                    {"evaluation", "score", NULL},
                                    {"validate", "score", NULL},
                                    {"test", "score", NULL},
                                    {"perplexity", "score", NULL},
                                    {"ppl", "score", NULL},
                                    {"loss", "score", NULL},
                                    {"logprob", "score", NULL},
                                    {"logprobs", "score", NULL},
                                    {"predict", "score", NULL},
                                    {"infer", "score", NULL},
                                    {"inference", "score", NULL},

                                    {"generate", "generate", NULL},
                                    {"generation", "generate", NULL},
                                    {"sample", "generate", NULL},
                                    {"complete", "generate", NULL},
                                    {"chat", "generate", NULL},
                                    {"translate", "generate", NULL},

                                    {"bag", "ensemble", NULL},
                                    {"bagging", "ensemble", NULL},
                                    {"members", "ensemble", NULL},
                                    {"ensembles", "ensemble", NULL},
                                    {"calibrate", "uncertainty", NULL},
                                    {"calibration", "uncertainty", NULL},
                                    {"laplace", "uncertainty", NULL},
                                    {"benchmark", "bench", NULL},
                                    {"speed", "bench", NULL},
                                    {"perf", "bench", NULL},

                                    {"plots", "plot", NULL},
                                    {"graph", "plot", NULL},
                                    {"watch", "status", NULL},
                                    {"ps", "status", NULL},
                                    {"progress", "status", NULL},
                                    {"diagnose", "doctor", NULL},
                                    {"info", "doctor", NULL},

                                    {"tokenizer", "bagpipe-data tokenizer", NULL},
                                    {"tokenize", "bagpipe-data corpus", NULL},
                                    {"encode", "bagpipe-data corpus", NULL},
                                    {"preprocess", "bagpipe-data corpus", NULL},
                                    {"prepare", "bagpipe-data corpus", NULL},
                                    {"corpus", "bagpipe-data corpus", NULL},
                                    {"inspect", "bagpipe-data inspect", NULL},
                                    {"verify", "bagpipe-data verify", NULL},
                                    {"table", "bagpipe-data table", NULL},
                                    {"import", "bagpipe-data import", NULL},
                                    {"convert", "bagpipe-data import", NULL},
                                    {"export", "bagpipe-data export", NULL},
                                    {"compare", "bagpipe-data compare", NULL},
                                    {NULL, NULL, NULL}};
