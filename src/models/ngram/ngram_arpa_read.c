/* An ARPA file as n-grams of all orders. It is not trusted: each line is checked, and reported by
 * its number. Called by ngram.c. */
#include "models/ngram/ngram_arpa_levels_priv.h"
#include "models/ngram/ngram_arpa_priv.h"

#include "base/buffer.h"
#include "base/config/decimal.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "models/words/words_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define BLANKS     "\t\r "
#define HEAD_BYTES ((size_t)64 << 10) /* \\data\\ is within them */
#define LEFT_MOST  99                 /* log10 of a back-off weight */

typedef struct arpa_reader {
    const char *path, *at, *end; /* the rest of the text */
    int64_t line;
    const bp_tokenizer *tokenizer; /* NULL: made from its words */
    ngram_spec *spec;
    bp_strmap words; /* numbers are ids with a tokenizer, else positions of unigrams */
    int64_t *ids;    /* [words.count] without a tokenizer: of word number k */
    ngram_arpa_order of[NGRAM_ORDERS];
    int64_t dropped; /* n-grams with <s> inside */
} arpa_reader;

/* ---- lines ---- */

static bp_err fail(const arpa_reader *self, const char *what)
{
    return BP_FAIL(BP_ERR_FORMAT, "arpa.wrong_line",
                   "%s: at %s, line %" PRId64 "; make the file anew", what, self->path, self->line);
}

/* The next line without the blanks at its end, or the next one that is not empty; false at the end.
 */
static bool next_line(arpa_reader *self, const char **text, size_t *bytes, bool filled)
{
    do {
        const char *end;

        if (self->at == self->end)
            return false;
        end = memchr(self->at, '\n', (size_t)(self->end - self->at));
        end = end ? end : self->end;
        *text = self->at;
        *bytes = (size_t)(end - self->at);
        while (*bytes > 0 && strchr(BLANKS, (*text)[*bytes - 1]) && (*text)[*bytes - 1])
            (*bytes)--;
        self->at = end == self->end ? end : end + 1;
        self->line++;
    } while (filled && *bytes == 0);
    return true;
}

static bool is(const char *text, size_t bytes, const char *word)
{
    return bytes == strlen(word) && memcmp(text, word, bytes) == 0;
}

/* Removes the next word of a line; 0 bytes at its end. */
static size_t take_word(const char **text, size_t *bytes, const char **word)
{
    size_t length = 0;

    while (*bytes > 0 && strchr(BLANKS, **text) && **text)
        (*text)++, (*bytes)--;
    *word = *text;
    while (length < *bytes && !((*text)[length] && strchr(BLANKS, (*text)[length])))
        length++;
    *text += length;
    *bytes -= length;
    return length;
}

static bool take_number(const char **text, size_t *bytes, float *value)
{
    const char *word;
    size_t length = take_word(text, bytes, &word);

    return bp_decimal_float(value, word, length);
}

/* ---- the header ---- */

static bp_err read_count(arpa_reader *self, const char *text, size_t bytes)
{
    char copy[64];
    int order, used = 0;
    int64_t count;

    if (bytes >= sizeof copy)
        return fail(self, "a line of the head is too long");
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    if (sscanf(copy, "ngram %d=%" SCNd64 "%n", &order, &count, &used) != 2 || used != (int)bytes ||
        count < 0)
        return fail(self, "the head has a line that is not 'ngram ORDER=COUNT'");
    if (order != self->spec->order + 1)
        return fail(self, "the orders of the head do not follow each other from 1 on");
    if (order > NGRAM_ORDER_MOST)
        return fail(self, "n-grams of more than 7 words");
    if (count >= UINT32_MAX)
        return fail(self, "the head declares more n-grams of an order than a model holds");
    self->spec->order = order;
    self->of[order].declared = count;
    return BP_OK;
}

bool ngram_arpa_is(const char *path)
{
    char *head = bp_alloc("ngram.arpa", HEAD_BYTES, 1);
    arpa_reader self = {.at = head};
    const char *text;
    size_t bytes;
    bool found = false;

    self.end = head + bp_words_file_read_head(head, HEAD_BYTES, path);
    while (!found && next_line(&self, &text, &bytes, true))
        found = is(text, bytes, "\\data\\");
    bp_free(head);
    return found;
}

