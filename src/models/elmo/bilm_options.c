/* The text files of a bilm-tf folder: options.json, and the words. Called by bilm_read.c. */
#include "models/elmo/bilm_priv.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "models/words/words_file.h"
#include "nn/core/layers.h"

#include <inttypes.h>
#include <string.h>

#define OPTIONS_LIMIT ((int64_t)1 << 20)
#define WORDS_LIMIT   ((int64_t)1 << 30)
#define CONTEXT       20 /* of bilm-tf's windows */
#define NO_CLIP       1e9
#define MOST_LAYERS   1000

/* ---- options.json ---- */

bp_err bilm_refuse(const char *path, const char *what, const char *has)
{
    return BP_FAIL(BP_ERR_FORMAT, "bilm.unsupported",
                   "%s is %s, which elmo does not have: at %s; take another model", what, has,
                   path);
}

static bp_err read_filters(bp_model_shape *shape, const json_t *cnn, const char *path)
{
    const json_t *filters = json_object_get(cnn, "filters");
    size_t count = json_array_size(filters);

    for (size_t k = 0; k < count && k < BP_MODEL_PAIRS; k++) {
        int64_t width = json_integer_value(json_array_get(json_array_get(filters, k), 0)),
                number = json_integer_value(json_array_get(json_array_get(filters, k), 1));

        if (width < 1 || width > BP_WORD_CHARACTERS || number < 1 || number > 1 << 20)
            return bilm_refuse(path, "an entry of \"char_cnn.filters\"", "no pair of sizes");
        bp_elmo_sizes_in(shape)->filters[k] = width << 32 | number;
    }
    return count >= 1 && count <= BP_MODEL_PAIRS
               ? BP_OK
               : bilm_refuse(path, "\"char_cnn.filters\"", "no list of 1 to 16 pairs");
}

static bp_err read_cnn(bp_model_shape *shape, const json_t *cnn, const char *path)
{
    const char *activation = json_string_value(json_object_get(cnn, "activation"));
    int64_t characters = 0, word = 0, highway = 0;
    bp_err err = json_is_object(cnn)
                     ? read_filters(shape, cnn, path)
                     : bilm_refuse(path, "\"char_cnn\"", "missing (a model of words)");

    if (err == BP_OK)
        err = bp_json_get_int(json_object_get(cnn, "embedding"), "dim",
                              &bp_elmo_sizes_in(shape)->embedding, path);
    if (err == BP_OK)
        err = bp_json_get_int(cnn, "n_characters", &characters, path);
    if (err == BP_OK)
        err = bp_json_get_int(cnn, "max_characters_per_token", &word, path);
    if (err == BP_OK)
        err = bp_json_get_int(cnn, "n_highway", &highway, path);
    if (err != BP_OK)
        return err;
    bp_elmo_sizes_in(shape)->highway = highway;
    bp_elmo_sizes_in(shape)->activation = activation && strcmp(activation, "tanh") == 0;
    if (!activation || (strcmp(activation, "tanh") != 0 && strcmp(activation, "relu") != 0))
        return bilm_refuse(path, "\"char_cnn.activation\"", "neither relu nor tanh");
    if (characters != BP_CHARACTERS && characters != BP_CHARACTERS + 1)
        return bilm_refuse(path, "\"char_cnn.n_characters\"", "neither 261 nor 262");
    if (word != BP_WORD_CHARACTERS)
        return bilm_refuse(path, "\"char_cnn.max_characters_per_token\"", "not 50");
    return highway >= 1 && highway <= 8 ? BP_OK
                                        : bilm_refuse(path, "\"char_cnn.n_highway\"", "not 1 to 8");
}

/* A missing or null value clips nothing. */
static double clip_of(const json_t *lstm, const char *name)
{
    double clip = json_number_value(json_object_get(lstm, name));

    return clip > 0 ? clip : NO_CLIP;
}

static bp_err read_lstm(bp_model_shape *shape, const json_t *lstm, const char *path)
{
    bp_err err = bp_json_get_int(lstm, "dim", &shape->width, path);

    if (err == BP_OK)
        err = bp_json_get_int(lstm, "projection_dim", &bp_elmo_sizes_in(shape)->projection, path);
    if (err == BP_OK)
        err = bp_json_get_int(lstm, "n_layers", &shape->layers, path);
    bp_elmo_sizes_in(shape)->cell_clip = clip_of(lstm, "cell_clip");
    bp_elmo_sizes_in(shape)->projection_clip = clip_of(lstm, "proj_clip");
    bp_elmo_sizes_in(shape)->no_skip = !json_is_true(json_object_get(lstm, "use_skip_connections"));
    return err;
}

