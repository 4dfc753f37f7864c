/* bagpipe-data inspect: what a file or a checkpoint holds. */
#include "base/files/fs.h"
#include "base/mem.h"
#include "file_tool.h"
#include "io/checkpoint/checkpoint.h"
#include "io/checkpoint/ensemble_file.h"
#include "io/corpus/corpus_file.h"
#include "mesh/mesh.h"
#include "run/status/run_history.h"
#include "text/tokenizer/tokenizer.h"
#include "tools.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SHOWN_LABELS 12

/* ---- corpora ---- */

static bp_err print_documents(bp_corpus_file *file)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    const int64_t *start, *bytes, *words, *words_split;
    int64_t shortest = INT64_MAX, longest = 0, all_bytes = 0, all_words = 0;
    bool has_ids = info->has_ids && info->documents > 0;
    char first[1025], last[1025];
    bp_err err = bp_corpus_file_doc_start(file, &start);

    if (err == BP_OK)
        err = bp_corpus_file_doc_counts(file, &bytes, &words, &words_split);
    if (err == BP_OK && has_ids)
        err = bp_corpus_file_doc_id(file, 0, first, sizeof first);
    if (err == BP_OK && has_ids)
        err = bp_corpus_file_doc_id(file, info->documents - 1, last, sizeof last);
    if (err != BP_OK)
        return err;
    for (int64_t d = 0; d < info->documents; d++) {
        int64_t tokens = start[d + 1] - start[d];
        shortest = tokens < shortest ? tokens : shortest;
        longest = tokens > longest ? tokens : longest;
        all_bytes += bytes != NULL ? bytes[d] : 0;
        all_words += words != NULL ? words[d] : 0;
    }
    printf("  documents   %s", grouped(info->documents));
    if (info->documents > 0)
        printf(", of %s to %s tokens, %s on average%s", grouped(shortest), grouped(longest),
               grouped(info->tokens / info->documents),
               info->eod_id >= 0 ? " (the end token included)" : "");
    printf("\n");
    if (bytes && info->tokens > 0)
        printf("  text        %s bytes, %.2f a token\n", grouped(all_bytes),
               (double)all_bytes / (double)info->tokens);
    if (words)
        printf("  words       %s\n", grouped(all_words));
    if (has_ids) {
        printf("  ids         ");
        put_clean(first, sizeof first, "");
        printf(" ... ");
        put_clean(last, sizeof last, "");
        printf("\n");
    }
    return BP_OK;
}

/* How often each value is there, among `count` codes; what carries none is not counted. */
static void print_counts(const bp_corpus_label *label, int64_t count)
{
    int64_t *counts = bp_alloc("tool.counts", label->value_count, sizeof *counts);

    for (int64_t d = 0; d < count; d++)
        if (label->codes[d] < label->value_count)
            counts[label->codes[d]]++;
    for (int64_t v = 0; v < label->value_count && v < SHOWN_LABELS; v++) {
        printf("%s ", v == 0 ? "" : ",");
        put_clean(label->values[v][0] != '\0' ? label->values[v] : "\"\"", SIZE_MAX, "");
        printf(" (%s)", grouped(counts[v]));
    }
    printf("%s\n", label->value_count > SHOWN_LABELS ? ", ..." : "");
    bp_free(counts);
}

static bp_err print_label(bp_corpus_file *file, int k)
{
    bp_corpus_label label;
    bp_err err = bp_corpus_file_label(file, k, &label);

    if (err != BP_OK)
        return err;
    printf("  label       ");
    put_clean(label.name, SIZE_MAX, "");
    printf(": %s values:", grouped(label.value_count));
    print_counts(&label, bp_corpus_file_info(file)->documents);
    return BP_OK;
}

static bp_err print_tags(bp_corpus_file *file)
{
    bp_corpus_label tags;
    bp_err err = bp_corpus_file_tags(file, &tags);

    if (err != BP_OK)
        return err;
    printf("  tags        %s of words:", grouped(tags.value_count));
    print_counts(&tags, bp_corpus_file_info(file)->tokens);
    return BP_OK;
}

