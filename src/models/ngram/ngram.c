/* The family of n-gram models: its keys and sizes, and how its model is made from a stream. Called
 * by ngram_plan.c. */
#include "models/family.h"

#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/h5/user_block.h"
#include "models/ngram/ngram_arpa_priv.h"
#include "models/ngram/ngram_count_priv.h"
#include "models/ngram/ngram_file_priv.h"
#include "models/ngram/ngram_model_priv.h"
#include "models/ngram/ngram_prune_priv.h"
#include "models/ngram/ngram_write_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The values of the key; a model read from another program's file has none of them. */
#define SMOOTHINGS "kneser-ney|mle|additive|good-turing|katz|witten-bell"
#define ORDER      5
#define DELTA      1
#define KATZ_K     7
#define MEMORY     ((int64_t)1 << 30)

/* The family's own sizes. */
typedef struct ngram_sizes {
    int64_t order, smoothing, katz_k;
    double delta;
} ngram_sizes;
BP_OWN_SIZES(ngram_sizes)

static const bp_model_size SIZES[] = {
    {.name = "order", .at = BP_OWN_AT(ngram_sizes, order), .optional = true},
    {.name = "smoothing",
     .at = BP_OWN_AT(ngram_sizes, smoothing),
     .type = BP_SIZE_CHOICE,
     .optional = true,
     .words = SMOOTHINGS "|arpa"},
    {.name = "delta", .at = BP_OWN_AT(ngram_sizes, delta), .type = BP_SIZE_REAL, .optional = true},
    {.name = "katz_k", .at = BP_OWN_AT(ngram_sizes, katz_k), .optional = true},
    {0}};

/* Keys of counting, which are not sizes of a model. */
typedef struct counting_keys {
    const char *prune;
    double prune_entropy;
    int64_t memory;
} counting_keys;

static const bp_option KEYS[] = {
    {BP_INT_KEY("ngram.order", NULL, 1, NGRAM_ORDER_MOST), .unit = "words",
     .help = "of the longest n-grams; 5 if not given"},
    {BP_CHOICE_KEY("ngram.smoothing", NULL, SMOOTHINGS),
     .help = "kneser-ney (modified, interpolated) if not given; mle, additive and good-turing have "
             "no back-off"},
    {BP_REAL_KEY("ngram.delta", NULL, 1e-9, 1e9),
     .help = "additive: what is added to each count; 1 if not given"},
    {BP_INT_KEY("ngram.katz_k", NULL, 1, 31),
     .help = "katz and good-turing: counts up to it are discounted, of single words those of 1; 7 "
             "if not given"},
    {BP_STRING_KEY("ngram.prune", NULL),
     .help = "n-grams seen this often or less are left out: a number an order (0,0,1), the last "
             "one for all longer ones too; 0 if not given",
     .at = BP_AT(counting_keys, prune)},
    {BP_REAL_KEY("ngram.prune_entropy", NULL, 0, 1),
     .help = "n-grams are left out whose removal makes the perplexity higher by less than this, "
             "relatively: 1e-8 for example; 0 if not given",
     .at = BP_AT(counting_keys, prune_entropy)},
    {BP_BYTES_KEY("ngram.memory", NULL, 1 << 20, 1e15), .unit = "bytes",
     .help = "of a rank, for n-grams that are sorted at a time; the rest is spilled to RUN/counts; "
             "1 GiB if not given",
     .at = BP_AT(counting_keys, memory), .may_change = true},
    {0}};

static const counting_keys *keys_of(const bp_config *config)
{
    return bp_config_bound(config, KEYS);
}

static void fill_defaults(bp_model_shape *shape)
{
    int64_t *order = &ngram_sizes_in(shape)->order, *k = &ngram_sizes_in(shape)->katz_k;
    double *delta = &ngram_sizes_in(shape)->delta;

    *order = *order > 0 ? *order : ORDER;
    *k = *k > 0 ? *k : KATZ_K;
    *delta = *delta > 0 ? *delta : DELTA;
}

/* ---- ngram.prune ---- */

/* One number per order, nondecreasing; the last one is for all later orders. */
static bool read_prune(int64_t prune[NGRAM_ORDERS], const char *list, int order)
{
    const char *at = list;
    int k = 1;

    for (;; k++) {
        char *end;
        long long value = strtoll(at, &end, 10);

        if (end == at || value < 0 || k > order || (k > 1 && value < prune[k - 1]))
            return false;
        prune[k] = value;
        if (*end == '\0')
            break;
        if (*end != ',')
            return false;
        at = end + 1;
    }
    if (k == 1 && order > 1) /* a single number does not prune single words */
        prune[2] = prune[1], prune[1] = 0, k = 2;
    for (k++; k <= order; k++)
        prune[k] = prune[k - 1];
    return prune[1] == 0;
}

