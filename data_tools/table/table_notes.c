/* Names of models, and what models of a table have in common, and what not: texts under two names,
 * and settings that differ, which are said below the table. Called by table_scores.c. */
#include "table_scores_priv.h"

#include "base/buffer.h"
#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "statistics/inference.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

char *table_run_folder(const char *given, const char *part)
{
    size_t bytes = strlen(given), end = strlen(part);

    while (bytes > 1 && given[bytes - 1] == '/')
        bytes--;
    if (bytes > end && strncmp(given + bytes - end, part, end) == 0)
        bytes -= end;
    return bp_sprintf("%.*s", (int)bytes, given);
}

const char *score_table_short_name(const score_table *table, int64_t model)
{
    const char *base = bp_path_base(table->models[model]);

    if (table->named[model])
        return table->models[model];
    for (int64_t m = 0; m < table->model_count; m++)
        if (m != model && strcmp(bp_path_base(table->models[m]), base) == 0)
            return table->models[model];
    return base;
}

/* What is equal in ids of one text: lines of one number of two files are "valid.txt:7" and
 * "copy.txt:7". */
static const char *same_part(const char *id)
{
    const char *line = strrchr(id, ':');

    return line && isdigit((unsigned char)line[1]) ? line : id;
}

uint64_t score_group_content(const score_folder *scores, const score_group *group)
{
    bp_buffer text = {0};
    uint64_t hash;
    bool known = group->count > 0;

    for (int64_t k = 0; k < group->count; k++) {
        int64_t d = group->documents[k];
        const int64_t both[2] = {scores->bytes[d], scores->words[d]};
        const char *id = same_part(scores->ids + (size_t)d * scores->id_width);

        known = known && both[0] >= 0 && both[1] >= 0 && id[0] != '\0';
        bp_buffer_add(&text, both, sizeof both);
        bp_buffer_add(&text, id, strlen(id) + 1);
    }
    hash = known ? bp_xxh3(text.data, text.bytes) : 0;
    bp_buffer_clear(&text);
    return hash;
}

uint64_t score_group_tokens(const score_folder *scores, const score_group *group)
{
    bp_buffer hashes = {0};
    uint64_t hash;

    for (int64_t k = 0; k < group->count && scores->token_hash; k++)
        bp_buffer_add(&hashes, &scores->token_hash[group->documents[k]],
                      sizeof *scores->token_hash);
    hash = hashes.bytes > 0 ? bp_xxh3(hashes.data, hashes.bytes) : 0;
    bp_buffer_clear(&hashes);
    return hash;
}

/* By the tokens of one tokenizer, else by ids and sizes of documents. */
static bool is_same_text(const score_table *table, const score_cell *one, const score_cell *other)
{
    const json_t *tokenizer = json_object_get(table->conventions[one->model], "tokenizer_hash"),
                 *others = json_object_get(table->conventions[other->model], "tokenizer_hash");

    if (one->token_content != 0 && other->token_content != 0 && tokenizer &&
        json_equal(tokenizer, others))
        return one->documents_all == other->documents_all &&
               one->token_content == other->token_content;
    return one->content != 0 && one->content == other->content;
}

void score_table_name_by_content(score_table *table, score_cell *cell)
{
    const score_cell *same = NULL;

    for (int64_t k = 0; k + 1 < table->cell_count; k++) {
        const score_cell *other = &table->cells[k];

        if (other->scope != SCOPE_CORPUS)
            continue;
        if (strcmp(other->name, cell->name) == 0)
            return;
        if (other->model != cell->model && !same && is_same_text(table, other, cell))
            same = other;
    }
    for (int64_t k = 0; same && k + 1 < table->cell_count; k++)
        if (table->cells[k].model == cell->model && table->cells[k].scope == SCOPE_CORPUS &&
            strcmp(table->cells[k].name, same->name) == 0)
            return;
    if (same) {
        bp_free(cell->name);
        cell->name = bp_strdup(same->name);
    }
}

/* What models saw of a text is part of their figures; what was scored makes them not comparable,
 * a byte or a word too where tokens do not spell the text. */
static void note_other_tokens(const score_table *table, bp_buffer *note)
{
    bp_buffer lost = {0};

    for (int64_t m = 0; m < table->model_count; m++)
        if (table->lost[m])
            bp_buffer_printf(&lost, "%s%s (%s)", lost.bytes > 0 ? ", " : "",
                             score_table_short_name(table, m), table->lost[m]);
    if (lost.bytes > 0)
        bp_buffer_printf(note,
                         "perplexities a token do not compare, and figures a byte or a word look "
                         "better than they are where the tokens do not spell the text: %.*s",
                         (int)lost.bytes, lost.data);
    else
        bp_buffer_printf(note, "perplexities a token do not compare; bits_per_byte may");
    bp_buffer_clear(&lost);
}

/* How much each model reads, of the settings of its scores. */
static void note_contexts(const score_table *table, bp_buffer *note)
{
    bp_buffer_printf(note, "a token is predicted from at most");
    for (int64_t m = 0; m < table->model_count; m++) {
        const json_t *all = table->conventions[m];
        int64_t context = json_integer_value(json_object_get(all, "context")),
                order = json_integer_value(json_object_get(all, "order"));

        bp_buffer_printf(note, m == 0 ? " " : ", ");
        if (order > 0 && (context == 0 || order - 1 <= context))
            bp_buffer_printf(note, "%" PRId64 " tokens (order %" PRId64 ")", order - 1, order);
        else if (context > 0)
            bp_buffer_printf(note, "%" PRId64 " tokens", context);
        else
            bp_buffer_printf(note, "all of the document");
        bp_buffer_printf(note, " by %s", score_table_short_name(table, m));
    }
}

