/* The stream: documents in order, or a bag of them kept as counts, pass after pass. */
#include "data/stream.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/sort.h"
#include "data/clusters.h"
#include "data/document_starts.h"
#include "statistics/clusters.h"

#include <inttypes.h>
#include <string.h>

/* A bag's places are kept for every 256th document of each pass; the rest is found by walking. */
#define BLOCK 256

struct bp_stream {
    bp_corpus *corpus;
    bool bag;
    double *weights; /* [files]; NULL: all files are one stream */
    int64_t files, documents, tokens;
    const int64_t **doc_start; /* of a bag: [files], each of its file's documents + 1 */
    int64_t *first_document;   /* [files + 1]: over all files */
    int64_t *first_token;      /* [files + 1]: where a file begins in the stream, without a bag */
    /* of a bag, which has groups: all files together, or with weights each file */
    uint32_t *drawn;                  /* [documents] */
    int64_t clusters, clusters_drawn; /* all, and those in the bag; 0: documents were drawn */
    int64_t groups;                   /* 1, or files */
    int64_t *first_place; /* [groups + 1]: a group's places are its blocks of all passes */
    int64_t *block_token; /* [places + 1]: where the block of a place begins in the stream */
};

/* Only a bag needs to know where documents begin. */
static bp_err list_documents(bp_stream *stream)
{
    bp_document_starts *starts = bp_document_starts_new(stream->corpus);
    bp_err err = BP_OK;

    for (int64_t k = 0; k < stream->files && err == BP_OK; k++) {
        bp_corpus_file *file = bp_corpus_file_at(stream->corpus, k);
        const bp_corpus_info *info = bp_corpus_file_info(file);

        err = stream->bag ? bp_corpus_file_doc_start(file, &stream->doc_start[k])
                          : bp_document_starts_check(starts, k);
        stream->first_document[k + 1] = stream->first_document[k] + info->documents;
        stream->first_token[k + 1] = stream->first_token[k] + info->tokens;
    }
    stream->documents = stream->first_document[stream->files];
    stream->tokens = stream->first_token[stream->files];
    bp_document_starts_free(&starts);
    return err;
}

static int64_t document_tokens(const bp_stream *stream, int64_t file, int64_t document)
{
    const int64_t *start = stream->doc_start[file] + (document - stream->first_document[file]);

    return start[1] - start[0];
}

/* The documents of a group: [first, end). */
static void group_documents(const bp_stream *stream, int64_t group, int64_t *first, int64_t *end)
{
    *first = stream->weights ? stream->first_document[group] : 0;
    *end = stream->weights ? stream->first_document[group + 1] : stream->documents;
}

static int64_t group_blocks(const bp_stream *stream, int64_t group)
{
    int64_t first, end;

    group_documents(stream, group, &first, &end);
    return (end - first + BLOCK - 1) / BLOCK;
}

/* Pass r of a group, from 0, holds its documents drawn more than r times. */
static void count_places(bp_stream *stream)
{
    for (int64_t group = 0; group < stream->groups; group++) {
        int64_t passes = 0, first, end;

        group_documents(stream, group, &first, &end);
        for (int64_t d = first; d < end; d++)
            passes = (int64_t)stream->drawn[d] > passes ? (int64_t)stream->drawn[d] : passes;
        stream->first_place[group + 1] =
            stream->first_place[group] + passes * group_blocks(stream, group);
    }
}

static void sum_places(bp_stream *stream)
{
    int64_t places = stream->first_place[stream->groups];

    for (int64_t file = 0; file < stream->files; file++) {
        int64_t group = stream->weights ? file : 0, blocks = group_blocks(stream, group);
        int64_t *place = stream->block_token + stream->first_place[group] + 1, first, end;

        group_documents(stream, group, &first, &end);
        for (int64_t d = stream->first_document[file]; d < stream->first_document[file + 1]; d++) {
            for (int64_t pass = 0; pass < (int64_t)stream->drawn[d]; pass++)
                place[pass * blocks + (d - first) / BLOCK] += document_tokens(stream, file, d);
        }
    }
    for (int64_t k = 0; k < places; k++)
        stream->block_token[k + 1] += stream->block_token[k];
    stream->tokens = stream->block_token[places];
}

static void draw(uint32_t *drawn, int64_t n, const bp_rng_key *key)
{
    for (int64_t i = 0; i < n; i++)
        drawn[bp_rng_below(key, (uint64_t)i, n)]++;
}

