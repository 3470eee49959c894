"""The documentation site: Sphinx, MyST for Markdown, the theme furo. `scripts/docs` builds it; nothing is fetched."""

from collections.abc import Iterator
from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from sartor.cli.main import app
from sartor.version import __version__

project = "Sartor"
project_copyright = "the authors of Sartor, Apache 2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3  # [text](page.md#a-heading), as GitHub makes anchors
default_role = "code"  # docstrings write `names` in single back-quotes
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
smartquotes = False  # --option stays --option
autodoc_preserve_defaults = True
maximum_signature_line_length = 100

html_theme = "furo"
html_title = f"Sartor {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False


def listed(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its words, in the order of ``--help``."""
    for name in group.list_commands(None):
        command = group.commands[name]
        if hasattr(command, "commands"):
            yield from listed(command, f"{before}{name} ")
        else:
            yield before + name, command


class Commands(SphinxDirective):
    """Every command with its arguments and options, from the command line itself."""

    def run(self) -> list[nodes.Node]:
        """A section each."""
        text = []
        for words, command in listed(typer.main.get_command(app)):
            text += [f"## sartor {words}", "", command.help or "", "", "| | |", "|---|---|"]
            for p in command.params:
                shown = ", ".join(p.opts) if p.param_type_name == "option" else p.name.upper()
                text.append(f"| `{shown}` | {(p.help or '').replace('|', '/')} |")
            text.append("")
        return self.parse_text_to_nodes("\n".join(text), allow_section_headings=True)


def setup(site: Sphinx) -> None:
    """The one directive of our own."""
    site.add_directive("commands", Commands)
