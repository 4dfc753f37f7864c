/* Speeds of the network and the nodes of a planned job: --network FILE, which `bagpipe bench`
 * writes. */
#pragma once

#include "base/config/config.h"
#include "base/err.h"

#define BP_NETWORK_FILE "network.ini" /* in the folder of a bench */

/** Values of the file: SI units, bytes and seconds; per direction of a link. */
typedef struct bp_network_rates {
    double node_bandwidth,
        node_latency;    /* of a node's link: of all its ranks together; of a message */
    double message_rate; /* messages a second that a node's link takes */
    double inner_bandwidth, inner_latency; /* between two ranks of a node: of each pair */
    double flops;                          /* of a rank in training: FLOP/s of the model */
    double memory_bandwidth;               /* of a rank in passes over memory */
    double round_pause; /* seconds that each round of a sum beside compute oversleeps */
} bp_network_rates;

extern const bp_option bp_network_options[]; /* the keys of the file */

/** Read `path`; NULL: the defaults. flops 0: not given. Errors: those of bp_config_read,
 * bp_config_check: BP_ERR_INPUT no such file, BP_ERR_CONFIG an unknown key, a value out of range.
 * Local. */
bp_err bp_network_rates_read(bp_network_rates *out, const char *path);
