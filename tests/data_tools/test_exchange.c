/* bagpipe-data import and export as users call them, on a small GPT-2 and on folders made to be
 * refused. */
#include "bp_test.h"
#include "data_tools/tool_run.h"

#include "base/config/json.h"
#include "io/h5/h5.h"
#include "io/hf_folder.h"
#include "io/huggingface/half.h"
#include "io/huggingface/safetensors.h"
#include "io/small_disk.h"
#include "text/gpt2_pair.h"

#include <sys/stat.h>

static void expect(const char *arguments, int status, const char *said)
{
    expect_tool(0, arguments, status, said);
}

static void shell(const char *command)
{
    if (run_line(command) != 0)
        fail_msg("%s failed", command);
}

/* The model's digest as export prints it. */
static void digest_of(const char *checkpoint, char digest[65])
{
    char arguments[256];
    const char *at;

    shell("rm -rf digest-out");
    (void)snprintf(arguments, sizeof arguments, "export %s --out digest-out", checkpoint);
    expect(arguments, 0, ", model ");
    at = strstr(output, ", model ") + 8;
    (void)snprintf(digest, 65, "%.64s", at);
}

/* ---- there and back ---- */

static void check_same_values(const char *one, const char *prefix, const char *other)
{
    bp_safetensors *a, *b;

    bp_test_expect(bp_safetensors_open(&a, one), BP_OK);
    bp_test_expect(bp_safetensors_open(&b, other), BP_OK);
    assert_int_equal(bp_safetensors_count(a), bp_safetensors_count(b));
    for (int64_t k = 0; k < bp_safetensors_count(a); k++) {
        const bp_safetensor *x = bp_safetensors_at(a, k), *y;
        char name[256];
        float *values = bp_alloc("test.values", 2 * x->count, sizeof *values);

        (void)snprintf(name, sizeof name, "%s%s", prefix, x->name);
        y = bp_safetensors_find(b, name);
        assert_non_null(y);
        assert_true(x->dims == y->dims && memcmp(x->shape, y->shape, sizeof x->shape) == 0);
        bp_test_expect(bp_safetensors_read(a, x, 0, x->count, values), BP_OK);
        bp_test_expect(bp_safetensors_read(b, y, 0, x->count, values + x->count), BP_OK);
        assert_memory_equal(values, values + x->count, (size_t)x->count * sizeof *values);
        bp_free(values);
    }
    bp_safetensors_close(&a);
    bp_safetensors_close(&b);
}

static void model_goes_in_and_out_unchanged(void **state)
{
    char arguments[PATH_MAX + 64], source[PATH_MAX];

    (void)state;
    shell("rm -rf ck hf");
    (void)snprintf(arguments, sizeof arguments, "import %s --out ck/", hf_model());
    expect(arguments, 0,
           "layers 2, width 64, heads 4, context 64, vocab_size 300: 123392 parameters");
    assert_non_null(strstr(
        output, "used: 28 of 28 tensors (prefix ''), which make 36 tensors of the checkpoint"));
    assert_non_null(
        strstr(output, "transposed: 8 weights, [in, out] to [out, in]; split: 4 into q, k and v"));
    assert_non_null(
        strstr(output, "left out: 0 buffers and copies, 0 tied heads, 0 unknown tensors"));
    expect("export ck --out hf", 0, "Hugging Face folder: hf");
    (void)snprintf(source, sizeof source, "%s/model.safetensors", hf_model());
    check_same_values(source, "transformer.", bp_test_path("hf/model.safetensors"));
}

/* What is exported has the prefix, and is imported to the same model. */
static void prefix_makes_no_difference(void **state)
{
    char bare[65], prefixed[65], arguments[PATH_MAX + 64];

    (void)state;
    shell("rm -rf ck hf again");
    (void)snprintf(arguments, sizeof arguments, "import %s --out ck", hf_model());
    expect(arguments, 0, "(prefix '')");
    digest_of("ck", bare);
    expect("export ck --out hf", 0, "");
    expect("import hf --out again", 0, "(prefix 'transformer.')");
    digest_of("again", prefixed);
    assert_string_equal(bare, prefixed);
}

