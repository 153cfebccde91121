"""The page at /docs: the description of the interface for readers.

One file of HTML and CSS without scripts, fonts or images, so it works without the internet and under the strictest
policy of a browser (`POLICY`). It is made from openapi.json, with the address of the server in its commands.
tests/server/test_openapi.py checks that the file describes what the server does, that every path is on the page, that
the page names no other host, and that its programs run.
"""

from __future__ import annotations

from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import Any, Final

import msgspec

from .settings import VERSION
from .wire import problems

KINDS: Final = [kind for kind in vars(problems).values() if isinstance(kind, problems.Kind)]
DESCRIPTION: Final = msgspec.json.decode(files(__package__).joinpath("openapi.json").read_bytes())
DESCRIPTION["info"]["version"] = VERSION

POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLE: Final = """
:root{color-scheme:light dark;--text:#1c2430;--soft:#5a6675;--line:#d9dee5;--back:#fff;--code:#f4f6f8;--mark:#1f6f54}
@media(prefers-color-scheme:dark){:root{--text:#e3e8ee;--soft:#9aa7b5;--line:#323b46;--back:#14181d;--code:#1d232a;
--mark:#4fb28f}}
*{box-sizing:border-box}
body{font:16px/1.55 system-ui,sans-serif;margin:0;color:var(--text);background:var(--back);
display:grid;grid-template-columns:19rem minmax(0,1fr);max-width:78rem;margin:0 auto}
nav{position:sticky;top:0;height:100vh;overflow:auto;padding:1.5rem 1rem;border-right:1px solid var(--line);
font-size:.85rem}
nav h2{font-size:.75rem;text-transform:uppercase;letter-spacing:.06em;color:var(--soft);margin:1.2rem 0 .3rem;border:0;
padding:0}
nav a{display:block;color:inherit;text-decoration:none;padding:.12rem 0;overflow-wrap:anywhere}
nav a:hover{color:var(--mark)}
main a{color:var(--mark)}
main{padding:1.5rem 2.5rem 6rem;min-width:0}
h1{margin:.2rem 0 .5rem;font-size:1.8rem}
section{border-top:1px solid var(--line);margin-top:2.2rem;padding-top:1.2rem}
h2{font-size:1.05rem;margin:0 0 .5rem;display:flex;gap:.6rem;align-items:center;flex-wrap:wrap}
h2 code{font-size:1rem;background:none;padding:0}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,monospace;font-size:.85rem;background:var(--code);border-radius:4px}
code{padding:.1rem .3rem}
pre{padding:.8rem 1rem;overflow:auto;border:1px solid var(--line)}
table{border-collapse:collapse;margin:.6rem 0;display:block;overflow-x:auto}
td,th{border:1px solid var(--line);padding:.3rem .7rem;text-align:left;vertical-align:top}
th{background:var(--code);font-weight:600}
.verb{background:var(--mark);color:var(--back);border-radius:4px;padding:.05rem .5rem;
font:600 .75rem ui-monospace,monospace}
.right{color:var(--soft);font-size:.8rem;font-weight:400}
@media(max-width:52rem){body{display:block}nav{position:static;height:auto;border:0;border-bottom:1px solid var(--line)}
main{padding:1rem}}
"""


# The same append and reading in other languages. BASE stands for the address of the server.
PROGRAMS: Final = {
    "JavaScript": """const headers = {"Content-Type": "application/json"}  // and Authorization: "Bearer KEY"
const event = {type: "MoneyDeposited", tags: ["wallet:w2"], data: {amount: 25}, id: crypto.randomUUID()}
const stored = await fetch("BASE/v1/append", {method: "POST", headers, body: JSON.stringify({events: [event]})})
if (!stored.ok) throw new Error((await stored.json()).detail)
const page = await (await fetch("BASE/v1/events?tag=wallet:w2", {headers})).json()
console.log(page.events.length, page.head)""",
    "Java": """var client = HttpClient.newHttpClient();
var body = "{\\"events\\": [{\\"type\\": \\"WalletOpened\\", \\"tags\\": [\\"wallet:w2\\"]}]}";
var append = HttpRequest.newBuilder(URI.create("BASE/v1/append"))
    .header("Content-Type", "application/json").POST(HttpRequest.BodyPublishers.ofString(body)).build();
System.out.println(client.send(append, HttpResponse.BodyHandlers.ofString()).body());""",
    "Go": """body := strings.NewReader(`{"events": [{"type": "WalletOpened", "tags": ["wallet:w2"]}]}`)
answer, err := http.Post("BASE/v1/append", "application/json", body)
if err != nil {
    log.Fatal(err)
}
defer answer.Body.Close()
io.Copy(os.Stdout, answer.Body)""",
}


