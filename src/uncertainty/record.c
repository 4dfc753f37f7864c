/* record.json: what was done for each method and what it took, for the starts that follow. */
#include "uncertainty/job_priv.h"

#include "base/fs.h"

#include <inttypes.h>
#include <math.h>

#define VERSION      1
#define RECORD_LIMIT ((int64_t)64 << 20)

bp_err study_record_open(study_job *self)
{
    int64_t version = VERSION;
    bp_err err = BP_OK;

    if (bp_path_exists(self->record_path)) {
        err = bp_json_load_plain(&self->record, self->record_path, RECORD_LIMIT);
        if (err == BP_OK)
            err = bp_json_get_int(self->record, "format_version", &version, self->record_path);
        if (err == BP_OK && version != VERSION)
            err = BP_FAIL(BP_ERR_FORMAT,
                          "format_version %" PRId64 " of a record is unknown, this program knows "
                          "%d: at %s",
                          version, VERSION, self->record_path);
        return err;
    }
    self->record = json_pack("{s:i, s:{}}", "format_version", VERSION, "methods");
    return self->record ? BP_OK : BP_FAIL(BP_ERR_SYSTEM, "no memory for a record");
}

bp_err study_record_save(const study_job *self)
{
    bp_err err = bp_run_check_owner(self->run);

    return err == BP_OK ? bp_json_save(self->record_path, self->record) : err;
}

json_t *study_record_of(const study_job *self, int64_t method)
{
    json_t *methods = json_object_get(self->record, "methods");
    const char *name = self->outcome.methods.items[method].name;
    json_t *entry = json_object_get(methods, name);

    if (!json_is_object(entry)) {
        entry = json_object();
        if (json_object_set_new(methods, name, entry) != 0)
            return NULL;
    }
    return entry;
}

double study_record_real(const json_t *entry, const char *key)
{
    const json_t *value = json_object_get(entry, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

bp_err study_record_add(const study_job *self, int64_t method, const char *key, double seconds)
{
    json_t *entry = study_record_of(self, method);
    double before = study_record_real(entry, key);

    if (json_object_set_new(entry, key, json_real(isnan(before) ? seconds : before + seconds)) != 0)
        return BP_FAIL(BP_ERR_SYSTEM, "no memory for a record");
    return study_record_save(self);
}
