"""A GPT-2 in numpy and float64."""
import numpy


def log_softmax(z):
    z = z - z.max(-1, keepdims=True)
    return z - numpy.log(numpy.exp(z).sum(-1, keepdims=True))


def norm(x, gain, bias):
    x = x - x.mean(-1, keepdims=True)
    return x / numpy.sqrt((x ** 2).mean(-1, keepdims=True) + 1e-5) * gain + bias


def gpt_logits(w, tokens, heads):
    """Of a GPT-2, in float64; tokens [windows][T]."""
    T = tokens.shape[1]
    h = w["wte"][tokens] + w["wpe"][:T]
    hidden = numpy.triu(numpy.full((T, T), -numpy.inf), 1)
    for layer in range(sum(name.endswith("attn.q.weight") and "/" not in name for name in w)):
        def of(name):
            return w[f"h.{layer}.{name}"]
        x = norm(h, of("ln1.gain"), of("ln1.bias"))
        q, k, v = ((x @ of(f"attn.{n}.weight").T + of(f"attn.{n}.bias")).reshape(*x.shape[:2], heads, -1).swapaxes(1, 2) for n in "qkv")
        p = numpy.exp(log_softmax(q @ k.swapaxes(2, 3) / numpy.sqrt(q.shape[-1]) + hidden))
        h = h + (p @ v).swapaxes(1, 2).reshape(x.shape) @ of("attn.out.weight").T + of("attn.out.bias")
        x = norm(h, of("ln2.gain"), of("ln2.bias")) @ of("mlp.up.weight").T + of("mlp.up.bias")
        x = 0.5 * x * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (x + 0.044715 * x ** 3)))
        h = h + x @ of("mlp.down.weight").T + of("mlp.down.bias")
    return norm(h, w["ln_f.gain"], w["ln_f.bias"]) @ w["wte"].T
