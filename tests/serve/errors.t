#!/usr/bin/env bash
# TEST timeout=120
# trainer serve: what is refused, with which status, and each with an error as JSON that names the field; the server
# goes on. The command line.
. "${TRAINER_ROOT:?is set by the runner: make test k=serve/errors}/tests/serve/serve.sh"
need_http
serve address "$golden" --slots 2 --token-file token threads=1
[ $? = 0 ] && [ "$(stat -c %a token)" = 600 ] && grep -q "^token .* token (a new file)" address.out &&
    ! grep -q "$(cat token)" address.out
ok $? "a token is made, for its owner alone"

python <<'END'
import json
import client
from client import *
token = {"Authorization": "Bearer " + open("token").read().strip()}
typed = {**token, "Content-Type": "application/json"}


def refused(status, names, body, path="/v1/completions", method="POST", headers=typed):
    if isinstance(body, dict): body = json.dumps(body)
    got, answer, fields = ask(method, path, body, headers)
    assert got == status, (got, status, body if len(str(body)) < 200 else "...", answer)
    if method == "HEAD": return
    assert answer["error"]["code"] == status and answer["error"]["type"], answer
    assert all(name in answer["error"]["message"] for name in names), (names, answer)
    assert status != 405 or fields["Allow"]


good = {"prompt": "a", "max_tokens": 2}
assert ask("POST", "/v1/completions", json.dumps(good), typed)[0] == 200
for body in ("", "{", "nothing", '{"prompt": NaN}', '{"prompt": "\\ud800"}', '{"prompt": "a\\u0000"}',
             b'{"prompt": "\xff"}', '{"prompt": "a", "prompt": "b"}', '{"prompt": "a", "seed": 1e999}',
             "[" * 10000 + "]" * 10000, '{"prompt":' * 500 + "1" + "}" * 500, "[]", '"a"', "1", "null"):
    refused(400, [], body)
for field, value in [("prompt", 1), ("prompt", []), ("prompt", [[]] * 0), ("prompt", {}), ("prompt", ["a", 1]),
                     ("prompt", [1.5]), ("prompt", [-1]), ("prompt", [270]), ("prompt", [1, "a"]), ("prompt", None),
                     ("prompt", "the run " * 200), ("prompt", [1] * 113), ("max_tokens", 0), ("max_tokens", -1),
                     ("max_tokens", 1.5), ("max_tokens", "2"), ("max_tokens", 1e30), ("n", 0), ("n", 1000),
                     ("temperature", -1), ("temperature", "hot"), ("top_p", 2), ("top_k", -1), ("seed", -1),
                     ("seed", 0.5), ("seed", []), ("stop", 5), ("stop", ""), ("stop", ["a"] * 5), ("stop", ["a", 1]),
                     ("echo", 1), ("stream", "yes"), ("stream_options", {}), ("logprobs", 6), ("logprobs", True),
                     ("best_of", 3), ("suffix", "b"), ("logit_bias", {"1": 5}), ("frequency_penalty", 1),
                     ("presence_penalty", 0.1), ("messages", []), ("max_token", 5), ("model", 5)]:
    refused(400, [field], {**good, field: value})
refused(400, ["logprobs", "echo"], {**good, "echo": True, "logprobs": 1})
refused(400, ["prompt"], {"max_tokens": 2})
refused(400, ["stream_options"], {**good, "stream_options": {"include_usage": True}})
refused(400, ["include_usages", "include_usage?"], {**good, "stream": True, "stream_options": {"include_usages": True}})
refused(400, ["prompt", "n"], {"prompt": ["a"] * 100, "n": 2})
for field, value in [("best_of", 1), ("suffix", None), ("logit_bias", {}), ("frequency_penalty", 0), ("user", "me"),
                     ("presence_penalty", 0.0), ("stop", None), ("seed", None), ("model", "plain"), ("stop", [])]:
    assert ask("POST", "/v1/completions", json.dumps({**good, field: value}), typed)[0] == 200, field
refused(404, ["plain", "gpt-4"], {**good, "model": "gpt-4"})
refused(404, ["GET / ", "/health", "/v1/completions", "/detokenize"], good, path="/nowhere")
refused(405, ["GET"], good, path="/health")
refused(404, ["/v1/completions"], {"inputs": [1]}, path="/predict")
refused(405, ["POST"], None, method="GET", headers=token)
refused(405, ["GET"], good, path="/metrics")
refused(405, [], None, method="DELETE", headers=token)
refused(413, ["180224 bytes"], " " * 180225)  # 112 tokens of context
refused(413, ["180224 bytes"], None, headers={**typed, "Content-Length": "180225", "Expect": "100-continue"})
refused(413, ["180224 bytes"], bytes(23000000))  # all of it is read before the reply
for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""):
    refused(415, ["application/json"], json.dumps(good), headers={**token, **({"Content-Type": kind} if kind else {})})
for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "[::1", ""):
    refused(421, ["Host"], good, headers={**typed, "Host": host})
for host in ("localhost:1", "127.0.0.1", "[::1]:80", "LOCALHOST"):
    assert ask("POST", "/v1/completions", json.dumps(good), {**typed, "Host": host})[0] == 200, host
