"""The pages of a run store as files: what `laststand site` writes, for any web server or to open from disk."""

import shutil
from pathlib import Path

from harness.errors import UsageError
from harness.site.content import SiteContent
from results.report.build import write_text

INDEX = "index.html"
MARKER = ".laststand-site"
"""A file in folders that were written by this module: only these may be replaced."""


def write_site(content: SiteContent, folder: Path) -> Path:
    """Writes all pages; replaces an earlier site.

    Args:
        content: The pages.
        folder: Where to write; missing, empty, or an earlier site.

    Returns:
        The path of the index.

    Raises:
        UsageError: The folder has something else in it, or cannot be written.
    """
    try:
        _prepare(folder)
        for page in content.pages():
            (folder / page).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(content.store.root / page, folder / page)
        write_text(folder / INDEX, content.index())
    except OSError as error:
        raise UsageError(f"the site cannot be written to {folder}: {error.strerror}") from None
    return folder / INDEX


def _prepare(folder: Path) -> None:
    marker = folder / MARKER
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a directory")
    if folder.is_dir() and any(folder.iterdir()) and not marker.is_file():
        raise UsageError(
            f"{folder} has files that are not of a site; name a new or an empty directory"
        )
    folder.mkdir(parents=True, exist_ok=True)
    marker.write_text(
        "Written by laststand site, which replaces everything here.\n", encoding="utf-8"
    )
    for path in folder.iterdir():
        if path == marker:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
