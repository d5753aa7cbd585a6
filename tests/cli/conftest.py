import pytest

from latentlink.cli import main


@pytest.fixture
def run(capsys):
    """Run `latentlink` with these arguments and return its exit code and what it printed."""

    def command(*arguments):
        with pytest.raises(SystemExit) as caught:
            main([str(part) for part in arguments])
        return caught.value.code, capsys.readouterr()

    return command
