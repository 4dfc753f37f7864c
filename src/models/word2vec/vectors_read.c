/* Files of the original tool, text and binary, as a checkpoint. Called by word2vec.c. */
#include "base/config/decimal.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "models/word2vec/word2vec_priv.h"
#include "models/words/words.h"
#include "models/words/words_file.h"
#include "text/unicode/characters.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HEAD_BYTES     64
#define WIDTH_MOST     ((int64_t)1 << 20)
#define WORDS_MOST     ((int64_t)1 << 31)
#define READABLE_BYTES 16
#define MESSAGE_BYTES  60 /* of a word, in messages */

typedef struct reader {
    const char *path, *text, *at, *end; /* the file, mapped */
    bool binary;
    int64_t rows, C, padded, V;
    const bp_tokenizer *tokenizer; /* NULL: made from the file's words */
    bp_strmap words;               /* numbers are ids; without a tokenizer, row numbers */
    bool *seen;                    /* [V] */
    float *values;                 /* [V][padded] */
    int64_t eod_id;
} reader;

/* "71291 200\n": nothing else may be in the line. */
static bool read_head(const char *text, size_t bytes, int64_t *rows, int64_t *C, size_t *used)
{
    char head[HEAD_BYTES + 1];
    int after = 0;
    const char *newline = memchr(text, '\n', bytes < HEAD_BYTES ? bytes : HEAD_BYTES);

    if (!newline || text[0] < '0' || text[0] > '9')
        return false;
    *used = (size_t)(newline - text) + 1;
    memcpy(head, text, *used - 1);
    head[*used - 1] = '\0';
    return sscanf(head, "%" SCNd64 " %" SCNd64 " %n", rows, C, &after) == 2 && after > 0 &&
           head[after] == '\0' && *rows > 0 && *C > 0;
}

bool w2v_vectors_is(const char *path)
{
    char text[HEAD_BYTES];
    int64_t rows, C;
    size_t used, bytes = bp_words_file_read_head(text, sizeof text, path);

    return bytes > 0 && read_head(text, bytes, &rows, &C, &used);
}

static bp_err wrong(const reader *self, int64_t row, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "vectors.wrong_row",
                   "%s: at %s, vector %" PRId64 " of %" PRId64 "; get the file again", what,
                   self->path, row + 1, self->rows);
}

static bp_err truncated(const reader *self, int64_t row)
{
    return BP_FAIL(BP_ERR_FORMAT, "vectors.truncated",
                   "the file ends within vector %" PRId64 " of %" PRId64
                   ": at %s; it was cut off, get it again",
                   row + 1, self->rows, self->path);
}

static int64_t line_of(const reader *self, const char *at)
{
    int64_t line = 1;

    for (const char *p = self->text; p < at && (p = memchr(p, '\n', (size_t)(at - p))); p++)
        line++;
    return line;
}

/* ---- values ---- */

/* A number of a text file, parsed from a word; false if it is not a number. */
static bool take_number(reader *self, float *value, const char **word, size_t *bytes)
{
    while (self->at < self->end && *self->at == ' ')
        self->at++;
    *word = self->at;
    while (self->at < self->end && !(*self->at && strchr(" \r\n", *self->at)))
        self->at++;
    *bytes = (size_t)(self->at - *word);
    return bp_decimal_float(value, *word, *bytes);
}

/* "nan", "-inf", 1e99: not finite. */
static bool is_not_finite(const char *word, size_t bytes)
{
    char copy[HEAD_BYTES], *end;

    if (bytes == 0 || bytes >= sizeof copy)
        return false;
    memcpy(copy, word, bytes);
    copy[bytes] = '\0';
    return !isfinite(strtof(copy, &end)) && *end == '\0';
}

static bp_err not_finite(const reader *self, int64_t row)
{
    return BP_FAIL(BP_ERR_FORMAT, "vectors.not_finite",
                   "vector %" PRId64 " has a value that is not finite: at %s; leave its "
                   "word out, or get the file again",
                   row + 1, self->path);
}

