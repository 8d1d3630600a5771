"""Real servers without Docker: Kafka and Valkey as processes of this machine, each in a folder of its own.

::

    stack.py        up, down, status of all servers
    server.py       one server: start, stop, kill, wipe        kafka.py, valkey.py, sentinel.py
    java.py         the Java runtime and Kafka's jars
    ports.py        which port each server gets
    processes.py    a process is a pid and its start time
    state.py        stack.json                                 lock.py, places.py
    config_file.py  maxboard.toml
"""

from maxboard.devstack.server import Answer, Server, Status
from maxboard.devstack.stack import Report, Stack

__all__ = ["Answer", "Report", "Server", "Stack", "Status"]
