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

    set_at(json_array_get(pieces, 0), "extent", 1, 0); /* empty ones never overlap */
    for (int k = 0; k < 20000; k++)
        assert_int_equal(json_array_append(pieces, json_array_get(pieces, 0)), 0);
}
static void set_piece(json_t *m, json_t *piece)
{
    json_t *pieces = json_object_get(tensor_of(m, 1), "pieces");

    assert_int_equal(json_array_set_new(pieces, 0, piece), 0);
}
static void list_of_three(json_t *m)
{
    set_piece(m, json_pack("[i,i,i]", 0, 0, 0));
}
static void list_of_reals(json_t *m)
{
    set_piece(m, json_pack("[i,i,i,i,f,i]", 0, 0, 0, 0, 25.0, 30));
}
static void list_beyond(json_t *m)
{
    set_piece(m, json_pack("[i,i,i,i,i,i]", 9, 0, 0, 0, 25, 30));
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
    } cases[] = {{make_overlap, "'w' ... (24, 0 ... [manifest.overlap]"},
                 {make_hole, "30 ... 1200 ... [manifest.hole]"},
                 {many_pieces, "'w' ... 20002 pieces ... [manifest.too_large]"},
                 {list_of_three, "'w' ... 6 integers ... [manifest.bad_piece]"},
                 {list_of_reals, "'w' ... 6 integers ... [manifest.bad_piece]"},
                 {list_beyond, "'w' ... file 9 ... [manifest.unlisted_file]"},
                 {drop_piece, "750 ... 1200 ... [manifest.hole]"},
                 {piece_beyond, "30 + 15 ... 40 ... [tensor.bad_shape]"},
                 {negative_offset, "-1 + 25 ... [tensor.bad_shape]"},
                 {wrapping_shape, "2^40 ... [tensor.bad_shape]"},
                 {huge_dimension, "9223372036854775807 ... [tensor.bad_shape]"},
                 {five_dimensions, "[manifest.bad_tensor]"},
                 {real_in_shape, "[manifest.bad_piece]"},
                 {path_up, "'../../etc/passwd' ... [manifest.bad_file]"},
                 {absolute_path, "'/etc/passwd' ... [manifest.bad_file]"},
                 {nearly_a_shard, "'shard-0000x.h5' ... [manifest.bad_file]"},
                 {file_twice, "[manifest.not_sorted]"},
                 {unlisted_file, "'shard-00099.h5' ... [manifest.unlisted_file]"},
                 {dataset_up, "'/a/../w' ... [manifest.bad_piece]"},
                 {dataset_long, "[manifest.bad_piece]"},
                 {other_dtype, "'float64' ... [manifest.unknown_dtype]"},
                 {bad_tensor_name, "'../w' ... [manifest.bad_tensor]"},
                 {tensor_twice, "'w' ... [manifest.not_sorted]"},
                 {short_digest, "[manifest.bad_tensor]"},
                 {no_state, "'state' ... [manifest.wrong_type]"},
                 {no_tensors, "[manifest.wrong_type]"},
                 {text_for_bytes, "\"bytes\" ... [json.wrong_type]"},
                 {bad_file_hash, "shard-00000.h5 ... [manifest.bad_file]"},
                 {no_file_hash, "\"sha256\" ... [json.missing_key]"},
                 {two_file_hashes, "'sha256' ... 'xxh3_128' ... [manifest.bad_file]"},
                 {other_format, "'format' ... 'something else' ... [manifest.wrong_format]"},
                 {other_step, "step 8 ... [checkpoint.wrong_step]"}};

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

    make_version(folder, 5);
    BP_MPI(MPI_Barrier(COMM));
    bp_test_check_err(COMM, bp_checkpoint_open(COMM, folder, &checkpoint), BP_ERR_FORMAT);
    bp_test_check_said(COMM, "format_version 5 ... [manifest.unknown_version]");
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
