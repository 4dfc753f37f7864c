/* bagpipe-data export: a checkpoint becomes a Hugging Face folder, a GGUF file, or a text file of
 * the model. */
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "exchange.h"
#include "export_sentences.h"
#include "io/gguf/gguf_export.h"
#include "io/huggingface/hf_model.h"
#include "models/family.h"
#include "models/forms.h"
#include "models/seq2seq/seq2seq.h"
#include "models/shape/adapter.h"
#include "models/task/task.h"
#include "text/tokenizer/tokenizer.h"
#include "tools.h"

#include <string.h>
#include <sys/stat.h>

static const struct argp_option OPTIONS[] = {
    {"out", 'o', "FOLDER", 0, "the folder to make (required)", 0},
    {"tokenizer", 0, "FILE", 0, "the model's tokenizer.json, where the checkpoint keeps none", 0},
    {"no-tokenizer", 0, NULL, 0, "leave the tokenizer out", 0},
    {"dtype", 0, "f32|f16|bf16", 0,
     "the type of the values: f32 (default) as they are, f16 and bf16 the nearest (of two the even "
     "one)",
     0},
    {"form", 0, "huggingface|gguf", 0,
     "what is made of a Transformer: a folder (default), or a GGUF file", 0},
    {"type", 0, "f32|f16|bf16|q8_0", 0,
     "of a GGUF file: the type of matrices (default f16); with q8_0 those whose rows are not "
     "multiple of 32 are f16; vectors and tables of positions are f32",
     0},
    {"shard-size", 0, "2GB", 0,
     "the most bytes of a file: a larger model goes into several, with "
     "model.safetensors.index.json (default: one file)",
     0},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65",
     "the checkpoint is damaged or of another architecture, the tokenizer is not its own, or a "
     "value is beyond the type's largest"},
    {"66", "a file is missing"},
    {"73, 77", "the output is there already, or cannot be created"},
    {"74", "the disk is full"},
    {0}};

/* The named tokenizer must be the one that the checkpoint was made with. */
static bp_err check_tokenizer(const bp_tokenizer *tokenizer, const bp_checkpoint *checkpoint,
                              const char *path)
{
    const json_t *state = bp_checkpoint_state(checkpoint);
    const char *hash = json_string_value(json_object_get(state, "tokenizer_hash"));
    int64_t vocab_size =
        json_integer_value(json_object_get(json_object_get(state, "model"), "vocab_size"));

    if (hash && hash[0] != '\0' && !bp_tokenizer_same_hash(hash, bp_tokenizer_hash(tokenizer)))
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                       "the tokenizer's hash is %.16s..., and the checkpoint was made with "
                       "%.16s...: at %s; give "
                       "the model's own, or --no-tokenizer",
                       bp_tokenizer_hash(tokenizer), hash, path);
    if (bp_tokenizer_size(tokenizer) > vocab_size)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.mismatch",
                       "the tokenizer has %lld tokens and the model %lld: at %s",
                       (long long)bp_tokenizer_size(tokenizer), (long long)vocab_size, path);
    return BP_OK;
}

/* ---- the tokenizer as other programs need it ---- */

typedef struct written_tokenizer {
    char *text;     /* of tokenizer.json; NULL if there is none */
    json_t *config; /* of tokenizer_config.json; NULL if there is none */
} written_tokenizer;

/* How this program framed the texts that the model was trained on; false: the model reads no framed
 * texts, was trained by another program, or there is no token for it. */
static bool find_frame(bp_text_frame *out, int64_t *context, const bp_tokenizer *tokenizer,
                       const bp_checkpoint *checkpoint)
{
    const json_t *state = bp_checkpoint_state(checkpoint);
    int64_t roles[BP_ROLES];
    bp_model_shape shape;
    bp_task_frame frame;

    for (int role = 0; role < BP_ROLES; role++)
        roles[role] = bp_tokenizer_role(tokenizer, (bp_role)role);
    roles[BP_ROLE_FIRST] = bp_roles_get(state, BP_ROLE_FIRST);
    if ((json_object_get(state, "origin") && !json_is_true(json_object_get(state, "framed"))) ||
        bp_model_shape_read(&shape, state, bp_checkpoint_folder(checkpoint)) != BP_OK ||
        !(shape.family->source || bp_task_has_head(&shape.task)) ||
        bp_task_frame_of(&frame, &shape, roles, bp_checkpoint_folder(checkpoint)) != BP_OK)
        return false;
    *context = shape.context;
    *out = (bp_text_frame){
        frame.begin, frame.end,
        shape.family->blocks->backbone(&shape).segments > 1 && !frame.one_segment, frame.middles};
    return frame.end >= 0;
}

