/* The second set of units of a job with memories: the predictions of the values of keys, after all
 * documents are done. Called by explain.c. */
#include "explain/explainer.h"

#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/heartbeat.h"

static bool has_memories(const explainer *self)
{
    for (int k = 0; k < self->count; k++)
        if (self->methods[k] == &bp_explain_memories)
            return true;
    return false;
}

bp_err explain_prepare_memories(explainer *self)
{
    bp_memory_form form;
    bp_err err;

    if (!has_memories(self) || !self->job->leads)
        return BP_OK;
    form = bp_memory_form_of(&self->settings);
    err = bp_triggers_new(&self->running, bp_memory_lists(&form), self->settings.keys->keys);
    self->settings.running = &self->running;
    bp_memory_form_clear(&form);
    return err;
}

/* ---- units ---- */

/* The positions of keys, from the parts of the documents: each lead reads them all. */
static bp_err find_triggers(explainer *self)
{
    char *folder = bp_path_join(self->job->folder, "parts");
    bp_parts *parts = NULL;
    bp_err err;

    bp_dir_refresh(folder); /* other nodes wrote there */
    err = bp_parts_open(&parts, folder, self->key, self->texts.documents, false);
    if (err == BP_OK)
        err = explain_triggers(self, parts, &self->reader.triggers);
    bp_parts_free(&parts);
    bp_free(folder);
    return err;
}

static bp_err prepare(void *context)
{
    explainer *self = context;
    bp_err err = bp_memory_reader_new(&self->reader, &self->settings);

    return err == BP_OK && self->job->leads ? find_triggers(self) : err;
}

static bp_err run(void *context, int64_t unit, bp_buffer *out, bool *stopped)
{
    explainer *self = context;

    (void)stopped;
    bp_heartbeat_progress();
    bp_memory_read(&self->reader, self->job->model, unit, out);
    return BP_OK;
}

static void release(void *context)
{
    bp_memory_reader_clear(&((explainer *)context)->reader);
}

const bp_work_units *explain_units(void *context, int index)
{
    explainer *self = context;
    bp_memory_form form;

    if (index == 0)
        return &self->job->units;
    if (index > 1 || !has_memories(self))
        return NULL;
    form = bp_memory_form_of(&self->settings);
    self->value_units = (bp_work_units){.parts = EXPLAIN_VALUES,
                                        .key = self->key,
                                        .count = bp_memory_units(&form),
                                        .mesh_keys = self->job->units.mesh_keys,
                                        .prepare = prepare,
                                        .run = run,
                                        .release = release};
    bp_memory_form_clear(&form);
    return &self->value_units;
}
