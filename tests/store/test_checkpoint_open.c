/* Checkpoints that are damaged, each in another way, are refused by all ranks with one clear
 * message; and which one a path means. */
#include "bp_test_mpi.h"

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "store/checkpoint_model.h"

#include <fcntl.h>
#include <unistd.h>

#define COMM MPI_COMM_WORLD

static const int64_t SHAPE[] = {40, 30};

/* ---- a sound checkpoint, and copies of it to damage ---- */

/* "w" in two pieces (rows), of two writers where there are two ranks; "adamw.m/w" whole. */
static void save_step(const char *parent, int64_t step)
{
    char name[BP_STEP_NAME];
    bp_checkpoint_commit commit = {.parent = parent, .name = name, .writers = bp_comm_size(COMM)};
    bool first = bp_comm_is_root(COMM), last = bp_comm_rank(COMM) == bp_comm_size(COMM) - 1;
    bp_box boxes[3];
    int64_t count = 0;
    json_t *state = json_pack("{s:I}", "step", (json_int_t)step);

    bp_checkpoint_step_name(name, step);
    if (first)
        boxes[count++] = model_box("w", 2, SHAPE, (int64_t[]){0, 0}, (int64_t[]){25, 30}, true);
    if (last) {
        boxes[count++] = model_box("w", 2, SHAPE, (int64_t[]){25, 0}, (int64_t[]){15, 30}, true);
        boxes[count++] = model_whole("adamw.m/w", 2, SHAPE, true);
    }
    bp_test_check_err(COMM, bp_checkpoint_save(COMM, &commit, boxes, count, state), BP_OK);
    for (int64_t k = 0; k < count; k++)
        bp_free(boxes[k].data);
    json_decref(state);
}

static void run_here(const char *command)
{
    if (bp_comm_is_root(COMM) && system(command) != 0)
        fail_msg("%s failed", command);
    BP_MPI(MPI_Barrier(COMM));
}

/* A fresh copy of the sound checkpoint, step 7, in FOLDER/damaged/step-000000000007; its path. */
static const char *fresh_copy(void)
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

static const char *last_shard(void)
{
    return bp_comm_size(COMM) > 1 ? "shard-00001.h5" : "shard-00000.h5";
}

static const char *inside(const char *folder, const char *name)
{
    char *path = bp_test_path_place();

    (void)snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}

/* All ranks get BP_ERR_FORMAT, the words, the step and "damaged". */
static void check_damaged(const char *folder, const char *words)
{
    bp_checkpoint *checkpoint;
    bp_err err;

    BP_MPI(MPI_Barrier(COMM));
    err = bp_checkpoint_open(COMM, folder, &checkpoint);
    bp_test_check_err(COMM, err, BP_ERR_FORMAT);
    bp_test_check(COMM, checkpoint == NULL);
    if (strstr(bp_err_message(), words) == NULL)
        print_error("'%s' is not in '%s'\n", words, bp_err_message());
    bp_test_check(COMM, strstr(bp_err_message(), words) != NULL);
    bp_test_check(COMM,
                  strstr(bp_err_message(), "checkpoint step-000000000007 is damaged") != NULL);
}

static void flip_byte(const char *path, int64_t at)
{
    char byte;
    int fd = open(path, O_RDWR);

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x20;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    assert_int_equal(close(fd), 0);
}

/* ---- files ---- */

static void sound_checkpoint_opens(void **state)
{
    bp_checkpoint *checkpoint;
    const char *folder = fresh_copy();

    (void)state;
    bp_test_check_err(COMM, bp_checkpoint_open(COMM, folder, &checkpoint), BP_OK);
    bp_test_check(
        COMM, json_integer_value(json_object_get(bp_checkpoint_state(checkpoint), "step")) == 7);
    bp_test_check(COMM, strcmp(bp_checkpoint_folder(checkpoint), folder) == 0);
    bp_test_check(COMM, bp_checkpoint_has(checkpoint, "w") && !bp_checkpoint_has(checkpoint, "v"));
    bp_test_check(COMM, bp_checkpoint_tensors(checkpoint) == 2 &&
                            bp_checkpoint_tokenizer(checkpoint) == NULL);
    bp_test_check(COMM, strcmp(bp_checkpoint_tensor(checkpoint, 1).name, "w") == 0);
    bp_test_check(COMM, bp_checkpoint_tensor(checkpoint, 1).extent[0] == 40);
    bp_checkpoint_close(&checkpoint);
}

