"""The report in a real browser: it loads in silence, folds, switches and chooses, and holds what a model may write."""

import re

import pytest

from tempo_trl.report.command import report

from .recorded import (
    HAND_WORKED,
    HOSTILE,
    hand_worked_run,
    hostile_run,
    large_run,
    order_run,
    record,
    rows_of,
    span_rows,
)

pytestmark = pytest.mark.matrix


@pytest.fixture(scope="module")
def hand_worked(tmp_path_factory):
    folder = hand_worked_run(tmp_path_factory.mktemp("hand") / "tempo-seed0")
    return report([folder], pictures=False)


def nodes(page) -> list[str]:
    return page.locator("#tree .node").evaluate_all("nodes => nodes.map((node) => node.getAttribute('aria-label'))")


def completion(page, row: int, kind: str = "method"):
    return page.locator(f".completion[data-row='{row}'] .line.{kind} > div")


def colours(page, row: int, kind: str = "method") -> list[str]:
    return completion(page, row, kind).locator("i").evaluate_all("all => all.map((i) => i.style.backgroundColor)")


def test_the_page_shows_the_tree_of_the_hand_worked_group(hand_worked, open_page):
    page = open_page(hand_worked)
    head = page.locator(".headline > div").first.text_content()
    assert re.fullmatch(r"\d+\.\d% of the credit moved: TEMPO against GRPO", head)
    assert nodes(page) == [
        "prompt: 4 completions, V 0.50",
        "7+5=: 4 completions, V 0.50, TD +0.00",
        "2;2-3=: 3 completions, V 0.67, TD +0.17",
        "8#8: 1 completion, V 0.00, TD −0.67",
        "9#9: 2 completions, V 1.00, TD +0.33",
        "3;3-3=0#0: 1 completion, V 0.00, TD −0.50",
    ]
    assert page.locator("#tree .mark").all_text_contents() == ["✗ ", "✓×2 ", "✗ "]
    heights = page.locator("#tree .node rect").evaluate_all("all => all.map((r) => Number(r.getAttribute('height')))")
    assert heights[0] > heights[2] > heights[4] > heights[3] == heights[5]


def test_clicks_and_keys_walk_and_fold_the_tree(hand_worked, open_page):
    page = open_page(hand_worked)
    node = page.locator("#tree .node[data-node='2']")
    for shown, expanded in [(4, "false"), (6, "true")]:
        node.click()
        assert (len(nodes(page)), node.get_attribute("aria-expanded")) == (shown, expanded)
    page.locator("#tree .node[data-node='0']").focus()
    focused = "document.activeElement.getAttribute('data-node')"
    keys = [
        ("ArrowRight", "1"),
        ("ArrowRight", "2"),
        ("ArrowDown", "3"),
        ("ArrowLeft", "2"),
        ("End", "5"),
        ("Home", "0"),
    ]
    for key, at in keys:
        page.keyboard.press(key)
        assert page.evaluate(focused) == at
    for key, shown in [("Enter", 1), ("ArrowRight", 6)]:
        page.keyboard.press(key)
        assert (page.evaluate(focused), len(nodes(page))) == ("0", shown)
    assert page.locator("#tree [tabindex='0']").count() == 1


def test_the_credit_switches_between_total_td_outcome_and_entropy(hand_worked, open_page):
    page = open_page(hand_worked)
    assert completion(page, 1).text_content() == HAND_WORKED[1]
    assert completion(page, 1, "grpo").text_content() == HAND_WORKED[1]
    total = colours(page, 1)
    assert "--neg" in total[10]
    assert total[10] != total[9] == total[0] == colours(page, 1, "grpo")[0]

    page.locator("#kind label", has_text="TD").click()
    assert [i for i, colour in enumerate(colours(page, 1)) if colour] == [4, 10]
    assert "--pos" in colours(page, 1)[4]
    assert colours(page, 1, "grpo") == [""]

    page.locator("#kind label", has_text="outcome").click()
    assert len(set(colours(page, 1) + colours(page, 1, "grpo"))) == 1

    page.locator("#kind label", has_text="entropy").click()
    assert page.locator(".line.grpo").count() == 0
    assert len(set(colours(page, 1))) > 10


def test_a_token_tells_which_criteria_place_credit_there(tmp_path, open_page):
    page = open_page(report([order_run(tmp_path / "at-places")], pictures=False))
    detail = page.locator("#token-detail")
    completion(page, 1).locator("i[data-token='10']").hover()
    assert "token 11 of completion 2 · GRPO +0.00 · trains with −0.87" in detail.inner_text()
    assert detail.locator(".criterion").all_inner_texts() == ["city: 0, −0.87", "polite: 0, +0.00 (no place)"]
    completion(page, 1).locator("i[data-token='2']").hover()
    assert detail.locator(".criterion").all_inner_texts() == ["polite: 0, +0.00 (no place)"]
    assert page.locator("#kind label:visible").all_inner_texts() == ["total", "outcome", "entropy"]
    underlined = completion(page, 1).locator("i.own").evaluate_all("all => all.map((i) => Number(i.dataset.token))")
    assert underlined == [*range(9, 15), *range(25, 31)]
    stops = completion(page, 1).locator("i[tabindex]").evaluate_all("all => all.map((i) => Number(i.dataset.token))")
    assert stops == [9, 25]

    page = open_page(report([order_run(tmp_path / "before-places", 0.9)], pictures=False))
    completion(page, 1).locator("i[data-token='7']").hover()
    told = page.locator("#token-detail .criterion").all_inner_texts()
    assert told[:2] == ["city: 0, −0.87 × 0.81 before its place", "item: 1, +0.58 × 0.15 before its place"]


