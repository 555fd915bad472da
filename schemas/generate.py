"""Writes the files that are derived from the models.

These are `json/*.schema.json`, `asyncapi.json`, the tables of the README, and topics, users and
alerting rules of the Helm chart.

python -m schemas.generate           rewrite what is stale
python -m schemas.generate --check   change nothing; exit status 1 if something is stale
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from schemas.asyncapi import document
from schemas.base import WireModel
from schemas.cluster import ClusterFile
from schemas.codes import REASONS
from schemas.envelope import VERSION, type_name
from schemas.inputs import INPUTS
from schemas.kubernetes import alerting_rules, kafka_topics, kafka_users
from schemas.outputs import OUTPUTS
from schemas.refusals import REFUSALS
from schemas.topics import CATALOGUE, full_name
from schemas.words import ALERTS, CAUSES, HEALTH, MOVES, RULES

PACKAGE = Path(__file__).parent
EXAMPLES = PACKAGE / "examples"
CHART_FILES = PACKAGE.parent / "deploy" / "helm" / "files"
ALERTING_RULES = PACKAGE.parent / "deploy" / "prometheus" / "rules.yaml"
DIALECT = "https://json-schema.org/draft/2020-12/schema"

MODELS: Mapping[str, type[WireModel]] = {**INPUTS, **OUTPUTS, "ClusterFile": ClusterFile}
"""Everything that has a published schema, by name."""


def json_schema(name: str) -> dict[str, Any]:
    """Make the JSON Schema of one model, with the dialect and a versioned identifier."""
    return {
        "$schema": DIALECT,
        "$id": f"urn:placement:{name}:v{VERSION}",
        **MODELS[name].model_json_schema(by_alias=True),
    }


def examples() -> dict[str, dict[str, Any]]:
    """Load the canonical example of every model, by name."""
    return {
        name: json.loads((EXAMPLES / f"{name}.json").read_text("utf-8")) for name in sorted(MODELS)
    }


def schema_files() -> dict[Path, str]:
    """Make path and content of every schema file; equal models give equal bytes."""
    return {
        PACKAGE / "json" / f"{name}.schema.json": _dump(json_schema(name))
        for name in sorted(MODELS)
    }


def readme(text: str) -> str:
    """Renew the README between its `<!-- name -->` and `<!-- /name -->` marks."""
    for name, table in _tables().items():
        opening, closing = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(opening)
        _, found, after = rest.partition(closing)
        if not found:
            raise ValueError(f"the README lacks the marks of the table '{name}'")
        text = f"{before}{opening}{table}{closing}{after}"
    return text


def _tables() -> dict[str, str]:
    return {
        "topics": _table(
            "topic | direction | cleanup | key | partitions | messages | what it is",
            (
                f"`{full_name(t)}` | {t.direction} | {t.cleanup} | {_code(t.key)} | {t.partitions} "
                f"| {', '.join(t.messages)} | {t.description}"
                for t in CATALOGUE
            ),
        ),
        "messages": _table(
            "message | type | topic | what it says",
            (
                f"[{m}](json/{m}.schema.json) ([example](examples/{m}.json)) | `{type_name(m)}` "
                f"| `{t.name}` | {_first_sentence(MODELS[m])}"
                for t in CATALOGUE
                for m in t.messages
            ),
        ),
        "refusals": _table(
            "code | meaning | what to do",
            (f"`{code}` | {advice.meaning} | {advice.action}" for code, advice in REFUSALS.items()),
        ),
        "reasons": _table(
            "code | band | meaning | what to do",
            (
                f"`{code}` | {advice.band} | {advice.meaning} | {advice.action}"
                for code, advice in REASONS.items()
            ),
        ),
        "moves": _table(
            "kind | `remove` | `add` | meaning | what the executor does | the old copy may go",
            (
                f"`{kind}` | {'set' if advice.removes else 'absent'} | "
                f"{'set' if advice.adds else 'absent'} | {advice.meaning} | {advice.action} | "
                f"{advice.old_copy}"
                for kind, advice in MOVES.items()
            ),
        ),
        "alerts": _table(
            "kind | severity | what it reports | what to do",
            (
                f"`{kind}` | {advice.severity} | {advice.meaning} | {advice.action}"
                for kind, advice in ALERTS.items()
            ),
        ),
        "health": _table(
            "word | meaning | what to do",
            (f"`{word}` | {advice.meaning} | {advice.action}" for word, advice in HEALTH.items()),
        ),
        "rules": _table(
            "rule | what it asks for | what to do",
            (f"`{rule}` | {advice.meaning} | {advice.action}" for rule, advice in RULES.items()),
        ),
        "causes": _table(
            "cause | what it says | what to do",
            (f"`{cause}` | {advice.meaning} | {advice.action}" for cause, advice in CAUSES.items()),
        ),
    }


def _table(head: str, rows: Iterable[str]) -> str:
    ruler = " | ".join("---" for _ in head.split("|"))
    return "".join(f"| {line} |\n" for line in (head, ruler, *rows))


def _code(key: str) -> str:
    return key if " " in key else f"`{key}`"


def _first_sentence(model: type[WireModel]) -> str:
    return " ".join((model.__doc__ or "").split()).partition(". ")[0].rstrip(".")


def _dump(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _relative_path(path: Path) -> Path:
    return path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else CHART_FILES.parents[2])


def main(arguments: list[str]) -> int:
    """Exit status: 0 all fresh or rewritten, 1 stale under `--check`, 2 wrong usage."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m schemas.generate [--check]", file=sys.stderr)
        return 2
    readme_path = PACKAGE / "README.md"
    wanted = schema_files() | {
        readme_path: readme(readme_path.read_text("utf-8")),
        PACKAGE / "asyncapi.json": _dump(document(MODELS, examples())),
        CHART_FILES / "topics.yaml": kafka_topics(),
        CHART_FILES / "users.yaml": kafka_users(),
        CHART_FILES / "rules.yaml": alerting_rules(ALERTING_RULES.read_text("utf-8")),
    }
    found = {path for path in (PACKAGE / "json").iterdir() if path.suffix == ".json"}
    superfluous = sorted(found - wanted.keys())
    stale = [p for p, text in wanted.items() if not p.exists() or p.read_text("utf-8") != text]
    for path in [*stale, *superfluous]:
        print(f"{'stale' if arguments else 'renewed'}: {_relative_path(path)}")
    if arguments:
        return 1 if stale or superfluous else 0
    for path in stale:
        path.write_text(wanted[path], "utf-8")
    for path in superfluous:
        path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
