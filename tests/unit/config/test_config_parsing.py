from __future__ import annotations

import contextlib
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_runtime import config, config_parsing, errors
from tidemark_runtime.contract import settings as contract


def problems(values: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(errors.ConfigError) as raised:
        config_parsing.parse(values)
    return {problem.key: str(problem) for problem in raised.value.problems}


def test_nothing_means_the_defaults_and_so_does_null() -> None:
    assert config_parsing.parse({}) == config.EngineConfig()
    assert config_parsing.parse({"scheduler": None, "server": {"port": None}}) == config.EngineConfig()


@pytest.mark.parametrize(
    ("section", "key", "value", "expected"),
    [
        ("server", "port", 65_536, "a whole number from 0 to 65535"),
        ("server", "port", "eighty", "a whole number from 0 to 65535"),
        ("server", "port", True, "a whole number"),
        ("server", "port", 80.5, "a whole number"),
        ("server", "logLevel", "loud", "one of debug, info, warning, error"),
        ("server", "drainSeconds", -1, "a number of at least 0"),
        ("server", "maxBody", "8Gb i", "a size in bytes such as 8Gi"),
        ("server", "host", 5, "text"),
        ("kvCache", "blockSize", 0, "a whole number from 1 to 256"),
        ("kvCache", "dtype", "int7", "one of auto, float32, float16, bfloat16"),
        ("kvCache", "memoryUtilization", float("nan"), "a number from 0.05 to 1"),
        ("kvCache", "memoryUtilization", float("inf"), "a number from 0.05 to 1"),
        ("kvCache", "memoryUtilization", 10**400, "a number from 0.05 to 1"),
        ("kvCache", "blockSize", 10**400, "a whole number from 1 to 256"),
        ("kvCache", "memory", "1.5Gx", "a size in bytes"),
        ("kvCache", "memory", "0", "of at least 1"),
        ("scheduler", "maxNumBatchedTokens", 2_000_000, "a whole number from 1 to 1048576"),
        ("scheduler", "maxQueueSeconds", [], "a number"),
        ("model", "quantization", "int4", "one of auto, none, int8, int8_weight_only"),
        ("model", "maxContextTokens", 0, "a whole number of at least 1"),
        ("hardware", "device", "gpu", "one of auto, cpu, cuda"),
    ],
)
def test_a_wrong_value_names_key_value_and_expectation(section: str, key: str, value: object, expected: str) -> None:
    message = problems({section: {key: value}})[f"{section}.{key}"]
    assert repr(value) in message
    assert expected in message


def test_all_problems_come_at_once_with_the_nearest_known_name() -> None:
    found = problems({"model": {"sorce": "x"}, "kvCache": {"blockSize": 0}, "sheduler": {}, "server": 3})
    assert set(found) == {"model.sorce", "kvCache.blockSize", "sheduler", "server"}
    assert "Did you mean model.source?" in found["model.sorce"]
    assert "Did you mean scheduler?" in found["sheduler"]


def test_a_budget_that_cannot_serve_the_batch_is_refused() -> None:
    found = problems({"scheduler": {"maxNumSeqs": 64, "maxNumBatchedTokens": 32}})
    assert "at least scheduler.maxNumSeqs, 64" in found["scheduler.maxNumBatchedTokens"]


def test_the_slab_has_one_size() -> None:
    assert "kvCache.numPages" in problems({"kvCache": {"memory": "1Gi", "numPages": 5}})


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("8Gi", 8 * 2**30),
        ("1.5Gi", 1_610_612_736),
        ("512M", 512_000_000),
        ("64Ki", 65_536),
        ("2kB", 2_000),
        (4096, 4096),
    ],
)
def test_sizes_are_read_as_kubernetes_writes_them(text: object, size_bytes: int) -> None:
    assert config_parsing.parse({"kvCache": {"memory": text}}).kv_cache.memory == size_bytes


