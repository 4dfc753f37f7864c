/* What bilm-tf's folders say in text: options that are accepted are sizes of a model that can be; a
 * list of words that is accepted is a tokenizer with an unknown word and an end. Inputs that begin
 * with '{' are options, others words. */
#include "fuzz.h"
#include "models/elmo/bilm_priv.h"
#include "models/elmo/elmo.h"
#include "models/list.h"

static void check_options(const char *path)
{
    bp_model_shape shape;
    bp_err err = bilm_read_options(&shape, &bp_elmo_family, path);

    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err != BP_OK)
        return;
    shape.vocab_size = 100;
    FUZZ_CHECK(bp_model_shape_is_whole(&shape));
    FUZZ_CHECK(bp_elmo_sizes_of(&shape)->projection <= shape.width && bp_elmo_filters(&shape) > 0);
    FUZZ_CHECK(bp_model_parameters(&shape) > 0);
}

static void check_words(const char *path)
{
    bp_tokenizer *tokenizer = NULL;
    bp_err err = bilm_load_words(&tokenizer, path);

    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err == BP_OK) {
        FUZZ_CHECK(bp_tokenizer_unk(tokenizer) >= 0 && bp_tokenizer_eod(tokenizer) >= 0);
        FUZZ_CHECK(bp_tokenizer_size(tokenizer) >= 2);
    }
    bp_tokenizer_free(&tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path;

    fuzz_begin();
    path = fuzz_file(data, bytes);
    if (bytes > 0 && data[0] == '{')
        check_options(path);
    else
        check_words(path);
    fuzz_end();
    return 0;
}