/* All values of `one`, whose names have the prefix, are the nearest of `other`'s in the type. */
static void check_nearest(const char *one, const char *other, const char *dtype)
{
    bp_safetensors *a, *b;

    bp_test_expect(bp_safetensors_open(&a, one), BP_OK);
    bp_test_expect(bp_safetensors_open(&b, other), BP_OK);
    assert_int_equal(bp_safetensors_count(a), bp_safetensors_count(b));
    for (int64_t k = 0; k < bp_safetensors_count(a); k++) {
        const bp_safetensor *x = bp_safetensors_at(a, k),
                            *y = bp_safetensors_find(b, x->name + strlen("transformer."));
        float *values = bp_alloc("test.values", 2 * x->count, sizeof *values);

        assert_string_equal(x->dtype, dtype);
        assert_non_null(y);
        bp_test_expect(bp_safetensors_read(a, x, 0, x->count, values), BP_OK);
        bp_test_expect(bp_safetensors_read(b, y, 0, x->count, values + x->count), BP_OK);
        for (int64_t i = 0; i < x->count; i++) {
            float whole = values[x->count + i];

            assert_true(values[i] == (strcmp(dtype, "F16") == 0
                                          ? bp_float_of_f16(bp_f16_of_float(whole))
                                          : bp_float_of_bf16(bp_bf16_of_float(whole))));
        }
        bp_free(values);
    }
    bp_safetensors_close(&a);
    bp_safetensors_close(&b);
}

static void sixteen_bits_are_exported_and_come_back(void **state)
{
    static const char *const types[][3] = {{"f16", "F16", "float16"}, {"bf16", "BF16", "bfloat16"}};
    char arguments[PATH_MAX + 64], source[PATH_MAX], one[65], other[65];

    (void)state;
    shell("rm -rf ck");
    (void)snprintf(arguments, sizeof arguments, "import %s --out ck", hf_model());
    expect(arguments, 0, "");
    (void)snprintf(source, sizeof source, "%s/model.safetensors", hf_model());
    for (int k = 0; k < 2; k++) {
        json_t *config;

        shell("rm -rf hf again hf2 third");
        (void)snprintf(arguments, sizeof arguments, "export ck --out hf --dtype %s", types[k][0]);
        expect(arguments, 0, types[k][1]);
        check_nearest(bp_test_path("hf/model.safetensors"), source, types[k][1]);
        bp_test_expect(bp_json_load(&config, bp_test_path("hf/config.json"), 1 << 20), BP_OK);
        assert_string_equal(json_string_value(json_object_get(config, "torch_dtype")), types[k][2]);
        json_decref(config);
        expect("import hf --out again", 0, ""); /* exact: another export gives the same file */
        (void)snprintf(arguments, sizeof arguments, "export again --out hf2 --dtype %s",
                       types[k][0]);
        expect(arguments, 0, "");
        shell("cmp hf/model.safetensors hf2/model.safetensors");
        expect("import hf2 --out third", 0, "");
        digest_of("again", one);
        digest_of("third", other);
        assert_string_equal(one, other);
    }
}

