"""A language model of torch.nn.LSTM, as bagpipe's model of kind lstm: word vectors, layers of one width, logits with a bias."""
import h5py
import numpy
import torch
import torch.nn.functional as F
from torch import nn

import gpt


class LSTM(nn.Module):
    """Time first, which is how nn.LSTM computes. The state goes on from batch to batch; gradients end where a window begins."""

    def __init__(self, layers, width, vocabulary):
        super().__init__()
        self.encoder, self.rnn, self.decoder = nn.Embedding(vocabulary, width), nn.LSTM(width, width, layers), nn.Linear(width, vocabulary)
        self.state = None
        nn.init.normal_(self.encoder.weight, std=0.02)

    def forward(self, inputs, targets):
        """int64 [T, B] -> mean cross-entropy."""
        states, carried = self.rnn(self.encoder(inputs), self.state)
        self.state = tuple(part.detach() for part in carried)
        return F.cross_entropy(self.decoder(states).view(inputs.numel(), -1), targets.reshape(-1))


def load(model, path):
    """The names are torch.nn's."""
    model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in gpt.safetensors(path).items()})


class Stream:
    """Windows of T tokens: each of B slots reads its part of the tokens from begin to end."""

    def __init__(self, path, context, batch):
        with h5py.File(path, "r") as file:
            tokens = torch.from_numpy(file["tokens"][:].astype(numpy.int64))
        self.context, self.steps = context, (len(tokens) - 1) // context // batch
        part = self.steps * context
        self.rows = torch.stack([tokens[slot * part:slot * part + part + 1] for slot in range(batch)], dim=1)

    def __getitem__(self, step):
        window = self.rows[step % self.steps * self.context:][:self.context + 1]
        return window[:-1], window[1:]

    def tokens(self):
        """Of a batch."""
        return self.context * self.rows.shape[1]
