/* explain/examples.h5: the attention weights of examples, and the flow. Called by
 * method_files.c. */
#include "explain/explainer.h"

#include "base/files/fs.h"
#include "base/mem.h"

#define VERSION 1

/* A dataset of one kind of attention. */
static bp_err write_of(bp_h5 *h5, const bp_explain_attends *of, const char *name,
                       const int64_t *values, int64_t count)
{
    char *full = bp_sprintf("%s%s", of->prefix, name);
    bp_err err = bp_h5_write(h5, full, BP_H5_I64, values, count);

    bp_free(full);
    return err;
}

static bp_err make_of(bp_h5 *h5, const bp_explain_attends *of, const char *name, int64_t count)
{
    char *full = bp_sprintf("%s%s", of->prefix, name);
    bp_err err = bp_h5_make(h5, full, BP_H5_F32, count);

    bp_free(full);
    return err;
}

static bp_explain_form form_of(const explainer *self, int64_t example)
{
    const explain_sizes *sizes = &self->texts.sizes[self->examples.documents[example]];
    const bp_explained document = {.K = sizes->K, .T = sizes->T, .S = sizes->S};

    return explain_form(self, &document);
}

/* Of kind k: how many weights are kept, and where each example's begin. */
static bp_err write_kind(bp_h5 *h5, const explainer *self, int k, int64_t *kept, int64_t *starts)
{
    int64_t count = self->examples.count;
    explain_weights kinds[BP_EXPLAIN_ATTENTIONS];
    bp_err err;

    (void)explain_weights_in(kinds, NULL,
                             &(const bp_explain_form){.K = 0}); /* names, if count is 0 */
    for (int64_t e = 0; e < count; e++) {
        const bp_explain_form form = form_of(self, e);

        (void)explain_weights_in(kinds, NULL, &form);
        kept[e] = kinds[k].kept;
        starts[e + 1] = starts[e] + kinds[k].values;
    }
    err = write_of(h5, &kinds[k].of, "kept", kept, count);
    if (err == BP_OK)
        err = write_of(h5, &kinds[k].of, "weight_start", starts, count + 1);
    if (err == BP_OK)
        err = make_of(h5, &kinds[k].of, "key", starts[count]);
    return err == BP_OK ? make_of(h5, &kinds[k].of, "weight", starts[count]) : err;
}

static bp_err write_starts(explain_weights_file *file, const explainer *self)
{
    int64_t count = self->examples.count,
            *kept = bp_alloc("explain.weights", 2 * (count + 1), sizeof *kept),
            *starts = kept + count + 1;
    bp_h5 *h5 = file->draft.file;
    bp_err err = bp_h5_write(h5, "document", BP_H5_I64, self->examples.documents, count);

    for (int k = 0; k < (self->settings.info->reads_source ? BP_EXPLAIN_ATTENTIONS : 1); k++)
        if (err == BP_OK)
            err = write_kind(h5, self, k, kept, starts);
    for (int64_t e = 0; e < count; e++) {
        const bp_explain_form form = form_of(self, e);

        starts[e + 1] = starts[e] + (form.T <= EXPLAIN_FLOW_POSITIONS ? form.T * form.T : 0);
    }
    if (err == BP_OK)
        err = bp_h5_write(h5, "flow_start", BP_H5_I64, starts, count + 1);
    if (err == BP_OK)
        err = bp_h5_make(h5, "flow", BP_H5_F32, starts[count]);
    bp_free(kept);
    return err;
}

bp_err explain_weights_file_begin(explain_weights_file *file, const explainer *self)
{
    char *path;
    bp_err err;

    if (!self->examples.weights)
        return BP_OK;
    path = bp_path_join(self->job->folder, EXPLAIN_EXAMPLES_FILE);
    err = bp_h5_draft_begin(&file->draft, path, VERSION);
    if (err == BP_OK)
        err = write_starts(file, self);
    bp_free(path);
    return err;
}

static bp_err add_values(bp_h5 *h5, const bp_explain_attends *of, const char *name, int64_t first,
                         const float *values, int64_t count)
{
    char *full = bp_sprintf("%s%s", of->prefix, name);
    bp_err err = bp_h5_write_slab(h5, full, BP_H5_F32, first, values, count);

    bp_free(full);
    return err;
}

bp_err explain_weights_file_add(explain_weights_file *file, const float *floats,
                                const bp_explain_form *form)
{
    const float *flow = explain_flow_in(floats, form);
    explain_weights kinds[BP_EXPLAIN_ATTENTIONS];
    int count = explain_weights_in(kinds, floats, form);
    bp_h5 *h5 = file->draft.file;
    bp_err err = flow
                     ? bp_h5_write_slab(h5, "flow", BP_H5_F32, file->flows, flow, form->T * form->T)
                     : BP_OK;

    for (int k = 0; k < count && err == BP_OK; k++) {
        const explain_weights *kind = &kinds[k];

        err = add_values(h5, &kind->of, "key", file->values[k], kind->keys, kind->values);
        if (err == BP_OK)
            err = add_values(h5, &kind->of, "weight", file->values[k], kind->weights, kind->values);
        file->values[k] += kind->values;
    }
    file->flows += flow ? form->T * form->T : 0;
    return err;
}

bp_err explain_weights_file_commit(explain_weights_file *file)
{
    return file->draft.file ? bp_h5_draft_commit(&file->draft, "explain-examples", VERSION) : BP_OK;
}

void explain_weights_file_end(explain_weights_file *file)
{
    bp_h5_draft_end(&file->draft);
}