def test_what_is_written_is_read_back() -> None:
    made = config_parsing.parse(
        {
            "model": {"source": "m.gguf", "maxContextTokens": 100},
            "server": {"port": 9000},
            "kvCache": {"memory": "1Gi"},
        }
    )
    assert config_parsing.parse(config_parsing.to_mapping(made)) == made


def test_the_hash_names_the_settings_and_not_the_place() -> None:
    base = config_parsing.parse({"model": {"source": "/models/a.gguf", "name": "a"}})
    moved = config_parsing.parse({"model": {"source": "/mnt/a.gguf", "name": "a"}, "server": {"port": 9, "host": "::"}})
    changed = dataclasses.replace(base, scheduler=dataclasses.replace(base.scheduler, max_num_seqs=63))
    assert config_parsing.config_hash(base) == config_parsing.config_hash(moved)
    assert config_parsing.config_hash(base) != config_parsing.config_hash(changed)


@pytest.mark.parametrize(
    ("section", "key", "more"),
    [
        ("speculative", "draftModel", {"method": "draft"}),
        ("kvCache", "precisionFile", {"dtype": "int8"}),
        ("kvCache", "scalesFile", {"dtype": "int8"}),
    ],
)
def test_of_further_files_the_hash_has_the_name_and_not_the_folder(
    section: str, key: str, more: dict[str, object]
) -> None:
    def parsed(value: str) -> config.EngineConfig:
        return config_parsing.parse({section: {**more, key: value}})

    assert config_parsing.config_hash(parsed("/models/a")) == config_parsing.config_hash(parsed("/srv/models/a/"))
    assert config_parsing.config_hash(parsed("/models/a")) != config_parsing.config_hash(parsed("/models/b"))
    without = config_parsing.parse({section: {"method": "ngram"} if section == "speculative" else more})
    assert config_parsing.config_hash(parsed("/models/a")) != config_parsing.config_hash(without)
    restart_hashes = {contract.restart_hash(parsed(value)) for value in ("/models/a", "/models/b", "/srv/a")}
    assert len(restart_hashes) == 3


RULE_KEYS = ["at", "keys", "maxPriority", "maxTokens", "maxRequests"]
KEY_FILE = {"server": {"apiKeysFile": "/keys"}}
RULES = st.builds(
    dict,
    at=st.sampled_from(["queue", "preempt", "backlog"]),
    keys=st.lists(st.sampled_from(["a", "b"]), max_size=2),
    maxPriority=st.integers(-100, 100),
    maxTokens=st.none() | st.integers(1, 2**63 - 1),
    maxRequests=st.integers(0, 2**63 - 1),
)


@given(
    st.dictionaries(
        st.sampled_from(["model", "kvCache", "server", "scheduler", "overload", "hardware", "x", ""]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from([entry.key.split(".")[1] for entry in config_parsing.entries()] + RULE_KEYS), inner
                )
            ),
            max_leaves=8,
        ),
    )
)
def test_junk_is_refused_in_words_or_accepted(values: dict[str, Any]) -> None:
    with contextlib.suppress(errors.ConfigError):
        assert isinstance(config_parsing.parse(values), config.EngineConfig)


def test_places_are_completed_from_what_runs_and_nothing_else_is() -> None:
    running = config_parsing.parse(
        {
            "model": {"source": "/models/a.gguf", "name": "a"},
            "server": {"port": 9, "adminTokenFile": "/t", "maxBody": 4096},
            "scheduler": {"maxNumSeqs": 3},
        }
    )
    completed = config_parsing.parse(config_parsing.with_places({"server": {"host": "::", "port": None}}, running))
    assert completed.model == config.ModelConfig(source="/models/a.gguf")
    assert completed.server == config.ServerConfig(host="::", port=9, admin_token_file="/t")
    assert completed.scheduler == config.SchedulerConfig()
    assert "server" in problems(config_parsing.with_places({"server": 3}, running))
    assert config_parsing.parse(config_parsing.with_places(config_parsing.to_mapping(running), running)) == running


