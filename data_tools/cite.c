/* bagpipe-data cite: which training documents are nearest to a text, by a datastore of contexts.
 */
#include "arguments.h"
#include "base/buffer.h"
#include "base/config/decimal.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/numbers.h"
#include "base/sort.h"
#include "file_tool.h"
#include "infer/neighbours/datastore.h"
#include "math/math.h"
#include "mesh/mesh.h"
#include "models/open.h"
#include "table/scores.h"
#include "tools.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS_SHOWN 16   /* before an entry, and its own */
#define SOURCE_SHOWN 64   /* of a source, its first */
#define BATCH_TOKENS 4096 /* of windows side by side */

typedef struct cite_arguments {
    tool_files files; /* CHECKPOINT DATASTORE TEXT */
    int64_t k, count, memory_mib;
    const char *temperature, *source;
    bool entries;
} cite_arguments;

static const struct argp_option OPTIONS[] = {
    {"neighbours", 'k', "K", 0, "nearest entries of each token of the text (default: 16)", 0},
    {"count", 0, "N", 0, "documents to print (default: 10)", 0},
    {"temperature", 0, "T", 0, "by which squared distances are divided (default: 1)", 0},
    {"entries", 0, NULL, 0, "print every nearest entry of a token instead", 0},
    {"source", 0, "SOURCE", 0, "of an encoder-decoder: what TEXT is written for", 0},
    {"memory", 0, "MIB", 0, "of a rank, for keys of the datastore (default: 1024)", 0},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done"},
    {"64", "wrong command line"},
    {"65", "the datastore is damaged or of another model, or the text is empty or too long"},
    {"66", "a file is missing"},
    {"78", "the model has no keys, or the datastore fewer entries than K"},
    {0}};

typedef struct citing {
    const cite_arguments *arguments;
    double temperature;
    bp_mesh *mesh;
    bp_model *model;
    bp_datastore *store;
    bp_tokenizer *tokenizer;
    bp_ids ids, source;  /* of the text; of what it is written for */
    float *queries;      /* [ids.count][columns]: of each token in its context */
    bp_neighbour *found; /* [ids.count][k] */
    int64_t documents;
    int64_t *starts; /* [documents + 1] */
    size_t id_bytes;
} citing;

/* ---- the model and the text ---- */

static void warn_of_rounding(const bp_datastore_info *store, const char *path)
{
    if (store->precision[0] && strcmp(store->precision, "f32") != 0)
        BP_WARN("datastore.rounded_keys",
                "the keys of the datastore were computed in %s, those of the text are in f32, so "
                "that distances of equal contexts are small but not 0: at %s; for exact ones score "
                "the training text again with score.states=yes math.precision=f32",
                store->precision, path);
}

static bp_err open_model(citing *self)
{
    static const bp_option *const TABLES[] = {bp_mesh_options, bp_math_options, NULL};
    const cite_arguments *arguments = self->arguments;
    bp_mesh_shape shape;
    bp_config *config = NULL;
    bp_err err = bp_config_new(&config, TABLES, TABLES);

    if (err == BP_OK) /* the same queries on any CPU */
        err = bp_config_set(config, "math.precision", "f32");
    if (err == BP_OK)
        err = bp_mesh_open(&self->mesh, &shape, config, MPI_COMM_WORLD, NULL);
    if (err == BP_OK) {
        bp_math_set_threads(bp_math_threads_planned(MPI_COMM_WORLD, 0, NULL));
        err = bp_model_open(&self->model, self->mesh, config, arguments->files.list[0]);
    }
    bp_config_free(&config);
    if (err == BP_OK && !self->model->info.states.keys)
        err = BP_FAIL(BP_ERR_CONFIG, "cite.no_keys",
                      "a model of kind %s has no keys of texts: at %s; take a Transformer that "
                      "continues texts or fills them in",
                      self->model->info.kind, arguments->files.list[0]);
    if (err == BP_OK && self->model->info.reads_source != (arguments->source != NULL))
        err = BP_FAIL(BP_ERR_USAGE, "cite.other_source",
                      "a model of kind %s reads %s: at --source; %s", self->model->info.kind,
                      arguments->source ? "no source" : "the source that the text is written for",
                      arguments->source ? "leave it out" : "give it");
    if (err != BP_OK)
        return err;
    err = bp_datastore_open(&self->store, MPI_COMM_WORLD, MPI_COMM_WORLD,
                            &(bp_datastore_spec){.path = arguments->files.list[1],
                                                 .model = &self->model->info,
                                                 .memory_bytes = arguments->memory_mib << 20});
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        warn_of_rounding(bp_datastore_info_of(self->store), arguments->files.list[1]);
    return err;
}

