#!/usr/bin/env bash
# TEST timeout=120
# trainer serve, predictions: those of `trainer predict` on 1,000 samples, as JSON and as .npy, alone and together, also
# with oneDNN's kernels for AVX2; images, and requests that are joined; names of classes; a regression; what is refused;
# and the paths that such a model does not have.
. "${TRAINER_ROOT:?is set by the runner: make test k=serve/predict}/tests/serve/serve.sh"
need_http
# Samples of three classes with names, and of a number.
python <<'END'
import random
r = random.Random(3)
with open("kinds.csv", "w") as kinds, open("sums.csv", "w") as sums:
    kinds.write("a,b,c,kind\n")
    sums.write("a,b,c,sum\n")
    for _ in range(1000):
        x = [round(r.gauss(0, 1), 3) for _ in range(3)]
        kind = "ant" if x[0] > 0.5 else "bee" if x[1] > 0 else "wasp é"
        kinds.write(",".join(map(str, x)) + "," + kind + "\n")
        sums.write(",".join(map(str, x)) + ",%.3f\n" % (100 + 10 * sum(x)))
END
cat >net.ini <<'INI'
threads = 1
[model]
layers = linear 8, relu, linear 3
[data]
batch_size = 64
valid_fraction = 0.1
[train]
steps = 300
[optimizer]
lr = 0.02
INI
made() { # DATA OUTPUTS
    local data=$1
    "$TRAINER" import csv "$data.csv" "$data.h5" >out 2>&1 &&
        "$TRAINER" net.ini data.train="$data.h5" run.dir="$data" \
            "model.layers=linear 8, relu, linear $2" >out 2>&1 &&
        "$TRAINER" predict "$data" "$data.h5:train" "$data.out.h5" threads=1 >out 2>&1 &&
        serve "$data.at" "$data" threads=1
}
made kinds 3 && made sums 1
ok $? "two models are trained, predict, and are served"
cat >compare.py <<'END'
import array, struct, sys
from client import *
def samples(name): return [[float(v) for v in l.split(",")[:3]] for l in open(name + ".csv").read().splitlines()[1:]]
def npy(rows, kind="<f4", order="False", shape=None):
    flat = [v for row in rows for v in row]
    body = struct.pack("<%d%s" % (len(flat), {"<f4": "f", "<f8": "d", "<i4": "i", "|u1": "B"}[kind]), *flat)
    head = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (kind, order, shape or (len(rows), len(rows[0])))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + body