/* Comments come before \data\. *text is the line after the header. */
static bp_err read_head(arpa_reader *self, const char **text, size_t *bytes)
{
    bp_err err = BP_OK;

    do {
        if (!next_line(self, text, bytes, true))
            return fail(self, "there is no line \\data\\");
    } while (!is(*text, *bytes, "\\data\\"));
    while (err == BP_OK) {
        if (!next_line(self, text, bytes, true))
            return fail(self, "the file ends within its head");
        if ((*text)[0] == '\\')
            break;
        err = read_count(self, *text, *bytes);
    }
    if (err == BP_OK && self->spec->order == 0)
        err = fail(self, "the head declares no order");
    return err;
}

/* ---- n-grams ---- */

/* Toolkits write <unk> in any case. */
static bool is_unknown(const char *word, size_t bytes)
{
    return bytes == strlen(BP_WORD_UNKNOWN) && strncasecmp(word, BP_WORD_UNKNOWN, bytes) == 0;
}

/* A word's id; without a tokenizer its number, which becomes an id later. */
static bp_err find_word(arpa_reader *self, int order, const char *word, size_t bytes, int64_t *id)
{
    const bp_strmap_entry *entry = bp_strmap_find(&self->words, word, bytes);
    char text[200];

    if (!entry && is_unknown(word, bytes)) {
        word = BP_WORD_UNKNOWN;
        entry = bp_strmap_find(&self->words, word, bytes);
    }
    if (memchr(word, 0, bytes))
        return fail(self, "a word has a zero byte");
    if (!entry && order == 1 && !self->tokenizer)
        return bp_strmap_add(&self->words, word, bytes, 0, id);
    if (entry) {
        *id = entry - self->words.entries;
        return BP_OK;
    }
    (void)snprintf(text, sizeof text, "the word '%.*s' is %s", (int)(bytes < 60 ? bytes : 60), word,
                   self->tokenizer ? "none of the tokenizer's" : "no unigram");
    return fail(self, text);
}

static bp_err read_words(arpa_reader *self, int order, const char **text, size_t *bytes,
                         ngram_key *key, bool *starts_inside)
{
    *key = 0;
    *starts_inside = false;
    for (int k = 0; k < order; k++) {
        const char *word;
        size_t length = take_word(text, bytes, &word);
        int64_t id = 0;
        bp_err err;

        if (length == 0)
            return fail(self, "the line has fewer words than its order");
        err = find_word(self, order, word, length, &id);
        if (err != BP_OK)
            return err;
        *starts_inside = *starts_inside || (k > 0 && is(word, length, BP_WORD_START));
        *key = (*key << self->spec->bits) | (ngram_key)(uint64_t)(id + 1);
    }
    return BP_OK;
}

static bp_err read_ngram(arpa_reader *self, int order, const char *text, size_t bytes)
{
    ngram_arpa_order *to = &self->of[order];
    ngram_arpa_entry entry = {0};
    bool starts_inside;
    ngram_key key;
    bp_err err;

    if (!take_number(&text, &bytes, &entry.prob))
        return fail(self, "the line does not begin with a number");
    if (entry.prob > 0)
        return fail(self, "the logarithm of a probability is above 0");
    err = read_words(self, order, &text, &bytes, &key, &starts_inside);
    if (err != BP_OK)
        return err;
    if (bytes > 0 && (!take_number(&text, &bytes, &entry.left) || bytes > 0))
        return fail(self,
                    "the line has more words than its order, or its back-off is not a number");
    if (entry.left > LEFT_MOST)
        return fail(self, "a back-off weight is above 10^99");
    if (order == self->spec->order && entry.left != 0)
        return fail(self, "an n-gram of the highest order has a back-off");
    if (starts_inside) {
        self->dropped++;
        return BP_OK;
    }
    to->items[to->count] = ngram_item_of(key, to->count);
    to->entries[to->count++] = entry;
    return BP_OK;
}