static bp_err no_number(const reader *self, int64_t row, const char *word, size_t bytes)
{
    if (bytes == 0 && self->at >= self->end)
        return truncated(self, row);
    if (bytes == 0)
        return wrong(self, row, "it has fewer numbers than the first line says");
    return BP_FAIL(BP_ERR_FORMAT, "vectors.no_number",
                   "'%.*s' is not a decimal number: at %s, vector %" PRId64 " of %" PRId64
                   ", line %" PRId64 "; write numbers as 0.25 or 2.5e-1",
                   (int)(bytes < MESSAGE_BYTES ? bytes : MESSAGE_BYTES), word, self->path, row + 1,
                   self->rows, line_of(self, word));
}

static void skip(reader *self, const char *which)
{
    while (self->at < self->end && *self->at && strchr(which, *self->at))
        self->at++;
}

/* The values of a row, up to the end of its line. */
static bp_err read_values(reader *self, float *values, int64_t row)
{
    int64_t bytes = self->C * (int64_t)sizeof *values;

    if (self->binary && self->end - self->at < bytes)
        return truncated(self, row);
    if (self->binary) {
        memcpy(values, self->at, (size_t)bytes);
        self->at += bytes;
    }
    for (int64_t k = 0; k < self->C && !self->binary; k++) {
        const char *word;
        size_t length;

        if (!take_number(self, &values[k], &word, &length))
            return is_not_finite(word, length) ? not_finite(self, row)
                                               : no_number(self, row, word, length);
    }
    for (int64_t k = 0; k < self->C; k++)
        if (!isfinite(values[k]))
            return not_finite(self, row);
    if (self->binary)
        return BP_OK;
    skip(self, " \r");
    if (self->at < self->end && *self->at != '\n')
        return wrong(self, row, "it has more numbers than the first line says");
    return BP_OK;
}

/* ---- rows ---- */

/* A word's id; without a tokenizer, words are numbered in the order of the file. */
static bp_err find_word(reader *self, const char *word, size_t bytes, int64_t row, int64_t *id)
{
    const bp_strmap_entry *entry = bp_strmap_find(&self->words, word, bytes);
    int shown = (int)(bytes < MESSAGE_BYTES ? bytes : MESSAGE_BYTES);
    bool known = entry != NULL;

    *id = known ? entry - self->words.entries : row;
    if (memchr(word, 0, bytes))
        return BP_FAIL(BP_ERR_FORMAT, "vectors.not_utf8",
                       "a word has a zero byte: at %s, vector %" PRId64 "; convert the file",
                       self->path, row + 1);
    if (!self->tokenizer && !known)
        return bp_strmap_add(&self->words, word, bytes, 0, id);
    if (!known || *id >= self->V) /* <s> of the list of words is not a token */
        return BP_FAIL(BP_ERR_FORMAT, "vectors.unknown_word",
                       "the word '%.*s' is not in the tokenizer: at %s, vector %" PRId64
                       "; give the tokenizer that it was trained with, or none",
                       shown, word, self->path, row + 1);
    if (self->seen[*id])
        return BP_FAIL(BP_ERR_FORMAT, "vectors.twice",
                       "the word '%.*s' is there twice: at %s, vector %" PRId64
                       "; leave one of them out",
                       shown, word, self->path, row + 1);
    return BP_OK;
}

static bp_err read_row(reader *self, int64_t row)
{
    const char *word;
    size_t bytes = 0;
    int64_t id = 0;
    bp_err err;

    skip(self, "\r\n");
    word = self->at;
    while (word + bytes < self->end && word[bytes] != ' ' && word[bytes] != '\n')
        bytes++;
    if (word + bytes >= self->end)
        return truncated(self, row);
    if (bytes == 0 || word[bytes] != ' ')
        return wrong(self, row, "a word and a space do not begin it");
    self->at += bytes + 1;
    err = find_word(self, word, bytes, row, &id);
    if (err != BP_OK)
        return err;
    self->seen[id] = true;
    return read_values(self, self->values + id * self->padded, row);
}

