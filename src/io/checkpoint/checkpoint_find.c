/* Finding a checkpoint: the newest of a run that verifies, or the one that a user's path names. */
#include "base/buffer.h"
#include "base/files/fence.h"
#include "base/files/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/checkpoint/checkpoint_priv.h"
#include "io/checkpoint/ensemble_file.h"
#include "mesh/collective.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define METADATA_LIMIT ((int64_t)256 << 20)

/* ---- the newest that verifies ---- */

/* On the root: the names of a folder, sorted; those of steps are walked from the end. */
typedef struct candidates {
    char **names;
    int64_t count, at;
} candidates;

/* The next older step's path; NULL if there is none. */
static char *next_older(candidates *list, const char *parent)
{
    int64_t step;

    while (--list->at >= 0)
        if (bp_step_of_name(list->names[list->at], &step))
            return bp_path_join(parent, list->names[list->at]);
    return NULL;
}

/* Damaged ones keep their bytes, but not the name: the run will save that step again. */
static void move_aside(const char *parent, const char *name, const char *instead)
{
    char *folder = bp_path_join(parent, name), *to = NULL;

    for (int n = 0; n < 1000 && (!to || bp_path_exists(to)); n++) {
        bp_free(to);
        to = bp_sprintf("%s/.bad-%s-%d", parent, name, n);
    }
    if (bp_rename_new(folder, to) != BP_OK)
        bp_warn_failure("a damaged checkpoint can't be moved aside: %s", bp_err_text());
    else
        BP_WARN("checkpoint.put_aside",
                "the damaged %s was put aside as %s: at %s; %s is taken instead", name,
                bp_path_base(to), parent, instead);
    bp_free(folder);
    bp_free(to);
}

/* Every rank walks through the root's list; out is NULL if no checkpoint is valid. */
static bp_err walk(MPI_Comm comm, const char *parent, candidates *list, bp_checkpoint **out)
{
    bool root = bp_comm_is_root(comm), foreign;
    int64_t damaged = 0;
    bp_err err = BP_OK;

    while (err == BP_OK && !*out) {
        char *folder = root ? next_older(list, parent) : NULL;

        bp_bcast_text(&folder, 0, comm);
        if (!folder && damaged == 0)
            return BP_OK;
        if (!folder)
            return BP_FAIL(BP_ERR_FORMAT, "checkpoint.all_damaged",
                           "no checkpoint can be used, all %lld are damaged: at %s; remove them to "
                           "start anew. The oldest says: %s",
                           (long long)damaged, parent, bp_err_text());
        err = bp_checkpoint_open_folder(comm, folder, out, &foreign);
        if (err == BP_ERR_FORMAT && !foreign) {
            bp_warn_failure("%s", bp_err_text());
            damaged++;
            err = BP_OK;
        } else if (err == BP_ERR_INPUT && !foreign) { /* a running job has just removed it */
            err = BP_OK;
        }
        bp_free(folder);
    }
    return err;
}

static bp_err newest(MPI_Comm comm, const char *parent, candidates *list, bp_checkpoint **out)
{
    bp_err err = BP_OK;

    *out = NULL;
    *list = (candidates){NULL, 0, 0};
    if (bp_comm_is_root(comm) && bp_path_exists(parent))
        err = bp_dir_list(parent, &list->names, &list->count);
    list->at = list->count;
    err = bp_agree(comm, err);
    return err == BP_OK ? walk(comm, parent, list, out) : err;
}

/* A later owner may have recreated and announced a step that was found damaged here. A job may have
 * been killed after the rename and before its fsync: the name is synced before the checkpoint is
 * used. */
bp_err bp_checkpoint_newest(MPI_Comm comm, const char *parent, bp_checkpoint **out)
{
    candidates list;
    int64_t step;
    bp_err err = newest(comm, parent, &list, out);

    if (err == BP_OK && bp_comm_is_root(comm))
        err = bp_fence_check();
    if (err == BP_OK && *out && bp_comm_is_root(comm)) {
        for (int64_t k = list.count - 1; k > list.at; k--)
            if (bp_step_of_name(list.names[k], &step))
                move_aside(parent, list.names[k], list.names[list.at]);
        err = bp_path_sync(parent);
    }
    bp_names_free(&list.names, list.count);
    err = bp_agree(comm, err);
    if (err != BP_OK)
        bp_checkpoint_close(out);
    return err;
}

/* ---- what a path names ---- */

static bool has(const char *folder, const char *name)
{
    char *path = bp_path_join(folder, name);
    bool there = bp_path_exists(path);

    bp_free(path);
    return there;
}

/* By the resolved name: "." and links have others. */
static bool is_named_as_step(const char *path)
{
    char *real = realpath(path, NULL);
    int64_t step;
    bool named = bp_step_of_name(bp_path_base(!real ? path : real), &step);

    free(real); /* realpath's */
    return named;
}

bool bp_checkpoint_is_folder(const char *path)
{
    return bp_path_is_dir(path) && (has(path, "manifest.json") || has(path, "manifest.sha256") ||
                                    has(path, "shard-00000.h5") || is_named_as_step(path));
}

