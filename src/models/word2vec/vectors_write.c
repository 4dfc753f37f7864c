/* Vectors as a file of the original tool: text, or binary where the name ends in .bin. Called by
 * word2vec.c. */
#include "models/word2vec/vectors.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "models/word2vec/word2vec_priv.h"

#include <inttypes.h>
#include <string.h>

#define FLUSH_BYTES ((size_t)1 << 20)

static void add_text(bp_buffer *out, const float *vector, int64_t C)
{
    for (int64_t k = 0; k < C; k++)
        bp_buffer_printf(out, " %.9g", (double)vector[k]);
}

static bp_err write_vectors(bp_draft *draft, const bp_word_vectors *vectors, bool binary)
{
    int64_t count = bp_word_vectors_count(vectors), C = bp_word_vectors_width(vectors);
    bp_buffer out = {0};
    bp_err err = BP_OK;

    bp_buffer_printf(&out, "%" PRId64 " %" PRId64 "\n", count, C);
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        const char *word = bp_word_vectors_word(vectors, k);

        bp_buffer_add(&out, word, strlen(word));
        if (binary) {
            bp_buffer_add(&out, " ", 1);
            bp_buffer_add(&out, bp_word_vectors_at(vectors, k), (size_t)C * sizeof(float));
        } else {
            add_text(&out, bp_word_vectors_at(vectors, k), C);
        }
        bp_buffer_add(&out, "\n", 1);
        if (out.bytes < FLUSH_BYTES && k + 1 < count)
            continue;
        err = bp_draft_write(draft, out.data, out.bytes);
        out.bytes = 0;
    }
    bp_buffer_clear(&out);
    return err;
}

bp_err w2v_vectors_write(const bp_model_family *family, bp_checkpoint *checkpoint,
                         const bp_tokenizer *tokenizer, const char *path)
{
    size_t length = strlen(path);
    bool binary = length > 4 && strcmp(path + length - 4, ".bin") == 0;
    bp_word_vectors *vectors = NULL;
    bp_draft draft;
    bp_err err = bp_word_vectors_open(&vectors, family, checkpoint, tokenizer);

    if (err == BP_OK)
        err = bp_draft_open(&draft, path);
    if (err == BP_OK) {
        err = write_vectors(&draft, vectors, binary);
        err = bp_draft_end(&draft, err);
    }
    bp_word_vectors_free(&vectors);
    return err;
}