static bp_err print_value(bp_corpus_file *file, int k)
{
    int64_t documents = bp_corpus_file_info(file)->documents;
    bp_corpus_value value;
    double low, high, sum = 0;
    bp_err err = bp_corpus_file_value(file, k, &value);

    if (err != BP_OK)
        return err;
    low = high = value.values[0];
    for (int64_t d = 0; d < documents; d++) {
        low = value.values[d] < low ? value.values[d] : low;
        high = value.values[d] > high ? value.values[d] : high;
        sum += value.values[d];
    }
    printf("  value       ");
    put_clean(value.name, SIZE_MAX, "");
    printf(": %g to %g, %g on average\n", low, high, sum / (double)documents);
    return BP_OK;
}

static bp_err print_segments(bp_corpus_file *file)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    const int64_t *segments, *starts;
    int64_t fewest = INT64_MAX, most = 0;
    bp_err err = bp_corpus_file_segments(file, &segments, &starts);

    for (int64_t d = 0; d < info->documents && err == BP_OK; d++) {
        int64_t count = segments[d + 1] - segments[d];
        fewest = count < fewest ? count : fewest;
        most = count > most ? count : most;
    }
    if (err == BP_OK)
        printf("  segments    %s (texts or sentences), %s to %s a document\n",
               grouped(info->segments), grouped(fewest), grouped(most));
    return err;
}

/* The text datasets of /source, a line each: NAME value, value... */
static bp_err print_sources(const char *path)
{
    bp_h5 *h5;
    char **names = NULL;
    int64_t count = 0;
    bp_err err = bp_h5_open(&h5, path); /* its bytes were checked when it was opened as a corpus */

    if (err == BP_OK)
        err = bp_h5_names(h5, "source", &names, &count);
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        char *dataset = bp_sprintf("source/%s", names[k]), *text;
        bp_h5_shape shape;
        int64_t shown;

        err = bp_h5_shape_of(h5, dataset, &shape);
        if (err == BP_OK && shape.is_text && shape.dims == 1) {
            shown = shape.count < 8 ? shape.count : 8;
            text = bp_alloc("tool.source", shown + 1, shape.width);
            err = bp_h5_read_text(h5, dataset, shape.width, 0, text, shown);
            if (err == BP_OK)
                printf("  %-11.11s", strcmp(names[k], "tokenizer_kind") == 0 ? "kind" : names[k]);
            for (int64_t i = 0; i < shown && err == BP_OK; i++) {
                printf(" ");
                put_clean(text + (size_t)i * shape.width, shape.width, "");
            }
            if (err == BP_OK)
                printf("%s\n", shape.count > shown ? " ..." : "");
            bp_free(text);
        }
        bp_free(dataset);
    }
    bp_names_free(&names, count);
    bp_h5_drop(&h5);
    return err;
}

static bp_err inspect_corpus(const char *path)
{
    bp_corpus_file *file;
    bp_err err = bp_corpus_file_open(&file, path);

    if (err != BP_OK)
        return err;
    const bp_corpus_info *info = bp_corpus_file_info(file);
    printf("%s: a corpus of %s bytes\n", shown_path(path), grouped(bp_file_size(path)));
    printf("  tokens      %s\n  vocabulary  %s", grouped(info->tokens), grouped(info->vocab_size));
    if (info->eod_id >= 0)
        printf("; id %" PRId64 " ends %s", info->eod_id,
               info->open_ends ? "documents, not all" : "a document");
    if (info->has_bos)
        printf("; id %" PRId64 " begins each", info->roles[BP_ROLE_BOS]);
    printf("\n");
    if (info->tokenizer_hash[0] != '\0')
        printf("  tokenizer   sha256 %s\n", info->tokenizer_hash);
    printf("  content     xxh3-128 %s\n", info->content_hash);
    err = print_documents(file);
    for (int k = 0; k < info->labels && err == BP_OK; k++)
        err = print_label(file, k);
    if (err == BP_OK && info->has_tags)
        err = print_tags(file);
    for (int k = 0; k < info->values && err == BP_OK && info->documents > 0; k++)
        err = print_value(file, k);
    if (err == BP_OK && info->has_segments)
        err = print_segments(file);
    if (err == BP_OK)
        err = print_sources(path);
    bp_corpus_file_close(&file);
    return err;
}

