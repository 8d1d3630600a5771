"""The published schemas are what the code generates, and say what the decoders do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator

from maxboard import changes, schemas, wire
from maxboard.config import Kafka, Topics
from maxboard.errors import DeadLetter
from maxboard.log.topics import needs
from maxboard.model import REASONS
from maxboard.moderation.events import decode_event, encode_event

FOLDER = Path(__file__).resolve().parents[2] / "schemas"
EXAMPLES = FOLDER / "examples"
RUN, CHANGE, EVENT = "run.v1", "rank-change.v1", "moderation.v1"
# What JSON Schema, or its checker here, cannot say; all else that is JSON must fail the schema too.
WIRE_ALONE = {
    "id-ends-in-line-feed",  # ECMA's "$" refuses it, Python's takes a line feed after it
    "id-of-65-digits",
    "id-written-as-7.0",  # an integer, says JSON Schema
    "time-written-as-1.0",
    "score-of-1001-decimals",
    "time-february-30",
    "time-year-0",
    "time-before-year-1-in-utc",
    "repeated-key",
    "repeated-key-behind-an-escape",
    "tags-repeat-a-key",
    "unknown-field-repeats-a-key",
    "tag-lone-surrogate",
    "unknown-field-lone-surrogate",
    "unknown-field-too-deep",
}
# … of moderation.v1: what fields say together, and what JSON Schema cannot say.
EVENT_ALONE = {
    "also-of-another-player",
    "run-of-another-id",
    "run-of-another-player",
    "at-february-30",
    "id-ends-in-line-feed",
    "lone-surrogate",
    "run-score-of-1001-decimals",
}


def examples(name: str, quality: str) -> list[Any]:
    return [pytest.param(path, id=path.stem) for path in sorted((EXAMPLES / name / quality).iterdir())]


def validator(name: str) -> Draft202012Validator:
    schema = json.loads((FOLDER / f"{name}.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


RUNS, CHANGES, EVENTS = validator(RUN), validator(CHANGE), validator(EVENT)


def documents(path: Path) -> list[Any]:
    """The JSON of a file as a lenient reader takes it; none when it is no JSON."""
    try:
        return [json.loads(path.read_text(encoding="utf-8"))]
    except ValueError:
        return []


def test_the_schema_files_are_what_the_code_generates(tmp_path: Path) -> None:
    """No drift: python -m maxboard.schemas changes nothing."""
    written = schemas.write(tmp_path)
    others = {"openapi.json"}  # of the HTTP API, which has a generator of its own
    assert {path.name for path in written} == {path.name for path in FOLDER.glob("*.json")} - others
    for path in written:
        assert path.read_text() == (FOLDER / path.name).read_text(), f"run python -m maxboard.schemas for {path.name}"


def test_every_schema_has_an_id_a_title_a_description_and_its_version() -> None:
    """A schema that is passed around alone still says what it is."""
    for name in (RUN, CHANGE, EVENT):
        schema = json.loads((FOLDER / f"{name}.json").read_text())
        assert (schema["$id"], schema["title"], schema["version"]) == (f"urn:maxboard:schema:{name}", name, 1)
        assert schema["description"]


def test_a_field_that_only_the_model_has_stops_the_generator() -> None:
    """A new field cannot be published without its rule."""

    class Longer(wire.RunWire):
        region: str = ""

    with pytest.raises(AssertionError, match="region"):
        schemas._schema(RUN, Longer, "", schemas.RUN_FIELDS)


@pytest.mark.parametrize("path", examples(RUN, "good"))
def test_a_good_run_passes_the_schema_and_is_decoded(path: Path) -> None:
    """What the schema's reader may send, the applier takes."""
    RUNS.validate(json.loads(path.read_bytes()))
    assert wire.decode(path.read_bytes()) == wire.parse(path.read_bytes())


@pytest.mark.parametrize("path", examples(RUN, "bad"))
def test_a_bad_run_is_refused_by_the_decoder_and_where_it_can_by_the_schema(path: Path) -> None:
    """theupdateframework/python-tuf#372, pydantic/pydantic#3994: the file's name says why it is bad."""
    with pytest.raises(DeadLetter) as refusal:
        wire.decode(path.read_bytes())
    assert refusal.value.reason in REASONS
    for document in documents(path):
        # a reader in another language has no NaN and no infinity: this checker lets them pass as numbers
        lenient = path.stem in WIRE_ALONE | {"score-nan"}
        assert RUNS.is_valid(document) == lenient


def test_what_only_the_decoder_refuses_is_listed_once_and_exists() -> None:
    """The list does not outlive its files."""
    assert {path.stem for path in (EXAMPLES / RUN / "bad").iterdir()} >= WIRE_ALONE


@pytest.mark.parametrize("path", examples(CHANGE, "good"))
def test_a_good_rank_change_passes_the_schema_and_survives_a_round_trip(path: Path) -> None:
    """A consumer that decodes and encodes again loses nothing that it knows."""
    document = json.loads(path.read_bytes())
    CHANGES.validate(document)
    again = json.loads(changes.encode_change(changes.decode_change(path.read_bytes())))
    assert again == {name: value for name, value in document.items() if name in schemas.CHANGE_FIELDS}
    assert len(again) == len(schemas.CHANGE_FIELDS)


