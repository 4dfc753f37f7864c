/* A sound checkpoint, copies of it to damage, and manifests rewritten so that they hash right, for
 * tests of what is refused. */
#pragma once

#include "bp_test_mpi.h"

#include "base/config/json.h"
#include "base/files/hash.h"
#include "io/checkpoint_model.h"

#include <fcntl.h>
#include <unistd.h>

#define COMM MPI_COMM_WORLD

static const int64_t SHAPE[] = {40, 30};

/* "w" in two pieces (rows), of two writers where there are two ranks, else in two files;
 * "adamw.m/w" whole. */
static inline void save_step(const char *parent, int64_t step)
{
    char name[BP_STEP_NAME];
    bp_checkpoint_commit commit = {.parent = parent, .name = name, .writers = bp_comm_size(COMM)};
    bool first = bp_comm_is_root(COMM), last = bp_comm_rank(COMM) == bp_comm_size(COMM) - 1;
    bp_slice slices[3];
    int64_t count = 0;
    json_t *state = json_pack("{s:I}", "step", (json_int_t)step);

    if (first && last) /* a file each */
        commit.file_bytes = 3200;
    bp_checkpoint_step_name(name, step);
    if (first)
        slices[count++] = model_slice("w", 2, SHAPE, (int64_t[]){0, 0}, (int64_t[]){25, 30}, true);
    if (last) {
        slices[count++] = model_slice("w", 2, SHAPE, (int64_t[]){25, 0}, (int64_t[]){15, 30}, true);
        slices[count++] = model_whole("adamw.m/w", 2, SHAPE, true);
    }
    bp_test_check_err(COMM, bp_checkpoint_save(COMM, &commit, slices, count, state), BP_OK);
    for (int64_t k = 0; k < count; k++)
        bp_free(slices[k].data);
    json_decref(state);
}

static inline void run_here(const char *command)
{
    if (bp_comm_is_root(COMM) && system(command) != 0)
        fail_msg("%s failed", command);
    BP_MPI(MPI_Barrier(COMM));
}

/* A fresh copy of the sound checkpoint, step 7, in FOLDER/damaged/step-000000000007; its path. */
static inline const char *fresh_copy(void)
{
    char command[1024];

    if (!bp_path_exists(bp_test_path("sound"))) {
        BP_MPI(MPI_Barrier(COMM));
        if (bp_comm_is_root(COMM))
            bp_test_expect(bp_dir_make(bp_test_path("sound")), BP_OK);
        BP_MPI(MPI_Barrier(COMM));
        save_step(bp_test_path("sound"), 7);
    }
    BP_MPI(MPI_Barrier(COMM));
    (void)snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s", bp_test_path("damaged"),
                   bp_test_path("sound"), bp_test_path("damaged"));
    run_here(command);
    return bp_test_path("damaged/step-000000000007");
}

static inline const char *last_shard(void)
{
    return bp_comm_size(COMM) > 1 ? "shard-00001.h5" : "shard-00002.h5";
}

static inline const char *inside(const char *folder, const char *name)
{
    char *path = bp_test_path_place();

    (void)snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}

/* All ranks get BP_ERR_FORMAT, the words, the step and "damaged". */
static inline void check_damaged(const char *folder, const char *words)
{
    bp_checkpoint *checkpoint;
    bp_err err;

    BP_MPI(MPI_Barrier(COMM));
    err = bp_checkpoint_open(COMM, folder, &checkpoint);
    bp_test_check_err(COMM, err, BP_ERR_FORMAT);
    bp_test_check(COMM, checkpoint == NULL);
    bp_test_check_said(COMM, words);
    bp_test_check_said(COMM, "step-000000000007");
}

static inline void flip_byte(const char *path, int64_t at)
{
    char byte;
    int fd = open(path, O_RDWR);

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x20;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    assert_int_equal(close(fd), 0);
}

/* ---- manifests ---- */

/* Rewrite manifest.json and its hash. */
static inline void seal(const char *folder, const char *text, size_t bytes)
{
    char sha256[BP_SHA256_HEX], line[128];

    bp_sha256_of(text, bytes, sha256);
    (void)snprintf(line, sizeof line, "%s  manifest.json\n", sha256);
    bp_test_expect(bp_file_write(inside(folder, "manifest.json"), text, bytes), BP_OK);
    bp_test_expect(bp_file_write(inside(folder, "manifest.sha256"), line, strlen(line)), BP_OK);
}

/* tensor 0 is "adamw.m/w" in one piece, tensor 1 "w" in two. */
static inline json_t *tensor_of(json_t *manifest, size_t k)
{
    return json_array_get(json_object_get(manifest, "tensors"), k);
}

static inline json_t *piece_of(json_t *manifest, size_t tensor, size_t k)
{
    return json_array_get(json_object_get(tensor_of(manifest, tensor), "pieces"), k);
}

static inline json_t *file_of(json_t *manifest, size_t k)
{
    return json_array_get(json_object_get(manifest, "files"), k);
}

static inline void set_text(json_t *object, const char *key, const char *value)
{
    assert_int_equal(json_object_set_new(object, key, json_string(value)), 0);
}

static inline void set_int(json_t *object, const char *key, int64_t value)
{
    assert_int_equal(json_object_set_new(object, key, json_integer(value)), 0);
}

static inline void set_at(json_t *object, const char *key, size_t place, int64_t value)
{
    assert_int_equal(json_array_set_new(json_object_get(object, key), place, json_integer(value)),
                     0);
}

static inline void make_version(const char *folder, int version)
{
    json_t *manifest;
    char *text;

    if (!bp_comm_is_root(COMM))
        return;
    bp_test_expect(bp_json_load(&manifest, inside(folder, "manifest.json"), 1 << 20), BP_OK);
    set_int(manifest, "format_version", version);
    text = bp_json_text(manifest);
    seal(folder, text, strlen(text));
    bp_free(text);
    json_decref(manifest);
}