static bp_err encode(citing *self)
{
    const char *text = self->arguments->files.list[2], *source = self->arguments->source;
    bp_encoder *encoder = NULL;
    bp_err err = score_tokenizer_load(&self->tokenizer, bp_datastore_file(self->store));

    if (err == BP_OK && !self->tokenizer)
        err = BP_FAIL(BP_ERR_FORMAT, "scores.no_tokenizer",
                      "the datastore keeps no tokenizer: at %s; score a corpus that does",
                      self->arguments->files.list[1]);
    if (err == BP_OK)
        err = bp_encoder_new(&encoder, self->tokenizer);
    if (err == BP_OK)
        err = bp_encode(encoder, text, strlen(text), &self->ids);
    if (err == BP_OK && source)
        err = bp_encode(encoder, source, strlen(source), &self->source);
    bp_encoder_free(&encoder);
    return err;
}

static bp_err check_text(const char *what, int64_t count, int64_t most)
{
    if (count == 0)
        return BP_FAIL(BP_ERR_FORMAT, "cite.empty_text",
                       "the %s has no token: at the command line; give one", what);
    if (count <= most)
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "cite.long_text",
                   "the %s has %" PRId64 " tokens, and %" PRId64
                   " fit into the model's context: at the command line; give a part of it",
                   what, count, most);
}

static bp_err check_texts(const citing *self, int64_t frame)
{
    int64_t context = self->model->info.context, end = self->model->info.eod_id >= 0;
    bp_err err = check_text("text", self->ids.count, context - frame);

    return err == BP_OK && self->arguments->source
               ? check_text("source", self->source.count, context - end)
               : err;
}

/* What a window's tokens are predicted from: keys[windows][length][columns]. */
static bp_err find_keys(citing *self, const bp_model_batch *batch, float **keys)
{
    int64_t positions = batch->windows * batch->length;
    float *values = bp_alloc("tool.cite", positions, sizeof *values);

    *keys = bp_alloc("tool.cite", positions * self->model->info.states.columns, sizeof **keys);
    bp_err err = self->model->ops->keys(self->model, batch, values, *keys);
    bp_free(values);
    return err;
}

/* What precedes a text, as bagpipe score reads one where no key is set; -1: nothing. */
static int64_t prefix_of(const bp_model_info *info)
{
    if (info->reads_source)
        return info->start_token;
    return info->has_bos ? info->bos_id : info->eod_id;
}

/* After each token of the text, preceded by its prefix; a target begins with the token that its
 * decoder begins with, and its source ends with the end of a document. */