static const char *prune_of(const bp_config *config)
{
    const char *list = keys_of(config)->prune;

    return list ? list : "0";
}

static void check(const bp_model_shape *shape, int tensor_ranks, bp_config *config)
{
    int64_t prune[NGRAM_ORDERS] = {0}, pipeline = bp_mesh_keys_of(config)->pipeline;
    int order = (int)ngram_sizes_of(shape)->order;
    double entropy = keys_of(config)->prune_entropy;
    const char *list = prune_of(config);
    ngram_smoothing smoothing = (ngram_smoothing)ngram_sizes_of(shape)->smoothing;

    if (tensor_ranks > 1 || pipeline > 1)
        bp_config_fault(config, "ngram.split_mesh",
                        "mesh.tensor = %d and mesh.pipeline = %lld, but counts are not split over "
                        "them: at model.kind; leave both at 1, all ranks count",
                        tensor_ranks, (long long)pipeline);
    if (!read_prune(prune, list, order))
        bp_config_fault(
            config, "ngram.bad_prune",
            "ngram.prune = %s is not a list of numbers from 0 on, one for each of the orders "
            "1 to %d, which begins with 0 and does not fall: at ngram.prune; use 0,0,1 "
            "for example",
            list, order);
    else if ((prune[order] > 0 || entropy > 0) && !ngram_backs_off(smoothing))
        bp_config_fault(config, "ngram.prune_without_back_off",
                        "%s is set, but what is left out of a model without back-off has no "
                        "probability: at ngram.smoothing; use kneser-ney, katz or witten-bell",
                        prune[order] > 0 ? "ngram.prune" : "ngram.prune_entropy");
    if (shape->vocab_size > 0 && ngram_bits(shape->vocab_size) * order > NGRAM_KEY_BITS)
        bp_config_fault(config, "ngram.order_too_high",
                        "ngram.order = %d of a vocabulary of %lld ids is more than %d bits: at "
                        "ngram.order; use %d",
                        order, (long long)shape->vocab_size, NGRAM_KEY_BITS,
                        NGRAM_KEY_BITS / ngram_bits(shape->vocab_size));
}

static bp_err check_read(const bp_model_shape *shape, const char *where)
{
    if (ngram_sizes_of(shape)->order <= NGRAM_ORDER_MOST)
        return BP_OK;
    return BP_FAIL(
        BP_ERR_FORMAT, "ngram.bad_order",
        "the order %lld is more than %d: at %s; the checkpoint was not written by bagpipe",
        (long long)ngram_sizes_of(shape)->order, NGRAM_ORDER_MOST, where);
}

/* Only counting can determine the number of n-grams. */
static bp_model_facts facts(const bp_model_shape *shape)
{
    (void)shape;
    return (bp_model_facts){.parameters = 0};
}

static int64_t state_width(const bp_model_shape *shape)
{
    (void)shape;
    return NGRAM_STATE_WIDTH;
}

/* ---- counting ---- */

ngram_spec ngram_spec_of(const bp_config *config, const bp_model_shape *shape, int64_t eod_id)
{
    int64_t memory = keys_of(config)->memory;
    ngram_spec spec = {.order = (int)ngram_sizes_of(shape)->order,
                       .bits = ngram_bits(shape->vocab_size),
                       .vocab_size = shape->vocab_size,
                       .eod_id = eod_id,
                       .entropy = keys_of(config)->prune_entropy,
                       .memory_bytes = memory > 0 ? memory : MEMORY,
                       .rule = {.smoothing = (ngram_smoothing)ngram_sizes_of(shape)->smoothing,
                                .delta = ngram_sizes_of(shape)->delta,
                                .katz_k = ngram_sizes_of(shape)->katz_k,
                                .outcomes = shape->vocab_size}};

    BP_CHECK(read_prune(spec.prune, prune_of(config), spec.order));
    return spec;
}

/* Runs serve all models of one order, with any smoothing. */
static void name_work(char work[BP_SHA256_HEX], const bp_counting *counting, int order)
{
    char *text = bp_sprintf("runs 1 %s %d", counting->work, order);

    bp_sha256_of(text, strlen(text), work);
    bp_free(text);
}

static void write_state(json_t *state, const ngram_spec *spec, const ngram_levels *levels)
{
    json_t *list = json_array();

    for (int k = 1; k <= spec->order; k++)
        (void)json_array_append_new(list, json_integer((json_int_t)levels->total[k]));
    (void)json_object_set_new(state, "ngrams", list);
    for (int k = 1; k <= spec->order; k++)
        bp_log("order %d: %" PRId64 " n-grams", k, levels->total[k]);
}

