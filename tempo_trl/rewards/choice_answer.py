"""Find the option that a statement names: by its letter, by its text, or by both if they agree.

A letter must be a separate token at the beginning of the statement: `A 45-year-old`, `hepatitis B`, `vitamin D` and
`E. coli` name no option. An option's text counts if it is equal up to case, spaces, LaTeX fonts and final stops; if
several match, the longest is taken. Two letters count as no answer, but "B, not D" is B. There is no fuzzy matching:
an ambiguous statement names no option.
"""

import re

from tempo_trl.rewards.boxed import after_thinking
from tempo_trl.rewards.choice_statement import Statement, final_statements
from tempo_trl.rewards.grader import MAX_ANSWER_CHARS

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def chosen_letter(completion: str, options: list[str]) -> str:
    """Letter of the option that a completion commits to, outside of thinking; empty if it commits to none."""
    texts = {letter: plain(option) for letter, option in zip(LETTERS, options, strict=False)}
    letters = (_chosen(statement, texts) for statement in final_statements(after_thinking(completion)))
    return next(filter(None, letters), "")


def _chosen(statement: Statement, texts: dict[str, str]) -> str:
    if not statement.text or len(statement.text) > MAX_ANSWER_CHARS:
        return ""
    text = plain(statement.text)
    return _with_its_text(text, texts) if statement.needs_text else _named(text, texts, statement.is_prose)


_FONT = re.compile(
    r"\\(?:text(?:bf|rm|it|sf|tt|normal)?|math(?:bf|rm|it|sf|tt)|bf|rm|it|sf|left|right|displaystyle|bold(?:symbol)?"
    r"|underline|emph|mbox|large|Large)"
    r"(?![a-zA-Z])|\\[()\[\]$]|[$*`{}\"“”]"
)
_SPACING = re.compile(r"(?:\\[,;:! \\]|~|\\q?quad(?![a-zA-Z])|\s)+")


def plain(text: str | None) -> str:
    """A text without LaTeX's fonts and delimiters, quotes, runs of spaces and final stops."""
    without_escapes = re.sub(r"\\([%&#_])", r"\1", text or "")
    return _SPACING.sub(" ", _FONT.sub("", _SPACING.sub(" ", without_escapes))).strip().rstrip(" .,;:!")


_NOT = re.compile(
    r"[,;]? ?\(?(?:(?:and|but) )?\b(?:(?i:not)|rather than|instead of) (?i:(?:option|choice) )?\(?[A-Z]\b\)?"
    r"(?: ?(?:,|/|or|nor|and) ?\(?[A-Z]\b\)?)*\)?"
)
_BUT = re.compile(r"^[,;.]? ?(?:but|rather|instead)\b,? ?(?:rather |it is |it['’]s )?(?:the )?", re.IGNORECASE)
_WORD = r"(?:(?i:the )?(?i:option|choice|letter|answer)\b(?: is)?[ :]*)?"
_ALONE = re.compile(_WORD + r"[(\[‘']?(?P<letter>[A-Za-z])[)\]’']?")


_MARKED = re.compile(r"[(\[]?(?P<letter>[A-Z])(?: [-–—] |[)\].: ]{1,3})(?P<option>.+)", re.ASCII)


def _with_its_text(line: str, texts: dict[str, str]) -> str:
    """Letter of a line that is a letter, a mark and the text of its option: `B) Digoxin`."""
    marked = _MARKED.fullmatch(line)
    is_option = marked and texts.get(marked["letter"], "").casefold() == marked["option"].casefold()
    return marked["letter"] if is_option else ""


def _named(statement: str, texts: dict[str, str], is_prose: bool) -> str:
    """Letter of the option that a plain statement names; prose may go on behind the name."""
    text = _BUT.sub("", _NOT.sub("", statement)).rstrip(" .,;:!")
    exact = {letter for letter, option in texts.items() if option and option.casefold() == statement.casefold()}
    alone = _ALONE.fullmatch(text)
    if alone and alone["letter"] in texts:
        return alone["letter"]  # even if it is an option's text, as a blood group: the prompt asks for letters
    if exact:
        agrees = not alone or alone["letter"].upper() in exact or alone["letter"].upper() not in texts
        return min(exact) if agrees and len(exact) == 1 else ""
    if alone:
        letter = alone["letter"].upper()
        is_article = is_prose and text[-1] == "a"  # `(a)` is not
        return letter if letter in texts and not is_article else ""
    return _named_in_front(text, texts, is_prose)


