"""An archive on disk of rows whose ends are known when they come (thesis, chapter 4): probed by key, and scanned."""

from windrow.archive.index import ArchiveIndex, ArchiveState, Update
from windrow.archive.keys import OPEN
from windrow.archive.layout import ArchiveLayout, advised
from windrow.archive.subindex import Traffic

__all__ = ["OPEN", "ArchiveIndex", "ArchiveLayout", "ArchiveState", "Traffic", "Update", "advised"]
