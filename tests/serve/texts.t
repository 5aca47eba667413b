#!/usr/bin/env bash
# TEST timeout=120
# trainer serve, texts: as transformers and `trainer generate` have them, the same in a stream, alone and among others,
# in any slot; n, stop, logprobs, seed, echo; the API used in courses.
. "${TRAINER_ROOT:?is set by the runner: make test k=serve/texts}/tests/serve/serve.sh"
need_http
serve address "$golden" --slots 3 --queue 400 threads=1
[ $? = 0 ] && grep -q '^ready' address.out && grep -q '3 slots of 112 tokens' address.out
ok $? "starts, and says what it has"

python "$TRAINER_ROOT/tests/golden/gpt2/expected.json" <<'END'
import json, sys
from client import *
for case in json.load(open(sys.argv[1]))["prompts"]:
    got = complete(prompt=case["prompt"], temperature=0, max_tokens=len(case["tokens"]))
    assert got["choices"][0]["text"] == post("/detokenize", tokens=case["tokens"])["prompt"], (case, got)
    assert got["usage"]["prompt_tokens"] == len(case["ids"]) == post("/tokenize", prompt=case["prompt"])["count"]
    assert complete(prompt=case["ids"], temperature=0, max_tokens=9)["choices"] == \
        complete(prompt=case["prompt"], temperature=0, max_tokens=9)["choices"]
END
ok $? "greedy tokens are those of transformers; a prompt may be a list of tokens"

printf 'The run\na\nranks and threads\nthe\n' >prompts.txt
for way in '--temperature 0' '--temperature 1.1 --seed 7 --top-k 40 --top-p 0.9'; do
    # shellcheck disable=SC2086
    call 0 generate "$golden" --prompts prompts.txt --tokens 40 $way --json "way${#way}.json" threads=1 || break
done &&
    python way15.json way49.json <<'END'
import json, sys
from client import *
prompts = open("prompts.txt").read().splitlines()
ways = [{"temperature": 0}, {"temperature": 1.1, "seed": 7, "top_k": 40, "top_p": 0.9}]
for name, way in zip(sys.argv[1:], ways):
    wanted = [text["text"] for text in json.load(open(name))["texts"]]
    assert [c["text"] for c in complete(prompt=prompts, max_tokens=40, **way)["choices"]] == wanted, way
END
ok $? "the texts of trainer generate for the same seed and prompts"

python <<'END'
from client import *
ways = [{"prompt": "the", "max_tokens": 50, "seed": 3},
        {"prompt": ["a", "The run"], "n": 2, "seed": 9, "max_tokens": 30},
        {"prompt": "the", "max_tokens": 40, "seed": 4, "logprobs": 3}, {"prompt": "ranks", "echo": True, "seed": 5},
        {"prompt": "the", "max_tokens": 200, "seed": 6, "stop": ["\ufffd\ufffd", "  "]}, {"prompt": "", "seed": 1}]
for way in ways:
    whole, parts = complete(**way), events(stream_options={"include_usage": True}, **way)
    assert joined(parts) == whole["choices"], (way, joined(parts), whole)
    assert parts[-1]["choices"] == [] and parts[-1]["usage"] == whole["usage"] and parts[0]["usage"] is None
    assert {part["seed"] for part in parts} == {whole["seed"]} == {way["seed"]}
assert complete(**ways[3])["choices"][0]["text"].startswith("ranks")
assert "usage" not in events(prompt="a")[0]
END
ok $? "a stream is the reply in parts: n, logprobs, echo, stop, usage"

python <<'END'
from client import *
first = complete(prompt="the", max_tokens=20)
assert complete(prompt="the", max_tokens=20, seed=first["seed"])["choices"] == first["choices"]
assert complete(prompt="the", max_tokens=20)["choices"] != first["choices"]
four = complete(prompt=["a", "b"], n=2, seed=8)["choices"]
assert [c["index"] for c in four] == [0, 1, 2, 3]
assert four == complete(prompt=["a", "a", "b", "b"], seed=8)["choices"] and four[0]["text"] != four[1]["text"]
END
ok $? "a seed that is drawn is told; choice k of prompt p is text n p + k of the seed"