/* Every byte counts: user block, metadata, data, the end. */
static void flipped_byte_is_damage(void **state)
{
    static const int64_t places[] = {0, 100, 511, 512, 600, 900, 1500, 3000};

    (void)state;
    for (size_t k = 0; k < sizeof places / sizeof places[0] + 1; k++) {
        const char *folder = fresh_copy(), *shard = inside(folder, last_shard());

        if (bp_comm_is_root(COMM))
            flip_byte(shard,
                      k < sizeof places / sizeof places[0] ? places[k] : bp_file_size(shard) - 1);
        check_damaged(folder, "SHA-256 of shard-0000");
    }
}

/* Anywhere in any file; and cut at any length. */
static void no_flip_and_no_cut_goes_unnoticed(void **state)
{
    static const char *const files[] = {"manifest.json", "manifest.sha256", "shard-00000.h5"};
    char folder[PATH_MAX / 2], file[PATH_MAX];
    bool root = bp_comm_is_root(COMM);
    uint64_t random = 99;

    (void)state;
    (void)snprintf(folder, sizeof folder, "%s", fresh_copy());
    for (int trial = 0; trial < 300; trial++) {
        bp_checkpoint *checkpoint;
        int64_t bytes, at;

        (void)snprintf(file, sizeof file, "%s/%s", folder, files[trial % 3]);
        bytes = bp_file_size(file);
        BP_MPI(MPI_Barrier(COMM));
        random = random * 6364136223846793005u + 1442695040888963407u;
        at = (int64_t)(random >> 33) % bytes;
        if (root)
            flip_byte(file, at);
        BP_MPI(MPI_Barrier(COMM));
        bp_test_check_err(COMM, bp_checkpoint_open(COMM, folder, &checkpoint), BP_ERR_FORMAT);
        if (root)
            flip_byte(file, at);
    }
    for (int trial = 0; trial < 64; trial++) {
        bp_checkpoint *checkpoint;
        int64_t bytes;

        (void)snprintf(file, sizeof file, "%s/%s", folder, files[trial % 3]);
        bytes = bp_file_size(file);
        BP_MPI(MPI_Barrier(COMM));
        random = random * 6364136223846793005u + 1442695040888963407u;
        if (root)
            assert_int_equal(truncate(file, (int64_t)(random >> 33) % bytes), 0);
        BP_MPI(MPI_Barrier(COMM));
        bp_test_check_err(COMM, bp_checkpoint_open(COMM, folder, &checkpoint), BP_ERR_FORMAT);
        (void)fresh_copy();
    }
}

static void truncated_shard_is_damage(void **state)
{
    const char *folder = fresh_copy(), *shard = inside(folder, last_shard());

    (void)state;
    if (bp_comm_is_root(COMM))
        assert_int_equal(truncate(shard, bp_file_size(shard) / 2), 0);
    check_damaged(folder, "bytes, and the manifest says");
}

static void missing_shard_is_damage(void **state)
{
    const char *folder = fresh_copy();

    (void)state;
    if (bp_comm_is_root(COMM))
        assert_int_equal(unlink(inside(folder, last_shard())), 0);
    check_damaged(folder, "is missing");
}

static void extra_shard_is_damage(void **state)
{
    const char *folder = fresh_copy();

    (void)state;
    if (bp_comm_is_root(COMM))
        bp_test_expect(bp_file_write(inside(folder, "shard-00009.h5"), "x", 1), BP_OK);
    check_damaged(folder, "'shard-00009.h5' is not listed");
}

static void shard_that_is_a_link_is_damage(void **state)
{
    const char *folder = fresh_copy(), *shard = inside(folder, last_shard()),
               *moved = bp_test_path("elsewhere.h5");

    (void)state;
    if (bp_comm_is_root(COMM)) {
        assert_int_equal(rename(shard, moved), 0);
        assert_int_equal(symlink(moved, shard), 0);
    }
    check_damaged(folder, "is not a regular file");
}

