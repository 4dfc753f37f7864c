/* run.json: what a run is, and how it ended. Written at each start and end. Called by
 * run_folder.c. */
#include "run/run_record_priv.h"

#include "base/config/json.h"
#include "base/files/fs.h"
#include "base/mem.h"
#include "base/process/clock.h"
#include "base/process/command_line.h"
#include "run/restart.h"
#include "run/run_fields.h"

#include <stdio.h>
#include <string.h>

#define RUN_FORMAT  "bagpipe run"
#define RUN_VERSION 1
#define RUN_LIMIT   ((int64_t)16 << 20)

bp_err run_record_read(const char *folder, json_t **out)
{
    const bp_path path = bp_path_in(folder, "run.json");
    const char *format;
    int64_t version = 0;
    bp_err err;

    *out = NULL;
    err = bp_json_load_plain(out, path.text, RUN_LIMIT);
    if (err == BP_ERR_INPUT) { /* the first start */
        return BP_OK;
    }
    if (err == BP_OK)
        err = bp_json_get_string(*out, "format", &format, path.text);
    if (err == BP_OK && strcmp(format, RUN_FORMAT) != 0)
        err = BP_FAIL(BP_ERR_FORMAT, "run.wrong_format",
                      "'format' is '%.40s', not '" RUN_FORMAT "': in %s", format, path.text);
    if (err == BP_OK)
        err = bp_json_get_int(*out, "format_version", &version, path.text);
    if (err == BP_ERR_FORMAT)
        err = bp_err_advise(bp_err_prefix(err, "run.json is damaged"),
                            "put it back from a copy, or use another run.dir");
    if (err == BP_OK && version != RUN_VERSION)
        err =
            BP_FAIL(BP_ERR_FORMAT, "run.unknown_version",
                    "format_version %lld of a run folder is unknown, this program knows %d: at %s",
                    (long long)version, RUN_VERSION, path.text);
    return err;
}

bp_err run_record_write(const char *folder, const json_t *record)
{
    return bp_json_save(bp_path_in(folder, "run.json").text, record);
}

/* {"n1": 4, "n2": 4}: ranks by host, from the gathered names. */
static json_t *hosts_json(const char *names, int size)
{
    json_t *hosts = json_object();

    for (int rank = 0; rank < size; rank++) {
        const char *name = names + (size_t)rank * RUN_HOST_BYTES;

        set_integer(hosts, name, integer_of(hosts, name) + 1);
    }
    return hosts;
}

static json_t *mesh_json(const bp_mesh *mesh)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:b}", "ranks", mesh->size, "members",
                     mesh->members, "pipeline", mesh->pipeline_ranks, "data", mesh->data_ranks,
                     "tensor", mesh->tensor_ranks, "dedicated_coordinator", (int)mesh->dedicated);
}

/* MPI as it runs, and what the program was built with. */
static json_t *libraries_json(void)
{
    static const char built_with[] = BAGPIPE_LIBRARIES;
    char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
    json_t *libraries;
    int bytes;

    BP_MPI(MPI_Get_library_version(mpi, &bytes));
    mpi[strcspn(mpi, "\n")] = '\0';
    libraries = json_pack("{s:s}", "mpi", mpi);
    for (const char *name = built_with; *name != '\0';) {
        size_t length = strcspn(name, " "), end = strcspn(name, ",");
        char key[32];

        (void)snprintf(key, sizeof key, "%.*s", (int)length, name);
        set(libraries, key, json_stringn(name + length + 1, end - length - 1));
        name += end + (name[end] == ',');
    }
    return libraries;
}

static json_t *identities_json(const bp_run_spec *spec, const json_t *before)
{
    json_t *identities = json_deep_copy(json_object_get(before, "identities"));

    if (!identities)
        identities = json_object();
    for (const bp_run_identity *one = spec->identities; one && one->name; one++)
        if (one->value && one->value[0] != '\0')
            set(identities, one->name, bp_json_string(one->value));
    return identities;
}

static void add_seed(void *context, const bp_option *option, const char *value)
{
    static const char *const seeds[] = {"run.seed", "run.member", NULL};

    if (value && is_among(option->key, seeds))
        set(context, option->key, bp_json_string(value));
}

json_t *run_record_new(const char *folder, const bp_mesh *mesh, const bp_config *config,
                       const bp_run_spec *spec, const json_t *before, const char *hosts)
{
    json_int_t start = json_integer_value(json_object_get(before, "starts")) + 1;
    json_t *record, *seeds = json_object();
    char *command = bp_command_line(mesh->size);

    bp_config_each(config, add_seed, seeds);
    record = json_pack("{s:s, s:i, s:s, s:s, s:s, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:{s:s}, s:o}",
                       "format", RUN_FORMAT, "format_version", RUN_VERSION, "job", spec->job,
                       "version", BAGPIPE_VERSION, "command", command, "starts", start, "started",
                       bp_clock_stamp().text, "mesh", mesh_json(mesh), "hosts",
                       hosts_json(hosts, mesh->size), "libraries", libraries_json(), "seeds", seeds,
                       "identities", identities_json(spec, before), "exit", "state", "running",
                       "recent_starts", bp_restart_list(before, folder, start));
    bp_free(command);
    /* objects on both sides are merged */
    (void)json_object_update_recursive(record, (json_t *)spec->extra); /* which is not changed */
    return record;
}
