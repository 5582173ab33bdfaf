"""The pictures of the report in docs/images: a run of the demonstration's recipe and the README's group, in Chromium.

make screenshots
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tempo_trl.report.command import report
from tests.report.conftest import NAMES
from tests.report.recorded import hand_worked_run

IMAGES = Path(__file__).with_name("images")
TRAIN = "train --config sums/tempo --log_trees_steps 4 --output_dir"


def main() -> None:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        sys.exit(f"no browser: none of {', '.join(NAMES)} is on the path (Debian: apt-get install chromium)")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses root with one
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        run = Path(folder, "tempo")
        subprocess.run([sys.executable, "-m", "tempo_trl", *TRAIN.split(), str(run)], check=True)
        chromium = driver.chromium.launch(executable_path=path, args=[*sandbox, "--disable-gpu"])
        page = chromium.new_page(viewport={"width": 1100, "height": 900}, color_scheme="light")
        show(page, report([run], pictures=False))
        save(page.screenshot(), "report.png")
        show(page, report([hand_worked_run(Path(folder, "tempo-seed0"))], pictures=False))
        page.set_viewport_size({"width": 1100, "height": 3000})
        top, bottom = (page.locator(f"section:has({part})").bounding_box() for part in ("#tree", "#credit"))
        height = bottom["y"] + bottom["height"] - top["y"]
        save(page.screenshot(clip={"x": 0, "y": top["y"], "width": 1100, "height": height}), "report_group.png")
        chromium.close()


def show(page: Page, html: Path) -> None:
    page.goto(html.as_uri())
    page.locator("#tree .node").first.wait_for()


def save(picture: bytes, name: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / name).write_bytes(picture)
    print(f"{IMAGES / name}: {len(picture) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