static bp_err find_following(citing *self, bool prefix)
{
    const bp_model_info *info = &self->model->info;
    int64_t count = self->ids.count, length = count + prefix, C = info->states.columns;
    int32_t *inputs = bp_alloc("tool.cite", length, sizeof *inputs),
            *targets = bp_alloc("tool.cite", length, sizeof *targets),
            *sources = bp_alloc("tool.cite", self->source.count + 1, sizeof *sources),
            source_length = (int32_t)(self->source.count + (info->eod_id >= 0));
    bp_model_batch batch = {.windows = 1, .length = length, .inputs = inputs, .targets = targets};
    float *keys = NULL;

    if (info->reads_source) {
        batch.source_length = source_length;
        batch.sources = sources;
        batch.source_lengths = &source_length;
    }
    sources[self->source.count] = (int32_t)info->eod_id;
    for (int64_t t = 0; t < self->source.count; t++)
        sources[t] = (int32_t)self->source.data[t];
    if (prefix)
        inputs[0] = (int32_t)prefix_of(info);
    for (int64_t t = 0; t < length; t++)
        targets[t] = -1;
    for (int64_t t = 0; t < count; t++)
        inputs[t + prefix] = (int32_t)self->ids.data[t];
    targets[length - 1] = inputs[0]; /* a batch has a target */
    bp_err err = find_keys(self, &batch, &keys);
    if (err == BP_OK)
        memcpy(self->queries, keys + prefix * C, (size_t)(count * C) * sizeof *keys);
    bp_free(keys);
    bp_free(sources);
    bp_free(targets);
    bp_free(inputs);
    return err;
}

/* A window of a masked model: the text in its frame, one token of it masked. */
static void fill_masked(const citing *self, int64_t masked, int32_t *inputs, int32_t *targets)
{
    int64_t count = self->ids.count;

    inputs[0] = (int32_t)bp_tokenizer_role(self->tokenizer, BP_ROLE_CLS);
    inputs[count + 1] = (int32_t)bp_tokenizer_role(self->tokenizer, BP_ROLE_SEP);
    for (int64_t t = 0; t < count; t++)
        inputs[t + 1] = (int32_t)self->ids.data[t];
    for (int64_t t = 0; t < count + 2; t++)
        targets[t] = t == masked + 1 ? inputs[t] : -1;
    inputs[masked + 1] = (int32_t)bp_tokenizer_role(self->tokenizer, BP_ROLE_MASK);
}

/* At the place of each token, which is masked. */
static bp_err find_masked(citing *self)
{
    int64_t count = self->ids.count, length = count + 2, C = self->model->info.states.columns;
    int64_t side = length < BATCH_TOKENS ? BATCH_TOKENS / length : 1;
    int32_t *inputs = bp_alloc("tool.cite", side * length, sizeof *inputs),
            *targets = bp_alloc("tool.cite", side * length, sizeof *targets);
    bp_err err = BP_OK;

    for (int64_t first = 0; first < count && err == BP_OK; first += side) {
        bp_model_batch batch = {.windows = count - first < side ? count - first : side,
                                .length = length,
                                .inputs = inputs,
                                .targets = targets};
        float *keys = NULL;

        for (int64_t w = 0; w < batch.windows; w++)
            fill_masked(self, first + w, inputs + w * length, targets + w * length);
        err = find_keys(self, &batch, &keys);
        for (int64_t w = 0; w < batch.windows && err == BP_OK; w++)
            memcpy(self->queries + (first + w) * C, keys + (w * length + first + w + 1) * C,
                   (size_t)C * sizeof *keys);
        bp_free(keys);
    }
    bp_free(targets);
    bp_free(inputs);
    return err;
}

static bp_err find_queries(citing *self)
{
    const bp_model_info *info = &self->model->info;
    bool prefix = info->reads_source || prefix_of(info) >= 0;
    bp_err err = bp_agree(MPI_COMM_WORLD, check_texts(self, info->masks ? 2 : prefix));

    if (err != BP_OK)
        return err;
    self->queries =
        bp_alloc("tool.cite", self->ids.count * info->states.columns, sizeof *self->queries);
    err = info->masks ? find_masked(self) : find_following(self, prefix);
    return bp_agree(MPI_COMM_WORLD, err);
}

