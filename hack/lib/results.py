"""Turns the JUnit file of a test run into the JSON that hack/test --json promises: results.py JUNIT COMMIT SECONDS."""

import json
import os
import platform
import sys
import xml.etree.ElementTree as tree
from datetime import datetime, timezone

junit, commit, seconds = sys.argv[1:]
tests = []
for case in tree.parse(junit).getroot().iter("testcase"):
    bad = any(case.find(tag) is not None for tag in ("failure", "error"))
    left_out = case.find("skipped") is not None
    tests.append(
        {
            "suite": case.get("classname"),
            "name": case.get("name"),
            "seconds": float(case.get("time", 0)),
            "result": "failed" if bad else "not run" if left_out else "passed",
        }
    )
counts = {result: sum(test["result"] == result for test in tests) for result in ("passed", "failed")}
result = {
    "machine": {"system": platform.platform(), "cores": os.cpu_count()},
    "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    "commit": commit,
    "seconds": float(seconds),
    **counts,
    "tests": tests,
}
json.dump(result, sys.stdout, indent=1)
print()
