/* The model's file: a user block, a header, and for each order its n-grams in context order.
 *
 * An n-gram of an order below the highest is a node: log10 of its probability, and of its back-off
 * weight (in a model that does not back off, of the probability of each word not seen after it),
 * where its followers begin among the n-grams of the next order, and where its suffix is among
 * those of the order below (for order 2 the suffix is a word, by its id). N-grams of the highest
 * order are leaves, without followers. A table of last words accompanies each order from 2 on,
 * ascending among the followers of one history. Order 1 has a node for each id, and <s> last.
 * docs/formats.md has the layout byte by byte.
 *
 * Local: no MPI. */
#pragma once

#include "base/err.h"
#include "io/h5/user_block.h"
#include "models/ngram/ngram_key_priv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NGRAM_FILE_KIND    "ngram"
#define NGRAM_FILE_VERSION 1
#define NGRAM_ZERO         (-99.0F) /* log10 of a probability of 0, as SRILM writes it */

typedef struct ngram_header {
    uint32_t order, backs_off, word_bytes, reserved;
    uint64_t vocab_size;
    uint64_t count[8]; /* n-grams of order 1 (vocab_size + 1) and up; 0 beyond the highest */
    float unseen;      /* without back-off: log10 of a word's probability after an unseen history */
    uint32_t zero[37];
} ngram_header;

typedef struct ngram_node {
    float prob, left;
    uint32_t begin, link;
} ngram_node;

typedef struct ngram_leaf {
    float prob;
    uint32_t link;
} ngram_leaf;

/** Where an order's nodes (leaves) and words are in the file; order k has count[k - 1], and one
 * more node that ends the last one's followers. */
typedef struct ngram_layout {
    int64_t nodes[NGRAM_ORDER_MOST + 1], words[NGRAM_ORDER_MOST + 1], bytes;
} ngram_layout;
ngram_layout ngram_layout_of(const ngram_header *header);
/** The record of a last word. */
static inline uint32_t ngram_word_bytes(int64_t vocab_size)
{
    return vocab_size < UINT16_MAX ? 2 : 4;
}

/** A mapped model. */
typedef struct ngram_file {
    ngram_header header;
    int order, word_bytes;
    bool backs_off;
    int64_t V;
    const ngram_node *nodes[NGRAM_ORDER_MOST + 1];
    const ngram_leaf *leaves; /* of the highest order, from 2 on */
    const void *words[NGRAM_ORDER_MOST + 1];
    const char *map;
    int64_t bytes;
    char detail[BP_USER_BLOCK_DETAIL];
} ngram_file;

/** Map a file that was verified (bp_user_block_verify), and check that all its places are within
 * the file. Owns: ngram_file_close(), after an error too. Errors: BP_ERR_FORMAT "damaged", another
 * kind or version; BP_ERR_INPUT, BP_ERR_DENIED, BP_ERR_IO, BP_ERR_SYSTEM. */
bp_err ngram_file_open(ngram_file *file, const char *path);
/** The same for one of `parts` that other ranks have: only this part's places are checked, except
 * links, and few pages of other parts are read. */
bp_err ngram_file_open_part(ngram_file *file, const char *path, int part, int parts);
/** Part `part` has the n-grams that begin with words from this one to before that of the next part
 * (<s> is V). Parts have about equal numbers of bytes. */
int64_t ngram_file_cut(const ngram_file *file, int part, int parts);
void ngram_file_close(ngram_file *file);

/** The last word of n-gram `at` of an order from 2 on. */
static inline uint32_t ngram_word(const ngram_file *file, int order, uint32_t at)
{
    return file->word_bytes == 2 ? ((const uint16_t *)file->words[order])[at]
                                 : ((const uint32_t *)file->words[order])[at];
}
