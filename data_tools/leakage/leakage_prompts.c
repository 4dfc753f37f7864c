/* leakage prompts: windows of the training corpora, by how often the corpora have them.
 *
 * A window is a prompt of the longest length and its continuation. Those whose hash is 0 modulo a
 * number are looked at: so all copies of a text are, or none, and their count is exact. */
#include "leakage.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "file_tool.h"
#include "io/corpus/corpus_file.h"
#include "mesh/mesh.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOOKED_AT ((int64_t)1 << 19) /* windows, about */

typedef struct window {
    uint64_t key, check; /* two hashes of its tokens */
    int64_t document, at, copies;
    int32_t file, group;
    uint64_t order;
} window;

typedef struct cutter {
    const leakage_arguments *arguments;
    int64_t lengths[LEAKAGE_LENGTHS_MOST];
    int length_count;
    int64_t width; /* tokens of a window */
    bool from_start;
    bp_corpus_file **files; /* [file_count] */
    int file_count;
    int64_t windows, step, short_documents, documents; /* in all */
    window *list;                                      /* [count] */
    int64_t count, capacity;
    int32_t *tokens;
    int64_t token_capacity;
    int64_t taken[LEAKAGE_COPIES];
} cutter;

static const uint64_t FACTORS[2] = {UINT64_C(0x9e3779b97f4a7c15), UINT64_C(0xc2b2ae3d27d4eb4f)};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* ---- reading ---- */

/* Tokens of document d without those that begin and end it: *tokens[*count], *first in it. */
static bp_err read_document(cutter *self, bp_corpus_file *file, int64_t d, int64_t *first,
                            int64_t *count)
{
    const bp_corpus_info *info = bp_corpus_file_info(file);
    const int64_t *start;
    bp_err err = bp_corpus_file_doc_start(file, &start);

    if (err != BP_OK)
        return err;
    *count = start[d + 1] - start[d];
    *first = info->has_bos && *count > 0;
    self->tokens = bp_grow("tool.leakage", self->tokens, &self->token_capacity, *count + 1,
                           sizeof *self->tokens);
    err = bp_corpus_file_read(file, start[d], *count, self->tokens);
    if (err == BP_OK && *count > *first && info->eod_id >= 0 &&
        self->tokens[*count - 1] == info->eod_id)
        --*count;
    *count -= *first;
    return err;
}

static void add_window(cutter *self, int file, int64_t document, int64_t at, const uint64_t sum[2])
{
    self->list =
        bp_grow("tool.leakage", self->list, &self->capacity, self->count + 1, sizeof *self->list);
    self->list[self->count++] =
        (window){.key = mix(sum[0]), .check = sum[1], .document = document, .at = at, .file = file};
}

/* Windows of tokens[count]: each hash is a polynomial of the tokens, as Karp and Rabin have it. */
static void look_through(cutter *self, int file, int64_t document, const int32_t *tokens,
                         int64_t count)
{
    uint64_t sum[2] = {0, 0}, highest[2] = {1, 1};

    for (int64_t k = 1; k < self->width; k++)
        for (int h = 0; h < 2; h++)
            highest[h] *= FACTORS[h];
    for (int64_t k = 0; k < count; k++) {
        for (int h = 0; h < 2; h++) {
            if (k >= self->width)
                sum[h] -= highest[h] * mix((uint64_t)tokens[k - self->width] + 1);
            sum[h] = sum[h] * FACTORS[h] + mix((uint64_t)tokens[k] + 1);
        }
        if (k + 1 >= self->width && mix(sum[0]) % (uint64_t)self->step == 0)
            add_window(self, file, document, k + 1 - self->width, sum);
        if (k + 1 >= self->width && self->from_start)
            break;
    }
}

