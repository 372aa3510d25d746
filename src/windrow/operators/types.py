"""What Arrow types say of their values; light, so that binding a query loads no kernel."""

from __future__ import annotations

import pyarrow as pa


def has_interval(type_: pa.DataType) -> bool:
    """Whether values of this type are intervals or have intervals in them."""
    return pa.types.is_interval(type_) or any(has_interval(type_.field(i).type) for i in range(type_.num_fields))
