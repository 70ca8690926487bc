"""One error tree, by what the caller does next.

DriverError
|-- RetryLater   the same call may succeed later without anybody changing anything (API server down, GPU busy, disk full)
|-- GiveUp       it cannot succeed for this claim any more (claim gone or replaced, device not on this node)
`-- TellUser     somebody has to change something first (configuration, driver installation, settings)

Every message reads: doing what, to what: why; next step. Foreign exceptions do not cross a port: adapters raise these
with the original chained as the cause.
"""

from __future__ import annotations


class DriverError(Exception):
    """`doing` names action and object, `why` the reason, `next_step` what the reader can do (may be empty)."""

    def __init__(self, doing: str, why: str, next_step: str = "") -> None:
        self.doing = doing
        self.why = why
        self.next_step = next_step
        super().__init__(f"{doing}: {why}" + (f"; {next_step}" if next_step else ""))


class RetryLater(DriverError):
    pass


class GiveUp(DriverError):
    pass


class TellUser(DriverError):
    pass
