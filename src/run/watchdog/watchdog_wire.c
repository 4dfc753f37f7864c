/* The watchdog's datagrams: format, checks, sending and receiving (UDP, because a thread must not
 * call MPI). Called by watchdog.c, watchdog_report.c and watchdog_thread.c. */
#include "run/watchdog/watchdog_wire_priv.h"

#include "base/files/hash.h"
#include "run/lock/process.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC         "bpwd"
#define VERSION       2
#define RECEIVE_BYTES (4 << 20) /* bytes: buffers datagrams while the thread is delayed */

/* A hash of the running kernel and its network namespace, since each namespace has its own
 * loopback. 0: not known. The boot id is needed to distinguish hosts: initial namespaces have equal
 * numbers. */
static uint64_t network_of_this_process(void)
{
    char text[256] = "";
    ssize_t network = readlink("/proc/self/ns/net", text + 64, sizeof text - 65);

    process_read(text, 64, "/proc/sys/kernel/random/boot_id");
    return text[0] == '\0' || network < 0 ? 0 : bp_xxh3(text, sizeof text);
}

static void find_addresses(wire_place *place)
{
    struct ifaddrs *all = NULL;

    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *at = all; at; at = at->ifa_next) {
        struct sockaddr_in address;

        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET || (at->ifa_flags & IFF_UP) == 0 ||
            (at->ifa_flags & IFF_LOOPBACK) != 0 || place->address_count == WIRE_CANDIDATES)
            continue;
        memcpy(&address, at->ifa_addr, sizeof address);
        place->addresses[place->address_count++] = address.sin_addr.s_addr;
    }
    freeifaddrs(all);
}

int wire_open(wire_place *place, const char *host)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t bytes = sizeof any;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    *place = (wire_place){.pid = (int32_t)getpid(), .network = network_of_this_process()};
    (void)snprintf(place->host, sizeof place->host, "%.*s", WIRE_HOST_BYTES - 1, host);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &(int){RECEIVE_BYTES},
                     sizeof(int)); /* or what there is */
    if (bind(fd, (struct sockaddr *)&any, bytes) != 0 ||
        getsockname(fd, (struct sockaddr *)&any, &bytes) != 0) {
        (void)close(fd);
        return -1;
    }
    place->port = any.sin_port;
    find_addresses(place);
    return fd;
}

bool wire_is_beside(const wire_place *one, const wire_place *other)
{
    return strcmp(one->host, other->host) == 0 && one->network == other->network;
}

wire_packet wire_packet_of(const uint8_t token[WIRE_TOKEN_BYTES], wire_kind kind, int from)
{
    wire_packet packet;

    memset(&packet, 0, sizeof packet);
    memcpy(packet.magic, MAGIC, sizeof packet.magic);
    memcpy(packet.token, token, WIRE_TOKEN_BYTES);
    packet.version = VERSION;
    packet.kind = kind;
    packet.from = from;
    return packet;
}

void wire_send(int fd, const struct sockaddr_in *to, const wire_packet *packet)
{
    if (fd >= 0 && to->sin_port != 0)
        (void)sendto(fd, packet, sizeof *packet, MSG_DONTWAIT | MSG_NOSIGNAL,
                     (const struct sockaddr *)to, sizeof *to);
}

void wire_send_all(int fd, const wire_place *self, const wire_place *to, const wire_packet *packet)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = to->port};

    if (self->network == to->network && self->network != 0) {
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        wire_send(fd, &address, packet);
        return;
    }
    for (int k = 0; k < to->address_count; k++) {
        address.sin_addr.s_addr = to->addresses[k];
        wire_send(fd, &address, packet);
    }
}

static bool is_ours(const wire_packet *packet, ssize_t bytes, const uint8_t token[WIRE_TOKEN_BYTES],
                    int rank, int size)
{
    return bytes == (ssize_t)sizeof *packet && memcmp(packet->magic, MAGIC, 4) == 0 &&
           packet->version == VERSION && memcmp(packet->token, token, WIRE_TOKEN_BYTES) == 0 &&
           packet->to == rank && packet->from >= 0 && packet->from < size && packet->from != rank &&
           packet->is.rank >= 0 && packet->is.rank < size &&
           (unsigned)packet->is.reason <= BP_WATCH_WAITS &&
           (unsigned)packet->heartbeat.phase < BP_PHASES;
}

bool wire_receive(int fd, const uint8_t token[WIRE_TOKEN_BYTES], int rank, int size,
                  wire_packet *out, struct sockaddr_in *from)
{
    for (;;) {
        socklen_t bytes = sizeof *from;
        ssize_t got = recvfrom(fd, out, sizeof *out, MSG_DONTWAIT | MSG_TRUNC,
                               (struct sockaddr *)from, &bytes);

        if (got < 0)
            return false;
        if (!is_ours(out, got, token, rank, size))
            continue;
        out->name[WIRE_NAME_BYTES - 1] = '\0';
        return true;
    }
}
