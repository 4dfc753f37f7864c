/* Which corpus of B is which of A: by what is in them, not by their names. B's documents are put
 * into A's order. */
#include "base/mem.h"
#include "comparison.h"

#include <ctype.h>
#include <string.h>

static const char *id_of(const score_folder *scores, int64_t d)
{
    return scores->ids + (size_t)d * scores->id_width;
}

/* Equal, or lines of one number of two files: "valid.txt:7" and "copy.txt:7". */
static bool same_id(const char *one, const char *other)
{
    const char *line = strrchr(one, ':'), *other_line = strrchr(other, ':');

    return strcmp(one, other) == 0 ||
           (line && other_line && strcmp(line, other_line) == 0 && isdigit((unsigned char)line[1]));
}

bool comparison_same_id(const comparison *c, int64_t d)
{
    const char *one = id_of(&c->scores[0], d), *other = id_of(&c->scores[1], d);

    return one[0] == '\0' || other[0] == '\0' || same_id(one, other);
}

/* Is document d of A the same as e of B, and is that more than equal counts? */
static bool same_document(const comparison *c, int64_t d, int64_t e)
{
    const score_folder *a = &c->scores[0], *b = &c->scores[1];

    if ((a->bytes[d] >= 0 && b->bytes[e] >= 0 && a->bytes[d] != b->bytes[e]) ||
        (a->words[d] >= 0 && b->words[e] >= 0 && a->words[d] != b->words[e]))
        return false;
    if (comparison_has_hashes(c))
        return a->token_hash[d] == b->token_hash[e];
    return id_of(a, d)[0] != '\0' && same_id(id_of(a, d), id_of(b, e));
}

bool comparison_same_content(const comparison *c, int64_t in_a, int64_t in_b)
{
    const int64_t *a = c->scores[0].corpus_start + in_a, *b = c->scores[1].corpus_start + in_b;

    if (a[1] - a[0] != b[1] - b[0])
        return false;
    for (int64_t k = 0; k < a[1] - a[0]; k++)
        if (!same_document(c, a[0] + k, b[0] + k))
            return false;
    return true;
}

/* The free corpus of B that is A's corpus k: of its name and content, of its content, of its name,
 * or the next. */
static int64_t choose(const comparison *c, int64_t k, const bool *taken)
{
    const score_folder *a = &c->scores[0], *b = &c->scores[1];
    int64_t best = -1, rank = 0;

    for (int64_t j = 0; j < b->corpora; j++) {
        int64_t worth = 1 + (strcmp(a->corpus_names[k], b->corpus_names[j]) == 0) +
                        2 * comparison_same_content(c, k, j);

        if (!taken[j] && worth > rank) {
            rank = worth;
            best = j;
        }
    }
    return best;
}

/* *values[documents] of `bytes` each, in the order of from[]. */
static void reorder(void **values, const int64_t *from, int64_t documents, size_t bytes)
{
    char *sorted;

    if (!*values)
        return;
    sorted = bp_alloc("tool.scores", documents, bytes);
    for (int64_t d = 0; d < documents; d++)
        memcpy(sorted + (size_t)d * bytes, (char *)*values + (size_t)from[d] * bytes, bytes);
    bp_free(*values);
    *values = sorted;
}

static void reorder_folder(score_folder *b, const int64_t *place)
{
    int64_t *from = bp_alloc("tool.scores", b->documents, sizeof *from), count = 0;
    int64_t *start = bp_alloc("tool.scores", b->corpora + 1, sizeof *start);
    void **const columns[] = {(void **)&b->nll, (void **)&b->tokens, (void **)&b->bytes,
                              (void **)&b->words, (void **)&b->token_hash};

    for (int64_t k = 0; k < b->corpora; k++) {
        for (int64_t d = b->corpus_start[place[k]]; d < b->corpus_start[place[k] + 1]; d++)
            from[count++] = d;
        start[k + 1] = count;
    }
    for (size_t k = 0; k < sizeof columns / sizeof columns[0]; k++)
        reorder(columns[k], from, b->documents, 8); /* all of them are of 64 bits */
    reorder((void **)&b->ids, from, b->documents, b->id_width);
    for (int64_t k = 0; k < b->label_count; k++)
        reorder((void **)&b->labels[k].codes, from, b->documents, sizeof(int64_t));
    reorder((void **)&b->corpus_names, place, b->corpora, sizeof *b->corpus_names);
    bp_free(b->corpus_start);
    b->corpus_start = start;
    bp_free(from);
}

void comparison_match_corpora(comparison *c)
{
    score_folder *b = &c->scores[1];
    int64_t *place = bp_alloc("tool.comparison", b->corpora, sizeof *place);
    bool *taken = bp_alloc("tool.comparison", b->corpora, sizeof *taken), moved = false;

    for (int64_t k = 0; c->scores[0].corpora == b->corpora && k < b->corpora; k++) {
        place[k] = choose(c, k, taken);
        taken[place[k]] = true;
        moved = moved || place[k] != k;
    }
    if (moved)
        reorder_folder(b, place);
    bp_free(taken);
    bp_free(place);
}
