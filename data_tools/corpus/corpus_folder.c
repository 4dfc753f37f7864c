/* A corpus for each of many files, in a folder: those that are there already are done. */
#include "corpus_arguments.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sort.h"
#include "file_tool.h"
#include "mesh/collective.h"
#include "mesh/mesh.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define OPTIONS_FILE  "corpus.json"
#define OPTIONS_BYTES ((int64_t)1 << 20)

bool corpus_is_folder(const corpus_arguments *arguments)
{
    size_t bytes = arguments->out ? strlen(arguments->out) : 0;

    return bytes > 0 && arguments->out[bytes - 1] == '/';
}

static char *corpus_path(const corpus_arguments *arguments, int file)
{
    return bp_sprintf("%s%s.h5", arguments->out, bp_path_base(arguments->files.list[file]));
}

/* No corpus is one of the other inputs: x.h5 of x. */
static bp_err check_outputs(const corpus_arguments *arguments)
{
    int count = arguments->files.count;
    bp_err err = BP_OK;

    for (int k = 0; k < count && err == BP_OK; k++) {
        char *path = corpus_path(arguments, k);

        for (int j = 0; j < count && err == BP_OK; j++)
            if (strcmp(bp_path_base(path), bp_path_base(arguments->files.list[j])) == 0)
                err = bp_output_is_not(path, arguments->files.list[j]);
        bp_free(path);
    }
    return err;
}

bp_err corpus_folder_check(const corpus_arguments *arguments)
{
    int count = arguments->files.count;
    const char **names = bp_alloc("tool.corpus", count, sizeof *names);
    bp_err err = BP_OK;

    for (int k = 0; k < count && err == BP_OK; k++) {
        names[k] = bp_path_base(arguments->files.list[k]);
        if (strcmp(arguments->files.list[k], "-") == 0 || corpus_format_is(arguments, "pairs"))
            err =
                BP_FAIL(BP_ERR_USAGE, "command.no_folder",
                        "%s makes no corpus of each file: at --out %s; name a file to write",
                        corpus_format_is(arguments, "pairs") ? "--format pairs" : "standard input",
                        arguments->out);
    }
    if (err == BP_OK)
        qsort(names, (size_t)count, sizeof *names, bp_by_text);
    for (int k = 1; k < count && err == BP_OK; k++)
        if (strcmp(names[k], names[k - 1]) == 0)
            err = BP_FAIL(BP_ERR_USAGE, "command.same_names",
                          "two files are called %s, and both would be %s%s.h5: at the command "
                          "line; rename one, or take two folders",
                          names[k], arguments->out, names[k]);
    bp_free(names);
    return err == BP_OK ? check_outputs(arguments) : err;
}

/* ---- the options that all corpora of the folder were made with ---- */

static void put_text(json_t *object, const char *name, const char *text)
{
    if (text)
        (void)json_object_set_new(object, name, bp_json_string(text));
}

static void put_texts(json_t *object, const char *name, const tool_texts *texts)
{
    json_t *list = json_array();

    for (int k = 0; k < texts->count; k++)
        (void)json_array_append_new(list, bp_json_string(texts->list[k]));
    (void)json_object_set_new(object, name, list);
}

/* What a file holds, and not where it is. */
static bp_err put_hash(json_t *object, const char *name, const char *path)
{
    char hash[BP_SHA256_HEX];
    bp_err err = path ? bp_sha256_of_file(path, hash, NULL) : BP_OK;

    if (err == BP_OK && path)
        put_text(object, name, hash);
    return err;
}

static bp_err options_object(json_t **out, const corpus_arguments *arguments)
{
    json_t *object = json_object();
    bp_err err;

    put_text(object, "version", BAGPIPE_VERSION);
    put_text(object, "format", arguments->format);
    put_text(object, "text-field", arguments->text_field);
    put_text(object, "fields", arguments->field_list);
    put_text(object, "sentences", arguments->sentences);
    put_text(object, "separator", arguments->separator);
    put_text(object, "skip-bad", arguments->skip_bad);
    put_texts(object, "label", &arguments->labels);
    put_texts(object, "value", &arguments->values);
    (void)json_object_set_new(object, "no-tags", json_boolean(arguments->no_tags));
    (void)json_object_set_new(object, "special", json_boolean(arguments->specials));
    (void)json_object_set_new(object, "bos", json_boolean(arguments->bos));
    (void)json_object_set_new(object, "vocab-size", json_integer(arguments->vocab_size));
    (void)json_object_set_new(object, "eod", json_integer(arguments->eod));
    (void)json_object_set_new(object, "token-bytes", json_integer(arguments->token_bytes));
    err = put_hash(object, "tokenizer", arguments->tokenizer);
    if (err == BP_OK)
        err = put_hash(object, "target-tokenizer", arguments->target_tokenizer);
    if (err == BP_OK)
        err = put_hash(object, "only", arguments->only);
    if (err == BP_OK)
        err = put_hash(object, "without", arguments->without);
    *out = object;
    return err;
}

