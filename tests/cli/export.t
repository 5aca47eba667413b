#!/usr/bin/env bash
# trainer export and model.init_layout: weights to PyTorch and back, checked with PyTorch where there is one.
. "${TRAINER_ROOT:?is set by the runner: make test k=cli/export}/tests/support/common.sh"

same() { cmp -s "$1/checkpoints/latest/model.safetensors" "$2/checkpoints/latest/model.safetensors"; }

# A kernel of 3x3 with 3 channels, whose shape is the same in both orders; sizes that are all different.
cat >net.ini <<'END'
[data]
train = d.h5
batch_size = 20
[model]
layers =
    conv 6 3 pad=same, batchnorm, relu, maxpool 2
    conv 8 3x2, flatten, dropout 0.2, batchnorm, linear 16, relu, linear 5
[train]
steps = 6
[optimizer]
lr = 0.01
END
call 0 import synthetic images d.h5 --samples 60 --shape 12x10x3 --classes 5 &&
    call 0 net.ini run.dir=run &&
    mv d.h5 away.h5
ok $? "a run, whose data then are elsewhere"

call 0 export run ours.safetensors &&
    call 0 export run torch.safetensors --layout torch && grep -q '^torch.safetensors: ' out &&
    ! cmp -s ours.safetensors torch.safetensors
ok $? "both orders, without the data"
call 78 export run ours.safetensors && names err "'ours.safetensors' & --force" &&
    call 0 export run ours.safetensors --force &&
    call 2 export run x --layout keras && names err "--layout & 'keras'" &&
    call 2 export run &&
    call 66 export none x && [ ! -e x ]
ok $? "refusals"
for name in net.onnx a.b/net.PT net.bin net.gguf net.h5 net.safetensors.gz; do
    call 2 export run $name && names err "'$name' & ${name%.*}.safetensors" && [ ! -e $name ] || break
done && call 0 export run net.v2 && cmp -s net.v2 ours.safetensors
ok $? "names of other formats"

mv away.h5 d.h5
# begin RUN INIT...: what a run starts from is what it saves after a step of rate 0
begin() {
    local run=$1
    shift
    sed 's/batchnorm/& momentum=0/' net.ini >still.ini
    call 0 still.ini run.dir="$run" optimizer.lr=0 optimizer.weight_decay=0 train.steps=1 "$@"
}
# conceal FILE OUT: the same without a record of the order
conceal() { LC_ALL=C sed 's/"layout"/"1ayout"/; s/"trainer":/"tra1ner":/' "$1" >"$2"; }
conceal torch.safetensors plain.safetensors && ! cmp -s torch.safetensors plain.safetensors
begin a model.init=run &&
    begin b model.init=torch.safetensors && ! names err model.init_layout && same a b &&
    begin c model.init=ours.safetensors && ! names err model.init_layout && same a c
ok $? "model.init reads both orders"

fixed='data.mean=0 data.std=1'
begin d model.init=plain.safetensors $fixed && names err "plain.safetensors & model.init_layout" &&
    begin e model.init=torch.safetensors $fixed && ! same d e &&
    begin f model.init=plain.safetensors model.init_layout=torch $fixed && same e f &&
    begin g model.init=plain.safetensors model.init_layout=trainer $fixed && ! names err model.init_layout &&
    same d g
ok $? "a file without a record: a warning, or model.init_layout"

refuse() { call 78 net.ini run.dir=refused "$@" && names err "model.init_layout"; }
refuse model.init=run model.init_layout=torch &&
    refuse model.init=ours.safetensors model.init_layout=torch &&
    refuse model.init=torch.safetensors model.init_layout=trainer && [ ! -e refused/checkpoints/latest ]
ok $? "model.init_layout against the record of the file"
loss() { call 0 eval net.ini "$@" && sed -n 's/^loss *//p' out; }
want=$(loss run) && [ -n "$want" ] && [ "$(loss ours.safetensors)" = "$want" ] &&
    [ "$(loss torch.safetensors)" = "$want" ] && [ "$(loss ours.safetensors model.init_layout=torch)" = "$want" ] &&
    fixed_loss=$(loss torch.safetensors $fixed) &&
    [ "$(loss plain.safetensors model.init_layout=torch $fixed)" = "$fixed_loss" ] &&
    [ "$(loss plain.safetensors $fixed)" != "$fixed_loss" ]
ok $? "eval reads both orders"

printf 'to be or not to be, that is the question: %s\n' 1 2 3 4 5 6 7 8 9 >t.txt
cat >gpt.ini <<'END'
[data]
train = t.h5
batch_size = 2
[model]
type = gpt
n_layer = 1
n_head = 2
n_embd = 8
context = 16
[train]
steps = 2
END
call 0 import text t.txt t.h5 --tokenizer chars &&
    call 0 gpt.ini run.dir=gpt &&
    mv t.h5 away.h5 &&
    call 0 export gpt gpt.safetensors && grep -q '^gpt.safetensors: ' out &&
    mv away.h5 t.h5 &&
    call 0 eval gpt.ini gpt.safetensors --split train &&
    cp out one &&
    call 0 eval gpt --split train && [ "$(grep ^loss one)" = "$(grep ^loss out)" ]
ok $? "a language model"

call 78 predict gpt t.h5:train o.h5 && names err "predict & gpt"
ok $? "predict refuses a language model"

python=$(python_with 'torch, h5py, numpy, safetensors')
if [ -n "$python" ]; then
    cat >check.py <<'END'
import h5py, numpy, sys, torch
from safetensors.torch import load_file
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.batchnorm1 = nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6)
        self.conv2, self.batchnorm2 = nn.Conv2d(6, 8, (3, 2)), nn.BatchNorm1d(8 * 4 * 4)
        self.linear1, self.linear2 = nn.Linear(8 * 4 * 4, 16), nn.Linear(16, 5)

    def forward(self, x):
        x = nn.functional.max_pool2d(torch.relu(self.batchnorm1(self.conv1(x))), 2)
        x = self.batchnorm2(torch.flatten(self.conv2(x), 1))
        return self.linear2(torch.relu(self.linear1(x)))

net = Net().eval()
net.load_state_dict(load_file("torch.safetensors"))
x = torch.tensor(h5py.File("d.h5")["test/x"][:].astype(numpy.float32)).permute(0, 3, 1, 2) / 255
with torch.no_grad():
    theirs = net(x).softmax(1).numpy()
ours = h5py.File("p.h5")["probability"][:]
print(abs(ours - theirs).max(), ours.std())
sys.exit(not (abs(ours - theirs).max() < 1e-5 and ours.std() > 1e-4))
END
    call 0 predict run d.h5:test p.h5 data.mean=0 data.std=255 && "$python" check.py >out 2>err
    ok $? "PyTorch predicts the same"
else
    skip "PyTorch predicts the same" "no python with torch, h5py and safetensors"
fi
echo "1..$n"
