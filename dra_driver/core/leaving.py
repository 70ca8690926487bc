"""The last thing an agent does when the driver is uninstalled: nobody comes after it to undo what is left."""

from __future__ import annotations

import logging
from collections.abc import Collection

from dra_driver.core.driver import Driver
from dra_driver.core.rooms import Rooms
from dra_driver.model.errors import DriverError

log = logging.getLogger(__name__)


def leave(driver: Driver, rooms: Rooms) -> Collection[str]:
    """Undoes what is prepared for claims that are gone. The UIDs of those that are not: their pods may be running."""
    for uid in sorted(rooms.ledger.uids()):
        try:
            record = rooms.ledger.find(uid)
            if record is not None and not rooms.claims.exists(record.ref):
                log.info("undoing %s: it is gone", record.ref)
                driver.take_down(uid)
        except DriverError as error:
            log.warning("leaving claim UID %s as it is: %s", uid, error, extra={"claim_uid": uid})
    for broken in rooms.ledger.damaged():
        try:
            if rooms.claims.find(broken.uid) is None:
                driver.take_down(broken.uid, lambda now: not driver.is_ready(now))
        except DriverError as error:
            log.warning("leaving claim UID %s as it is: %s", broken.uid, error, extra={"claim_uid": broken.uid})
    return sorted({*rooms.ledger.uids(), *(broken.uid for broken in rooms.ledger.damaged())})
