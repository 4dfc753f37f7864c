/* Pages of methods of the whole corpus: one file each, linked from index.html. Called by
 * index.c. */
#include "explain/pages/pages.h"

#include "explain/pages/tables.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "infer/score/page/page.h"
#include "run/run_folder.h"

#include <string.h>

#define SUMMARY_BYTES ((int64_t)1 << 30)

static const explain_page *const PAGES[] = {&explain_page_projection, &explain_page_similarity,
                                            &explain_page_memories, &explain_page_factors};

static bool write_page(const explain_page *of, const explain_gathered *gathered, explainer *self,
                       const json_t *figures)
{
    char *name = bp_sprintf("%s.h5", of->method->name),
         *path = bp_path_join(self->job->folder, name), *script = NULL,
         *title = bp_sprintf("%s of %s", of->title, bp_explain_keys_of(self->job->config)->model);
    json_t *data = json_object(),
           *page = json_pack("{so}", "title", bp_score_page_text(title, strlen(title)));
    bp_h5 *h5 = NULL;
    bp_err err = bp_h5_open(&h5, path);
    bool written;

    if (err == BP_OK)
        err = of->fill(data, page, h5, gathered, self, figures);
    if (err == BP_OK) {
        script = explain_script_text(data);
        (void)json_object_set_new(page, "data", json_string(script));
    }
    written = bp_work_write_page_at(self->job, of->file, of->template, page, err);
    if (h5)
        (void)bp_h5_close(&h5);
    json_decref(data);
    bp_free(script);
    bp_free(title);
    bp_free(path);
    bp_free(name);
    return written;
}

json_t *explain_page_of(const explain_gathered *gathered, explainer *self,
                        const bp_explain_method *method, const json_t *figures)
{
    for (size_t k = 0; k < sizeof PAGES / sizeof PAGES[0]; k++)
        if (PAGES[k]->method == method && write_page(PAGES[k], gathered, self, figures))
            return json_pack("{ss ss}", "file", PAGES[k]->file, "text", PAGES[k]->link);
    return json_null();
}

/* The file of a method's page; NULL if it has none. */
static const char *file_of(const bp_explain_method *method)
{
    for (size_t k = 0; k < sizeof PAGES / sizeof PAGES[0]; k++)
        if (PAGES[k]->method == method)
            return PAGES[k]->file;
    return NULL;
}

const char *explain_missing_page(void *context, const char *folder)
{
    explainer *self = context;
    char *path = bp_path_join(folder, "summary.json");
    const char *missing = NULL, *file;
    json_t *summary = NULL, *example;
    size_t k;

    if (bp_json_load(&summary, path, SUMMARY_BYTES) != BP_OK)
        summary = NULL; /* opening it elsewhere reports the fault */
    json_array_foreach(json_object_get(summary, "examples"), k, example)
    {
        file = json_string_value(json_object_get(example, "page"));
        if (!missing && file)
            missing = bp_run_first_missing(folder, &file, 1);
    }
    for (int m = 0; m < self->count && !missing; m++) {
        file = file_of(self->methods[m]);
        if (file)
            missing = bp_run_first_missing(folder, &file, 1);
    }
    bp_free(self->missing);
    self->missing = missing ? bp_strdup(missing) : NULL;
    json_decref(summary);
    bp_free(path);
    return self->missing;
}