/* The first one that differs. */
static const char *differs(const json_t *one, const json_t *other)
{
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)one, name,
                        value) if (!json_equal(value, json_object_get(other, name))) return name;
    json_object_foreach((json_t *)other, name, value) if (!json_object_get(one, name)) return name;
    return NULL;
}

/* Has the folder a corpus? Without one its options are those of a command that failed. */
static bp_err has_corpora(const char *folder, bool *has)
{
    char **names = NULL;
    int64_t count = 0;
    bp_err err = bp_dir_list(folder, &names, &count);

    *has = false;
    for (int64_t k = 0; k < count; k++)
        *has = *has || bp_has_suffix(names[k], ".h5");
    bp_names_free(&names, count);
    return err;
}

/* Without options nothing says that a corpus is what this command would make. */
static bp_err refuse_unknown(const corpus_arguments *arguments)
{
    bp_err err = BP_OK;

    for (int k = 0; k < arguments->files.count && err == BP_OK; k++) {
        char *path = corpus_path(arguments, k);

        if (bp_path_exists(path))
            err = BP_FAIL(BP_ERR_FORMAT, "corpus.no_options",
                          "the corpus is there already, and no " OPTIONS_FILE
                          " beside it says how it was made: at %s; remove it, or name another "
                          "folder",
                          path);
        bp_free(path);
    }
    return err;
}

/* *holds: the options at `path` are those, and of corpora that are there. */
static bp_err check_before(const corpus_arguments *arguments, const json_t *now, const char *path,
                           bool *holds)
{
    json_t *before = NULL;
    bool has = false;

    if (!bp_path_exists(path))
        return refuse_unknown(arguments);
    bp_err err = has_corpora(arguments->out, &has);
    if (err == BP_OK && has)
        err = bp_json_load(&before, path, OPTIONS_BYTES);
    const char *name = before ? differs(now, before) : NULL;
    *holds = before != NULL;
    if (err == BP_OK && name)
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.other_options",
                      "corpora of this folder were made with another '%.100s': at %s; give the "
                      "options of before, or another folder",
                      name, path);
    json_decref(before);
    return err;
}

static bp_err agree_with_before(const corpus_arguments *arguments)
{
    char *path = bp_sprintf("%s" OPTIONS_FILE, arguments->out);
    json_t *now = NULL;
    bool holds = false;
    bp_err err = bp_dir_make(arguments->out);

    if (err == BP_OK)
        err = options_object(&now, arguments);
    if (err == BP_OK)
        err = check_before(arguments, now, path, &holds);
    if (err == BP_OK && !holds)
        err = bp_json_save(path, now);
    json_decref(now);
    bp_free(path);
    return err;
}

/* ---- files ---- */

/* A corpus appears whole; one that is older than a file of its input is made again. */
static bool is_done(const corpus_arguments *arguments, int file, const char *corpus)
{
    struct stat made, read;
    bool done = stat(corpus, &made) == 0;
    char *path;

    for (int k = 0; done && (path = corpus_input_path(arguments, file, k)); k++) {
        if (stat(path, &read) != 0)
            done = k > 0;
        else if (made.st_mtim.tv_sec != read.st_mtim.tv_sec)
            done = made.st_mtim.tv_sec > read.st_mtim.tv_sec;
        else
            done = made.st_mtim.tv_nsec >= read.st_mtim.tv_nsec;
        bp_free(path);
    }
    return done;
}

static bp_err build_file(const corpus_arguments *arguments, int file, const char *path,
                         bp_err (*build)(const corpus_arguments *arguments))
{
    corpus_arguments one = *arguments;
    bp_err err;

    one.files = (tool_files){arguments->files.list + file, 1};
    one.out = path;
    one.is_one_of_many = true;
    one.skip_list = bp_sprintf("%s.skipped.jsonl", path);
    err = build(&one);
    if (err == BP_ERR_FORMAT &&
        strncmp(bp_err_id(bp_err_message()), "corpus.all_left_out", 19) == 0) {
        if (bp_comm_is_root(MPI_COMM_WORLD))
            bp_log("%s: no document is taken by the list", path);
        err = BP_OK;
    }
    bp_free(one.skip_list);
    return err;
}

bp_err corpus_build_folder(const corpus_arguments *arguments,
                           bp_err (*build)(const corpus_arguments *arguments))
{
    bool is_root = bp_comm_is_root(MPI_COMM_WORLD);
    int done = 0;
    bp_err err = bp_agree(MPI_COMM_WORLD, is_root ? agree_with_before(arguments) : BP_OK);

    for (int k = 0; k < arguments->files.count && err == BP_OK; k++) {
        char *path = corpus_path(arguments, k);
        int64_t skip = is_root && is_done(arguments, k, path);

        skip = bp_all_max_int(skip, MPI_COMM_WORLD);
        done += skip != 0;
        if (!skip)
            err = build_file(arguments, k, path, build);
        bp_free(path);
    }
    if (err == BP_OK && done > 0)
        bp_log("%d of %d files were done before", done, arguments->files.count);
    return err;
}
