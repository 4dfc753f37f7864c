/* bagpipe-data import: a Hugging Face folder, a GGUF file, or a text file of a model, becomes a
 * checkpoint. */
#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "exchange.h"
#include "import_files.h"
#include "import_others.h"
#include "import_pairs.h"
#include "import_sentences.h"
#include "io/gguf/gguf_model.h"
#include "io/gguf/gguf_tokenizer.h"
#include "io/huggingface/hf_model.h"
#include "models/family.h"
#include "text/tokenizer/forced.h"
#include "text/tokenizer/tokenizer.h"
#include "tools.h"

#include <stdio.h>
#include <string.h>

#define NAMES_SHOWN  10
#define CONFIG_LIMIT ((int64_t)16 << 20)

static const struct argp_option OPTIONS[] = {
    {"out", 'o', "FOLDER", 0, "the folder to make (required)", 0},
    {"tokenizer", 0, "FILE", 0, "the model's tokenizer.json, instead of the folder's", 0},
    {"no-tokenizer", 0, NULL, 0, "leave the tokenizer out", 0},
    {"list", 0, NULL, 0, "name each tensor: what it was made of, and all that was left out", 0},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65", "wrong content of a file, or another architecture"},
    {"66", "a file is missing"},
    {"73, 77", "the output is there already, or cannot be created"},
    {"74", "the disk is full"},
    {0}};

/* A folder of Hugging Face, or a GGUF file. */
typedef struct model_source {
    const exchange_arguments *arguments; /* own */
    exchange_arguments own;              /* whose `from` is that of the model in a folder */
    bp_gguf *gguf;                       /* NULL: a folder */
    char *folder;                        /* of the model */
    json_t *vectors;                     /* of a sentence encoder; NULL: it is not one */
    sentence_map map;                    /* of its vectors */
    bp_hf_model *model;
} model_source;

/* ---- the tokenizer ---- */

/* The roles that the model's source gives, whatever the tokenizer's own folder said. */
static void take_roles(bp_tokenizer *tokenizer, const model_source *from)
{
    json_t *names = from->gguf ? bp_gguf_token_names(from->gguf) : NULL;

    if (names)
        bp_tokenizer_take_config(tokenizer, names);
    else
        bp_tokenizer_take_folder(tokenizer, from->arguments->from);
    tool_warn_of_roles(tokenizer, from->arguments->from);
    json_decref(names);
}

/* The source's, or the one that was named; *out is NULL where there is none. */
static bp_err load_tokenizer(bp_tokenizer **out, const model_source *from)
{
    const exchange_arguments *arguments = from->arguments;
    bp_hf_shape shape = bp_hf_shape_of(from->model);
    int64_t vocab_size = bp_hf_size_of(&shape, "vocab_size");
    bp_err err = BP_OK;

    *out = NULL;
    if (arguments->tokenizer)
        err = bp_tokenizer_load(out, arguments->tokenizer);
    else if (from->gguf && !arguments->no_tokenizer)
        err = bp_gguf_tokenizer(out, from->gguf);
    else if (!arguments->no_tokenizer)
        err = import_find_tokenizer(out, arguments->from, shape.table->model_type);
    if (err == BP_OK && *out && bp_tokenizer_size(*out) > vocab_size) {
        err = BP_FAIL(
            BP_ERR_FORMAT, "vocabulary.mismatch",
            "the tokenizer has %lld tokens and the model %lld: at %s; give the model's own with "
            "--tokenizer, or --no-tokenizer",
            (long long)bp_tokenizer_size(*out), (long long)vocab_size,
            arguments->tokenizer ? arguments->tokenizer : arguments->from);
        bp_tokenizer_free(out);
    }
    if (err == BP_OK && *out)
        take_roles(*out, from);
    return err;
}

/* ---- the checkpoint ---- */

static const char *const ID_FILES[] = {"config.json", "generation_config.json"};
#define ID_FILES_COUNT (sizeof ID_FILES / sizeof ID_FILES[0])

