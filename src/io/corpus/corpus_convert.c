/* Converting a foreign corpus: a child process checks the file with bp_h5_walk, reads it through
 * the HDF5 library, and writes the native file; its parent waits and forwards its report. */
#include "io/corpus/corpus_convert.h"

#include "corpus_file_priv.h"
#include "io/h5/h5_apart.h"
#include "io/h5/h5_parts.h"

#include "base/files/fs.h"
#include "base/files/hidden.h"
#include "base/mem.h"
#include "io/corpus/corpus_text.h"
#include "io/corpus/corpus_writer.h"
#include "io/h5/user_block.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_TOKENS ((int64_t)BP_CORPUS_CHUNK_TOKENS)
#define RATIO_LIMIT  1000                  /* bytes of tokens per byte of the file ... */
#define FREE_BYTES   ((uint64_t)256 << 20) /* ... beyond these */
#define CACHE_BYTES  ((size_t)512 << 20)   /* at least a chunk: it is decompressed once */

double bp_corpus_convert_seconds = 30;

/* ---- the foreign file ---- */

static bp_err open_foreign(bp_corpus_file *file, hid_t *dataset)
{
    bp_h5_shape tokens;
    int64_t stored = bp_file_size(file->path);
    bp_err err = bp_h5_open_fd(&file->h5, file->fd, file->path);

    if (err == BP_OK)
        err = bp_h5_walk(file->h5, "tokens");
    if (err == BP_OK)
        err = bp_h5_shape_of(file->h5, "tokens", &tokens);
    if (err != BP_OK)
        return err;
    uint64_t bytes = (uint64_t)tokens.count * tokens.width;
    if (tokens.is_text || tokens.is_real)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.wrong_type", "/tokens does not hold integers: at %s",
                       file->path);
    if (bytes > FREE_BYTES && bytes / RATIO_LIMIT > (uint64_t)stored) /* hours of decoding */
        return BP_FAIL(BP_ERR_FORMAT, "corpus.claims_too_much",
                       "/tokens claims %" PRIu64 " bytes in a file of %" PRId64
                       ", more than %d for one: at %s",
                       bytes, stored, RATIO_LIMIT, file->path);
    file->info.tokens = tokens.count;
    err = bp_corpus_read_attributes(file, file->h5);
    if (err == BP_OK)
        err = bp_corpus_find_columns(file, file->h5, true);
    if (err != BP_OK)
        return err;
    bp_h5_lock();
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    if (H5Pset_chunk_cache(access, 521, CACHE_BYTES, 1.0) >= 0)
        *dataset = H5Dopen2(file->h5->id, "tokens", access);
    if (*dataset < 0)
        err = bp_h5_fail(file->h5, "can't open dataset", "tokens");
    bp_h5_release(access);
    bp_h5_unlock();
    return err;
}

/* ids[count] = /tokens[first .. first+count), checked against the vocabulary. */
static bp_err read_ids(const bp_corpus_file *file, hid_t dataset, int64_t first, int64_t count,
                       int64_t *values, uint32_t *ids)
{
    bp_err err = BP_OK;

    bp_h5_lock();
    if (!bp_h5_read_values(dataset, H5T_NATIVE_INT64, (hsize_t)first, (hsize_t)count, values))
        err = bp_h5_fail(file->h5, "can't read dataset", "tokens");
    bp_h5_unlock();
    for (int64_t k = 0; k < count && err == BP_OK; k++) {
        if (values[k] < 0 || values[k] >= file->info.vocab_size)
            err = BP_FAIL(BP_ERR_FORMAT, "corpus.bad_token",
                          "token id %" PRId64 " is beyond the vocabulary of %" PRId64
                          ": at %s, /tokens[%" PRId64 "]; correct vocab_size or the tokens",
                          values[k], file->info.vocab_size, file->path, first + k);
        else
            ids[k] = (uint32_t)values[k];
    }
    return err;
}

/* ---- writing the native one ---- */

typedef struct columns {
    const int64_t *start, *bytes, *words, *words_split;
    bp_corpus_label *labels; /* [info.labels] ... */
    const char **names;      /* ... their names, and ... */
    const char **values;     /* ... their values for one document */
} columns;

