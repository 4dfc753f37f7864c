/* Finding a folder's tokenizer, and saying what a file is that import does not read. */
#include "import_files.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint.h"
#include "io/huggingface/hf_model.h"
#include "models/words/words_file.h"
#include "text/sentencepiece/sentencepiece.h"

#include <dirent.h>
#include <string.h>

#define CONFIG_LIMIT ((int64_t)16 << 20)
#define RUN_LIMIT    ((int64_t)100 << 20)
#define HEAD_BYTES   4096
#define TAR_SIGN     257 /* where "ustar" is */

static bool has(const char *folder, const char *name)
{
    char *path = bp_path_join(folder, name);
    bool there = bp_path_exists(path);

    bp_free(path);
    return there;
}

/* ---- the tokenizer ---- */

typedef bp_err load_function(bp_tokenizer **out, const char *folder, const json_t *config);

static bp_err load_json(bp_tokenizer **out, const char *folder, const json_t *config)
{
    char *path = bp_path_join(folder, "tokenizer.json");
    bp_err err = bp_tokenizer_load(out, path);

    (void)config;
    bp_free(path);
    return err;
}

static bp_err load_gpt2(bp_tokenizer **out, const char *folder, const json_t *config)
{
    char *vocab = bp_path_join(folder, "vocab.json"), *merges = bp_path_join(folder, "merges.txt");
    bp_err err = bp_tokenizer_load_gpt2(out, vocab, merges);

    (void)config;
    bp_free(vocab);
    bp_free(merges);
    return err;
}

static bp_err load_roberta(bp_tokenizer **out, const char *folder, const json_t *config)
{
    char *vocab = bp_path_join(folder, "vocab.json"), *merges = bp_path_join(folder, "merges.txt");
    bp_err err = bp_tokenizer_load_roberta(
        out, vocab, merges, json_is_true(json_object_get(config, "add_prefix_space")));

    bp_free(vocab);
    bp_free(merges);
    return err;
}

static bp_err load_openai_gpt(bp_tokenizer **out, const char *folder, const json_t *config)
{
    char *vocab = bp_path_join(folder, "vocab.json"), *merges = bp_path_join(folder, "merges.txt");
    bp_err err = bp_tokenizer_load_openai_gpt(out, vocab, merges);

    (void)config;
    bp_free(vocab);
    bp_free(merges);
    return err;
}

/* Does a word of the vocabulary have a capital letter? */
static bool has_capitals(const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    bool found = false, special = false;

    if (bp_file_read(path, CONFIG_LIMIT, &text, &bytes) != BP_OK)
        return false;
    for (size_t k = 0; k < bytes && !found; k++) {
        if (k == 0 || text[k - 1] == '\n')
            special = text[k] == '[';
        found = !special && text[k] >= 'A' && text[k] <= 'Z';
    }
    bp_free(text);
    return found;
}

static bp_err load_bert(bp_tokenizer **out, const char *folder, const json_t *config)
{
    const json_t *lower = json_object_get(config, "do_lower_case"),
                 *strip = json_object_get(config, "strip_accents"),
                 *chinese = json_object_get(config, "tokenize_chinese_chars");
    bool lowercase = !lower || json_is_true(lower);
    char *path = bp_path_join(folder, "vocab.txt");
    bp_err err = BP_OK;

    *out = NULL;
    if (json_is_false(chinese) || (json_is_boolean(strip) && json_is_true(strip) != lowercase))
        err = BP_FAIL(BP_ERR_FORMAT, "import.other_bert",
                      "tokenizer_config.json has strip_accents or tokenize_chinese_chars that are "
                      "not as BERT's own, which vocab.txt is read with: in %s; give tokenizer.json",
                      folder);
    else if (lowercase && !lower && has_capitals(path))
        BP_WARN("import.capitals",
                "vocab.txt has words with capitals, and texts are put into lower case, as where "
                "tokenizer_config.json has no do_lower_case: in %s; give --tokenizer if the model "
                "is a cased one (bagpipe-data tokenizer --vocab vocab.txt --cased)",
                folder);
    if (err == BP_OK)
        err = bp_tokenizer_load_bert(out, path, lowercase);
    bp_free(path);
    return err;
}

/* ---- models of SentencePiece, as the class of each type reads them ---- */

static bp_err load_pieces(bp_tokenizer **out, const char *folder, const char *file,
                          const bp_sentencepiece_class *as)
{
    char *path = bp_path_join(folder, file);
    bp_err err = bp_sentencepiece_tokenizer(out, path, as);

    bp_free(path);
    return err;
}