def flat(rows): return [v for row in rows for v in row]
as_npy = {"Content-Type": "application/x-npy"}
def same(file, kind, rows, shape, sizes):
    """Requests of each number of samples give the bits of one with all; samples are flat."""
    def send(some):
        return ask("POST", "/predict", npy(some, kind, shape="(%d, %s)" % (len(some), shape)), as_npy, file=file)[1]
    whole = send(rows)["probability"]
    for n in sizes:
        for first in range(0, len(rows), max(n, len(rows) // 8)):
            got = send(rows[first:first + n])["probability"]
            assert got == whole[first:first + n], (file, n, first)
    return whole
END
python <<'END'
from compare import *
x, made = samples("kinds"), open("kinds.out.h5", "rb").read()
got = post("/predict", file="kinds.at", inputs=x)
assert len(got["prediction"]) == 1000 and len(set(got["prediction"])) == 3
assert struct.pack("<1000i", *got["prediction"]) in made and struct.pack("<3000f", *flat(got["probability"])) in made
names = sorted(set(got["class"]))
assert names == ["ant", "bee", "wasp é"] and all(got["class"][i] == names[p] for i, p in enumerate(got["prediction"]))
for kind in ("<f4", "<f8"):
    assert ask("POST", "/predict", npy(x, kind), as_npy, file="kinds.at")[1] == got, kind
one = post("/predict", file="kinds.at", inputs=x[5])
assert one["class"] == got["class"][5:6] and one["probability"] == got["probability"][5:6]
parts = together([lambda i=i: post("/predict", file="kinds.at", inputs=x[i::8])["probability"] for i in range(8)])
assert all(parts[i] == got["probability"][i::8] for i in range(8))
assert metric("predicted_samples_total", "kinds.at") == 4001
assert metric_of("request_success_total", '"stop"', "kinds.at") == 12
body = json.dumps({"inputs": x[5]})
assert ask("POST", "/predict", body, {"Content-Type": "Application/JSON; charset=utf-8"}, "kinds.at")[1] == one
END
ok $? "a classifier: the classes, names and probabilities of trainer predict, bit for bit; in parts, together, as .npy"
# Wide enough that the order of sums shows: 30 numbers a sample, 64 units; convolutions direct and by Winograd.
python <<'END'
import random
r = random.Random(4)
with open("wide.csv", "w") as wide:
    wide.write(",".join("x%d" % i for i in range(30)) + ",kind\n")
    for _ in range(300):
        x = [round(r.gauss(0, 1), 3) for _ in range(30)]
        wide.write(",".join(map(str, x)) + ",%s\n" % ("ant" if sum(x) > 0 else "bee"))
END
cat >images.ini <<'INI'
threads = 1
[model]
layers = conv 16 3x3 pad=same, relu, maxpool 2, conv 32 3x3 pad=same, relu, maxpool 2, conv 32 3x3 pad=same, flatten,
    linear 64, gelu, linear 10
[data]
train = images.h5
batch_size = 32
[train]
steps = 4
valid_every = 0
INI
for isa in ALL AVX2; do
    export ONEDNN_MAX_CPU_ISA=$isa
    mkdir -p $isa
    { [ -e wide.h5 ] || "$TRAINER" import csv wide.csv wide.h5; } >out 2>&1 &&
        { [ -e images.h5 ] || "$TRAINER" import synthetic digits images.h5 --samples 60; } >out 2>&1 &&
        "$TRAINER" net.ini data.train=wide.h5 run.dir=$isa/wide \
            "model.layers=linear 64, relu, linear 64, relu, linear 2" train.steps=20 >out 2>&1 &&
        "$TRAINER" predict $isa/wide wide.h5:train $isa/wide.out.h5 threads=1 >out 2>&1 &&
        "$TRAINER" images.ini run.dir=$isa/images >out 2>&1 &&
        serve $isa/wide.at $isa/wide threads=1 && serve $isa/images.at $isa/images threads=2 &&
        python $isa <<'END'
import random
from compare import *
isa = sys.argv[1]
x = [[float(v) for v in line.split(",")[:30]] for line in open("wide.csv").read().splitlines()[1:]]
whole = same(isa + "/wide.at", "<f4", x, "30", (1, 2, 5, 16, 33, 64, 70))
assert struct.pack("<600f", *flat(whole)) in open(isa + "/wide.out.h5", "rb").read()
r = random.Random(6)
same(isa + "/images.at", "|u1", [[r.randrange(256) for _ in range(784)] for _ in range(64)], "28, 28, 1",
     (1, 2, 3, 8, 16, 31, 32))
END
    ok $? "a sample has the same bits among any number of others ($isa)"
done
unset ONEDNN_MAX_CPU_ISA
python <<'END'
from compare import *
x, file = samples("kinds"), "kinds.at"
whole = post("/predict", file=file, inputs=x)["probability"]
def counts(): return [metric_of(name, label, file) for name, label in
                      (("request_success_total", '"stop"'), ("predicted_batches_total", ""))]
def joins():
    before = counts()
    got = together([lambda i=i: post("/predict", file=file, inputs=x[i:i + 3])["probability"] for i in range(16)])
    assert all(got[i] == whole[i:i + 3] for i in range(16))
    requests, batches = [now - then for now, then in zip(counts(), before)]
    assert requests == 16 and 1 <= batches <= 16
    return batches < requests
until(joins, "requests that wait are computed together")
END
ok $? "requests that wait together are computed together, with the same bits"
python <<'END'
from compare import *
got = post("/predict", file="sums.at", inputs=samples("sums"))
assert struct.pack("<1000f", *flat(got["prediction"])) in open("sums.out.h5", "rb").read()
assert set(got) == {"model", "prediction"} and got["model"] == "sums" and 50 < got["prediction"][0][0] < 150
END
ok $? "a regression: the targets in units of the data"
python <<'END'
from compare import *
def refused(status, names, body, headers=None, path="/predict", method="POST"):
    got, answer, _ = ask(method, path, body, headers, file="kinds.at")
    assert got == status and all(n in answer["error"]["message"] for n in names), (got, answer, names)
for inputs in (None, [], 1, "a", [[1, 2]], [[1, 2, 3], [1, 2]], [[1, 2, "3"]], [[1, 2, 1e39]], [[[1, 2, 3]]], {},
               [1, 2]):
    refused(400, ["inputs"], {"inputs": inputs})
refused(400, ["input", "inputs?"], {"input": [1, 2, 3]})
refused(400, [], "[[[[[[[[[[[[[[[[[[[[[[")
x = samples("kinds")[:2]
refused(400, ["inputs"], npy([], shape=(0, 3)), as_npy)
for body in (b"", b"\x93NUMPY", npy(x)[:-1], npy(x) + b"0", npy(x, order="True"), npy(x, shape=(3, 2)),
             npy(x, shape="(2,"), npy(x, shape=(1 << 62, 3)), npy(x, "<f4").replace(b"<f4", b">f4"),
             npy([[1e39, 0, 0]], "<f8"),
             npy(x).replace(b"\x01\x00", b"\x09\x00", 1),
             b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b"x" * 20):
    refused(400, [], body, as_npy)
refused(400, ["float64", "'<f2'"], npy(x).replace(b"<f4", b"<f2"), as_npy)
refused(415, ["application/x-npy"], b"1", {"Content-Type": "text/plain"})
refused(413, [], bytes(17 << 20), as_npy)
refused(404, ["/predict"], {"prompt": "a"}, path="/v1/completions")
status, answer, _ = ask("POST", "/generate", {"prompt": "a"}, file="kinds.at")
assert status == 404 and "/predict" in answer["error"], (status, answer)
assert ask("GET", "/v1/models", file="kinds.at")[1]["data"][0]["id"] == "kinds"
assert "/predict" in ask("GET", "/", file="kinds.at")[1] and ask("GET", "/info", file="kinds.at")[1]["model"] == "kinds"
END
ok $? "what is refused"
ends 0
ok $? "the end"
taken=
for option in "--slots 2" "--weights bf16" "--context 9"; do
    # shellcheck disable=SC2086
    "$TRAINER" serve kinds --port 0 $option threads=1 >out 2>&1
    [ $? = 2 ] && grep -q -- "${option% *} is for models of type gpt" out || taken=$option
done
[ -z "$taken" ]
ok $? "options of texts are refused"
echo "1..$n"