_ITS_LETTER = re.compile(r",? [(\[](?:(?i:option|choice|answer) )?(?P<letter>[A-Z])[)\]]", re.ASCII)
_LEAD = re.compile(
    _WORD + r"[(\[]?(?P<letter>[A-Z])(?![\w'’])(?P<mark>[)\]][.:,]?|:|,|\.| [-–—]{1,2}(?= )|—| (?=\()|)", re.ASCII
)


def _named_in_front(text: str, texts: dict[str, str], is_prose: bool) -> str:
    """Letter of the option whose text, or letter and mark, a longer statement begins with."""
    named, behind = _option_in_front(text, {letter: option for letter, option in texts.items() if len(option) > 1})
    own = named and _ITS_LETTER.match(behind)
    if own:  # `Digoxin (B)`
        named, behind = named & {own["letter"]}, behind[own.end() :]
    if len(named) == 1 and (_ENDS.match(behind) if is_prose else own and not behind):
        return named.pop()
    lead = _LEAD.match(text)
    if lead and lead["letter"] in texts:
        return _confirmed(lead["letter"], lead["mark"], text[lead.end() :], texts, is_prose)
    return ""


# Behind the name of an option, a statement ends with its sentence, or where it gives a reason.
_REASON = (
    r"[,;]? (?:because|since|which|due to|(?:even )?though|although|while|whereas|given"
    r"|as (?:it|he|she|they|the|this|these|there|his|her|all|both|only|neither))\b"
    r"|(?:[,;]? (?:as|but)|;) (?:(?:options?|choices?) )?\(?[A-H]\)?(?:(?:,| and| or|, and|, or) [A-H])* "
    r"(?:is|are|was|were|would|can|could|does|do|has|have)\b[^.!?\n]{0,60}"
    r"(?:\b(?:wrong|incorrect|false|not|cannot|excluded|ruled out|impossible|unlikely)\b|n['’]t\b)"
)
_ENDS = re.compile(rf"[.!](?: (?![a-z])|$)|{_REASON}|$")
_SECOND = re.compile(r"(?<![\w'’^+-])[A-H](?![\w'’^+-])")


def _confirmed(letter: str, mark: str, rest: str, texts: dict[str, str], is_prose: bool) -> str:
    """`letter`, if what follows it and its mark agrees; empty where that names another option, or a second letter."""
    body = rest.strip().removeprefix("(").lstrip()
    named, behind = _option_in_front(body, texts)
    if named:
        return letter if letter in named and not _SECOND.search(_until_end(behind)) else ""
    claim = _until_end(rest).strip(" (")
    if _is_part_of_another(claim.rstrip(" .,;:!)"), letter, texts):
        return ""
    if mark == ".":  # `B. This is why` begins a sentence; `E. coli` does not
        return letter if is_prose and re.match(r" (?![a-z])", rest) else ""
    if mark == "":
        return letter if is_prose and _ENDS.match(rest) else ""
    return letter if not _SECOND.search(claim) else ""


def _until_end(text: str) -> str:
    return text[: next(_ENDS.finditer(text)).start()]


_GOES_ON = re.compile(r"[\w%+'’-]|[.,]\d")  # `5` is not in front of `5%` and `5.5`


def _option_in_front(text: str, texts: dict[str, str]) -> tuple[set[str], str]:
    """Letters of the longest option that `text` begins with, several where options are the same, and what follows."""
    fits = {
        letter: len(option)
        for letter, option in texts.items()
        if option and text[: len(option)].casefold() == option.casefold() and not _GOES_ON.match(text, len(option))
    }
    longest = max(fits.values(), default=0)
    return {letter for letter, length in fits.items() if length == longest}, text[longest:]


def _is_part_of_another(claim: str, letter: str, texts: dict[str, str]) -> bool:
    """Whether words are found in another option's text and not in the letter's own."""
    words = re.compile(rf"(?<!\w){re.escape(claim)}(?!\w)", re.IGNORECASE)
    found = {option for option, text in texts.items() if claim and words.search(text)}
    return bool(found) and letter not in found
