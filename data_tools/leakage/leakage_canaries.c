/* leakage canaries: random texts of one pattern, some of which are put into the training text. */
#include "leakage.h"

#include "base/buffer.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "file_tool.h"
#include "mesh/mesh.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_TEXT, STREAM_PLACE };

typedef struct planted_copy {
    int64_t gap;    /* before this document of the training text */
    uint64_t order; /* of copies in a gap */
    int64_t canary;
} planted_copy;

typedef struct canaries {
    const leakage_arguments *arguments;
    document_texts texts;
    int64_t levels[LEAKAGE_LENGTHS_MOST];
    int level_count;
    double bits; /* log2 of how many texts the pattern has */
    planted_copy *copies;
    int64_t copy_count, next;
    int64_t documents; /* of the training text */
    bp_draft draft;
    bp_buffer text; /* of the document that is read */
    char *id;
} canaries;

static int64_t copies_of(const canaries *self, int64_t canary)
{
    return self->levels[canary % self->level_count];
}

/* Each # is a digit, each @ a letter; text k of the seed. */
static char *text_of(const canaries *self, int64_t k)
{
    char *text = bp_strdup(self->arguments->pattern);
    bp_rng_key key =
        bp_rng_key_of((uint64_t)self->arguments->seed, BP_RNG_CANARY, 0, k, STREAM_TEXT);
    uint64_t index = 0;

    for (char *c = text; *c; c++) {
        if (*c == '#')
            *c = (char)('0' + bp_rng_below(&key, index++, 10));
        else if (*c == '@')
            *c = (char)('a' + bp_rng_below(&key, index++, 26));
    }
    return text;
}

static bp_err check_pattern(canaries *self)
{
    const leakage_arguments *arguments = self->arguments;

    for (const char *c = arguments->pattern; *c; c++)
        self->bits += *c == '#' ? log2(10) : *c == '@' ? log2(26) : 0;
    if (strpbrk(arguments->pattern, "\r\n") ||
        exp2(self->bits) < 8 * (double)(arguments->count + arguments->references))
        return BP_FAIL(BP_ERR_USAGE, "command.bad_value",
                       "'%.100s' makes too few different texts: at --pattern; give one line with "
                       "more # (digits) or @ (letters)",
                       arguments->pattern);
    return BP_OK;
}

/* ---- the training text with its canaries ---- */

static int by_gap(const void *a, const void *b)
{
    const planted_copy *one = a, *other = b;

    if (one->gap != other->gap)
        return one->gap < other->gap ? -1 : 1;
    return (one->order > other->order) - (one->order < other->order);
}

static void place(canaries *self)
{
    int64_t count = 0;

    for (int64_t k = 0; k < self->arguments->count; k++)
        self->copy_count += copies_of(self, k);
    self->copies = bp_alloc("tool.leakage", self->copy_count, sizeof *self->copies);
    for (int64_t k = 0; k < self->arguments->count; k++)
        for (int64_t n = 0; n < copies_of(self, k); n++, count++) {
            bp_rng_key key = bp_rng_key_of((uint64_t)self->arguments->seed, BP_RNG_CANARY, 0, count,
                                           STREAM_PLACE);

            self->copies[count] =
                (planted_copy){bp_rng_below(&key, 0, self->documents + 1), bp_rng_u64(&key, 1), k};
        }
    qsort(self->copies, (size_t)self->copy_count, sizeof *self->copies, by_gap);
}

static bp_err write_line(bp_draft *draft, const char *id, const char *text)
{
    json_t *line = json_pack("{s:o, s:o}", "id", bp_json_string(id), "text", bp_json_string(text));

    return bp_json_write_line(draft, line);
}

static bp_err write_copies(canaries *self, int64_t gap)
{
    bp_err err = BP_OK;

    for (; self->next < self->copy_count && self->copies[self->next].gap <= gap && err == BP_OK;
         self->next++) {
        int64_t k = self->copies[self->next].canary;
        char *text = text_of(self, k),
             *id = bp_sprintf("planted-%" PRId64 "-%" PRId64, k, self->next);

        err = write_line(&self->draft, id, text);
        bp_free(id);
        bp_free(text);
    }
    return err;
}

static bp_err count_document(void *context, const document_piece *piece)
{
    canaries *self = context;

    self->documents += piece->first;
    return BP_OK;
}

static bp_err copy_document(void *context, const document_piece *piece)
{
    canaries *self = context;
    bp_err err = BP_OK;

    if (piece->first) {
        self->text.bytes = 0;
        bp_free(self->id);
        self->id = bp_strdup(piece->id);
        err = write_copies(self, piece->document);
    }
    bp_buffer_add(&self->text, piece->text, piece->bytes);
    return err == BP_OK && piece->last ? write_line(&self->draft, self->id, self->text.data) : err;
}

