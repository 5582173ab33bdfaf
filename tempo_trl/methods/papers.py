"""The paper of a method, as TRL's model cards name and cite it."""


def arxiv_paper(arxiv_id: str, key: str, title: str, authors: str) -> dict[str, str]:
    """
    A trainer's `_paper`: its `title`, its `id` on arXiv and on the Hub, and as `citation` its BibTeX entry.

    Args:
        arxiv_id (`str`): Its id, such as `2509.18314`, which begins with the year.
        key (`str`): Key of the BibTeX entry.
        title (`str`): Its title.
        authors (`str`): Its authors, joined by `and`.
    """
    fields = {"title": f"{{{title}}}", "author": authors, "year": f"20{arxiv_id[:2]}", "eprint": f"arXiv:{arxiv_id}"}
    lines = "".join(f"    {name:<12} = {{{value}}},\n" for name, value in fields.items())
    return {"title": title, "id": arxiv_id, "citation": f"@article{{{key},\n{lines}}}"}
