/* Converting a foreign corpus: a child process checks the file with bp_h5_walk, reads it through
 * the HDF5 library, and writes the native file; its parent waits and passes on what it reports. */
#include "io/corpus/corpus_convert.h"

#include "corpus_file_priv.h"
#include "io/h5/h5_priv.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/hidden.h"
#include "base/mem.h"
#include "base/signals.h"
#include "io/corpus/corpus_text.h"
#include "io/corpus/corpus_writer.h"
#include "io/h5/user_block.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK_TOKENS ((int64_t)BP_CORPUS_CHUNK_TOKENS)
#define RATIO_LIMIT  1000                  /* bytes of tokens for a byte of the file ... */
#define FREE_BYTES   ((uint64_t)256 << 20) /* ... beyond these */
#define CACHE_BYTES  ((size_t)512 << 20)   /* at least a chunk: it is decompressed once */
#define READ_SPEED   2e5 /* bytes of the file in a second: each may stand for a thousand */
#define WALL         10  /* seconds for one of processor time: a busy machine, a slow disk */

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

/* ids[count] = /tokens[first .. first+count), compared with the vocabulary. */
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
    const char **values;     /* ... their values of one document */
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

    if (conversion->tokenizer == NULL)
        return BP_OK;
    if (conversion->tokenizer_size > file->info.vocab_size)
        return BP_FAIL(BP_ERR_FORMAT, "vocabulary.mismatch",
                       "the tokenizer has %" PRId64 " entries, vocab_size is %" PRId64
                       ": at %s; give the tokenizer that the tokens were made with",
                       conversion->tokenizer_size, file->info.vocab_size, file->path);
    if (hash[0] != '\0' && strcmp(hash, conversion->tokenizer_hash) != 0)
        return BP_FAIL(BP_ERR_FORMAT, "tokenizer.mismatch",
                       "tokenizer_hash %.12s is not that of the tokenizer, %.12s: at %s; give the "
                       "tokenizer that the tokens were made with",
                       hash, conversion->tokenizer_hash, file->path);
    return BP_OK;
}

static bp_err end_document(bp_corpus_file *file, const columns *c, int64_t document,
                           bp_corpus_writer *writer)
{
    char id[BP_CORPUS_ID_BYTES + 2]; /* a longer one is the writer's to refuse */
    bp_corpus_row row = {.id = id, .labels = c->values};
    bp_err err = bp_corpus_file_doc_id(file, document, id, sizeof id);

    row.bytes = c->bytes != NULL ? c->bytes[document] : 0;
    row.words = c->words != NULL ? c->words[document] : 0;
    row.words_split = c->words_split != NULL ? c->words_split[document] : 0;
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

    if (err == BP_OK && conversion->tokenizer == NULL)
        err = bp_corpus_file_tokenizer(file, &tokenizer, &bytes);
    spec.tokenizer = conversion->tokenizer != NULL ? conversion->tokenizer : tokenizer;
    if (conversion->tokenizer != NULL)
        spec.tokenizer_hash = conversion->tokenizer_hash;
    if (err == BP_OK)
        err = bp_corpus_writer_new(&writer, conversion->out, &spec);
    if (err == BP_OK)
        err = copy(file, dataset, c, writer);
    if (err == BP_OK)
        err = bp_corpus_writer_commit(writer);
    if (err == BP_OK)
        *out = (bp_corpus_converted){file->info.tokens, file->info.documents,
                                     bp_corpus_writer_open_ends(writer)};
    bp_corpus_writer_free(&writer);
    bp_free(tokenizer);
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
    return err == BP_OK ? write_native(&file, dataset, &c, conversion, out) : err;
}

/* ---- the child, and the parent that waits for it ---- */

/* One write, which a pipe takes whole (PIPE_BUF is 4096). */
typedef struct verdict {
    int32_t err;
    char message[BP_ERR_LINE_BYTES + 8];
    bp_corpus_converted converted;
} verdict;
_Static_assert(sizeof(verdict) <= 4096, "a verdict is written at once");

static void give_up(int status)
{
    _exit(status);
}

static void be_child(const bp_corpus_conversion *conversion, int fd, int pipe, double seconds)
    __attribute__((noreturn));
