"""The documentation site: MkDocs, from the Markdown files of the repository."""