static bp_err open_files(cutter *self)
{
    const tool_files *files = &self->arguments->files;
    bp_err err = BP_OK;

    self->files = bp_alloc("tool.leakage", files->count, sizeof(bp_corpus_file *));
    for (; self->file_count < files->count && err == BP_OK; self->file_count++) {
        err = bp_corpus_file_open(&self->files[self->file_count], files->list[self->file_count]);
        if (err == BP_OK &&
            strcmp(bp_corpus_file_info(self->files[0])->tokenizer_hash,
                   bp_corpus_file_info(self->files[self->file_count])->tokenizer_hash) != 0)
            err =
                BP_FAIL(BP_ERR_FORMAT, "leakage.other_tokenizer",
                        "the corpora are of several tokenizers: at %s; name those of one training",
                        shown_path(files->list[self->file_count]));
        if (err != BP_OK)
            break;
    }
    return err;
}

static bp_err count_windows(cutter *self)
{
    bp_err err = BP_OK;

    for (int f = 0; f < self->file_count && err == BP_OK; f++) {
        const int64_t *start, documents = bp_corpus_file_info(self->files[f])->documents;

        err = bp_corpus_file_doc_start(self->files[f], &start);
        for (int64_t d = 0; d < documents && err == BP_OK; d++) {
            int64_t whole = start[d + 1] - start[d] - self->width; /* the end's token among them */

            self->documents++;
            self->short_documents += whole < 1;
            self->windows += whole < 1 ? 0 : self->from_start ? 1 : whole;
        }
    }
    self->step = self->windows / LOOKED_AT + 1;
    if (err == BP_OK && self->windows == 0)
        err = BP_FAIL(BP_ERR_FORMAT, "leakage.short_documents",
                      "no document has the %" PRId64 " tokens of the longest prompt and its "
                      "continuation: at %s; take shorter ones by --lengths and --continuation",
                      self->width, shown_path(self->arguments->files.list[0]));
    return err;
}

static bp_err read_all(cutter *self)
{
    bp_err err = BP_OK;

    for (int f = 0; f < self->file_count && err == BP_OK; f++) {
        int64_t documents = bp_corpus_file_info(self->files[f])->documents;

        for (int64_t d = 0; d < documents && err == BP_OK; d++) {
            int64_t first, count;

            err = read_document(self, self->files[f], d, &first, &count);
            if (err == BP_OK)
                look_through(self, f, d, self->tokens + first, count);
        }
    }
    return err;
}

/* ---- which are taken ---- */

static int by_content(const void *a, const void *b)
{
    const window *one = a, *other = b;

    if (one->key != other->key)
        return one->key < other->key ? -1 : 1;
    if (one->check != other->check)
        return one->check < other->check ? -1 : 1;
    if (one->file != other->file)
        return one->file < other->file ? -1 : 1;
    if (one->document != other->document)
        return one->document < other->document ? -1 : 1;
    return (one->at > other->at) - (one->at < other->at);
}

static int by_order(const void *a, const void *b)
{
    const window *one = a, *other = b;

    if (one->group != other->group)
        return one->group < other->group ? -1 : 1;
    if (one->order != other->order)
        return one->order < other->order ? -1 : 1;
    return by_content(a, b);
}

/* One window of each content stays, with its copies. */
static void count_copies(cutter *self)
{
    int64_t distinct = 0;

    if (self->count > 0)
        qsort(self->list, (size_t)self->count, sizeof *self->list, by_content);
    for (int64_t k = 0, end; k < self->count; k = end) {
        for (end = k; end < self->count && self->list[end].key == self->list[k].key &&
                      self->list[end].check == self->list[k].check;)
            end++;
        window one = self->list[k];

        one.copies = end - k;
        one.group = leakage_copies_group(one.copies);
        one.order = mix(one.key ^ mix((uint64_t)self->arguments->seed + 1));
        self->list[distinct++] = one;
    }
    self->count = distinct;
}

/* Does it share tokens with one that was taken? */
static bool overlaps(const cutter *self, int64_t taken, const window *one)
{
    for (int64_t k = 0; k < taken; k++) {
        const window *other = &self->list[k];

        if (other->file == one->file && other->document == one->document &&
            llabs(other->at - one->at) < self->width)
            return true;
    }
    return false;
}