static void shard_of_another_step_is_damage(void **state)
{
    const char *folder = fresh_copy(), *parent = bp_test_path("other");
    char command[1024];

    (void)state;
    if (bp_comm_is_root(COMM))
        bp_test_expect(bp_dir_make(parent), BP_OK);
    BP_MPI(MPI_Barrier(COMM));
    save_step(parent, 8); /* the same tensors: other bytes are in the manifest alone */
    (void)snprintf(command, sizeof command, "cp %s/step-000000000008/manifest.* %s", parent,
                   folder);
    run_here(command);
    check_damaged(folder, "it holds step 8");
}

static void missing_manifest_is_damage(void **state)
{
    static const char *const names[] = {"manifest.json", "manifest.sha256"};

    (void)state;
    for (int k = 0; k < 2; k++) {
        const char *folder = fresh_copy();

        if (bp_comm_is_root(COMM))
            assert_int_equal(unlink(inside(folder, names[k])), 0);
        check_damaged(folder, "is missing");
    }
}

/* The line is compared byte for byte. */
static void flipped_byte_of_the_manifest_is_damage(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        const char *folder = fresh_copy();

        if (bp_comm_is_root(COMM))
            flip_byte(inside(folder, k < 2 ? "manifest.json" : "manifest.sha256"),
                      k < 2 ? 40 + 200 * k : 60 + k * 5);
        check_damaged(folder, "manifest.sha256 is not that of manifest.json");
    }
}

static void folder_that_is_not_there_is_a_missing_input(void **state)
{
    bp_checkpoint *checkpoint;

    (void)state;
    bp_test_check_err(COMM, bp_checkpoint_open(COMM, bp_test_path("none"), &checkpoint),
                      BP_ERR_INPUT);
    bp_test_check_err(COMM, bp_checkpoint_open(COMM, "/dev/null", &checkpoint), BP_ERR_INPUT);
}

/* ---- manifests that hash right and say what can't be ---- */

/* Rewrite manifest.json and its hash. */
static void seal(const char *folder, const char *text, size_t bytes)
{
    char sha256[BP_SHA256_HEX], line[128];

    bp_test_expect(bp_sha256_of(text, bytes, sha256), BP_OK);
    (void)snprintf(line, sizeof line, "%s  manifest.json\n", sha256);
    bp_test_expect(bp_file_write(inside(folder, "manifest.json"), text, bytes), BP_OK);
    bp_test_expect(bp_file_write(inside(folder, "manifest.sha256"), line, strlen(line)), BP_OK);
}

/* tensor 0 is "adamw.m/w" in one piece, tensor 1 "w" in two. */
static json_t *tensor_of(json_t *manifest, size_t k)
{
    return json_array_get(json_object_get(manifest, "tensors"), k);
}

static json_t *piece_of(json_t *manifest, size_t tensor, size_t k)
{
    return json_array_get(json_object_get(tensor_of(manifest, tensor), "pieces"), k);
}

static json_t *file_of(json_t *manifest, size_t k)
{
    return json_array_get(json_object_get(manifest, "files"), k);
}

static void set_text(json_t *object, const char *key, const char *value)
{
    assert_int_equal(json_object_set_new(object, key, json_string(value)), 0);
}

static void set_int(json_t *object, const char *key, int64_t value)
{
    assert_int_equal(json_object_set_new(object, key, json_integer(value)), 0);
}

static void set_at(json_t *object, const char *key, size_t place, int64_t value)
{
    assert_int_equal(json_array_set_new(json_object_get(object, key), place, json_integer(value)),
                     0);
}