/* ---- other HDF5 files ---- */

static void print_dataset(bp_h5 *h5, const char *name)
{
    bp_h5_shape shape;

    if (bp_h5_shape_of(h5, name, &shape) != BP_OK) {
        printf("  %-24s something else\n", name);
        return;
    }
    printf("  %-24s %s", shown_path(name), grouped(shape.count / shape.columns));
    if (shape.dims == 2)
        printf(" x %s", grouped(shape.columns));
    if (shape.is_text)
        printf(" texts of up to %zu bytes\n", shape.width);
    else
        printf(" %s%zu\n",
               shape.is_real     ? "float"
               : shape.is_signed ? "int"
                                 : "uint",
               8 * shape.width);
}

static bp_err inspect_table(const char *path, const bp_user_block *block)
{
    bp_h5 *h5 = NULL;
    char **names = NULL;
    int64_t count = 0;
    bp_user_block verified;
    bp_err err = bp_user_block_verify(&verified, path); /* before HDF5 sees it */

    if (err == BP_OK)
        err = bp_h5_open(&h5, path);
    if (err == BP_OK)
        err = list_datasets(h5, &names, &count);
    if (err == BP_OK)
        printf("%s: %s, version %d, of %s bytes\n", shown_path(path), block->kind, block->version,
               grouped(block->bytes));
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        print_dataset(h5, names[k]);
    bp_names_free(&names, count);
    bp_h5_drop(&h5);
    return err;
}

/* ---- tokenizers and checkpoints ---- */

static bp_err inspect_tokenizer(const char *path)
{
    bp_tokenizer *tokenizer;
    bp_err err = bp_tokenizer_load(&tokenizer, path);

    if (err != BP_OK)
        return err;
    printf("%s: a tokenizer of kind %s\n  vocabulary  %s", shown_path(path),
           bp_tokenizer_kind(tokenizer), grouped(bp_tokenizer_size(tokenizer)));
    if (bp_tokenizer_eod(tokenizer) >= 0)
        printf("; id %" PRId64 " ends a document", bp_tokenizer_eod(tokenizer));
    if (bp_tokenizer_role(tokenizer, BP_ROLE_BOS) >= 0)
        printf("; id %" PRId64 " begins a text", bp_tokenizer_role(tokenizer, BP_ROLE_BOS));
    printf("\n  tokenizer   sha256 %s\n", bp_tokenizer_hash(tokenizer));
    bp_tokenizer_free(&tokenizer);
    return BP_OK;
}

static bp_err inspect_checkpoint(const char *path)
{
    bp_checkpoint *checkpoint;
    int64_t values[2] = {0, 0}; /* of the model, of the optimizer */
    char *state;
    bp_err err = bp_checkpoint_open_any(MPI_COMM_SELF, path, &checkpoint);

    if (err != BP_OK)
        return err;
    for (int64_t k = 0; k < bp_checkpoint_tensors(checkpoint); k++) {
        bp_slice slice = bp_checkpoint_tensor(checkpoint, k);
        int64_t volume = 1;
        for (int d = 0; d < slice.dims; d++)
            volume *= slice.shape[d];
        values[strchr(slice.name, '/') != NULL] += volume;
    }
    printf("%s: checkpoint %s\n", shown_path(path), shown_path(bp_checkpoint_folder(checkpoint)));
    printf("  tensors     %s: %s values of the model, %s of the optimizer\n",
           grouped(bp_checkpoint_tensors(checkpoint)), grouped(values[0]), grouped(values[1]));
    printf("  digest      %s\n", bp_checkpoint_digest(checkpoint));
    printf("  tokenizer   %s\n",
           bp_checkpoint_tokenizer(checkpoint) ? "kept in the checkpoint" : "none");
    state = bp_json_text(bp_checkpoint_state(checkpoint));
    printf("  state       %s", state);
    bp_free(state);
    bp_checkpoint_close(&checkpoint);
    return BP_OK;
}