static bp_err load_columns(bp_corpus_file *file, columns *out)
{
    int count = file->info.labels;
    bp_err err = bp_corpus_file_doc_start(file, &out->start);

    if (err == BP_OK)
        err = bp_corpus_file_doc_counts(file, &out->bytes, &out->words, &out->words_split);
    out->labels = bp_alloc("io.labels", count, sizeof *out->labels);
    out->names = bp_alloc("io.labels", count, sizeof *out->names);
    out->values = bp_alloc("io.labels", count, sizeof *out->values);
    for (int k = 0; k < count && err == BP_OK; k++) {
        err = bp_corpus_file_label(file, k, &out->labels[k]);
        out->names[k] = file->labels[k].name;
    }
    return err;
}

static bp_err check_tokenizer(const bp_corpus_file *file, const bp_corpus_conversion *conversion)
{
    const char *hash = file->info.tokenizer_hash;

    if (!conversion->tokenizer)
        return BP_OK;
    if (conversion->tokenizer_size > file->info.vocab_size)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.mismatch",
                       "the tokenizer has %" PRId64 " entries, vocab_size is %" PRId64
                       ": at %s; give the tokenizer that the tokens were made with",
                       conversion->tokenizer_size, file->info.vocab_size, file->path);
    if (hash[0] != '\0' && !bp_tokenizer_same_hash(hash, conversion->tokenizer_hash))
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                       "tokenizer_hash %.12s is not that of the tokenizer, %.12s: at %s; give the "
                       "tokenizer that the tokens were made with",
                       hash, conversion->tokenizer_hash, file->path);
    return BP_OK;
}

static bp_err end_document(bp_corpus_file *file, const columns *c, int64_t document,
                           bp_corpus_writer *writer)
{
    char id[BP_CORPUS_ID_BYTES + 2]; /* the writer refuses longer ones */
    bp_corpus_row row = {.id = id, .labels = c->values};
    bp_err err = bp_corpus_file_doc_id(file, document, id, sizeof id);

    row.bytes = c->bytes ? c->bytes[document] : 0;
    row.words = c->words ? c->words[document] : 0;
    row.words_split = c->words_split ? c->words_split[document] : 0;
    for (int k = 0; k < file->info.labels; k++)
        c->values[k] = c->labels[k].values[c->labels[k].codes[document]];
    return err == BP_OK ? bp_corpus_writer_end(writer, &row) : err;
}

static bp_err copy(bp_corpus_file *file, hid_t dataset, const columns *c, bp_corpus_writer *writer)
{
    int64_t *values = bp_alloc("io.block", BLOCK_TOKENS, sizeof *values), document = 0;
    uint32_t *ids = bp_alloc("io.block", BLOCK_TOKENS, sizeof *ids);
    bp_err err = BP_OK;

    for (int64_t first = 0; first < file->info.tokens && err == BP_OK; first += BLOCK_TOKENS) {
        int64_t left = file->info.tokens - first, at = 0;
        int64_t count = left < BLOCK_TOKENS ? left : BLOCK_TOKENS;
        err = read_ids(file, dataset, first, count, values, ids);
        while (err == BP_OK && at < count) {
            int64_t end = c->start[document + 1] - first, now = end < count ? end : count;
            err = bp_corpus_writer_tokens(writer, ids + at, now - at);
            at = now;
            if (err == BP_OK && at == end)
                err = end_document(file, c, document++, writer);
            while (err == BP_OK && document < file->info.documents &&
                   c->start[document + 1] == first + at)
                err = end_document(file, c, document++, writer); /* without a token */
        }
    }
    while (err == BP_OK && document < file->info.documents) /* no tokens at all */
        err = end_document(file, c, document++, writer);
    bp_free(values);
    bp_free(ids);
    return err;
}

