/* record.json: completed work and its cost for each method, for later starts. Called by fit.c,
 * job.c and steps.c. */
#include "uncertainty/comparison/job_priv.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/files/hash.h"
#include "base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define VERSION      1
#define RECORD_LIMIT ((int64_t)64 << 20)

/* Digest of the data kept for the methods, as hexadecimal digits. */
static void hash_methods(const comparison_job *self, char out[17])
{
    char *text = bp_json_text(json_object_get(self->record, "methods"));

    (void)snprintf(out, 17, "%016" PRIx64, bp_xxh3(text, strlen(text)));
    bp_free(text);
}

static bp_err read_record(comparison_job *self)
{
    int64_t version = VERSION;
    char hash[17] = "";
    bp_err err = bp_json_load_plain(&self->record, self->record_path, RECORD_LIMIT);

    if (err == BP_OK)
        err = bp_json_get_int(self->record, "format_version", &version, self->record_path);
    if (err == BP_OK && version != VERSION)
        return BP_FAIL(BP_ERR_FORMAT, "comparison.unknown_version",
                       "format_version %" PRId64 " of a record is unknown, this program knows %d: "
                       "at %s",
                       version, VERSION, self->record_path);
    if (err == BP_OK && !json_is_object(json_object_get(self->record, "methods")))
        err = BP_FAIL(BP_ERR_FORMAT, "comparison.damaged", "it has no 'methods': at %s",
                      self->record_path);
    if (err == BP_OK) {
        const char *kept = json_string_value(json_object_get(self->record, "hash"));

        hash_methods(self, hash);
        if (kept && strcmp(kept, hash) != 0) /* a record of an older program has none */
            err = BP_FAIL(BP_ERR_FORMAT, "comparison.damaged",
                          "it is not what the study wrote: at %s", self->record_path);
    }
    return bp_err_advise(err, "put it back from a copy, or remove it: what it kept is fitted anew");
}

bp_err comparison_record_open(comparison_job *self)
{
    if (bp_path_exists(self->record_path))
        return read_record(self);
    self->record = json_pack("{s:i, s:{}}", "format_version", VERSION, "methods");
    return BP_OK;
}

bp_err comparison_record_save(const comparison_job *self)
{
    char hash[17];

    hash_methods(self, hash);
    (void)json_object_set_new(self->record, "hash", bp_json_string(hash));
    return bp_json_save(self->record_path, self->record);
}

json_t *comparison_record_of(const comparison_job *self, int64_t method)
{
    json_t *methods = json_object_get(self->record, "methods");
    const char *name = self->results.methods.items[method].name;
    json_t *entry = json_object_get(methods, name);

    if (!json_is_object(entry)) {
        entry = json_object();
        (void)json_object_set_new(methods, name, entry);
    }
    return entry;
}

bp_err comparison_record_add(const comparison_job *self, int64_t method, const char *key,
                             double seconds)
{
    json_t *entry = comparison_record_of(self, method);
    double before = bp_json_number(entry, key);

    (void)json_object_set_new(entry, key, json_real(isnan(before) ? seconds : before + seconds));
    return comparison_record_save(self);
}

bool comparison_has_score_run(const comparison_job *self, int64_t m)
{
    char *path = bp_sprintf("%s/scores/%s/run.json", self->results.folder,
                            self->results.methods.items[m].name);
    bool has = bp_path_exists(path);

    bp_free(path);
    return has;
}