/* The largest tensor alone is larger than a file: it has one of its own. */
static void shards_are_written_and_come_back(void **state)
{
    char one[65], other[65], arguments[PATH_MAX + 64];
    json_t *index, *map, *value;
    const char *name;
    int64_t count = 0;

    (void)state;
    shell("rm -rf ck hf again whole");
    (void)snprintf(arguments, sizeof arguments, "import %s --out ck", hf_model());
    expect(arguments, 0, "");
    expect("export ck --out hf --shard-size 60KB", 0, "");
    assert_false(bp_path_exists(bp_test_path("hf/model.safetensors")));
    bp_test_expect(bp_json_load(&index, bp_test_path("hf/model.safetensors.index.json"), 1 << 20),
                   BP_OK);
    map = json_object_get(index, "weight_map");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
        4 * 123392);
    json_object_foreach(map, name, value) count++;
    assert_int_equal(count, 28);
    assert_string_equal(json_string_value(json_object_get(map, "transformer.wte.weight")),
                        "model-00001-of-00013.safetensors");
    json_decref(index);
    shell("test $(ls hf/*.safetensors | wc -l) = 13");
    shell("test $(find hf -name '*.safetensors' -size +63k | wc -l) = 5"); /* of one tensor each */
    expect("import hf --out again", 0, "used: 28 of 28");
    digest_of("ck", one);
    digest_of("again", other);
    assert_string_equal(one, other);
    expect("export ck --out whole --shard-size 1MiB", 0, "");
    shell("ls whole/model.safetensors && ! ls whole/*.index.json");
}

/* A value that half precision has not; what was begun is removed. */
static void value_that_the_type_has_not_is_refused_by_name(void **state)
{
    static const float large = 70000;
    FILE *file;

    (void)state;
    hf_copy_model("tiny");
    shell("rm -rf out place && mkdir place");
    file = fopen(bp_test_path("tiny/model.safetensors"), "r+b");
    assert_true(file != NULL && fseek(file, -4, SEEK_END) == 0 && fwrite(&large, 4, 1, file) == 1 &&
                fclose(file) == 0);
    expect("import tiny --out out", 0, "");
    expect("export out --out place/hf --dtype f16", 65,
           "'transformer.ln_f.bias' ... [export.out_of_range]");
    assert_non_null(strstr(output, "70000 is beyond the largest of F16"));
    shell("test -z \"$(ls -A place)\"");
    expect("export out --out place/hf --dtype bf16", 0, "");
}

/* q, k and v are the three thirds of c_attn's columns, and turned: ours[o][i] = theirs[i][third +
 * o]. */
static void conv1d_is_split_and_transposed(void **state)
{
    static const char *const ours[] = {"h.1.attn.q.weight/p0", "h.1.attn.k.weight/p0",
                                       "h.1.attn.v.weight/p0"};
    char path[PATH_MAX], arguments[PATH_MAX + 64];
    static float theirs[64 * 192], mine[64 * 64];
    bp_safetensors *file;
    bp_h5 *shard;

    (void)state;
    shell("rm -rf ck");
    (void)snprintf(arguments, sizeof arguments, "import %s --out ck --list", hf_model());
    expect(arguments, 0,
           "h.1.attn.q.weight [64, 64] of h.1.attn.c_attn.weight, part 1 of 3, transposed");
    assert_non_null(strstr(output, "h.0.ln1.gain [64] of h.0.ln_1.weight\n"));
    (void)snprintf(path, sizeof path, "%s/model.safetensors", hf_model());
    bp_test_expect(bp_safetensors_open(&file, path), BP_OK);
    bp_test_expect(bp_safetensors_read(file, bp_safetensors_find(file, "h.1.attn.c_attn.weight"), 0,
                                       64 * 192, theirs),
                   BP_OK);
    bp_test_expect(bp_h5_open(&shard, bp_test_path("ck/shard-00000.h5")), BP_OK);
    for (int third = 0; third < 3; third++) {
        bp_test_expect(bp_h5_read(shard, ours[third], BP_H5_F32, 0, mine, 64 * 64), BP_OK);
        for (int o = 0; o < 64; o++)
            for (int i = 0; i < 64; i++)
                assert_true(mine[o * 64 + i] == theirs[i * 192 + 64 * third + o]);
    }
    bp_h5_drop(&shard);
    bp_safetensors_close(&file);
}

/* ---- the examples of docs/formats.md ---- */