for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": token["Authorization"] + "x"}):
    refused(401, [], good, headers={"Content-Type": "application/json", **wrong})
    assert ask("GET", "/metrics", headers=wrong)[0] == 401
assert ask("GET", "/health")[0] == 200
for path, body, name in [("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": 1}, "prompt"),
                         ("/detokenize", {"tokens": [270]}, "tokens"), ("/detokenize", {"tokens": [1 << 40]}, "tokens"),
                         ("/detokenize", {"token": [1]}, "token")]:
    refused(400, [name], body, path=path)
END
ok $? "400, 401, 404, 405, 413, 415, 421"

python <<'END'
import re, socket
from client import *
token = "Authorization: Bearer " + open("token").read().strip() + "\r\n"


def replies(head, body):
    """The statuses of all replies, until the server closes."""
    s, got = socket.create_connection(place(), timeout=20), b""
    s.sendall(("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + token + head +
               "\r\n").encode() + body + b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    while True:
        try:
            part = s.recv(65536)
        except ConnectionResetError:
            break
        if not part: break
        got += part
    s.close()
    return re.findall(r"HTTP/1\.1 (\d+)", got.decode())


def raw(head, body=b""):
    s = socket.create_connection(place(), timeout=20)
    try:
        s.sendall(("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + token +
                   head + "\r\n").encode() + body)
        return s.recv(65536).decode().split("\r\n")[0].split()[1]
    finally:
        s.close()


def first(line, head=""):
    s = socket.create_connection(place(), timeout=20)
    s.sendall((line + "\r\n" + head + "Connection: close\r\n\r\n").encode())
    status = s.recv(65536).decode().split("\r\n")[0].split()[1]
    s.close()
    return status


# Load balancers ask without Host, and proxies with a host before the path, which then counts.
assert first("GET /health HTTP/1.1") == first("GET /health HTTP/1.0") == "200"
assert first("GET http://balancer.example/health HTTP/1.1", "Host: balancer.example\r\n") == "200"
assert first("GET /metrics HTTP/1.1", token) == "421"
assert first("GET http://localhost:80/metrics?x=1 HTTP/1.1", token + "Host: evil.example\r\n") == "200"
assert first("GET http://evil.example/metrics HTTP/1.1", token + "Host: localhost\r\n") == "421"
assert first("GET http://localhost HTTP/1.1", token) == "200"
body = b'{"prompt": "a", "max_tokens": 1}'
size = "Content-Length: %d\r\n" % len(body)
assert raw(size, body) == "200"
assert raw("Transfer-Encoding: chunked\r\n", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)) == "200"
assert raw(size + size, body) == "400" and raw(size + "Content-Length: 5\r\n", body) == "400"
assert raw("Content-Length: %d\r\n" % (1 << 30)) == "413"
got = replies(size, body); assert got == ["200", "200"], got
# What is behind a body of doubtful length is no request.
got = replies("Content-Length: 5\r\nContent-Length: 50\r\n", b"hello"); assert got == ["400"], got
got = replies("Content-Length : 5\r\n", b"hello"); assert got == ["400"], got
got = replies(size + "Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"); assert got == ["400"], got
for coding in ("gzip", "gzip, chunked"):
    got = replies("Transfer-Encoding: %s\r\n" % coding, b""); assert got == ["501"], got
assert raw("".join("X-%d: 1\r\n" % i for i in range(200)) + size, body) == "431"
END
ok $? "a length twice, 1 GB, 200 header fields, other codings, other forms of a path"
ends 0
ok $? "and the server still ends as it should"

mkdir half empty && cp "$golden/config.json" half && call 66 serve half && names err 'error & model.safetensors' &&
    call 66 serve empty && names err 'error & empty & config.ini' && call 66 generate half --prompt a &&
    names err 'error & model.safetensors' && call 66 serve none && names err 'none: No such file' &&
    call 66 serve half/config.json && names err 'half/config.json'
ok $? "a path that is no model: what is missing"
call 2 serve "$golden" --host 0.0.0.0 && names err 'error & --host 0.0.0.0 & --token-file' &&
    call 2 serve && call 66 serve none && call 2 serve "$golden" --slots 0 && call 78 serve "$golden" --host 192.0.2.1 \
    --token-file token && printf 'short\n' >short && chmod 600 short && call 78 serve "$golden" --token-file short &&
    names err '--token-file & short' && chmod 644 token && call 77 serve "$golden" --token-file token
ok $? "the command line"
(ulimit -n 40 && exec "$TRAINER" serve "$golden" --port 0 --address-file few threads=1 >few.out 2>&1) &
server=$!
servers+=("$server")
until_true is_there few && names few.out 'warning & ulimit -n & 40 & 8 connections' && python <<'END'
import socket
from client import *
idle = [socket.create_connection(place("few")) for _ in range(30)]
until(lambda: ask("GET", "/health", file="few")[0] == 200, "idle connections make room")
END
ok $? "30 idle connections where 40 files may be open"
serve address "$golden" --host localhost threads=1 && grep -q "^http://127" address &&
    call 78 serve "$golden" --port "$(sed 's/.*://' address)" &&
    names err 'error & in use'
ok $? "a port in use"
echo "1..$n"