static bp_err make_order(arpa_reader *self, int order)
{
    ngram_arpa_order *to = &self->of[order];
    int64_t most = (self->end - self->at) / 4; /* "0\ta\n" is the shortest line */

    if (to->declared > most)
        return fail(self, "the head declares more n-grams than fit into the file");
    to->items = bp_try_alloc("ngram.arpa", to->declared, sizeof *to->items);
    to->entries = bp_try_alloc("ngram.arpa", to->declared, sizeof *to->entries);
    return to->items && to->entries
               ? BP_OK
               : bp_fail_memory("the n-grams", to->declared, sizeof *to->items);
}

/* A section, whose header is at *text; afterwards *text is the next line. */
static bp_err read_order(arpa_reader *self, int order, const char **text, size_t *bytes)
{
    char head[32];
    int64_t lines = 0;
    bp_err err;

    (void)snprintf(head, sizeof head, "\\%d-grams:", order);
    if (!is(*text, *bytes, head))
        return fail(self, "the sections of n-grams are not sorted by their order");
    err = make_order(self, order);
    while (err == BP_OK) {
        if (!next_line(self, text, bytes, true))
            return fail(self, "the file is truncated");
        if ((*text)[0] == '\\')
            break;
        if (lines++ == self->of[order].declared)
            return fail(self, "there are more n-grams than the head declares");
        err = read_ngram(self, order, *text, *bytes);
    }
    if (err == BP_OK && lines < self->of[order].declared)
        err = fail(self, "there are fewer n-grams than the head declares");
    return err;
}

static bp_err read_text(arpa_reader *self)
{
    const char *text;
    size_t bytes;
    bp_err err = read_head(self, &text, &bytes);

    /* numbers of words are not known before the unigrams are read: as many bits as any id may need
     */
    if (err == BP_OK && !self->tokenizer)
        self->spec->bits = ngram_bits(self->of[1].declared);
    if (err == BP_OK && self->spec->bits * self->spec->order > NGRAM_KEY_BITS)
        err = fail(self, "the order is too high for this many words");
    for (int k = 1; k <= self->spec->order && err == BP_OK; k++)
        err = read_order(self, k, &text, &bytes);
    if (err == BP_OK && !is(text, bytes, "\\end\\"))
        err = fail(self, "the file goes on where \\end\\ was expected");
    if (err == BP_OK && next_line(self, &text, &bytes, true))
        err = fail(self, "the file goes on after \\end\\");
    return err;
}

/* ---- ids ---- */

/* Without a tokenizer: <unk> is 0, </s> the last id, <s> after it, others in the order of the file.
 */
static bp_err number_words(arpa_reader *self)
{
    int64_t next = 1, count = self->words.count;
    const bp_strmap_entry *start =
        bp_strmap_find(&self->words, BP_WORD_START, strlen(BP_WORD_START));
    const bp_strmap_entry *end = bp_strmap_find(&self->words, BP_WORD_END, strlen(BP_WORD_END));
    const bp_strmap_entry *unknown =
        bp_strmap_find(&self->words, BP_WORD_UNKNOWN, strlen(BP_WORD_UNKNOWN));

    if (!start || !end)
        return fail(self, "there is no unigram <s> or </s>");
    self->spec->vocab_size = count - 1 + (unknown ? 0 : 1);
    self->spec->eod_id = self->spec->vocab_size - 1;
    self->ids = bp_alloc("ngram.arpa", count, sizeof *self->ids);
    for (int64_t k = 0; k < count; k++) {
        const bp_strmap_entry *entry = &self->words.entries[k];

        self->ids[k] = entry == start     ? self->spec->vocab_size
                       : entry == end     ? self->spec->eod_id
                       : entry == unknown ? 0
                                          : next++;
    }
    return BP_OK;
}

static ngram_key renumber(const arpa_reader *self, ngram_key key, int order, int bits)
{
    ngram_key out = 0;

    for (int k = order - 1; k >= 0; k--)
        out = (out << bits) |
              (ngram_key)(uint64_t)(self->ids[ngram_slot(key, self->spec->bits, k) - 1] + 1);
    return out;
}