int64_t bp_checkpoint_newest_step(const char *parent)
{
    char **names = NULL;
    int64_t count = 0, step, newest = -1;

    if (!bp_path_is_dir(parent) || bp_dir_list(parent, &names, &count) != BP_OK)
        return -1;
    for (int64_t k = 0; k < count; k++)
        if (bp_step_of_name(names[k], &step) && step > newest)
            newest = step;
    bp_names_free(&names, count);
    return newest;
}

/* Where a single model is required. */
static bp_err fail_ensemble(const char *path)
{
    bp_ensemble_list list;
    bp_err err = bp_ensemble_list_load(&list, path);

    if (err == BP_OK)
        err =
            BP_FAIL(BP_ERR_INPUT, "ensemble.not_one_model",
                    "an ensemble of %" PRId64 " members is not one model: at %s; name one of them, "
                    "for example %s",
                    list.count, path, list.members[0].path);
    bp_ensemble_list_clear(&list);
    return err;
}

#define STEPS_SHOWN 5 /* the newest */

/* "step-... and step-..." of the folder that `path` would be in; "" if there are none. bp_free().
 */
static char *list_beside(const char *path)
{
    char *parent = bp_path_folder(path), **names = NULL;
    int64_t count = 0, step, shown = 0;
    bp_buffer list = {0};

    if (bp_path_is_dir(parent) && bp_dir_list(parent, &names, &count) == BP_OK)
        for (int64_t k = count - 1; k >= 0 && shown < STEPS_SHOWN; k--)
            if (bp_step_of_name(names[k], &step))
                bp_buffer_printf(&list, "%s%s", shown++ > 0 ? ", " : "", names[k]);
    bp_names_free(&names, count);
    bp_free(parent);
    return bp_buffer_take(&list);
}

static bp_err fail_missing(const char *path)
{
    char *steps = list_beside(path);
    bool best = strcmp(bp_path_base(path), "best") == 0;
    bp_err err;

    if (steps[0])
        err = BP_FAIL(BP_ERR_INPUT, "checkpoint.missing",
                      "there is no such checkpoint%s, but %s: at %s; give one of these, or the run "
                      "folder, whose newest is taken",
                      best ? " before a run's first validation" : "", steps, path);
    else
        err = BP_FAIL(BP_ERR_INPUT, "checkpoint.missing",
                      "there is no such checkpoint or run: at %s; check the path", path);
    bp_free(steps);
    return err;
}

/* "lm.arpa.gz" has ".arpa". */
static bool is_called(const char *path, const char *suffix)
{
    static const char *const AFTER[] = {"", ".gz", ".zst"};
    const char *name = bp_path_base(path);
    size_t bytes = strlen(name), least = strlen(suffix);

    for (size_t k = 0; k < sizeof AFTER / sizeof AFTER[0]; k++) {
        size_t more = strlen(AFTER[k]);

        if (bytes > least + more && strcmp(name + bytes - more, AFTER[k]) == 0 &&
            strncasecmp(name + bytes - more - least, suffix, least) == 0)
            return true;
    }
    return false;
}

/* The format of another program's model that import can convert; NULL if it is not one. */
static const char *foreign_of(const char *path)
{
    if (bp_path_is_dir(path))
        return has(path, "config.json") || has(path, "modules.json") ? "a Hugging Face folder"
                                                                     : NULL;
    return is_called(path, ".gguf")   ? "a GGUF file"
           : is_called(path, ".arpa") ? "an ARPA file"
                                      : NULL;
}

/* With the command that helps. */
static bp_err fail_foreign(const char *path, const char *what)
{
    int bytes = (int)strlen(path);

    while (bytes > 1 && path[bytes - 1] == '/')
        bytes--;
    return BP_FAIL(BP_ERR_INPUT, "checkpoint.foreign",
                   "%s is not a checkpoint yet: at %s; make one with 'bagpipe-data import %s --out "
                   "%.*s.checkpoint', and name that",
                   what, path, path, bytes, path);
}

static char *steps_of(const char *path)
{
    return has(path, "checkpoints") ? bp_path_join(path, "checkpoints") : bp_strdup(path);
}

/* The folder of steps that `path` means, in *parent; NULL if it is a checkpoint itself. */
static bp_err look_at(const char *path, char **parent)
{
    *parent = NULL;
    if (!bp_path_exists(path))
        return fail_missing(path);
    if (bp_checkpoint_is_folder(path))
        return BP_OK;
    *parent = steps_of(path);
    if (bp_checkpoint_newest_step(*parent) < 0 && bp_ensemble_is_unfinished(path))
        return BP_FAIL(BP_ERR_INPUT, "ensemble.not_finished",
                       "there is no checkpoint: in %s, an ensemble without ensemble.json; finish "
                       "or gather it first, or name one of its members",
                       path);
    if (bp_checkpoint_newest_step(*parent) < 0 && bp_ensemble_is(path))
        return fail_ensemble(path);
    if (bp_checkpoint_newest_step(*parent) < 0 && has(path, "run.json"))
        return BP_FAIL(BP_ERR_INPUT, "checkpoint.none",
                       "there is no checkpoint yet: in the run folder %s; if it is a training's, "
                       "give that command again, and it writes one every checkpoint.every steps "
                       "and at its end",
                       path);
    if (bp_checkpoint_newest_step(*parent) < 0 && foreign_of(path))
        return fail_foreign(path, foreign_of(path));
    if (bp_checkpoint_newest_step(*parent) < 0)
        return BP_FAIL(BP_ERR_INPUT, "checkpoint.none",
                       "there is no checkpoint: in %s; a checkpoint is a step folder, an imported "
                       "folder, a run folder or RUN/checkpoints/best",
                       path);
    return BP_OK;
}

