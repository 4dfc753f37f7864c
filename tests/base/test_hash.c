#include "base/fault.h"
#include "base/files/hash.h"
#include "base/rng.h"
#include "bp_test.h"

/* FIPS 180-2, appendix B, and the empty string. */
static void sha256_gives_the_published_digests(void **state)
{
    char hex[BP_SHA256_HEX];

    bp_sha256_of("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    bp_sha256_of("", 0, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

/* RFC 3720, B.4, and the check value of catalogues of checksums. */
static void crc32c_gives_the_published_values(void **state)
{
    static const uint8_t read_command[48] = {
        0x01, 0xc0, [16] = 0x14, [22] = 0x04, [27] = 0x14, [31] = 0x18, [32] = 0x28, [40] = 0x02};
    uint8_t data[32];

    memset(data, 0, sizeof data);
    assert_int_equal(bp_crc32c(data, 32), 0x8a9136aa);
    memset(data, 0xff, sizeof data);
    assert_int_equal(bp_crc32c(data, 32), 0x62a8ab43);
    for (int k = 0; k < 32; k++)
        data[k] = (uint8_t)k;
    assert_int_equal(bp_crc32c(data, 32), 0x46dd794e);
    for (int k = 0; k < 32; k++)
        data[k] = (uint8_t)(31 - k);
    assert_int_equal(bp_crc32c(data, 32), 0x113fdb5c);
    assert_int_equal(bp_crc32c(read_command, 48), 0xd9963a56);
    assert_int_equal(bp_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(bp_crc32c("", 0), 0);
}

static void sha256_of_parts_is_that_of_the_whole(void **state)
{
    static char data[3 << 20];
    char whole[BP_SHA256_HEX], parts[BP_SHA256_HEX], file[BP_SHA256_HEX];
    bp_sha256 *hash;
    int64_t bytes;

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 7 + i / 1000);
    bp_sha256_of(data, sizeof data, whole);
    hash = bp_sha256_new();
    for (size_t at = 0; at < sizeof data; at += 99999)
        bp_sha256_update(hash, data + at, sizeof data - at < 99999 ? sizeof data - at : 99999);
    bp_sha256_finish(&hash, parts);
    assert_null(hash);
    assert_string_equal(parts, whole);
    const char *path = bp_test_write("data", data, sizeof data);
    bp_test_expect(bp_sha256_of_file(path, file, &bytes), BP_OK);
    assert_string_equal(file, whole);
    assert_int_equal(bytes, sizeof data);
    bp_test_expect(bp_sha256_of_file(path, file, NULL), BP_OK);
}

static void sha256_of_no_file_is_an_error(void **state)
{
    char hex[BP_SHA256_HEX];

    bp_test_expect(bp_sha256_of_file(bp_test_path("none"), hex, NULL), BP_ERR_INPUT);
    bp_test_expect(bp_sha256_of_file(bp_test_folder(), hex, NULL), BP_ERR_INPUT);
}

/* The value that xxHash's documentation and `xxhsum -H3` give for nothing. */
static void xxh3_is_the_published_one(void **state)
{
    assert_true(bp_xxh3("", 0) == UINT64_C(0x2d06800538d394c2));
    assert_true(bp_xxh3("abc", 3) == UINT64_C(0x78af5f94892f3950));
}

#define N 5000

static void fill(float *values)
{
    bp_rng_key key = bp_rng_key_of(1, BP_RNG_TEST, 0, 0, 0);

    for (int i = 0; i < N; i++)
        values[i] = (float)bp_rng_normal(&key, (uint64_t)i);
}

static bool same(const bp_digest *a, const bp_digest *b)
{
    return a->lane[0] == b->lane[0] && a->lane[1] == b->lane[1];
}

static void digest_is_the_same_for_any_split(void **state)
{
    static float values[N];
    const int64_t first = INT64_C(5000000000); /* places beyond 32 bits */
    bp_digest whole = {{0, 0}};

    fill(values);
    bp_digest_add(&whole, values, first, N);
    for (int64_t piece = 1; piece <= N; piece = piece * 3 + 1) {
        bp_digest backwards = {{0, 0}};
        for (int64_t at = (N - 1) / piece * piece; at >= 0; at -= piece) {
            bp_digest part = {{0, 0}};
            bp_digest_add(&part, values + at, first + at, N - at < piece ? N - at : piece);
            bp_digest_merge(&backwards, &part);
        }
        assert_true(same(&whole, &backwards));
    }
}

/* The formula of docs/formats.md, element by element. */
static uint64_t mixed(uint64_t x)
{
    for (int round = 0; round < 2; round++)
        x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static void digest_is_that_of_the_plain_loop(void **state)
{
    static float values[N];
    const int64_t first = INT64_C(5000000000);
    bp_digest plain = {{0, 0}}, fast = {{0, 0}};

    for (int i = 0; i < N; i++) {
        uint32_t bits;

        values[i] = (float)(i * 37 % 101) * -0.37f;
        memcpy(&bits, &values[i], sizeof bits);
        uint64_t place = mixed((uint64_t)(first + i) + UINT64_C(0x9e3779b97f4a7c15));
        plain.lane[0] += mixed(place + bits);
        plain.lane[1] += mixed((place ^ UINT64_C(0xa0761d6478bd642f)) + ((uint64_t)bits << 32));
    }
    bp_digest_add(&fast, values, first, N);
    assert_true(same(&plain, &fast));
}

static void digest_sees_every_bit_and_every_place(void **state)
{
    static float values[N];
    bp_digest whole = {{0, 0}};

    fill(values);
    bp_digest_add(&whole, values, 0, N);
    for (int i = 0; i < N; i += 61)
        for (int bit = 0; bit < 32; bit++) {
            bp_digest changed = {{0, 0}};
            uint32_t bits;
            float kept = values[i];
            memcpy(&bits, &kept, sizeof bits);
            bits ^= 1u << bit;
            memcpy(&values[i], &bits, sizeof bits);
            bp_digest_add(&changed, values, 0, N);
            values[i] = kept;
            assert_true(changed.lane[0] != whole.lane[0] && changed.lane[1] != whole.lane[1]);
        }
    bp_digest moved = {{0, 0}}, swapped = {{0, 0}};
    bp_digest_add(&moved, values, 1, N);
    assert_false(same(&whole, &moved));
    float kept = values[10];
    values[10] = values[11];
    values[11] = kept;
    bp_digest_add(&swapped, values, 0, N);
    assert_false(same(&whole, &swapped));
}

/* Zeros are values too: a tensor of zeros that lacks an element has another digest. */
static void digest_counts_zeros(void **state)
{
    static const float zeros[8];
    bp_digest seven = {{0, 0}}, eight = {{0, 0}};

    bp_digest_add(&seven, zeros, 0, 7);
    bp_digest_add(&eight, zeros, 0, 8);
    assert_false(same(&seven, &eight));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_gives_the_published_digests),
        cmocka_unit_test(crc32c_gives_the_published_values),
        cmocka_unit_test(sha256_of_parts_is_that_of_the_whole),
        cmocka_unit_test(sha256_of_no_file_is_an_error),
        cmocka_unit_test(xxh3_is_the_published_one),
        cmocka_unit_test(digest_is_the_same_for_any_split),
        cmocka_unit_test(digest_is_that_of_the_plain_loop),
        cmocka_unit_test(digest_sees_every_bit_and_every_place),
        cmocka_unit_test(digest_counts_zeros),
    };
    return BP_TEST_RUN(tests);
}