/* ---- ensembles ---- */

static void print_real(int width, double value)
{
    if (isfinite(value))
        printf("  %*.4f", width, value);
    else
        printf("  %*s", width, "-");
}

/* 0: not known. */
static void print_step(int width, int64_t step)
{
    printf("  %*s", width, step > 0 ? grouped(step) : "-");
}

/* `width`: of the column of names. */
static void print_member(int width, const char *name, const bp_curve_figures *figures, double oob)
{
    printf("  %-*s", width, shown_path(name));
    print_step(10, figures->step);
    print_real(9, figures->loss);
    print_step(10, figures->best_step);
    print_real(15, figures->best_valid_loss);
    print_real(14, oob);
}

static void print_members_head(int width, const char *path, int64_t count)
{
    printf("%s: an ensemble of %" PRId64 " member%s\n  %-*s  %10s  %9s  %10s  %15s  %14s\n",
           shown_path(path), count, count == 1 ? "" : "s", width, "member", "last step", "loss",
           "best step", "best valid loss", "oob perplexity");
}

#define NAME_WIDTH 10 /* of a column of short names */

static int wider(int width, const char *name)
{
    int length = (int)strlen(name);

    return length > width ? length : width;
}

/* Only the step of what is not a run folder: a checkpoint by itself, or an imported model. */
static bp_err look_at_member(bp_curve_figures *figures, const char *path)
{
    char *folder = NULL;
    json_t *manifest = NULL;
    bp_history run;
    bp_err err = bp_history_read(&run, path);

    *figures = (bp_curve_figures){.loss = NAN, .best_valid_loss = NAN};
    if (err == BP_OK && run.curve_count > 0) {
        *figures = bp_curve_figures_of(bp_history_main(&run));
    } else {
        err = bp_checkpoint_read_metadata(path, &folder, &manifest);
        figures->step = (int64_t)json_integer_value(
            json_object_get(json_object_get(manifest, "state"), "step"));
    }
    json_decref(manifest);
    bp_free(folder);
    bp_history_clear(&run);
    return err;
}

#define LIST_BYTES ((int64_t)64 << 20) /* of an ensemble.json, most */

/* Is a JSON file an ensemble's? Whoever reads it as a tokenizer says what is wrong with another. */
static bool lists_members(const char *path)
{
    json_t *file = NULL;
    bool is = bp_json_load(&file, path, LIST_BYTES) == BP_OK && json_object_get(file, "members");

    json_decref(file);
    return is;
}

/* The path is that of ensemble.json or of its folder. All members are read before a line is
 * printed. */
static bp_err inspect_ensemble(const char *path)
{
    bp_ensemble_list list;
    bp_err err = bp_ensemble_list_load(&list, path);
    bp_curve_figures *figures =
        err == BP_OK ? bp_alloc("inspect.members", list.count, sizeof *figures) : NULL;
    int width = NAME_WIDTH;

    for (int64_t m = 0; m < list.count && err == BP_OK; m++) {
        width = wider(width, list.members[m].name);
        err = look_at_member(&figures[m], list.members[m].path);
    }
    if (err == BP_OK)
        print_members_head(width, path, list.count);
    for (int64_t m = 0; m < list.count && err == BP_OK; m++) {
        print_member(width, list.members[m].name, &figures[m], list.members[m].oob_perplexity);
        printf("  %s\n", shown_path(list.members[m].path));
    }
    bp_free(figures);
    bp_ensemble_list_clear(&list);
    return err;
}

