/* Manifests that hash right and say what can't be are refused by all ranks with one clear message.
 */
#include "io/checkpoint_copies.h"

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
    set_text(file_of(m, 0), "xxh3_128", "xyz");
}
static void no_file_hash(json_t *m)
{
    assert_int_equal(json_object_del(file_of(m, 0), "xxh3_128"), 0);
}
static void two_file_hashes(json_t *m)
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
                 {bad_file_hash, "the hash of shard-00000.h5 is not 32 hexadecimal digits"},
                 {no_file_hash, "\"sha256\" is missing"},
                 {two_file_hashes, "has both 'sha256' and 'xxh3_128'"},
                 {other_format, "'format' is 'something else'"},
                 {other_step, "it holds step 8"}};

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

    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; k++) {
        const char *folder = fresh_copy();

        if (bp_comm_is_root(COMM))
            seal(folder, texts[k], strlen(texts[k]));
        check_damaged(folder, "manifest.json");
    }
}

/* Not damage, which one would fall back from: the user has the wrong program. */
static void unknown_version_is_named(void **state)
{
    const char *folder = fresh_copy();
    bp_checkpoint *checkpoint;

    make_version(folder, 3);
    BP_MPI(MPI_Barrier(COMM));
    bp_test_check_err(COMM, bp_checkpoint_open(COMM, folder, &checkpoint), BP_ERR_FORMAT);
    bp_test_check(COMM, strstr(bp_err_message(), "format_version 3") != NULL);
    bp_test_check(COMM, strstr(bp_err_message(), "damaged") == NULL);
}

int main(int argc, char **argv)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifest_that_lies_is_damage),
        cmocka_unit_test(manifest_that_is_no_json_is_damage),
        cmocka_unit_test(unknown_version_is_named),
    };
    return BP_TEST_RUN_MPI(argc, argv, tests);
}