/* What file k says of ids, or the keys of a GGUF file; NULL: there is none. New reference. */
static json_t *ids_of(const model_source *from, size_t k)
{
    static const char *const keys[] = {"eos_token_id", "bos_token_id"};
    char *path = from->gguf ? NULL : bp_path_join(from->arguments->from, ID_FILES[k]);
    json_t *ids = from->gguf ? json_object() : NULL;

    for (int i = 0; from->gguf && i < 2; i++) {
        char key[64];

        (void)snprintf(key, sizeof key, "tokenizer.ggml.%s", keys[i]);
        (void)json_object_set(ids, keys[i], json_object_get(bp_gguf_keys(from->gguf), key));
    }
    if (path && bp_path_exists(path) &&
        bp_json_load_members(&ids, path, CONFIG_LIMIT, keys, 2) != BP_OK)
        ids = NULL;
    bp_free(path);
    return ids;
}

/* Without a tokenizer: what the source's files say. */
static int64_t add_roles_of(json_t *state, const model_source *from, int64_t vocab_size)
{
    int64_t roles[BP_ROLES];
    bp_ends ends = {0};

    for (int role = 0; role < BP_ROLES; role++)
        roles[role] = -1;
    for (size_t k = 0; k < ID_FILES_COUNT; k++) {
        json_t *config = ids_of(from, k);
        bp_ends bos = {0};

        bp_ends_read(&ends, json_object_get(config, "eos_token_id"), vocab_size);
        bp_ends_read(&bos, json_object_get(config, "bos_token_id"), vocab_size);
        if (roles[BP_ROLE_BOS] < 0 && bos.count > 0)
            roles[BP_ROLE_BOS] = bos.ids[0];
        json_decref(config);
    }
    bp_roles_put(state, roles, &ends);
    return ends.count > 0 ? ends.ids[0] : -1;
}

/* A table says how published models of its type read texts; the tokenizer that is with this one may
 * say otherwise, as one does that bagpipe wrote. */
static void take_pairs(json_t *model, const model_source *from)
{
    const exchange_arguments *arguments = from->arguments;
    char *path = arguments->tokenizer ? bp_strdup(arguments->tokenizer)
                                      : bp_path_join(arguments->from, "tokenizer.json");

    if (json_object_get(model, "task") && !arguments->no_tokenizer)
        import_pairs(model, path);
    bp_free(path);
}

static json_t *state_of(const model_source *from, const bp_hf_shape *shape,
                        const bp_tokenizer *tokenizer)
{
    int64_t vocab_size = bp_hf_size_of(shape, "vocab_size");

    json_t *state =
        json_pack("{s:i, s:o, s:s, s:I, s:I, s:s+}", "step", 0, "model", bp_hf_model_json(shape),
                  "tokenizer_hash", !tokenizer ? "" : bp_tokenizer_hash(tokenizer), "eod_id",
                  (json_int_t)(!tokenizer ? -1 : bp_tokenizer_eod(tokenizer)), "vocab_size",
                  (json_int_t)vocab_size, "origin", from->gguf ? "GGUF " : "Hugging Face ",
                  shape->table->model_type);

    if (tokenizer)
        import_add_roles(state, tokenizer);
    else
        (void)json_object_set_new(state, "eod_id",
                                  json_integer(add_roles_of(state, from, vocab_size)));
    if (!from->gguf)
        take_pairs(json_object_get(state, "model"), from);
    json_t *forced = from->gguf ? NULL : bp_forced_of_folder(from->arguments->from, vocab_size);
    if (forced)
        (void)json_object_set_new(state, "forced", forced);
    if (bp_hf_report_of(from->model).headless)
        (void)json_object_set_new(state, "headless", json_true());
    if (from->vectors)
        (void)json_object_set(state, "vectors", from->vectors);
    if (tokenizer && bp_tokenizer_was_framed(tokenizer))
        (void)json_object_set_new(state, "framed", json_true());
    return state;
}

/* bp_checkpoint_commit.fetch, with progress. */
typedef struct counted_fetch {
    bp_hf_model *model;
    bool *fetched; /* [slices]: a slice may be asked for again */
    int64_t done_bytes, total_bytes;
    exchange_progress progress;
} counted_fetch;

static int64_t bytes_of(const bp_slice *slice)
{
    return slice->shape[0] * (slice->dims == 2 ? slice->shape[1] : 1) * (int64_t)sizeof(float);
}