/* Is it readable text? float32 values have control bytes, and bytes that are not UTF-8. */
static bool is_readable(const char *text, size_t bytes)
{
    size_t printable = 0;
    bool control = false;

    for (size_t k = 0; k < bytes; k++) {
        unsigned char c = (unsigned char)text[k];

        printable += c >= ' ' && c < 127;
        control = control || (c < ' ' && !strchr("\t\r\n", c)) || c == 127 || c == 0;
    }
    if (!control && bp_text_is_utf8(text, bytes))
        return true;
    return bytes >= READABLE_BYTES && printable > bytes - bytes / 8;
}

/* The file is text if its first row parses as text, or if the bytes after the row's word are
 * readable: invalid numbers in text are then reported as text. */
static bool is_text(const reader *self)
{
    reader copy = *self;
    float value;
    const char *space = memchr(copy.at, ' ', (size_t)(copy.end - copy.at)), *word;
    size_t bytes, left;
    int64_t k = 0;

    if (!space)
        return true;
    copy.at = space + 1;
    while (k < copy.C && take_number(&copy, &value, &word, &bytes))
        k++;
    left = (size_t)(self->end - (space + 1));
    bytes = (size_t)copy.C * sizeof value;
    if (bytes < left) /* not within a character */
        while (bytes < left && ((unsigned char)space[1 + bytes] & 0xC0) == 0x80)
            bytes++;
    return k == copy.C || is_readable(space + 1, bytes < left ? bytes : left);
}

static bp_err begin(reader *self)
{
    size_t used = 0;
    bp_err err = BP_OK;

    if (!read_head(self->at, (size_t)(self->end - self->at), &self->rows, &self->C, &used) ||
        self->C > WIDTH_MOST || self->rows > WORDS_MOST)
        return BP_FAIL(BP_ERR_FORMAT, "vectors.bad_head",
                       "the first line is not a number of vectors and their width: at %s",
                       self->path);
    self->at += used;
    if (self->rows * self->C > self->end - self->at) /* at least two bytes per number */
        return truncated(self, self->rows - 1);
    self->binary = !is_text(self);
    self->padded = (self->C + BP_ROW_LANES - 1) / BP_ROW_LANES * BP_ROW_LANES;
    self->V = self->tokenizer ? bp_tokenizer_size(self->tokenizer) : self->rows + 2;
    self->eod_id = self->tokenizer ? bp_tokenizer_eod(self->tokenizer) : -1;
    if (self->tokenizer)
        err = bp_words_of_ids(&self->words, self->tokenizer, self->V, self->eod_id);
    self->seen = bp_try_alloc("vectors.read", self->V, sizeof *self->seen);
    self->values = bp_try_alloc("vectors.read", self->V * self->padded, sizeof *self->values);
    if (err == BP_OK && (!self->seen || !self->values))
        err = bp_fail_memory("the vectors", self->V * self->padded, sizeof *self->values);
    return err;
}

/* ---- a tokenizer of the file's words ---- */

/* Ids are the rows, without </s>, which becomes the last one; adds <unk> if it is missing. */
static void number_words(reader *self, json_t *vocab)
{
    int64_t ids = 0, end = -1;
    float *vector = bp_alloc("vectors.read", self->padded, sizeof *vector);
    size_t bytes = (size_t)self->padded * sizeof *vector;

    for (int64_t row = 0; row < self->rows; row++) {
        const char *word = bp_strmap_key(&self->words, row);

        if (strcmp(word, BP_WORD_END) == 0) {
            end = row;
            memcpy(vector, self->values + row * self->padded, bytes);
            continue;
        }
        memmove(self->values + ids * self->padded, self->values + row * self->padded, bytes);
        (void)json_object_set_new(vocab, word, json_integer((json_int_t)ids++));
    }
    self->V = ids;
    if (!json_object_get(vocab, BP_WORD_UNKNOWN)) {
        memset(self->values + self->V * self->padded, 0, bytes);
        (void)json_object_set_new(vocab, BP_WORD_UNKNOWN, json_integer((json_int_t)self->V++));
    }
    self->eod_id = self->V++;
    (void)json_object_set_new(vocab, BP_EOD_TOKEN, json_integer((json_int_t)self->eod_id));
    if (end < 0)
        memset(vector, 0, bytes);
    memcpy(self->values + self->eod_id * self->padded, vector, bytes);
    bp_free(vector);
}

