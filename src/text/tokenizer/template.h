/* The post-processor that frames texts. */
#pragma once

#include "base/config/json.h"

#include <stdbool.h>
#include <stdint.h>

/** [begin] A end, for two texts [begin] A end B end (or A end end B end): names of special tokens,
 * and their ids. */
typedef struct bp_template {
    const char *begin; /* NULL if none */
    int64_t begin_id;
    const char *end;
    int64_t end_id;
    int second;      /* the segment of B and the end after it */
    int64_t middles; /* ends between A and B; 0: one */
} bp_template;
/** New reference. */
json_t *bp_template_json(const bp_template *frame);

/** Put the post-processor that bp_tokenizer_framed_text replaced back into a tokenizer.json; false
 * if it replaced none. */
bool bp_template_restore(json_t *root);
