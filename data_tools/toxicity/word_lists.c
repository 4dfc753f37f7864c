/* Words and phrases by a map of their plain words. */
#include "word_lists.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "file_tool.h"
#include "text/unicode/plain_words.h"

#include <inttypes.h>
#include <string.h>

#define FILE_BYTES ((int64_t)1 << 28)

/* ---- loading ---- */

static bp_err add_entry(word_lists *self, const char *line, size_t bytes, const char *path,
                        int64_t number)
{
    size_t at = 0;
    int words = 0;
    int64_t index, last;
    const bp_strmap_entry *known;
    bp_err err = BP_OK;

    self->phrase.bytes = 0;
    while (bp_plain_word(line, bytes, &at, &self->word)) {
        if (words++ > 0)
            bp_buffer_add(&self->phrase, " ", 1);
        bp_buffer_add(&self->phrase, self->word.data, self->word.bytes);
    }
    if (words == 0)
        return BP_OK;
    if (words > WORD_LISTS_PHRASE)
        return BP_FAIL(BP_ERR_FORMAT, "toxicity.long_entry",
                       "the entry has %d words, more than %d: at %s:%" PRId64 "; shorten it", words,
                       WORD_LISTS_PHRASE, shown_path(path), number);
    known = bp_strmap_find(&self->map, self->phrase.data, self->phrase.bytes);
    for (last = known ? known->value : 0; last > 0; last = self->entries[last - 1].next)
        if (self->entries[last - 1].list == self->count)
            return BP_OK;
        else if (self->entries[last - 1].next == 0)
            break;
    if (!known)
        err = bp_strmap_add(&self->map, self->phrase.data, self->phrase.bytes,
                            self->entry_count + 1, &index);
    else /* another list has it too */
        self->entries[last - 1].next = self->entry_count + 1;
    self->entries = bp_grow("tool.words", self->entries, &self->entry_capacity,
                            self->entry_count + 1, sizeof *self->entries);
    self->entries[self->entry_count++] =
        (word_entry){.shown = bp_sprintf("%.*s", (int)bytes, line), .list = self->count};
    self->longest = words > self->longest ? words : self->longest;
    return err;
}

static bp_err load_file(word_lists *self, const char *path)
{
    char *data = NULL;
    size_t bytes = 0;
    int64_t number = 0, before = self->entry_count;
    bp_err err = bp_file_read(path, FILE_BYTES, &data, &bytes);

    for (size_t at = err == BP_OK ? bp_mark_bytes(data, bytes) : 0; at < bytes && err == BP_OK;) {
        const char *end = memchr(data + at, '\n', bytes - at);
        size_t length = (end ? (size_t)(end - data) : bytes) - at, shown = length;

        number++;
        while (shown > 0 && (data[at + shown - 1] == '\r' || data[at + shown - 1] == ' '))
            shown--;
        if (shown > 0 && data[at] != '#')
            err = add_entry(self, data + at, shown, path, number);
        at += length + 1;
    }
    bp_free(data);
    if (err == BP_OK && self->entry_count == before)
        err = BP_FAIL(BP_ERR_FORMAT, "toxicity.no_entries",
                      "the list has no word: at %s; give a word a line", shown_path(path));
    self->count++;
    return err;
}

bp_err word_lists_load(word_lists *lists, const char *const *paths, int count)
{
    bp_err err = BP_OK;

    for (int k = 0; k < count && err == BP_OK; k++)
        err = load_file(lists, paths[k]);
    return err;
}

void word_lists_clear(word_lists *self)
{
    for (int64_t k = 0; k < self->entry_count; k++)
        bp_free(self->entries[k].shown);
    bp_free(self->entries);
    for (int k = 0; k < WORD_LISTS_PHRASE; k++)
        bp_buffer_clear(&self->last[k]);
    bp_buffer_clear(&self->phrase);
    bp_buffer_clear(&self->word);
    bp_strmap_clear(&self->map);
    *self = (word_lists){0};
}

/* ---- reading ---- */

void word_lists_begin(word_lists *self)
{
    self->seen = 0;
    self->text++;
    memset(self->has, 0, sizeof self->has);
}

static void count(word_lists *self, word_entry *entry)
{
    entry->occurrences++;
    entry->texts += entry->last_text != self->text;
    entry->last_text = self->text;
    self->has[entry->list] = true;
}

/* Entries that end with the last word. */
static void look_up(word_lists *self)
{
    int words = self->seen < self->longest ? (int)self->seen : self->longest;

    for (int n = 1; n <= words; n++) {
        const bp_strmap_entry *found;

        self->phrase.bytes = 0;
        for (int k = n; k > 0; k--) {
            const bp_buffer *word = &self->last[(self->seen - k) % WORD_LISTS_PHRASE];

            if (k < n)
                bp_buffer_add(&self->phrase, " ", 1);
            bp_buffer_add(&self->phrase, word->data, word->bytes);
        }
        found = bp_strmap_find(&self->map, self->phrase.data, self->phrase.bytes);
        for (int64_t k = found ? found->value : 0; k > 0; k = self->entries[k - 1].next)
            count(self, &self->entries[k - 1]);
    }
}

void word_lists_read(word_lists *self, const char *text, size_t bytes)
{
    size_t at = 0;

    while (bp_plain_word(text, bytes, &at, &self->word)) {
        bp_buffer *to = &self->last[self->seen++ % WORD_LISTS_PHRASE];

        to->bytes = 0;
        bp_buffer_add(to, self->word.data, self->word.bytes);
        look_up(self);
    }
}

char *word_entry_masked(const word_entry *entry)
{
    bp_buffer out = {0};
    bool first = true;

    for (const char *c = entry->shown; *c; c++) {
        if ((*c & 0xC0) == 0x80) { /* of a character that is shown, or not */
            if (first)
                bp_buffer_add(&out, c, 1);
            continue;
        }
        first = c == entry->shown;
        bp_buffer_add(&out, first || *c == ' ' ? c : "*", 1);
    }
    return bp_buffer_take(&out);
}