static bp_err check_sizes(const bp_model_shape *shape, const char *path)
{
    const int64_t sizes[] = {shape->width, bp_elmo_sizes_of(shape)->projection, shape->layers,
                             bp_elmo_sizes_of(shape)->embedding, shape->context};

    if (shape->layers > MOST_LAYERS)
        return bilm_refuse(path, "\"lstm.n_layers\"", "more than 1000");
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        if (sizes[k] < 1 || sizes[k] > 1 << 20)
            return bilm_refuse(path, "a size", "not 1 to 1048576");
    return shape->family->check_read(shape, path);
}

bp_err bilm_read_options(bp_model_shape *shape, const bp_model_family *family, const char *path)
{
    json_t *options = NULL;
    bp_err err = bp_json_load(&options, path, OPTIONS_LIMIT);

    *shape = (bp_model_shape){.family = family, .context = CONTEXT};
    if (err == BP_OK && json_is_false(json_object_get(options, "bidirectional")))
        err = bilm_refuse(path, "\"bidirectional\"", "false");
    if (err == BP_OK)
        err = read_cnn(shape, json_object_get(options, "char_cnn"), path);
    if (err == BP_OK)
        err = read_lstm(shape, json_object_get(options, "lstm"), path);
    if (err == BP_OK && json_is_integer(json_object_get(options, "unroll_steps")))
        shape->context = json_integer_value(json_object_get(options, "unroll_steps"));
    if (err == BP_OK && json_object_get(options, "n_tokens_vocab"))
        err = bp_json_get_int(options, "n_tokens_vocab", &shape->vocab_size, path);
    if (err == BP_OK)
        err = check_sizes(shape, path);
    json_decref(options);
    return err;
}

/* ---- words ---- */

/* bilm-tf's <UNK> and </S> are our <unk> and end-of-document token. */
static const char *our_word(const char *word)
{
    return strcmp(word, BP_ELMO_UNKNOWN) == 0 ? BP_UNK_TOKEN
           : strcmp(word, BILM_END) == 0      ? BP_EOD_TOKEN
                                              : word;
}

static bp_err add_word(json_t *vocab, const char *word, const char *path)
{
    int64_t line = (int64_t)json_object_size(vocab);

    if (json_object_get(vocab, word))
        return BP_FAIL(BP_ERR_FORMAT, "bilm.bad_words",
                       "line %" PRId64 ", '%.40s', is a word that was there before: at %s; mend "
                       "the list",
                       line + 1, word, path);
    if (json_object_set_new(vocab, word, json_integer((json_int_t)line)) != 0)
        return BP_FAIL(BP_ERR_FORMAT, "bilm.bad_words",
                       "line %" PRId64 " is not UTF-8: at %s; convert the file", line + 1, path);
    return BP_OK;
}

static bp_err parse_words(bp_tokenizer **out, json_t *vocab, const char *path)
{
    if (!json_object_get(vocab, BP_UNK_TOKEN) || !json_object_get(vocab, BP_EOD_TOKEN))
        return BP_FAIL(BP_ERR_FORMAT, "bilm.bad_words",
                       "the words lack " BP_ELMO_UNKNOWN " or " BILM_END
                       ": at %s; give the model's tokenizer "
                       "with --tokenizer",
                       path);
    return bp_words_file_tokenizer(out, vocab, path);
}

bp_err bilm_load_words(bp_tokenizer **out, const char *path)
{
    json_t *vocab = json_object();
    char *text = NULL;
    size_t bytes = 0;
    bp_err err = bp_file_read(path, WORDS_LIMIT, &text, &bytes);

    for (char *at = text; err == BP_OK && at < text + bytes;) {
        char *end = memchr(at, '\n', (size_t)(text + bytes - at));

        end = end ? end : text + bytes;
        *end = '\0'; /* bp_file_read allocates one byte more */
        if (end > at && end[-1] == '\r')
            end[-1] = '\0';
        err = add_word(vocab, our_word(at), path);
        at = end + 1;
    }
    if (err == BP_OK)
        err = parse_words(out, vocab, path);
    bp_free(text);
    json_decref(vocab);
    return err;
}
