/* bagpipe-data pii: personal data in texts, by kind and place. */
#include "arguments.h"
#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/mem.h"
#include "base/sort.h"
#include "file_tool.h"
#include "io/corpus/document_list.h"
#include "mesh/mesh.h"
#include "output.h"
#include "pii_mask.h"
#include "pii_numbers.h"
#include "pii_run.h"
#include "report.h"
#include "tools.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct argp_option OPTIONS[] = {
    {"country", 0, "LIST", 0,
     "look for national numbers, and phone numbers as they are written there, of these countries, "
     "between commas: us ca fr de nl be es se fi no dk it pl pt gb ch br in cn (default: none)",
     1},
    {"format", 0, "text|lines|jsonl|warc", 0,
     "what files hold that are no corpora (default text: a file is a document)", 1},
    {"text-field", 0, "NAME", 0, "with jsonl: the field that holds the text (default text)", 1},
    {"out", 'o', "FOLDER", 0, "write pii.json, spans.jsonl, documents.txt and a page there", 1},
    {0}};

static const bp_help_row STATUSES[] = {
    {"0", "done, whether or not anything was found"},
    {"64", "wrong command line"},
    {"65", "wrong content of a file, or a corpus without its tokenizer"},
    {"66", "a file is missing"},
    {"73, 74, 77", "the report cannot be written"},
    {"75", "stopped by a signal; nothing is kept"},
    {0}};

static const char *const TITLES[PII_KINDS] = {
    "E-mail addresses", "Phone numbers",  "Card numbers",    "IBANs",
    "IPv4 addresses",   "IPv6 addresses", "National numbers"};

/* ---- figures ---- */

typedef struct tally {
    int64_t found, documents, reserved, last; /* last: the document that was counted last, + 1 */
} tally;

static void count(tally *sum, const pii_row *row)
{
    sum->found++;
    sum->reserved += row->reserved;
    sum->documents += sum->last != row->document + 1;
    sum->last = row->document + 1;
}

static json_t *tally_json(const tally *sum)
{
    return json_pack("{s:I, s:I, s:I}", "found", (json_int_t)sum->found, "documents",
                     (json_int_t)sum->documents, "reserved", (json_int_t)sum->reserved);
}

/* A name or an id, which may hold personal data too. */
static json_t *masked(const pii *self, const char *name)
{
    char *text = pii_masked(name, self->countries);
    json_t *value = bp_json_string(text);

    bp_free(text);
    return value;
}

static json_t *names_of(const pii *self)
{
    json_t *list = json_array();

    for (int k = 0; k < self->texts.path_count; k++)
        (void)json_array_append_new(list, masked(self, bp_text_source_id(self->texts.paths[k])));
    return list;
}

/* "a.txt, b.txt, c.txt and 5 more": a card shows of what the report is. */
static char *files_shown(const pii *self)
{
    enum { MOST = 3 };
    int count = self->texts.path_count;
    bp_buffer out = {0};

    for (int k = 0; k < count && k < MOST; k++) {
        char *name =
            pii_masked(bp_path_base(bp_text_source_id(self->texts.paths[k])), self->countries);

        bp_buffer_printf(&out, "%s%s", k > 0 ? ", " : "", name);
        bp_free(name);
    }
    if (count > MOST)
        bp_buffer_printf(&out, " and %d more", count - MOST);
    return bp_buffer_take(&out);
}

/* The contents of a card. */
static void add_statements(const pii *self, const tally *kinds, json_t *out)
{
    json_t *list = json_array();
    char *files = files_shown(self),
         *about = bp_sprintf(
             "bagpipe-data pii, by form alone, in %s documents of %s: what has the form by chance "
             "is counted too, names and street addresses are not.",
             grouped(self->documents), files);

    (void)json_object_set_new(out, "title", json_string("Personal data"));
    (void)json_object_set_new(out, "about", bp_json_string(about));
    bp_free(about);
    bp_free(files);
    for (int k = 0; k < PII_KINDS; k++)
        if (kinds[k].found > 0)
            (void)json_array_append_new(
                list, json_sprintf("%s: %s in %s documents, %s of them reserved for examples and "
                                   "private networks",
                                   TITLES[k], grouped(kinds[k].found), grouped(kinds[k].documents),
                                   grouped(kinds[k].reserved)));
    if (json_array_size(list) == 0)
        (void)json_array_append_new(list, json_string("Nothing was found."));
    (void)json_object_set_new(out, "statements", list);
}

