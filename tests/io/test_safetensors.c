/* safetensors: what we write others read, what others write we read, and what is no such file is
 * refused. */
#include "bp_test.h"

#include "io/huggingface/half.h"
#include "io/huggingface/safetensors.h"

#include <math.h>
#include <unistd.h>

/* A file of a header and so many bytes of data; its path. */
static const char *make_file(const char *name, const char *header, size_t data_bytes)
{
    size_t length = strlen(header);
    unsigned char *bytes = bp_alloc("test.file", (int64_t)(8 + length + data_bytes), 1);
    const char *path = bp_test_path(name);
    FILE *stream;

    (void)unlink(path); /* thousands are written: a file cut to nothing is flushed at its end, a new
                           one is not */
    stream = fopen(path, "wb");

    for (int k = 0; k < 8; k++)
        bytes[k] = (unsigned char)(length >> (8 * k));
    memcpy(bytes + 8, header, length);
    assert_true(stream != NULL &&
                fwrite(bytes, 1, 8 + length + data_bytes, stream) == 8 + length + data_bytes);
    assert_int_equal(fclose(stream), 0);
    bp_free(bytes);
    return path;
}

static void check_refused(const char *path, const char *words)
{
    bp_safetensors *file;

    bp_test_expect(bp_safetensors_open(&file, path), BP_ERR_FORMAT);
    assert_null(file);
    bp_test_message_has(words);
    bp_test_message_has(path);
}

/* ---- refused ---- */

static void header_that_is_no_header_is_refused(void **state)
{
    static const struct {
        const char *header, *words;
    } cases[] = {{"[]", "'{' ... [safetensors.bad_header]"},
                 {" {}", "'{' ... [safetensors.bad_header]"},
                 {"{ ", "[json.invalid]"},
                 {"{}x", "[json.invalid]"},
                 {"{\"a\": 1}", "'a' ... [safetensors.bad_tensor]"},
                 {"{\"a\": {}}", "'a' ... [safetensors.bad_tensor]"},
                 {"{\"__metadata__\": 1}", "__metadata__ ... [safetensors.bad_metadata]"},
                 {"{\"__metadata__\": {\"a\": 1}}", "[safetensors.bad_metadata]"},
                 {"{\"\": {\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                  "[safetensors.bad_tensor]"},
                 {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                  "\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                  "[json.invalid]"}};

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        check_refused(make_file("header", cases[k].header, 0), cases[k].words);
}

static void length_that_lies_is_refused(void **state)
{
    static const struct {
        unsigned char bytes[12];
        size_t count;
        const char *words;
    } cases[] = {
        {{0}, 0, "0 bytes ... [safetensors.truncated]"},
        {{2, 0, 0, 0, 0, 0, 0, 0}, 8, "8 bytes ... [safetensors.truncated]"},
        {{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '{', '}'},
         10,
         "18446744073709551615 bytes ... 100 ... [safetensors.bad_header]"},
        {{1, 0, 0x40, 6, 0, 0, 0, 0, '{', '}'},
         10,
         "104857601 bytes ... 100 ... [safetensors.bad_header]"},
        {{3, 0, 0, 0, 0, 0, 0, 0, '{', '}'}, 10, "3 bytes ... 10 ... [safetensors.truncated]"},
        {{0, 0, 0, 0, 0, 0, 0, 0, '{', '}'}, 10, "0 bytes ... [safetensors.truncated]"},
        {{1, 0, 0, 0, 0, 0, 0, 0, '{', '}'}, 10, "1 bytes ... [safetensors.truncated]"}};

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        check_refused(bp_test_write("length", cases[k].bytes, cases[k].count), cases[k].words);
}

#define T(dtype, shape, first, last)                                                               \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" first "," last "]}"

static void tensor_that_lies_is_refused(void **state)
{
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *words;
    } cases[] = {
        {"{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F32", "[2]", "4", "12") "}", 12,
         "'b' ... [safetensors.bad_tensor]"},
        {"{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F32", "[2]", "0", "8") "}", 8,
         "'b' ... [safetensors.bad_tensor]"},
        {"{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F32", "[0]", "4", "4") "}", 8,
         "'b' ... [safetensors.bad_tensor]"}, /* empty, inside */
        {"{\"a\":" T("F32", "[2]", "0", "8") ",\"b\":" T("F32", "[1]", "12", "16") "}", 16,
         "'b' ... [safetensors.bad_tensor]"},
        {"{\"a\":" T("F32", "[2]", "4", "12") "}", 12, "'a' ... [safetensors.bad_tensor]"},
        {"{\"a\":" T("F32", "[2]", "0", "8") "}", 9, "1 bytes ... [safetensors.too_long]"},
        {"{}", 4, "4 bytes ... [safetensors.too_long]"},
        {"{\"a\":" T("F32", "[2]", "0", "8") "}", 7,
         "'a' ... [safetensors.bad_tensor]"}, /* truncated */
        {"{\"a\":" T("F32", "[2]", "8", "0") "}", 8, "[safetensors.bad_tensor]"},
        {"{\"a\":" T("F32", "[2]", "-8", "0") "}", 8, "[safetensors.bad_tensor]"},
        {"{\"a\":" T("F32", "[2]", "0.0", "8") "}", 8, "[safetensors.bad_tensor]"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", 8,
         "[safetensors.bad_tensor]"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "[safetensors.bad_tensor]"},
        {"{\"a\":" T("F32", "[3]", "0", "8") "}", 8, "[safetensors.bad_tensor]"},
        {"{\"a\":" T("F16", "[2]", "0", "8") "}", 8, "[safetensors.bad_tensor]"},
        {"{\"a\":" T("F32", "[-2]", "0", "8") "}", 8, "[safetensors.bad_tensor]"},
        {"{\"a\":" T("F32", "2", "0", "8") "}", 8, "[safetensors.bad_tensor]"},
        {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,2]", "0", "8") "}", 8, "[safetensors.bad_tensor]"},
        {"{\"a\":" T("F33", "[2]", "0", "8") "}", 8, "'F33' ... [safetensors.unknown_dtype]"},
        /* 4194305^2 * 211106198978564 * 4 wraps to 16 in 64 bits; so does the product with the
           element's size alone */
        {"{\"a\":" T("F32", "[4194305,4194305,211106198978564]", "0", "4") "}", 4,
         "2^63 ... [safetensors.bad_tensor]"},
        {"{\"a\":" T("F32", "[4611686018427387905]", "0", "4") "}", 4, "[safetensors.bad_tensor]"},
        {"{\"a\":" T("F32", "[9223372036854775808]", "0", "4") "}", 4, "[json.invalid]"},
    };

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        check_refused(make_file("lies", cases[k].header, cases[k].data_bytes), cases[k].words);
}