static bp_err make_tokenizer(reader *self, bp_tokenizer **made)
{
    json_t *vocab = json_object();
    bp_err err;

    if (bp_strmap_find(&self->words, BP_EOD_TOKEN, strlen(BP_EOD_TOKEN))) {
        json_decref(vocab);
        return BP_FAIL(BP_ERR_FORMAT, "vectors.reserved_word",
                       "'%s' is a word of the file, and stands here for </s>: at %s; rename it, or "
                       "give --tokenizer",
                       BP_EOD_TOKEN, self->path);
    }
    number_words(self, vocab);
    if ((int64_t)json_object_size(vocab) != self->V) {
        json_decref(vocab);
        return BP_FAIL(BP_ERR_FORMAT, "vectors.not_utf8",
                       "a word is not UTF-8: at %s; convert the file, or give --tokenizer",
                       self->path);
    }
    err = bp_words_file_tokenizer(made, vocab, self->path);
    json_decref(vocab);
    return err;
}

/* ---- the model ---- */

static void describe(reader *self, const bp_model_family *family, bp_model_import *out)
{
    int64_t blocks = self->padded / BP_ROW_LANES;

    out->shape = (bp_model_shape){.family = family, .width = self->C, .vocab_size = self->V};
    family->fill_defaults(&out->shape);
    out->eod_id = self->eod_id;
    out->state = json_object();
    out->slices[0] = (bp_slice){.name = BP_WORD2VEC_INPUT,
                                .dims = 3,
                                .shape = {self->V, blocks, BP_ROW_LANES},
                                .extent = {self->V, blocks, BP_ROW_LANES},
                                .data = self->values};
    out->slices[1] = (bp_slice){.name = BP_WORD2VEC_COUNTS,
                                .dims = 2,
                                .shape = {self->V, 2},
                                .extent = {self->V, 2},
                                .data = bp_alloc("vectors.counts", 2 * self->V, sizeof(float))};
    out->slice_count = 2;
    self->values = NULL;
}

static bp_err read_mapped(reader *self, const bp_model_family *family, bp_model_import *out)
{
    bp_err err = begin(self);

    for (int64_t row = 0; row < self->rows && err == BP_OK; row++)
        err = read_row(self, row);
    skip(self, " \r\n");
    if (err == BP_OK && self->at < self->end)
        err = BP_FAIL(BP_ERR_FORMAT, "vectors.wrong_row",
                      "data follow the last of %" PRId64 " vectors: at %s; get the "
                      "file again",
                      self->rows, self->path);
    if (err == BP_OK && !self->tokenizer)
        err = make_tokenizer(self, &out->tokenizer);
    if (err == BP_OK)
        describe(self, family, out);
    return err;
}

bp_err w2v_vectors_read(const bp_model_family *family, bp_model_import *out, const char *path,
                        const bp_tokenizer *tokenizer)
{
    reader self = {.path = path, .tokenizer = tokenizer};
    bp_words_file file;
    bp_err err = bp_words_file_map(&file, path);

    self.text = self.at = file.text;
    self.end = file.text + file.bytes;
    if (err == BP_OK)
        err = read_mapped(&self, family, out);
    bp_words_file_unmap(&file);
    bp_strmap_clear(&self.words);
    bp_free(self.seen);
    bp_free(self.values);
    return err;
}
