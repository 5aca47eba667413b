"""The models and optimizers of our configurations, built in PyTorch: for golden files and the comparison of speed.

Reads the same text as the program: the ini file, key=value settings behind it, and model.layers. Parameters have the program's names
("residual2.conv1.weight"); images are (B, C, S...) as PyTorch has them, and flatten puts channels last as the program does.
"""
import re

import torch
from torch import nn
from torch.nn import functional as F


def read_config(path, assignments=()):
    """{'section.key': text} of an ini file and of the key=value settings behind it; later ones win."""
    config, section, key, indent = {}, "", None, 0
    with open(path, encoding="utf-8-sig") as file:
        for line in file:
            text = re.sub(r"(^|\s)[#;].*", "", line.rstrip()).rstrip()
            depth = len(line) - len(line.lstrip())
            if not text:
                continue
            if key and depth > indent:
                config[key] += "\n" + text.strip()
            elif text.strip().startswith("["):
                section, key = text.strip()[1:-1].strip(), None
            else:
                name, _, value = text.partition("=")
                key, indent = ".".join(filter(None, (section, name.strip()))), depth
                config[key] = value.strip()
    for assignment in assignments:
        key, _, value = assignment.partition("=")
        config[key] = value
    return config


def sizes(text):
    return tuple(int(n) for n in text.split("x"))


# -- layers ---------------------------------------------------------------------------------------------------------------


def parse_layers(text):
    """[(name, [words], {key: value}, [blocks])] of model.layers."""
    tokens = re.findall(r"[{},\n]|[^\s{},=]+=[^\s{},]+|[^\s{},]+", re.sub(r"#[^\n]*", "", text))
    place = 0

    def parse_list():
        nonlocal place
        layers = []
        while place < len(tokens) and tokens[place] != "}":
            token = tokens[place]
            place += 1
            if token in ",\n":
                continue
            words, options, blocks = [], {}, []
            while place < len(tokens) and tokens[place] not in ("{", "}", ",", "\n"):
                key, equals, value = tokens[place].partition("=")
                if equals:
                    options[key] = value
                else:
                    words.append(key)
                place += 1
            while next_block():
                blocks.append(parse_list())
                place += 1
            layers.append((token, words, options, blocks))
        return layers

    def next_block():
        nonlocal place
        ahead = place
        while ahead < len(tokens) and tokens[ahead] == "\n":
            ahead += 1
        if ahead < len(tokens) and tokens[ahead] == "{":
            place = ahead + 1
            return True
        return False

    return parse_list()


class Layers(nn.Module):
    """A list of layers in a scope of its own. x: an example batch, for shapes."""

    def __init__(self, layers, x):
        super().__init__()
        self.order, self.taps, counts = [], {}, {}
        for layer in self.unrolled(layers):
            x = self.append(layer, counts, x)

    def unrolled(self, layers):
        for name, words, options, blocks in layers:
            if name == "repeat":
                for _ in range(int(words[0])):
                    yield from self.unrolled(blocks[0])
            else:
                yield name, words, options, blocks

    def append(self, layer, counts, x):
        name, _, options, _ = layer
        counts[name] = counts.get(name, 0) + 1
        label = options.get("name", f"{name}{counts[name]}")
        module = make_layer(layer, x, self.taps)
        self.add_module(label, module)
        self.order.append(label)
        with torch.no_grad():
            x = module.eval()(x)  # training would move running moments
        module.train()
        return x

    def forward(self, x):
        for label in self.order:
            x = getattr(self, label)(x)
        return x


class Residual(Layers):
    def __init__(self, blocks, x):
        super().__init__(blocks[0], x)
        if len(blocks) > 1:
            self.shortcut = Layers(blocks[1], x)

    def forward(self, x):
        shortcut = self.shortcut(x) if "shortcut" in self._modules else x
        return super().forward(x) + shortcut


class Save(nn.Module):
    """save TAP: keeps its input in `taps`, which the layers of a list share. No layer behind it may work in place."""

    def __init__(self, taps, name):
        super().__init__()
        self.taps, self.name = taps, name

    def forward(self, x):
        self.taps[self.name] = x
        return x


class Join(nn.Module):
    """concat TAP, add TAP"""

    def __init__(self, taps, name, join):
        super().__init__()
        self.taps, self.name, self.join = taps, name, join

    def forward(self, x):
        return self.join(x, self.taps[self.name])


class Flatten(nn.Module):
    def forward(self, x):
        return x.movedim(1, -1).flatten(1)


class GlobalPool(nn.Module):
    def forward(self, x):
        return x.mean(tuple(range(2, x.dim())))


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.movedim(1, -1)).movedim(-1, 1)


