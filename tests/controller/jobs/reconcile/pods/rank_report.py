"""Runs in a pod: prints what the rank knows and which ranks it reached.

Arguments: the folder, and the number of ranks.
"""

import json
import pathlib
import socket
import sys
import threading
import time

folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
files = {path.name: path.read_text().strip() for path in folder.iterdir() if path.is_file()}
assert all(path.read_text().endswith("\n") for path in folder.iterdir() if path.is_file())
rank = int(files["rank.txt"])
server = socket.create_server(("0.0.0.0", 7000))
met = [threading.Event() for _ in range(count)]


def answer() -> None:
    while True:
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"%d\n" % rank)
            met[int(connection.makefile().readline())].set()


def ask(host: str) -> int:
    deadline = time.monotonic() + 60
    while True:
        try:
            with socket.create_connection((host, 7000), timeout=5) as connection:
                found = int(connection.makefile().readline())
                connection.sendall(b"%d\n" % rank)
                return found
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


threading.Thread(target=answer, daemon=True).start()
reached = [ask(host) for host in files["nodes.txt"].split()]
pathlib.Path(f"{rank}.json").write_text(json.dumps({"files": files, "reached": reached}))
# No rank leaves before all have met.
for one in met:
    if not one.wait(60):
        sys.exit("somebody never came")