#define SENTINELS      100 /* of T5's class, where tokenizer_config.json does not say extra_ids */
#define MOST_SENTINELS 10000

/* <extra_id_99> to <extra_id_0> follow the pieces. */
static bp_err load_t5(bp_tokenizer **out, const char *folder, const json_t *config)
{
    const json_t *extra = json_object_get(config, "extra_ids");
    int64_t count = json_is_integer(extra) ? json_integer_value(extra) : SENTINELS;
    const char **names;
    bp_err err;

    if (count < 0 || count > MOST_SENTINELS)
        return BP_FAIL(BP_ERR_FORMAT, "import.bad_sentinels",
                       "extra_ids of tokenizer_config.json is %lld: in %s", (long long)count,
                       folder);
    names = bp_alloc("import.names", count + 1, sizeof *names);
    for (int64_t k = 0; k < count; k++)
        names[k] = bp_sprintf("<extra_id_%lld>", (long long)(count - 1 - k));
    err = load_pieces(out, folder, "spiece.model",
                      &(bp_sentencepiece_class){.after = names, .end = "</s>"});
    for (int64_t k = 0; k < count; k++)
        bp_free((char *)names[k]);
    bp_free(names);
    return err;
}

static bp_err load_mt5(bp_tokenizer **out, const char *folder, const json_t *config)
{
    (void)config; /* its sentinels are pieces */
    return load_pieces(out, folder, "spiece.model", &(bp_sentencepiece_class){.end = "</s>"});
}

static bp_err load_llama(bp_tokenizer **out, const char *folder, const json_t *config)
{
    (void)config;
    return load_pieces(out, folder, "tokenizer.model", &(bp_sentencepiece_class){.begin = "<s>"});
}

static bp_err load_gemma(bp_tokenizer **out, const char *folder, const json_t *config)
{
    (void)config;
    return load_pieces(out, folder, "tokenizer.model", &(bp_sentencepiece_class){.begin = "<bos>"});
}

/* fairseq's ids: its own special tokens first, and without the model's. */
static bp_err load_xlm_roberta(bp_tokenizer **out, const char *folder, const json_t *config)
{
    static const char *const BEFORE[] = {"<s>", "<pad>", "</s>", "<unk>", NULL}, *const AFTER[] = {
                                                                                     "<mask>",
                                                                                     NULL};

    (void)config;
    return load_pieces(out, folder, "sentencepiece.bpe.model",
                       &(bp_sentencepiece_class){BEFORE, 3, AFTER, "<s>", "</s>"});
}

static bp_err load_camembert(bp_tokenizer **out, const char *folder, const json_t *config)
{
    static const char *const BEFORE[] = {"<s>NOTUSED", "<pad>",        "</s>NOTUSED",
                                         "<unk>",      "<unk>NOTUSED", NULL},
                             *const AFTER[] = {"<mask>", NULL};

    (void)config;
    return load_pieces(out, folder, "sentencepiece.bpe.model",
                       &(bp_sentencepiece_class){BEFORE, 1, AFTER, "<s>", "</s>"});
}

static bp_err load_deberta(bp_tokenizer **out, const char *folder, const json_t *config)
{
    static const char *const AFTER[] = {"[MASK]", NULL};

    if (json_is_true(json_object_get(config, "do_lower_case")))
        return BP_FAIL(BP_ERR_FORMAT, "import.lowercase",
                       "do_lower_case of tokenizer_config.json is true, which is not done here for "
                       "spm.model: in %s; give tokenizer.json",
                       folder);
    return load_pieces(out, folder, "spm.model",
                       &(bp_sentencepiece_class){.after = AFTER, .begin = "[CLS]", .end = "[SEP]"});
}

/* Sources are cut by source.spm; target.spm has the same ids. */
static bp_err load_marian(bp_tokenizer **out, const char *folder, const json_t *config)
{
    char *pieces = bp_path_join(folder, "source.spm"), *vocab = bp_path_join(folder, "vocab.json");
    int64_t lost = 0;
    bp_err err = bp_sentencepiece_marian(out, pieces, vocab, &lost);

    (void)config;
    if (err == BP_OK && lost > 0)
        BP_WARN("import.lost_pieces",
                "%lld pieces of source.spm have no id in vocab.json: in %s; texts are cut without "
                "them, where transformers has <unk>",
                (long long)lost, folder);
    if (err == BP_OK && has(folder, "target.spm"))
        BP_WARN("import.one_side",
                "the tokenizer is that of sources (source.spm): in %s; for a corpus of pairs make "
                "that of targets (bagpipe-data tokenizer --vocab target.spm --ids vocab.json --out "
                "target.json), and give it with --target-tokenizer",
                folder);
    bp_free(pieces);
    bp_free(vocab);
    return err;
}

