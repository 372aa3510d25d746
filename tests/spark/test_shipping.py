"""What runs reaches the workers of this machine by files, and others by broadcast variables."""

from windrow.runtime.program import Deployment
from windrow.spark.shipping import FiledBytes, Shipping


def test_files_go_when_something_else_runs(tmp_path):
    """A deployment is one file while it stays the same; the next takes its place, and none is left at the end."""
    shipping = Shipping(None, str(tmp_path))
    first, second = Deployment(), Deployment()
    sent = shipping.ship(first)
    assert isinstance(sent.packed, FiledBytes)
    assert shipping.ship(first) is sent
    assert sent.load()[0] == first
    (before,) = tmp_path.iterdir()
    shipping.ship(second)
    (after,) = tmp_path.iterdir()
    assert before != after
    shipping.close()
    assert not list(tmp_path.iterdir())
