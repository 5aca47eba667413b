"""Asks a server of a model, for the tests: PYTHONPATH=tests/serve, in a folder where `serve` of serve.sh started it."""
import http.client, json, socket, threading, time


def place(file="address"):
    host, port = open(file).read().strip().split("//")[1].rsplit(":", 1)
    return host, int(port)


def ask(method, path, body=None, headers=None, file="address"):
    """The status, the body as JSON or text, and the header fields. A dict is sent as JSON."""
    if isinstance(body, dict):
        body = json.dumps(body)
    if headers is None:
        headers = {"Content-Type": "application/json"} if body is not None else {}
    connection = http.client.HTTPConnection(*place(file), timeout=100)
    connection.request(method, path, body, headers)
    reply = connection.getresponse()
    text = reply.read()
    connection.close()
    is_json = reply.getheader("Content-Type") == "application/json"
    return reply.status, json.loads(text) if is_json else text.decode(), dict(reply.getheaders())


def post(path, file="address", **fields):
    status, answer, _ = ask("POST", path, fields, file=file)
    assert status == 200, (status, answer, fields)
    return answer


def complete(file="address", **fields):
    return post("/v1/completions", file=file, **fields)


def events(file="address", **fields):
    """The events of a stream, without the last, which is [DONE]."""
    status, text, headers = ask("POST", "/v1/completions", {"stream": True, **fields}, file=file)
    assert status == 200 and headers["Content-Type"] == "text/event-stream", (status, text)
    parts = [part for part in text.split("\n\n") if part and not part.startswith(":")]
    assert all(part.startswith("data: ") for part in parts) and parts.pop() == "data: [DONE]", text[-300:]
    return [json.loads(part[6:]) for part in parts]


def joined(parts):
    """The choices of the events of a stream, as one reply has them."""
    choices = {}
    for part in parts:
        for new in part["choices"]:
            old = choices.setdefault(new["index"], {**new, "text": "", "logprobs": None})
            assert old["finish_reason"] is None or old["text"] == "", "an event after the end"
            old["text"] += new["text"]
            old["finish_reason"] = new["finish_reason"]
            if new["logprobs"] and old["logprobs"]:
                for key in new["logprobs"]:
                    old["logprobs"][key] += new["logprobs"][key]
            elif new["logprobs"]:
                old["logprobs"] = new["logprobs"]
    return [choices[index] for index in sorted(choices)]


def metric(name, file="address"):
    text = ask("GET", "/metrics", file=file)[1]
    lines = [line for line in text.splitlines() if line.startswith("trainer_" + name + "{")]
    return sum(float(line.split()[-1]) for line in lines)


def metric_of(name, label, file="address"):
    text = ask("GET", "/metrics", file=file)[1]
    return sum(float(l.split()[-1]) for l in text.splitlines() if l.startswith("trainer_" + name) and label in l)


def until(holds, what):
    """Waits, at most a minute."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "never: " + what
        time.sleep(0.01)


def begin(file="address", **fields):
    """A connection that has sent a request and reads nothing."""
    body = json.dumps(fields).encode()
    connection = socket.create_connection(place(file), timeout=100)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return connection


def together(jobs):
    """The results of functions that run at the same time."""
    results = [None] * len(jobs)

    def run(i):
        results[i] = jobs[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
