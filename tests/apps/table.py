"""The apps: one row each.

A step is a tuple whose first word names the action. In the other words, ``{n}`` stands for a number
and ``{square}`` for the app's result for that number, so that no earlier output can match:

- ``click CSS``, ``fill CSS TEXT``, ``press CSS KEY``, ``type CSS TEXT``: act as a person does
- ``see CSS TEXT``: wait until the element shows TEXT
- ``read SCRIPT TEXT``: the same for a script's result, for text that is painted on a canvas
- ``fetch CSS PART``: click, and wait for a successful response from an address that contains PART
- ``paint CSS PLACE``: click on a desktop, and wait until it has drawn there
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from deploy.local.apps.catalogue import APPS as DEMO

Step = tuple[str, ...]
Transport = Literal["WebSocket", "server-sent events", "requests"]
Recovery = Literal["reconnects by itself", "works with the next click", "works after a reload"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RealApp:
    """One app.

    Attributes:
        packages: The packages to install, by registry; the first one is the app, with its version.
        source: The content of ``app.py`` in the job.
        command: A shell command, run in the job's folder.
        image: The image, if it is not that of the app's own packages.
        port: The port on which the app listens.
        start: The path in the app at which a browser begins.
        loads: The steps and checks after the opening.
        computes: The steps that are repeated with other numbers.
        recovery: The steps after a restart of the gateway.
        path: What the app has to know of the address that it is served at.
        origin: What it has to know of origins, or of hosts.
    """

    name: str
    title: str
    pypi: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    debian: tuple[str, ...] = ()
    source: str = ""
    command: str
    image: str = ""
    port: int
    start: str = "/"
    loads: tuple[Step, ...]
    computes: tuple[Step, ...]
    transport: Transport
    recovery: Recovery
    path: str = "none"
    origin: str = "none"


_ANSWER: Final = "The square is {square}."
_LAB: Final = DEMO["jupyterlab"]
_CELL: Final = ".jp-Notebook .jp-Cell .cm-content"

_TENSORBOARD: Final = """\
import time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter("logs")
for step in range(100_000):
    value = Summary.Value(tag="square", simple_value=step * step)
    writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
    writer.flush()
    time.sleep(1)
"""
_STREAMLIT: Final = """\
import streamlit
number = streamlit.number_input("Number", value=0, step=1)
if streamlit.button("Square"):
    streamlit.write(f"The square is {number ** 2}.")
"""
_GRADIO: Final = """\
import gradio
with gradio.Blocks() as page:
    number = gradio.Number(label="Number")
    answer = gradio.Markdown("Nothing yet.")
    square = gradio.Button("Square")
    square.click(lambda n: f"The square is {int(n) ** 2}.", number, answer)
page.launch(server_name="0.0.0.0", server_port=7860)
"""
_PANEL: Final = """\
import panel
panel.extension()
number = panel.widgets.IntInput(name="Number", value=0)
answer = panel.pane.Markdown("Nothing yet.")
square = panel.widgets.Button(name="Square")
def show(_event):
    answer.object = f"The square is {number.value ** 2}."
square.on_click(show)
panel.Column(number, square, answer).servable()
"""
_DASH: Final = """\
from dash import Dash, Input, Output, State, callback, dcc, html
app = Dash()
app.layout = html.Div([
    dcc.Input(id="number", type="number", value=0),
    html.Button("Square", id="square"),
    html.Div("Nothing yet.", id="answer"),
])
@callback(Output("answer", "children"), Input("square", "n_clicks"), State("number", "value"),
          prevent_initial_call=True)
def show(_clicks, number):
    return f"The square is {number ** 2}."
app.run(host="0.0.0.0", port=8050)
"""
_SHINY: Final = """\
from shiny import App, reactive, render, ui
page = ui.page_fluid(
    ui.input_numeric("number", "Number", 0),
    ui.input_action_button("square", "Square"),
    ui.output_text("answer"),
)
def server(input, output, session):
    @render.text
    @reactive.event(input.square)
    def answer():
        return f"The square is {input.number() ** 2}."
app = App(page, server)
"""
_NICEGUI: Final = """\
from nicegui import ui
number = ui.number("Number", value=0)
answer = ui.label("Nothing yet.")
def show():
    answer.set_text(f"The square is {int(number.value) ** 2}.")
