"""`dra-driver uninstall`: what the chart does before it is uninstalled. Refuses while GPUs are in use, naming the claims."""

from __future__ import annotations

import argparse
import sys

from dra_driver.kube.client import KubeApi
from dra_driver.kube.discovery import Discovery
from dra_driver.kube.uninstall import DaemonSet, claims_in_use, withdraw_slices
from dra_driver.model.errors import TellUser


def run(arguments: argparse.Namespace) -> int:
    try:
        timeout_s = float(arguments.timeout_s)
    except ValueError:
        raise TellUser("reading --timeout-s", f"{arguments.timeout_s!r} is no number of seconds", "give one") from None
    api = KubeApi(arguments.kubeconfig or None)
    version = Discovery(api).version()
    driver = arguments.driver_name
    claims = claims_in_use(api, version, driver)
    if claims:
        print(f"GPUs of {driver} are in use by {len(claims)} claim{'' if len(claims) == 1 else 's'}:", file=sys.stderr)
        for claim in claims:
            print(f"  {claim}", file=sys.stderr)
        if not arguments.force:
            print(
                "Nothing was uninstalled, and everything goes on working. Delete these pods (and claims that were made by "
                "hand), then run `helm uninstall` again. To uninstall all the same: `helm uninstall --no-hooks`; pods that "
                "run keep their GPUs. To stay: `helm rollback RELEASE REVISION` to the last one of `helm history`, as Helm "
                "calls the release uninstalling by now.",
                file=sys.stderr,
            )
            return 1
    if arguments.daemonset:
        DaemonSet(api, arguments.daemonset).remove(timeout_s)
        print(f"DaemonSet {arguments.daemonset} and its agents are gone", file=sys.stderr)
    print(f"{withdraw_slices(api, version, driver)} ResourceSlices were left and are deleted", file=sys.stderr)
    return 0