static bp_err fetch(void *context, const bp_slice *slice, int64_t index, const float **data)
{
    counted_fetch *self = context;

    exchange_show_progress(&self->progress, self->done_bytes, self->total_bytes);
    if (!self->fetched[index])
        self->done_bytes += bytes_of(slice);
    self->fetched[index] = true;
    return bp_hf_fetch(self->model, slice, index, data);
}

static int64_t parameters_of(const bp_hf_model *model)
{
    int64_t count, bytes = 0;
    const bp_slice *slices = bp_hf_slices(model, &count);

    for (int64_t k = 0; k < count; k++)
        bytes += bytes_of(&slices[k]);
    return bytes / (int64_t)sizeof(float);
}

/* The model's tensors, and the map's, with its values. */
static bp_slice *all_slices(const model_source *from, int64_t *count)
{
    const bp_slice *slices = bp_hf_slices(from->model, count);
    bp_slice *all = bp_alloc("import.slices", *count + SENTENCE_MAP_TENSORS, sizeof *all);

    memcpy(all, slices, (size_t)*count * sizeof *all);
    *count += sentence_map_slices(&from->map, all + *count);
    return all;
}

static bp_err check_map(const model_source *from, const bp_hf_shape *shape)
{
    int64_t width = bp_hf_size_of(shape, "width");

    return from->map.width == 0 || from->map.width == width
               ? BP_OK
               : BP_FAIL(BP_ERR_FORMAT, "import.dense_shape",
                         "the module Dense has \"in_features\" %lld and the model's states have "
                         "%lld numbers: at %s; save the model again",
                         (long long)from->map.width, (long long)width, from->arguments->from);
}

static bp_err save(const model_source *from, const bp_tokenizer *tokenizer)
{
    bp_hf_model *model = from->model;
    bp_hf_shape shape = bp_hf_shape_of(model);
    counted_fetch counted = {.model = model,
                             .total_bytes = parameters_of(model) * (int64_t)sizeof(float),
                             .progress.what = "writing weights"};
    bp_checkpoint_commit commit = {.fetch = fetch, .context = &counted};
    json_t *state = state_of(from, &shape, tokenizer);
    int64_t count;
    bp_slice *slices = all_slices(from, &count);
    bp_model_shape ours;
    bp_err err = check_map(from, &shape);

    if (err == BP_OK) /* what jobs will ask of it */
        err = bp_model_shape_read(&ours, state, from->arguments->from);
    counted.fetched = bp_alloc("import.fetched", count, sizeof *counted.fetched);
    if (err == BP_OK)
        err = import_save(&commit, from->arguments->out, tokenizer, slices, count, state);
    bp_free(counted.fetched);
    bp_free(slices);
    json_decref(state);
    return err;
}

/* ---- the report ---- */

/* "layers.0.attention.query.weight [2048, 2048] of model.layers.0... , transposed" */
static void list_tensors(const bp_hf_model *model, const bp_hf_report *r)
{
    int64_t count;
    const bp_slice *slices = bp_hf_slices(model, &count);

    for (int64_t k = 0; k < count; k++) {
        bp_hf_source source = bp_hf_source_of(model, k);
        bp_buffer line = {0};

        bp_buffer_printf(&line, "  %s [%lld", slices[k].name, (long long)slices[k].shape[0]);
        if (slices[k].dims == 2)
            bp_buffer_printf(&line, ", %lld", (long long)slices[k].shape[1]);
        bp_buffer_printf(&line, "] of %s", source.theirs);
        if (source.parts > 1)
            bp_buffer_printf(&line, ", part %d of %d", source.part + 1, source.parts);
        bp_log("%s%s", line.data, source.transposed ? ", transposed" : "");
        bp_buffer_clear(&line);
    }
    for (int64_t k = 0; k < r->buffers + r->tied_heads; k++)
        bp_log("  left out: %.80s", bp_hf_ignored(model, k));
}