def test_neither_a_criterion_without_credit_nor_most_of_a_completion_is_underlined(tmp_path, open_page):
    judged = [{"half": (r, [(0, 4)]), "most": (r, [(0, 5)]), "even": (1.0, [(6, 8)])} for r in (0.0, 1.0)]
    rows = span_rows([list("abcdefgh"), list("abcdefgi")], judged, ("half", "most", "even"), "?")
    page = open_page(report([record(tmp_path / "run", [rows], method="span_credit")], pictures=False))
    assert page.locator("i.own").evaluate_all("all => all.map((i) => i.textContent).join('')") == "abcd" * 2


def test_the_legend_tells_the_darkest_credit_and_what_is_as_dark(tmp_path, open_page):
    """Of 40 completions one is right: its advantage is larger than 95% of all."""
    judged = [{"x": (float(k == 0), [(0, 1)])} for k in range(40)]
    rows = span_rows([["a"]] * 40, judged, ("x",), "?")
    page = open_page(report([record(tmp_path / "run", [rows], method="span_credit")], pictures=False))
    legend = page.locator("#credit-legend").inner_text()
    assert legend == "−0.16+0.16, in units of the advantage; the largest 5%, up to 6.16, are as dark"
    assert len(set(colours(page, 1))) == 1 and colours(page, 1) != colours(page, 0)
    assert "65%" in colours(page, 0)[0] and "65%" in colours(page, 1)[0]


def test_the_first_screen_tells_how_much_credit_moved_also_on_a_phone(tmp_path, open_page):
    page = open_page(report([order_run(tmp_path / "spans-seed0")], pictures=False))
    page.set_viewport_size({"width": 390, "height": 844})
    facts = page.locator(".headline .facts").bounding_box()
    assert facts["y"] + facts["height"] < 844
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_the_criteria_of_a_group_are_listed_and_their_places_framed(hand_worked, tmp_path, open_page):
    page = open_page(report([order_run(tmp_path / "spans-seed0")], pictures=False))
    lines = page.locator("#criteria-table tbody tr")
    assert [line.split("\t") for line in lines.all_inner_texts()] == [
        ["city", "0.50", "0.87", "tokens 10–15", "0.50", "0.87", "0% of 2"],
        ["item", "0.67", "0.77", "tokens 26–31", "0.67", "0.77", "0% of 2"],
        ["polite", "0.00", "0.00", "all tokens", "0.00", "0.00", "100% of 2"],
    ]
    lines.nth(1).hover()
    framed = page.locator("i.place").evaluate_all("all => all.map((i) => i.textContent).join('')")
    assert framed == '"lamp""lamp""desk"'
    page.locator("#question").hover()
    assert page.locator("i.place").count() == 0
    lines.nth(0).focus()
    assert page.locator("i.place").count() == 24
    assert open_page(hand_worked).locator("#criteria").is_hidden()


def test_step_prompt_and_run_are_chosen(hand_worked, open_page):
    page = open_page(hand_worked)
    assert page.locator("#question").inner_text() == "7+5-3?"
    page.locator("#prompt").select_option(label="1: 1+1?")
    assert page.locator("#question").inner_text() == "1+1?"
    assert all("V 1.00" in label for label in nodes(page))
    page.locator("#next").click()
    assert page.locator("#step").input_value() == "4"
    assert page.locator("#question").inner_text() == "7+5-3?"
    page.locator("#step").select_option("0")
    page.locator("#source").select_option(label="tempo-seed0, evaluation")
    assert page.locator("#step").input_value() == "4"
    assert page.locator("input[value='entropy']").is_disabled()
    page.locator("#source").select_option(label="tempo-seed0, training")
    assert page.locator("input[value='entropy']").is_enabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(scheme, hand_worked, open_page, tmp_path):
    """Contrast of at least 4.5 (WCAG AA) for the text of the tree's boxes and of coloured tokens."""
    page = open_page(hand_worked, color_scheme=scheme)
    script = """() => {
      const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
      const over = (colours) => {
        for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
        return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
      };
      const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
      const light = (rgb) => rgb.map(linear).reduce((sum, c, i) => sum + [0.2126, 0.7152, 0.0722][i] * c, 0.05);
      const contrast = (ground, text) => {
        const [a, b] = [light(over(ground)), light(over([...ground, text]))];
        return Math.max(a / b, b / a);
      };
      const card = getComputedStyle(document.querySelector('section')).backgroundColor;
      const pairs = [...document.querySelectorAll('#tree .node text:not(.mark)')].map((text) => [
        contrast([card, getComputedStyle(text.parentElement.querySelector('rect')).fill], getComputedStyle(text).fill),
        text.textContent]);
      for (const token of document.querySelectorAll('.line i')) {
        const style = getComputedStyle(token);
        pairs.push([contrast([card, style.backgroundColor], style.color), token.textContent]);
      }
      return pairs.sort((a, b) => a[0] - b[0])[0];
    }"""
    least, text = page.evaluate(script)
    assert least >= 4.5, text
    page.screenshot(path=tmp_path / f"{scheme}.png")


