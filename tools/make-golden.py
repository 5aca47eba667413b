#!/usr/bin/env python3
"""make-golden.py [FOLDER]: writes the golden files that tests/unit/model/test_golden.c compares the program with.

One safetensors file a model: in PyTorch on the CPU, in double precision (rounded to float32 at the end) from float32 weights and inputs,
    metadata   layers, loss, classes, and settings of the optimizers, as the program takes them
    x, y       the inputs: x (B, S..., C), y labels (B) i32 or targets (B, F); of positions, labels (B, S...) with -1 for none,
               or targets (B, S..., K) with NaN for none
    loss       of each term at the first weights: (B), or of positions; those that do not count are 0
    param.*    the weights at the start, in the program's names and layout: convolutions (K, kernel..., C)
    grad.*     gradients of the mean loss at these weights, over the `terms` (metadata) that count
    sgd.*, adamw.*                the weights after three steps
    sgd.state.*                   running moments after them
    sgd.losses, adamw.losses      (3) mean losses of the three steps
Kept in the repository: run it again only to add a model; a changed file wants a reason.
"""
import json
import os
import struct
import sys

try:
    import torch
except ImportError:
    print("make-golden: skipped: PyTorch is not installed (python3 -m pip install torch)")
    sys.exit(77)
import torch_gpt
import torch_model
from torch.nn import functional as F

STEPS = 3
OPTIMIZERS = {
    "sgd": {"optimizer.type": "sgd", "optimizer.lr": "0.05", "optimizer.momentum": "0.9", "optimizer.nesterov": "yes",
            "optimizer.weight_decay": "0.01"},
    "adamw": {"optimizer.type": "adamw", "optimizer.lr": "0.01", "optimizer.weight_decay": "0.1", "optimizer.beta2": "0.99"},
}
MODELS = {
    "mlp": dict(layers="linear 16, relu, linear 12, tanh, linear 5", sample=(11,), batch=8, classes=5),
    "conv": dict(layers="conv 6 3x3 pad=same bias=no, batchnorm, relu, maxpool 2\n"
                        "conv 8 3 stride=2 pad=1 bias=no, batchnorm eps=1e-3 momentum=0.3, relu, avgpool 2, flatten, linear 4",
                 sample=(10, 9, 3), batch=6, classes=4, smoothing=0.1),
    "residual": dict(layers="conv 4 3 pad=same bias=no, batchnorm, relu\n"
                            "residual { conv 8 3x3 stride=2 pad=same bias=no, batchnorm, relu\n"
                            "           conv 8 3x3 pad=same bias=no, batchnorm }\n"
                            "         { conv 8 1x1 stride=2 bias=no, batchnorm }, relu\n"
                            "residual { conv 8 3 pad=same groups=2 bias=no, batchnorm }, relu, globalpool, linear 3",
                     sample=(8, 8, 2), batch=5, classes=3),
    "layernorm": dict(layers="linear 14, layernorm, gelu, residual { linear 14, gelu, linear 14 }, layernorm, sigmoid, linear 6",
                      sample=(9,), batch=7, classes=6),
    "groupnorm": dict(layers="conv 6 3 pad=same bias=no, groupnorm 3, relu, conv 8 3 stride=2 bias=no, groupnorm 8, leakyrelu\n"
                             "groupnorm 1 eps=1e-3, flatten, linear 6, groupnorm 2, relu, linear 3",
                      sample=(8, 7, 2), batch=5, classes=3),
    "volumes": dict(layers="conv 4 3x3x3 pad=same bias=no, batchnorm, relu, maxpool 2\n"
                           "conv 6 3x2x1 dilation=1x2x1, gelu, globalpool, linear 8, relu, linear 2",
                    sample=(7, 6, 5, 2), batch=4, classes=0, targets=2),
    "huber": dict(layers="linear 6, silu, linear 3", sample=(5,), batch=8, classes=0, targets=3,
                  settings={"model.loss": "huber", "model.huber_delta": "0.7"}),
    "multihot": dict(layers="linear 6, silu, linear 4", sample=(5,), batch=8, classes=0, targets=4, y="multihot",
                     settings={"model.loss": "binary_cross_entropy"}),
    "unet": dict(layers="conv 4 3 pad=same, leakyrelu 0.1, save a, maxpool 2\n"
                        "conv 6 3 pad=same, relu, save b, maxpool 2x1, conv 8 3 pad=same bias=no, batchnorm, relu\n"
                        "convtranspose 6 3x1 stride=2x1 pad=1x0 outpad=1x0, add b, relu\n"
                        "upsample 2 mode=linear, concat a, conv 5 3 pad=same, relu, convtranspose 3 2 stride=2, relu\n"
                        "upsample 2x1, avgpool 4, flatten, linear 3",
                 sample=(8, 6, 2), batch=5, classes=3),
    "weights": dict(layers="linear 6, tanh, linear 3", sample=(5,), batch=8, classes=3, settings={"model.class_weights": "0.5, 2, 1.25"}),
}

