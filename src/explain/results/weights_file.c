/* explain/examples.h5: the attention weights of examples, and the flow. Called by
 * method_files.c. */
#include "explain/explainer.h"

#include "base/files/fs.h"
#include "base/mem.h"

#define VERSION 1

/* Where each example's values begin. */
static bp_err write_starts(explain_weights_file *file, const explainer *self)
{
    int64_t count = self->examples.count,
            *kept = bp_alloc("explain.weights", 3 * (count + 1), sizeof *kept),
            *starts = kept + count + 1, *flows = starts + count + 1;
    bp_h5 *h5 = file->draft.file;
    bp_err err;

    for (int64_t e = 0; e < count; e++) {
        const explain_sizes *sizes = &self->texts.sizes[self->examples.documents[e]];
        const bp_explained document = {.K = sizes->K, .T = sizes->T, .S = sizes->S};
        const bp_explain_form form = explain_form(self, &document);

        kept[e] = explain_weights_kept(&form);
        starts[e + 1] = starts[e] + form.layers * form.heads * form.T * kept[e];
        flows[e + 1] = flows[e] + (form.T <= EXPLAIN_FLOW_PLACES ? form.T * form.T : 0);
    }
    err = bp_h5_write(h5, "document", BP_H5_I64, self->examples.documents, count);
    if (err == BP_OK)
        err = bp_h5_write(h5, "kept", BP_H5_I64, kept, count);
    if (err == BP_OK)
        err = bp_h5_write(h5, "weight_start", BP_H5_I64, starts, count + 1);
    if (err == BP_OK)
        err = bp_h5_write(h5, "flow_start", BP_H5_I64, flows, count + 1);
    if (err == BP_OK)
        err = bp_h5_make(h5, "key", BP_H5_F32, starts[count]);
    if (err == BP_OK)
        err = bp_h5_make(h5, "weight", BP_H5_F32, starts[count]);
    if (err == BP_OK)
        err = bp_h5_make(h5, "flow", BP_H5_F32, flows[count]);
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

bp_err explain_weights_file_add(explain_weights_file *file, const float *floats,
                                const bp_explain_form *form)
{
    const explain_weights weights = explain_weights_in(floats, form);
    int64_t values = form->layers * form->heads * form->T * weights.kept;
    bp_h5 *h5 = file->draft.file;
    bp_err err = bp_h5_write_slab(h5, "key", BP_H5_F32, file->values, weights.keys, values);

    if (err == BP_OK)
        err = bp_h5_write_slab(h5, "weight", BP_H5_F32, file->values, weights.weights, values);
    if (err == BP_OK && weights.flow)
        err = bp_h5_write_slab(h5, "flow", BP_H5_F32, file->flows, weights.flow, form->T * form->T);
    file->values += values;
    file->flows += weights.flow ? form->T * form->T : 0;
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