static void name_token(json_t *config, const char *key, const bp_tokenizer *tokenizer, int64_t id)
{
    bp_buffer name = {0};

    if (id >= 0 && bp_tokenizer_token_bytes(tokenizer, id, &name) == BP_OK)
        (void)json_object_set_new(config, key, bp_json_string(name.data));
    bp_buffer_clear(&name);
}

/* For targets that begin with padding, if the tokenizer has no role for it: as in config.json. */
static int64_t find_padding(const bp_tokenizer *tokenizer, const bp_checkpoint *checkpoint)
{
    bp_model_shape shape;
    int64_t start;

    if (bp_tokenizer_role(tokenizer, BP_ROLE_PAD) >= 0 ||
        bp_model_shape_read(&shape, bp_checkpoint_state(checkpoint),
                            bp_checkpoint_folder(checkpoint)) != BP_OK ||
        !shape.family->seq2seq || !shape.family->seq2seq->starts_with_padding)
        return -1;
    start = shape.family->source->start_token(&shape);
    return start >= 0 ? start : bp_tokenizer_eod(tokenizer);
}

/* Without it Hugging Face takes the class of the model's type, with special tokens of its own. */
static json_t *tokenizer_config(const bp_tokenizer *tokenizer, int64_t context, bool segments)
{
    static const char *const KEYS[BP_ROLES] = {
        [BP_ROLE_PAD] = "pad_token", [BP_ROLE_UNKNOWN] = "unk_token", [BP_ROLE_CLS] = "cls_token",
        [BP_ROLE_SEP] = "sep_token", [BP_ROLE_MASK] = "mask_token",   [BP_ROLE_END] = "eos_token"};
    json_t *config =
        json_pack("{s:s, s:b, s:I, s:[s, s]}", "tokenizer_class", "PreTrainedTokenizerFast",
                  "clean_up_tokenization_spaces", 0, "model_max_length", (json_int_t)context,
                  "model_input_names", "input_ids", "attention_mask");

    if (segments)
        (void)json_array_append_new(json_object_get(config, "model_input_names"),
                                    json_string("token_type_ids"));
    for (int role = 0; role < BP_ROLES; role++)
        if (KEYS[role])
            name_token(config, KEYS[role], tokenizer, bp_tokenizer_role(tokenizer, (bp_role)role));
    name_token(config, "bos_token", tokenizer, bp_tokenizer_eod(tokenizer));
    return config;
}

/* For a model that knows its beginning of a text: that, its end, and whether texts begin so. */
static json_t *causal_config(const bp_tokenizer *tokenizer, const json_t *state, int64_t context)
{
    int64_t bos = bp_roles_get(state, BP_ROLE_BOS);
    json_t *config = tokenizer_config(tokenizer, context, false);

    name_token(config, "bos_token", tokenizer, bos);
    name_token(config, "eos_token", tokenizer,
               json_integer_value(json_object_get(state, "eod_id")));
    (void)json_object_set_new(config, "add_bos_token",
                              json_boolean(bp_roles_get(state, BP_ROLE_FIRST) == bos));
    return config;
}

/* A tokenizer that frames nothing. */
static bp_err plain_tokenizer(written_tokenizer *out, const bp_tokenizer *tokenizer,
                              const bp_checkpoint *checkpoint)
{
    const json_t *state = bp_checkpoint_state(checkpoint);
    int64_t bos = bp_roles_get(state, BP_ROLE_BOS);
    bp_model_shape shape;

    out->text = bp_tokenizer_text(tokenizer);
    if (!out->text)
        return bp_fail_memory("a tokenizer", 1, 1);
    if (bos >= 0 && bos != json_integer_value(json_object_get(state, "eod_id")) &&
        bp_model_shape_read(&shape, state, bp_checkpoint_folder(checkpoint)) == BP_OK &&
        !shape.family->source)
        out->config = causal_config(tokenizer, state, shape.context);
    return BP_OK;
}

