/* Shares of documents for methods of the whole corpus: put into the parts of units, and read back.
 * Called by document.c and method_files.c. */
#include "explain/explainer.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"
#include "base/process/signals.h"
#include "run/stop_request.h"

#include <inttypes.h>
#include <string.h>

/* Is it the first of the methods that share its `collect`? */
static bool is_first(const explainer *self, int k)
{
    for (int j = 0; j < k; j++)
        if (self->methods[j]->collect == self->methods[k]->collect)
            return false;
    return self->methods[k]->collect != NULL;
}

/* A share is preceded by its bytes. */
bp_err explain_collect(explainer *self, const bp_explained *document)
{
    bp_buffer *shares = self->job->leads ? &self->shares : NULL;
    bp_err err = BP_OK;

    self->shares.bytes = 0;
    for (int k = 0; k < self->count && err == BP_OK; k++) {
        size_t at = self->shares.bytes;
        int64_t bytes = 0;

        if (!is_first(self, k))
            continue;
        if (shares)
            bp_buffer_add(shares, &bytes, sizeof bytes);
        bp_heartbeat_progress();
        err = self->methods[k]->collect(self->job->model, &self->settings, document, shares);
        bytes = (int64_t)(self->shares.bytes - at - sizeof bytes);
        if (shares)
            memcpy(self->shares.data + at, &bytes, sizeof bytes);
    }
    return err;
}

/* ---- read back ---- */

typedef struct reader {
    bp_explain_collection face;
    const explainer *self;
    bp_parts *parts;
    int share; /* shares before it */
} reader;

/* bp_explain_collection.look */
static bp_err look(void *context)
{
    const bp_explain_collection *all = context;
    const reader *self = all->context;

    bp_heartbeat_progress();
    if (bp_signals_stop_asked())
        return bp_stop_request_stopped("while the results of %" PRId64 " documents are put "
                                       "together, at %s",
                                       all->documents, self->self->job->folder);
    return BP_OK;
}

/* bp_explain_collection.read */
static bp_err read_share(const bp_explain_collection *all, int64_t document, const char **data,
                         size_t *bytes)
{
    const reader *self = all->context;
    size_t left = 0;
    bp_err err;

    *bytes = 0;
    err = look((void *)all);
    if (err != BP_OK)
        return err;
    err = bp_parts_read(self->parts, document, data, &left, &(const char *){NULL});
    if (err != BP_OK || left == 0)
        return err;
    for (int k = -1; k <= self->share; k++) {
        int64_t length = k < 0 ? explain_results_bytes(self->self, document) : 0;

        if (k >= 0 && left >= sizeof length) {
            memcpy(&length, *data, sizeof length);
            *data += sizeof length;
            left -= sizeof length;
        } else if (k >= 0) {
            return bp_explain_damaged(document);
        }
        if (length < 0 || (size_t)length > left)
            return bp_explain_damaged(document);
        if (k == self->share)
            *bytes = (size_t)length;
        else
            *data += length;
        left -= (size_t)length;
    }
    return BP_OK;
}

/* bp_explain_collection.open_values */
static bp_err open_values(const bp_explain_collection *all, bp_parts **out)
{
    const explainer *self = ((const reader *)all->context)->self;
    bp_memory_form form = bp_memory_form_of(&self->settings);
    char *folder = bp_path_join(self->job->folder, EXPLAIN_VALUES);
    bp_err err;

    bp_dir_refresh(folder); /* other nodes wrote there */
    err = bp_parts_open(out, folder, self->key, bp_memory_units(&form), true);
    bp_free(folder);
    bp_memory_form_clear(&form);
    return err;
}

/* The collection read by method k. It is its own context, so it must not be moved. */
static void begin_reader(reader *of, const explainer *self, int k, bp_parts *parts)
{
    *of = (reader){.face = {.settings = &self->settings,
                            .documents = self->texts.documents,
                            .read = read_share,
                            .open_values = open_values,
                            .look = look,
                            .context = of},
                   .self = self,
                   .parts = parts};
    for (int j = 0; j < k && self->methods[j]->collect != self->methods[k]->collect; j++)
        of->share += is_first(self, j);
}

bp_err explain_merge_method(explainer *self, int k, bp_parts *parts, bp_h5 *h5, json_t *figures)
{
    reader of;

    begin_reader(&of, self, k, parts);
    return self->methods[k]->merge(&of.face, h5, figures);
}

bp_err explain_triggers(const explainer *self, bp_parts *parts, bp_triggers *out)
{
    reader of;
    int k = 0;

    while (self->methods[k] != &bp_explain_memories)
        k++;
    begin_reader(&of, self, k, parts);
    return bp_memory_triggers(out, &of.face);
}