/* What its members have done so far. */
static bp_err inspect_unfinished(const char *folder)
{
    bp_history run;
    bp_err err = bp_history_read(&run, folder);
    int64_t members = run.curve_count > 0 ? run.curve_count - 1 : 0; /* the mean is last */
    int width = NAME_WIDTH;

    for (int64_t m = 0; m < members && err == BP_OK; m++)
        width = wider(width, run.curves[m].name);
    if (err == BP_OK)
        print_members_head(width, folder, members);
    for (int64_t m = 0; m < members && err == BP_OK; m++) {
        bp_curve_figures figures = bp_curve_figures_of(&run.curves[m]);

        print_member(width, run.curves[m].name, &figures, NAN);
        printf("  %s\n", run.state);
    }
    bp_history_clear(&run);
    return err;
}

/* ---- run folders ---- */

/* What a job wrote into a folder of its run: the names of the files, and the tables. */
static bp_err inspect_results(const char *folder)
{
    char **names = NULL;
    int64_t count = 0;
    bp_err err = bp_dir_list(folder, &names, &count);

    if (err == BP_OK)
        printf("in %s:", shown_path(folder));
    for (int64_t k = 0; k < count && err == BP_OK; k++)
        printf(k == count - 1 ? " %s\n" : " %s", shown_path(names[k]));
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        const bp_path path = bp_path_in(folder, names[k]);
        bp_user_block block;
        bool is_table = bp_has_suffix(names[k], ".h5");

        if (is_table)
            err = bp_user_block_read(&block, path.text);
        if (is_table && err == BP_OK)
            err = inspect_table(path.text, &block);
    }
    bp_names_free(&names, count);
    return err;
}

/* A folder of results shows them; an ensemble's its members; another one its newest checkpoint. */
static bp_err inspect_folder(const char *folder)
{
    static const char *const RESULTS[] = {"score", "generate", "uncertainty", NULL};

    if (bp_ensemble_is(folder))
        return inspect_ensemble(folder);
    if (bp_ensemble_is_unfinished(folder))
        return inspect_unfinished(folder);
    for (int k = 0; RESULTS[k] && !bp_path_exists(bp_path_in(folder, "checkpoints").text); k++) {
        const bp_path results = bp_path_in(folder, RESULTS[k]);

        if (bp_path_is_dir(results.text))
            return inspect_results(results.text);
    }
    return inspect_checkpoint(folder);
}

static bp_err inspect(const char *path, const file_options *options)
{
    bp_user_block block;
    path_kind kind;
    bp_err err = path_kind_of(&kind, &block, path);

    (void)options;
    if (err != BP_OK)
        return err;
    switch (kind) {
    case PATH_CORPUS:
    case PATH_FOREIGN:
        return inspect_corpus(path);
    case PATH_TABLE:
        return inspect_table(path, &block);
    case PATH_JSON:
        return lists_members(path) ? inspect_ensemble(path) : inspect_tokenizer(path);
    case PATH_CHECKPOINT:
        return inspect_checkpoint(path);
    case PATH_FOLDER:
        break;
    }
    return inspect_folder(path);
}

static const bp_help_row STATUSES[] = {{"0", "done"},
                                       {"64", "wrong command line"},
                                       {"65", "a file is damaged"},
                                       {"66", "a file is missing"},
                                       {0}};

static bp_err run(int argc, char **argv)
{
    static const file_tool TOOL = {.tool = &bp_tool_inspect, .run = inspect};

    return file_tool_run(&TOOL, argc, argv);
}

const bp_tool bp_tool_inspect = {
    .name = "inspect",
    .help =
        {.name = "bagpipe-data inspect",
         .usage = "FILE...",
         .summary = "prints what files hold",
         .text =
             "A FILE is a corpus, a table of scores (documents.h5, tokens.h5), a tokenizer.json, "
             "an ensemble.json, a checkpoint, or a run folder. For a run folder it prints the "
             "newest checkpoint, the names of its results and their tables, or the members of an "
             "ensemble with the last and the best step and loss of each.",
         .examples = "  bagpipe-data inspect train.h5\n"
                     "  bagpipe-data inspect runs/small\n",
         .statuses = STATUSES},
    .run = run};