bp_err bp_checkpoint_open_any(MPI_Comm comm, const char *path, bp_checkpoint **out)
{
    candidates list = {NULL, 0, 0};
    char *parent = NULL;
    bp_err err;

    *out = NULL;
    err = bp_agree(comm, bp_comm_is_root(comm) ? look_at(path, &parent) : BP_OK);
    if (err == BP_OK) {
        bp_bcast_text(&parent, 0, comm);
        err = !parent ? bp_checkpoint_open(comm, path, out) : newest(comm, parent, &list, out);
    }
    bp_names_free(&list.names, list.count);
    if (err == BP_OK && !*out)
        err = BP_FAIL(BP_ERR_INPUT, "checkpoint.none", "there is no checkpoint left: in %s", path);
    bp_free(parent);
    return err;
}

static bool is_not_best(const char *path)
{
    char *parent = steps_of(path);
    int64_t best = bp_checkpoints_best(parent);
    bool is = best >= 0 && best != bp_checkpoint_newest_step(parent);

    bp_free(parent);
    return is;
}

static void warn_of_members(const char *path)
{
    bp_ensemble_list list = {0};
    int64_t count = 0;

    if (bp_ensemble_list_load(&list, path) == BP_OK)
        for (int64_t k = 0; k < list.count; k++)
            count += is_not_best(list.members[k].path);
    if (count > 0)
        BP_WARN("checkpoint.not_best",
                "%" PRId64 " of %" PRId64 " members are the newest checkpoints of their runs, and "
                "earlier ones were better in validation: at %s; train with "
                "ensemble.checkpoint=best to list those",
                count, list.count, path);
    bp_ensemble_list_clear(&list);
}

void bp_checkpoint_warn_not_best(const char *path)
{
    char *parent = steps_of(path);

    if (bp_ensemble_is(path))
        warn_of_members(path);
    else if (is_not_best(path))
        BP_WARN("checkpoint.not_best",
                "step %" PRId64 ", the newest checkpoint, is taken, and step %" PRId64
                " was better in validation: at %s; name %s/best to take that",
                bp_checkpoint_newest_step(parent), bp_checkpoints_best(parent), path, parent);
    bp_free(parent);
}

/* NULL if it can't be read: opening it reports the reason. */
static void read_manifest(const char *folder, json_t **manifest)
{
    char *file = bp_path_join(folder, "manifest.json");

    if (bp_json_load_plain(manifest, file, METADATA_LIMIT) != BP_OK)
        *manifest = NULL;
    bp_free(file);
}

static void note(const json_t *manifest, const char *folder)
{
    char *path = bp_path_join(folder, "tokenizer.json");

    bp_checkpoint_note_tokenizer(json_object_get(manifest, "state"), path);
    bp_free(path);
}

bp_err bp_checkpoint_read_metadata(const char *path, char **folder, json_t **manifest)
{
    candidates list = {NULL, 0, 0};
    char *parent = NULL, *step;
    bp_err err = look_at(path, &parent);

    *folder = NULL;
    *manifest = NULL;
    if (err == BP_OK && !parent) {
        *folder = bp_strdup(path);
        read_manifest(*folder, manifest);
    } else if (err == BP_OK) {
        err = bp_dir_list(parent, &list.names, &list.count);
        list.at = list.count;
    }
    while (err == BP_OK && !*manifest && (step = next_older(&list, parent))) {
        read_manifest(step, manifest);
        if (*manifest || !*folder) {
            bp_free(*folder);
            *folder = step;
        } else {
            bp_free(step);
        }
    }
    if (*manifest)
        note(*manifest, *folder);
    bp_names_free(&list.names, list.count);
    bp_free(parent);
    return err;
}

bp_err bp_ensemble_read_state(json_t **state, const char *path)
{
    bp_ensemble_list list = {0};
    char *folder = NULL;
    json_t *manifest = NULL;
    bp_err err = bp_ensemble_is(path) ? bp_ensemble_list_load(&list, path) : BP_OK;

    if (err == BP_OK)
        err = bp_checkpoint_read_metadata(list.count > 0 ? list.members[0].path : path, &folder,
                                          &manifest);
    *state = json_incref(json_object_get(manifest, "state"));
    json_decref(manifest);
    bp_free(folder);
    bp_ensemble_list_clear(&list);
    return err;
}
