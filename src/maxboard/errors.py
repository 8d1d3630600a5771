"""Every error of the product, sorted by what the caller should do.

::

    MaxboardError
    ├── Retry                  back off and try again; nothing was lost
    │   └── ServerNotReady     a primary or a broker that is loading, full, read-only, or gone
    ├── DeadLetter             this record can never be applied; write it to dead-letters, go on
    └── Stop                   going on would be wrong; say why, exit
        ├── WrongUse           exit 2: a wrong argument, option, or configuration
        │   └── ConfigError
        ├── NotYet             exit 3: true soon, or once somebody acts (board not live, stack down)
        └── Refused            exit 1: the request is understood and is not so

The message of each is one line that says what to do.
"""


class MaxboardError(Exception):
    """Base of all errors that the product raises on purpose."""

    exit_code = 1


class Retry(MaxboardError):
    """Transient: the same call can succeed later."""

    exit_code = 3


class ServerNotReady(Retry):
    """A server cannot take calls now. ``kind`` says why, for metrics: gone, timeout, loading, read-only, silent, …"""

    def __init__(self, text: str, kind: str = "gone") -> None:
        super().__init__(text)
        self.kind = kind


class DeadLetter(MaxboardError):
    """A record that can never be applied.

    ``reason`` is one of the reason classes of the ``dead-letters`` topic; ``str(error)`` is for people.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Stop(MaxboardError):
    """Going on would be wrong."""


class WrongUse(Stop):
    """A wrong argument or option."""

    exit_code = 2


class ConfigError(WrongUse):
    """A configuration that cannot be used; the message says what would fit."""


class NotYet(Stop):
    """Not true yet."""

    exit_code = 3


class Refused(Stop):
    """Understood, and not so."""
