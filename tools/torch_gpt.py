"""GPT-2 in PyTorch, with the names and layouts of Hugging Face's GPT2LMHeadModel, so that its weights are the program's."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class Linear(nn.Module):
    """y = x w + b with w (inputs, outputs)."""

    def __init__(self, inputs, outputs, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None

    def forward(self, x):
        return F.linear(x, self.weight.T, self.bias)


class Attention(nn.Module):
    def __init__(self, width, heads, dropout, bias):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.c_attn = Linear(width, 3 * width, bias)
        self.c_proj = Linear(width, width, bias)

    def split(self, x):
        """q, k, v: (B, H, T, C / H)."""
        b, t, c = x.shape
        return (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.c_attn(x).split(c, 2))

    def forward(self, x):
        q, k, v = self.split(x)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0)
        return F.dropout(self.c_proj(y.transpose(1, 2).reshape(x.shape)), self.dropout, self.training)

    def decode(self, x, cache, position, seen):
        q, k, v = self.split(x)
        keys, values = (part.index_copy_(2, position, new) for part, new in zip(cache, (k, v)))
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        return self.c_proj(y.transpose(1, 2).reshape(x.shape))


class MLP(nn.Module):
    def __init__(self, width, dropout, bias):
        super().__init__()
        self.dropout = dropout
        self.c_fc = Linear(width, 4 * width, bias)
        self.c_proj = Linear(4 * width, width, bias)

    def forward(self, x):
        return F.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")), self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, width, heads, dropout, bias):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.attn = Attention(width, heads, dropout, bias)
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.mlp = MLP(width, dropout, bias)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))

    def decode(self, x, cache, position, seen):
        x = x + self.attn.decode(self.ln_1(x), cache, position, seen)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, n_layer, n_head, n_embd, context, vocab_size, dropout=0.0, bias=True):
        super().__init__()
        self.dropout = dropout
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocab_size, n_embd), "wpe": nn.Embedding(context, n_embd),
            "h": nn.ModuleList(Block(n_embd, n_head, dropout, bias) for _ in range(n_layer)),
            "ln_f": nn.LayerNorm(n_embd, bias=bias)})
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                std = 0.02 / math.sqrt(2 * n_layer) if name.endswith("c_proj.weight") else 0.02
                nn.init.normal_(parameter, std=std)

    def forward(self, ids):
        t = self.transformer
        x = t.wte(ids) + t.wpe(torch.arange(ids.shape[1], device=ids.device))
        x = F.dropout(x, self.dropout, self.training)
        for block in t.h:
            x = block(x)
        return t.ln_f(x) @ t.wte.weight.T

    def decode(self, ids, position, cache):
        """Logits (B, V) after one more token of B texts: ids (B, 1) at position (1), which `cache`, made by make_cache, takes."""
        t = self.transformer
        seen = (torch.arange(cache[0][0].shape[2]) <= position)[None, None, None, :]
        x = t.wte(ids) + t.wpe(position)
        for block, keys_values in zip(t.h, cache):
            x = block.decode(x, keys_values, position, seen)
        return (t.ln_f(x) @ t.wte.weight.T)[:, 0]

    def make_cache(self, texts, length):
        """(keys, values) of each block, (texts, H, length, C / H)."""
        width, heads, like = self.transformer.wte.embedding_dim, self.transformer.h[0].attn.heads, self.transformer.wte.weight
        return [tuple(like.new_zeros(texts, heads, length, width // heads) for _ in range(2)) for _ in self.transformer.h]


def from_config(config):
    """The model of a configuration as torch_model.read_config reads it."""
    number = lambda key, fallback: int(config["model." + key] if config.get("model." + key, "auto") != "auto" else fallback)
    return GPT(number("n_layer", 12), number("n_head", 12), number("n_embd", 768), number("context", 1024), number("vocab_size", 50257),
               float(config.get("model.dropout", 0)), config.get("model.bias", "yes") == "yes")


def zipf_tokens(vocab_size, *shape):
    """Tokens with the frequencies of data.format = synthetic_tokens."""
    return (torch.exp(torch.rand(shape, dtype=torch.float64) * math.log(vocab_size + 1)).long() - 1).clamp(0, vocab_size - 1)


def losses(logits, labels):
    """Of each token; 0 where the label is -1."""
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1, reduction="none")