static json_t *figures_of(const pii *self)
{
    tally kinds[PII_KINDS] = {{0}}, national[64] = {{0}};
    json_t *out = tool_report_begin("pii"), *by_kind = json_object(), *by_country = json_object();

    for (int64_t k = 0; k < self->row_count; k++) {
        const pii_row *row = &self->rows[k];

        count(&kinds[row->kind], row);
        if (row->country >= 0)
            count(&national[row->country], row);
    }
    for (int k = 0; k < PII_KINDS; k++)
        if (k != PII_NATIONAL || self->countries != 0)
            (void)json_object_set_new(by_kind, pii_kind_name((pii_kind)k), tally_json(&kinds[k]));
    for (int k = 0; pii_countries[k].code; k++)
        if ((self->countries >> k & 1) != 0) {
            json_t *row = tally_json(&national[k]);

            (void)json_object_set_new(row, "number", json_string(pii_countries[k].number));
            (void)json_object_set_new(row, "check", json_string(pii_countries[k].check));
            (void)json_object_set_new(by_country, pii_countries[k].code, row);
        }
    add_statements(self, kinds, out);
    (void)json_object_set_new(out, "files", names_of(self));
    tool_report_corpora(out, self->texts.paths, self->texts.path_count);
    (void)json_object_set_new(out, "documents", json_integer(self->documents));
    (void)json_object_set_new(out, "bytes", json_integer(self->bytes));
    (void)json_object_set_new(out, "found", json_integer(self->row_count));
    (void)json_object_set_new(out, "documents_with", json_integer(self->found_count));
    (void)json_object_set_new(out, "share", tool_share(self->found_count, self->documents));
    (void)json_object_set_new(out, "kinds", by_kind);
    (void)json_object_set_new(out, "national", by_country);
    return out;
}

/* ---- files ---- */

static const char *id_of(const pii *self, int64_t document)
{
    const pii_document *found =
        bsearch(&document, self->found, (size_t)self->found_count, sizeof *found, bp_by_int64);

    BP_ASSERT(found);
    return self->ids.data + found->id_at;
}

static json_t *row_json(const pii *self, const pii_row *row)
{
    const char *name = bp_text_source_id(self->texts.paths[row->file]);
    json_t *line = json_pack("{s:o, s:I, s:o, s:s, s:I, s:I, s:o}", "document",
                             masked(self, id_of(self, row->document)), "number",
                             (json_int_t)row->document, "file", masked(self, name), "kind",
                             pii_kind_name((pii_kind)row->kind), "start", (json_int_t)row->start,
                             "end", (json_int_t)row->end, "shape", bp_json_string(row->shape));

    if (row->country >= 0)
        (void)json_object_set_new(line, "country", json_string(pii_countries[row->country].code));
    if (row->reserved)
        (void)json_object_set_new(line, "reserved", json_true());
    return line;
}

static bp_err write_rows(const pii *self, const char *folder)
{
    const bp_path path = bp_path_in(folder, "spans.jsonl");
    bp_draft draft;
    bp_err err = bp_draft_open(&draft, path.text);

    for (int64_t k = 0; k < self->row_count && err == BP_OK; k++) {
        json_t *line = row_json(self, &self->rows[k]);
        err = bp_json_write_line(&draft, line);
    }
    return bp_draft_end(&draft, err);
}

/* Ids a line, as --without of bagpipe-data corpus takes them; those that hold personal data as
 * their hashes. */