static bp_err renumber_all(arpa_reader *self)
{
    int bits = ngram_bits(self->spec->vocab_size);

    if (bits * self->spec->order > NGRAM_KEY_BITS)
        return fail(self, "the order is too high for this many words");
    for (int k = 1; k <= self->spec->order; k++)
        for (int64_t i = 0; i < self->of[k].count; i++)
            self->of[k].items[i] =
                ngram_item_of(renumber(self, ngram_item_key(&self->of[k].items[i]), k, bits), i);
    self->spec->bits = bits;
    return BP_OK;
}

static bp_err make_tokenizer(const arpa_reader *self, bp_tokenizer **made)
{
    int64_t V = self->spec->vocab_size;
    json_t *vocab = json_object();
    bp_err err = BP_OK;
    int64_t *by_id = bp_alloc("ngram.arpa", V + 1, sizeof *by_id);

    for (int64_t k = 0; k < self->words.count; k++)
        by_id[self->ids[k]] = k + 1;
    for (int64_t id = 0; id < V && err == BP_OK; id++) {
        const char *word = id == 0       ? BP_WORD_UNKNOWN
                           : id == V - 1 ? "<|endoftext|>"
                                         : bp_strmap_key(&self->words, by_id[id] - 1);

        if (json_object_get(vocab, word))
            err = BP_FAIL(BP_ERR_FORMAT, "arpa.reserved_word",
                          "'%.40s' is a word of the model, and stands here for </s>: at %s; rename "
                          "it, or give --tokenizer",
                          word, self->path);
        else if (json_object_set_new(vocab, word, json_integer((json_int_t)id)) != 0)
            err = BP_FAIL(BP_ERR_FORMAT, "arpa.not_utf8",
                          "a word is not UTF-8: at %s; convert the file", self->path);
    }
    bp_free(by_id);
    if (err == BP_OK)
        err = bp_words_file_tokenizer(made, vocab, self->path);
    json_decref(vocab);
    return err;
}

/* ---- all of it ---- */

static bp_err read_mapped(arpa_reader *self, ngram_levels *levels, bp_tokenizer **made)
{
    bp_err err = read_text(self);

    if (err == BP_OK && !self->tokenizer) {
        err = number_words(self);
        if (err == BP_OK)
            err = renumber_all(self);
        if (err == BP_OK)
            err = make_tokenizer(self, made);
    }
    if (err == BP_OK && self->dropped > 0)
        BP_WARN("arpa.inner_start",
                "%" PRId64 " n-grams have <s> after another word, which never happens: at %s; they "
                "are left out",
                self->dropped, self->path);
    return err == BP_OK ? ngram_arpa_fill(levels, self->of, self->spec, self->path) : err;
}

static bp_err begin_words(arpa_reader *self)
{
    const bp_tokenizer *tokenizer = self->tokenizer;

    if (!tokenizer)
        return BP_OK;
    self->spec->vocab_size = bp_tokenizer_size(tokenizer);
    self->spec->eod_id = bp_tokenizer_eod(tokenizer);
    self->spec->bits = ngram_bits(self->spec->vocab_size);
    if (self->spec->eod_id < 0)
        return BP_FAIL(BP_ERR_FORMAT, "arpa.no_end",
                       "the tokenizer has no end-of-document token, which is </s>: at %s; give "
                       "another, or none",
                       self->path);
    return bp_words_of_ids(&self->words, tokenizer, self->spec->vocab_size, self->spec->eod_id);
}

bp_err ngram_arpa_read(ngram_levels *levels, ngram_spec *spec, const bp_tokenizer *tokenizer,
                       bp_tokenizer **made, const char *path)
{
    arpa_reader self = {.path = path, .tokenizer = tokenizer, .spec = spec};
    bp_words_file file;
    bp_err err = bp_words_file_map(&file, path);

    *levels = (ngram_levels){0};
    *spec = (ngram_spec){0};
    *made = NULL;
    if (err == BP_OK)
        err = begin_words(&self);
    if (err == BP_OK) {
        self.at = file.text;
        self.end = file.text + file.bytes;
        err = read_mapped(&self, levels, made);
    }
    for (int k = 0; k < NGRAM_ORDERS; k++) {
        bp_free(self.of[k].items);
        bp_free(self.of[k].entries);
    }
    bp_free(self.ids);
    bp_strmap_clear(&self.words);
    bp_words_file_unmap(&file);
    return err;
}