static bp_err write_native(bp_corpus_file *file, hid_t dataset, const columns *c,
                           const bp_corpus_conversion *conversion, bp_corpus_converted *out)
{
    const char *format = "hdf5";
    const bp_corpus_source sources[] = {{"tool", &conversion->tool, 1}, {"format", &format, 1}};
    bp_corpus_spec spec = {.vocab_size = file->info.vocab_size,
                           .eod_id = file->info.eod_id,
                           .roles = file->info.roles,
                           .has_bos = file->info.has_bos,
                           .ends_as_given = true,
                           .tokenizer_hash = file->info.tokenizer_hash,
                           .labels = c->names,
                           .label_count = file->info.labels,
                           .has_ids = file->info.has_ids,
                           .without_bytes = !file->info.has_bytes,
                           .without_words = !file->info.has_words,
                           .without_words_split = !file->info.has_words_split,
                           .sources = sources,
                           .source_count = 2};
    bp_corpus_writer *writer = NULL;
    char *tokenizer = NULL;
    size_t bytes;
    bp_err err = check_tokenizer(file, conversion);

    if (err == BP_OK && !conversion->tokenizer)
        err = bp_corpus_file_tokenizer(file, &tokenizer, &bytes);
    spec.tokenizer = conversion->tokenizer ? conversion->tokenizer : tokenizer;
    if (conversion->tokenizer)
        spec.tokenizer_hash = conversion->tokenizer_hash;
    if (err == BP_OK)
        err = bp_corpus_writer_new(&writer, conversion->out, &spec);
    if (err == BP_OK)
        err = copy(file, dataset, c, writer);
    if (err == BP_OK)
        err = bp_corpus_writer_commit(writer);
    if (err == BP_OK)
        *out = (bp_corpus_converted){file->info.tokens, file->info.documents,
                                     bp_corpus_writer_open_ends(writer), ""};
    bp_corpus_writer_free(&writer);
    bp_free(tokenizer);
    return err;
}

/* Task columns that are not converted. */
static bp_err find_left_out(const bp_corpus_file *file, char *out, size_t bytes)
{
    static const char *const NAMES[] = {"segment_start", "values", "tags", "spans"};
    size_t used = 0;
    bp_err err = BP_OK;

    out[0] = '\0';
    for (size_t k = 0; k < sizeof NAMES / sizeof NAMES[0] && err == BP_OK; k++) {
        bool found = false;

        err = bp_h5_find(file->h5, NAMES[k], &found);
        if (found)
            used +=
                (size_t)snprintf(out + used, bytes - used, "%s/%s", used > 0 ? ", " : "", NAMES[k]);
    }
    return err;
}

static bp_err convert(const bp_corpus_conversion *conversion, int fd, bp_corpus_converted *out)
{
    bp_corpus_file file = {.path = bp_strdup(conversion->source), .fd = fd};
    columns c = {0};
    hid_t dataset = -1;
    bp_err err = open_foreign(&file, &dataset);

    if (err == BP_OK)
        err = load_columns(&file, &c);
    if (err == BP_OK)
        err = write_native(&file, dataset, &c, conversion, out);
    return err == BP_OK ? find_left_out(&file, out->left_out, sizeof out->left_out) : err;
}

/* ---- in a child process ---- */

typedef struct conversion_work {
    const bp_corpus_conversion *conversion;
    int fd;
} conversion_work;

static bp_err work(void *context, void *result)
{
    const conversion_work *self = context;

    return convert(self->conversion, self->fd, result);
}

static bp_err convert_apart(const bp_corpus_conversion *conversion, int fd,
                            bp_corpus_converted *out)
{
    bp_corpus_converted converted = {0};
    conversion_work context = {conversion, fd};
    bp_h5_apart job = {.path = conversion->source,
                       .doing = "converted",
                       .cpu_seconds = bp_h5_apart_seconds(bp_corpus_convert_seconds,
                                                          bp_file_size(conversion->source)),
                       .work = work,
                       .context = &context,
                       .result = &converted,
                       .result_bytes = sizeof converted};
    bp_err err = bp_h5_run_apart(&job);

    if (err == BP_OK)
        *out = converted;
    else
        bp_hidden_sweep(conversion->out, BP_HIDDEN_FILE);
    return err;
}

bp_err bp_corpus_convert(const bp_corpus_conversion *conversion, bp_corpus_converted *out)
{
    const char *path = conversion->source;
    bp_user_block block;
    int fd = -1;
    bp_err err =
        bp_path_is_dir(path) ? bp_corpus_refuse_folder(path) : bp_file_open(path, &fd, NULL);

    if (err == BP_OK)
        err = bp_corpus_refuse_text(fd, path);
    if (err == BP_OK)
        err = bp_user_block_read_fd(&block, fd, path);
    if (err == BP_OK && block.kind[0] != '\0')
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.native",
                      "bagpipe wrote this file (%s): at %s; a corpus of bagpipe's needs no "
                      "conversion",
                      block.kind, path);
    if (err == BP_OK)
        err = convert_apart(conversion, fd, out);
    if (fd >= 0)
        (void)close(fd);
    return bp_err_advise(err, BP_H5_REMEDY);
}