@lru_cache(16)
def page(base: str) -> bytes:
    """The description as HTML. `base` is the address of the server, for the commands."""
    operations = [
        (path, verb, operation) for path, verbs in DESCRIPTION["paths"].items() for verb, operation in verbs.items()
    ]
    groups: dict[str, list[str]] = {}
    for path, verb, _ in operations:
        link = f"<a href='#{_anchor(path, verb)}'>{verb.upper()} {escape(path)}</a>"
        groups.setdefault(_group(path), []).append(link)
    contents = "".join(f"<h2>{group}</h2>{''.join(links)}" for group, links in groups.items())
    body = "".join(_section(base, path, verb, operation) for path, verb, operation in operations)
    text = (
        "<!doctype html><html lang=en><head><meta charset=utf-8><title>Fencepost HTTP interface</title>"
        f"<meta name=viewport content='width=device-width'><style>{STYLE}</style></head>"
        f"<body><nav><strong>Fencepost {escape(VERSION)}</strong>{contents}<h2>Errors</h2>"
        "<a href='#problems'>Problems</a><h2>Programs</h2><a href='#programs'>Other languages</a></nav>"
        f"<main><h1>HTTP interface</h1><p>{_marked(DESCRIPTION['info']['description'])} "
        "<a href='/openapi.json'>openapi.json</a> describes the same for programs.</p>"
        "<p>If the server has API keys, send one with each request: <code>Authorization: Bearer KEY</code>. "
        f"Each operation says which right its key needs.</p>{body}{_programs(base)}{_problems()}</main></body></html>"
    )
    return text.encode()


def _group(path: str) -> str:
    if path.startswith("/v1/consumers"):
        return "Consumers"
    if path in ("/v1/restore", "/v1/verify") or not path.startswith("/v1/"):
        return "Operation"
    return "Events"


def _anchor(path: str, verb: str) -> str:
    return verb + path.replace("/", "-").replace("{", "").replace("}", "")


def _section(base: str, path: str, verb: str, operation: dict[str, Any]) -> str:
    right = operation.get("x-right")
    parts = [
        f"<section id='{_anchor(path, verb)}'><h2><span class=verb>{verb.upper()}</span> <code>{escape(path)}</code>",
        f"<span class=right>right: {right}</span></h2>" if right else "</h2>",
        f"<p>{_marked(operation['summary'])} {_marked(operation.get('description', ''))}</p>",
    ]
    if operation.get("parameters"):
        rows = "".join(
            f"<tr><td><code>{escape(each['name'])}</code><td>{each['in']}<td>{_marked(each['description'])}"
            for each in operation["parameters"]
        )
        parts.append(f"<table><tr><th>parameter<th>in<th>meaning{rows}</table>")
    parts.append(f"<pre>{escape(_command(base, path, verb, operation))}</pre>")
    (content,) = operation["responses"]["200"]["content"].values()
    if "example" in content:
        shown = content["example"]
        text = shown if isinstance(shown, str) else msgspec.json.encode(shown).decode()
        parts.append(f"<p>answers</p><pre>{escape(text)}</pre>")
    parts.append("</section>")
    return "".join(parts)


def _command(base: str, path: str, verb: str, operation: dict[str, Any]) -> str:
    """The operation as a command that can be pasted."""
    shown = path.replace("{name}", "occupancy").replace("{position}", "7")
    line = f"curl -s {base}{shown}"
    content = operation.get("requestBody", {}).get("content", {})
    example = content.get("application/json", {}).get("example")
    if example is not None:
        return f"{line} -d '{msgspec.json.format(msgspec.json.encode(example), indent=2).decode()}'"
    if content:
        return f"{line} --data-binary @body -H 'Content-Type: {next(iter(content))}'"
    return line if verb == "get" else f"{line} -X {verb.upper()}"


def _programs(base: str) -> str:
    shown = "".join(
        f"<h2>{language}</h2><pre>{escape(program.replace('BASE', base))}</pre>"
        for language, program in PROGRAMS.items()
    )
    return f"<section id=programs><h2>Other languages</h2>{shown}</section>"


def _problems() -> str:
    rows = "".join(
        f"<tr><td><code>{kind.type}</code><td>{kind.status}<td>{escape(kind.title)}"
        f"<td>{'yes' if kind.retryable else 'no'}"
        for kind in KINDS
    )
    return (
        "<section id=problems><h2>Problems</h2><p>What an answer of <code>application/problem+json</code> may be.</p>"
        f"<table><tr><th>type<th>status<th>title<th>retryable{rows}</table></section>"
    )


def _marked(text: str) -> str:
    """
    >>> _marked("see `after` & more")
    'see <code>after</code> &amp; more'
    """
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