static bp_err write_documents(const pii *self, const char *folder)
{
    const bp_path path = bp_path_in(folder, "documents.txt");
    bp_buffer text = {0};
    bp_err err;

    for (int64_t k = 0; k < self->found_count; k++) {
        const char *id = self->ids.data + self->found[k].id_at;

        char *shown = pii_masked(id, self->countries), hash[BP_SHA256_HEX];

        if (strcmp(shown, id) != 0) {
            bp_sha256_of(id, strlen(id), hash);
            bp_buffer_printf(&text, BP_LIST_HASH "%s\n", hash);
        } else if (id[0] != '\0' && !strpbrk(id, "\r\n")) {
            bp_buffer_printf(&text, "%s\n", id);
        }
        bp_free(shown);
    }
    err = bp_file_write(path.text, text.data ? text.data : "", text.bytes);
    bp_buffer_clear(&text);
    return err;
}

#define SHOWN 50

/* Kinds with their counts, and the documents with the most. */
static json_t *page_of(const pii *self, const json_t *figures)
{
    json_t *kinds = json_array(), *national = json_array(), *examples = json_array();
    const json_t *by_kind = json_object_get(figures, "kinds"), *row;
    const char *code;

    for (int k = 0; k < PII_KINDS; k++)
        if ((row = json_object_get(by_kind, pii_kind_name((pii_kind)k)))) {
            json_t *copy = json_copy((json_t *)row);

            (void)json_object_set_new(copy, "name", json_string(TITLES[k]));
            (void)json_array_append_new(kinds, copy);
        }
    json_object_foreach(json_object_get(figures, "national"), code, row)
    {
        json_t *copy = json_copy((json_t *)row);

        (void)json_object_set_new(copy, "country", json_string(code));
        (void)json_array_append_new(national, copy);
    }
    for (int64_t k = 0; k < self->row_count && k < SHOWN; k++)
        (void)json_array_append_new(examples, row_json(self, &self->rows[k]));
    return json_pack("{s:s, s:b, s:b, s:o, s:o, s:o, s:o, s:b}", "title", "Personal data in texts",
                     "has_national", json_array_size(national) > 0, "has_examples",
                     self->row_count > 0, "kinds", kinds, "national", national, "examples",
                     examples, "share", tool_figure_shown(json_object_get(figures, "share"), true),
                     "more", self->row_count > SHOWN);
}

static bp_err save(const pii *self, const json_t *figures, const char *folder)
{
    bp_err err = bp_dir_make(folder);

    if (err == BP_OK)
        err = write_rows(self, folder);
    if (err == BP_OK)
        err = write_documents(self, folder);
    return err == BP_OK ? tool_report_save(folder, "pii", figures, page_of(self, figures),
                                           bp_comm_size(MPI_COMM_WORLD))
                        : err;
}

static void print_table(const json_t *figures)
{
    const char *name;
    json_t *row;

    printf("%-10s %12s %12s %12s\n", "kind", "found", "documents", "reserved");
    json_object_foreach(json_object_get(figures, "kinds"), name, row)
    {
        printf("%-10s", name);
        for (int k = 0; k < 3; k++)
            printf(" %12s",
                   grouped(json_integer_value(json_object_get(row, k == 0   ? "found"
                                                                   : k == 1 ? "documents"
                                                                            : "reserved"))));
        printf("\n");
    }
    json_object_foreach(json_object_get(figures, "national"), name, row)
        printf("%s: %s of %s\n", name, grouped(json_integer_value(json_object_get(row, "found"))),
               json_string_value(json_object_get(row, "number")));
    printf("%s of %s documents have some, in %s bytes\n",
           grouped(json_integer_value(json_object_get(figures, "documents_with"))),
           grouped(json_integer_value(json_object_get(figures, "documents"))),
           grouped(json_integer_value(json_object_get(figures, "bytes"))));
}

/* ---- the command line ---- */

