"""Encoder-decoders: folders of Hugging Face's form come back as they went. Their numbers are those of models.references."""
import json
import os
import shutil

import bagpipe_test
from bagpipe_test import JobTest, program, read_json

FOLDERS = ("transformer-tiny", "bart-tiny")


def tensors(folder):
    """What model.safetensors says of its tensors, and all their bytes."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        head.pop("__metadata__", None)
        return head, file.read()


class Seq2Seq(JobTest):
    def tiny(self, folder):
        return bagpipe_test.shared(os.path.join("reference", folder))

    def test_folders_come_back_as_they_went(self):
        for folder in FOLDERS:
            with self.subTest(folder):
                taken, back = self.at(folder), self.at(folder + "-back")
                self.must(["bagpipe-data", "import", self.tiny(folder), "--out", taken, "--no-tokenizer"])
                self.must(["bagpipe-data", "export", taken, "--out", back, "--no-tokenizer"])
                self.assertEqual(tensors(self.tiny(folder)), tensors(back))
                before, after = read_json(self.tiny(folder), "config.json"), read_json(back, "config.json")
                for key in ("model_type", "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads", "encoder_ffn_dim",
                            "decoder_ffn_dim", "vocab_size", "decoder_start_token_id", "eos_token_id", "is_encoder_decoder", "tie_word_embeddings", "scale_embedding"):
                    self.assertEqual(before[key], after[key], key)

    def test_other_computations_are_refused(self):
        for key, value in (("activation_function", "gelu_new"), ("scale_embedding", True), ("decoder_attention_heads", 2), ("normalize_before", True)):
            with self.subTest(key):
                folder = self.at("other-" + key)
                shutil.copytree(self.tiny("bart-tiny"), folder)
                os.chmod(folder, 0o755)
                config = read_json(folder, "config.json")
                config[key] = value
                path = os.path.join(folder, "config.json")
                os.chmod(path, 0o644)
                with open(path, "w", encoding="utf-8") as file:
                    json.dump(config, file)
                result = bagpipe_test.run([program("bagpipe-data"), "import", folder, "--out", self.at("refused"), "--no-tokenizer"])
                self.assert_error(result, 65, "[huggingface.unsupported]")


if __name__ == "__main__":
    bagpipe_test.main()