static bp_err find_neighbours(citing *self)
{
    int64_t k = self->arguments->k, entries = bp_datastore_info_of(self->store)->entries;

    if (k > entries)
        return BP_FAIL(BP_ERR_CONFIG, "cite.too_many",
                       "%" PRId64 " neighbours are more than the %" PRId64
                       " entries of the datastore %s: at --neighbours; use %" PRId64 " or less",
                       k, entries, self->arguments->files.list[1], entries);
    self->found = bp_alloc("tool.cite", self->ids.count * k, sizeof *self->found);
    return bp_datastore_search(self->store, self->queries, self->ids.count, k, self->found);
}

/* ---- documents ---- */

static bp_err load_documents(citing *self)
{
    bp_h5 *file = bp_datastore_file(self->store);
    const char *path = self->arguments->files.list[1];
    int64_t rows = bp_datastore_info_of(self->store)->rows;
    bp_h5_shape starts, names;
    bp_err err = bp_h5_shape_of(file, "doc_start", &starts);

    if (err == BP_OK)
        err = bp_h5_shape_of(file, "doc_id", &names);
    if (err != BP_OK)
        return err;
    self->documents = names.count;
    self->id_bytes = names.width;
    if (names.is_text && names.dims == 1 && starts.dims == 1 && starts.count == names.count + 1) {
        self->starts = bp_alloc("tool.cite", starts.count, sizeof *self->starts);
        err = bp_h5_read(file, "doc_start", BP_H5_I64, 0, self->starts, starts.count);
        for (int64_t d = 0; err == BP_OK && d < self->documents; d++)
            if (self->starts[d] < 0 || self->starts[d] > self->starts[d + 1])
                rows = -1;
        if (err != BP_OK || self->starts[self->documents] == rows)
            return err;
    }
    return BP_FAIL(BP_ERR_FORMAT, "scores.damaged",
                   "damaged: /doc_start and /doc_id are not as scores have them: at %s; score "
                   "again",
                   path);
}

static int64_t document_of(const citing *self, int64_t row)
{
    return bp_stretch_of(self->starts, self->documents, row);
}

static bp_err print_name(const citing *self, int64_t document)
{
    char *name = bp_alloc("tool.cite", (int64_t)self->id_bytes + 1, 1);
    bp_err err = bp_h5_read_text(bp_datastore_file(self->store), "doc_id", self->id_bytes, document,
                                 name, 1);

    if (err == BP_OK)
        put_clean(name, SIZE_MAX, "");
    bp_free(name);
    return err;
}

/* The row that the text of a document begins with: of a pair the target's first, which is the first
 * that has a key. */
static bp_err find_begin(const citing *self, int64_t document, int64_t *begin)
{
    int64_t end = self->starts[document + 1], scored[SOURCE_SHOWN];
    bp_err err = BP_OK;

    *begin = self->starts[document];
    for (bool found = !self->arguments->source; !found && *begin < end && err == BP_OK;) {
        int64_t left = end - *begin, count = left < SOURCE_SHOWN ? left : SOURCE_SHOWN;

        err =
            bp_h5_read(bp_datastore_file(self->store), "scored", BP_H5_I64, *begin, scored, count);
        for (int64_t i = 0; err == BP_OK && !found && i < count; i++) {
            found = scored[i] != 0;
            *begin += !found;
        }
    }
    return err;
}

/* Tokens of the datastore, 64 at most. */
static bp_err print_text(const citing *self, int64_t first, int64_t count)
{
    int64_t ids[SOURCE_SHOWN];
    uint32_t tokens[SOURCE_SHOWN];
    char *bytes = NULL;
    size_t length = 0;
    bp_buffer text = {0};
    bp_err err = bp_h5_read(bp_datastore_file(self->store), "tokens", BP_H5_I64, first, ids, count);

    for (int64_t i = 0; err == BP_OK && i < count; i++)
        tokens[i] = (uint32_t)ids[i];
    if (err == BP_OK)
        err = bp_decode(self->tokenizer, tokens, count, &bytes, &length);
    if (err == BP_OK) {
        bp_text_escape(&text, bytes, length);
        (void)fwrite(text.data, 1, text.bytes, stdout);
    }
    bp_buffer_clear(&text);
    bp_free(bytes);
    return err;
}