/* Files of a tokenizer, and the types of models whose class reads them as is done here. */
static const struct {
    const char *types, *needs[2];
    load_function *load;
} SOURCES[] = {{NULL, {"tokenizer.json", NULL}, load_json},
               {"gpt2", {"vocab.json", "merges.txt"}, load_gpt2},
               {"roberta|bart", {"vocab.json", "merges.txt"}, load_roberta},
               {"openai-gpt", {"vocab.json", "merges.txt"}, load_openai_gpt},
               {"bert|electra|distilbert", {"vocab.txt", NULL}, load_bert},
               {"t5", {"spiece.model", NULL}, load_t5},
               {"mt5|umt5", {"spiece.model", NULL}, load_mt5},
               {"llama|mistral", {"tokenizer.model", NULL}, load_llama},
               {"gemma2|gemma3_text", {"tokenizer.model", NULL}, load_gemma},
               {"xlm-roberta", {"sentencepiece.bpe.model", NULL}, load_xlm_roberta},
               {"deberta-v2", {"spm.model", NULL}, load_deberta},
               {"marian", {"source.spm", "vocab.json"}, load_marian},
               {"camembert", {"sentencepiece.bpe.model", NULL}, load_camembert}};

static bool names_type(const char *types, const char *type)
{
    size_t bytes = strlen(type);

    for (const char *at = types; *at; at += strcspn(at, "|"), at += *at == '|')
        if (strcspn(at, "|") == bytes && strncmp(at, type, bytes) == 0)
            return true;
    return false;
}

/* None was read. */
static void warn_of_left(const char *folder, const char *type)
{
    static const char *const FILES[] = {
        "tokenizer.model",     "spiece.model", "sentencepiece.bpe.model",
        "sentencepiece.model", "source.spm",   "vocab.txt",
        "vocab.json",          "merges.txt",   "vocab.bpe",
        "encoder.json",        "tekken.json",  NULL};
    bp_buffer left = {0};

    for (int k = 0; FILES[k]; k++)
        if (has(folder, FILES[k]))
            bp_buffer_printf(&left, "%s%s", left.bytes > 0 ? ", " : "", FILES[k]);
    if (left.bytes > 0)
        BP_WARN("import.tokenizer_left",
                "the tokenizer of %s is left out: for a %s, only tokenizer.json is read: in %s; "
                "make it with transformers (AutoTokenizer.from_pretrained, save_pretrained) and "
                "give it with --tokenizer",
                left.data, type, folder);
    bp_buffer_clear(&left);
}

bp_err import_find_tokenizer(bp_tokenizer **out, const char *folder, const char *model_type)
{
    static const char *const keys[] = {"do_lower_case", "strip_accents", "tokenize_chinese_chars",
                                       "add_prefix_space", "extra_ids"};
    char *path = bp_path_join(folder, "tokenizer_config.json");
    json_t *config = NULL;
    bp_err err = BP_OK;
    bool found = false;

    *out = NULL;
    if (bp_path_exists(path))
        err = bp_json_load_members(&config, path, CONFIG_LIMIT, keys, sizeof keys / sizeof keys[0]);
    for (size_t k = 0; k < sizeof SOURCES / sizeof SOURCES[0] && err == BP_OK && !found; k++) {
        if ((SOURCES[k].types && !names_type(SOURCES[k].types, model_type)) ||
            !has(folder, SOURCES[k].needs[0]) ||
            (SOURCES[k].needs[1] && !has(folder, SOURCES[k].needs[1])))
            continue;
        found = true;
        err = SOURCES[k].load(out, folder, config);
    }
    if (err == BP_OK && !found)
        warn_of_left(folder, model_type);
    if (err == BP_ERR_FORMAT)
        err = bp_err_wrap(err, "%s; --no-tokenizer imports the model without it", bp_err_text());
    json_decref(config);
    bp_free(path);
    return err;
}

/* ---- files of other kinds ---- */

#define FOLDER_OF "give the folder of Hugging Face's form, with config.json and model.safetensors"

