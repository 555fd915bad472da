"""The harness of the text cases: what it accepts, rewrites and refuses."""

from pathlib import Path

import pytest

from tests.stories.datadriven import CaseError, Command, parse_command, run_file

STORY = """\
# Goal: a story.

say what='a b' twice=yes
----
a b
a b

# Input and no answer.
upper
one
two
----
ONE
TWO

quiet
----
"""


def answer(command: Command) -> str:
    if command.name == "say":
        return "\n".join([command.take("what")] * (2 if command.given("twice") else 1))
    if command.name == "upper":
        return "\n".join(command.read()).upper()
    if command.name == "broken":
        return "one\n\ntwo"
    return ""


def write(path: Path, text: str) -> Path:
    file = path / "story.txt"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_right_story_passes(tmp_path: Path) -> None:
    file = write(tmp_path, STORY)
    run_file(file, answer, rewrite=False)
    run_file(file, answer, rewrite=True)
    assert file.read_text(encoding="utf-8") == STORY


@pytest.mark.parametrize("wrong", ["ONE\n", "ONE\nTWO\nTHREE\n", "", "one\ntwo\n"])
def test_another_answer_fails_and_is_rewritten(tmp_path: Path, wrong: str) -> None:
    file = write(tmp_path, STORY.replace("ONE\nTWO\n", wrong))
    with pytest.raises(AssertionError, match=r"TWO|THREE"):
        run_file(file, answer, rewrite=False)
    run_file(file, answer, rewrite=True)
    assert file.read_text(encoding="utf-8") == STORY


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("say what=a loud=yes\n----", "say does not take loud"),
        ("say\n----", "say needs what="),
        ("say what=a\nnobody reads this\n----", "say takes no input"),
        ("say what=a what=b\n----", "'what=b'"),
        ("say aloud\n----", "'aloud'"),
        ("say what=a", "has no ----"),
        ("broken\n----", "empty line"),
    ],
)
@pytest.mark.parametrize("rewrite", [False, True])
def test_a_wrong_case_is_refused(tmp_path: Path, block: str, message: str, rewrite: bool) -> None:
    text = f"# Goal: a mistake.\n\nquiet\n----\n\n{block}\n"
    file = write(tmp_path, text)
    with pytest.raises(CaseError, match=message) as caught:
        run_file(file, answer, rewrite)
    assert caught.value.__notes__ == ["story.txt, line 6"]
    assert file.read_text(encoding="utf-8") == text


def test_a_file_says_its_goal(tmp_path: Path) -> None:
    with pytest.raises(CaseError, match="goal"):
        run_file(write(tmp_path, "quiet\n----\n"), answer, rewrite=True)


def test_words_are_split_as_in_a_shell() -> None:
    command = parse_command("create stream=s policy='{a: [1, 2]}' policies=")
    assert command.arguments == {"stream": "s", "policy": "{a: [1, 2]}", "policies": ""}