/* Block `k` of the Python code of the section "Checkpoint", to `out`. */
static void take_example(int k, char *out, size_t out_bytes)
{
    char *text, *at, *end;
    size_t bytes;

    bp_test_expect(bp_file_read(BP_TEST_DOCS "/formats.md", 1 << 20, &text, &bytes), BP_OK);
    at = strstr(text, "\n## Checkpoint\n");
    assert_non_null(at);
    for (int n = 0; n <= k; n++) {
        at = strstr(at + 1, "```python\n");
        assert_non_null(at);
    }
    at += strlen("```python\n");
    end = strstr(at, "```");
    assert_non_null(end);
    (void)snprintf(out, out_bytes, "%.*s", (int)(end - at), at);
    bp_free(text);
}

static void other_programs_read_and_write_checkpoints_with_h5py(void **state)
{
    static const char copy[] = "folder = 'ck'\n"
                               "manifest = json.load(open(folder + '/manifest.json'))\n"
                               "names = [t['name'] for t in manifest['tensors']]\n"
                               "tensors = {name: read_tensor(folder, name) for name in names}\n"
                               "for t in manifest['tensors']:\n"
                               "    assert digest(tensors[t['name']]) == t['digest']\n"
                               "write_checkpoint('written', tensors, manifest['state'])\n";
    char script[16384], reader[4096], arguments[PATH_MAX + 64], *place, one[65], other[65];

    (void)state;
    if (system("/usr/bin/python3 -c 'import h5py, numpy' 2>/dev/null") != 0)
        bp_test_skip("/usr/bin/python3 has no h5py");
    shell("rm -rf ck written");
    (void)snprintf(arguments, sizeof arguments, "import %s --out ck", hf_model());
    expect(arguments, 0, "");
    take_example(0, reader, sizeof reader);
    place = strstr(reader, "\"CHECKPOINT\"");
    assert_non_null(place);
    memcpy(place, "        'ck'", 12);
    take_example(1, script, sizeof script);
    (void)snprintf(script + strlen(script), sizeof script - strlen(script), "%s%s", reader, copy);
    (void)bp_test_write("example.py", script, strlen(script));
    shell("/usr/bin/python3 -W ignore example.py | grep -q '(64, 64)'");
    digest_of("ck", one);
    digest_of("written", other);
    assert_string_equal(one, other);
    expect("verify written", 0, "");
}

/* ---- tokenizers ---- */

/* tokenizer.json of so many tokens, up to 302. */
static void make_tokenizer(const char *to, int size)
{
    char arguments[256], text[4096] = "";

    for (int k = 0; k < 200; k++)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "w%d then%d ", k, k % 50);
    (void)bp_test_write("text.txt", text, strlen(text));
    (void)snprintf(arguments, sizeof arguments, "tokenizer --size %d --out %s text.txt", size, to);
    expect(arguments, 0, "");
}

static void tokenizer_goes_in_and_out(void **state)
{
    char one[BP_SHA256_HEX], other[BP_SHA256_HEX];
    json_t *manifest;

    (void)state;
    hf_copy_model("tiny");
    shell("rm -rf out out2 out3");
    shell("rm -rf hf");
    make_tokenizer("tiny/tokenizer.json", 261);
    shell("echo '{\"chat_template\": \"{% for m in messages %}\"}' >tiny/tokenizer_config.json");
    expect("import tiny --out out", 0, "tokenizer: bpe, 261 tokens, hash ");
    assert_non_null(strstr(output, "left out: the chat template of tokenizer_config.json"));
    bp_test_expect(bp_json_load(&manifest, bp_test_path("out/manifest.json"), 1 << 20), BP_OK);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(manifest, "state"), "eod_id")), 260);
    assert_non_null(strstr(output, json_string_value(json_object_get(
                                       json_object_get(manifest, "state"), "tokenizer_hash"))));
    json_decref(manifest);
    expect("export out --out hf", 0, "tokenizer: tokenizer.json");
    bp_test_expect(bp_sha256_of_file(bp_test_path("tiny/tokenizer.json"), one, NULL), BP_OK);
    bp_test_expect(bp_sha256_of_file(bp_test_path("hf/tokenizer.json"), other, NULL), BP_OK);
    assert_string_equal(one, other);
    bp_test_expect(bp_json_load(&manifest, bp_test_path("hf/config.json"), 1 << 20), BP_OK);
    assert_int_equal(json_integer_value(json_object_get(manifest, "eos_token_id")), 260);
    json_decref(manifest);
    shell("rm -rf hf");
    expect("export out --out hf --no-tokenizer", 0, "tokenizer: none");
    assert_false(bp_path_exists(bp_test_path("hf/tokenizer.json")));
}

