"""Reading inputs as records, writing results as resumable outputs."""

from mlmfast.io.output import ResumableOutput
from mlmfast.io.readers import INPUT_FORMATS, read_records
from mlmfast.io.records import InputRecord
from mlmfast.io.standard_output import StdoutOutput, open_output
from mlmfast.io.writers import header_line, record_lines

__all__ = [
    "INPUT_FORMATS",
    "InputRecord",
    "ResumableOutput",
    "StdoutOutput",
    "header_line",
    "open_output",
    "read_records",
    "record_lines",
]