python <<'END'
from client import *
ask_for = {"prompt": "the", "temperature": 0, "max_tokens": 60}
full = complete(**ask_for)["choices"][0]
tokens = complete(logprobs=1, **ask_for)["choices"][0]["logprobs"]["tokens"]
assert full["finish_reason"] == "length" and len(full["text"]) > 20
for first in range(3, 30, 4):
    for length in (1, 2, 5):
        stop = full["text"][first:first + length]
        if "\ufffd" in stop: continue
        got = complete(stop=stop, **ask_for)["choices"][0]
        assert got["text"] == full["text"][:full["text"].find(stop)], (stop, got, full)
        assert got["finish_reason"] == "stop"
        both = complete(stop=["never", stop, full["text"][first + 1:first + 3]], **ask_for)["choices"][0]
        assert joined(events(stop=stop, **ask_for)) == [got] and len(both["text"]) <= len(got["text"])
cut = complete(stop=["never", "odel"], logprobs=0, **ask_for)["choices"][0]
shown = cut["logprobs"]["tokens"]
assert cut["text"].endswith("m") and shown == tokens[:len(shown)] and shown[-1] == "model"
near = complete(stop=full["text"][:3] + "never", **ask_for)["choices"][0]
assert near == full, "what begins like a stop string is shown at the end"
END
ok $? "stop strings end a text exactly, also where they begin inside of a token"

python <<'END'
import math
from client import *
got = complete(prompt="the", max_tokens=30, logprobs=5, temperature=0)["choices"][0]
p = got["logprobs"]
assert len(p["tokens"]) == len(p["token_logprobs"]) == len(p["top_logprobs"]) == len(p["text_offset"]) == 30
for own, top in zip(p["token_logprobs"], p["top_logprobs"]):
    assert len(top) == 5 and own == max(top.values()) and sum(map(math.exp, top.values())) < 1 + 1e-5
plain = complete(prompt="the", max_tokens=30, temperature=0)["choices"][0]
assert plain["text"] == got["text"] and plain["logprobs"] is None
last = complete(prompt="the", max_tokens=500, temperature=0)
assert last["choices"][0]["finish_reason"] == "length" and last["usage"]["total_tokens"] == 113
END
ok $? "logprobs; a text ends at the context"
python <<'END'
from client import *
# "bytes:" is a part of a character, or a byte that is no UTF-8 and is U+FFFD in the text
lone = 0
for seed in range(4):
    got = complete(prompt="the", max_tokens=60, temperature=1.5, seed=seed, logprobs=0)["choices"][0]
    p, text = got["logprobs"], got["text"]
    for token, offset in zip(p["tokens"], p["text_offset"]):
        assert token.startswith("bytes:") or token == text[offset:offset + len(token)], (seed, token, offset)
    lone += text[:p["text_offset"][-1]].count("\ufffd")
    parts = joined(events(prompt="the", max_tokens=60, temperature=1.5, seed=seed, logprobs=0))
    assert parts[0]["logprobs"] == p