/* So many empty tensors, or so many numbers in one list. */
static const char *many(int64_t tensors, int64_t numbers)
{
    size_t capacity = (size_t)tensors * 80 + (size_t)numbers * 2 + 80, used = 1;
    char *header = bp_alloc("test.header", (int64_t)capacity, 1);
    const char *path;

    header[0] = '{';
    for (int64_t k = 0; k < tensors; k++)
        used += (size_t)snprintf(header + used, capacity - used,
                                 "%s\"t%lld\":" T("F32", "[0]", "0", "0"), k > 0 ? "," : "",
                                 (long long)k);
    if (numbers > 0)
        used += (size_t)snprintf(header + used, capacity - used, "\"x\":[0");
    for (int64_t k = 1; k < numbers; k++, used += 2)
        memcpy(header + used, ",0", 2);
    (void)snprintf(header + used, capacity - used, "%s}", numbers > 0 ? "]" : "");
    path = make_file("many", header, 0);
    bp_free(header);
    return path;
}

static void headers_with_too_much_are_refused(void **state)
{
    bp_safetensors *file;

    (void)state;
    bp_test_expect(bp_safetensors_open(&file, many(100000, 0)), BP_OK);
    assert_int_equal(bp_safetensors_count(file), 100000);
    bp_safetensors_close(&file);
    check_refused(many(100001, 0), "100000 ... [safetensors.too_many_tensors]");
    check_refused(many(0, 2000000), "2000002 values ... 100000 ... [safetensors.bad_header]");
}