static bp_err make_tokenizer(written_tokenizer *out, const exchange_arguments *arguments,
                             const bp_checkpoint *checkpoint)
{
    const char *path =
        arguments->tokenizer ? arguments->tokenizer : bp_checkpoint_tokenizer(checkpoint);
    bp_tokenizer *tokenizer = NULL;
    bp_text_frame frame;
    int64_t context;
    bp_err err;

    if (arguments->no_tokenizer || !path)
        return BP_OK;
    err = bp_tokenizer_load(&tokenizer, path);
    if (err == BP_OK)
        err = check_tokenizer(tokenizer, checkpoint, path);
    if (err == BP_OK && find_frame(&frame, &context, tokenizer, checkpoint)) {
        err = bp_tokenizer_framed_text(&out->text, tokenizer, &frame);
        out->config = tokenizer_config(tokenizer, context, frame.has_segments);
        name_token(out->config, "pad_token", tokenizer, find_padding(tokenizer, checkpoint));
    } else if (err == BP_OK) {
        err = plain_tokenizer(out, tokenizer, checkpoint);
    }
    bp_tokenizer_free(&tokenizer);
    return err;
}

static void show(void *progress, int64_t done, int64_t total)
{
    exchange_show_progress(progress, 4 * done, 4 * total);
}

/* The family, if it has a form of its own; else *family is NULL. */
static bp_err find_text(const bp_model_family **family, const bp_checkpoint *checkpoint)
{
    bp_model_shape shape;
    bp_err err = bp_model_shape_read(&shape, bp_checkpoint_state(checkpoint),
                                     bp_checkpoint_folder(checkpoint));

    *family = err == BP_OK && (shape.family->text_form ||
                               (shape.family->folder && shape.family->folder->write))
                  ? shape.family
                  : NULL;
    return err;
}

static bp_err export_text(const bp_model_family *family, const exchange_arguments *arguments,
                          bp_checkpoint *checkpoint)
{
    const char *path =
        arguments->tokenizer ? arguments->tokenizer : bp_checkpoint_tokenizer(checkpoint);
    bp_tokenizer *tokenizer = NULL;
    bp_err err = BP_OK;

    if (!arguments->no_tokenizer && path)
        err = bp_tokenizer_load(&tokenizer, path);
    if (err == BP_OK && tokenizer)
        err = check_tokenizer(tokenizer, checkpoint, path);
    if (err == BP_OK)
        err = family->text_form->write(family, checkpoint, tokenizer, arguments->out);
    if (err == BP_OK)
        bp_log("%s file: %s, words %s", family->text_form->name, arguments->out,
               tokenizer ? "of the tokenizer" : "are ids");
    bp_tokenizer_free(&tokenizer);
    return err;
}

static bp_err export_folder(const exchange_arguments *arguments, bp_checkpoint *checkpoint)
{
    const char *path =
        arguments->tokenizer ? arguments->tokenizer : bp_checkpoint_tokenizer(checkpoint);
    bp_tokenizer *tokenizer = NULL;
    bp_model_shape shape;
    bp_err err = bp_model_shape_read(&shape, bp_checkpoint_state(checkpoint),
                                     bp_checkpoint_folder(checkpoint));

    if (err == BP_OK && !arguments->no_tokenizer && path)
        err = bp_tokenizer_load(&tokenizer, path);
    if (err == BP_OK && tokenizer)
        err = check_tokenizer(tokenizer, checkpoint, path);
    if (err == BP_OK)
        err = shape.family->folder->write(shape.family, checkpoint, tokenizer, arguments->out);
    if (err == BP_OK)
        bp_log("%s folder: %s, words %s", shape.family->folder->name, arguments->out,
               tokenizer ? "of the tokenizer" : "left out");
    bp_tokenizer_free(&tokenizer);
    return err;
}

/* A Hugging Face folder, or one for each part of the model that has one of its own. */
static bp_err export_parts(bp_checkpoint *checkpoint, const char *out,
                           const bp_hf_export_options *options)
{
    bp_model_shape shape;
    bp_err err = bp_model_shape_read(&shape, bp_checkpoint_state(checkpoint),
                                     bp_checkpoint_folder(checkpoint));
    const char *name;
    json_t *model =
        err == BP_OK && shape.family->half ? shape.family->half(&shape, 0, &name) : NULL;

    if (err == BP_OK && !model)
        return bp_hf_export(checkpoint, out, options, bp_model_huggingface_tables());
    if (err == BP_OK && mkdir(out, 0777) != 0)
        err = bp_fail_errno(BP_ERR_CREATE, "make", out);
    for (int k = 1; err == BP_OK && model; k++) {
        bp_hf_export_options part = *options;
        char *folder = bp_path_join(out, name);

        part.model = model;
        err = bp_hf_export(checkpoint, folder, &part, bp_model_huggingface_tables());
        bp_free(folder);
        json_decref(model);
        model = shape.family->half(&shape, k, &name);
    }
    json_decref(model);
    return err;
}

