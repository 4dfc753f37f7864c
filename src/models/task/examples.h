/* Examples of tasks: documents, framed and padded. */
#pragma once

#include "models/family.h"

/** The term of the words that follow, in training that keeps them. */
#define BP_TASK_WORDS 1

/** Does training keep the language model's head, whose table is the embedding's? */
static inline bool bp_task_keeps_words(const bp_model_shape *shape)
{
    return shape->task.lm_weight > 0;
}

/** A model with a pooler reads [CLS] A [SEP] B [SEP], others read A end B end, unframed ones A B.
 * The tokenizer's first token precedes the texts if the task has it. bp_task_shape.separators is
 * the number of [SEP] or ends between A and B (0: one), and in unframed ones of first tokens there
 * (0: none). `where`: the corpus that has the roles, for messages. Errors: BP_ERR_CONFIG a missing
 * token. */
bp_err bp_task_frame_of(bp_task_frame *out, const bp_model_shape *shape, const int64_t *roles,
                        const char *where);
/** The texts of one document. */
typedef struct bp_task_pair {
    const int32_t *text[2];
    int64_t tokens[2]; /* the second: 0 if there is only one */
} bp_task_pair;
/** The two texts of a document, or the whole document as one. Borrowed. */
bp_task_pair bp_task_texts(const bp_document *document, bool pairs);
/** The question, and the example's window of its context. */
bp_task_pair bp_task_window(const bp_document *document, const bp_window_rule *windows);
/** How documents are cut into windows for a context of T positions. */
bp_window_rule bp_task_windows(const bp_task_frame *frame, int64_t T, int64_t stride);
/** The place in an example of `length` positions that means: there is no answer. */
static inline int64_t bp_task_no_answer(const bp_task_frame *frame, int64_t length)
{
    return frame->begin >= 0 ? 0 : length - 1;
}
/** Errors: BP_ERR_FORMAT an empty document, in a corpus named `where`. */
bp_err bp_task_check_document(const bp_document *document, const char *where);
/** Where the first text begins: at 1 after a frame's token; at 0 without one, or if the text
 * already begins with it. */
int64_t bp_task_first_place(const bp_task_frame *frame, const bp_task_pair *pair);
/** The length of a framed pair. */
int64_t bp_task_positions(const bp_task_frame *frame, const bp_task_pair *pair);
/** The shortest context: a text between the tokens that begin, separate and end it. */
#define BP_TASK_CONTEXT 4

/** inputs[T], segments[T] (NULL if not needed) of a document, padded; returns its length. *cut: the
 * number of tokens cut to fit. They are cut from the end of the longer text, or of the second if
 * both are equally long. */
int64_t bp_task_fill(int32_t *inputs, int32_t *segments, int64_t T, const bp_task_frame *frame,
                     const bp_task_pair *pair, int64_t *cut);

/** For an encoder-decoder: such inputs, in the example's stream 0 of T positions, become the
 * source, and the decoder reads `start` and then all of them but the last. So its state at the last
 * place is that after the whole text. Source: Lewis et al. 2020, section 3.1. */
void bp_task_mirror(bp_example *example, int64_t T, int32_t start);

/** The maker of examples for a kind's objective, with one target per text, and next-word targets if
 * the words are kept. */
bp_example_maker bp_task_maker(const bp_model_shape *shape, int64_t T,
                               const bp_example_rules *rules);
/** Fill an example, except the task's targets. */
void bp_task_fill_example(const bp_example_maker *self, const bp_document *document,
                          bp_example *out);
