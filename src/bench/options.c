/* The keys of bench.*, and their faults that are found before any file is read. */
#include "bench/bench.h"

#include "bench/models.h"
#include "mesh/mesh.h"

#include <string.h>

#define END                                                                                        \
    {                                                                                              \
        NULL, BP_OPTION_STRING, NULL, 0, 0, NULL, NULL, NULL, false                                \
    }

const bp_option bp_bench_options[] = {
    {"bench.seconds", BP_OPTION_REAL, "2", 0.001, 3600, NULL, "seconds",
     "of one measurement, about; --plan says how long the whole takes", false,
     .at = BP_AT(bp_bench_keys, seconds)},
    {"bench.models", BP_OPTION_STRING, "small, medium, gpt2", 0, 0, NULL, NULL,
     "trained and scored: tiny (0.2M parameters, a first look), small (5M), medium (30M), gpt2 "
     "(124M), or none; matrix products are those of the largest",
     false, .at = BP_AT(bp_bench_keys, models)},
    {"bench.micro_batches", BP_OPTION_INT, "0", 0, 65536, NULL, "micro-batches",
     "of a training step on each data rank; 0: 1, or 4 for each pipeline stage", false,
     .at = BP_AT(bp_bench_keys, micro_batches)},
    {"bench.corpus", BP_OPTION_BYTES, "64MiB", 4096, 1099511627776.0, NULL, NULL,
     "of random tokens, written into run.dir, read, and removed", false,
     .at = BP_AT(bp_bench_keys, corpus)},
    {"bench.message", BP_OPTION_BYTES, "64MiB", 1024, 17179869184.0, NULL, NULL,
     "of the largest message between ranks", false, .at = BP_AT(bp_bench_keys, message)},
    END,
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
