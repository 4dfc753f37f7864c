/* Names of a model's sizes and tensors in GGUF files and in Hugging Face's folders: one table per
 * architecture, for reading and writing. Only data. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/** How a tensor's values in GGUF files differ from Hugging Face's. */
typedef enum bp_gguf_change {
    BP_GGUF_SAME,
    BP_GGUF_PERMUTE_QUERIES, /* rows of each head: row 2i is Hugging Face's row i, 2i + 1 is i +
                                half */
    BP_GGUF_PERMUTE_KEYS,    /* the same, by heads of keys */
    BP_GGUF_TRANSPOSED,      /* matrices: Hugging Face's are [in][out]; vectors are unchanged */
    BP_GGUF_ONE_MORE         /* 1 is added */
} bp_gguf_change;

/** Names without ".weight" and ".bias" at their end; a '*' is a layer's number. */
typedef struct bp_gguf_row {
    const char *gguf, *huggingface;
    bp_gguf_change change;
    bool plain; /* always F32 in files */
} bp_gguf_row;

/** A key "ARCHITECTURE.gguf", and the member of config.json. */
typedef struct bp_gguf_size {
    const char *gguf, *huggingface;
    const char *also; /* a second key with the same value; NULL if none */
    bool is_real;
    bool may_lack;   /* the key is optional */
    bool zero_lacks; /* 0 means absent */
} bp_gguf_size;

typedef struct bp_gguf_family {
    const char *architecture, *model_type;
    const bp_gguf_size *sizes; /* ended by NULL */
    const bp_gguf_row *rows;   /* ended by NULL */
    const char *const *only;   /* required "key=value|value" of this architecture; ended by NULL */
    const char *rows_of[2][2]; /* members of config.json that are a tensor's first extent */
    bool ties;                 /* without output.weight the head is the table of tokens */
    bool repeats;              /* older converters wrote that table again as output.weight */
    bool rotary;               /* positions are rotary */
    bool partial;          /* rotary positions may apply to part of a head, partial_rotary_factor */
    bool llama3, longrope; /* llama.cpp reads tensors of these scalings' factors */
    bool original_beside;  /* longrope's original context is outside rope_scaling, which names the
                              scaling by "type" */
    const char *base;      /* prefix that Hugging Face's names of a base class lack; or NULL */
    const char *by_layer, *rest; /* config.json's list of layer types, and the type of most layers;
                                    NULL: all are alike */
    int64_t period;              /* every n-th layer differs, by default */
    bool has_period_key;         /* files can set another n */
    int64_t layers_of_largest;   /* a model of this many scales scores by its width over the heads,
                                    others by a head's; 0: config.json does not say */
    const char *const *absent;   /* members that are not numbers, ended by NULL; or NULL */
} bp_gguf_family;

/** Ended by NULL. */
extern const bp_gguf_family *const bp_gguf_families[];