/* Where the source keeps one; NULL: nowhere. */
static const char *chat_template_of(const model_source *from)
{
    static const char *const FILES[] = {"chat_template.jinja", "chat_template.json"};
    static const char *const key = "chat_template";
    const char *folder = from->arguments->from, *where = NULL;
    char *path = bp_path_join(folder, "tokenizer_config.json");
    json_t *config = NULL;

    if (from->gguf && json_object_get(bp_gguf_keys(from->gguf), "tokenizer.chat_template"))
        where = "tokenizer.chat_template";
    else if (bp_path_exists(path) &&
             bp_json_load_members(&config, path, CONFIG_LIMIT, &key, 1) == BP_OK &&
             json_object_get(config, key))
        where = "tokenizer_config.json";
    json_decref(config);
    bp_free(path);
    for (size_t k = 0; !where && k < sizeof FILES / sizeof FILES[0]; k++) {
        path = bp_path_join(folder, FILES[k]);
        where = bp_path_exists(path) ? FILES[k] : NULL;
        bp_free(path);
    }
    return where;
}

static void report(const model_source *from, const bp_tokenizer *tokenizer)
{
    const bp_hf_model *model = from->model;
    const exchange_arguments *arguments = from->arguments;
    bp_hf_shape shape = bp_hf_shape_of(model);
    bp_hf_report r = bp_hf_report_of(model);
    const char *chat = chat_template_of(from);
    int64_t names = arguments->list ? r.left : NAMES_SHOWN;

    bp_buffer sizes = {0};
    for (int k = 0; shape.table->sizes[k].ours; k++)
        if (bp_hf_is_given(&shape, k)) {
            bp_buffer_printf(&sizes, ", ");
            bp_hf_size_text(&sizes, &shape, k);
        }
    bp_log("model: %s%s: %lld parameters", shape.table->kind, sizes.data,
           (long long)parameters_of(model));
    bp_buffer_clear(&sizes);
    bp_log("used: %lld of %lld tensors (prefix '%s'), which make %lld tensors of the checkpoint",
           (long long)r.used, (long long)r.tensors, r.prefix, (long long)r.made);
    if (r.wrapper[0] != '\0')
        bp_log("names of tensors were read without '%s'", r.wrapper);
    if (r.headless)
        bp_log("head: none, the folder is of a base class; score.vectors and finetune take it");
    bp_log("transposed: %lld weights, [in, out] to [out, in]; split: %lld into q, k and v",
           (long long)r.transposed, (long long)r.split);
    bp_log("left out: %lld buffers and copies, %lld tied heads, %lld unknown tensors",
           (long long)r.buffers, (long long)r.tied_heads, (long long)r.left);
    if (arguments->list)
        list_tensors(model, &r);
    for (int64_t k = 0; k < r.left && k < names; k++)
        bp_log("  unknown: %.80s", bp_hf_left(model, k));
    if (r.left > names)
        bp_log("  and %lld more: --list names them", (long long)(r.left - names));
    if (!tokenizer)
        bp_log("tokenizer: none; only the size of the vocabulary of a corpus is checked");
    else
        bp_log("tokenizer: %s, %lld tokens, hash %s", bp_tokenizer_kind(tokenizer),
               (long long)bp_tokenizer_size(tokenizer), bp_tokenizer_hash(tokenizer));
    if (chat)
        bp_log("left out: the chat template of %s; prompts are written out, as with "
               "generate.template",
               chat);
    bp_log("checkpoint: %s", arguments->out);
}

static bp_err open_folder(model_source *from, const exchange_arguments *arguments)
{
    bp_err err = import_sentences(&from->vectors, &from->map, &from->folder, arguments->from);

    from->own.from = from->folder;
    if (err == BP_OK)
        err = import_check_source(from->folder);
    return err == BP_OK ? bp_hf_open(&from->model, from->folder, bp_model_huggingface_tables())
                        : err;
}

/* How an encoder's vectors are made; NULL: nothing is said. New reference. */
static json_t *pooling_of(const bp_gguf *file)
{
    static const char *const NAMES[BP_GGUF_POOLS] = {NULL, "mean", "first", "last"};
    json_int_t pool = json_integer_value(json_object_get(bp_gguf_keys(file), "bert.pooling_type"));

    return pool > BP_GGUF_POOL_NONE && pool < BP_GGUF_POOLS
               ? json_pack("{s:s}", "pool", NAMES[pool])
               : NULL;
}

static bp_err open_source(model_source *from, const exchange_arguments *arguments)
{
    const char *path = arguments->from;
    bp_err err;

    from->own = *arguments;
    from->arguments = &from->own;
    if (bp_path_is_dir(path) || !bp_gguf_is(path))
        return open_folder(from, arguments);
    err = bp_gguf_open(&from->gguf, path);
    if (err == BP_OK)
        from->vectors = pooling_of(from->gguf);
    return err == BP_OK
               ? bp_gguf_model_open(&from->model, from->gguf, bp_model_huggingface_tables())
               : err;
}