def padding(text, kernel):
    if text == "valid":
        return 0
    if text != "same":
        return sizes(text)
    if any(k % 2 == 0 for k in kernel):
        raise ValueError("pad=same with an even kernel is not the same in PyTorch")
    return tuple(k // 2 for k in kernel)


def make_window(name, words, options, x):
    spatial = x.dim() - 2
    kernel = sizes(words[-1])
    kernel = kernel * spatial if len(kernel) == 1 else kernel
    pad = padding(options.get("pad", "valid"), kernel)
    if name == "convtranspose":
        return (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[spatial - 1](
            x.shape[1], int(words[0]), kernel, sizes(options.get("stride", "1")), pad, sizes(options.get("outpad", "0")),
            bias=options.get("bias", "yes") == "yes")
    if name == "conv":
        return (nn.Conv1d, nn.Conv2d, nn.Conv3d)[spatial - 1](
            x.shape[1], int(words[0]), kernel, sizes(options.get("stride", "1")), pad, sizes(options.get("dilation", "1")),
            int(options.get("groups", 1)), options.get("bias", "yes") == "yes")
    stride = sizes(options["stride"]) if "stride" in options else kernel
    if name == "maxpool":
        return (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)[spatial - 1](kernel, stride, pad)
    return (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)[spatial - 1](kernel, stride, pad, count_include_pad=False)


def make_upsample(words, options, spatial):
    mode = options.get("mode", "nearest")
    if mode == "linear":
        mode = ("linear", "bilinear", "trilinear")[spatial - 1]
    factor = sizes(words[0])
    return nn.Upsample(scale_factor=factor * spatial if len(factor) == 1 else factor, mode=mode)


def make_layer(layer, x, taps):
    name, words, options, blocks = layer
    if name in ("conv", "convtranspose", "maxpool", "avgpool"):
        return make_window(name, words, options, x)
    if name == "batchnorm":
        cls = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[x.dim()]
        module = cls(x.shape[1], float(options.get("eps", 1e-5)), float(options.get("momentum", 0.1)))
        if options.get("init") == "zero":
            nn.init.zeros_(module.weight)
        return module
    simple = {
        "linear": lambda: nn.Linear(x.shape[1], int(words[0]), options.get("bias", "yes") == "yes"),
        "layernorm": lambda: (nn.LayerNorm if x.dim() == 2 else ChannelNorm)(x.shape[1], float(options.get("eps", 1e-5))),
        "groupnorm": lambda: nn.GroupNorm(int(words[0]), x.shape[1], float(options.get("eps", 1e-5))),
        "relu": lambda: nn.ReLU(inplace=not taps),
        "leakyrelu": lambda: nn.LeakyReLU(float(words[0]) if words else 0.01),
        "upsample": lambda: make_upsample(words, options, x.dim() - 2),
        "save": lambda: Save(taps, words[0]),
        "concat": lambda: Join(taps, words[0], lambda a, b: torch.cat((a, b), 1)),
        "add": lambda: Join(taps, words[0], torch.add),
        "gelu": nn.GELU,
        "silu": nn.SiLU,
        "sigmoid": nn.Sigmoid,
        "tanh": nn.Tanh,
        "dropout": lambda: nn.Dropout(float(words[0])),
        "flatten": Flatten,
        "globalpool": GlobalPool,
        "residual": lambda: Residual(blocks, x),
    }
    if name not in simple:
        raise ValueError(f"layer '{name}' is not known here")
    return simple[name]()


# -- model, loss, optimizer ---------------------------------------------------------------------------------------------------


def make_model(layers, sample):
    """sample: a sample's shape as the program has it, (S..., C) or (F)."""
    return Layers(parse_layers(layers), torch.zeros(1, *channels_first(sample)))


def channels_first(sample):
    return sample if len(sample) == 1 else (sample[-1], *sample[:-1])


def dice_losses(output, y):
    """1 - the mean Dice coefficient of all classes, of each sample: as MONAI's DiceLoss(softmax=True, to_onehot_y=True)."""
    counts = (y >= 0).unsqueeze(1)
    found = output.softmax(1) * counts
    truth = F.one_hot(y.clamp(min=0), output.shape[1]).movedim(-1, 1) * counts
    both, size = (found * truth).flatten(2).sum(2), (found + truth).flatten(2).sum(2)
    return 1 - ((2 * both + 1e-5) / (size + 1e-5)).mean(1)


def make_loss(config, classes):
    """Of labels of samples or of positions, which all count, or of numbers."""
    smoothing, loss = float(config.get("model.label_smoothing", 0)), config.get("model.loss")
    if classes == 0:
        return F.mse_loss
    cross = lambda output, y: F.cross_entropy(output, y, label_smoothing=smoothing)
    if loss not in ("dice", "dice_ce"):
        return cross
    return lambda output, y: dice_losses(output, y).mean() + (cross(output, y) if loss == "dice_ce" else 0)


def make_optimizer(config, parameters, fused):
    """Decay goes to matrices and kernels only, as in the program."""
    get = lambda key, fallback: float(config.get("optimizer." + key, fallback))
    parameters = list(parameters)
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": get("weight_decay", 0)},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    kind = config.get("optimizer.type", "adamw")
    if kind == "sgd":
        return torch.optim.SGD(groups, lr=get("lr", 0.001), momentum=get("momentum", 0.9),
                               nesterov=config.get("optimizer.nesterov", "no") == "yes", fused=fused)
    cls = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind]
    return cls(groups, lr=get("lr", 0.001), betas=(get("beta1", 0.9), get("beta2", 0.999)), eps=get("eps", 1e-8), fused=fused)