@pytest.mark.parametrize("path", examples(CHANGE, "bad"))
def test_a_bad_rank_change_is_refused_by_the_schema(path: Path) -> None:
    """The file's name says why it is bad."""
    assert not CHANGES.is_valid(json.loads(path.read_bytes()))


@pytest.mark.parametrize("name", ["epoch-missing", "composite-as-number", "rank-as-text", "cause-unknown"])
def test_a_rank_change_of_wrong_types_is_not_decoded(name: str) -> None:
    """The decoder checks types; what fields say together is the schema's."""
    with pytest.raises(msgspec.ValidationError):
        changes.decode_change((EXAMPLES / CHANGE / "bad" / f"{name}.json").read_bytes())


# --------------------------------------------------------------------------------------- moderation
@pytest.mark.parametrize("path", examples(EVENT, "good"))
def test_a_good_moderation_event_passes_the_schema_and_survives_a_round_trip(path: Path) -> None:
    """What the schema's reader may send, every process takes; and what is written again says the same."""
    EVENTS.validate(json.loads(path.read_bytes()))
    event = decode_event(path.read_bytes())
    again = encode_event(event)
    EVENTS.validate(json.loads(again))
    assert decode_event(again) == event


@pytest.mark.parametrize("path", examples(EVENT, "bad"))
def test_a_bad_moderation_event_is_refused_by_the_decoder_and_where_it_can_by_the_schema(path: Path) -> None:
    """The file's name says why it is bad; one bad event must not stop an applier."""
    with pytest.raises(DeadLetter) as refusal:
        decode_event(path.read_bytes())
    assert refusal.value.reason == "invalid"
    for document in documents(path):
        assert EVENTS.is_valid(document) == (path.stem in EVENT_ALONE)


def test_what_only_the_event_decoder_refuses_is_listed_once_and_exists() -> None:
    """The list does not outlive its files."""
    assert {path.stem for path in (EXAMPLES / EVENT / "bad").iterdir()} >= EVENT_ALONE


# ----------------------------------------------------------------------------------------- AsyncAPI
ASYNCAPI = yaml.safe_load((FOLDER / "asyncapi.yaml").read_text())


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [*([node["$ref"]] if "$ref" in node else []), *(r for child in node.values() for r in references(child))]
    return [r for child in node for r in references(child)] if isinstance(node, list) else []


def test_every_reference_of_the_topic_document_leads_somewhere() -> None:
    """Schemas that it names exist, and so do its own parts."""
    found = references(ASYNCAPI)
    assert {"./run.v1.json", "./rank-change.v1.json", "./moderation.v1.json"} <= set(found)
    for reference in found:
        if reference.startswith("#/"):
            node = ASYNCAPI
            for step in reference.removeprefix("#/").split("/"):
                node = node[step]
        else:
            assert (FOLDER / reference).is_file(), reference


def test_the_topic_document_names_every_topic_that_is_in_use() -> None:
    """AsyncAPI 3.0: the channels are the default names of the configuration, without the topic of the outbox."""
    topics = {name for use, name in Topics() if use != "scores"}
    assert ASYNCAPI["asyncapi"] == "3.0.0"
    assert {channel["address"] for channel in ASYNCAPI["channels"].values()} == topics
    assert set(ASYNCAPI["channels"]) == topics
    for name, channel in ASYNCAPI["channels"].items():
        assert channel["bindings"]["kafka"]["topic"] == name
        assert "Key: " in channel["description"]
        assert "elivery: " in channel["description"]


def test_the_topic_document_says_what_init_creates() -> None:
    """Partitions, policy and retention are those of the topics that the command creates."""
    for need in needs(Kafka(bootstrap="127.0.0.1:9092")):
        binding = ASYNCAPI["channels"][need.name]["bindings"]["kafka"]
        assert binding["partitions"] == need.partitions
        assert binding["topicConfiguration"]["cleanup.policy"] == [need.config["cleanup.policy"]]
        assert str(binding["topicConfiguration"]["retention.ms"]) == need.config["retention.ms"]
        assert binding.get("x-message-timestamp-type") == need.config.get("message.timestamp.type")


def test_the_topic_document_lists_headers_and_reasons_of_dead_letters() -> None:
    """What a reader of dead-letters relies on is what the applier writes."""
    headers = ASYNCAPI["components"]["messages"]["deadLetter"]["headers"]
    assert tuple(headers["required"]) == changes.DEAD_LETTER_HEADERS
    assert tuple(headers["properties"]) == changes.DEAD_LETTER_HEADERS
    assert headers["properties"]["reason"]["enum"] == list(REASONS)


def test_the_examples_of_the_topic_document_are_a_run_and_an_event() -> None:
    """Examples are copied; these can be."""
    (example,) = ASYNCAPI["components"]["messages"]["run"]["examples"]
    RUNS.validate(example["payload"])
    assert wire.decode(json.dumps(example["payload"]).encode()).player_id == "48213377"
    (example,) = ASYNCAPI["components"]["messages"]["moderation"]["examples"]
    EVENTS.validate(example["payload"])
    assert decode_event(json.dumps(example["payload"]).encode()).kind == "shadow"
