/* The datagrams between the watchdog's threads: UDP, since a thread may not call MPI beside the
 * main one, and since a lost heartbeat is followed by another. Local. */
#ifndef BP_RUN_WATCHDOG_WATCHDOG_WIRE_PRIV_H
#define BP_RUN_WATCHDOG_WATCHDOG_WIRE_PRIV_H

#include "base/err.h"
#include "run/watchdog/watch_state.h"
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#define WIRE_HOST_BYTES  64
#define WIRE_NAME_BYTES  24
#define WIRE_TOKEN_BYTES 16
#define WIRE_CANDIDATES  6

/** Where a rank may be reached; ranks learn all ranks' by MPI. */
typedef struct wire_place {
    char host[WIRE_HOST_BYTES];
    uint64_t network;                    /* equal where loopback joins them */
    uint32_t addresses[WIRE_CANDIDATES]; /* IPv4, network order */
    int32_t address_count;
    int32_t pid;
    uint16_t port; /* network order; 0: no socket */
    uint16_t padding;
} wire_place;

typedef enum wire_kind {
    WIRE_HEARTBEAT, /* from any rank to ranks 0 and 1 */
    WIRE_ANSWER,    /* to it */
    WIRE_LEAVE,     /* from a rank whose run is over; from rank 0, to all: no answers any more */
    WIRE_ORDER      /* to all: write your stack and leave */
} wire_kind;

typedef struct wire_packet {
    char magic[4];
    uint32_t version;
    uint8_t token[WIRE_TOKEN_BYTES]; /* of the run: a foreign datagram is dropped */
    uint32_t kind;
    int32_t from, to;             /* ranks */
    int32_t confirmed;            /* the sender has heard from `to`, and knows where it is */
    int64_t sequence;             /* of a heartbeat */
    bp_watch_heartbeat heartbeat; /* the sender's, or the culprit's last one */
    bp_watch_diagnosis is;        /* of an order */
    char name[WIRE_NAME_BYTES];   /* of the collective */
} wire_packet;

/** A socket on a free port, that buffers the heartbeats of thousands of ranks, and where it is; no
 * socket (-1, and port 0) where there can be none. */
int wire_open(wire_place *place, const char *host);
/** Are both on one host? */
bool wire_is_beside(const wire_place *one, const wire_place *other);
/** A packet of this run, without content. */
wire_packet wire_packet_of(const uint8_t token[WIRE_TOKEN_BYTES], wire_kind kind, int from);
/** To one place; a failure is a lost datagram. */
void wire_send(int fd, const struct sockaddr_in *to, const wire_packet *packet);
/** To each address that the place may have, as seen from `self`. */
void wire_send_all(int fd, const wire_place *self, const wire_place *to, const wire_packet *packet);
/** The next packet of this run to this rank that is there; false: none. */
bool wire_receive(int fd, const uint8_t token[WIRE_TOKEN_BYTES], int rank, int size,
                  wire_packet *out, struct sockaddr_in *from);

#endif
