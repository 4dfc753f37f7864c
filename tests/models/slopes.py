"""Gradients of a training against slopes of a loss in numpy's float64: with these keys a step takes the gradient from the weights.

    check(loss, w, gradients): loss() reads the tensors `w`, in float64
"""
import numpy

DESCENT = ("train.steps=1", "optimizer.kind=sgd", "optimizer.momentum=0", "optimizer.lr=1", "optimizer.warmup=0", "optimizer.decay=constant", "optimizer.clip=0",
           "optimizer.weight_decay=0", "math.precision=f32", "math.threads=1")


def check(loss, w, gradients, by=1e-5):
    """Each tensor's gradient is the slope of loss() along a random direction; `w` is what it reads."""
    draw, whole = numpy.random.default_rng(5), max(numpy.linalg.norm(g) for g in gradients.values())
    for name, g in gradients.items():
        way = draw.normal(size=g.shape)
        way, old = way / numpy.linalg.norm(way), w[name]
        ends = []
        for sign in (1, -1):
            w[name] = old + sign * by * way
            ends.append(loss())
        w[name] = old
        size = g.size ** -0.5  # of a unit direction's share along another one
        numpy.testing.assert_allclose((g * way).sum(), (ends[0] - ends[1]) / (2 * by), rtol=0,
                                      atol=1e-3 * size * numpy.linalg.norm(g) + 6e-7 * size * numpy.linalg.norm(old) + 2e-6 * whole, err_msg=name)