assert lone > 5, lone
END
ok $? "text_offset counts characters, also of bytes that are no UTF-8"
mkdir padded && cp "$golden"/* padded && printf '#version: 0.2\n' >padded/merges.txt && python <<'END'
import json
vocab = {t: i for t, i in json.load(open("padded/vocab.json")).items() if i < 257}
json.dump(vocab, open("padded/vocab.json", "w"))
json.dump({"eos_token_id": [164, 215]}, open("padded/generation_config.json", "w"))
END
serve padded.address padded threads=1 && python <<'END'
from client import *
# As transformers has it: tokens 257 to 269 have no text and are not generated, but have probabilities.
got = complete(file="padded.address", prompt="The run", max_tokens=99, temperature=0)
assert got["choices"][0]["finish_reason"] == "stop" and got["usage"]["completion_tokens"] == 27
prompt = [84, 104, 101, 32, 114, 117, 110, 32, 32, 171, 32, 32, 126, 108, 32, 73, 34, 156, 118, 214, 32, 32, 32, 32,
          214, 73, 214, 32, 29, 205, 118, 32, 88, 32, 164, 205, 96, 32, 214]
choice = complete(file="padded.address", prompt=prompt, max_tokens=1, temperature=0, logprobs=2)["choices"][0]
p = choice["logprobs"]
assert p["tokens"] == ["~"] and abs(p["token_logprobs"][0] + 4.50066) < 1e-4 and "token:263" in p["top_logprobs"][0], p
assert ask("POST", "/v1/completions", {"prompt": [257]}, file="padded.address")[0] == 400
END
ok $? "a padded vocabulary, and eos_token_id"

serve one "$golden" --slots 1 --queue 400 threads=1 && serve many "$golden" --slots 16 --queue 400 threads=2 &&
    python "$([ -n "${TEST_ALL-}" ] && echo 200 || echo 40)" <<'END'
import random, sys
from client import *
r = random.Random(5)
words = "the run model and a ranks threads loss falls".split()
asked = [{"prompt": " ".join(r.choices(words, k=r.randint(1, 12))), "max_tokens": r.randint(1, 40),
          "temperature": r.choice([0, 0.7, 1.3]), "top_k": r.choice([0, 5]), "seed": r.randint(0, 99),
          "n": r.choice([1, 1, 2]), "logprobs": 2}
         for _ in range(int(sys.argv[1]))]
alone = [complete(**fields)["choices"] for fields in asked]
for file in ("address", "one", "many"):
    order = list(range(len(asked)))
    r.shuffle(order)
    mixed = together([lambda i=i: complete(file=file, **asked[i])["choices"] for i in order])
    assert [alone[i] for i in order] == mixed, file
END
ok $? "a text depends on its request alone: 1, 3 and 16 slots, others beside it"

"$TRAINER" serve "$golden" --port 0 --context 5000 >out 2>&1
[ $? = 2 ] && grep -q '112 tokens' out && serve short "$golden" --slots 2 --context 20 threads=1 &&
    grep -q '2 slots of 20 tokens' short.out && python <<'END'
from client import *
asked = {"prompt": "the run", "max_tokens": 500, "temperature": 0}
text = complete(file="short", **asked)
assert text["usage"]["total_tokens"] == 21, text
whole = complete(**asked)["choices"][0]["text"]
assert whole.startswith(text["choices"][0]["text"])
END
ok $? "--context: the same text, which ends sooner"

python <<'END'
from client import *
got = post("/generate", prompt="The run", max_length=12, seed=1)
assert got["prompt"] == "The run" and got["generated_text"].startswith("The run") and got["device"] == "cpu", got
assert {"inference_time_seconds", "tokens_per_second", "gpu_memory_used_gb"} < set(got)
text = complete(prompt="The run", max_tokens=9, seed=1, temperature=0.7)["choices"][0]["text"]
assert got["generated_text"] == "The run" + text
both = post("/generate", prompts=["a", "the"], seed=1)
assert both["prompt"] == ["a", "the"] and len(both["generated_text"]) == 2
status, error, _ = ask("POST", "/generate", {"prompt": "a " * 40})
assert status == 400 and "max_length" in error["error"] and "default, 50" in error["error"], error
for wrong in ({"prompt": ""}, {}, {"prompts": []}, {"prompt": "a", "max_length": 1}):
    status, error, _ = ask("POST", "/generate", wrong)
    assert status == 400 and isinstance(error["error"], str), (status, error)
for status, method, path, headers in [(405, "GET", "/generate", {}), (405, "POST", "/info", {}),
                                      (415, "POST", "/generate", {"Content-Type": "text/plain"}),
                                      (421, "POST", "/generate", {"Host": "evil.example"})]:
    got, error, _ = ask(method, path, "{}" if method == "POST" else None, headers)
    assert got == status and isinstance(error["error"], str), (got, error)
info = ask("GET", "/info")[1]
assert info["device"] == "cpu" and info["cuda_available"] is False and info["model"] == "plain"
END
ok $? "the API used in courses: /generate and /info"

python <<'END'
from client import *
model = ask("GET", "/v1/models")[1]["data"][0]
assert model["id"] == "plain" and model["max_model_len"] == 112
assert ask("GET", "/v1/models/plain")[:2] == (200, model)
status, answer, _ = ask("GET", "/v1/models/other")
assert status == 404 and "plain" in answer["error"]["message"] and "other" in answer["error"]["message"]
assert ask("GET", "/health")[:2] == (200, {"status": "ok"})
before = metric("generation_tokens_total"), metric("prompt_tokens_total")
complete(prompt="The run", max_tokens=11, temperature=0)
assert metric("generation_tokens_total") - before[0] == 11 and metric("prompt_tokens_total") - before[1] == 3
assert metric("num_requests_running") == metric("num_requests_waiting") == metric("kv_cache_usage_perc") == 0
assert metric("time_to_first_token_seconds_count") == metric("e2e_request_latency_seconds_count") > 40
page = ask("GET", "/")
assert page[0] == 200 and "<script>" in page[1] and "src=" not in page[1] and "plain" in page[1]
END
ok $? "models, health, metrics, page"
ask_metrics() { python3 -c 'from client import *; print(ask("GET", "/metrics")[1], end="")'; }
if command -v promtool >/dev/null; then
    ask_metrics | promtool check metrics >out 2>&1
    ok $? "metrics that promtool accepts"
else
    skip "metrics that promtool accepts" "no promtool"
fi
echo "1..$n"
