/* bilm-tf's models: a folder with options.json and weights in HDF5 (Peters et al. 2018,
 * github.com/allenai/bilm-tf, dump_weights; allennlp reads the same). */
#pragma once

#include "models/elmo/elmo_sizes.h"
#include "models/forms.h"

#define BILM_OPTIONS   "options.json"
#define BILM_WEIGHTS   "weights.hdf5"
#define BILM_WORDS     "vocab.txt"
#define BILM_TOKENIZER "tokenizer.json"
#define BILM_END       "</S>" /* among the words, as BP_ELMO_UNKNOWN */

/* How our values are arranged in theirs, whose matrices are [in][out], gates i, j, f, o. */
typedef enum bilm_form {
    BILM_SAME,
    BILM_TRANSPOSED,
    BILM_GATES,     /* ours [4 H][ins] are rows [first_row, first_row + ins) of theirs [..][4 H] */
    BILM_GATE_BIAS, /* [4 H] */
    BILM_SPELLED    /* not in bilm-tf's files: the characters of the words */
} bilm_form;

/* One of our tensors, and the dataset that it comes from. */
typedef struct bilm_tensor {
    char ours[96], theirs[96];
    int dims, their_dims;
    int64_t shape[2], extent[4];
    bilm_form form;
    int64_t first_row;
    int64_t place;   /* of its dataset in memory that holds all of them */
    bool again;      /* another tensor before this one comes from the same dataset */
    bool is_softmax; /* bilm-tf writes none */
} bilm_tensor;

typedef struct bilm_tensors {
    bilm_tensor *list;
    int64_t count;
    int64_t floats; /* of all datasets */
} bilm_tensors;

/** The tensors of a model, in the order of their names. Owns: the list is the caller's, bp_free().
 */
bilm_tensors bilm_tensors_of(const bp_model_shape *shape);
/** Fill our tensor from their dataset, or their dataset from it; not for BILM_SPELLED. */
void bilm_take(float *ours, const float *theirs, const bilm_tensor *of);
void bilm_give(float *theirs, const float *ours, const bilm_tensor *of);

/** The sizes in options.json; vocab_size is 0 where it has no n_tokens_vocab. Errors:
 * BP_ERR_FORMAT; those of bp_json_load. */
bp_err bilm_read_options(bp_model_shape *shape, const bp_model_family *family, const char *path);
/** BP_ERR_FORMAT: `what` is `has`, at `path`. */
bp_err bilm_refuse(const char *path, const char *what, const char *has);
/** A tokenizer of a list of words, a line each: <UNK> and </S> are our <unk> and end-of-document
 * token. Errors: BP_ERR_FORMAT; those of bp_file_read. */
bp_err bilm_load_words(bp_tokenizer **out, const char *path);

/** bp_folder_form.is, read, write. */
bool bilm_is(const char *folder);
bp_err bilm_read(const bp_model_family *family, bp_model_folder *out, const char *folder,
                 const bp_tokenizer *tokenizer);
bp_err bilm_write(const bp_model_family *family, bp_checkpoint *checkpoint,
                  const bp_tokenizer *tokenizer, const char *out);
