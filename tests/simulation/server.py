"""A primary in memory: the real Lua files, run by Lua 5.1 on ``commands``.

``test_server.py`` holds it against a real Valkey, command by command and script by script. Rejected: fakeredis, which
parses and locks for every command; the scheduler runs millions of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from tests.simulation.commands import COMMANDS
from tests.simulation.state import ServerError, State

from maxboard.board import scripts
from maxboard.board.scripts import Command
from maxboard.pipeline.ports import Failure

# A reply crosses to Python as one flat tuple: a list is `true`, its length, its items; nil and what follows it is cut.
RUNNER = b"""
local direct = ...
local LISTS = {HGETALL = true, HMGET = true, ZMSCORE = true, ZREVRANGE = true}
redis = {call = function(command, ...)
  if LISTS[command] then return {direct(command, ...)} end
  if command == 'HSCAN' or command == 'ZSCAN' then
    local found = {direct(command, ...)}
    return {table.remove(found, 1), found}
  end
  if command == 'TYPE' then return {ok = direct(command, ...)} end
  return direct(command, ...)
end}
local function flatten(value, out)
  if type(value) ~= 'table' then
    out[#out + 1] = value
    return
  end
  local at = #out + 1
  out[at], out[at + 1] = true, 0
  local count = 0
  for i = 1, #value do
    if value[i] == nil then break end
    flatten(value[i], out)
    count = i
  end
  out[at + 1] = count
end
return function(script, count, ...)
  local words = {...}
  KEYS, ARGV = {}, {}
  for i = 1, count do KEYS[i] = words[i] end
  for i = count + 1, #words do ARGV[i - count] = words[i] end
  local out = {}
  flatten(script(), out)
  return unpack(out)
end
"""
LOADER = b"return function(text) return assert(loadstring(text)) end"
UNKNOWN = Failure("noscript", "NOSCRIPT No matching script.")
Text = Callable[[str], str]  # a script's name to the text that runs


class Interpreter:
    """One Lua runtime; a script's text is compiled once. The server that a call works on is ``state``."""

    def __init__(self, text: Text = scripts.source) -> None:
        runtime = import_module("lupa.lua51").LuaRuntime(encoding=None, unpack_returned_tuples=True)
        load = runtime.execute(LOADER)
        self._call = load(RUNNER)(self._direct)
        self._scripts = {name: load(plain(text(name)).encode()) for name in scripts.SCRIPTS}
        self.state = State()
        self.commands = 0

    def run(self, state: State, command: Command) -> Any:
        """The reply of a script as a client would get it, or a ``Failure``."""
        self.state = state
        words = [str(word).encode() for word in (*command.keys, *command.args)]
        try:
            flat = self._call(self._scripts[command.script], len(command.keys), *words)
        except ServerError as error:
            return Failure("wrong-type", str(error))
        return _value(iter(flat if isinstance(flat, tuple) else (flat,)))

    def _direct(self, command: bytes, *words: bytes) -> Any:
        self.commands += 1
        return COMMANDS[command](self.state, *words)


def plain(text: str) -> str:
    """A script without the line that is for the server: ``#!lua flags=…``."""
    return f"--{text}" if text.startswith("#!") else text


def _value(flat: Any) -> Any:
    value = next(flat)
    if value is True:
        return [_value(flat) for _ in range(next(flat))]
    if value is False:
        return None
    return int(value) if isinstance(value, float) else value


@cache
def interpreter() -> Interpreter:
    """The one with the product's own scripts."""
    return Interpreter()


class Server:
    """One primary: its keys, whether it knows the scripts, and what is wrong with it."""

    def __init__(self, lua: Interpreter) -> None:
        self._lua = lua
        self.state = State()
        self.history: list[State] = [self.state.copy()]  # what a replica can be: any state of this line
        self.loaded = False
        self.trouble: Failure | None = None

    def run(self, command: Command, now: int) -> Any:
        """A script call; a server in trouble runs nothing."""
        if self.trouble is not None:
            return self.trouble
        if not self.loaded:
            return UNKNOWN
        self.state.expire(now)
        reply = self._lua.run(self.state, command)
        self.keep()
        return reply

    def keep(self) -> None:
        """The state is one that a replica may still have later."""
        self.history.append(self.state.copy())

    def become(self, state: State) -> None:
        """Another state takes over: an earlier one, or none."""
        self.state = state.copy()
        self.history.append(self.state.copy())