def test_changes_are_named_with_both_values() -> None:
    old = config_parsing.parse({})
    new = config_parsing.parse({"server": {"port": 9}, "kvCache": {"memory": "1Gi"}})
    assert config_parsing.changes(old, new) == {"kvCache.memory": (None, 2**30), "server.port": (8000, 9)}
    assert config_parsing.changes(new, new) == {}


def test_the_lame_duck_time_is_part_of_the_drain_time() -> None:
    found = problems({"server": {"lameDuckSeconds": 6, "drainSeconds": 5}})
    assert "at most server.drainSeconds, 5" in found["server.lameDuckSeconds"]
    assert config_parsing.parse({"server": {"lameDuckSeconds": 5, "drainSeconds": 5}})


def test_a_list_of_small_sections_names_every_problem_by_its_place() -> None:
    rules = [
        {"at": "full", "keys": "nightly", "maxTokens": 0, "maxRequests": -1, "maxPriority": 101},
        "queue",
        {"maxtokens": 4},
        {"keys": ["a", 4, ""], "maxTokens": 8},
        None,
    ]
    found = problems({"overload": {"degrade": rules}, "server": {"port": -1}, "hardware": []})
    assert found == {
        "overload.degrade[0].at": "overload.degrade[0].at: got 'full', expected one of queue, preempt, backlog",
        "overload.degrade[0].keys": "overload.degrade[0].keys: got 'nightly', expected a list of texts",
        "overload.degrade[0].maxTokens": "overload.degrade[0].maxTokens: got 0, expected a whole number of at least 1",
        "overload.degrade[0].maxRequests": (
            "overload.degrade[0].maxRequests: got -1, expected a whole number of at least 0"
        ),
        "overload.degrade[0].maxPriority": (
            "overload.degrade[0].maxPriority: got 101, expected a whole number from -100 to 100"
        ),
        "overload.degrade[1]": "overload.degrade[1]: got 'queue', expected a mapping of settings",
        "overload.degrade[2].maxtokens": (
            "overload.degrade[2].maxtokens: got 'this key', expected a known setting. "
            "Did you mean overload.degrade[2].maxTokens?"
        ),
        "overload.degrade[3].keys[1]": "overload.degrade[3].keys[1]: got 4, expected a text that is not empty",
        "overload.degrade[3].keys[2]": "overload.degrade[3].keys[2]: got '', expected a text that is not empty",
        "overload.degrade[4]": "overload.degrade[4]: got None, expected a mapping of settings",
        "server.port": "server.port: got -1, expected a whole number from 0 to 65535",
        "hardware": "hardware: got [], expected a mapping of settings",
    }


@pytest.mark.parametrize("value", ["queue", 3, {"at": "queue"}, True])
def test_a_list_that_is_none_is_refused(value: object) -> None:
    found = problems({"overload": {"degrade": value}})
    assert "expected a list of mappings with at, keys, maxPriority, maxTokens, maxRequests" in found["overload.degrade"]


def test_a_rule_says_about_whom_it_is_and_what_it_takes() -> None:
    rules = [{"maxTokens": 4}, {"maxPriority": 0}, {"keys": ["a"], "maxTokens": 4}, {}]
    assert set(problems({"overload": {"degrade": rules[:1]}} | KEY_FILE)) == {"overload.degrade[0]"}
    assert set(problems({"overload": {"degrade": rules[1:2]}} | KEY_FILE)) == {"overload.degrade[0]"}
    assert config_parsing.parse({"overload": {"degrade": rules[2:3]}} | KEY_FILE).overload.degrade[0].max_tokens == 4
    without_keys = problems({"overload": {"degrade": rules}})
    assert set(without_keys) == {f"overload.degrade[{place}]" for place in (0, 1, 3)} | {"overload.degrade[2].keys"}
    assert "because server.apiKeysFile is not set" in without_keys["overload.degrade[2].keys"]


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=3))
def test_rules_survive_the_way_out_and_back_and_are_in_hash_and_changes(before: list, after: list) -> None:
    old, new = (config_parsing.parse({"overload": {"degrade": rules}} | KEY_FILE) for rules in (before, after))
    mapping = json.loads(json.dumps(config_parsing.to_mapping(old)))
    assert config_parsing.parse(mapping) == old
    assert (config_parsing.config_hash(old) == config_parsing.config_hash(new)) == (old == new)
    changed = config_parsing.changes(old, new)
    assert set(changed) == (set() if old == new else {"overload.degrade"})
    assert contract.restart_hash(old) == contract.restart_hash(new)
    assert "overload.degrade" in contract.HOT_KEYS