static void tokenizer_of_another_model_is_refused(void **state)
{
    (void)state;
    hf_copy_model("tiny");
    shell("rm -rf out out2 out3");
    shell("rm -rf hf");
    make_tokenizer("other.json", 259);
    make_tokenizer("tiny/tokenizer.json", 261);
    expect("import tiny --out out", 0, "");
    expect("export out --out hf --tokenizer other.json", 65, "[tokenizer.mismatch]");
    assert_false(bp_path_exists(bp_test_path("hf")));
    hf_copy_model("tiny");
    shell("rm -rf out out2 out3");
    shell("printf '{}' > tiny/tokenizer.json");
    expect("import tiny --out out", 65, "tokenizer.json ... [tokenizer.not_a_tokenizer]");
    expect("import tiny --out out --no-tokenizer", 0, "tokenizer: none");
    expect("import tiny --out out2 --tokenizer other.json", 0, "259 tokens");
    expect("import tiny --out out3 --tokenizer none.json", 66, "none.json ... [file.missing]");
}

static void tokenizer_larger_than_the_model_is_refused(void **state)
{
    (void)state;
    hf_copy_model("tiny");
    shell("rm -rf out out2 out3");
    make_tokenizer("large.json", 301);
    gpt2_pair_write(bp_test_path("large.json"), "tiny");
    expect("import tiny --out out", 65, "301 ... 300 ... [vocabulary.mismatch]");
}

/* ---- places and command lines ---- */

static void command_line_that_says_too_little_is_refused(void **state)
{
    (void)state;
    expect("import --no-tokenizer", 64, "[command.wrong_count]");
    expect("import a", 64, "[command.wrong_count]");
    expect("import --out x", 64, "[command.wrong_count]");
    expect("export a b --out x", 64, "CHECKPOINT --out TARGET ... [command.wrong_count]");
    expect("import a --out x --wrong", 64, "'--wrong' ... [command.not_understood]");
    expect("import a --out x --tokenizer t --no-tokenizer", 64, "[command.exclusive]");
    expect("export a --out x --dtype f64", 64, "--dtype ... 'f64' ... [command.bad_dtype]");
    expect("export a --out x --shard-size 2", 64, "--shard-size ... '2' ... [command.bad_size]");
    expect("export a --out x --shard-size -2GB", 64, "'-2GB' ... [command.bad_size]");
    expect("export a --out x --shard-size 0GB", 64, "'0GB' ... [command.bad_size]");
    expect("export a --out x --shard-size 99999999999GB", 64,
           "'99999999999GB' ... [command.bad_size]");
    expect("import a --out x --dtype f16", 64, "'--dtype' ... [command.not_understood]");
    expect("import --help", 0, "--no-tokenizer");
    expect("export --help", 0, "CHECKPOINT is a step folder");
}

