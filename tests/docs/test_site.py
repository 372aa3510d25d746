"""The documentation site has every page."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_page_is_in_the_menu() -> None:
    """`make docs` is strict about links; that a new page was forgotten in the menu is noticed here."""
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2].partition("\nnot_in_nav")[0]
    assert {p.name for p in (ROOT / "docs").glob("*.md") if p.name not in menu} == set()


def test_the_readme_and_the_menu_lead_to_the_same_pages() -> None:
    """Whatever the menu has for readers, the README names, too."""
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2].partition("\nnot_in_nav")[0]
    readme = (ROOT / "README.md").read_text()
    pages = {p.name for p in (ROOT / "docs").glob("*.*") if p.suffix in (".md", ".ipynb")}
    assert {p for p in pages if p not in menu or f"(docs/{p})" not in readme} == set()