/* Documents of a cluster come as often as it was drawn. */
static bp_err draw_clusters(bp_stream *stream, const char *label, const bp_rng_key *key)
{
    int64_t *cluster = NULL, *local = NULL;
    uint32_t *drawn = NULL;
    bp_err err = bp_corpus_clusters(&cluster, stream->corpus, label, NULL, 0);

    if (err != BP_OK)
        return err;
    local = bp_alloc("data.drawn", stream->documents, sizeof *local);
    stream->clusters = bp_clusters_of(local, cluster, NULL, stream->documents);
    if (stream->clusters < 2)
        err = BP_FAIL(BP_ERR_FORMAT, "corpus.too_few_documents",
                      "a bag needs at least 2 clusters to draw from, but all documents have one "
                      "value of '%s': at %s; leave corpus.cluster out",
                      label, bp_corpus_file_path(bp_corpus_file_at(stream->corpus, 0)));
    drawn = bp_alloc("data.drawn", stream->clusters, sizeof *drawn);
    if (err == BP_OK)
        draw(drawn, stream->clusters, key);
    for (int64_t c = 0; c < stream->clusters; c++)
        stream->clusters_drawn += drawn[c] > 0;
    for (int64_t d = 0; d < stream->documents; d++)
        stream->drawn[d] = drawn[local[d]];
    bp_free(drawn);
    bp_free(local);
    bp_free(cluster);
    return err;
}

static bp_err draw_bag(bp_stream *stream, const bp_stream_spec *spec)
{
    int64_t n = stream->documents, places;
    bp_rng_key key = bp_rng_key_of(spec->seed, BP_RNG_BAG, spec->member, 0, 0);

    if (n < 2)
        return BP_FAIL(BP_ERR_FORMAT, "corpus.too_few_documents",
                       "a bag needs at least 2 documents to draw from, but there are %" PRId64
                       ": at %s; use corpus.resample=none, or cut the corpus into documents",
                       n, bp_corpus_file_path(bp_corpus_file_at(stream->corpus, 0)));
    stream->drawn = bp_try_alloc("data.drawn", n, sizeof *stream->drawn);
    if (!stream->drawn)
        return BP_FAIL(BP_ERR_SYSTEM, "memory.short",
                       "no memory for a bag of %" PRId64 " documents", n);
    if (spec->cluster) {
        bp_err err = draw_clusters(stream, spec->cluster, &key);

        if (err != BP_OK)
            return err;
    } else {
        draw(stream->drawn, n, &key);
    }
    stream->groups = stream->weights ? stream->files : 1;
    stream->first_place = bp_alloc("data.drawn", stream->groups + 1, sizeof(int64_t));
    count_places(stream);
    places = stream->first_place[stream->groups];
    stream->block_token = bp_try_alloc("data.drawn", places + 1, sizeof *stream->block_token);
    if (!stream->block_token)
        return bp_fail_memory("the places of a bag", places + 1, sizeof(int64_t));
    sum_places(stream);
    return BP_OK;
}

bp_err bp_stream_new(bp_stream **out, const bp_stream_spec *spec)
{
    bp_stream *stream = bp_alloc("data.stream", 1, sizeof *stream);
    int64_t files = bp_corpus_files(spec->corpus);
    bp_err err = BP_OK;

    *out = NULL;
    stream->corpus = spec->corpus;
    stream->bag = spec->bag;
    stream->files = files;
    stream->doc_start = bp_alloc("data.stream", files, sizeof *stream->doc_start);
    stream->first_document = bp_alloc("data.stream", files + 1, sizeof(int64_t));
    stream->first_token = bp_alloc("data.stream", files + 1, sizeof(int64_t));
    if (spec->weights)
        stream->weights = bp_alloc("data.stream", files, sizeof *stream->weights);
    if (stream->weights)
        memcpy(stream->weights, spec->weights, (size_t)files * sizeof *stream->weights);
    err = list_documents(stream);
    if (err == BP_OK && stream->bag)
        err = draw_bag(stream, spec);
    if (err != BP_OK)
        bp_stream_free(&stream);
    *out = stream;
    return err;
}

void bp_stream_free(bp_stream **stream)
{
    if (!*stream)
        return;
    bp_free((*stream)->block_token);
    bp_free((*stream)->first_place);
    bp_free((*stream)->drawn);
    bp_free((*stream)->weights);
    bp_free((*stream)->first_token);
    bp_free((*stream)->first_document);
    bp_free((*stream)->doc_start);
    bp_free(*stream);
    *stream = NULL;
}

int64_t bp_stream_tokens(const bp_stream *stream)
{
    return stream->tokens;
}

int64_t bp_stream_files(const bp_stream *stream)
{
    return stream->files;
}

void bp_stream_file(const bp_stream *stream, int64_t k, int64_t *first, int64_t *tokens)
{
    BP_ASSERT(stream->weights && k >= 0 && k < stream->files);
    *first = stream->bag ? stream->block_token[stream->first_place[k]] : stream->first_token[k];
    *tokens = (stream->bag ? stream->block_token[stream->first_place[k + 1]]
                           : stream->first_token[k + 1]) -
              *first;
}

const double *bp_stream_weights(const bp_stream *stream)
{
    return stream->weights;
}

static int64_t count_windows(int64_t tokens, int64_t context)
{
    return tokens > 0 ? (tokens - 1) / context : 0;
}