# A label or values for each position; some of them do not count.
UNET = "conv 4 3 pad=same, relu, save a, maxpool 2, conv 5 3 pad=same, relu, convtranspose 4 2 stride=2, concat a, conv %d 1"
MODELS |= {
    "dense": dict(layers=UNET % 3, sample=(6, 4, 2), batch=3, classes=3, smoothing=0.1, settings={"model.class_weights": "0.5, 2, 1.25"}),
    "dense_weights": dict(layers=UNET % 3, sample=(4, 6, 2), batch=3, classes=3, settings={"model.class_weights": "0.5, 2, 0"}),
    "dense_smoothing": dict(layers=UNET % 3, sample=(4, 2, 2, 2), batch=3, classes=3, smoothing=0.2),
    "dense_dice": dict(layers=UNET % 3, sample=(4, 2, 2, 2), batch=3, classes=3, settings={"model.loss": "dice"}),
    "dense_dice_ce": dict(layers=UNET % 4, sample=(12, 2), batch=4, classes=4, smoothing=0.2,
                          settings={"model.loss": "dice_ce", "model.class_weights": "0.5, 2, 1.25, 0"}),
    "dense_mse": dict(layers=UNET % 2, sample=(4, 6, 1), batch=3, classes=0, targets=2),
    "dense_mae": dict(layers=UNET % 2, sample=(4, 6, 1), batch=3, classes=0, targets=2, settings={"model.loss": "mae"}),
    "dense_huber": dict(layers=UNET % 1, sample=(8, 3), batch=3, classes=0, targets=1,
                        settings={"model.loss": "huber", "model.huber_delta": "0.7"}),
    "dense_bce": dict(layers=UNET % 2, sample=(2, 4, 2, 1), batch=3, classes=0, targets=2, y="multihot",
                      settings={"model.loss": "binary_cross_entropy"}),
}


