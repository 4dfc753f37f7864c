/* Prompts, templates and stop texts: a byte that says which, then the text. Prompts that are
 * accepted are ids within the vocabulary and the context, and their parts lie one after another; a
 * stop text is found where it begins. */
#include "base/mem.h"
#include "fuzz.h"
#include "infer/generate/prompts/prompts.h"
#include "infer/generate/prompts/text.h"
#include "infer/generate/search/stops.h"

#include <string.h>

enum { LINES, OBJECTS, TEMPLATE, STOPS, KINDS };
#define VOCABULARY 5
#define CONTEXT    40

/* Characters a, b and space; <unk>, <|endoftext|>. */
static const char TOKENIZER[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [{\"id\": "
    "3, "
    "\"content\": \"<unk>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
    "\"normalized\": false, \"special\": true}, {\"id\": 4, \"content\": \"<|endoftext|>\", "
    "\"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
    "\"special\": true}], \"normalizer\": null, \"pre_tokenizer\": {\"type\": "
    "\"WhitespaceSplit\"}, "
    "\"post_processor\": null, \"decoder\": null, \"model\": {\"type\": \"WordLevel\", \"vocab\": "
    "{\"a\": 0, \"b\": 1, \"c\": 2, \"<unk>\": 3, \"<|endoftext|>\": 4}, \"unk_token\": "
    "\"<unk>\"}}";

static bp_tokenizer *tokenizer(void)
{
    static bp_tokenizer *one;

    if (one == NULL)
        FUZZ_CHECK(bp_tokenizer_parse(&one, TOKENIZER, sizeof TOKENIZER - 1, "words") == BP_OK);
    return one;
}

static void check_prompts(const bp_prompts *prompts)
{
    FUZZ_CHECK(prompts->count > 0 && prompts->starts[0] == 0 && prompts->text_starts[0] == 0);
    FUZZ_CHECK(prompts->starts[prompts->count] == prompts->ids.count);
    FUZZ_CHECK(prompts->text_starts[prompts->count] == (int64_t)prompts->text.bytes);
    for (int64_t k = 0; k < prompts->count; k++) {
        int64_t length = bp_prompts_length(prompts, k);

        FUZZ_CHECK(length > 0 && length <= CONTEXT && length <= prompts->longest);
        FUZZ_CHECK(prompts->text_starts[k] <= prompts->text_starts[k + 1]);
        for (int64_t i = 0; i < length; i++)
            FUZZ_CHECK(bp_prompts_ids(prompts, k)[i] >= 0 &&
                       bp_prompts_ids(prompts, k)[i] < VOCABULARY);
    }
}

static void try_prompts(const bp_prompts_spec *spec)
{
    bp_prompts prompts;
    bp_err err = bp_prompts_read(&prompts, spec);

    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_FORMAT);
    if (err == BP_OK)
        check_prompts(&prompts);
    bp_prompts_clear(&prompts);
}

static void try_stops(const char *list)
{
    bp_stops stops;
    bp_err err = bp_stops_read(&stops, list);

    fuzz_check_error(err);
    FUZZ_CHECK(err == BP_OK || err == BP_ERR_CONFIG);
    if (err == BP_OK) {
        for (int64_t k = 0; k < stops.count; k++)
            FUZZ_CHECK(stops.bytes[k] > 0 &&
                       bp_stops_find(&stops, stops.texts[k], stops.bytes[k]) == 0);
        err = bp_stops_use(&stops, tokenizer());
        fuzz_check_error(err);
        FUZZ_CHECK(err == BP_OK || err == BP_ERR_CONFIG);
    }
    bp_stops_clear(&stops);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_bytes in = {data, bytes};
    int kind = fuzz_below(&in, KINDS);
    bp_prompts_spec spec = {.tokenizer = tokenizer(),
                            .vocab_size = VOCABULARY,
                            .context = CONTEXT,
                            .end = -1,
                            .mask = -1}; /* 0 would be the token "a" */
    char *list;

    fuzz_begin();
    if (kind == STOPS) {
        list = bp_alloc("fuzz", (int64_t)in.left + 1, 1);
        if (in.left > 0)
            memcpy(list, in.data, in.left);
        try_stops(list);
        bp_free(list);
    } else if (kind == TEMPLATE) {
        static const char OBJECT[] = "{\"a\": \"a b\", \"n\": 1.5, \"l\": [1]}\n";

        spec.template_path = fuzz_file_named("template", in.data, in.left);
        spec.path = fuzz_file_named("prompts", OBJECT, sizeof OBJECT - 1);
        try_prompts(&spec);
    } else {
        spec.path =
            fuzz_file_named(kind == LINES ? "prompts.txt" : "prompts.jsonl", in.data, in.left);
        try_prompts(&spec);
    }
    fuzz_end();
    return 0;
}