static void make_overlap(json_t *m)
{
    set_at(piece_of(m, 1, 1), "offset", 0, 24);
}
static void make_hole(json_t *m)
{
    set_at(piece_of(m, 1, 1), "extent", 0, 14);
}
static void many_pieces(json_t *m)
{
    json_t *pieces = json_object_get(tensor_of(m, 1), "pieces");

    for (int k = 0; k < 20000; k++)
        assert_int_equal(json_array_append(pieces, json_array_get(pieces, 0)), 0);
}
static void drop_piece(json_t *m)
{
    assert_int_equal(json_array_remove(json_object_get(tensor_of(m, 1), "pieces"), 0), 0);
}
static void piece_beyond(json_t *m)
{
    set_at(piece_of(m, 1, 1), "offset", 0, 30);
}
static void negative_offset(json_t *m)
{
    set_at(piece_of(m, 1, 0), "offset", 0, -1);
}
static void wrapping_shape(json_t *m) /* 4194304^3 * 16: 2^70 wraps to 0 in 64 bits */
{
    assert_int_equal(json_object_set_new(tensor_of(m, 1), "shape",
                                         json_pack("[i,i,i,i]", 4194304, 4194304, 4194304, 16)),
                     0);
}
static void huge_dimension(json_t *m)
{
    set_at(tensor_of(m, 1), "shape", 0, INT64_MAX);
}
static void five_dimensions(json_t *m)
{
    assert_int_equal(
        json_object_set_new(tensor_of(m, 1), "shape", json_pack("[i,i,i,i,i]", 1, 1, 1, 40, 30)),
        0);
}
static void real_in_shape(json_t *m)
{
    assert_int_equal(
        json_array_set_new(json_object_get(tensor_of(m, 1), "shape"), 0, json_real(40.0)), 0);
}
static void path_up(json_t *m)
{
    set_text(file_of(m, 0), "name", "../../etc/passwd");
}
static void absolute_path(json_t *m)
{
    set_text(file_of(m, 0), "name", "/etc/passwd");
}
static void nearly_a_shard(json_t *m)
{
    set_text(file_of(m, 0), "name", "shard-0000x.h5");
}
static void file_twice(json_t *m)
{
    assert_int_equal(json_array_insert(json_object_get(m, "files"), 0, file_of(m, 0)), 0);
}
static void unlisted_file(json_t *m)
{
    set_text(piece_of(m, 1, 0), "file", "shard-00099.h5");
}
static void dataset_up(json_t *m)
{
    set_text(piece_of(m, 1, 0), "dataset", "/a/../w");
}
static void dataset_long(json_t *m)
{
    char name[400] = "/";

    memset(name + 1, 'a', 350);
    name[351] = '\0';
    set_text(piece_of(m, 1, 0), "dataset", name);
}
static void other_dtype(json_t *m)
{
    set_text(tensor_of(m, 1), "dtype", "float64");
}
static void bad_tensor_name(json_t *m)
{
    set_text(tensor_of(m, 1), "name", "../w");
}
static void tensor_twice(json_t *m)
{
    assert_int_equal(json_array_append(json_object_get(m, "tensors"), tensor_of(m, 1)), 0);
}
static void short_digest(json_t *m)
{
    set_text(tensor_of(m, 1), "digest", "abc");
}
static void no_state(json_t *m)
{
    assert_int_equal(json_object_del(m, "state"), 0);
}
static void no_tensors(json_t *m)
{
    assert_int_equal(json_object_del(m, "tensors"), 0);
}
static void text_for_bytes(json_t *m)
{
    set_text(file_of(m, 0), "bytes", "12");
}
static void bad_file_hash(json_t *m)
{
    set_text(file_of(m, 0), "sha256", "xyz");
}
static void other_format(json_t *m)
{
    set_text(m, "format", "something else");
}
static void other_step(json_t *m)
{
    set_int(json_object_get(m, "state"), "step", 8);
}

static void manifest_that_lies_is_damage(void **state)
{
    static const struct {
        void (*edit)(json_t *manifest);
        const char *words;
    } cases[] = {{make_overlap, "two pieces of tensor 'w' overlap at (24, 0"},
                 {make_hole, "leave a hole of 30 of its 1200"},
                 {many_pieces, "tensor 'w' lies in 20002 pieces, 16384 are the most"},
                 {drop_piece, "leave a hole of 750 of its 1200"},
                 {piece_beyond, "covers 30 + 15 of dimension 0, which has 40"},
                 {negative_offset, "covers -1 + 25"},
                 {wrapping_shape, "more than 2^40 elements"},
                 {huge_dimension, "9223372036854775807 for dimension 0"},
                 {five_dimensions, "is not a list of 1 to 4 integers"},
                 {real_in_shape, "is not a list of integers"},
                 {path_up, "'../../etc/passwd' is no name for a file"},
                 {absolute_path, "'/etc/passwd' is no name for a file"},
                 {nearly_a_shard, "'shard-0000x.h5' is no name for a file"},
                 {file_twice, "is listed twice or out of order"},
                 {unlisted_file, "'shard-00099.h5', which is not listed"},
                 {dataset_up, "'/a/../w' is no dataset name"},
                 {dataset_long, "is no dataset name"},
                 {other_dtype, "has dtype 'float64'"},
                 {bad_tensor_name, "'../w' is no tensor name"},
                 {tensor_twice, "'w' is listed twice or out of order"},
                 {short_digest, "is not 32 hexadecimal digits"},
                 {no_state, "'state' is not an object"},
                 {no_tensors, "is not a list"},
                 {text_for_bytes, "\"bytes\" is not an integer"},
                 {bad_file_hash, "size or SHA-256 of shard-00000.h5 is wrong"},
                 {other_format, "'format' is 'something else'"},
                 {other_step, "it holds step 8"}};

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const char *folder = fresh_copy();

        if (bp_comm_is_root(COMM)) {
            json_t *manifest;
            char *text;

            bp_test_expect(bp_json_load(&manifest, inside(folder, "manifest.json"), 1 << 20),
                           BP_OK);
            cases[k].edit(manifest);
            text = bp_json_text(manifest);
            seal(folder, text, strlen(text));
            bp_free(text);
            json_decref(manifest);
        }
        check_damaged(folder, cases[k].words);
    }
}

