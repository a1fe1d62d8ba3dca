"""`python -m loomid.lmp > docs/lmp.schema.json`: write the JSON Schema of every LMP type."""

from __future__ import annotations

import json
import sys

from loomid.lmp import envelope


def text() -> str:
    """The schema as docs/lmp.schema.json holds it."""
    return json.dumps(envelope.schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
