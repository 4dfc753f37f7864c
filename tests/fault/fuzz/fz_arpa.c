/* ARPA files: what is accepted gives n-grams in order, whose histories, suffixes and followers are
 * where they are said to be. */
#include "base/mem.h"
#include "fuzz.h"
#include "models/ngram/ngram_arpa_priv.h"

#include <string.h>

static void check_order(const ngram_levels *levels, const ngram_spec *spec, int k)
{
    const ngram_level *level = &levels->of[k], *shorter = &levels->of[k - 1];

    FUZZ_CHECK(level->count == levels->total[k]);
    for (int64_t i = 0; i < level->count; i++) {
        FUZZ_CHECK(i == 0 || level->key[i - 1] < level->key[i]);
        FUZZ_CHECK(level->prob[i] >= 0 && level->prob[i] <= 1.0001);
        FUZZ_CHECK(level->link[i] >= 0 && level->link[i] < shorter->count);
        for (int w = 0; w < k; w++) {
            uint64_t id = ngram_slot(level->key[i], spec->bits, w);

            FUZZ_CHECK(id >= 1 && id <= (uint64_t)spec->vocab_size + 1);
        }
    }
    FUZZ_CHECK(shorter->begin[0] == 0 && shorter->begin[shorter->count] == level->count);
    for (int64_t i = 0; i < shorter->count; i++)
        FUZZ_CHECK(shorter->begin[i] <= shorter->begin[i + 1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path = fuzz_file(data, bytes);
    bp_tokenizer *made = NULL;
    ngram_levels levels = {0};
    ngram_spec spec;
    bp_err err;

    fuzz_begin();
    (void)ngram_arpa_is(path);
    err = ngram_arpa_read(&levels, &spec, NULL, &made, path);
    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT || err == BP_ERR_SYSTEM);
    if (err == BP_OK) {
        FUZZ_CHECK(made && bp_tokenizer_size(made) == spec.vocab_size);
        FUZZ_CHECK(levels.of[1].count == spec.vocab_size + 1);
        for (int k = 2; k <= spec.order; k++)
            check_order(&levels, &spec, k);
    }
    bp_tokenizer_free(&made);
    ngram_levels_clear(&levels);
    fuzz_end();
    return 0;
}