/* Does a setting of some model's scores differ from the first one's? */
static bool differs(const score_table *table, const char *key)
{
    const json_t *value = json_object_get(table->conventions[0], key);
    bool differs = false;

    for (int64_t m = 1; m < table->model_count; m++) {
        const json_t *other = json_object_get(table->conventions[m], key);

        differs = differs || (value != other && !json_equal(value, other));
    }
    return differs;
}

void score_table_add_note(score_table *table, bool warn)
{
    json_t *keys = json_object(); /* of all models: some have an order */
    bp_buffer note = {0};
    bool only_windows = true;
    const char *key;
    json_t *value;

    for (int64_t m = 0; m < table->model_count; m++)
        (void)json_object_update_missing(keys, table->conventions[m]);
    json_object_foreach(keys, key, value)
    {
        if (!differs(table, key))
            continue;
        bp_buffer_printf(&note, "%s%s",
                         note.bytes > 0 ? ", " : "these settings differ between the scores: ",
                         strcmp(key, "tokenizer_hash") == 0 ? "tokenizer" : key);
        only_windows = only_windows && (strcmp(key, "context") == 0 || strcmp(key, "stride") == 0 ||
                                        strcmp(key, "order") == 0);
    }
    json_decref(keys);
    if (note.bytes == 0)
        return;
    bp_buffer_printf(&note, ": ");
    if (only_windows)
        note_contexts(table, &note);
    else
        note_other_tokens(table, &note);
    bp_buffer_add(&note, "", 1);
    table->note = bp_buffer_take(&note);
    if (warn)
        BP_WARN("table.other_conventions", "%s", table->note);
}

void score_table_add_clean(score_table *table, const clean_part *clean)
{
    char *note = clean_part_note(clean);

    if (!table->clean_note)
        table->clean_note = bp_strdup(note);
    else if (!strstr(table->clean_note, note)) {
        char *all = bp_sprintf("%s; %s", table->clean_note, note);

        bp_free(table->clean_note);
        table->clean_note = all;
    }
    bp_free(note);
}

/* `first` before table->note. */
static void put_before(score_table *table, const char *first)
{
    char *both =
        bp_sprintf("%s%s%s", first, table->note ? "; " : "", table->note ? table->note : "");

    bp_free(table->note);
    table->note = both;
}

/* The models whose scores are of text that they know from training. */
static char *list_known(const score_table *table)
{
    bp_buffer all = {0};

    for (int64_t m = 0; m < table->model_count; m++)
        if (table->known[m])
            bp_buffer_printf(&all, "%s%s of %s", all.bytes > 0 ? "; " : "", table->known[m],
                             score_table_short_name(table, m));
    if (all.bytes == 0)
        return NULL;
    bp_buffer_add(&all, "", 1);
    return bp_buffer_take(&all);
}

void score_table_add_cluster(score_table *table, const char *label)
{
    table->clusters =
        bp_realloc("tool.models", table->clusters, table->model_count + 1, sizeof(char *));
    table->clusters[table->model_count] = label ? bp_strdup(label) : NULL;
}

/* Over what the intervals are, if not over documents alone. */
static char *list_clusters(const score_table *table)
{
    bp_buffer all = {0};
    int64_t same = 0, any = 0;

    for (int64_t m = 0; m < table->model_count; m++) {
        const char *label = table->clusters[m], *first = table->clusters[0];

        any += label != NULL;
        same += label && first && strcmp(label, first) == 0;
    }
    if (any == 0)
        return NULL;
    if (same == table->model_count)
        return bp_sprintf("intervals are over clusters of documents with one value of '%s'",
                          table->clusters[0]);
    for (int64_t m = 0; m < table->model_count; m++) {
        const char *label = table->clusters[m];

        bp_buffer_printf(&all, "%s%s%s%s of %s",
                         m == 0 ? "intervals do not compare: they are over " : ", ",
                         label ? "clusters of '" : "documents", label ? label : "",
                         label ? "'" : "", score_table_short_name(table, m));
    }
    bp_buffer_add(&all, "", 1);
    return bp_buffer_take(&all);
}

void score_table_join_notes(score_table *table, bool warn)
{
    char *clusters = list_clusters(table);
    char *known = list_known(table);
    char *clean = table->clean_note
                      ? bp_sprintf("figures are of clean documents alone: %s", table->clean_note)
                      : NULL;

    if (known && warn && !clean)
        BP_WARN("table.training_text",
                "text of the training was scored: %s: at score/summary.json; the model may know it "
                "by heart, --clean leaves documents out (bagpipe-data overlap)",
                known);
    if (clean && warn)
        BP_WARN("table.clean_part",
                "figures are of clean documents alone: %s: at --clean; bagpipe-data overlap "
                "--words N examines shorter documents",
                table->clean_note);
    if (clusters)
        put_before(table, clusters);
    bp_free(clusters);
    if (known && !clean)
        put_before(table, known);
    if (clean)
        put_before(table, clean);
    bp_free(known);
    bp_free(clean);
}

char *score_table_form_note(const score_table *table, int figure)
{
    bool few = false;

    for (int64_t k = 0; k < table->cell_count; k++)
        few = few || (table->cells[k].draws < BP_FEW_DOCUMENTS &&
                      isfinite(table->cells[k].figures[figure].value));
    if (!few)
        return table->note ? bp_strdup(table->note) : NULL;
    return bp_sprintf("%s%sno interval of fewer than %d %s", table->note ? table->note : "",
                      table->note ? "; " : "", BP_FEW_DOCUMENTS,
                      table->clusters[0] ? "clusters" : "documents");
}
