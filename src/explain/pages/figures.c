/* Names of figures in words. Called by index.c, tables.c and example.c. */
#include "explain/pages/figures.h"

#include "base/mem.h"

#include <string.h>

typedef struct figure_words {
    const char *name, *words, *meaning;
} figure_words;

static const figure_words *find(const figure_words *list, const char *name)
{
    for (; list->name; list++)
        if (strcmp(name, list->name) == 0)
            return list;
    return NULL;
}

json_t *explain_worded(const char *name)
{
    static const figure_words WORDS[] = {
        {"adjusted", "difference of the two", NULL},
        {"agreement_all", "agreement, all listed places", NULL},
        {"agreement_first", "agreement, first place", NULL},
        {"anisotropy", "similarity of any two tokens", NULL},
        {"changed", "share in which the preferred outcome changes", NULL},
        {"contrast_l1", "contrast, sum of magnitudes", NULL},
        {"contrast_l2", "contrast, length of the gradient", NULL},
        {"contrast_x_input", "contrast, gradient times input", NULL},
        {"correlation", "correlation of the changes that the gradient estimates with the real ones",
         NULL},
        {"distance", "squared distance of the nearest entries", NULL},
        {"edits", "replaced tokens that a change takes", NULL},
        {"entropy", "entropy, nats", NULL},
        {"flagged", "targets with an error above 1 % of what the baseline changes", NULL},
        {"flow", "attention flow", NULL},
        {"gradient_x_input", "gradient times input", NULL},
        {"integrated", "integrated gradients", NULL},
        {"keys_with_trigger", "keys that a place sets off", NULL},
        {"kl", "KL divergence from the last layer, nats", NULL},
        {"kl_clipped", "KL divergence from the last layer, clipped, nats", NULL},
        {"largest_error", "largest standard error of a target's Shapley values", NULL},
        {"largest_value", "largest magnitude of a target's Shapley values", NULL},
        {"left", "share of the activations' squares that the factors leave", NULL},
        {"logprob", "log-probability of the target, nats", NULL},
        {"logprob_best", "log-probability of the last layer's choice, nats", NULL},
        {"mean_delta", "mean error of the sums", NULL},
        {"of", "tokens of the corpus, without special ones", NULL},
        {"points", "tokens on the maps", NULL},
        {"r2", "R\302\262: share of the values' spread that the linear model explains", NULL},
        {"rank", "rank of the target", NULL},
        {"rank_best", "rank of the last layer's choice", NULL},
        {"reciprocal_rank_first", "mean of 1 / rank, first place", NULL},
        {"rollout", "attention rollout", NULL},
        {"saliency_l1", "saliency, sum of magnitudes", NULL},
        {"saliency_l2", "saliency, length of the gradient", NULL},
        {"self_similarity", "self-similarity of a token", NULL},
        {"shapley", "Shapley values", NULL},
        {"surrogate", "surrogate (LIME)", NULL},
        {"types", "distinct tokens", NULL},
        {"undetermined", "share of the targets whose values the samples do not determine", NULL},
        {"within_document", "similarity to the document's mean", NULL},
        {0}};
    static const char SOURCE[] = "source_"; /* arrays over the source: the page says which it is */
    const char *bare = strncmp(name, SOURCE, strlen(SOURCE)) == 0 ? name + strlen(SOURCE) : name;
    const figure_words *found = find(WORDS, bare);
    char *text = bp_strdup(found ? found->words : bare);
    json_t *words;

    for (char *at = text; *at != '\0'; at++)
        *at = *at == '_' ? ' ' : *at;
    words = bp_json_string(text);
    bp_free(text);
    return words;
}

/* ---- statistics of heads ---- */

static const figure_words HEADS[] = {
    {"entropy", "Entropy of the weights",
     "In nats: 0 where a head looks at one token, ln n where it looks at n tokens alike."},
    {"distance", "Distance",
     "In tokens: how far those that a head looks at are from the token that looks, on average."},
    {"self", "Weight on the token itself", "A share of the weight, from 0 to 1."},
    {"first", "Weight on the first token",
     "A share of the weight, from 0 to 1. A head with most of its weight there does nothing."},
    {"separators", "Weight on separators",
     "A share of the weight, from 0 to 1: on tokens that divide or end texts, and the one before a "
     "text, or those of explain.separators. A head with most of its weight there does nothing."},
    {"previous", "Weight on the token before", "A share of the weight, from 0 to 1."},
    {"induction", "Weight on tokens after an earlier token like the one that looks (induction)",
     "A share of the weight, from 0 to 1, of tokens that occurred before in their text."},
    {0}};

/* The statistic without the kind of attention before its name; *way is that kind. */
static const figure_words *head_of(const char *name, const char **way)
{
    static const struct {
        const char *prefix, *way;
    } KINDS[] = {{"encoder_", "source to source"}, {"cross_", "target to source"}};

    *way = "target to target";
    for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++)
        if (strncmp(name, KINDS[k].prefix, strlen(KINDS[k].prefix)) == 0) {
            *way = KINDS[k].way;
            name += strlen(KINDS[k].prefix);
        }
    return find(HEADS, name);
}

json_t *explain_head_title(const char *name, bool pairs)
{
    const char *way;
    const figure_words *found = head_of(name, &way);

    if (!found)
        return explain_worded(name);
    return pairs ? json_sprintf("%s: %s", found->words, way) : json_string(found->words);
}

json_t *explain_head_meaning(const char *name)
{
    const char *way;
    const figure_words *found = head_of(name, &way);

    return found ? json_string(found->meaning) : json_null();
}
