/* ensemble.json: the list of an ensemble's members. */
#include "io/checkpoint/ensemble_file.h"

#include "base/config/json.h"
#include "base/files/fence.h"
#include "base/files/fs.h"
#include "base/mem.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define FILE_NAME  "ensemble.json"
#define VERSION    1
#define FILE_LIMIT ((int64_t)64 << 20)

/* The file that `path` means. */
static char *file_of(const char *path)
{
    return bp_path_is_dir(path) ? bp_path_join(path, FILE_NAME) : bp_strdup(path);
}

bool bp_ensemble_is(const char *path)
{
    const char *suffix = strrchr(bp_path_base(path), '.');
    char *file;
    bool is;

    if (!bp_path_is_dir(path) && (!suffix || strcmp(suffix, ".json") != 0))
        return false;
    file = file_of(path);
    is = bp_path_exists(file) && !bp_path_is_dir(file);
    bp_free(file);
    return is;
}

bool bp_ensemble_is_unfinished(const char *path)
{
    char *members = bp_path_join(path, "members");
    bool is = bp_path_is_dir(members) && !bp_ensemble_is(path);

    bp_free(members);
    return is;
}

/* ---- reading ---- */

static bp_err check_keys(const json_t *object, const char *const *known, const char *where)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        bool found = false;

        for (const char *const *one = known; *one; one++)
            found = found || strcmp(*one, key) == 0;
        if (!found)
            return BP_FAIL(BP_ERR_FORMAT, "ensemble.unknown_key",
                           "there is no key '%.60s' in an ensemble: in %s", key, where);
    }
    return BP_OK;
}

static bp_err take_member(bp_ensemble_list *list, const json_t *object, const char *file)
{
    static const char *const KEYS[] = {"name", "path", "oob_perplexity", NULL};
    bp_ensemble_member *member = &list->members[list->count];
    const json_t *oob = json_object_get(object, "oob_perplexity");
    const char *name, *path;
    bp_err err = BP_OK;

    if (!json_is_object(object))
        return BP_FAIL(BP_ERR_FORMAT, "ensemble.bad_member", "member %lld is not an object: in %s",
                       (long long)list->count, file);
    err = check_keys(object, KEYS, file);
    if (err == BP_OK)
        err = bp_json_get_string(object, "name", &name, file);
    if (err == BP_OK)
        err = bp_json_get_string(object, "path", &path, file);
    if (err == BP_OK && (name[0] == '\0' || path[0] == '\0'))
        err = BP_FAIL(BP_ERR_FORMAT, "ensemble.bad_member",
                      "member %lld has an empty name or path: in %s", (long long)list->count, file);
    if (err == BP_OK && oob && !json_is_number(oob) && !json_is_null(oob))
        err = BP_FAIL(BP_ERR_FORMAT, "ensemble.bad_member",
                      "'oob_perplexity' of member '%s' is not a number: in %s", name, file);
    if (err != BP_OK)
        return err;
    member->oob_perplexity = json_is_number(oob) ? json_number_value(oob) : NAN;
    member->name = bp_strdup(name);
    member->path = path[0] == '/'
                       ? bp_strdup(path)
                       : bp_sprintf("%.*s%s", (int)(bp_path_base(file) - file), file, path);
    list->count++;
    return BP_OK;
}

static bp_err take_members(bp_ensemble_list *list, const json_t *root, const char *file)
{
    static const char *const KEYS[] = {"format_version", "members", NULL};
    const json_t *members = json_object_get(root, "members");
    int64_t version = VERSION;
    json_t *seen;
    bp_err err = BP_OK;

    if (!json_is_object(root))
        return BP_FAIL(BP_ERR_FORMAT, "ensemble.bad_file", "the ensemble is not an object: in %s",
                       file);
    if (json_object_get(root, "format_version"))
        err = bp_json_get_int(root, "format_version", &version, file);
    if (err == BP_OK && version != VERSION)
        err = BP_FAIL(BP_ERR_FORMAT, "ensemble.unknown_version",
                      "format_version %lld of an ensemble is unknown, this program knows %d: in %s",
                      (long long)version, VERSION, file);
    if (err == BP_OK)
        err = check_keys(root, KEYS, file);
    if (err != BP_OK)
        return err;
    if (json_array_size(members) == 0 || json_array_size(members) > BP_ENSEMBLE_MEMBERS_MAX)
        return BP_FAIL(BP_ERR_FORMAT, "ensemble.bad_file",
                       "'members' is not a list of 1 to %d members: in %s", BP_ENSEMBLE_MEMBERS_MAX,
                       file);
    seen = json_object();
    list->members =
        bp_alloc("ensemble.list", (int64_t)json_array_size(members), sizeof *list->members);
    for (size_t k = 0; k < json_array_size(members) && err == BP_OK; k++) {
        err = take_member(list, json_array_get(members, k), file);
        if (err == BP_OK && json_object_get(seen, list->members[k].name))
            err = BP_FAIL(BP_ERR_FORMAT, "ensemble.same_name",
                          "two members have the name '%s': in %s", list->members[k].name, file);
        if (err == BP_OK)
            (void)json_object_set_new(seen, list->members[k].name, json_true());
    }
    json_decref(seen);
    return err;
}

bp_err bp_ensemble_list_load(bp_ensemble_list *list, const char *path)
{
    char *file = file_of(path);
    json_t *root = NULL;
    bp_err err;

    *list = (bp_ensemble_list){NULL, 0};
    err = bp_json_load(&root, file, FILE_LIMIT);
    if (err == BP_OK)
        err = take_members(list, root, file);
    json_decref(root);
    bp_free(file);
    return err;
}

void bp_ensemble_list_clear(bp_ensemble_list *list)
{
    for (int64_t k = 0; k < list->count; k++) {
        bp_free(list->members[k].name);
        bp_free(list->members[k].path);
    }
    bp_free(list->members);
    *list = (bp_ensemble_list){NULL, 0};
}

/* ---- writing ---- */

bp_err bp_ensemble_list_save(const bp_ensemble_list *list, const char *folder)
{
    char *file = bp_path_join(folder, FILE_NAME);
    json_t *members = json_array(), *root;
    bp_err err;

    for (int64_t k = 0; k < list->count; k++) {
        const bp_ensemble_member *one = &list->members[k];

        (void)json_array_append_new(members, json_pack("{s:s, s:s, s:o}", "name", one->name, "path",
                                                       one->path, "oob_perplexity",
                                                       bp_json_real(one->oob_perplexity)));
    }
    root = json_pack("{s:i, s:o}", "format_version", VERSION, "members", members);
    err = bp_json_save(file, root);
    json_decref(root);
    bp_free(file);
    return err;
}

bp_err bp_ensemble_list_remove(const char *folder)
{
    char *path = bp_path_join(folder, "ensemble.json");
    bp_err err = bp_fence_check();

    if (err == BP_OK && unlink(path) != 0 && errno != ENOENT)
        err = bp_fail_errno(BP_ERR_IO, "can't remove", path);
    bp_free(path);
    return err;
}
