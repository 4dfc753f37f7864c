/* The names of pair_family.c's family in a Hugging Face folder: nobody's, so they are nearly ours;
 * but keys and values lie together, and weights are transposed where a row says so. */
#include "io/huggingface/hf_table.h"

#define WIDE  "width", "width"
#define INNER "2*width"
#define GATES "3*width", "width"
#define VECTOR(theirs, rows, name)                                                                 \
    {                                                                                              \
        theirs, rows, NULL, false, 1,                                                              \
        {                                                                                          \
            name                                                                                   \
        }                                                                                          \
    }
#define MATRIX(theirs, extents, name)                                                              \
    {                                                                                              \
        theirs, extents, false, 1,                                                                 \
        {                                                                                          \
            name                                                                                   \
        }                                                                                          \
    }
#define ATTENTION(their, our)                                                                      \
    MATRIX(their ".q.weight", WIDE, our ".q.weight"),                                              \
        {their ".kv.weight", "width", INNER, true, 2, {our ".k.weight", our ".v.weight"}},         \
        VECTOR(their ".q.bias", "width", our ".q.bias"),                                           \
        {their ".kv.bias", INNER, NULL, false, 2, {our ".k.bias", our ".v.bias"}},                 \
        MATRIX(their ".o.weight", WIDE, our ".out.weight"),                                        \
        VECTOR(their ".o.bias", "width", our ".out.bias")
#define NORM(their, our)                                                                           \
    VECTOR(their ".weight", "width", our ".gain"), VECTOR(their ".bias", "width", our ".bias")
#define LAYER(their, our)                                                                          \
    NORM(their ".*.norm1", our ".*.ln1"), ATTENTION(their ".*.self", our ".*.attn"),               \
        NORM(their ".*.norm2", our ".*.ln2"),                                                      \
        {their ".*.up.weight", INNER, "width", false, 1, {our ".*.mlp.up.weight"}},                \
        VECTOR(their ".*.up.bias", INNER, our ".*.mlp.up.bias"),                                   \
        {their ".*.down.weight", INNER, "width", true, 1, {our ".*.mlp.down.weight"}},             \
        VECTOR(their ".*.down.bias", "width", our ".*.mlp.down.bias")

static const bp_hf_size SIZES[] = {{"layers", "layers", NULL},    {"width", "d_model", NULL},
                                   {"heads", "heads", NULL},      {"context", "places", NULL},
                                   {"vocab_size", "words", NULL}, {0}};
static const bp_hf_setting SETTINGS[] = {{"classes", "4"}, {0}};
static const bp_hf_row ROWS[] = {{"shared.weight", "vocab_size", "width", false, 1, {"wte"}},
                                 {"places.weight", "context", "width", false, 1, {"wpe"}},
                                 {"source.places.weight", "16", "width", false, 1, {"source.wpe"}},
                                 MATRIX("gru.input.weight", GATES, "h.0.input.weight"),
                                 MATRIX("gru.hidden.weight", GATES, "h.0.hidden.weight"),
                                 VECTOR("gru.input.bias", "3*width", "h.0.input.bias"),
                                 VECTOR("gru.hidden.bias", "3*width", "h.0.hidden.bias"),
                                 LAYER("encoder", "source"),
                                 LAYER("decoder", "text"),
                                 NORM("decoder.*.norm3", "text.*.cross.ln"),
                                 ATTENTION("decoder.*.cross", "text.*.cross"),
                                 NORM("class.norm", "class.ln"),
                                 {"class.weight", "4", "width", false, 1, {"class.weight"}},
                                 NORM("norm", "ln_f"),
                                 {0}};
static const char *const BUFFERS[] = {NULL};

static bp_err check(const bp_hf_shape *shape, const char *path)
{
    if (bp_hf_size_of(shape, "context") == 32) /* so that the source has 16 positions */
        return BP_OK;
    return BP_FAIL(BP_ERR_FORMAT, "test.no_places",
                   "\"positions\" is not 32: at %s; give another model", path);
}

static const bp_hf_table PAIR = {.kind = "pair",
                                 .model_type = "pair",
                                 .architecture = "Pair",
                                 .prefix = "model.",
                                 .first = "shared.weight",
                                 .sizes = SIZES,
                                 .settings = SETTINGS,
                                 .rows = ROWS,
                                 .buffers = BUFFERS,
                                 .more = "{}",
                                 .check = check};

const bp_hf_table *const test_family_huggingface[] = {&PAIR, NULL};
