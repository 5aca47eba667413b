#!/usr/bin/env python3
"""compare_pytorch.py CONFIG.ini [key=value ...] [options]: times the training step of a configuration of ours in PyTorch, on the CPU.

The same layers, loss, optimizer and batch; made-up data in memory, already normalised and in the layout of the variant, no augmentation and no
accuracy: what costs PyTorch time and could be left out is left out. Variants: eager and torch.compile, each with images channels first and
channels last; the fused optimizer; with ranks DistributedDataParallel over gloo (gradients as bucket views, no broadcast of buffers).
A model of type gpt has scaled_dot_product_attention and tokens of Zipf's law, as data.format = synthetic_tokens has.
A rank takes batch_size / ranks samples and is bound to `threads` cores of its own. The best variant counts.

  --ranks N      processes (1)                 --threads N   threads of each (all cores / ranks)
  --steps N      timed steps a variant and round (20), after 3 that are not
  --rounds N     rounds over all variants (3); after the first only those within a quarter of the best go on
  --precision P  fp32, or bf16: autocast       --variants L  of those named in the list: eager,compile
  --texts N      instead of training, continues N texts by one token a step, with cached keys and values (model gpt, one rank; --precision bf16:
                 weights in bf16). "samples" are then tokens
  --losses PATH  instead of timing, compares the losses of --steps steps with those of the program PATH, in fp32 from the same weights and on the
                 samples of data.train in the order of the file, with SGD and without a schedule; exit code 1 if one differs by more than 1e-4.
                 Needs h5py and safetensors
  --serve        prints a line when it is ready, then runs a round for every line on standard input, so that rounds can alternate with somebody
                 else's: between them it computes nothing

Prints a line for readers on standard error and one JSON line (--serve: one after every round) on standard output. Exit code 77 and a line where
PyTorch is absent.
"""
import argparse
import contextlib
import datetime
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

RANK = int(os.environ.get("COMPARE_PYTORCH_RANK", 0))
warnings.simplefilter("ignore", FutureWarning)  # names that PyTorch renames are right for older ones too


def parse_arguments():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("config")
    parser.add_argument("assignments", nargs="*")
    for name, kind, default in (("ranks", int, 1), ("threads", int, 0), ("steps", int, 20), ("rounds", int, 3), ("precision", str, "fp32"),
                                ("variants", str, "eager,compile"), ("texts", int, 0), ("losses", str, "")):
        parser.add_argument("--" + name, type=kind, default=default)
    parser.add_argument("--serve", action="store_true")
    return parser.parse_intermixed_args()