ui.button("Square", on_click=show)
ui.run(host="0.0.0.0", port=8080, show=False, reload=False)
"""
_MARIMO: Final = """\
import marimo
app = marimo.App()
@app.cell
def _():
    1 + 1
    return
if __name__ == "__main__":
    app.run()
"""
_SSHD: Final = """\
ssh-keygen -q -t ed25519 -N '' -f host && ssh-keygen -q -t ed25519 -N '' -f key
echo "[127.0.0.1]:2222 $(cat host.pub)" > known
LD_LIBRARY_PATH="$DEBIAN/usr/lib/$(uname -m)-linux-gnu" "$DEBIAN/usr/sbin/sshd" -f /dev/null -D \\
    -e -o ListenAddress=127.0.0.1 -o Port=2222 -o HostKey="$PWD/host" -o StrictModes=no \\
    -o AuthorizedKeysFile="$PWD/key.pub" -o PidFile=none &
exec node "$NPM/wetty/build/main.js" --host 0.0.0.0 --port 3000 --base / --ssh-host 127.0.0.1 \\
    --ssh-port 2222 --ssh-user user --ssh-auth publickey --ssh-key "$PWD/key" \\
    --known-hosts "$PWD/known"
"""
XTERM: Final = """\
((buffer) => Array.from({ length: buffer?.length ?? 0 }, (_, row) =>
buffer.getLine(row).translateToString()).join("\\n"))(globalThis.wetty_term?.buffer.active)
"""

_ROWS: Final = (
    RealApp(
        name="jupyterlab",
        title="JupyterLab",
        image=str(_LAB.job["image"]),
        command="exec " + " ".join(_LAB.job["invocation"]["command"]).replace(" --", " \\\n    --"),
        port=8888,
        start="/lab",
        loads=(
            # After a reload the notebook is open, and there is nothing to launch.
            ("click", f'.jp-LauncherCard[data-category="Notebook"], {_CELL}'),
            ("see", '.jp-Notebook-ExecutionIndicator[data-status="idle"]', ""),
        ),
        computes=(
            ("fill", _CELL, "print({n} ** 2)"),
            ("press", _CELL, "Control+Enter"),
            ("see", ".jp-OutputArea-output", "{square}"),
        ),
        transport="WebSocket",
        recovery="works after a reload",
        origin="`--ServerApp.allow_remote_access=True`; no token of its own",
    ),
    RealApp(
        name="tensorboard",
        title="TensorBoard",
        pypi=("tensorboard==2.21.0",),
        source=_TENSORBOARD,
        command="mkdir logs\npython app.py &\n"
        "exec tensorboard --logdir logs --bind_all --port 6006 \\\n"
        "    --load_fast false --reload_interval 1",
        port=6006,
        loads=(("see", "body", "square"),),
        computes=(
            ("fetch", 'button[aria-label="Reload data"], [title^="Last Updated"]', "timeSeries"),
            ("see", "body", "square"),
        ),
        transport="requests",
        recovery="works with the next click",
    ),
    RealApp(
        name="streamlit",
        title="Streamlit",
        pypi=("streamlit==1.67.0",),
        source=_STREAMLIT,
        command="exec streamlit run app.py --server.address 0.0.0.0 --server.port 8501 \\\n"
        "    --server.headless true --browser.gatherUsageStats false",
        port=8501,
        loads=(("see", "button", "Square"),),
        computes=(
            ("fill", "input[type=number]", "{n}"),
            ("press", "input[type=number]", "Enter"),
            ("click", "button:has-text('Square')"),
            ("see", ".stMarkdown", _ANSWER),
        ),
        transport="WebSocket",
        recovery="reconnects by itself",
    ),
    RealApp(
        name="gradio",
        title="Gradio",
        pypi=("gradio==6.31.0",),
        source=_GRADIO,
        command="export GRADIO_ANALYTICS_ENABLED=False\nexec python app.py",
        port=7860,
        loads=(("see", "button", "Square"),),
        computes=(
            ("fill", "input[type=number]", "{n}"),
            ("click", "button:has-text('Square')"),
            ("see", "body", _ANSWER),
        ),
        transport="server-sent events",
        recovery="works with the next click",
    ),
    RealApp(
        name="panel",
        title="Panel",
        pypi=("panel==1.9.4",),
        source=_PANEL,
        command="exec panel serve app.py --address 0.0.0.0 --port 5006 "
        "--allow-websocket-origin '*'",
        port=5006,
        start="/app",
        loads=(("see", "button", "Square"),),
        computes=(
            ("fill", "input", "{n}"),
            ("press", "input", "Tab"),
            ("click", "button:has-text('Square')"),
            ("see", "p", _ANSWER),
        ),
        transport="WebSocket",
        recovery="works after a reload",
        origin="`--allow-websocket-origin '*'`: Bokeh compares the page's origin with a list",
    ),
    RealApp(
        name="dash",
        title="Dash",
        pypi=("dash==4.4.1",),
        source=_DASH,
        command="exec python app.py",
        port=8050,
        loads=(("see", "#square", "Square"),),
        computes=(
            ("fill", "#number", "{n}"),
            ("press", "#number", "Tab"),
            ("click", "#square"),
            ("see", "#answer", _ANSWER),
        ),
        transport="requests",
        recovery="works with the next click",
    ),
    RealApp(
        name="shiny",
        title="Shiny for Python",
        pypi=("shiny==1.8.0",),
        source=_SHINY,
        command="exec shiny run --host 0.0.0.0 --port 8000 app.py",
        port=8000,
        loads=(("see", "#square", "Square"),),
        computes=(
            ("fill", "#number", "{n}"),
            ("press", "#number", "Tab"),
            ("click", "#square"),
            ("see", "#answer", _ANSWER),
        ),
        transport="WebSocket",
        recovery="works after a reload",
    ),
    RealApp(
        name="nicegui",
        title="NiceGUI",
        pypi=("nicegui==3.18.0",),
        source=_NICEGUI,
        command="exec python app.py",
        port=8080,
        loads=(("see", "button", "Square"),),
        computes=(
            ("fill", "input[type=number]", "{n}"),
            ("press", "input[type=number]", "Tab"),
            ("click", "button:has-text('Square')"),
            ("see", "body", _ANSWER),
        ),
        transport="WebSocket",
        recovery="works after a reload",
    ),
    RealApp(
        name="marimo",
        title="marimo",
        pypi=("marimo==0.25.2",),
        source=_MARIMO,
        command="exec marimo edit app.py --headless --no-token --host 0.0.0.0 --port 2718 "
        "--skip-update-check",
        port=2718,
        loads=(("see", ".cm-content", "1 + 1"),),
        computes=(
            ("fill", ".cm-content", "{n} ** 2"),
            ("press", ".cm-content", "Control+Enter"),
            ("see", ".output-area", "{square}"),
        ),
        transport="WebSocket",
        recovery="reconnects by itself",
        origin="no token of its own (`--no-token`)",
    ),
    RealApp(
        name="wetty",
        title="WeTTY with sshd",
        npm=("wetty@3.2.0",),
        debian=("openssh-server",),
        command=_SSHD,
        port=3000,
        loads=(("read", XTERM, "$"),),
        computes=(
            ("type", ".xterm-helper-textarea", "echo =$(({n} * {n}))=\n"),
            ("read", XTERM, "={square}="),
        ),
        transport="WebSocket",
        recovery="works after a reload",
        path="`--base /`",
    ),
    RealApp(
        name="novnc",
        title="noVNC",
        pypi=("websockify==0.13.0",),
        debian=("novnc",),
        command='PYTHONPATH="$PROJECT" "$PROJECT_PYTHON" -m deploy.local.apps.desktop &\n'
        "until (: < /dev/tcp/127.0.0.1/5900) 2> /dev/null; do sleep 0.2; done\n"
        'exec websockify --web "$DEBIAN/usr/share/novnc" 0.0.0.0:6080 127.0.0.1:5900',
        port=6080,
        start="/vnc.html?autoconnect=true",
        loads=(("see", "canvas", ""),),
        computes=(("paint", "canvas", "{n}"),),
        transport="WebSocket",
        recovery="works after a reload",
    ),
)
REAL_APPS: Final[Mapping[str, RealApp]] = MappingProxyType({row.name: row for row in _ROWS})