static void input_that_is_not_there_is_missing(void **state)
{
    (void)state;
    hf_copy_model("tiny");
    shell("rm -rf out out2 out3");
    expect("import none --out out", 66, "none ... [huggingface.no_folder]");
    expect("export none --out out", 66, "none ... [checkpoint.missing]");
    shell("rm tiny/model.safetensors");
    expect("import tiny --out out", 66, "model.safetensors ... [huggingface.no_weights]");
    shell("touch tiny/pytorch_model.bin");
    expect("import tiny --out out", 66, "pytorch_model.bin ... [huggingface.no_weights]");
    shell("rm tiny/config.json");
    expect("import tiny --out out", 66, "config.json ... [import.no_model]");
}

static void output_that_is_there_is_not_replaced(void **state)
{
    (void)state;
    hf_copy_model("tiny");
    shell("rm -rf out out2 out3");
    shell("rm -rf ck hf there && mkdir there");
    expect("import tiny --out there", 73, "[file.in_the_way]");
    expect("import tiny --out nowhere/ck", 73, "nowhere");
    expect("import tiny --out ck", 0, "");
    expect("export ck --out there", 73, "[file.in_the_way]");
    expect("export ck --out nowhere/hf", 73, "nowhere");
}

/* Nothing is left of what did not fit. */
static void full_disk_leaves_nothing(void **state)
{
    (void)state;
    hf_copy_model("tiny");
    shell("rm -rf out out2 out3");
    shell("rm -rf place ck && mkdir place");
    expect("import tiny --out ck", 0, "");
    assert_int_equal(run_tool(0, "ulimit -f 100 && ", "import tiny --out place/ck"), 74);
    assert_int_equal(run_tool(0, "ulimit -f 100 && ", "export ck --out place/hf"), 74);
    shell("test -z \"$(ls -A place)\"");
}

static bp_err import_to(const char *path)
{
    char arguments[PATH_MAX + 64];

    (void)snprintf(arguments, sizeof arguments, "import tiny --out %s", path);
    return (bp_err)run_tool(0, "", arguments);
}

/* The disk itself, that fills at a shard or at what is written last. */
static void disk_that_fills_at_import_is_left_empty(void **state)
{
    (void)state;
    hf_copy_model("tiny");
    assert_int_equal(on_small_disk(SMALL_DISK_TMPFS, 256 << 10, import_to), BP_ERR_IO);
    assert_int_equal(on_small_disk(SMALL_DISK_TMPFS, 508 << 10, import_to), BP_ERR_IO);
    assert_int_equal(on_small_disk(SMALL_DISK_TMPFS, 2 << 20, import_to), BP_OK);
}

static void value_that_is_not_finite_is_not_imported(void **state)
{
    static const uint32_t nan = 0x7fc00000;
    FILE *file;

    (void)state;
    hf_copy_model("tiny");
    shell("rm -rf place && mkdir place");
    file = fopen(bp_test_path("tiny/model.safetensors"), "r+b");
    assert_true(file != NULL && fseek(file, -4, SEEK_END) == 0 && fwrite(&nan, 4, 1, file) == 1 &&
                fclose(file) == 0);
    expect("import tiny --out place/ck", 65, "'ln_f.bias' ... [safetensors.not_finite]");
    shell("test -z \"$(ls -A place)\"");
}

static void checkpoint_without_its_manifest_is_not_sound(void **state)
{
    (void)state;
    hf_copy_model("tiny");
    shell("rm -rf out run && mkdir -p run/checkpoints");
    expect("import tiny --out run/checkpoints/step-000000000000", 0, "");
    shell("ln -s step-000000000000 run/checkpoints/best");
    expect("verify run", 0, "step-000000000000: sound");
    assert_null(strstr(output, "best")); /* it is a second name */
    expect("verify run/checkpoints/best", 0, "best: sound");
    shell("rm run/checkpoints/step-000000000000/manifest.json");
    expect("verify run", 65, "step-000000000000 ... [checkpoint.not_whole]");
    expect("verify run/checkpoints/best", 65, "[checkpoint.not_whole]");
    shell("rm run/checkpoints/step-000000000000/*");
    expect("verify run", 65, "step-000000000000 ... [checkpoint.not_whole]");
    expect("verify run/checkpoints/step-000000000000/", 65, "[checkpoint.not_whole]");
    expect("import tiny --out out", 0, "");
    shell("rm out/manifest.json");
    expect("verify out", 65, "checkpoint out ... [checkpoint.not_whole]");
    shell("rm out/manifest.sha256");
    expect("verify out", 65, "checkpoint out ... [checkpoint.not_whole]");
}

