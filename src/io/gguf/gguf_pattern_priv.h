/* How byte-level BPE splits text, by the names that GGUF files have for it. */
#ifndef BP_IO_GGUF_GGUF_PATTERN_PRIV_H
#define BP_IO_GGUF_GGUF_PATTERN_PRIV_H

#include "base/config/json.h"

typedef struct gguf_pattern {
    const char *name;  /* tokenizer.ggml.pre; others with '|' before them mean the same */
    const char *regex; /* NULL: GPT-2's, of ByteLevel itself */
    int composed;      /* text is brought to NFC first */
    int digits;        /* each digit is a piece of its own, before all else */
    int whole_first;   /* a piece that is a token is that token, whatever the merges */
} gguf_pattern;

/** NULL: it is not known. */
const gguf_pattern *gguf_pattern_called(const char *name);
/** "normalizer" and "pre_tokenizer" of tokenizer.json. New references. */
json_t *gguf_pattern_normalizer(const gguf_pattern *pattern);
json_t *gguf_pattern_steps(const gguf_pattern *pattern);
/** The pattern of a tokenizer.json; NULL: none of these. */
const gguf_pattern *gguf_pattern_of(const json_t *root);

#endif