static void file_that_is_not_there_is_a_missing_input(void **state)
{
    bp_safetensors *file;

    (void)state;
    bp_test_expect(bp_safetensors_open(&file, bp_test_path("none")), BP_ERR_INPUT);
    bp_test_expect(bp_safetensors_open(&file, bp_test_folder()), BP_ERR_INPUT);
}

/* Bytes of a sound header changed at random: accepted or refused, never a crash, and what is
 * accepted lies inside the file. */
static void changed_header_is_accepted_only_if_it_holds(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"a\":" T("F32", "[2,3]", "0", "24") ",\"b\":" T(
            "BF16", "[4]", "24", "32") ",\"c\":" T("F64", "[1]", "32", "40") "}";
    uint64_t random = 12345;
    int accepted = 0;

    (void)state;
    for (int trial = 0; trial < 3000; trial++) {
        char changed[sizeof header];
        bp_safetensors *file;

        memcpy(changed, header, sizeof header);
        for (int k = 0; k < 1 + trial % 3; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            changed[(random >> 33) % (sizeof header - 1)] =
                "0123456789{}[],:\"abF-e\x80 "[(random >> 20) % 25];
        }
        if (bp_safetensors_open(&file, make_file("changed", changed, 40)) != BP_OK)
            continue;
        accepted++;
        for (int64_t k = 0, end = 0; k < bp_safetensors_count(file); k++) {
            const bp_safetensor *tensor = bp_safetensors_at(file, k);

            assert_int_equal(tensor->first, end);
            end += tensor->bytes;
            assert_true(end <= 40);
        }
        bp_safetensors_close(&file);
    }
    assert_true(accepted > 0 && accepted < 3000);
}

/* ---- values ---- */

/* Every half-precision number, against its definition. */
static void halves_are_exact(void **state)
{
    (void)state;
    for (int bits = 0; bits < 65536; bits++) {
        int exponent = bits >> 10 & 31, fraction = bits & 1023;
        double magnitude =
            exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
        double expected = bits & 0x8000 ? -magnitude : magnitude;
        float value = bp_float_of_f16((uint16_t)bits);

        if (exponent == 31)
            assert_true(fraction == 0 ? isinf(value) && (value < 0) == (bits >> 15) : isnan(value));
        else
            assert_true((double)value == expected && !signbit(value) == !signbit(expected));
    }
    assert_true(bp_float_of_bf16(0x3fc0) == 1.5f && bp_float_of_bf16(0xc2f7) == -123.5f);
}

static void floats_of_four_kinds_are_read(void **state)
{
    static const char header[] = "{\"half\":" T("F16", "[3]", "0", "6") ",\"brain\":" T(
        "BF16", "[3]", "6",
        "12") ",\"single\":" T("F32", "[2,2]", "12",
                               "28") ",\"double\":" T("F64", "[]", "28",
                                                      "36") ",\"mask\":" T("BOOL", "[4]", "36",
                                                                           "40") "}";
    static const float expected[] = {1.5f, -2.0f, 0.099975586f, 1.5f, -2.0f, 0.100097656f,
                                     0.5f, -1.0f, 3.0f,         4.0f, 0.1f};
    static const char *const names[] = {"half", "brain", "single", "double"};
    unsigned char *bytes;
    const uint16_t halves[] = {0x3e00, 0xc000, 0x2e66, 0x3fc0, 0xc000, 0x3dcd};
    const float singles[] = {0.5f, -1.0f, 3.0f, 4.0f};
    const double wide = 0.1;
    float out[4];
    bp_safetensors *file;
    size_t length;
    int next = 0;

    (void)state;
    bp_test_expect(bp_file_read(make_file("kinds", header, 40), 4096, (char **)&bytes, &length),
                   BP_OK);
    memcpy(bytes + length - 40, halves, 12);
    memcpy(bytes + length - 28, singles, 16);
    memcpy(bytes + length - 12, &wide, 8);
    bp_test_expect(bp_safetensors_open(&file, bp_test_write("kinds", bytes, length)), BP_OK);
    bp_free(bytes);
    assert_int_equal(bp_safetensors_count(file), 5);
    for (int k = 0; k < 4; k++) {
        const bp_safetensor *tensor = bp_safetensors_find(file, names[k]);

        assert_non_null(tensor);
        bp_test_expect(bp_safetensors_read(file, tensor, 0, tensor->count, out), BP_OK);
        for (int64_t i = 0; i < tensor->count; i++)
            assert_true(out[i] == expected[next++]);
    }
    bp_test_expect(bp_safetensors_read(file, bp_safetensors_find(file, "single"), 1, 2, out),
                   BP_OK);
    assert_true(out[0] == -1.0f && out[1] == 3.0f);
    bp_test_expect(bp_safetensors_read(file, bp_safetensors_find(file, "mask"), 0, 1, out),
                   BP_ERR_FORMAT);
    bp_test_message_has("[safetensors.unknown_dtype]");
    bp_test_message_has("'mask' ... [safetensors.unknown_dtype]");
    assert_null(bp_safetensors_find(file, "nothing"));
    bp_safetensors_close(&file);
}