/* So many of each group, in a random order, none over another. */
static void choose(cutter *self)
{
    int64_t taken = 0;

    if (self->count > 0)
        qsort(self->list, (size_t)self->count, sizeof *self->list, by_order);
    for (int64_t k = 0; k < self->count; k++) {
        const window one = self->list[k];

        if (self->taken[one.group] < self->arguments->count && !overlaps(self, taken, &one)) {
            self->list[taken++] = one;
            self->taken[one.group]++;
        }
    }
    self->count = taken;
}

/* ---- files ---- */

static json_t *tokens_json(const int32_t *tokens, int64_t count)
{
    json_t *list = json_array();

    for (int64_t k = 0; k < count; k++)
        (void)json_array_append_new(list, json_integer(tokens[k]));
    return list;
}

/* Prompts of all lengths that end where the continuation begins. */
static bp_err write_window(cutter *self, int64_t k, bp_draft *draft)
{
    const window *one = &self->list[k];
    int64_t first, count, longest = self->lengths[self->length_count - 1];
    char id[1025];
    bp_err err = read_document(self, self->files[one->file], one->document, &first, &count);

    if (err == BP_OK)
        err = bp_corpus_file_doc_id(self->files[one->file], one->document, id, sizeof id);
    for (int n = 0; n < self->length_count && err == BP_OK; n++) {
        const int32_t *at = self->tokens + first + one->at + longest;
        int64_t length = self->lengths[n];
        json_t *line = json_pack(
            "{s:o, s:o, s:I, s:I, s:I, s:o, s:I, s:I}", "tokens", tokens_json(at - length, length),
            "continuation", tokens_json(at, self->arguments->continuation), "source", (json_int_t)k,
            "length", (json_int_t)length, "copies", (json_int_t)one->copies, "document",
            bp_json_string(id), "at", (json_int_t)(one->at + longest), "document_tokens",
            (json_int_t)count);
        err = bp_json_write_line(draft, line);
    }
    return err;
}

static bp_err write_prompts(cutter *self)
{
    const bp_path path = bp_path_in(self->arguments->out, "prompts.jsonl");
    bp_draft draft;
    bp_err err = bp_draft_open(&draft, path.text);

    for (int64_t k = 0; k < self->count && err == BP_OK; k++)
        err = write_window(self, k, &draft);
    return bp_draft_end(&draft, err);
}

static bp_err cut(cutter *self)
{
    bp_err err = open_files(self);

    if (err == BP_OK)
        err = count_windows(self);
    if (err == BP_OK)
        err = read_all(self);
    if (err == BP_OK && self->count == 0) /* documents end with their own token */
        err = BP_FAIL(BP_ERR_FORMAT, "leakage.short_documents",
                      "no document has the %" PRId64 " tokens of the longest prompt and its "
                      "continuation: at %s; take shorter ones by --lengths and --continuation",
                      self->width, shown_path(self->arguments->files.list[0]));
    if (err == BP_OK) {
        count_copies(self);
        choose(self);
        err = bp_dir_make(self->arguments->out);
    }
    if (err == BP_OK)
        err = write_prompts(self);
    if (err == BP_OK)
        bp_log("%s: %s prompts of %s places; %s of %s documents are shorter than %s tokens",
               shown_path(self->arguments->out), grouped(self->count * self->length_count),
               grouped(self->count), grouped(self->short_documents), grouped(self->documents),
               grouped(self->width));
    for (int k = 0; k < self->file_count; k++)
        bp_corpus_file_close(&self->files[k]);
    bp_free(self->files);
    bp_free(self->list);
    bp_free(self->tokens);
    return err;
}

bp_err leakage_prompts(const leakage_arguments *arguments)
{
    cutter self = {.arguments = arguments, .from_start = strcmp(arguments->position, "start") == 0};
    bp_err err =
        leakage_numbers(self.lengths, &self.length_count, arguments->lengths, 1000000, "lengths");

    if (err == BP_OK && !self.from_start && strcmp(arguments->position, "any") != 0)
        err = BP_FAIL(BP_ERR_USAGE, "command.bad_value",
                      "'%.40s' is no position: at --position; give any or start",
                      arguments->position);
    if (err == BP_OK)
        self.width = self.lengths[self.length_count - 1] + arguments->continuation;
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        err = cut(&self);
    return bp_agree(MPI_COMM_WORLD, err);
}