/* ---- what is printed ---- */

static void print_head(const citing *self, const char *columns)
{
    printf("%s\tdistance\tdocument\tdoc_id\tposition\t%s\n", columns,
           self->arguments->source ? "source\ttarget" : "text");
}

/* The tokens before an entry, and the one that followed; of a pair its source before them. */
static bp_err print_place(const citing *self, const bp_neighbour *one)
{
    int64_t document = document_of(self, one->row), start = self->starts[document], begin;
    bp_err err = find_begin(self, document, &begin);

    printf("%.9g\t%" PRId64 "\t", one->distance, document);
    if (err == BP_OK)
        err = print_name(self, document);
    printf("\t%" PRId64 "\t", one->row - begin);
    if (err == BP_OK && self->arguments->source) {
        err = print_text(self, start, bp_min(begin - start, SOURCE_SHOWN));
        printf("\t");
    }
    if (err == BP_OK) {
        int64_t count = bp_min(one->row - begin + 1, TOKENS_SHOWN);

        err = print_text(self, one->row - count + 1, count);
    }
    printf("\n");
    return err;
}

static bp_err print_entries(const citing *self)
{
    int64_t k = self->arguments->k;
    bp_err err = BP_OK;

    print_head(self, "token\trank");
    for (int64_t i = 0; i < self->ids.count * k && err == BP_OK; i++) {
        printf("%" PRId64 "\t%" PRId64 "\t", i / k, i % k + 1);
        err = print_place(self, &self->found[i]);
    }
    return err;
}

/* What a document has of the neighbours' weight, a mean over the text's tokens, and its nearest
 * entry. */
typedef struct citation {
    double share;
    const bp_neighbour *nearest; /* NULL if no token cites it */
} citation;

static int compare_citations(const void *a, const void *b)
{
    const citation *x = a, *y = b;

    if (x->share != y->share)
        return x->share > y->share ? -1 : 1;
    if (!x->nearest || !y->nearest)
        return (y->nearest != NULL) - (x->nearest != NULL);
    return (x->nearest->row > y->nearest->row) - (x->nearest->row < y->nearest->row);
}

static void weigh_token(const citing *self, const bp_neighbour *found, citation *all)
{
    int64_t k = self->arguments->k;
    double sum = 0;

    for (int64_t i = 0; i < k; i++)
        sum += exp((found[0].distance - found[i].distance) / self->temperature);
    for (int64_t i = 0; i < k; i++) {
        citation *one = &all[document_of(self, found[i].row)];

        one->share += exp((found[0].distance - found[i].distance) / self->temperature) / sum /
                      (double)self->ids.count;
        if (!one->nearest || found[i].distance < one->nearest->distance)
            one->nearest = &found[i];
    }
}

static bp_err print_documents(const citing *self)
{
    citation *all = bp_alloc("tool.cite", self->documents, sizeof *all);
    bp_err err = BP_OK;

    for (int64_t t = 0; t < self->ids.count; t++)
        weigh_token(self, self->found + t * self->arguments->k, all);
    qsort(all, (size_t)self->documents, sizeof *all, compare_citations);
    print_head(self, "share");
    for (int64_t d = 0; d < self->documents && d < self->arguments->count && err == BP_OK; d++) {
        if (!all[d].nearest)
            break;
        printf("%.6f\t", all[d].share);
        err = print_place(self, all[d].nearest);
    }
    bp_free(all);
    return err;
}

/* ---- the tool ---- */

