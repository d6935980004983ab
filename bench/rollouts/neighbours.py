"""Programs that one does not want for neighbours, and one that works beside them."""

from __future__ import annotations

from typing import Any

from ratchet.programs.declared import Program, ProgramLimits

ASK = """
import json, os, signal, sys, urllib.request

def ask(text):
    body = json.dumps({"model": "any", "messages": [{"role": "user", "content": text}]}).encode()
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
"""
BAD_S = 3.0
"""A bad one has so long, which is longer than the good one takes."""
GOOD_CALLS = 4
SECRET = "neighbour-secret"
FILES = {"test_it.py": "assert answer() == 1\n"}


def program(code: str, **limits: Any) -> Program:
    main = {"/program/main.py": ASK + code}
    return Program(command=("python3", "-I", "-S", "/program/main.py"), data=main, limits=ProgramLimits(**limits))


def good(calls: int = GOOD_CALLS) -> Program:
    """Waits for the model most of its time, as agents do; ends with what its test says by then."""
    secret = "".join(f"open({path!r}, 'w').write({SECRET!r})\n" for path in ("/tmp/own", "/dev/shm/own", "own.txt"))
    asks = f"for turn in range({calls}):\n  assert ask(f'turn {{turn}}') == f'turn {{turn}}'\n"
    return program(f"{secret}{asks}print(open('test_it.py').read() if os.path.exists('test_it.py') else 'done')")


STAY = "signal.pause()\n"
IGNORE = "for n in range(1, 32):\n  n in (9, 19) or signal.signal(n, signal.SIG_IGN)\n"
BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "hangs": (STAY, {}),
    "refuses to die": (f"{IGNORE}while True: {STAY}", {}),
    "forks without end": ("while True:\n  try: os.fork()\n  except OSError: pass", {"processes": 64}),
    "floods its output": ("while True: print('x' * 9999)", {}),
    "fills the disk": (
        "n = 0\nwhile True:\n  n += 1\n  try: open(str(n % 999), 'ab').write(bytes(1 << 20))\n  except OSError: pass",
        {},
    ),
    "takes memory": ("import time\nx = [os.urandom(1 << 20) * 8 for _ in range(999)]\n" + STAY, {"memory_mb": 256}),
    "uses the processor": ("while True: pass", {}),
    "asks without end": ("while True: ask('x')", {"calls": 9999}),
    "daemonises": (f"if os.fork() == 0:\n  os.setsid()\n  os.fork() or {STAY}print('left', flush=True)", {}),
    "edits its tests": ("open('test_it.py', 'w').write('')\nprint('edited')", {}),
    "reads its neighbour": (
        """
import time
found, until = set(), time.monotonic() + 2
while time.monotonic() < until:
  for top in ("/proc", "/tmp", "/dev/shm", "/workspace", "/run", "/var/tmp"):
    for place, below, names in os.walk(top):
      below[:] = below if place.count("/") < 2 else []
      for name in names:
        path = os.path.join(place, name)
        try:
          if ("neighbour-" + "secret").encode() in open(path, "rb").read(65536): found.add(path)
        except OSError: pass
print(sorted(found))
""",
        {},
    ),
}


def bad(name: str) -> Program:
    code, limits = BAD[name]
    return program(code, **{"seconds": BAD_S, "disk_mb": 32} | limits)