static bp_err write_training(canaries *self)
{
    int64_t *first = NULL;
    bp_err err = BP_OK;
    const bp_path path = bp_path_in(self->arguments->out,
                                    self->texts.path_count > 0 ? "train.jsonl" : "planted.jsonl");

    if (self->texts.path_count > 0)
        err = document_texts_read(&self->texts, 0, 1, &first, count_document, self);
    bp_free(first);
    first = NULL;
    if (err != BP_OK)
        return err;
    place(self);
    err = bp_draft_open(&self->draft, path.text);
    if (err == BP_OK && self->texts.path_count > 0)
        err = document_texts_read(&self->texts, 0, 1, &first, copy_document, self);
    bp_free(first);
    if (err == BP_OK)
        err = write_copies(self, self->documents);
    return bp_draft_end(&self->draft, err);
}

/* ---- the other files ---- */

static bp_err write_candidates(const canaries *self)
{
    const leakage_arguments *arguments = self->arguments;
    const bp_path path = bp_path_in(arguments->out, "candidates.jsonl");
    bp_draft draft;
    bp_err err = bp_draft_open(&draft, path.text);

    for (int64_t k = 0; k < arguments->count + arguments->references && err == BP_OK; k++) {
        char *text = text_of(self, k),
             *id = k < arguments->count ? bp_sprintf("canary-%" PRId64, k)
                                        : bp_sprintf("reference-%" PRId64, k - arguments->count);

        err = write_line(&draft, id, text);
        bp_free(text);
        bp_free(id);
    }
    return bp_draft_end(&draft, err);
}

static bp_err write_list(const canaries *self)
{
    const leakage_arguments *arguments = self->arguments;
    const bp_path path = bp_path_in(arguments->out, "canaries.json");
    json_t *list = json_array(),
           *all = json_pack("{s:s, s:i, s:o, s:f, s:I, s:I, s:o}", "format", "bagpipe canaries",
                            "format_version", 1, "pattern", bp_json_string(arguments->pattern),
                            "bits", self->bits, "seed", (json_int_t)arguments->seed, "references",
                            (json_int_t)arguments->references, "canaries", list);
    bp_err err;

    for (int64_t k = 0; k < arguments->count; k++) {
        char *text = text_of(self, k), *id = bp_sprintf("canary-%" PRId64, k);

        (void)json_array_append_new(list, json_pack("{s:s, s:o, s:I}", "id", id, "text",
                                                    bp_json_string(text), "copies",
                                                    (json_int_t)copies_of(self, k)));
        bp_free(id);
        bp_free(text);
    }
    err = bp_json_save(path.text, all);
    json_decref(all);
    return err;
}

static bp_err make(canaries *self)
{
    const leakage_arguments *arguments = self->arguments;
    bp_err err = bp_dir_make(arguments->out);

    if (err == BP_OK)
        err = write_training(self);
    if (err == BP_OK)
        err = write_candidates(self);
    if (err == BP_OK)
        err = write_list(self);
    if (err == BP_OK)
        bp_log("%s: %s canaries in %s copies among %s documents, %s references",
               shown_path(arguments->out), grouped(arguments->count), grouped(self->copy_count),
               grouped(self->documents), grouped(arguments->references));
    bp_free(self->copies);
    bp_free(self->id);
    bp_buffer_clear(&self->text);
    return err;
}

bp_err leakage_canaries(const leakage_arguments *arguments)
{
    canaries self = {.arguments = arguments,
                     .texts = {.paths = (const char *const *)arguments->files.list,
                               .path_count = arguments->files.count}};
    bp_err err =
        leakage_numbers(self.levels, &self.level_count, arguments->copies, 1000000, "copies");

    if (err == BP_OK)
        err = check_pattern(&self);
    if (err == BP_OK)
        err = document_texts_format(&self.texts, arguments->format, arguments->field, "text-field");
    for (int k = 0; k < self.texts.path_count && err == BP_OK; k++)
        if (strcmp(self.texts.paths[k], BP_TEXT_STDIN) == 0)
            err = BP_FAIL(BP_ERR_USAGE, "command.stdin_twice",
                          "texts are read twice, and standard input cannot be: at '-'; write it to "
                          "a file");
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD)) {
        document_texts_warn(&self.texts);
        err = make(&self);
    }
    return bp_agree(MPI_COMM_WORLD, err);
}
