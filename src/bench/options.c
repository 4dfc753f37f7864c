/* The keys of bench.*, and their faults that are found before any file is read. */
#include "bench/bench.h"

#include "bench/models.h"
#include "mesh/mesh.h"

#include <string.h>

const bp_option bp_bench_options[] = {
    {BP_REAL_KEY("bench.seconds", "2", 0.001, 3600), .unit = "seconds",
     .help = "of one measurement, about; --plan says how long the whole takes",
     .at = BP_AT(bp_bench_keys, seconds)},
    {BP_STRING_KEY("bench.models", "small, medium, gpt2"),
     .help = "trained and scored: tiny (0.2M parameters, a first look), small (5M), medium (30M), "
             "gpt2 (124M), or none; matrix products are those of the largest",
     .at = BP_AT(bp_bench_keys, models)},
    {BP_INT_KEY("bench.micro_batches", "0", 0, 65536), .unit = "micro-batches",
     .help = "of a training step on each data rank; 0: 1, or 4 for each pipeline stage",
     .at = BP_AT(bp_bench_keys, micro_batches)},
    {BP_BYTES_KEY("bench.corpus", "64MiB", 4096, 1099511627776.0),
     .help = "of random tokens, written into run.dir, read, and removed",
     .at = BP_AT(bp_bench_keys, corpus)},
    {BP_BYTES_KEY("bench.message", "64MiB", 1024, 17179869184.0),
     .help = "of the largest message between ranks", .at = BP_AT(bp_bench_keys, message)},
    {0},
};

void bp_bench_check(bp_config *config)
{
    bool named[BP_BENCH_MODELS];
    const char *wrong;

    if (bp_mesh_keys_of(config)->members != 1)
        bp_config_fault(config, "mesh.one_model",
                        "mesh.members = %lld, but bench trains one model at a time: at "
                        "mesh.members; leave it at 1",
                        (long long)bp_mesh_keys_of(config)->members);
    if (bp_mesh_keys_of(config)->expert != 1)
        bp_config_fault(config, "mesh.expert_trains",
                        "mesh.expert = %lld, but models of bench have no experts: at mesh.expert; "
                        "leave it at 1",
                        (long long)bp_mesh_keys_of(config)->expert);
    if (!bp_bench_models_named(bp_bench_keys_of(config)->models, named, &wrong))
        bp_config_fault(config, "bench.unknown_model",
                        "there is no model '%.*s': at bench.models; use tiny, small, medium, "
                        "gpt2, several with commas, or none",
                        (int)strcspn(wrong, " ,"), wrong);
}
