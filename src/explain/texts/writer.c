/* Which model wrote the texts that are explained. Called by texts.c. */
#include "explain/texts/texts.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "run/run_compare.h"

#include <string.h>

#define SUMMARY_BYTES ((int64_t)1 << 26)

/* What config.ini of the run says; the digest's beginning if it says nothing. */
static char *name_of(const char *run, const char *digest)
{
    run_pairs pairs = {0};
    bp_err err = bp_run_pairs_read(&pairs, run);
    const char *name = err == BP_OK ? bp_run_pairs_find(&pairs, "generate.model") : NULL;
    char *out = name && name[0] ? bp_strdup(name) : bp_sprintf("a model of digest %.12s", digest);

    bp_run_pairs_clear(&pairs);
    return out;
}

char *explain_writer_of(const char *texts, const char *digest)
{
    char *folder = bp_path_folder(texts), *path = bp_path_join(folder, "summary.json");
    char *run = bp_path_join(folder, ".."), *out = NULL;
    const char *written = NULL;
    json_t *summary = NULL;

    if (bp_path_exists(path) && bp_json_load(&summary, path, SUMMARY_BYTES) == BP_OK)
        written = json_string_value(json_object_get(json_object_get(summary, "model"), "digest"));
    if (written && strcmp(written, digest) != 0)
        out = name_of(run, written);
    json_decref(summary);
    bp_free(run);
    bp_free(path);
    bp_free(folder);
    return out;
}
