#!/usr/bin/env python3
"""learning_curve.py BUILD CONFIG.ini TOKENS.h5 FOLDER [--plot FILE.svg] [key=value ...]: a run of the model gpt beside the same run in PyTorch.

Both begin with the same weights and take the same windows in the same order, with the same learning rate in each step. The program runs on one
rank; its weights before the first step are those of a run with the learning rate 0. The order comes from BUILD/tools/bench.d/windows
(`make bench k=none` builds it). FOLDER gets the runs and curve.tsv: step, training and validation loss of both. The plot needs gnuplot.
"""
import argparse
import json
import os
import subprocess
import sys
import time

import numpy
import torch
from safetensors.torch import load_file

import torch_gpt
import torch_model


def parse_arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    for name in ("build", "config", "tokens", "folder"):
        parser.add_argument(name)
    parser.add_argument("assignments", nargs="*")
    parser.add_argument("--plot", default="")
    return parser.parse_intermixed_args()


class Runs:
    def __init__(self, arguments):
        self.arguments = arguments
        self.data = [f"data.train={arguments.tokens}:/train", f"data.valid={arguments.tokens}:/valid"]

    def folder(self, name):
        return os.path.join(self.arguments.folder, name)

    def train(self, name, *more):
        a = self.arguments
        if os.path.exists(self.folder(name + "/summary.json")):
            return  # it has been made
        subprocess.run([a.build + "/trainer", a.config, *self.data, *a.assignments, "run.dir=" + self.folder(name), *more], check=True,
                       stdout=subprocess.DEVNULL)

    def start(self):
        """Name -> tensor."""
        self.train("start", "train.steps=1", "train.valid_every=0", "optimizer.lr=0", "schedule.warmup=0", "log.every=1")
        return load_file(self.folder("start/checkpoints/latest/model.safetensors"))

    def ours(self):
        """[(step, lr, loss)] and {step: validation loss}."""
        self.train("ours", "log.every=1")
        lines = [json.loads(line) for line in open(self.folder("ours/metrics.jsonl"))]
        return ([(l["step"], l["lr"], l["loss"]) for l in lines if "loss" in l],
                {l["step"]: l["valid_loss"] for l in lines if "valid_loss" in l})

    def windows(self, config, steps):
        """x and y of the training windows (steps, B, T) and of those for validation (N, T)."""
        batch, context = int(config["data.batch_size"]), int(config["model.context"])
        raw = subprocess.run([self.arguments.build + "/tools/bench.d/windows", str(context), config["train.seed"], str(steps * batch), *self.data,
                              f"data.batch_size={batch}"], check=True, stdout=subprocess.PIPE).stdout
        all_of_it = torch.from_numpy(numpy.frombuffer(raw, numpy.int32).reshape(-1, 2, context).astype(numpy.int64))
        train = all_of_it[:steps * batch].view(steps, batch, 2, context)
        valid = all_of_it[steps * batch:]
        return train[:, :, 0], train[:, :, 1], valid[:, 0], valid[:, 1]


def validate(model, x, y):
    with torch.no_grad():
        total = sum(torch_gpt.losses(model.eval()(x[i:i + 64]), y[i:i + 64]).sum().item() for i in range(0, len(x), 64))
    model.train()
    return total / (y >= 0).sum().item()


def train_pytorch(config, start, steps, x, y, valid_x, valid_y):
    """[loss], {step: validation loss}."""
    config["model.vocab_size"] = str(start["transformer.wte.weight"].shape[0])
    model = torch_gpt.from_config(config)
    model.load_state_dict({name: tensor for name, tensor in start.items() if name != "lm_head.weight"})
    optimizer = torch_model.make_optimizer(config, model.parameters(), fused=True)
    clip, every, losses, valid = float(config["optimizer.clip_norm"]), int(config["train.valid_every"]), [], {}
    for i, (step, lr, _) in enumerate(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.zero_grad(set_to_none=True)
        loss = torch_gpt.losses(model(x[i]), y[i]).sum() / (y[i] >= 0).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
        if step % every == 0 or i + 1 == len(steps):
            valid[step] = validate(model, valid_x, valid_y)
            print(f"PyTorch: step {step}, validation loss {valid[step]:.4f}", file=sys.stderr)
    return losses, valid


PLOT = """set terminal svg size 800,480 font 'sans,13'
set output '{output}'
set datafile missing 'nan'
set xlabel 'step'
set ylabel 'loss per token'
set grid
plot '{table}' using 1:2 with lines lc rgb '#9ecae1' title 'trainer, training', \\
     '' using 1:3 with lines lc rgb '#fdae6b' dt 2 title 'PyTorch, training', \\
     '' using 1:4 with linespoints lc rgb '#08519c' pt 7 title 'trainer, validation', \\
     '' using 1:5 with points lc rgb '#e6550d' pt 6 ps 1.6 title 'PyTorch, validation'
"""


def main():
    arguments = parse_arguments()
    os.makedirs(arguments.folder, exist_ok=True)
    runs = Runs(arguments)
    start = runs.start()
    steps, our_valid = runs.ours()
    config = torch_model.read_config(runs.folder("ours/config.ini"))
    began = time.perf_counter()
    losses, valid = train_pytorch(config, start, steps, *runs.windows(config, len(steps)))
    print(f"PyTorch took {time.perf_counter() - began:.0f} s with {torch.get_num_threads()} threads", file=sys.stderr)
    table = runs.folder("curve.tsv")
    with open(table, "w") as file:
        print("# step\ttrainer\tPyTorch\ttrainer valid\tPyTorch valid", file=file)
        for (step, _, ours), theirs in zip(steps, losses):
            print(step, ours, theirs, our_valid.get(step, "nan"), valid.get(step, "nan"), sep="\t", file=file)
    for step in sorted(valid):
        print(f"step {step}: validation loss {our_valid[step]:.4f}, PyTorch {valid[step]:.4f}")
    if arguments.plot:
        subprocess.run(["gnuplot"], input=PLOT.format(output=arguments.plot, table=table).encode(), check=True)


if __name__ == "__main__":
    main()
