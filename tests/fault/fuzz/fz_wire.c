/* Datagrams of the watchdog: whatever comes in, what is taken is a packet of this run to this rank,
 * whole and in range. The first byte says how much of a right packet the input is laid over. */
#include "fuzz.h"
#include "run/watchdog/watchdog_wire_priv.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RANK 2
#define SIZE 5

static const uint8_t TOKEN[WIRE_TOKEN_BYTES] = "sixteen of them";

/* A packet of the input: laid over the whole, over what follows the token, or as it is. */
static size_t make(uint8_t *out, fuzz_bytes *in)
{
    int how = fuzz_below(in, 4);
    wire_packet packet = wire_packet_of(TOKEN, (wire_kind)fuzz_below(in, 4), fuzz_below(in, SIZE));
    size_t bytes, at = how == 0 ? 0 : offsetof(wire_packet, sequence);

    packet.to = RANK;
    memcpy(out, &packet, sizeof packet);
    if (how == 2)
        at = offsetof(wire_packet, kind);
    bytes = in->left < sizeof packet - at ? in->left : sizeof packet - at;
    memcpy(out + at, in->data, bytes);
    if (how != 3)
        return how == 0 ? bytes : sizeof packet;
    return fuzz_below(in, 256) % (2 * sizeof packet); /* too short, or too long */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int ends[2] = {-1, -1};
    uint8_t sent[2 * sizeof(wire_packet)] = {0};
    fuzz_bytes in = {data, bytes};
    size_t length = make(sent, &in);
    struct sockaddr_in from;
    wire_packet got;

    if (ends[0] < 0)
        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends) == 0);
    FUZZ_CHECK(send(ends[0], sent, length, 0) == (ssize_t)length);
    if (wire_receive(ends[1], TOKEN, RANK, SIZE, &got, &from)) {
        FUZZ_CHECK(length == sizeof got && memcmp(sent, "bpwd", 4) == 0);
        FUZZ_CHECK(memcmp(got.token, TOKEN, sizeof TOKEN) == 0);
        FUZZ_CHECK(got.to == RANK && got.from >= 0 && got.from < SIZE && got.from != RANK);
        FUZZ_CHECK(got.is.rank >= 0 && got.is.rank < SIZE);
        FUZZ_CHECK((unsigned)got.heartbeat.phase < BP_PHASES);
        FUZZ_CHECK(memchr(got.name, 0, sizeof got.name) != NULL);
        FUZZ_CHECK(memcmp(&got, sent, offsetof(wire_packet, name)) == 0);
    }
    FUZZ_CHECK(!wire_receive(ends[1], TOKEN, RANK, SIZE, &got, &from)); /* one came, one went */
    return 0;
}