static void value_that_is_not_finite_is_refused(void **state)
{
    static const char header[] = "{\"a\":" T("F64", "[2]", "0", "16") "}";
    const double values[] = {1.0, 1e39}; /* finite, but not in float32 */
    float out[2];
    char *bytes;
    size_t length;
    bp_safetensors *file;

    (void)state;
    bp_test_expect(bp_file_read(make_file("wide", header, 16), 4096, &bytes, &length), BP_OK);
    memcpy(bytes + length - 16, values, 16);
    bp_test_expect(bp_safetensors_open(&file, bp_test_write("wide", bytes, length)), BP_OK);
    bp_free(bytes);
    bp_test_expect(bp_safetensors_read(file, bp_safetensors_at(file, 0), 0, 2, out), BP_ERR_FORMAT);
    bp_test_message_has("[safetensors.not_finite]");
    bp_safetensors_close(&file);
}

/* ---- writing ---- */

static const bp_safetensor SPECS[] = {
    {.name = "x", .dims = 2, .shape = {100, 1000}}, {.name = "empty", .dims = 1}, {.name = "one"}};

static void what_is_written_is_read_again(void **state)
{
    const char *path = bp_test_path("written");
    float *values = bp_alloc("test.values", 100001, sizeof *values),
          *back = bp_alloc("test.values", 100001, sizeof *back);
    bp_safetensors_writer *writer;
    bp_safetensors *file;

    (void)state;
    for (int k = 0; k < 100001; k++)
        values[k] = (float)k * 0.37f - 7.0f;
    bp_test_expect(bp_safetensors_create(&writer, path, SPECS, 3, "pt"), BP_OK);
    for (int64_t done = 0; done < 100001; done += 9091) /* parts that know nothing of tensors */
        bp_test_expect(bp_safetensors_write(writer, values + done, 9091), BP_OK);
    bp_test_expect(bp_safetensors_finish(&writer), BP_OK);
    assert_null(writer);
    bp_test_expect(bp_safetensors_open(&file, path), BP_OK);
    assert_int_equal(bp_safetensors_count(file), 3);
    bp_test_expect(bp_safetensors_read(file, bp_safetensors_find(file, "x"), 0, 100000, back),
                   BP_OK);
    bp_test_expect(bp_safetensors_read(file, bp_safetensors_find(file, "one"), 0, 1, back + 100000),
                   BP_OK);
    assert_memory_equal(values, back, 100001 * sizeof *values);
    assert_int_equal(bp_safetensors_find(file, "empty")->count, 0);
    bp_safetensors_close(&file);
    bp_free(values);
    bp_free(back);
}

/* ---- 16 bits ---- */

static float value_of(uint16_t bits, bool f16)
{
    return f16 ? bp_float_of_f16(bits) : bp_float_of_bf16(bits);
}

static uint16_t nearest(float value, bool f16)
{
    return f16 ? bp_f16_of_float(value) : bp_bf16_of_float(value);
}

/* Between each pair of neighbours: the halfway point goes to the even one, what is next to it to
 * the nearer one. The numbers of 16 bits are in order of their bits, and float32 has all halfway
 * points (but those of bfloat16's subnormals, which are halves of what float32 has least: it has
 * those too). */