static bp_err write_model(bp_counting *counting, const ngram_spec *spec, const ngram_levels *levels,
                          const char *smoothing)
{
    char *path = bp_path_join(counting->folder, BP_COUNTING_FILE);
    char detail[BP_USER_BLOCK_DETAIL];
    bp_err err;

    (void)snprintf(detail, sizeof detail, "order %d, %s", spec->order, smoothing);
    counting->progress(counting->context, "writing", 0, 1);
    err = ngram_write(path, counting->comm, spec, levels, detail);
    if (err == BP_OK && counting->valid_tokens > 0)
        err = ngram_validate(counting, path);
    bp_free(path);
    return err;
}

bp_err ngram_count(bp_counting *counting)
{
    ngram_spec spec = ngram_spec_of(counting->config, counting->shape, counting->eod_id);
    char work[BP_SHA256_HEX];
    ngram_run *runs = NULL;
    ngram_counts counts = {0};
    ngram_levels levels = {0};
    int64_t count = 0;
    bp_err err;

    name_work(work, counting, spec.order);
    err = ngram_count_stream(&runs, &count, counting, &spec, work);
    if (err == BP_OK)
        err = ngram_merge(&counts, counting, &spec, runs, count);
    ngram_runs_free(&runs, count);
    if (err == BP_OK)
        err = ngram_estimate(&levels, counting, &spec, &counts);
    ngram_counts_clear(&counts);
    if (err == BP_OK && spec.entropy > 0 && spec.order > 1)
        err = ngram_prune(&levels, counting, &spec);
    if (err == BP_OK)
        err = write_model(counting, &spec, &levels,
                          bp_config_string(counting->config, "ngram.smoothing"));
    if (err == BP_OK && counting->state)
        write_state(counting->state, &spec, &levels);
    ngram_levels_clear(&levels);
    return err;
}

static int64_t file_bytes(const bp_model_shape *shape, const json_t *state)
{
    const json_t *list = json_object_get(state, "ngrams");
    ngram_header header = {.order = (uint32_t)json_array_size(list),
                           .word_bytes = ngram_word_bytes(shape->vocab_size)};

    for (size_t k = 0; k < json_array_size(list) && k < NGRAM_ORDER_MOST; k++)
        header.count[k] = (uint64_t)json_integer_value(json_array_get(list, k));
    return header.order <= NGRAM_ORDER_MOST ? ngram_layout_of(&header).bytes : 0;
}

/* ---- ARPA files ---- */

static bp_err import(const bp_model_family *family, bp_model_import *out, const char *path,
                     const bp_tokenizer *tokenizer)
{
    ngram_spec spec;
    ngram_levels levels;
    bp_err err = ngram_arpa_read(&levels, &spec, tokenizer, &out->tokenizer, path);

    if (err == BP_OK) {
        spec.rule = (ngram_rule){.smoothing = NGRAM_ARPA, .outcomes = spec.vocab_size};
        err = ngram_write(out->file, MPI_COMM_SELF, &spec, &levels, "an ARPA file");
    }
    if (err == BP_OK) {
        out->shape = (bp_model_shape){.family = family, .vocab_size = spec.vocab_size};
        ngram_sizes_in(&out->shape)->order = spec.order;
        ngram_sizes_in(&out->shape)->smoothing = NGRAM_ARPA;
        out->eod_id = spec.eod_id;
        out->state = json_object();
        fill_defaults(&out->shape);
        write_state(out->state, &spec, &levels);
    }
    ngram_levels_clear(&levels);
    return err;
}

/* One pass over all of the stream: there are no steps and no batches. */
static const char *const REQUIRED[] = {NULL};

static const bp_counting_ops COUNTING = {.count = ngram_count,
                                         .plan = ngram_plan,
                                         .open = ngram_model_open,
                                         .open_file = ngram_model_open_file,
                                         .file_bytes = file_bytes};
static const bp_text_form ARPA = {
    .name = "ARPA", .is = ngram_arpa_is, .write = ngram_arpa_export, .read = import};

const bp_model_family bp_ngram_family = {.name = "ngram",
                                         .section = "ngram",
                                         .sizes = SIZES,
                                         .keys = KEYS,
                                         .required = REQUIRED,
                                         .fill_defaults = fill_defaults,
                                         .check = check,
                                         .check_read = check_read,
                                         .facts = facts,
                                         .unlimited = true,
                                         .benched = true,
                                         .state_width = state_width,
                                         .counting = &COUNTING,
                                         .text_form = &ARPA};
