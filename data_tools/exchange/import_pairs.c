/* How a tokenizer.json frames two texts: what an imported model does with pairs. Called by
 * import.c. */
#include "import_pairs.h"

#include "base/files/fs.h"

#define TOKENIZER_LIMIT ((int64_t)1 << 28)

static bool is_special(const json_t *piece)
{
    return json_object_get(piece, "SpecialToken") != NULL;
}

typedef struct pair_template {
    int before, between, after; /* special tokens: first, between two texts, at the end */
    bool segments;              /* the second text is of segment 1 */
} pair_template;

static pair_template read_template(const json_t *pieces)
{
    pair_template out = {0};
    const json_t *piece;
    size_t k;
    int texts = 0;

    json_array_foreach(pieces, k, piece)
    {
        const json_t *text = json_object_get(piece, "Sequence");

        texts += text != NULL;
        out.before += is_special(piece) && texts == 0;
        out.between += is_special(piece) && texts == 1;
        out.after += is_special(piece) && texts == 2;
        out.segments = out.segments || json_integer_value(json_object_get(text, "type_id")) > 0;
    }
    return out;
}

/* The template of two texts, of a post-processor or of one in its sequence; NULL: none. Borrowed.
 */
static const json_t *find_pair(const json_t *processor)
{
    const json_t *pair = json_object_get(processor, "pair"), *one;
    size_t k;

    json_array_foreach(json_object_get(processor, "processors"), k, one)
    {
        pair = pair ? pair : json_object_get(one, "pair");
    }
    return pair;
}

static void keep_only_if(json_t *model, const char *member, bool is)
{
    if (!is)
        (void)json_object_del(model, member);
}

void import_pairs(json_t *model, const char *path)
{
    static const char *const KEYS[] = {"post_processor", "processors", "pair",
                                       "SpecialToken",   "Sequence",   "type_id"};
    json_t *file = NULL;

    if (bp_path_exists(path) && bp_json_load_members(&file, path, TOKENIZER_LIMIT, KEYS,
                                                     sizeof KEYS / sizeof KEYS[0]) == BP_OK) {
        const json_t *pair = find_pair(json_object_get(file, KEYS[0]));
        pair_template is = read_template(pair);

        if (pair) {
            keep_only_if(model, "begins", is.before > 0);
            keep_only_if(model, "unframed", is.after == 0);
            keep_only_if(model, "one_segment", !is.segments);
            keep_only_if(model, "separators", is.between > 1);
        }
        if (pair && json_object_get(model, "unframed") && is.between > 0) /* each text begins so */
            (void)json_object_set_new(model, "separators", json_integer(is.between));
    }
    json_decref(file);
}
