# Sourced by tests of `trainer serve`: starts servers, and asks them by client.py. Not a test itself.
. "${TRAINER_ROOT:?is set by the runner: make test k=serve}/tests/support/common.sh"
golden=$TRAINER_ROOT/tests/golden/gpt2/plain
export PYTHONPATH=$TRAINER_ROOT/tests/serve PYTHONDONTWRITEBYTECODE=1
servers=()
trap '[ ${#servers[@]} = 0 ] || kill -KILL "${servers[@]}" 2>/dev/null' EXIT
# serve FILE ARGUMENTS...: starts a server, its output in FILE.out, its address in FILE, its process in $server
serve() {
    local file=$1
    shift
    "$TRAINER" serve "$@" --port 0 --address-file "$file" >"$file.out" 2>&1 &
    server=$!
    servers+=("$server")
    until_true is_there "$file" && [ -s "$file" ]
}
is_there() { [ -s "$1" ] || ! kill -0 "$server" 2>/dev/null; }
# ends CODE: the last server is asked to end and does so with this code
ends() {
    kill -TERM "$server"
    wait "$server"
    [ $? = "$1" ]
}
# python: a script on standard input; what fails is shown
python() { PYTHONUNBUFFERED=1 python3 - "$@" >out 2>&1; }
# need_http: skips the test where there is no HTTP server
need_http() {
    serve probe "$golden" threads=1 && ends 0 && return
    ! grep -q libmicrohttpd probe.out || { echo "1..0 # SKIP no libmicrohttpd"; exit 0; }
}
# slow_model FOLDER: a model that is all zeros, which says the same token until its context of 16,384 is full
slow_model() {
    mkdir -p "$1" && cp "$golden"/vocab.json "$golden"/merges.txt "$1" && python3 - "$1" <<'END'
import json, struct, sys
width, layers, context, vocab = 192, 4, 16384, 270
config = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new", "n_embd": width,
    "n_layer": layers, "n_head": 4, "n_positions": context, "vocab_size": vocab, "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True, "bos_token_id": 256, "eos_token_id": 256}
shapes = {"wte.weight": [vocab, width], "wpe.weight": [context, width], "ln_f.weight": [width], "ln_f.bias": [width]}
for i in range(layers):
    for name, shape in [("ln_1.weight", [width]), ("ln_1.bias", [width]),
                        ("ln_2.weight", [width]), ("ln_2.bias", [width]),
                        ("attn.c_attn.weight", [width, 3 * width]), ("attn.c_attn.bias", [3 * width]),
                        ("attn.c_proj.weight", [width, width]), ("attn.c_proj.bias", [width]),
                        ("mlp.c_fc.weight", [width, 4 * width]), ("mlp.c_fc.bias", [4 * width]),
                        ("mlp.c_proj.weight", [4 * width, width]), ("mlp.c_proj.bias", [width])]:
        shapes["h.%d.%s" % (i, name)] = shape
at, header = 0, {}
for name, shape in shapes.items():
    size = 4 * shape[0] * (shape[1] if len(shape) > 1 else 1)
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
    at += size
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1] + "/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    file.truncate(8 + len(text) + at)
json.dump(config, open(sys.argv[1] + "/config.json", "w"))
END
}
