/* The keys of a network file. Called by --plan. */
#include "train/scale/network_file.h"

#define RATE_MOST 1e18

const bp_option bp_network_options[] = {
    {"network.node_bandwidth", BP_OPTION_REAL, "12.5e9", 1, RATE_MOST, NULL, "bytes/s",
     "of a node's link in one direction, for all its ranks together", false,
     .at = BP_AT(bp_network_rates, node_bandwidth)},
    {"network.node_latency", BP_OPTION_REAL, "2e-6", 0, 10, NULL, "seconds",
     "of a message between nodes", false, .at = BP_AT(bp_network_rates, node_latency)},
    {"network.message_rate", BP_OPTION_REAL, "5e6", 1, RATE_MOST, NULL, "messages/s",
     "that a node's link takes", false, .at = BP_AT(bp_network_rates, message_rate)},
    {"network.inner_bandwidth", BP_OPTION_REAL, "5e9", 1, RATE_MOST, NULL, "bytes/s",
     "from a rank to another one of its node, while all others send too", false,
     .at = BP_AT(bp_network_rates, inner_bandwidth)},
    {"network.inner_latency", BP_OPTION_REAL, "1e-6", 0, 10, NULL, "seconds",
     "of a message within a node", false, .at = BP_AT(bp_network_rates, inner_latency)},
    {"network.round_pause", BP_OPTION_REAL, "2e-4", 0, 1, NULL, "seconds",
     "that the progress thread oversleeps in each round of a sum beside compute", false,
     .at = BP_AT(bp_network_rates, round_pause)},
    {"compute.flops", BP_OPTION_REAL, "0", 0, RATE_MOST, NULL, "FLOP/s",
     "of the model, that a rank reaches in training while all ranks of its node train; 0: a share "
     "of what matrix "
     "products reach here",
     false, .at = BP_AT(bp_network_rates, flops)},
    {"compute.memory_bandwidth", BP_OPTION_REAL, "8e9", 1, RATE_MOST, NULL, "bytes/s",
     "of a rank in passes over memory: optimizer, additions", false,
     .at = BP_AT(bp_network_rates, memory_bandwidth)},
    {NULL, BP_OPTION_INT, NULL, 0, 0, NULL, NULL, NULL, false}};

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
