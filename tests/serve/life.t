#!/usr/bin/env bash
# TEST timeout=120
# trainer serve: a full queue, clients that leave or read nothing, and the end: drained, asked twice, too late.
. "${TRAINER_ROOT:?is set by the runner: make test k=serve/life}/tests/serve/serve.sh"
need_http
slow_model slow
serve address slow --slots 1 --queue 2 threads=1
ok $? "a model that takes long"

python <<'END'
from client import *


def running(): return metric("num_requests_running")
def waiting(): return metric("num_requests_waiting")
long = {"prompt": "the", "max_tokens": 16000, "temperature": 0}
# a stream is read, and left
stream = begin(**long, stream=True)
assert b"text_completion" in stream.recv(4096) + stream.recv(4096)
stream.close()
until(lambda: running() == 0, "a stream that is left frees its slot")
# a client that waits for the whole
whole = begin(**long)
until(lambda: running() == 1, "it runs")
# two that wait, of which one leaves, as the queue is full
first = begin(**long)
until(lambda: waiting() == 1, "one waits")
second = begin(**long)
until(lambda: waiting() == 2, "two wait")
status, answer, headers = ask("POST", "/v1/completions", {"prompt": "a"})
assert status == 429 and int(headers["Retry-After"]) > 0 and answer["error"]["code"] == 429, (status, answer)
first.close()
until(lambda: waiting() == 1, "one has left the queue")
whole.close()
until(lambda: waiting() == 0 and running() == 1, "the next one has the slot")
second.close()
until(lambda: running() == 0, "all have left")
assert metric("generation_tokens_total") < 4 * 16000 and metric_of("request_success_total", "abort") == 4
assert metric("requests_refused_total") == 1
def logged(line): return sum(l.startswith(line) for l in open("address.out"))
until(lambda: logged("POST /v1/completions: 499") == 4, "each of the clients that left has a line")
assert logged("POST /v1/completions: 429") == 1
# clients that end their side and read: they have the whole text
def half_closed(**fields):
    connection = begin(**fields)
    connection.shutdown(socket.SHUT_WR)
    return connection
def rest(connection):
    text = b""
    while part := connection.recv(1 << 16): text += part
    return text
asked = {"prompt": "the", "max_tokens": 200, "temperature": 0}
text = rest(half_closed(**asked)).replace(b"HTTP/1.1 100 Continue\r\n\r\n", b"", 1)
assert text.startswith(b"HTTP/1.1 200") and b'"completion_tokens":200' in text, text[:500]
first, second = begin(**long), half_closed(**asked, stream=True)
until(lambda: running() == waiting() == 1, "a half-closed stream waits")
third = begin(**long, stream=True)
until(lambda: waiting() == 2, "another one waits")
third.close()
until(lambda: waiting() == 1, "the one that has left is told from it")
first.close()
assert b"[DONE]" in rest(second)
until(lambda: logged("POST /v1/completions: 499") == 6, "the two others have left")
# a client that reads nothing: its text is kept, and ends
deaf = begin(**{**long, "max_tokens": 300}, stream=True)
until(lambda: metric_of("request_success_total", '"length"') == 3, "the text of a client that reads nothing ends")
assert complete(prompt="a", max_tokens=3, temperature=0)["usage"]["completion_tokens"] == 3
deaf.close()
until(lambda: sum("streamed" in l for l in open("address.out")) == 4, "a stream has a line at its end")
END
ok $? "clients that leave free their slots and places; 429; one that reads nothing"
python <<'END'
from client import *
many = begin(prompt=["the"] * 20, max_tokens=400, temperature=0)
until(lambda: metric("num_requests_running") == 1, "it runs")
complete(prompt="a", max_tokens=3, temperature=0)
assert metric("num_requests_running") == 1, "the one with many texts goes on"
many.close()
END
ok $? "a request with many texts does not delay another one"
ends 0 && [ ! -e address ]
ok $? "TERM without requests; the file of the address is removed"

serve address slow --slots 1 threads=1
ok $? "again"
# sanitizers take many times as long
tokens=$(grep -qs 'fsanitize=' "$BUILD/flags.stamp" && echo 300 || echo 3000)
python "$server" "$tokens" <<'END'
import os, signal, sys, threading, time
from client import *
results, tokens = {}, int(sys.argv[2])
def run(): results["old"] = ask("POST", "/v1/completions", {"prompt": "the", "max_tokens": tokens, "temperature": 0})
old = threading.Thread(target=run)
old.start()
until(lambda: metric("num_requests_running") == 1, "it runs")
os.kill(int(sys.argv[1]), signal.SIGTERM)
until(lambda: ask("GET", "/health")[:2] == (503, {"status": "draining"}), "it drains")
assert ask("POST", "/v1/completions", {"prompt": "a"})[0] == 503
old.join()
assert results["old"][0] == 200 and results["old"][1]["usage"]["completion_tokens"] == tokens, results
END
status=$?
[ $status = 0 ] || kill -KILL "$server"
wait "$server"
[ $? = 0 ] && [ $status = 0 ] && grep -q 75 address.out
ok $? "TERM: no new requests, and those that run end"
for way in '--drain 1h 2' '--drain 0.2 1'; do
    # shellcheck disable=SC2086
    serve address slow --slots 1 threads=1 ${way% *} && python "$server" "${way##* }" <<'END'
import os, signal, sys, time
from client import *
long = {"prompt": "the", "max_tokens": 16000, "temperature": 0}
stream, whole = begin(**long, stream=True), begin(**long)
until(lambda: metric("num_requests_running") + metric("num_requests_waiting") == 2, "one runs, one waits")
for _ in range(int(sys.argv[2])):
    os.kill(int(sys.argv[1]), signal.SIGTERM)
    time.sleep(0.3)


def rest(connection):
    text = b""
    while part := connection.recv(1 << 16): text += part
    return text


text = rest(stream)
assert b'"code":503' in text and b"[DONE]" not in text, text[-500:]
assert rest(whole).startswith(b"HTTP/1.1 503"), "the other one is told"
END
    status=$?
    [ $status = 0 ] || kill -KILL "$server"
    wait "$server"
    [ $? = 0 ] && [ $status = 0 ]
    ok $? "${way% *}, $((${way##* })) signal: requests are ended, and told so"
done
echo "1..$n"