static bp_err cite(citing *self)
{
    bp_err err = open_model(self);

    if (err == BP_OK)
        err = bp_agree(MPI_COMM_WORLD, encode(self));
    if (err == BP_OK)
        err = find_queries(self);
    if (err == BP_OK)
        err = find_neighbours(self);
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD)) {
        err = load_documents(self);
        if (err == BP_OK)
            err = self->arguments->entries ? print_entries(self) : print_documents(self);
    }
    return bp_agree(MPI_COMM_WORLD, err);
}

static bp_err check(citing *self)
{
    const cite_arguments *arguments = self->arguments;

    if (arguments->files.count != 3)
        return BP_FAIL(BP_ERR_USAGE, "command.wrong_count",
                       "it takes a checkpoint, a datastore and a text, and here are %d: at the "
                       "command line; see bagpipe-data cite --help",
                       arguments->files.count);
    if (!bp_decimal(&self->temperature, arguments->temperature, strlen(arguments->temperature)) ||
        !(self->temperature > 0))
        return BP_FAIL(BP_ERR_USAGE, "command.bad_number",
                       "'%s' is not a number above 0: at --temperature; give one",
                       arguments->temperature);
    return BP_OK;
}

static bp_err run(int argc, char **argv)
{
    cite_arguments arguments = {.k = 16, .count = 10, .memory_mib = 1024, .temperature = "1"};
    const tool_value values[] = {
        {.option = "neighbours", .number = &arguments.k, .low = 1, .high = 1000000},
        {.option = "count", .number = &arguments.count, .low = 1, .high = INT64_MAX},
        {.option = "temperature", .text = &arguments.temperature},
        {.option = "entries", .flag = &arguments.entries},
        {.option = "source", .text = &arguments.source},
        {.option = "memory", .number = &arguments.memory_mib, .low = 1, .high = INT64_C(1) << 40},
        {0}};
    bp_err err = tool_parse(&bp_tool_cite, values, &arguments.files, argc, argv);
    citing self = {.arguments = &arguments};

    if (err == BP_OK)
        err = check(&self);
    if (err == BP_OK)
        err = cite(&self);
    bp_free(self.starts);
    bp_free(self.found);
    bp_free(self.queries);
    bp_ids_clear(&self.source);
    bp_ids_clear(&self.ids);
    bp_tokenizer_free(&self.tokenizer);
    bp_datastore_close(&self.store);
    bp_model_free(&self.model);
    bp_mesh_free(&self.mesh);
    return err;
}

const bp_tool bp_tool_cite = {
    .name = "cite",
    .help = {.name = "bagpipe-data cite",
             .usage = "CHECKPOINT DATASTORE TEXT",
             .summary = "finds the training documents nearest to a text",
             .text =
                 "DATASTORE is the file score/states.h5 that bagpipe score wrote of the training "
                 "text under CHECKPOINT, with score.states=yes; with math.precision=f32 its keys "
                 "are as exact as those of TEXT.\n"
                 "Each token of TEXT, in its context, is compared with the entries of the "
                 "datastore, of which the K nearest count. A token is found by what follows it; "
                 "with a masked model, by its own masked place. Their weights are proportional to "
                 "exp(-d / T), d being squared distances, and sum to 1. A document's share is the "
                 "weight of its entries, as a mean over the tokens of the text.\n"
                 "A line has the share, the squared distance of the document's nearest entry, the "
                 "document's number and id, the entry's position in it, and the text that ends "
                 "with the entry's token. For an encoder-decoder, the position is that in the "
                 "document's target, and the line ends with its source and the target up to the "
                 "entry's token. Under mpirun ranks share the datastore out.",
             .options = OPTIONS,
             .examples = "  bagpipe score small.ini run.dir=runs/store score.model=runs/small \\\n"
                         "      score.corpus=train.h5 score.states=yes math.precision=f32\n"
                         "  bagpipe-data cite runs/small runs/store/score/states.h5 \\\n"
                         "      \"In the beginning\"\n",
             .statuses = STATUSES},
    .run = run};