static void manifest_that_is_no_json_is_damage(void **state)
{
    static const char *const texts[] = {"", "{", "[]", "{\"a\": 1, \"a\": 2}", "{} {}", "nonsense"};

    (void)state;
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        const char *folder = fresh_copy();

        if (bp_comm_is_root(COMM))
            seal(folder, texts[k], strlen(texts[k]));
        check_damaged(folder, "manifest.json");
    }
}

static void make_version(const char *folder, int version)
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

/* Not damage, which one would fall back from: the user has the wrong program. */
static void unknown_version_is_named(void **state)
{
    const char *folder = fresh_copy();
    bp_checkpoint *checkpoint;

    (void)state;
    make_version(folder, 2);
    BP_MPI(MPI_Barrier(COMM));
    bp_test_check_err(COMM, bp_checkpoint_open(COMM, folder, &checkpoint), BP_ERR_FORMAT);
    bp_test_check(COMM, strstr(bp_err_message(), "format_version 2") != NULL);
    bp_test_check(COMM, strstr(bp_err_message(), "damaged") == NULL);
}

/* ---- loading ---- */

static void open_sound(bp_checkpoint **checkpoint)
{
    bp_test_check_err(COMM, bp_checkpoint_open(COMM, fresh_copy(), checkpoint), BP_OK);
}

static void missing_tensor_is_refused_on_load(void **state)
{
    bp_box box = model_whole("v", 2, SHAPE, false);
    bp_checkpoint *checkpoint;

    (void)state;
    open_sound(&checkpoint);
    bp_test_check_err(COMM, bp_checkpoint_load(checkpoint, &box, bp_comm_is_root(COMM)),
                      BP_ERR_FORMAT);
    bp_test_check(COMM, strstr(bp_err_message(), "tensor 'v' is missing") != NULL);
    bp_test_check_err(COMM, bp_checkpoint_check_digests(checkpoint, &box, bp_comm_is_root(COMM)),
                      BP_ERR_FORMAT);
    bp_checkpoint_close(&checkpoint);
    bp_free(box.data);
}

static void other_shape_is_refused_on_load(void **state)
{
    static const int64_t other[] = {40, 31};
    bp_box box = model_whole("w", 2, other, false);
    bp_checkpoint *checkpoint;

    (void)state;
    open_sound(&checkpoint);
    bp_test_check_err(
        COMM, bp_checkpoint_load(checkpoint, &box, bp_comm_rank(COMM) == bp_comm_size(COMM) - 1),
        BP_ERR_FORMAT);
    bp_test_check(COMM, strstr(bp_err_message(),
                               "tensor 'w' has shape (40, 30) instead of (40, 31)") != NULL);
    bp_checkpoint_close(&checkpoint);
    bp_free(box.data);
}

static void box_that_leaves_its_tensor_is_a_bug(void **state)
{
    bp_box box = model_whole("w", 2, SHAPE, false);
    bp_checkpoint *checkpoint;

    (void)state;
    open_sound(&checkpoint);
    box.offset[0] = 1;
    bp_test_check_err(COMM, bp_checkpoint_load(checkpoint, &box, 1), BP_ERR_SOFTWARE);
    bp_test_check_err(COMM, bp_checkpoint_check_digests(checkpoint, &box, 1), BP_ERR_SOFTWARE);
    bp_checkpoint_close(&checkpoint);
    bp_free(box.data);
}