static void be_child(const bp_corpus_conversion *conversion, int fd, int pipe, double seconds)
{
    static verdict told;
    rlim_t most = (rlim_t)ceil(seconds);
    const struct rlimit limit = {most, most};

    for (int number = 1; number < NSIG; number++) /* handlers are the parent's */
        (void)signal(number, SIG_DFL);
    bp_assert_set_handler(give_up, 0); /* a bug of ours that a file brings out is a refusal too */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || setrlimit(RLIMIT_CPU, &limit) != 0)
        told.err = BP_FAIL(BP_ERR_SYSTEM, "process.no_limit",
                           "can't limit a process: %s: at %s; see ulimit -a", strerror(errno),
                           conversion->source);
    else
        told.err = convert(conversion, fd, &told.converted);
    if (told.err != BP_OK)
        (void)snprintf(told.message, sizeof told.message, "%s", bp_err_message());
    _exit(write(pipe, &told, sizeof told) == (ssize_t)sizeof told ? 0 : 1);
}

#define REMEDY "it is damaged or made to do harm: write it anew"

/* How a child ended that reported nothing. */
static bp_err judge(const char *path, int status, double seconds)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.too_slow",
                       "reading it took more than %.0f s of processor time: at %s; " REMEDY,
                       ceil(seconds), path);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        return BP_FAIL(BP_ERR_SYSTEM, "process.killed",
                       "the process that reads it was killed, as happens when memory ends: at %s; "
                       "give it more memory",
                       path);
    if (WIFSIGNALED(status))
        return BP_FAIL(BP_ERR_FORMAT, "corpus.crashes_reader",
                       "reading it crashes a process (signal %d, %s): at %s; " REMEDY,
                       WTERMSIG(status), strsignal(WTERMSIG(status)), path);
    return BP_FAIL(BP_ERR_FORMAT, "corpus.crashes_reader",
                   "reading it ends a process without a message: at %s; " REMEDY, path);
}

static bp_err wait_for(pid_t child, const char *path, double seconds, int *status)
{
    double end = bp_clock_now() + WALL * seconds;
    bp_err err = BP_OK;

    while (waitpid(child, status, WNOHANG) == 0) {
        if (bp_signals_stop_asked())
            err = bp_fail_stopped("while %s was converted; nothing is kept", path);
        else if (bp_clock_now() > end)
            err =
                BP_FAIL(BP_ERR_FORMAT, "corpus.too_slow",
                        "reading it took longer than %.0f s: at %s; " REMEDY, WALL * seconds, path);
        if (err != BP_OK) {
            (void)kill(child, SIGKILL);
            (void)waitpid(child, status, 0);
            return err;
        }
        bp_clock_sleep(0.01);
    }
    return BP_OK;
}

static bp_err convert_apart(const bp_corpus_conversion *conversion, int fd,
                            bp_corpus_converted *out)
{
    double seconds =
        bp_corpus_convert_seconds + (double)bp_file_size(conversion->source) / READ_SPEED;
    const char *path = conversion->source;
    verdict told;
    int pipe[2], status = 0;
    pid_t child;
    bp_err err;

    if (pipe2(pipe, O_CLOEXEC) != 0)
        return bp_fail_errno(BP_ERR_SYSTEM, "can't make a pipe to convert", path);
    child = fork();
    if (child == 0)
        be_child(conversion, fd, pipe[1], seconds);
    (void)close(pipe[1]);
    if (child < 0)
        err = BP_FAIL(BP_ERR_SYSTEM, "process.not_started",
                      "can't start a process to convert it: %s: at %s; allow more processes "
                      "(ulimit -u) or give it more memory",
                      strerror(errno), path);
    else
        err = wait_for(child, path, seconds, &status);
    if (err == BP_OK && read(pipe[0], &told, sizeof told) != (ssize_t)sizeof told)
        err = judge(path, status, seconds);
    else if (err == BP_OK && told.err != BP_OK) {
        told.message[sizeof told.message - 1] = '\0';
        bp_err_set_message(told.message);
        err = (bp_err)told.err;
    } else if (err == BP_OK)
        *out = told.converted;
    (void)close(pipe[0]);
    if (err != BP_OK)
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
