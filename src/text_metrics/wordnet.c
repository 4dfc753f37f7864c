/* WordNet: lines found by bisection in the sorted files, synsets by their place. */
#include "text_metrics/wordnet.h"

#include "base/files/fs.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES ((int64_t)1 << 28)
#define WORD_BYTES 128 /* longer ones are not there */
#define FORMS      64

enum { NOUN, VERB, ADJECTIVE, ADVERB, PARTS };

typedef struct text_file {
    char *text;
    size_t bytes;
} text_file;

struct bp_wordnet {
    text_file index[PARTS], data[PARTS], exceptions[PARTS];
};

bp_err bp_wordnet_open(bp_wordnet **out, const char *folder)
{
    static const char *const names[PARTS] = {"noun", "verb", "adj", "adv"};
    static const char *const patterns[] = {"index.%s", "data.%s", "%s.exc"};
    bp_wordnet *self = bp_alloc("metrics.wordnet", 1, sizeof *self);
    bp_err err = BP_OK;

    for (int k = 0; k < 3 * PARTS && err == BP_OK; k++) {
        text_file *file = k % 3 == 0   ? &self->index[k / 3]
                          : k % 3 == 1 ? &self->data[k / 3]
                                       : &self->exceptions[k / 3];
        char name[16];

        (void)snprintf(name, sizeof name, patterns[k % 3], names[k / 3]);
        err = bp_file_read(bp_path_in(folder, name).text, FILE_BYTES, &file->text, &file->bytes);
    }
    if (err != BP_OK)
        bp_wordnet_free(&self);
    *out = self;
    return err;
}

void bp_wordnet_free(bp_wordnet **wordnet)
{
    if (!*wordnet)
        return;
    for (int p = 0; p < PARTS; p++) {
        bp_free((*wordnet)->index[p].text);
        bp_free((*wordnet)->data[p].text);
        bp_free((*wordnet)->exceptions[p].text);
    }
    bp_free(*wordnet);
    *wordnet = NULL;
}

/* ---- lines by their first word ---- */

typedef struct form {
    char text[WORD_BYTES];
    size_t bytes;
} form;

/* The order of a line's first word and a form. */
static int compare(const char *line, size_t bytes, const form *word)
{
    size_t length = 0;
    int order;

    while (length < bytes && line[length] != ' ' && line[length] != '\n')
        length++;
    order = memcmp(line, word->text, length < word->bytes ? length : word->bytes);
    return order != 0 ? order : (length > word->bytes) - (length < word->bytes);
}

/* The place after the first word of the last line that begins with it; NULL if none does. */
static const char *find(const text_file *file, const form *word)
{
    size_t low = 0, high = file->bytes; /* of starts of lines */
    const char *found = NULL;

    while (low < high) {
        size_t start = low + (high - low) / 2, end;
        int order;

        while (start > low && file->text[start - 1] != '\n')
            start--;
        end = start + strcspn(file->text + start, "\n");
        order = compare(file->text + start, end - start, word);
        if (order == 0)
            found = file->text + start + word->bytes;
        if (order <= 0)
            low = end + 1;
        else
            high = start;
    }
    return found;
}

/* ---- forms ---- */

typedef struct form_list {
    form list[FORMS];
    int count;
} form_list;

static void add_form(form_list *forms, const char *text, size_t bytes, const char *ending)
{
    form *to = &forms->list[forms->count];

    if (forms->count == FORMS || bytes + strlen(ending) > WORD_BYTES)
        return;
    memcpy(to->text, text, bytes);
    memcpy(to->text + bytes, ending, strlen(ending));
    to->bytes = bytes + strlen(ending);
    forms->count++;
}

static const char *const ENDINGS[PARTS][10][2] = {
    [NOUN] = {{"s", ""},
              {"ses", "s"},
              {"ves", "f"},
              {"xes", "x"},
              {"zes", "z"},
              {"ches", "ch"},
              {"shes", "sh"},
              {"men", "man"},
              {"ies", "y"}},
    [VERB] = {{"s", ""},
              {"ies", "y"},
              {"es", "e"},
              {"es", ""},
              {"ed", "e"},
              {"ed", ""},
              {"ing", "e"},
              {"ing", ""}},
    [ADJECTIVE] = {{"er", ""}, {"est", ""}, {"er", "e"}, {"est", "e"}}};