static void digest_tells_other_values_and_other_coverage(void **state)
{
    bp_box box = model_whole("w", 2, SHAPE, true);
    bp_checkpoint *checkpoint;
    bool root = bp_comm_is_root(COMM);

    (void)state;
    open_sound(&checkpoint);
    bp_test_check_err(COMM, bp_checkpoint_check_digests(checkpoint, &box, root), BP_OK);
    box.data[1199] += 1e-6f;
    bp_test_check_err(COMM, bp_checkpoint_check_digests(checkpoint, &box, root), BP_ERR_FORMAT);
    bp_test_check(COMM, strstr(bp_err_message(), "damaged: tensor 'w' has another digest") != NULL);
    box.extent[0] = 39;
    bp_test_check_err(COMM, bp_checkpoint_check_digests(checkpoint, &box, root), BP_ERR_SOFTWARE);
    bp_checkpoint_close(&checkpoint);
    bp_free(box.data);
}

/* The manifest hashes right and names a dataset that the file lacks, or has in another shape. */
static void dataset_other_than_listed_is_refused(void **state)
{
    static const char *const names[] = {"/w/p7", "/adamw.m/w/p0"};
    static const char *const words[] = {"dataset /w/p7 of tensor 'w' is missing",
                                        "is not the contiguous float32 piece"};
    bp_box box = model_whole("w", 2, SHAPE, false);

    (void)state;
    for (int k = 0; k < 2; k++) {
        const char *folder = fresh_copy();
        bp_checkpoint *checkpoint;

        if (bp_comm_is_root(COMM)) {
            json_t *manifest;
            char *text;

            bp_test_expect(bp_json_load(&manifest, inside(folder, "manifest.json"), 1 << 20),
                           BP_OK);
            set_text(piece_of(manifest, 1, 1), "dataset", names[k]);
            text = bp_json_text(manifest);
            seal(folder, text, strlen(text));
            bp_free(text);
            json_decref(manifest);
        }
        BP_MPI(MPI_Barrier(COMM));
        bp_test_check_err(COMM, bp_checkpoint_open(COMM, folder, &checkpoint), BP_OK);
        bp_test_check_err(COMM, bp_checkpoint_load(checkpoint, &box, 1), BP_ERR_FORMAT);
        bp_test_check(COMM, strstr(bp_err_message(), words[k]) != NULL);
        bp_checkpoint_close(&checkpoint);
    }
    bp_free(box.data);
}

/* ---- which one ---- */

/* A run folder with checkpoints of steps 7, 8 and 9; `best` is 8. */
static const char *fresh_run(void)
{
    const char *run = bp_test_path("run"), *parent = bp_test_path("run/checkpoints");

    BP_MPI(MPI_Barrier(COMM));
    if (bp_comm_is_root(COMM)) {
        bp_test_expect(bp_dir_remove(run), BP_OK);
        bp_test_expect(bp_dir_make(parent), BP_OK);
    }
    BP_MPI(MPI_Barrier(COMM));
    for (int64_t step = 7; step <= 9; step++)
        save_step(parent, step);
    if (bp_comm_is_root(COMM))
        bp_test_expect(bp_checkpoints_link_best(parent, 8), BP_OK);
    BP_MPI(MPI_Barrier(COMM));
    return run;
}

static void damage_step(int64_t step)
{
    char name[BP_STEP_NAME], path[PATH_MAX];

    bp_checkpoint_step_name(name, step);
    (void)snprintf(path, sizeof path, "%s/%s/shard-00000.h5", bp_test_path("run/checkpoints"),
                   name);
    if (bp_comm_is_root(COMM))
        flip_byte(path, 700);
    BP_MPI(MPI_Barrier(COMM));
}

/* The step that open_any finds; -1 after an error. */
static int64_t step_of(const char *path, bp_err expected)
{
    bp_checkpoint *checkpoint;
    int64_t step = -1;

    bp_test_check_err(COMM, bp_checkpoint_open_any(COMM, path, &checkpoint), expected);
    if (checkpoint != NULL)
        step = json_integer_value(json_object_get(bp_checkpoint_state(checkpoint), "step"));
    bp_checkpoint_close(&checkpoint);
    return step;
}