/* By their first bytes. */
static const struct {
    const char *magic;
    size_t bytes;
    const char *what, *remedy;
} KINDS[] = {
    {"ggml", 4, "a GGML file", "give the folder with safetensors that it was made from"},
    {"lmgg", 4, "a GGML file", "give the folder with safetensors that it was made from"},
    {"PK\x03\x04", 4, "a zip archive, as PyTorch's files are",
     "give its folder, after this was run in it: " BP_HF_CONVERT},
    {"\x80\x02", 2, "a pickle, as PyTorch's files are",
     "give its folder, after this was run in it: " BP_HF_CONVERT},
    {"\x80\x03", 2, "a pickle", "give its folder, after this was run in it: " BP_HF_CONVERT},
    {"\x80\x04", 2, "a pickle", "give its folder, after this was run in it: " BP_HF_CONVERT},
    {"\x89HDF\r\n\x1a\n", 8, "an HDF5 file",
     "give the folder of an ELMo, or " FOLDER_OF " of another model"},
    {"mmap lm http://kheafield.com/code", 33, "a binary file of KenLM",
     "give the ARPA file that it was made from"},
    {"BLM", 3, "a binary file of IRSTLM", "give an ARPA file"},
    {"\xba\x16\x4f\x2f", 4, "a model of fastText", "give its file of vectors, .vec"},
    {"\x93NUMPY", 6, "an array of NumPy", FOLDER_OF},
    {"BZh", 3, "a file compressed with bzip2", "decompress it"},
    {"\xfd"
     "7zXZ",
     5, "a file compressed with xz", "decompress it"},
    {"<!DOCTYPE", 9, "a page of the web, and not the file", "download the file itself"},
    {"<!doctype", 9, "a page of the web, and not the file", "download the file itself"},
    {"<html", 5, "a page of the web, and not the file", "download the file itself"},
    {"\xff\xfe", 2, "a text in UTF-16", "convert it to UTF-8 (iconv -f utf-16)"},
    {"\xfe\xff", 2, "a text in UTF-16", "convert it to UTF-8 (iconv -f utf-16)"},
    {"{", 1, "a JSON file", FOLDER_OF},
};

#define FILES "give a folder of Hugging Face or bilm-tf, an ARPA file, or a file of word2vec"

/* A length of 8 bytes, and a JSON object. */
static bool is_safetensors(const char *text, size_t bytes)
{
    return bytes > 9 && text[8] == '{' && text[5] == 0 && text[6] == 0 && text[7] == 0;
}

/* A section of n-grams, or a count of the head, at the beginning of a line. */
static bool is_headless_arpa(const char *text, size_t bytes)
{
    static const char *const SIGNS[] = {"\\1-grams:", "ngram 1="};

    for (size_t k = 0; k < 2; k++)
        for (size_t at = 0; at + strlen(SIGNS[k]) <= bytes; at++)
            if (memcmp(text + at, SIGNS[k], strlen(SIGNS[k])) == 0 &&
                (at == 0 || text[at - 1] == '\n'))
                return true;
    return false;
}

/* A word and more than ten numbers, as GloVe's lines are. */
static bool is_headless_vectors(const char *text, size_t bytes)
{
    size_t end = 0, blanks = 0, others = 0, first = 0;

    while (end < bytes && text[end] != '\n' && text[end])
        end++;
    while (first < end && text[first] != ' ')
        first++;
    for (size_t k = first; k < end; k++) {
        blanks += text[k] == ' ';
        others += !strchr(" \r0123456789+-.eE", text[k]);
    }
    return first > 0 && blanks > 10 && others == 0;
}

static bp_err fail_kind(const char *path, const char *what, const char *remedy)
{
    return BP_FAIL(BP_ERR_FORMAT, "import.other_kind",
                   "this is %s, which import does not read: at %s; %s", what, path, remedy);
}

/* A file without text: a compressed one that is cut short says so. */
static bp_err fail_unread(const char *path)
{
    bp_words_file file;
    bp_err err = bp_words_file_map(&file, path);

    bp_words_file_unmap(&file);
    return err != BP_OK ? err : fail_kind(path, "an empty file", FILES);
}

static bp_err fail_file(const char *path)
{
    char head[HEAD_BYTES];
    size_t bytes = bp_words_file_read_head(head, sizeof head, path);

    if (bytes == 0)
        return fail_unread(path);
    for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++)
        if (bytes >= KINDS[k].bytes && memcmp(head, KINDS[k].magic, KINDS[k].bytes) == 0)
            return fail_kind(path, KINDS[k].what, KINDS[k].remedy);
    if (bp_is_lfs_pointer(head, bytes))
        return bp_fail_lfs_pointer(path);
    if (bytes > TAR_SIGN + 5 && memcmp(head + TAR_SIGN, "ustar", 5) == 0)
        return fail_kind(path, "a tar archive", "unpack it, and give its folder");
    if (is_safetensors(head, bytes))
        return fail_kind(path, "only a safetensors file",
                         "give its folder, with config.json beside model.safetensors");
    if (is_headless_arpa(head, bytes))
        return fail_kind(path, "an ARPA file without the line \\data\\",
                         "put that line before its counts");
    if (is_headless_vectors(head, bytes))
        return fail_kind(path, "a text of word vectors without a first line",
                         "put a line before it with how many there are, and their width");
    return fail_kind(path, "a file of no kind that is known", FILES);
}