static void check_rounding(bool f16)
{
    const int infinity = f16 ? 0x7c00 : 0x7f80;

    for (int bits = 0; bits + 1 < infinity; bits++) {
        float low = value_of((uint16_t)bits, f16), high = value_of((uint16_t)(bits + 1), f16),
              middle = (float)(((double)low + (double)high) / 2);
        int even = bits % 2 == 0 ? bits : bits + 1;

        assert_int_equal(nearest(low, f16), bits);
        assert_int_equal(nearest(middle, f16), even);
        assert_int_equal(nearest(-middle, f16), even | 0x8000);
        assert_int_equal(nearest(nextafterf(middle, 0), f16), bits);
        assert_int_equal(nearest(nextafterf(middle, INFINITY), f16), bits + 1);
    }
}

static void halves_are_the_nearest(void **state)
{
    (void)state;
    check_rounding(true);
    check_rounding(false);
    assert_int_equal(bp_f16_of_float(65519.99f), 0x7bff);
    assert_int_equal(bp_f16_of_float(65520.0f), 0x7c00);
    assert_int_equal(bp_f16_of_float(-1e30f), 0xfc00);
    assert_int_equal(bp_f16_of_float(-1e-30f), 0x8000);
    assert_int_equal(bp_bf16_of_float(3.4e38f), 0x7f80);
    assert_int_equal(bp_bf16_of_float(-INFINITY), 0xff80);
    assert_true(isnan(value_of(nearest(NAN, true), true)) &&
                isnan(value_of(nearest(NAN, false), false)));
}

static void sixteen_bits_are_written(void **state)
{
    const bp_safetensor specs[] = {{.name = "f", .dtype = "F16", .dims = 1, .shape = {3}},
                                   {.name = "s", .dtype = "F32", .dims = 1, .shape = {1}},
                                   {.name = "b", .dtype = "BF16", .dims = 1, .shape = {2}}};
    static const float values[] = {1.0f, 0.1f, -65504.0f, 0.1f, 0.1f, 1e30f},
                       expected[] = {1.0f, 0.099975586f, -65504.0f, 0.1f, 0.100097656f, 0};
    const char *path = bp_test_path("halves");
    bp_safetensors_writer *writer;
    bp_safetensors *file;
    float back[6] = {0};

    (void)state;
    bp_test_expect(bp_safetensors_create(&writer, path, specs, 3, NULL), BP_OK);
    bp_test_expect(bp_safetensors_write(writer, values, 6), BP_OK);
    bp_test_expect(bp_safetensors_finish(&writer), BP_OK);
    bp_test_expect(bp_safetensors_open(&file, path), BP_OK);
    for (int64_t k = 0, at = 0; k < 3; k++) {
        const bp_safetensor *tensor = bp_safetensors_at(file, k);

        assert_string_equal(tensor->dtype, specs[k].dtype);
        bp_test_expect(bp_safetensors_read(file, tensor, 0, tensor->count, back + at), BP_OK);
        at += tensor->count;
    }
    assert_memory_equal(back, expected, 5 * sizeof *back);
    assert_true(fabsf(back[5] / 1e30f - 1) < 0x1p-8f);
    bp_safetensors_close(&file);
}

static void value_beyond_the_type_is_refused(void **state)
{
    const bp_safetensor specs[] = {{.name = "small", .dtype = "F16", .dims = 1, .shape = {1}},
                                   {.name = "large", .dtype = "F16", .dims = 1, .shape = {2}}},
                        wrong = {.name = "i", .dtype = "I8", .dims = 1, .shape = {1}};
    static const float values[] = {1, 2, 65520};
    bp_safetensors_writer *writer;

    (void)state;
    bp_test_expect(bp_safetensors_create(&writer, bp_test_path("beyond"), specs, 2, NULL), BP_OK);
    bp_test_expect(bp_safetensors_write(writer, values, 3), BP_ERR_FORMAT);
    bp_test_message_has("65520 ... [export.out_of_range]");
    bp_test_message_has("'large'");
    bp_safetensors_drop(&writer);
    bp_test_expect(bp_safetensors_create(&writer, bp_test_path("i8"), &wrong, 1, NULL),
                   BP_ERR_SOFTWARE);
    assert_null(writer);
}