int64_t bp_stream_corpus_windows(const bp_stream *stream, int64_t context)
{
    int64_t windows = 0;

    if (!stream->weights)
        return count_windows(stream->first_token[stream->files], context);
    for (int64_t k = 0; k < stream->files; k++)
        if (stream->weights[k] > 0)
            windows += count_windows(stream->first_token[k + 1] - stream->first_token[k], context);
    return windows;
}

static bp_err check_tokens(const bp_stream *stream, int64_t k, int64_t tokens, int64_t context)
{
    if (tokens > context)
        return BP_OK;
    return BP_FAIL(
        BP_ERR_FORMAT, "corpus.too_short",
        "the corpus has %" PRId64 " tokens, fewer than one window of model.context + 1 = "
        "%" PRId64 "%s: at %s; use a longer text or a shorter context%s",
        tokens, context + 1, stream->bag ? ", in its bag" : "", bp_stream_path(stream, k),
        stream->bag ? ", or draw other bags with another run.seed" : "");
}

bp_err bp_stream_check(const bp_stream *stream, int64_t context)
{
    bp_err err = BP_OK;

    if (!stream->weights)
        return check_tokens(stream, 0, stream->tokens, context);
    for (int64_t k = 0; k < stream->files && err == BP_OK; k++) {
        int64_t first, tokens;

        bp_stream_file(stream, k, &first, &tokens);
        if (stream->weights[k] > 0)
            err = check_tokens(stream, k, tokens, context);
    }
    return err;
}

int64_t bp_stream_documents(const bp_stream *stream, int64_t k)
{
    return stream->first_document[k + 1] - stream->first_document[k];
}

bp_corpus *bp_stream_corpus(const bp_stream *stream)
{
    return stream->corpus;
}

const char *bp_stream_path(const bp_stream *stream, int64_t k)
{
    return bp_corpus_file_path(bp_corpus_file_at(stream->corpus, k));
}

int64_t bp_stream_clusters(const bp_stream *stream, int64_t *all)
{
    *all = stream->clusters;
    return stream->clusters_drawn;
}

int64_t bp_stream_drawn(const bp_stream *stream, int64_t document)
{
    BP_ASSERT(document >= 0 && document < stream->documents);
    return stream->bag ? (int64_t)stream->drawn[document] : 1;
}

static bp_err read_plain(bp_stream *stream, int64_t first, int64_t count, int32_t *tokens)
{
    bp_err err = BP_OK;

    for (int64_t k = bp_stretch_of(stream->first_token, stream->files, first);
         err == BP_OK && count > 0; k++) {
        int64_t left = stream->first_token[k + 1] - first;
        int64_t part = left < count ? left : count;

        if (part == 0) /* an empty file */
            continue;
        err = bp_corpus_file_read(bp_corpus_file_at(stream->corpus, k),
                                  first - stream->first_token[k], part, tokens);
        first += part;
        tokens += part;
        count -= part;
    }
    return err;
}

/* Read from token `first` on, which is in the block of `place`, to the block's end: *read tokens,
 * at most `count`. */
static bp_err read_block(bp_stream *stream, int64_t place, int64_t first, int64_t count,
                         int32_t *tokens, int64_t *read)
{
    int64_t group = bp_stretch_of(stream->first_place, stream->groups, place), d, end;
    int64_t blocks = group_blocks(stream, group), inner = place - stream->first_place[group];
    int64_t pass = inner / blocks, file;
    bp_err err = BP_OK;

    group_documents(stream, group, &d, &end);
    d += inner % blocks * BLOCK;
    file = bp_stretch_of(stream->first_document, stream->files, d);

    *read = 0;
    for (int64_t at = stream->block_token[place];
         err == BP_OK && *read < count && at < stream->block_token[place + 1]; d++) {
        while (d >= stream->first_document[file + 1])
            file++;
        if ((int64_t)stream->drawn[d] <= pass)
            continue;
        int64_t inside = first + *read - at, length = document_tokens(stream, file, d);

        if (inside < length) {
            int64_t part = length - inside < count - *read ? length - inside : count - *read;
            int64_t start = stream->doc_start[file][d - stream->first_document[file]];

            err = bp_corpus_file_read(bp_corpus_file_at(stream->corpus, file), start + inside, part,
                                      tokens + *read);
            *read += part;
        }
        at += length;
    }
    return err;
}

bp_err bp_stream_read(bp_stream *stream, int64_t first, int64_t count, int32_t *tokens)
{
    bp_err err = BP_OK;

    BP_ASSERT(first >= 0 && count >= 0 && first <= stream->tokens - count);
    if (!stream->bag)
        return read_plain(stream, first, count, tokens);
    while (err == BP_OK && count > 0) { /* block by block: of those of a thin pass many are empty */
        int64_t places = stream->first_place[stream->groups], read;
        int64_t place = bp_stretch_of(stream->block_token, places, first);

        err = read_block(stream, place, first, count, tokens, &read);
        first += read;
        tokens += read;
        count -= read;
    }
    return err;
}