static void path_names_a_checkpoint_in_four_ways(void **state)
{
    const char *run = fresh_run();
    char slash[PATH_MAX];

    (void)state;
    (void)snprintf(slash, sizeof slash, "%s///", bp_test_path("run/checkpoints/step-000000000007"));
    bp_test_check(COMM, step_of(run, BP_OK) == 9);
    bp_test_check(COMM, step_of(bp_test_path("run/checkpoints"), BP_OK) == 9);
    bp_test_check(COMM, step_of(bp_test_path("run/checkpoints/best"), BP_OK) == 8);
    bp_test_check(COMM, step_of(bp_test_path("run/checkpoints/step-000000000007"), BP_OK) == 7);
    bp_test_check(COMM, step_of(slash, BP_OK) == 7);
}

static void imported_folder_is_a_checkpoint(void **state)
{
    const char *copy = bp_test_path("imported");

    (void)state;
    (void)fresh_run();
    if (bp_comm_is_root(COMM))
        assert_int_equal(rename(bp_test_path("run/checkpoints/step-000000000007"), copy), 0);
    BP_MPI(MPI_Barrier(COMM));
    bp_test_check(COMM, step_of(copy, BP_OK) == 7);
}

static void path_without_a_checkpoint_is_a_missing_input(void **state)
{
    (void)state;
    if (bp_comm_is_root(COMM))
        bp_test_expect(bp_dir_make(bp_test_path("empty/checkpoints")), BP_OK);
    BP_MPI(MPI_Barrier(COMM));
    bp_test_check(COMM, step_of(bp_test_path("empty"), BP_ERR_INPUT) == -1);
    bp_test_check(COMM, step_of(bp_test_path("empty/checkpoints"), BP_ERR_INPUT) == -1);
    bp_test_check(COMM, step_of(bp_test_path("nowhere"), BP_ERR_INPUT) == -1);
}

/* What is printed on standard error meanwhile, by all ranks of which only the root speaks. */
static int hide_stderr(const char *path)
{
    int kept = dup(2), fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);

    assert_true(kept >= 0 && fd >= 0 && dup2(fd, 2) == 2 && close(fd) == 0);
    return kept;
}

static void show_stderr(int kept)
{
    (void)fflush(stderr);
    assert_true(dup2(kept, 2) == 2 && close(kept) == 0);
    BP_MPI(MPI_Barrier(COMM));
}

static bool warned(const char *path, const char *words)
{
    char *text;
    size_t bytes;
    bool found = bp_file_read(path, 1 << 20, &text, &bytes) == BP_OK && strstr(text, words) != NULL;

    bp_free(text);
    return found;
}

static void damaged_one_is_passed_over_with_a_warning(void **state)
{
    const char *run = fresh_run(), *heard = bp_test_path("warnings");
    int kept;
    int64_t step;

    (void)state;
    damage_step(9);
    kept = hide_stderr(heard);
    step = step_of(run, BP_OK);
    show_stderr(kept);
    bp_test_check(COMM, step == 8);
    bp_test_check(COMM, warned(heard, "bagpipe: warning: checkpoint step-000000000009 is damaged"));
    bp_test_check(COMM, bp_path_exists(bp_test_path(
                            "run/checkpoints/step-000000000009"))); /* a reader moves nothing */
    kept = hide_stderr(heard);
    damage_step(8);
    damage_step(7);
    step = step_of(run, BP_ERR_FORMAT);
    show_stderr(kept);
    bp_test_check(COMM, strstr(bp_err_message(), "all 3 are damaged") != NULL);
    bp_test_check(COMM, step_of(bp_test_path("run/checkpoints/best"), BP_ERR_FORMAT) == -1);
}

/* The newest that verifies for the run itself; its step, or -1 where there is none. */
static int64_t newest_of(const char *parent, bp_err expected)
{
    bp_checkpoint *checkpoint;
    int64_t step = -1;

    bp_test_check_err(COMM, bp_checkpoint_newest(COMM, parent, NULL, NULL, &checkpoint), expected);
    if (checkpoint != NULL)
        step = json_integer_value(json_object_get(bp_checkpoint_state(checkpoint), "step"));
    bp_checkpoint_close(&checkpoint);
    BP_MPI(MPI_Barrier(COMM));
    return step;
}

