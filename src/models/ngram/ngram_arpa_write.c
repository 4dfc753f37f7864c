/* A mapped model as an ARPA file. Called by ngram.c. */
#include "models/ngram/ngram_arpa_priv.h"

#include "base/buffer.h"
#include "base/files/fs.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLUSH_BYTES ((size_t)1 << 20)

typedef struct arpa_writer {
    const ngram_file *file;
    const bp_strmap *words;
    bp_draft draft;
    bp_buffer text;
    uint32_t at[NGRAM_ORDER_MOST + 1]; /* of each order, the n-gram whose followers are written */
} arpa_writer;

static bp_err flush(arpa_writer *self, bool all)
{
    bp_err err = BP_OK;

    if (self->text.bytes >= FLUSH_BYTES || all) {
        err = bp_draft_write(&self->draft, self->text.data, self->text.bytes);
        self->text.bytes = 0;
    }
    return err;
}

/* Half of the distance to the next float, on the nearer side. */
static double half_step(float value)
{
    uint32_t bits;
    float above, below;

    memcpy(&bits, &value, sizeof bits);
    bits++;
    memcpy(&above, &bits, sizeof above);
    bits -= 2;
    memcpy(&below, &bits, sizeof below);
    return (double)(above - value < value - below ? above - value : value - below) / 2;
}

/* `number` / 10^places, without zeros at its end. */
static void add_decimal(bp_buffer *out, bool negative, int64_t number, int places)
{
    char text[24];
    int at = (int)sizeof text;

    while (places > 0 && number % 10 == 0) {
        number /= 10;
        places--;
    }
    for (int k = 0; k <= places || number > 0; k++, number /= 10) {
        if (k == places && k > 0)
            text[--at] = '.';
        text[--at] = (char)('0' + number % 10);
    }
    if (negative)
        text[--at] = '-';
    bp_buffer_add(out, text + at, sizeof text - (size_t)at);
}

/* The shortest form that reads back as the same float, as printf's %g writes it. A decimal number
 * clearly nearer to this float than to its neighbours reads back as it. */
static void add_number(bp_buffer *out, float value)
{
    static const double POWERS[] = {1e0, 1e1, 1e2, 1e3,  1e4,  1e5,  1e6,
                                    1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13};
    double size = fabs((double)value), half = half_step(fabsf(value));
    int places = 6; /* decimal places of the 6 digits */
    char text[32];

    for (double power = 0.1; places > 4 && size >= power; power *= 10)
        places--;
    for (double power = 0.1; places < 9 && size < power; power /= 10)
        places++;
    for (int more = 0; more <= 3 && size >= 1e-4 && size < 100; more++) {
        double scale = POWERS[places + more], number = nearbyint(size * scale);

        if (fabs(number / scale - size) < (1 - 1e-6) * half) {
            add_decimal(out, value < 0, (int64_t)number, places + more);
            return;
        }
    }
    for (int digits = 6; digits <= 9; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    bp_buffer_add(out, text, strlen(text));
}

static void add_words(arpa_writer *self, int order, uint32_t last)
{
    for (int k = 1; k <= order; k++) {
        uint32_t at = k == order ? last : self->at[k];
        uint32_t word = k == 1 ? at : ngram_word(self->file, k, at);
        const char *key = bp_strmap_key(self->words, word);

        bp_buffer_add(&self->text, k > 1 ? " " : "\t", 1);
        bp_buffer_add(&self->text, key, strlen(key));
    }
}

/* Line `i` of an order: the histories of the order below are in sequence, like their followers. */
static void add_line(arpa_writer *self, int order, uint32_t i)
{
    const ngram_file *file = self->file;
    bool leaf = order == file->order && order > 1;
    const ngram_node *node = leaf ? NULL : &file->nodes[order][i];

    for (int k = order - 1; k >= 1; k--) {
        uint32_t inside = k == order - 1 ? i : self->at[k + 1];

        while (file->nodes[k][self->at[k] + 1].begin <= inside)
            self->at[k]++;
    }
    add_number(&self->text, leaf ? file->leaves[i].prob : node->prob);
    add_words(self, order, i);
    if (order < file->order && (node->left != 0 || node[1].begin > node->begin)) {
        bp_buffer_add(&self->text, "\t", 1);
        add_number(&self->text, node->left);
    }
    bp_buffer_add(&self->text, "\n", 1);
}

static bp_err write_order(arpa_writer *self, int order)
{
    bp_err err = BP_OK;

    memset(self->at, 0, sizeof self->at);
    bp_buffer_printf(&self->text, "\n\\%d-grams:\n", order);
    for (uint64_t i = 0; i < self->file->header.count[order - 1] && err == BP_OK; i++) {
        add_line(self, order, (uint32_t)i);
        err = flush(self, false);
    }
    return err;
}

static bp_err write_file(arpa_writer *self)
{
    bp_err err = BP_OK;

    bp_buffer_printf(&self->text, "\\data\\\n");
    for (int k = 1; k <= self->file->order; k++)
        bp_buffer_printf(&self->text, "ngram %d=%" PRIu64 "\n", k, self->file->header.count[k - 1]);
    for (int k = 1; k <= self->file->order && err == BP_OK; k++)
        err = write_order(self, k);
    bp_buffer_printf(&self->text, "\n\\end\\\n");
    return err == BP_OK ? flush(self, true) : err;
}

static bp_err export(const ngram_file *file, const bp_strmap *words, const char *path)
{
    arpa_writer self = {.file = file, .words = words};
    bp_err err;

    if (!file->backs_off)
        return BP_FAIL(BP_ERR_FORMAT, "arpa.no_back_off",
                       "the model does not back off (ngram.smoothing), and an ARPA file is of one "
                       "that does: at the checkpoint; use kneser-ney, katz or witten-bell");
    err = bp_draft_open(&self.draft, path);
    if (err != BP_OK)
        return err;
    err = write_file(&self);
    err = bp_draft_end(&self.draft, err);
    bp_buffer_clear(&self.text);
    return err;
}

bp_err ngram_arpa_export(const bp_model_family *family, bp_checkpoint *checkpoint,
                         const bp_tokenizer *tokenizer, const char *path)
{
    (void)family;
    const char *attachment = bp_checkpoint_attachment(checkpoint);
    const json_t *eod = json_object_get(bp_checkpoint_state(checkpoint), "eod_id");
    ngram_file file = {0};
    bp_strmap words = {0};
    bp_err err = attachment ? ngram_file_open(&file, attachment)
                            : BP_FAIL(BP_ERR_FORMAT, "ngram.no_file",
                                      "the checkpoint has no file of n-grams: at %s",
                                      bp_checkpoint_folder(checkpoint));

    if (err == BP_OK)
        err = bp_words_of_ids(&words, tokenizer, file.V, json_integer_value(eod));
    if (err == BP_OK)
        err = export(&file, &words, path);
    bp_strmap_clear(&words);
    ngram_file_close(&file);
    return err;
}