/* A Hugging Face folder, or a GGUF file. */
static bp_err import_model(const exchange_arguments *arguments)
{
    model_source from = {0};
    bp_tokenizer *tokenizer = NULL;
    bp_err err = open_source(&from, arguments);

    if (err == BP_OK)
        err = load_tokenizer(&tokenizer, &from);
    if (err == BP_OK && from.vectors && from.folder)
        err = import_sentences_encode(from.vectors, tokenizer, from.folder);
    if (err == BP_OK)
        err = save(&from, tokenizer);
    if (err == BP_OK)
        report(&from, tokenizer);
    if (err == BP_OK && from.vectors)
        import_sentences_report(from.vectors);
    bp_tokenizer_free(&tokenizer);
    bp_hf_close(&from.model);
    bp_gguf_close(&from.gguf);
    sentence_map_clear(&from.map);
    json_decref(from.vectors);
    bp_free(from.folder);
    return err;
}

static bp_err import(const exchange_arguments *arguments)
{
    const bp_model_family *of_folder = bp_model_family_of_folder(arguments->from);
    const bp_model_family *family = bp_model_family_of_text(arguments->from);

    if (family)
        return import_text(family, arguments);
    return of_folder ? import_folder(of_folder, arguments) : import_model(arguments);
}

static bp_err run(int argc, char **argv)
{
    static const exchange_tool TOOL = {.tool = &bp_tool_import, .run = import};

    return exchange_run(&TOOL, argc, argv);
}

const bp_tool bp_tool_import = {
    .name = "import",
    .help =
        {.name = "bagpipe-data import",
         .usage = "SOURCE --out CHECKPOINT [OPTION...]",
         .summary =
             "makes a checkpoint of a Hugging Face model, a GGUF file, an ELMo, an ARPA file, or "
             "word vectors",
         .text =
             "SOURCE is a folder of Hugging Face or of bilm-tf, a GGUF file, an ARPA file, or a "
             "file of word2vec's.\n"
             "A folder of Hugging Face holds config.json and model.safetensors, or shards with "
             "model.safetensors.index.json, of values in float32, float16, bfloat16 or "
             "float64. docs/formats.md lists the architectures (model_type).\n"
             "A GGUF file has an architecture of docs/models.md (llama, qwen3, gemma3, bert...), "
             "values in F32, F16, BF16 or Q8_0, and its tokenizer.\n"
             "A folder of bilm-tf holds an ELMo: one file that ends in options.json, one in "
             "weights.hdf5, and the words, a line each, in vocab.txt (or tokenizer.json).\n"
             "An ARPA file is one of SRILM or KenLM; its words make a tokenizer, unless one is "
             "given. So do those of a file of word2vec's, text or binary. Both may be compressed "
             "with gzip or zstd.\n"
             "Of a folder of sentence-transformers (modules.json) the checkpoint keeps how vectors "
             "are made of states (Pooling, Dense, Normalize), what score.vectors does then if "
             "nothing is given.\n"
             "The checkpoint is what model.init and score.model take; its step is 0. It "
             "keeps the folder's tokenizer: tokenizer.json; else of gpt2, roberta and bart "
             "vocab.json with merges.txt, of bert and electra vocab.txt, of t5, mt5, umt5, llama, "
             "mistral, gemma2, gemma3_text, "
             "xlm-roberta and camembert their models of SentencePiece. A report says how many "
             "tensors were used, transposed and "
             "left out; --list names them. Tensors are read one after another: memory "
             "holds two copies of the "
             "largest one.",
         .options = OPTIONS,
         .examples = "  bagpipe-data import gpt2/ --out gpt2.checkpoint\n"
                     "  bagpipe-data import gpt2/ --out gpt2.checkpoint --tokenizer t.json\n"
                     "  bagpipe-data import llama-q8_0.gguf --out llama.checkpoint\n"
                     "  bagpipe-data import lm.arpa --out lm.checkpoint\n",
         .statuses = STATUSES},
    .run = run};