/* ---- folders ---- */

static bool has_end(const char *folder, const char *end)
{
    DIR *stream = opendir(folder);
    bool found = false;

    for (struct dirent *entry; stream && !found && (entry = readdir(stream));) {
        size_t bytes = strlen(entry->d_name);

        found = bytes > strlen(end) && strcmp(entry->d_name + bytes - strlen(end), end) == 0;
    }
    if (stream)
        (void)closedir(stream);
    return found;
}

/* A run of a model is named with what takes it, one of results with what reads them. */
static bp_err fail_run(const char *path)
{
    static const char *const key = "job";
    static const struct {
        const char *job, *remedy;
    } RESULTS[] = {{"score", "bagpipe-data compare reads it, and table its score/documents.h5"},
                   {"generate", "it holds texts and no model"},
                   {"uncertainty", "it holds results and no model"}};
    const char *remedy = "name it as it is in score.model or model.init, or to bagpipe-data "
                         "export, which makes a folder of Hugging Face's form of it";
    char *file = bp_path_join(path, "run.json"), *what;
    json_t *run = NULL;
    bp_err err = bp_json_load_members(&run, file, RUN_LIMIT, &key, 1);
    const char *job = err == BP_OK ? json_string_value(json_object_get(run, key)) : NULL;

    for (size_t k = 0; job && k < sizeof RESULTS / sizeof RESULTS[0]; k++)
        if (strcmp(job, RESULTS[k].job) == 0)
            remedy = RESULTS[k].remedy;
    what = bp_sprintf("a run folder of bagpipe%s%.40s", job ? ", of job " : "", job ? job : "");
    err = fail_kind(path, what, remedy);
    bp_free(what);
    json_decref(run);
    bp_free(file);
    return err;
}

/* What it is taken for, what was looked for, and which of it is missing. */
static bp_err fail_folder(const char *path)
{
    bool weights = has(path, "model.safetensors") || has(path, "model.safetensors.index.json");
    bool options = has_end(path, "options.json"), hdf5 = has_end(path, "weights.hdf5");

    return BP_FAIL(BP_ERR_INPUT, "import.no_model",
                   "this is a folder of no kind that is known: for Hugging Face's form it lacks "
                   "config.json%s, for bilm-tf's %s%s%s: at %s; give the folder that holds them, "
                   "or a file (ARPA, word2vec)",
                   weights ? "" : " and model.safetensors", options ? "" : "*options.json",
                   options || hdf5 ? "" : " and ", hdf5 ? "" : "*weights.hdf5", path);
}

static bp_err check_folder(const char *path)
{
    static const struct {
        const char *name, *what, *remedy;
    } SIGNS[] = {
        {"manifest.json", "a checkpoint of bagpipe",
         "name it as it is in score.model or model.init"},
        {"adapter_config.json", "an adapter of PEFT",
         "merge it into its model (merge_and_unload), save that, and give its folder"},
        {"bert_config.json", "a BERT of TensorFlow's form",
         "convert it with transformers, and give the folder that save_pretrained writes"},
        {"params.json", "a LLaMA or Mistral of its makers' form",
         "convert it with transformers, and give the folder that save_pretrained writes"},
        {"modules.json", "a folder of sentence-transformers without config.json",
         "give the folder of its Transformer, with config.json"},
    };

    if (has(path, "config.json"))
        return BP_OK;
    if (has(path, "run.json"))
        return fail_run(path);
    if (bp_checkpoint_newest_step(path) >= 0)
        return fail_kind(path, "a folder of checkpoints of bagpipe",
                         "name the run folder that holds it in score.model or model.init");
    for (size_t k = 0; k < sizeof SIGNS / sizeof SIGNS[0]; k++)
        if (has(path, SIGNS[k].name))
            return fail_kind(path, SIGNS[k].what, SIGNS[k].remedy);
    if (has_end(path, ".gguf"))
        return fail_kind(path, "a folder of GGUF files", "give one of its files");
    if (has_end(path, ".safetensors"))
        return fail_kind(path, "a folder of safetensors without config.json",
                         "put the model's config.json beside them");
    return fail_folder(path);
}

bp_err import_check_source(const char *path)
{
    if (!bp_path_exists(path))
        return BP_OK; /* said by the reader of folders */
    return bp_path_is_dir(path) ? check_folder(path) : fail_file(path);
}
