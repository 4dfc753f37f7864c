/* The datagrams between the watchdog's threads: UDP, since only the main thread may call MPI, and a
 * lost heartbeat is followed by another. Local. */
#pragma once

#include "base/err.h"
#include "run/watchdog/watch_state.h"
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#define WIRE_HOST_BYTES  64
#define WIRE_NAME_BYTES  24
#define WIRE_TOKEN_BYTES 16
#define WIRE_CANDIDATES  6

/** The addresses of a rank, exchanged by MPI. */
typedef struct wire_place {
    char host[WIRE_HOST_BYTES];
    uint64_t network;                    /* equal for ranks that share a loopback network */
    uint32_t addresses[WIRE_CANDIDATES]; /* IPv4, network order */
    int32_t address_count;
    int32_t pid;
    uint16_t port; /* network order; 0: no socket */
    uint16_t padding;
} wire_place;

typedef enum wire_kind {
    WIRE_HEARTBEAT, /* from any rank to ranks 0 and 1 */
    WIRE_ANSWER,    /* the answer to a heartbeat */
    WIRE_LEAVE,     /* from a rank whose run has ended; from rank 0, to all: no more answers */
    WIRE_ORDER      /* to all: write a backtrace and exit */
} wire_kind;

typedef struct wire_packet {
    char magic[4];
    uint32_t version;
    uint8_t token[WIRE_TOKEN_BYTES]; /* of the run: foreign datagrams are dropped */
    uint32_t kind;
    int32_t from, to;             /* ranks */
    int32_t confirmed;            /* the sender has received from `to`, and knows its address */
    int64_t sequence;             /* of a heartbeat */
    bp_watch_heartbeat heartbeat; /* the sender's, or the culprit's last one */
    bp_watch_diagnosis is;        /* of an order */
    char name[WIRE_NAME_BYTES];   /* of the collective */
} wire_packet;

/** A socket on a free port, with buffers for heartbeats of thousands of ranks, and its addresses.
 * On failure -1, and port 0. */
int wire_open(wire_place *place, const char *host);
/** Are both on one host? */
bool wire_is_beside(const wire_place *one, const wire_place *other);
/** A packet of this run, without content. */
wire_packet wire_packet_of(const uint8_t token[WIRE_TOKEN_BYTES], wire_kind kind, int from);
/** To one place; a failure is a lost datagram. */
void wire_send(int fd, const struct sockaddr_in *to, const wire_packet *packet);
/** To each address of the place that `self` might reach. */
void wire_send_all(int fd, const wire_place *self, const wire_place *to, const wire_packet *packet);
/** The next packet of this run to this rank; false if there is none. */
bool wire_receive(int fd, const uint8_t token[WIRE_TOKEN_BYTES], int rank, int size,
                  wire_packet *out, struct sockaddr_in *from);