static void resume_takes_the_newest_that_verifies(void **state)
{
    const char *parent = bp_test_path("run/checkpoints"),
               *heard = bp_test_path("warnings-of-resume");
    int kept;
    int64_t step;

    (void)state;
    (void)fresh_run();
    bp_test_check(COMM, newest_of(parent, BP_OK) == 9);
    damage_step(9);
    kept = hide_stderr(heard);
    step = newest_of(parent, BP_OK);
    show_stderr(kept);
    bp_test_check(COMM, step == 8);
    bp_test_check(COMM, warned(heard, "checkpoint step-000000000009 is damaged"));
    /* Moved aside, so that step 9 can be saved again; its bytes are kept. */
    bp_test_check(COMM, !bp_path_exists(bp_test_path("run/checkpoints/step-000000000009")));
    bp_test_check(COMM, bp_path_exists(bp_test_path(
                            "run/checkpoints/.bad-step-000000000009-0/shard-00000.h5")));
    save_step(parent, 9);
    bp_test_check(COMM, newest_of(parent, BP_OK) == 9);
}

static void resume_refuses_when_all_are_damaged(void **state)
{
    const char *parent = bp_test_path("run/checkpoints");
    int kept;

    (void)state;
    (void)fresh_run();
    for (int64_t step = 7; step <= 9; step++)
        damage_step(step);
    kept = hide_stderr(bp_test_path("warnings-of-all"));
    bp_test_check(COMM, newest_of(parent, BP_ERR_FORMAT) == -1);
    show_stderr(kept);
    bp_test_check(COMM, strstr(bp_err_message(), "damaged") != NULL);
    bp_test_check(COMM, bp_path_exists(bp_test_path(
                            "run/checkpoints/step-000000000009"))); /* nothing is moved */
}

static void resume_stops_at_an_unknown_version(void **state)
{
    (void)state;
    (void)fresh_run();
    make_version(bp_test_path("run/checkpoints/step-000000000009"), 3);
    BP_MPI(MPI_Barrier(COMM));
    bp_test_check(COMM, newest_of(bp_test_path("run/checkpoints"), BP_ERR_FORMAT) == -1);
    bp_test_check(COMM, strstr(bp_err_message(), "format_version 3") != NULL);
}

static void resume_without_a_checkpoint_begins_anew(void **state)
{
    (void)state;
    bp_test_check(COMM, newest_of(bp_test_path("not-there"), BP_OK) == -1);
    if (bp_comm_is_root(COMM))
        bp_test_expect(bp_dir_make(bp_test_path("only-litter/.tmp-step-000000000001-0")), BP_OK);
    BP_MPI(MPI_Barrier(COMM));
    bp_test_check(COMM, newest_of(bp_test_path("only-litter"), BP_OK) == -1);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_checkpoint_opens),
        cmocka_unit_test(flipped_byte_is_damage),
        cmocka_unit_test(no_flip_and_no_cut_goes_unnoticed),
        cmocka_unit_test(truncated_shard_is_damage),
        cmocka_unit_test(missing_shard_is_damage),
        cmocka_unit_test(extra_shard_is_damage),
        cmocka_unit_test(shard_that_is_a_link_is_damage),
        cmocka_unit_test(shard_of_another_step_is_damage),
        cmocka_unit_test(missing_manifest_is_damage),
        cmocka_unit_test(flipped_byte_of_the_manifest_is_damage),
        cmocka_unit_test(folder_that_is_not_there_is_a_missing_input),
        cmocka_unit_test(manifest_that_lies_is_damage),
        cmocka_unit_test(manifest_that_is_no_json_is_damage),
        cmocka_unit_test(unknown_version_is_named),
        cmocka_unit_test(missing_tensor_is_refused_on_load),
        cmocka_unit_test(other_shape_is_refused_on_load),
        cmocka_unit_test(box_that_leaves_its_tensor_is_a_bug),
        cmocka_unit_test(digest_tells_other_values_and_other_coverage),
        cmocka_unit_test(dataset_other_than_listed_is_refused),
        cmocka_unit_test(path_names_a_checkpoint_in_four_ways),
        cmocka_unit_test(imported_folder_is_a_checkpoint),
        cmocka_unit_test(path_without_a_checkpoint_is_a_missing_input),
        cmocka_unit_test(damaged_one_is_passed_over_with_a_warning),
        cmocka_unit_test(resume_takes_the_newest_that_verifies),
        cmocka_unit_test(resume_refuses_when_all_are_damaged),
        cmocka_unit_test(resume_stops_at_an_unknown_version),
        cmocka_unit_test(resume_without_a_checkpoint_begins_anew),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