/* The tokenizer that the file gets; *out NULL: none. Roles are those that the checkpoint keeps. */
static bp_err load_tokenizer(bp_tokenizer **out, const exchange_arguments *arguments,
                             const bp_checkpoint *checkpoint)
{
    const char *path =
        arguments->tokenizer ? arguments->tokenizer : bp_checkpoint_tokenizer(checkpoint);
    const json_t *state = bp_checkpoint_state(checkpoint);
    int64_t bos = bp_roles_get(state, BP_ROLE_BOS),
            end = json_integer_value(json_object_get(state, "eod_id"));
    json_t *config;
    bp_err err;

    *out = NULL;
    if (arguments->no_tokenizer || !path)
        return BP_OK;
    err = bp_tokenizer_load(out, path);
    if (err == BP_OK)
        err = check_tokenizer(*out, checkpoint, path);
    if (err != BP_OK)
        return err;
    config = json_pack("{s:b}", "add_bos_token", bp_roles_get(state, BP_ROLE_FIRST) >= 0);
    name_token(config, "bos_token", *out, bos);
    name_token(config, "eos_token", *out, end);
    bp_tokenizer_take_config(*out, config);
    json_decref(config);
    return BP_OK;
}

/* How vectors are made of an encoder's states: llama.cpp takes the mean where nothing is known. */
static bp_gguf_pooling pooling_of(const bp_checkpoint *checkpoint)
{
    static const char *const NAMES[] = {"", "mean", "first", "last"};
    const json_t *vectors = json_object_get(bp_checkpoint_state(checkpoint), "vectors");
    const char *pool = json_string_value(json_object_get(vectors, "pool"));

    for (int k = BP_GGUF_POOL_MEAN; pool && k < BP_GGUF_POOLS; k++)
        if (strcmp(pool, NAMES[k]) == 0)
            return (bp_gguf_pooling)k;
    return BP_GGUF_POOL_MEAN;
}

static bp_err export_gguf(const exchange_arguments *arguments, bp_checkpoint *checkpoint)
{
    exchange_progress progress = {.what = "writing weights"};
    bp_hf_export_options options = {
        .progress = show, .context = &progress, .merge = bp_adapter_merge};
    bp_tokenizer *tokenizer = NULL;
    int64_t left = 0;
    bp_err err = load_tokenizer(&tokenizer, arguments, checkpoint);

    if (err == BP_OK)
        err = bp_gguf_export(checkpoint, arguments->out,
                             &(bp_gguf_options){.type = (bp_gguf_type)arguments->type,
                                                .tokenizer = tokenizer,
                                                .name = bp_path_base(arguments->out),
                                                .pooling = pooling_of(checkpoint),
                                                .left = &left},
                             &options, bp_model_huggingface_tables());
    if (err == BP_OK) {
        bp_log("checkpoint: %s, model %s", bp_checkpoint_folder(checkpoint),
               bp_checkpoint_digest(checkpoint));
        if (left > 0)
            bp_log("left out: %lld tensors of the head and the pooler, which such files have not",
                   (long long)left);
        bp_log("GGUF file: %s, tokenizer %s", arguments->out,
               tokenizer ? bp_tokenizer_kind(tokenizer) : "none");
    }
    bp_tokenizer_free(&tokenizer);
    return err;
}

