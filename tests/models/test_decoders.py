"""Adapters of decoders whose layers have norms of queries and keys, norms after branches, gains of 1 + w and multipliers: one loss on one rank and on
two tensor ranks."""
import bagpipe_test
from bagpipe_test import JobTest, metrics


class Decoders(JobTest):
    def test_adapters_on_tensor_ranks(self):
        for kind, own in (("gemma3", []), ("olmo2", []), ("granite", []), ("granite_hybrid", ["model.attention_layers=2"]),
                          ("qwen3_moe", ["model.experts=3", "model.experts_chosen=2", "model.experts_balance=0.1"])):
            keys = ["model.kind=" + kind, "model.kv_heads=2", "train.steps=3", *own]
            base = self.trained(kind, 0, *keys)
            for adapter in ("lora", "bottleneck"):
                with self.subTest(kind, adapter=adapter):
                    own = [*keys, f"model.init={base}", "adapter.kind=" + adapter]
                    one, two = self.trained(kind + adapter, 0, *own), self.trained(kind + adapter + "-two", 2, *own, "mesh.tensor=2")
                    for a, b in zip(metrics(one), metrics(two), strict=True):
                        self.assertLess(abs(a["loss"] - b["loss"]), 2e-5)


if __name__ == "__main__":
    bagpipe_test.main()