def test_the_context_limit_is_hot_and_still_names_the_processes_that_it_sizes() -> None:
    """A running engine takes a lower one over; a higher one needs a process that was started with it."""
    assert "model.maxContextTokens" in contract.HOT_KEYS
    assert contract.START_KEYS <= contract.HOT_KEYS
    low, high, unset = (config_parsing.parse({"model": {"maxContextTokens": value}}) for value in (512, 1024, None))
    assert len({contract.restart_hash(each) for each in (low, high, unset)}) == 3
    assert set(contract.changes(low, high)) == {"model.maxContextTokens"}


@pytest.mark.parametrize("text", ["64", "4_096", " 64", "0x40"])
def test_b075_a_text_is_no_number_in_a_document(text: str) -> None:
    found = problems({"scheduler": {"maxQueuedRequests": text, "maxQueueSeconds": text}})
    assert set(found) == {"scheduler.maxQueuedRequests", "scheduler.maxQueueSeconds"}
    assert repr(text) in found["scheduler.maxQueuedRequests"]
    if text in ("64", "4_096"):
        assert "without quotation marks" in found["scheduler.maxQueuedRequests"]
    assert "kvCache.prefixCaching" in problems({"kvCache": {"prefixCaching": "true"}})


def test_what_yaml_reads_as_text_although_it_is_a_number_is_one() -> None:
    assert config_parsing.parse({"scheduler": {"maxQueueSeconds": "1e3"}}).scheduler.max_queue_seconds == 1000.0


def test_on_a_command_line_everything_is_text() -> None:
    values = {"scheduler": {"maxNumSeqs": "64"}, "kvCache": {"prefixCaching": "false"}}
    parsed = config_parsing.parse(values, textual={"scheduler.maxNumSeqs", "kvCache.prefixCaching"})
    assert (parsed.scheduler.max_num_seqs, parsed.kv_cache.prefix_caching) == (64, False)
    with pytest.raises(errors.ConfigError, match=r"kvCache\.prefixCaching: got 'false', expected true or false"):
        config_parsing.parse(values, textual={"scheduler.maxNumSeqs"})


@pytest.mark.parametrize(
    ("section", "key"), [("scheduler", "maxQueuedRequests"), ("model", "maxContextTokens"), ("server", "maxBody")]
)
@pytest.mark.parametrize("value", [1e30, 10**30, 2**63, 10**400, float("inf")])
def test_a_number_above_64_bits_is_told_the_limit(section: str, key: str, value: float) -> None:
    assert "and at most 9223372036854775807" in problems({section: {key: value}})[f"{section}.{key}"]
    assert config_parsing.parse({section: {key: 2**63 - 1}})


@pytest.mark.parametrize("key", ["foo", "xyz", "degrade"])
def test_no_name_is_suggested_that_is_not_near(key: str) -> None:
    found = problems({"overload": {"degrade": [{key: 1}]}})[f"overload.degrade[0].{key}"]
    assert "Did you mean" not in found
    assert "Did you mean" not in problems({"scheduler": {"xyz": 1}})["scheduler.xyz"]


def test_a_near_name_of_an_item_or_of_another_section_is_suggested() -> None:
    found = problems({"overload": {"degrade": [{"maxToken": 1}]}, "server": {"maxNumSeq": 3}})
    assert "Did you mean overload.degrade[0].maxTokens?" in found["overload.degrade[0].maxToken"]
    assert "Did you mean scheduler.maxNumSeqs?" in found["server.maxNumSeq"]