static bp_err export(const exchange_arguments *arguments)
{
    exchange_progress progress = {.what = "writing weights"};
    bp_checkpoint *checkpoint = NULL;
    const bp_model_family *family = NULL;
    written_tokenizer tokenizer = {0};
    json_t *sentences = NULL;
    bp_err err = bp_checkpoint_open_any(MPI_COMM_SELF, arguments->from, &checkpoint);

    bp_checkpoint_warn_not_best(arguments->from);
    if (err == BP_OK)
        err = find_text(&family, checkpoint);
    if (err == BP_OK && family && arguments->gguf)
        err = BP_FAIL(BP_ERR_FORMAT, "gguf.no_counterpart",
                      "GGUF files have no place for a model of kind %s: at %s; leave --form out",
                      family->name, arguments->from);
    else if (err == BP_OK && family) {
        err = family->folder && family->folder->write ? export_folder(arguments, checkpoint)
                                                      : export_text(family, arguments, checkpoint);
        bp_checkpoint_close(&checkpoint);
        return err;
    }
    if (err == BP_OK)
        err = bp_adapter_check_merge(checkpoint);
    if (err == BP_OK && arguments->gguf &&
        json_object_get(json_object_get(bp_checkpoint_state(checkpoint), "vectors"), "map"))
        err =
            BP_FAIL(BP_ERR_FORMAT, "gguf.no_counterpart",
                    "GGUF files have no place for a map of vectors (a module Dense): at %s; leave "
                    "--form out",
                    arguments->from);
    if (err == BP_OK && arguments->gguf) {
        err = export_gguf(arguments, checkpoint);
        bp_checkpoint_close(&checkpoint);
        return err;
    }
    if (err == BP_OK)
        err = make_tokenizer(&tokenizer, arguments, checkpoint);
    if (err == BP_OK)
        sentences = export_sentences(bp_checkpoint_state(checkpoint));
    if (err == BP_OK)
        err = export_parts(checkpoint, arguments->out,
                           &(bp_hf_export_options){.dtype = arguments->dtype,
                                                   .shard_bytes = arguments->shard_bytes,
                                                   .tokenizer = tokenizer.text,
                                                   .tokenizer_config = tokenizer.config,
                                                   .files = sentences,
                                                   .also = export_sentences_map,
                                                   .progress = show,
                                                   .context = &progress,
                                                   .merge = bp_adapter_merge});
    if (err == BP_OK) {
        bp_log("checkpoint: %s, model %s", bp_checkpoint_folder(checkpoint),
               bp_checkpoint_digest(checkpoint));
        bp_log("tokenizer: %s", tokenizer.text ? "tokenizer.json" : "none");
        bp_log("Hugging Face folder: %s, values of %s", arguments->out, arguments->dtype);
    }
    json_decref(sentences);
    json_decref(tokenizer.config);
    bp_free(tokenizer.text);
    bp_checkpoint_close(&checkpoint);
    return err;
}

static bp_err run(int argc, char **argv)
{
    static const exchange_tool TOOL = {.tool = &bp_tool_export, .run = export};

    return exchange_run(&TOOL, argc, argv);
}

const bp_tool bp_tool_export = {
    .name = "export",
    .help =
        {.name = "bagpipe-data export",
         .usage = "CHECKPOINT --out TARGET [OPTION...]",
         .summary =
             "makes a Hugging Face folder, a GGUF file, a folder of bilm-tf, an ARPA file, or "
             "a file of word vectors, of a checkpoint",
         .text =
             "The folder gets config.json, model.safetensors, and the checkpoint's tokenizer.json "
             "where it keeps one. transformers loads it with from_pretrained(FOLDER) of the class "
             "that config.json names, or AutoModelForCausalLM's; it has no transformer, rnn, lstm, "
             "gru or cell: only bagpipe reads their folders, as a warning says. The tokenizer of "
             "an encoder-decoder, "
             "or of "
             "a model with the head of a task, frames texts as its training did.\n"
             "With --form gguf a model of one of the types that docs/models.md lists for it "
             "becomes a "
             "GGUF file, with its tokenizer.\n"
             "A sentence encoder, whose checkpoint says how vectors are made, becomes a folder of "
             "sentence-transformers.\n"
             "An ELMo becomes a folder of bilm-tf's: options.json, weights.hdf5, and the words in "
             "vocab.txt and tokenizer.json.\n"
             "An n-gram model becomes an ARPA file, whose words are the tokenizer's; with "
             "--no-tokenizer they are ids. Word vectors become a file of word2vec's form, binary "
             "where its name ends in .bin, else text.\n"
             "CHECKPOINT is a step folder, an imported folder, a run folder (its newest "
             "checkpoint), or RUN/checkpoints/best. The optimizer's state is left out.",
         .options = OPTIONS,
         .examples = "  bagpipe-data export runs/small --out small-hf\n"
                     "  bagpipe-data export runs/gpt --out gpt-hf --dtype bf16 --shard-size 2GB\n"
                     "  bagpipe-data export runs/small --out small.gguf --form gguf --type q8_0\n",
         .statuses = STATUSES},
    .run = run};