def write_safetensors(path, tensors, metadata):
    header, data = {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        raw = (tensor if tensor.dtype == torch.int32 else tensor.float()).numpy().tobytes()
        header[name] = {"dtype": "I32" if tensor.dtype == torch.int32 else "F32", "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    return 8 + len(text) + len(data)


def channels_last(tensor):
    return tensor.movedim(1, -1) if tensor.dim() > 2 else tensor


def dense_losses(case, output, y):
    """The losses of the terms, and how many there are."""
    settings = case.get("settings", {})
    loss, weight = settings.get("model.loss"), settings.get("model.class_weights")
    if case["classes"]:
        weight = torch.tensor([float(w) for w in weight.split(",")]).double() if weight else None
        cross = F.cross_entropy(output, y, reduction="none", label_smoothing=0, weight=weight, ignore_index=-1)
        if smoothing := case.get("smoothing", 0):  # PyTorch weighs each class of the smoothed target; here a position has one weight
            cross = F.cross_entropy(output, y, reduction="none", label_smoothing=smoothing, ignore_index=-1)
            cross = cross * (weight[y.clamp(min=0)] if weight is not None else 1)
        counts = (y >= 0).flatten(1).sum(1)
        if loss in ("dice", "dice_ce"):
            dice = torch_model.dice_losses(output, y)
            return (dice + cross.flatten(1).sum(1) / counts if loss == "dice_ce" else dice), len(y)
        return cross.flatten(), int(counts.sum())
    output, counts = output.movedim(1, -1), ~y.isnan()
    y = y.nan_to_num()
    values = {"mae": F.l1_loss, "binary_cross_entropy": F.binary_cross_entropy_with_logits}.get(loss, F.mse_loss)
    values = F.huber_loss(output, y, reduction="none", delta=float(settings["model.huber_delta"])) if loss == "huber" else \
        values(output, y, reduction="none")
    return torch.where(counts, values, 0).flatten(), int(counts.sum())


def mean_loss(case, output, y):
    if is_dense(case):
        loss, terms = dense_losses(case, output, y)
        return loss.sum() / terms
    return losses_of(case, output, y).mean()


def is_dense(case):
    return "save" in case["layers"] and "flatten" not in case["layers"]


def dense_targets(case):
    shape = (case["batch"], *case["sample"][:-1])
    if case["classes"]:
        return torch.randint(-1, case["classes"], shape)
    y = torch.randn(*shape, case["targets"]).double()
    if case.get("y") == "multihot":
        y = (y > 0).double()
    return torch.where(torch.rand_like(y) < 0.2, float("nan"), y)


def losses_of(case, output, y):
    settings = case.get("settings", {})
    if settings.get("model.loss") == "huber":
        return F.huber_loss(output, y, reduction="none", delta=float(settings["model.huber_delta"])).mean(1)
    if settings.get("model.loss") == "binary_cross_entropy":
        return F.binary_cross_entropy_with_logits(output, y, reduction="none").mean(1)
    if case["classes"]:
        weight = settings.get("model.class_weights")
        weight = torch.tensor([float(w) for w in weight.split(",")]).double() if weight else None
        return F.cross_entropy(output, y, reduction="none", label_smoothing=case.get("smoothing", 0), weight=weight)
    return ((output - y) ** 2).mean(1)


def train(case, model, start, x, y, settings):
    """Three steps from `start`; the mean losses, weights and running moments."""
    model.load_state_dict(start)
    optimizer = torch_model.make_optimizer(settings, model.parameters(), fused=False)
    losses = []
    for _ in range(STEPS):
        loss = mean_loss(case, model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def make(name, case, folder):
    torch.manual_seed(20)
    model = torch_model.make_model(case["layers"], case["sample"])
    for parameter in model.parameters():  # norms and biases away from 1 and 0, so that every term counts
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.double()
    start = {key: value.clone() for key, value in model.state_dict().items()}
    x = torch.randn(case["batch"], *torch_model.channels_first(case["sample"])).double()
    y = (torch.arange(case["batch"]) * 7 + 1) % case["classes"] if case["classes"] else torch.randn(case["batch"], case["targets"]).double()
    if case.get("y") == "multihot":
        y = (y > 0).double()
    if is_dense(case):
        y = dense_targets(case)
    loss, terms = dense_losses(case, model(x), y) if is_dense(case) else (losses_of(case, model(x), y), case["batch"])
    (loss.sum() / terms).backward()
    tensors = {"x": channels_last(x), "y": y.int() if case["classes"] else y, "loss": loss}
    tensors |= {"param." + key: channels_last(start[key]) for key, _ in model.named_parameters()}
    tensors |= {"grad." + key: channels_last(value.grad) for key, value in model.named_parameters()}
    for kind, settings in OPTIMIZERS.items():
        tensors[kind + ".losses"] = train(case, model, start, x, y, settings)
        tensors |= {f"{kind}.{key}": channels_last(value.clone()) for key, value in model.named_parameters()}
        tensors |= {f"{kind}.state.{key}": value.clone() for key, value in model.named_buffers() if "running" in key}
    metadata = {"model.layers": case["layers"], "model.label_smoothing": str(case.get("smoothing", 0)), "classes": str(case["classes"]),
                "torch": torch.__version__} | ({"terms": str(terms)} if is_dense(case) else {})
    metadata |= case.get("settings", {})
    metadata |= {f"{kind}.{key}": value for kind, settings in OPTIMIZERS.items() for key, value in settings.items()}
    size = write_safetensors(os.path.join(folder, name + ".safetensors"), tensors, metadata)
    print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, {size} bytes")


def make_gpt(folder):
    """gpt.safetensors: x and y are tokens, some of the labels -1; logits; loss (B T); the mean is over the labels that count."""
    torch.manual_seed(20)
    sizes = dict(n_layer=2, n_head=3, n_embd=24, context=11, vocab_size=29)
    model = torch_gpt.GPT(**sizes)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    model.double()
    x, y = torch.randint(0, sizes["vocab_size"], (2, 3, sizes["context"]))
    y[0, 4] = y[2, 9:] = -1
    logits = model(x)
    loss = torch_gpt.losses(logits, y)
    (loss.sum() / (y >= 0).sum()).backward()
    tensors = {"x": x.int(), "y": y.int(), "logits": logits, "loss": loss}
    tensors |= {"param." + key: value for key, value in model.named_parameters()}
    tensors |= {"grad." + key: value.grad for key, value in model.named_parameters()}
    metadata = {"model." + key: str(value) for key, value in sizes.items()} | {"torch": torch.__version__}
    size = write_safetensors(os.path.join(folder, "gpt.safetensors"), tensors, metadata)
    print(f"gpt: {sum(p.numel() for p in model.parameters())} parameters, {size} bytes")


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "tests", "golden")
    os.makedirs(folder, exist_ok=True)
    for name, case in MODELS.items():
        make(name, case, folder)
    make_gpt(folder)


if __name__ == "__main__":
    main()