static void damaged_checkpoint_is_not_exported(void **state)
{
    (void)state;
    hf_copy_model("tiny");
    shell("rm -rf out out2 out3");
    shell("rm -rf hf");
    expect("import tiny --out out", 0, "");
    shell("printf X | dd of=out/shard-00000.h5 bs=1 seek=200000 conv=notrunc status=none");
    expect("export out --out hf", 65, "checkpoint out ... [checkpoint.damaged]");
    assert_false(bp_path_exists(bp_test_path("hf")));
}

/* A manifest that was changed and hashed again: another kind of model, and sizes that its tensors
 * have not. */
static void checkpoint_of_another_model_is_not_exported(void **state)
{
    static const struct {
        const char *from, *to, *words;
    } cases[] = {{"\"kind\": \"gpt\"", "\"kind\": \"xlnet\"", "'xlnet' ... [model.unknown_kind]"},
                 {"\"width\": 64", "\"width\": 128", "[tensor.wrong_shape]"},
                 {"\"layers\": 2", "\"layers\": 3", "'h.2.ln1.gain' ... [tensor.missing]"},
                 {"\"heads\": 4", "\"heads\": 0", "[model.bad_size]"},
                 {"\"heads\": 4", "\"heads\": 7", "[model.bad_size]"},
                 {"\"model\"", "\"modem\"", "\"kind\" ... [json.missing_key]"}};

    (void)state;
    hf_copy_model("tiny");
    shell("rm -rf out kept hf");
    expect("import tiny --out kept", 0, "");
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        char command[512];

        (void)snprintf(
            command, sizeof command,
            "rm -rf out && cp -r kept out && cd out && sed -i 's/%s/%s/' manifest.json && "
            "sha256sum manifest.json > manifest.sha256",
            cases[k].from, cases[k].to);
        shell(command);
        expect("export out --out hf", 65, cases[k].words);
        assert_false(bp_path_exists(bp_test_path("hf")));
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(command_line_that_says_too_little_is_refused),
        cmocka_unit_test(model_goes_in_and_out_unchanged),
        cmocka_unit_test(prefix_makes_no_difference),
        cmocka_unit_test(sixteen_bits_are_exported_and_come_back),
        cmocka_unit_test(shards_are_written_and_come_back),
        cmocka_unit_test(value_that_the_type_has_not_is_refused_by_name),
        cmocka_unit_test(conv1d_is_split_and_transposed),
        cmocka_unit_test(other_programs_read_and_write_checkpoints_with_h5py),
        cmocka_unit_test(tokenizer_goes_in_and_out),
        cmocka_unit_test(tokenizer_of_another_model_is_refused),
        cmocka_unit_test(tokenizer_larger_than_the_model_is_refused),
        cmocka_unit_test(input_that_is_not_there_is_missing),
        cmocka_unit_test(output_that_is_there_is_not_replaced),
        cmocka_unit_test(full_disk_leaves_nothing),
        cmocka_unit_test(disk_that_fills_at_import_is_left_empty),
        cmocka_unit_test(value_that_is_not_finite_is_not_imported),
        cmocka_unit_test(checkpoint_without_its_manifest_is_not_sound),
        cmocka_unit_test(damaged_checkpoint_is_not_exported),
        cmocka_unit_test(checkpoint_of_another_model_is_not_exported),
    };
    return BP_TEST_RUN(tests);
}
