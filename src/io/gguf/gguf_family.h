/* What GGUF files call a model's sizes and tensors, and what Hugging Face's folders do: one table
 * an architecture, by which files are read and written. It is only data. */
#ifndef BP_IO_GGUF_GGUF_FAMILY_H
#define BP_IO_GGUF_GGUF_FAMILY_H

#include <stdbool.h>
#include <stdint.h>

/** How a tensor's values are in GGUF files, seen from Hugging Face's. */
typedef enum bp_gguf_change {
    BP_GGUF_SAME,
    BP_GGUF_TURN_QUERIES, /* rows of each head: row 2i is there row i, 2i + 1 is i + half */
    BP_GGUF_TURN_KEYS,    /* the same, by heads of keys */
    BP_GGUF_TRANSPOSED,   /* matrices: theirs are [in][out]; vectors are the same */
    BP_GGUF_ONE_MORE      /* 1 is added */
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
    const char *also; /* a second key with the same value; NULL: none */
    bool is_real;
    bool may_lack; /* the key need not be there */
} bp_gguf_size;

typedef struct bp_gguf_family {
    const char *architecture, *model_type;
    const bp_gguf_size *sizes; /* ended by NULL */
    const bp_gguf_row *rows;   /* ended by NULL */
    const char *const *only;   /* "key=value|value" that keys must have, of this architecture;
                                  ended by NULL */
    const char *rows_of[2][2]; /* members of config.json that are a tensor's first extent */
    bool ties;                 /* without output.weight the head is the table of tokens */
    bool rotary;               /* positions are rotary */
} bp_gguf_family;

/** Ended by NULL. */
extern const bp_gguf_family *const bp_gguf_families[];

#endif
