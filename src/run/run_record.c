/* run.json: what a run is, and how it ended. */
#include "run/run_record_priv.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "run/restart.h"

#include <stdio.h>
#include <string.h>

#define RUN_FORMAT  "bagpipe run"
#define RUN_VERSION 1
#define RUN_LIMIT   ((int64_t)16 << 20)

bp_err run_record_read(const char *folder, json_t **out)
{
    char *path = bp_path_join(folder, "run.json");
    const char *format;
    int64_t version = 0;
    bp_err err = BP_OK;

    *out = NULL;
    err = bp_json_load_plain(out, path, RUN_LIMIT);
    if (err == BP_ERR_INPUT) { /* the first start */
        bp_free(path);
        return BP_OK;
    }
    if (err == BP_OK)
        err = bp_json_get_string(*out, "format", &format, path);
    if (err == BP_OK && strcmp(format, RUN_FORMAT) != 0)
        err = BP_FAIL(BP_ERR_FORMAT, "'format' is '%.40s', not '" RUN_FORMAT "': in %s", format,
                      path);
    if (err == BP_OK)
        err = bp_json_get_int(*out, "format_version", &version, path);
    if (err == BP_ERR_FORMAT)
        err = bp_err_advise(bp_err_prefix(err, "run.json is damaged"),
                            "put it back from a copy, or use another run.dir");
    if (err == BP_OK && version != RUN_VERSION)
        err =
            BP_FAIL(BP_ERR_FORMAT,
                    "format_version %lld of a run folder is unknown, this program knows %d: at %s",
                    (long long)version, RUN_VERSION, path);
    bp_free(path);
    return err;
}

bp_err run_record_write(const char *folder, const json_t *record)
{
    char *path = bp_path_join(folder, "run.json");
    bp_err err = bp_json_save(path, record);

    bp_free(path);
    return err;
}

/* {"n1": 4, "n2": 4}: ranks by host, from the gathered names. */
static json_t *hosts_json(const char *names, int size)
{
    json_t *hosts = json_object();

    for (int rank = 0; rank < size; rank++) {
        const char *name = names + (size_t)rank * RUN_HOST_BYTES;

        (void)json_object_set_new(
            hosts, name, json_integer(json_integer_value(json_object_get(hosts, name)) + 1));
    }
    return hosts;
}

static json_t *mesh_json(const bp_mesh *mesh)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:b}", "ranks", mesh->size, "members",
                     mesh->members, "pipeline", mesh->pipelines, "data", mesh->datas, "tensor",
                     mesh->tensors, "dedicated_coordinator", (int)mesh->dedicated);
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
        (void)json_object_set_new(libraries, key,
                                  json_stringn(name + length + 1, end - length - 1));
        name += end + (name[end] == ',');
    }
    return libraries;
}

static void add_seed(void *context, const bp_option *option, const char *value)
{
    if (value != NULL &&
        (strcmp(option->key, "run.seed") == 0 || strcmp(option->key, "run.member") == 0))
        (void)json_object_set_new(context, option->key, json_string(value));
}

static json_t *identities_json(const bp_run_spec *spec, const json_t *before)
{
    json_t *identities = json_deep_copy(json_object_get(before, "identities"));

    if (identities == NULL)
        identities = json_object();
    for (const bp_run_identity *one = spec->identities; one != NULL && one->name != NULL; one++)
        if (one->value != NULL && one->value[0] != '\0')
            (void)json_object_set_new(identities, one->name, json_string(one->value));
    return identities;
}

/* Members of `extra` win; those of objects that are on both sides are put together. */
static void merge(json_t *into, const json_t *extra)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)extra, key, value) /* not changed */
    {
        json_t *mine = json_object_get(into, key);

        if (json_is_object(mine) && json_is_object(value))
            (void)json_object_update(mine, value);
        else
            (void)json_object_set(into, key, value);
    }
}

json_t *run_record_new(const char *folder, const bp_mesh *mesh, const bp_config *config,
                       const bp_run_spec *spec, const json_t *before, const char *hosts)
{
    json_t *seeds = json_object();
    json_int_t start = json_integer_value(json_object_get(before, "starts")) + 1;
    char now[32];

    bp_clock_stamp(now, sizeof now);
    bp_config_each(config, add_seed, seeds);
    json_t *record =
        json_pack("{s:s, s:i, s:s, s:s, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:{s:s}}", "format",
                  RUN_FORMAT, "format_version", RUN_VERSION, "job", spec->job, "version",
                  BAGPIPE_VERSION, "starts", start, "started", now, "mesh", mesh_json(mesh),
                  "hosts", hosts_json(hosts, mesh->size), "libraries", libraries_json(), "seeds",
                  seeds, "identities", identities_json(spec, before), "exit", "state", "running");
    if (record == NULL ||
        json_object_set_new(record, "recent_starts", bp_restart_list(before, folder, start)) != 0) {
        json_decref(record);
        return NULL;
    }
    if (spec->extra != NULL)
        merge(record, spec->extra);
    return record;
}
