/* Models in files of other programs, except Hugging Face's folders (io/huggingface/hf_table.h):
 * ARPA files, word vectors, bilm-tf. Functions that read or write get their family's table. */
#pragma once

#include "io/checkpoint/checkpoint.h"
#include "models/family.h"

/** The result of reading a text file of a model. */
#define BP_IMPORT_SLICES 2
typedef struct bp_model_import {
    const char *file; /* given: where to write the model's file, sealed, like that of
                         bp_counting_ops.count */
    bp_model_shape shape;
    int64_t eod_id;
    bp_tokenizer *tokenizer; /* made of the words of the text, where none was given: the caller's,
                                bp_tokenizer_free(); else NULL */
    json_t *state;           /* members for the checkpoint's state: the caller's, json_decref() */
    bp_slice slices[BP_IMPORT_SLICES]; /* whole tensors, where the model is tensors and not a
                                          file; their data are the caller's, bp_free() */
    int64_t slice_count;
} bp_model_import;

/** A model in another program's folder. */
typedef struct bp_model_folder {
    bp_model_shape shape;
    bp_tokenizer *tokenizer; /* made of the folder's words, where none was given: the caller's,
                                bp_tokenizer_free(); else NULL */
    const bp_slice *slices;  /* [count] our tensors, without data, */
    int64_t count;
    bp_err (*fetch)(void *context, const bp_slice *slice, int64_t index,
                    const float **data); /* and their values: of bp_checkpoint_commit */
    void *context;
    void (*close)(struct bp_model_folder *folder); /* after an error of bp_folder_form.read too */
} bp_model_folder;

/** A text file. Local. */
typedef struct bp_text_form {
    const char *name; /* "ARPA" */
    bool (*is)(const char *path);
    /** Errors: BP_ERR_FORMAT if it is a model or a tokenizer that the form can't hold (NULL: ids
     * represent words); those of bp_draft_open and bp_draft_commit. */
    bp_err (*write)(const bp_model_family *family, bp_checkpoint *checkpoint,
                    const bp_tokenizer *tokenizer, const char *path);
    /** Errors: BP_ERR_FORMAT with the line; those of bp_counting_ops.count. */
    bp_err (*read)(const bp_model_family *family, bp_model_import *out, const char *path,
                   const bp_tokenizer *tokenizer);
} bp_text_form;

/** A folder. Local. */
typedef struct bp_folder_form {
    const char *name; /* "bilm-tf" */
    bool (*is)(const char *path);
    /** Errors: BP_ERR_INPUT, BP_ERR_FORMAT, BP_ERR_SYSTEM. */
    bp_err (*read)(const bp_model_family *family, bp_model_folder *out, const char *path,
                   const bp_tokenizer *tokenizer);
    /** A new folder; tokenizer NULL: none is written. Errors: BP_ERR_FORMAT a damaged checkpoint;
     * those of writing files. No file is left then. A NULL function: models are exported as Hugging
     * Face's folders. */
    bp_err (*write)(const bp_model_family *family, bp_checkpoint *checkpoint,
                    const bp_tokenizer *tokenizer, const char *path);
} bp_folder_form;
