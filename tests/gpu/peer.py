#!/usr/bin/env python3
"""peer.py CONFIG.ini [key=value ...] [options]: the training step of a configuration of ours in PyTorch at its best, on one GPU.

Variants: eager; torch.compile; torch.compile with CUDA graphs; max-autotune; the whole step in one CUDA graph. GPTs with flash attention and
with cuDNN's, and with a vocabulary rounded up to a multiple of 128. Images are channels last, the optimizer is fused; bf16 and fp16 by
autocast, fp16 with a gradient scaler; fp32 without TF32. Data is in the GPU's memory; no augmentation, accuracy or clipping of gradients:
what costs PyTorch time and could be left out is left out. The best variant counts.

  --precision P    fp32, tf32, bf16 or fp16      --steps N     timed steps, in five blocks without waits in between; the median block
  --budget S       seconds; variants that no longer fit are named in "skipped"       --dry   eager on the CPU
  --only TEXT      the variants whose name begins with TEXT

Prints a JSON line after each variant: the last one has them all. Exit code 77 where PyTorch is absent.
"""
import argparse
import contextlib
import json
import os
import statistics
import sys
import time

parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("config")
parser.add_argument("assignments", nargs="*")
parser.add_argument("--precision", default="fp32")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--budget", type=float, default=120)
parser.add_argument("--only", default="")
parser.add_argument("--dry", action="store_true")
arguments = parser.parse_intermixed_args()
began = time.time()
try:
    import torch
except ImportError:
    print("peer: PyTorch is not installed", file=sys.stderr)
    sys.exit(77)
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import torch_gpt
import torch_model

DEVICE = "cpu" if arguments.dry else "cuda"
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
FLASH, CUDNN = torch.nn.attention.SDPBackend.FLASH_ATTENTION, torch.nn.attention.SDPBackend.CUDNN_ATTENTION
WARM = 8


def sync():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def autocast(cache=True):
    if arguments.precision in TYPES:
        return torch.autocast(DEVICE, TYPES[arguments.precision], cache_enabled=cache)
    return contextlib.nullcontext()


def make_gpt(get):
    vocab, batch, context = int(get("model.vocab_size", 50257)), int(get("data.batch_size", 8)), int(get("model.context", 1024))
    model = torch_gpt.GPT(int(get("model.n_layer", 12)), int(get("model.n_head", 12)), int(get("model.n_embd", 768)), context,
                          (vocab + 127) // 128 * 128, float(get("model.dropout", 0)), get("model.bias", "yes") == "yes")
    x, y = (torch.randint(vocab, (batch, context), device=DEVICE) for _ in range(2))
    return model.to(DEVICE), x, lambda out: torch.nn.functional.cross_entropy(out.flatten(0, 1), y.flatten())


def make_images(config, get):
    sample = torch_model.sizes(get("data.synthetic_shape", "28x28x1"))
    classes, batch = int(get("data.classes", 10)), int(get("data.batch_size", 128))
    model = torch_model.make_model(config["model.layers"], sample).to(DEVICE)
    x = torch.randn(batch, *torch_model.channels_first(sample), device=DEVICE)
    if x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    y, loss = torch.randint(classes, (batch,), device=DEVICE), torch_model.make_loss(config, classes)
    return model, x, lambda out: loss(out.float(), y)


def make_step(config, variant):
    get = config.get
    torch.manual_seed(1)
    model, x, loss_of = make_gpt(get) if get("model.type") == "gpt" else make_images(config, get)
    optimizer = torch_model.make_optimizer(config, model.parameters(), fused=True)
    scaler = torch.amp.GradScaler(DEVICE) if arguments.precision == "fp16" else None
    whole = variant == "whole step in a graph"
    mode = {"compile": None, "compile, graphs": "reduce-overhead", "max-autotune": "max-autotune", "compile, cuDNN attention": None,
            "graphs, cuDNN attention": "reduce-overhead"}
    forward = torch.compile(model, mode=mode[variant]) if variant in mode else model
    attention = [CUDNN if "cuDNN" in variant else FLASH, torch.nn.attention.SDPBackend.MATH]

    def step():
        with torch.nn.attention.sdpa_kernel(attention, set_priority=True), autocast(cache=not whole):
            loss = loss_of(forward(x))
        optimizer.zero_grad(set_to_none=not whole)
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()

    return capture(step, optimizer) if whole else step


def capture(step, optimizer):
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = True
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def time_step(step):
    first = time.time()
    step()
    sync()
    first = time.time() - first
    for _ in range(1 if arguments.dry else WARM):
        step()
    blocks, count = [], max(1, arguments.steps // 5)
    for _ in range(5):
        sync()
        start = time.perf_counter()
        for _ in range(count):
            step()
        sync()
        blocks.append((time.perf_counter() - start) / count)
    return first, statistics.median(blocks)


def variants(config):
    if arguments.dry:
        return ["eager"]
    names = ["eager", "compile", "compile, graphs", "max-autotune"]
    if config.get("model.type") == "gpt":
        return ["compile, cuDNN attention", "graphs, cuDNN attention", "compile", "eager", "max-autotune"]
    return ["whole step in a graph"] * (arguments.precision != "fp16") + names


def main():
    config = torch_model.read_config(arguments.config, arguments.assignments)
    tf32 = arguments.precision != "fp32"
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = tf32, True
    timed, failed, skipped = {}, {}, []
    for name in filter(lambda name: name.startswith(arguments.only), variants(config)):
        if time.time() - began > arguments.budget:
            skipped.append(name)
            continue
        try:
            torch._dynamo.reset()
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            first, sec = time_step(make_step(config, name))
            timed[name] = {"step_sec": sec, "first_step_sec": first, "peak_bytes": torch.cuda.max_memory_allocated() if DEVICE == "cuda" else 0}
        except Exception as error:  # a variant that this GPU or this version cannot do
            failed[name] = (str(error).splitlines() or [type(error).__name__])[0][:200]
        report(config, timed, failed, skipped)
    if not timed:
        sys.exit("peer: no variant ran: " + "; ".join(f"{k}: {v}" for k, v in failed.items()))
    report(config, timed, failed, skipped)


def report(config, timed, failed, skipped):
    if not timed:
        return
    best = min(timed, key=lambda name: timed[name]["step_sec"])
    samples = int(config.get("data.batch_size", 128)) * (int(config.get("model.context", 1024)) if config.get("model.type") == "gpt" else 1)
    print(json.dumps({"torch": torch.__version__, "precision": arguments.precision, "variant": best, "step_sec": timed[best]["step_sec"],
                      "rate": samples / timed[best]["step_sec"], "variants": timed, "failed_variants": failed, "skipped": skipped}), flush=True)


if __name__ == "__main__":
    main()