static void change_endings(form_list *out, const form_list *in, int part)
{
    out->count = 0;
    for (int k = 0; k < in->count; k++)
        for (int e = 0; e < 10 && ENDINGS[part][e][0]; e++) {
            const form *of = &in->list[k];
            size_t bytes = strlen(ENDINGS[part][e][0]);

            if (of->bytes >= bytes &&
                memcmp(of->text + of->bytes - bytes, ENDINGS[part][e][0], bytes) == 0)
                add_form(out, of->text, of->bytes - bytes, ENDINGS[part][e][1]);
        }
}

/* Those that the index has. */
static bool keep_known(form_list *out, const form_list *in, const text_file *index)
{
    out->count = 0;
    for (int k = 0; k < in->count; k++)
        if (find(index, &in->list[k]))
            out->list[out->count++] = in->list[k];
    return out->count > 0;
}

/* The forms of a word in the index: of the exceptions or, if it is not one, by its endings. */
static void find_forms(form_list *out, const bp_wordnet *self, int part, const char *word,
                       size_t bytes)
{
    form_list changed[2] = {{.count = 0}, {.count = 0}}, first;
    const char *exceptions;
    int now = 0;

    add_form(&changed[0], word, bytes, "");
    exceptions = changed[0].count > 0 ? find(&self->exceptions[part], &changed[0].list[0]) : NULL;
    if (exceptions) {
        while (*exceptions == ' ') {
            size_t length = strcspn(++exceptions, " \n");

            if (length > 0)
                add_form(&changed[0], exceptions, length, "");
            exceptions += length;
        }
        (void)keep_known(out, &changed[0], &self->index[part]);
        return;
    }
    change_endings(&changed[1], &changed[0], part);
    first = changed[0]; /* the word itself, and what one change makes of it */
    for (int k = 0; k < changed[1].count; k++)
        add_form(&first, changed[1].list[k].text, changed[1].list[k].bytes, "");
    if (keep_known(out, &first, &self->index[part]))
        return;
    for (now = 1; changed[now].count > 0; now = !now) {
        change_endings(&changed[!now], &changed[now], part);
        if (keep_known(out, &changed[!now], &self->index[part]))
            return;
    }
}

/* ---- synsets ---- */

/* "00001740 03 n 02 able 0 clever(p) 0 ...": two hexadecimal digits count the words. */
static void see_synset(const text_file *data, int64_t place,
                       void (*see)(void *, const char *, size_t), void *context)
{
    const char *at;
    char *end;
    long count;

    if (place < 0 || place + 16 > (int64_t)data->bytes)
        return;
    at = data->text + place + 13; /* after the place, the lexicographer's file and the part */
    count = strtol(at, &end, 16);
    for (at = end; count > 0 && *at == ' '; count--) {
        size_t length = strcspn(++at, " \n"), name = strcspn(at, "( \n");

        if (!memchr(at, '_', name))
            see(context, at, name);
        at += length;
        at += at[0] == ' ' ? 1 + strcspn(at + 1, " \n") : 0;
    }
}

/* " n 7 5 @ ~ ... 7 1 02084071 ...": synsets, pointers and their signs, two more numbers. */
static void see_entry(const bp_wordnet *self, int part, const char *entry,
                      void (*see)(void *, const char *, size_t), void *context)
{
    char *at;
    long synsets, signs;

    if (entry[0] != ' ' || entry[1] == '\0') /* the file ends after a word */
        return;
    synsets = strtol(entry + 2, &at, 10);
    signs = strtol(at, &at, 10);

    for (long k = 0; k < signs && *at != '\n' && *at != '\0'; k++) {
        at += strspn(at, " ");
        at += strcspn(at, " \n");
    }
    (void)strtol(at, &at, 10);
    (void)strtol(at, &at, 10);
    for (long k = 0; k < synsets && *at == ' '; k++)
        see_synset(&self->data[part], strtol(at, &at, 10), see, context);
}

void bp_wordnet_synonyms(const bp_wordnet *self, const char *word, size_t bytes,
                         void (*see)(void *, const char *, size_t), void *context)
{
    for (int part = 0; part < PARTS; part++) {
        form_list forms = {.count = 0};

        find_forms(&forms, self, part, word, bytes);
        for (int k = 0; k < forms.count; k++)
            see_entry(self, part, find(&self->index[part], &forms.list[k]), see, context);
    }
}