def bind(arguments):
    """Cores of its own for this rank: before PyTorch is loaded, whose thread pool looks at them once."""
    cores = sorted(os.sched_getaffinity(0))
    threads = arguments.threads or max(1, len(cores) // arguments.ranks)
    mine = cores[RANK * threads:(RANK + 1) * threads]
    if len(mine) == threads:
        os.sched_setaffinity(0, mine)
    elif RANK == 0:
        print(f"compare_pytorch: {arguments.ranks} x {threads} threads share {len(cores)} cores: not bound", file=sys.stderr)
    os.environ["OMP_NUM_THREADS"] = str(threads)
    return threads, cores


arguments = parse_arguments()
threads, cores = bind(arguments)
try:
    import torch
except ImportError:
    print("compare_pytorch: skipped: PyTorch is not installed (python3 -m pip install torch)", file=sys.stderr)
    sys.exit(77)
import torch.distributed as dist
import torch_gpt
import torch_model


def start_ranks(folder):
    """Starts the other ranks, which are this script again, and joins them."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = os.path.join(folder, "store") if folder else os.environ["COMPARE_PYTORCH_STORE"]
    others = []
    for rank in range(1, arguments.ranks if RANK == 0 else 0):
        environment = dict(os.environ, COMPARE_PYTORCH_RANK=str(rank), COMPARE_PYTORCH_STORE=store)
        others.append(subprocess.Popen([sys.executable, *sys.argv], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       preexec_fn=lambda: os.sched_setaffinity(0, cores)))
    if arguments.ranks > 1:
        dist.init_process_group("gloo", init_method="file://" + store, rank=RANK, world_size=arguments.ranks,
                                timeout=datetime.timedelta(minutes=10))
    return others


# -- variants -----------------------------------------------------------------------------------------------------------------


def make_gpt(config, batch):
    model = torch_gpt.from_config(config)
    vocab_size, context = model.transformer.wte.num_embeddings, model.transformer.wpe.num_embeddings
    tokens = torch_gpt.zipf_tokens(vocab_size, batch, context + 1)
    return model, tokens[:, :-1], tokens[:, 1:], lambda logits, labels: torch_gpt.losses(logits, labels).mean()


def make_layers(config, batch):
    sample = torch_model.sizes(config.get("data.synthetic_shape", "28x28x1"))
    classes = int(config.get("data.classes", 10))
    model = torch_model.make_model(config["model.layers"], sample)
    x = torch.randn(batch, *torch_model.channels_first(sample))
    with torch.no_grad():
        width = model.eval()(x[:1]).shape[1]
    model.train()
    points = sample[:-1] if config.get("data.targets") == "position" else ()
    y = torch.randint(classes, (batch, *points)) if classes else torch.randn(batch, width, *points)
    return model, x, y, torch_model.make_loss(config, classes)


class Variant:
    """The training step."""

    def __init__(self, config, batch, compiled, channels_last):
        self.name = ("compile" if compiled else "eager") + {None: "", True: ", channels last", False: ", channels first"}[channels_last]
        self.seconds, self.failure = [], None
        torch.manual_seed(1)
        make = make_gpt if is_gpt(config) else make_layers
        model, self.x, self.y, self.loss_of = make(config, batch)
        if channels_last:
            layout = torch.channels_last if self.x.dim() == 4 else torch.channels_last_3d
            model, self.x = model.to(memory_format=layout), self.x.to(memory_format=layout)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.optimizer = torch_model.make_optimizer(config, model.parameters(), fused=True)
        if arguments.ranks > 1:
            model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)
        self.model = torch.compile(model) if compiled else model

    def step(self):
        bf16 = torch.autocast("cpu", torch.bfloat16) if arguments.precision == "bf16" else contextlib.nullcontext()
        self.optimizer.zero_grad(set_to_none=True)
        with bf16:
            loss = self.loss_of(self.model(self.x), self.y)
        loss.backward()
        self.optimizer.step()

    def time(self, steps):
        for i in range(-3, steps):
            start = time.perf_counter()
            self.step()
            if i >= 0:
                self.seconds.append(time.perf_counter() - start)


class Texts(Variant):
    """Texts of 16 to 31 tokens, continued greedily, as `bench generate` does."""
    FIRST, LAST = 16, 31

    def __init__(self, config, texts, compiled):
        self.name, self.seconds, self.failure, self.position = "compile" if compiled else "eager", [], None, self.FIRST
        torch.manual_seed(1)
        model = torch_gpt.from_config(config).eval().to(torch.bfloat16 if arguments.precision == "bf16" else torch.float32)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.cache, self.ids = model.make_cache(texts, self.LAST), torch.zeros(texts, 1, dtype=torch.long)
        self.decode = torch.compile(model.decode) if compiled else model.decode

    def step(self):
        with torch.no_grad():
            self.ids = self.decode(self.ids, torch.tensor([self.position]), self.cache).argmax(1, keepdim=True)
        self.position = self.position + 1 if self.position + 1 < self.LAST else self.FIRST


def is_gpt(config):
    return config.get("model.type") == "gpt"


def samples_of_step(config):
    return arguments.texts or int(config.get("data.batch_size", 128))


def make_variants(config):
    kinds = [compiled for compiled in (False, True) if ("compile" if compiled else "eager") in arguments.variants.split(",")]
    if arguments.texts:
        return [Texts(config, arguments.texts, compiled) for compiled in kinds]
    layouts = (False, True) if "conv" in config.get("model.layers", "") else (None,)
    return [Variant(config, samples_of_step(config) // arguments.ranks, compiled, layout) for compiled in kinds for layout in layouts]


# -- rounds --------------------------------------------------------------------------------------------------------------------


def agreed(flag):
    """Whether the flag is set on some rank."""
    if arguments.ranks == 1:
        return flag
    tensor = torch.tensor(int(flag))
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return bool(tensor.item())


def run_round(variants):
    for variant in [v for v in variants if v.failure is None]:
        failure = None
        try:
            variant.time(arguments.steps)
        except Exception as error:  # most often: no C++ compiler for torch.compile
            failure = (str(error).strip() or repr(error)).splitlines()[0][:200]
        if agreed(failure is not None):
            variant.failure = failure or "failed on another rank"
    alive = [v for v in variants if v.failure is None]
    best = min((min(v.seconds) for v in alive), default=0)
    for variant in alive:
        if agreed(RANK == 0 and min(variant.seconds) > 1.25 * best):
            variant.failure = ""


def result(config, variants):
    timed = [v for v in variants if v.seconds]
    if not timed:
        sys.exit("compare_pytorch: no variant ran: " + "; ".join(f"{v.name}: {v.failure}" for v in variants))
    best = min(timed, key=lambda v: min(v.seconds))
    batch, median = samples_of_step(config), statistics.median(best.seconds)
    return {
        "peer": "PyTorch " + torch.__version__, "config": arguments.config, "ranks": arguments.ranks, "threads": threads, "batch_size": batch,
        "precision": arguments.precision, "parameters": best.parameters, "variant": best.name, "steps": len(best.seconds),
        "step_sec_best": min(best.seconds), "step_sec_median": median, "samples_per_sec_best": batch / min(best.seconds),
        "samples_per_sec_median": batch / median,
        "variants": {v.name: {"step_sec_best": min(v.seconds), "step_sec_median": statistics.median(v.seconds)} for v in timed},
        "failed": {v.name: v.failure for v in variants if v.failure},
    }


def rounds(config, variants):
    """Rank 0 says when another round begins: to the end of its input, or of --rounds."""
    count = 0
    if arguments.serve and not agreed(False) and RANK == 0:
        print("ready", flush=True)  # every rank has loaded PyTorch and made its models
    while True:
        go = RANK == 0 and (bool(sys.stdin.readline()) if arguments.serve else count < arguments.rounds)
        if not agreed(go):
            return
        run_round(variants)
        count += 1
        if RANK == 0 and arguments.serve:
            print(json.dumps(result(config, variants)), flush=True)


# -- losses --------------------------------------------------------------------------------------------------------------------

# Adam makes a step of full size of a gradient that is only a rounding error, so that its losses differ after a few steps in any two programs.
SGD = ["optimizer.type=sgd", "optimizer.lr=0.02", "optimizer.momentum=0.9", "optimizer.weight_decay=0"]


def our_losses(folder, batch):
    """The losses of the program, and the checkpoint from which both sides begin."""
    fixed = ["precision=fp32", f"threads={threads}", "schedule.type=constant", "schedule.warmup=0", "data.shuffle=0", f"data.micro_batch={batch}",
             "train.valid_every=0", "log.every=1", "checkpoint.best_by=valid_loss", *SGD]

    def train(name, steps, *assignments):
        subprocess.run([arguments.losses, arguments.config, *arguments.assignments, *fixed, f"run.dir={folder}/{name}", f"train.steps={steps}",
                        *assignments], check=True, stdout=subprocess.DEVNULL)

    start = os.path.join(folder, "start.safetensors")
    train("first", 1, "optimizer.lr=0", "optimizer.weight_decay=0")
    subprocess.run([arguments.losses, "export", f"{folder}/first", start, "--layout", "torch"], check=True, stdout=subprocess.DEVNULL)
    train("second", arguments.steps, f"model.init={start}")
    with open(f"{folder}/second/metrics.jsonl") as file:
        records = [json.loads(line) for line in file]
    with open(f"{folder}/first/checkpoints/latest/state.json") as file:
        return start, json.load(file)["data"], [r["loss"] for r in records if r.get("kind", "train") == "train" and "loss" in r]


def their_losses(config, batch, start, data):
    import h5py
    from safetensors.torch import load_file
    path, _, group = config["data.train"].partition(":")
    with h5py.File(path) as file:
        rows = [i % len(file[group or "train"]["y"]) for i in range(arguments.steps * batch)]
        x, y = (torch.stack([torch.as_tensor(file[group or "train"][name][i]) for i in rows]) for name in "xy")
    mean, std = (torch.tensor([float(number) for number in data[key].split(",")]) for key in ("mean", "std"))
    x = ((x.float() - mean) / std).movedim(-1, 1)
    model = torch_model.make_model(config["model.layers"], (*x.shape[2:], x.shape[1]))
    model.load_state_dict(load_file(start))
    loss_of, losses = torch_model.make_loss(config, data["classes"]), []
    optimizer = torch_model.make_optimizer(config, model.parameters(), fused=False)
    for step in range(arguments.steps):
        of_step = slice(step * batch, (step + 1) * batch)
        optimizer.zero_grad()
        loss = loss_of(model(x[of_step]), y[of_step].long() if data["classes"] else y[of_step])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compare_losses(config, folder):
    batch = samples_of_step(config)
    start, data, ours = our_losses(folder, batch)
    theirs = their_losses(config, batch, start, data)
    largest = max(abs(a - b) for a, b in zip(ours, theirs))
    for step, (a, b) in enumerate(zip(ours, theirs), 1):
        print(f"step {step:3}  ours {a:.6f}  PyTorch {b:.6f}  difference {a - b:+.1e}")
    print(f"{os.path.basename(arguments.config)}: largest difference {largest:.1e} in {len(ours)} steps")
    return len(ours) == len(theirs) == arguments.steps and largest <= 1e-4


def main():
    config = torch_model.read_config(arguments.config, arguments.assignments)
    if arguments.losses:
        torch.set_num_threads(threads)
        config |= dict(assignment.split("=") for assignment in SGD)
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(0 if compare_losses(config, folder) else 1)
    folder = tempfile.mkdtemp() if RANK == 0 else None
    others = []
    try:
        others = start_ranks(folder)
        torch.set_num_threads(threads)
        variants = make_variants(config)
        rounds(config, variants)
        if RANK == 0 and not arguments.serve:
            r = result(config, variants)
            print(f"{r['peer']}, {os.path.basename(arguments.config)}, {r['ranks']} x {threads} threads, {r['precision']}, batch {r['batch_size']}: "
                  f"best {r['samples_per_sec_best']:.1f}, median {r['samples_per_sec_median']:.1f} samples/s ({r['variant']})", file=sys.stderr)
            print(json.dumps(r))
        if arguments.ranks > 1:
            dist.destroy_process_group()
    finally:
        for other in others:
            try:
                other.wait(10 if sys.exc_info()[0] is None else 0)
            except subprocess.TimeoutExpired:
                other.kill()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
