/* The keys of a network file. Called by --plan. */
#include "train/scale/network_file.h"

#define RATE_MOST 1e18

const bp_option bp_network_options[] = {
    {BP_REAL_KEY("network.node_bandwidth", "12.5e9", 1, RATE_MOST), .unit = "bytes/s",
     .help = "of a node's link in one direction, for all its ranks together",
     .at = BP_AT(bp_network_rates, node_bandwidth)},
    {BP_REAL_KEY("network.node_latency", "2e-6", 0, 10), .unit = "seconds",
     .help = "of a message between nodes", .at = BP_AT(bp_network_rates, node_latency)},
    {BP_REAL_KEY("network.message_rate", "5e6", 1, RATE_MOST), .unit = "messages/s",
     .help = "that a node's link takes", .at = BP_AT(bp_network_rates, message_rate)},
    {BP_REAL_KEY("network.inner_bandwidth", "5e9", 1, RATE_MOST), .unit = "bytes/s",
     .help = "from a rank to another one of its node, while all others send too",
     .at = BP_AT(bp_network_rates, inner_bandwidth)},
    {BP_REAL_KEY("network.inner_latency", "1e-6", 0, 10), .unit = "seconds",
     .help = "of a message within a node", .at = BP_AT(bp_network_rates, inner_latency)},
    {BP_REAL_KEY("network.round_pause", "2e-4", 0, 1), .unit = "seconds",
     .help = "that the progress thread oversleeps in each round of a sum beside compute",
     .at = BP_AT(bp_network_rates, round_pause)},
    {BP_REAL_KEY("compute.flops", "0", 0, RATE_MOST), .unit = "FLOP/s",
     .help = "of the model, that a rank reaches in training while all ranks of its node train; 0: "
             "a share of what matrix products reach here",
     .at = BP_AT(bp_network_rates, flops)},
    {BP_REAL_KEY("compute.memory_bandwidth", "8e9", 1, RATE_MOST), .unit = "bytes/s",
     .help = "of a rank in passes over memory: optimizer, additions",
     .at = BP_AT(bp_network_rates, memory_bandwidth)},
    {0}};

bp_err bp_network_rates_read(bp_network_rates *out, const char *path)
{
    static const bp_option *const TABLES[] = {bp_network_options, NULL};
    bp_config *config = NULL;
    bp_err err = bp_config_new(&config, TABLES, TABLES);

    if (err == BP_OK)
        err = bp_config_read(config, path, 0, NULL);
    if (err == BP_OK)
        err = bp_config_check(config);
    if (err == BP_OK)
        err = bp_config_faults(config);
    if (err == BP_OK)
        *out = *(const bp_network_rates *)bp_config_bound(config, bp_network_options);
    bp_config_free(&config);
    return err;
}