static void writer_counts(void **state)
{
    static const float values[2] = {1, 2};
    const bp_safetensor one = {.name = "a", .dims = 1, .shape = {1}}, twice[] = {one, one};
    const bp_safetensor huge = {.name = "a", .dims = 2, .shape = {INT64_MAX, 4}};
    bp_safetensors_writer *writer;

    (void)state;
    bp_test_expect(bp_safetensors_create(&writer, bp_test_path("count"), &one, 1, NULL), BP_OK);
    bp_test_expect(bp_safetensors_write(writer, values, 2), BP_ERR_SOFTWARE);
    bp_test_expect(bp_safetensors_finish(&writer), BP_ERR_SOFTWARE);
    bp_test_message_has("[export.not_whole]");
    bp_test_expect(bp_safetensors_create(&writer, bp_test_path("count"), &one, 1, NULL),
                   BP_ERR_CREATE); /* there is one */
    bp_test_expect(bp_safetensors_create(&writer, bp_test_path("none/count"), &one, 1, NULL),
                   BP_ERR_CREATE);
    bp_test_expect(bp_safetensors_create(&writer, bp_test_path("twice"), twice, 2, NULL),
                   BP_ERR_SOFTWARE);
    bp_test_expect(bp_safetensors_create(&writer, bp_test_path("huge"), &huge, 1, NULL),
                   BP_ERR_SOFTWARE);
    assert_null(writer);
}

/* numpy reads the header and the data as the format's page says. */
static void numpy_reads_what_we_write(void **state)
{
    static const char script[] =
        "import json, struct, sys, numpy\n"
        "raw = open(sys.argv[1], 'rb').read()\n"
        "n, = struct.unpack('<Q', raw[:8])\n"
        "header = json.loads(raw[8:8 + n])\n"
        "assert (8 + n) % 8 == 0 and header.pop('__metadata__') == {'format': 'pt'}\n"
        "first, last = header['x']['data_offsets']\n"
        "x = numpy.frombuffer(raw[8 + n:][first:last], '<f4').reshape(header['x']['shape'])\n"
        "assert x.shape == (2, 3) and (x == [[0, 1, 2], [3, 4, 5]]).all()\n";
    static const float values[] = {0, 1, 2, 3, 4, 5};
    const bp_safetensor spec = {.name = "x", .dims = 2, .shape = {2, 3}};
    const char *path = bp_test_path("for-numpy"),
               *program = bp_test_write("read.py", script, strlen(script));
    bp_safetensors_writer *writer;
    char command[PATH_MAX * 2 + 64];

    (void)state;
    if (system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0)
        bp_test_skip("/usr/bin/python3 has no numpy");
    bp_test_expect(bp_safetensors_create(&writer, path, &spec, 1, "pt"), BP_OK);
    bp_test_expect(bp_safetensors_write(writer, values, 6), BP_OK);
    bp_test_expect(bp_safetensors_finish(&writer), BP_OK);
    (void)snprintf(command, sizeof command, "/usr/bin/python3 %s %s", program, path);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_that_is_no_header_is_refused),
        cmocka_unit_test(length_that_lies_is_refused),
        cmocka_unit_test(tensor_that_lies_is_refused),
        cmocka_unit_test(headers_with_too_much_are_refused),
        cmocka_unit_test(file_that_is_not_there_is_a_missing_input),
        cmocka_unit_test(changed_header_is_accepted_only_if_it_holds),
        cmocka_unit_test(halves_are_exact),
        cmocka_unit_test(floats_of_four_kinds_are_read),
        cmocka_unit_test(value_that_is_not_finite_is_refused),
        cmocka_unit_test(what_is_written_is_read_again),
        cmocka_unit_test(halves_are_the_nearest),
        cmocka_unit_test(sixteen_bits_are_written),
        cmocka_unit_test(value_beyond_the_type_is_refused),
        cmocka_unit_test(writer_counts),
        cmocka_unit_test(numpy_reads_what_we_write),
    };
    return BP_TEST_RUN(tests);
}