static bp_err take_countries(uint64_t *out, const char *list)
{
    *out = 0;
    while (list && *list) {
        size_t bytes = strcspn(list, ", ");
        int k = pii_country_of(list, bytes);

        if (k < 0)
            return BP_FAIL(BP_ERR_USAGE, "command.bad_value",
                           "'%.*s' is no country whose numbers are known: at --country; see "
                           "bagpipe-data pii --help",
                           (int)(bytes < 40 ? bytes : 40), list);
        *out |= UINT64_C(1) << k;
        list += bytes;
        list += strspn(list, ", ");
    }
    return BP_OK;
}

static bp_err run_pii(pii *self, const char *out)
{
    bp_err err = pii_run(self, MPI_COMM_WORLD);

    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD)) {
        json_t *figures = figures_of(self);

        if (out)
            err = save(self, figures, out);
        if (err == BP_OK)
            print_table(figures);
        json_decref(figures);
    }
    pii_clear(self);
    return bp_agree(MPI_COMM_WORLD, err);
}

static bp_err run(int argc, char **argv)
{
    pii self = {.documents = 0};
    const char *countries = NULL, *format = NULL, *field = NULL, *out = NULL;
    const tool_value values[] = {{.option = "country", .text = &countries},
                                 {.option = "format", .text = &format},
                                 {.option = "text-field", .text = &field},
                                 {.option = "out", .text = &out},
                                 {0}};
    tool_files files;
    bp_err err = tool_parse(&bp_tool_pii, values, &files, argc, argv);

    if (err == BP_OK && files.count == 0)
        err = BP_FAIL(BP_ERR_USAGE, "command.no_input",
                      "there is no text: at the command line; name one or more files");
    self.texts.paths = (const char *const *)files.list;
    self.texts.path_count = files.count;
    if (err == BP_OK)
        err = bp_stdin_check(files.list, files.count);
    if (err == BP_OK)
        err = take_countries(&self.countries, countries);
    if (err == BP_OK)
        err = document_texts_format(&self.texts, format, field, "text-field");
    if (err == BP_OK && bp_comm_is_root(MPI_COMM_WORLD))
        document_texts_warn(&self.texts);
    err = bp_agree(MPI_COMM_WORLD, err);
    return err == BP_OK ? run_pii(&self, out) : err;
}

const bp_tool bp_tool_pii = {
    .name = "pii",
    .help = {.name = "bagpipe-data pii",
             .usage = "TEXT... [OPTION...]",
             .summary = "finds personal data in texts: addresses, phone, card and account numbers",
             .text =
                 "TEXT are texts, which may be compressed, or corpora (.h5), which keep their "
                 "tokenizer. It counts e-mail addresses, phone numbers, card numbers (issuer, "
                 "length, Luhn's digit), IBANs (country, length, mod 97), IP addresses and, by "
                 "--country, national numbers with their check digits. What looks like one and is "
                 "none is left out: versions, decimals, decorators, repositories, URLs with users. "
                 "Reserved: addresses that belong to nobody (example.org, 192.168.0.1).\n"
                 "No output quotes what was found: spans.jsonl has document, byte span and shape "
                 "(xxx.xxx@xxxx.xx, 9999 9999). Bytes count from the start of a document's text. "
                 "documents.txt lists the documents, as bagpipe-data corpus --without takes them. "
                 "Ids and names of files that hold personal data themselves are masked, too (in "
                 "documents.txt: ids as SHA-256), but in the command that the page shows. "
                 "Names and street addresses are not looked for.",
             .options = OPTIONS,
             .examples = "  bagpipe-data pii notes.txt\n"
                         "  mpirun -n 4 bagpipe-data pii crawl-*.jsonl.zst --format jsonl \\\n"
                         "      --country us,de --out pii\n"
                         "  bagpipe-data corpus --tokenizer t.json --format jsonl \\\n"
                         "      --without pii/documents.txt --out clean.h5 crawl-*.jsonl.zst\n",
             .statuses = STATUSES},
    .run = run};
