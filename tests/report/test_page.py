import re

import pytest

from latentlink.report.page import Table, page


@pytest.fixture
def figure():
    matplotlib = pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    assert matplotlib
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([0, 1], [0, 1])
    return figure


def test_a_page_holds_everything_and_fetches_nothing(tmp_path, figure):
    pytest.importorskip("jinja2")
    path = page(
        "Title <b>",
        [
            (
                "Heading",
                "One.\n\nTwo & three.",
                [Table(["name", "value"], [["a<b", 0.123456]], "Caption"), figure],
            )
        ],
        tmp_path / "new" / "report.html",
    )
    html = path.read_text()
    for text in (
        "Title &lt;b&gt;",
        "<p>One.</p>",
        "<p>Two &amp; three.</p>",
        "a&lt;b",
        "0.1235",
        "Caption",
        "<svg",
    ):
        assert text in html
    assert "<?xml" not in html
    assert not re.search(r"<(script|link|img)|@import|url\(http", html)