def test_what_a_model_writes_stays_text(tmp_path, open_page):
    page = open_page(report([hostile_run(tmp_path / "run")], pictures=False))
    assert page.evaluate("window.attacked") is None
    assert page.locator("script").count() == 2
    assert page.locator("main img").count() == 0
    assert page.locator("#question").inner_text() == "<script>window.attacked=3</script>␀⟨U+202E⟩"
    shown = [completion(page, row).inner_text() for row in range(len(HOSTILE))]
    assert shown[0] == "</script><script>window.attacked=1</script>"
    assert shown[1] == '</script><img src=x onerror="window.attacked=2">{{data}}<!--'
    assert shown[2] == "مرحبا بالعالم⟨U+202E⟩txt.exe"
    assert shown[3] == "שלום🙂␀␇␛[2J⟨U+2028⟩$x_1$"
    assert (shown[4], shown[5]) == ("😀 ends", "😉 ends")
    assert shown[6] == "⏎\n⏎\n\t  &lt;b&gt;<0xFF>'\"`"
    assert shown[7] == ""
    assert any(label.startswith("<0xF0><0x9F><0x98>") for label in nodes(page))


def test_a_completion_of_a_hundred_thousand_characters_is_drawn_piece_by_piece(tmp_path, open_page):
    long = [["x"] * 100_000, [*["x"] * 99_999, "y"], ["z"]]
    record(tmp_path, [rows_of(long, [1.0, 0.0, 0.0])])
    page = open_page(report([tmp_path], pictures=False))
    assert completion(page, 0).locator("i").count() == 4000
    page.locator(".completion[data-row='0'] button.more").click()
    assert completion(page, 0).locator("i").count() == 8000
    page.locator("#tree .node[data-node='1']").hover()
    assert "99,999 characters in all" in page.locator("#node-detail").inner_text()


@pytest.mark.parametrize("run", [hand_worked_run, order_run, hostile_run, large_run])
def test_no_table_of_tokens_or_criteria_is_cut_in_a_narrow_window(run, tmp_path, open_page):
    page = open_page(report([run(tmp_path / "run")], pictures=False))
    page.set_viewport_size({"width": 400, "height": 800})
    cut = "all => all.filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.id)"
    assert page.locator("#token-table, #criteria-table").evaluate_all(cut) == []
    number = page.locator("#token-table td.number").first
    assert number.evaluate("cell => getComputedStyle(cell, '::before').content").startswith('"sum |')


def agent_rows() -> list[dict]:
    """Two completions that come to the same room by different doors; one of them stays there for a turn."""
    pieces = [["east", "|", "east", "|", "stop"], ["west", "|", "stop"]]
    rows = rows_of(pieces, [1.0, 0.0], "Where is the key?")
    for row, turns in zip(rows, [[0, -1, 1, -1, 2], [0, -1, 1]], strict=True):
        count = max(turns) + 1
        row |= {"turns": turns, "states": [1, 2, 2][:count], "calls": ["go", "go", ""][3 - count :]}
        row |= {"observed": ["", "<b>cellar</b>", "<b>cellar</b>"][:count], "loss_mask": [n >= 0 for n in turns]}
    return rows


def test_the_turns_of_agents_are_a_table_of_text(hand_worked, tmp_path, open_page):
    page = open_page(report([record(tmp_path / "agents", [agent_rows()])], pictures=False))
    assert page.locator("#turn-table tbody tr").count() == 2
    assert page.locator("#turn-table td[data-turn]").count() == 5
    page.locator("#turn-table td[data-row='0'][data-turn='2']").focus()
    detail = page.locator("#turn-detail")
    assert "turn 3 of completion 1" in detail.inner_text()
    assert detail.locator("pre").all_inner_texts() == ["<b>cellar</b>", "stop"]
    grpo = completion(page, 0, "grpo").locator("i")
    assert grpo.all_inner_texts() == ["east", "|", "east", "|", "stop"]
    assert [colour != "" for colour in colours(page, 0, "grpo")] == [True, False, True, False, True]
    assert open_page(hand_worked).locator("#turns-section").is_hidden()
