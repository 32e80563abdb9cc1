"""An OpenAI-compatible server on the loopback address that answers by a script and keeps what it was asked."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any, Final

KEY: Final = "sk-loopback-0123456789abcdefghij"  # looks like one, and opens nothing
MODEL: Final = "scripted-model"
SIZE: Final = 7  # characters of a piece of a stream
PATIENCE: Final = 30.0  # seconds until a server that hangs ends all the same


@dataclass(frozen=True)
class Asked:
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def prompt(self) -> str:
        return "\n".join(message["content"] for message in self.body["messages"])


Reply = Callable[["Handler"], None]


@dataclass
class Loopback:
    """`script` is used up, one reply a request. What has a field of `refuses`, or asks for such a form, gets a 400."""

    url: str
    script: list[Reply]
    refuses: set[str] = field(default_factory=set)
    asked: list[Asked] = field(default_factory=list)
    closing: Event = field(default_factory=Event)
    lock: Any = field(default_factory=Lock)

    @property
    def environment(self) -> dict[str, str]:
        """With which a process asks this server."""
        return {"OPENAI_BASE_URL": self.url, "OPENAI_API_KEY": KEY, "NO_PROXY": "127.0.0.1"}

    def reply(self, asked: Asked) -> Reply:
        with self.lock:
            self.asked.append(asked)
            for name in sorted(self.refuses):
                if name in asked.body or asked.body.get("response_format", {}).get("type") == name:
                    return status(400, f"Unsupported parameter: '{name}' is not supported with this model.")
            return self.script.pop(0) if self.script else status(410, "the script has ended")


@contextmanager
def loopback(*script: Reply) -> Iterator[Loopback]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    double = Loopback(f"http://127.0.0.1:{server.server_port}/v1", list(script))
    server.double = double  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield double
    finally:
        double.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def double(self) -> Loopback:
        return self.server.double  # type: ignore[attr-defined,no-any-return]

    def handle(self) -> None:
        with suppress(ConnectionError):  # whoever asked has gone
            super().handle()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.double.reply(Asked(self.path, headers, body))(self)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing is printed."""

    # --- what replies are made of

    def begin(self, code: int, content: str, headers: Mapping[str, str]) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def stream(self) -> None:
        self.begin(200, "text/event-stream", {"Transfer-Encoding": "chunked"})

    def event(self, data: str) -> None:
        line = f"data: {data}\n\n".encode()
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
        self.wfile.flush()

    def piece(self, finish: str | None = None, **delta: str) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self.event(chunk(choices=[choice]))

    def pieces(self, text: str) -> None:
        for at in range(0, len(text), SIZE):
            self.piece(content=text[at : at + SIZE])

    def done(self) -> None:
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def drop(self) -> None:
        self.close_connection = True
        self.wfile.flush()


def chunk(**fields: Any) -> str:
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": []}
    return json.dumps(frame | fields)


# --- replies


def says(text: str, usage: tuple[int, int] | None = (100, 50), finish: str = "stop", thinks: str = "") -> Reply:
    """The text as a stream; `usage` is of the prompt and the answer, None: the server does not count."""

    def reply(handler: Handler) -> None:
        handler.stream()
        if thinks:
            handler.piece(reasoning_content=thinks)
        handler.pieces(text)
        handler.piece(finish)
        if usage is not None:
            handler.event(chunk(usage={"prompt_tokens": usage[0], "completion_tokens": usage[1]}))
        handler.done()

    return reply


def proposes(code: str, changed: str = "it is another one", usage: tuple[int, int] | None = (100, 50)) -> Reply:
    """A whole answer of the proposer."""
    return says(json.dumps({"changed": changed, "expects": "less time in the loop", "code": code}), usage)


def refuses(text: str) -> Reply:
    def reply(handler: Handler) -> None:
        handler.stream()
        handler.piece(refusal=text)
        handler.piece("stop")
        handler.done()

    return reply


def status(code: int, message: str = "", reason: str | None = None, **headers: str) -> Reply:
    """An HTTP error with OpenAI's body, `reason` as its code; `retry_after="1"` sends that header."""

    def reply(handler: Handler) -> None:
        data = json.dumps({"error": {"message": message or f"status {code}", "type": "error", "code": reason}}).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.begin(code, "application/json", {"Content-Length": str(len(data)), **named})
        handler.wfile.write(data)

    return reply


def hangs(text: str | None = None) -> Reply:
    """Never answers, or not beyond the beginning `text`."""

    def reply(handler: Handler) -> None:
        if text is not None:
            handler.stream()
            handler.pieces(text)
        handler.double.closing.wait(PATIENCE)
        handler.drop()

    return reply


def drips(seconds: float = 0.05) -> Reply:
    """Sends a little again and again, and never ends."""

    def reply(handler: Handler) -> None:
        handler.stream()
        while not handler.double.closing.wait(seconds):
            handler.piece(content="x")
        handler.drop()

    return reply


def cuts(text: str, cleanly: bool = False) -> Reply:
    """Ends in the middle: the connection is gone, or (`cleanly`) the stream ends as if that were all."""

    def reply(handler: Handler) -> None:
        handler.stream()
        handler.pieces(text)
        if cleanly:
            handler.done()
        handler.drop()

    return reply


def page(text: str = "<html>sign in</html>", content: str = "text/html") -> Reply:
    """Status 200, and no stream."""

    def reply(handler: Handler) -> None:
        handler.begin(200, content, {"Content-Length": str(len(text))})
        handler.wfile.write(text.encode())

    return reply


def garbles(data: str = '{"choices": [{"delta": ') -> Reply:
    """Sends this as an event of a stream, and then ends it."""

    def reply(handler: Handler) -> None:
        handler.stream()
        handler.event(data)
        handler.done()

    return reply
