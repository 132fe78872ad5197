"""The README's Python blocks run, in order, as one session."""

import re
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def test_readme_blocks_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 4
    namespace = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)
    fitted, boxed = namespace["fitted"], namespace["boxed"][-1]
    assert abs(fitted.coef_).sum() <= 5 * (1 + 1e-12)
    assert boxed.coef_.min() >= 0.0
    assert boxed.coef_.max() <= 0.5
    assert capsys.readouterr().out
