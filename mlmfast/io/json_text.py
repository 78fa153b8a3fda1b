"""JSON as we write it: readable, always valid, one value per line however lines are counted."""

from __future__ import annotations

import json
import math
import re
from typing import Any

# json leaves these raw under ensure_ascii=False: line ends to some readers, or not encodable at all.
UNSAFE = re.compile("[\x80-\x9f\u2028\u2029\ud800-\udfff]")

ON_ONE_LINE = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
INDENTED = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=2)


def to_json(value: Any, *, indented: bool = False) -> str:
    """`value` as JSON, null where a float is not finite."""
    encoder = INDENTED if indented else ON_ONE_LINE
    try:
        text = encoder.encode(value)
    except ValueError:
        text = encoder.encode(finite(value))
    if text.isascii():
        return text
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def finite(value: Any) -> Any:
    """`value` with None for every float that is not finite, in lists and dicts too."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
