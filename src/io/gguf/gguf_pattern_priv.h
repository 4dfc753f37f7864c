/* How byte-level BPE splits text, by the names in GGUF files. */
#pragma once

#include "base/config/json.h"

typedef struct gguf_pattern {
    const char *name;  /* tokenizer.ggml.pre; others with '|' before them mean the same */
    const char *regex; /* NULL: GPT-2's, of ByteLevel itself */
    int composed;      /* text is normalised to NFC first */
    int digits;        /* each digit is its own piece, before other splits */
    int whole_first;   /* a piece that is a token is that token, whatever the merges */
} gguf_pattern;

/** NULL if unknown. */
const gguf_pattern *gguf_pattern_called(const char *name);
/** "normalizer" and "pre_tokenizer" of tokenizer.json. New references. */
json_t *gguf_pattern_normalizer(const gguf_pattern *pattern);
json_t *gguf_pattern_steps(const gguf_pattern *pattern);
/** The pattern of a tokenizer.json; NULL if it is none of these. */
const gguf_pattern *gguf_pattern_of(const json_t *root);
