"""Reading in chunks, in lanes and greedily gives what one pass gives."""

from __future__ import annotations

import pytest
import torch

from tidemark_runtime.evaluation import configurations, divergence, items, measuring, reader, subject

IDS = [(7 * index) % 250 for index in range(90)]


def new_reader(made: subject.Subject, dtype: str = "float32", lanes: int = 1) -> reader.Reader:
    layout = configurations.Configuration("", dtype).layout(made.model.spec.kv_shape)
    return reader.Reader(made.model, layout, 128, lanes)


def whole(one: reader.Reader, wanted_from: int = 0) -> torch.Tensor:
    return torch.cat([rows.logits for rows in one.read(IDS, wanted_from)])


def test_chunks_give_what_one_pass_gives(made: subject.Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = whole(new_reader(made))
    monkeypatch.setattr(reader, "LARGEST_CHUNK_TOKENS", 17)
    one = new_reader(made)
    starts = [rows.start for rows in one.read(IDS)]
    assert starts == [0, 17, 34, 51, 68, 85]
    torch.testing.assert_close(whole(one), at_once)
    assert one.prompt.tokens == 2 * len(IDS)


def test_only_the_rows_that_are_wanted(made: subject.Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "LARGEST_CHUNK_TOKENS", 17)
    one = new_reader(made)
    torch.testing.assert_close(whole(one, 40), whole(one)[40:])


def test_greedy_lanes_are_each_what_they_are_alone(made: subject.Subject) -> None:
    prompts = [IDS[:9], IDS[20:50], IDS[3:4]]
    together = new_reader(made, "int8", 3).continue_greedily(prompts, 8)
    assert together == [new_reader(made, "int8").continue_greedily([prompt], 8)[0] for prompt in prompts]
    for prompt, tokens in zip(prompts, together, strict=True):
        one = new_reader(made, "int8")
        again = torch.cat([rows.logits for rows in one.read([*prompt, *tokens[:-1]], len(prompt) - 1)])
        assert again.argmax(-1).tolist() == tokens


def test_divergence_is_that_of_the_definition() -> None:
    generator = torch.Generator().manual_seed(1)
    base, mine = (torch.log_softmax(torch.randn(5, 11, generator=generator), -1) for _ in range(2))
    sums = divergence.Divergence()
    sums.add(62, base, mine, [1, 2, 3, 4])
    kl = torch.nn.functional.kl_div(mine, base, log_target=True, reduction="none").sum(-1)
    assert sums.kl_sum == pytest.approx(float(kl.sum()), rel=1e-5)
    assert sums.kl_max == pytest.approx(float(kl.max()), rel=1e-5)
    loss = torch.nn.functional.nll_loss(mine[:4], torch.tensor([1, 2, 3, 4]), reduction="sum")
    assert sums.loss_sum == pytest.approx(float(loss), rel=1e-5)
    assert (sums.tokens, sums.predicted) == (5, 4)
    assert {bucket: entry[0] for bucket, entry in sums.by_position.items()} == {0: 2, 1: 3}


def test_the_same_memory_loses_nothing_and_less_bits_lose_more(made: subject.Subject) -> None:
    others = [configurations.Configuration(name, name) for name in ("float32", "bfloat16", "int8", "fp8_e5m2")]
    bench = measuring.Bench(made.model, configurations.Configuration("unquantized", "float32"), others)
    found = bench.measure(items.WindowItem("made", tuple(IDS)))["configurations"]
    kl = {name: entry["klSum"] for name, entry in found.items()}
    assert kl["float32"] == 0.0
    assert 0.0 < kl["int8"] < kl["fp8_e5m2"]
    assert kl["bfloat16"] < kl["fp8_e5m2"]
    assert found["float32"]["agree"] == len(IDS)
    assert found["int8"]["predicted"] == len(IDS) - 1


def test_an_answer_is_right_where_greedy_decoding_would_write_it(made: subject.Subject) -> None:
    answer = new_reader(made).continue_greedily([IDS], 6)[0]
    right = items.AskItem("right", (*IDS, *answer), (items.Asked("en/made", len(IDS), len(IDS) + 6),))
    wrong = items.AskItem("wrong", (*IDS, *answer[:5], answer[5] ^ 1), right.asked)
    bench = measuring.Bench(
        made.model,
        configurations.Configuration("unquantized", "float32"),
        [configurations.Configuration("same", "float32")],
    )
    for item, expected in ((right, True), (wrong, False)):
        found = bench.measure(item)
        assert found["base"]["answers"]["en/made"] == {"right": expected, "tokens": answer}
        mine = found["configurations"]["same"]
        assert mine["answers"]["en/made"] == {"right": expected, "tokens": answer, "same": True}
        assert (mine["rows"], mine["klSum"]) == (6, 0.0)


def test_greedy_texts_are_compared_up_to_the_first_difference(made: subject.Subject) -> None:
    assert divergence.common_prefix([1, 2, 3], [1, 2, 4]) == 2
    assert divergence.common_prefix([1, 2], [1, 2]) == 2
    bench = measuring.Bench(
        made.model,
        configurations.Configuration("unquantized", "float32"),
        [configurations.Configuration("same", "float32")],
    )
    found = bench.measure(items.GreedyItem("made", (tuple(IDS[:5]), tuple(IDS[9:30])), 7))
    assert found["configurations"]["same"]["same"] == [7, 7]
    assert found["base"]["decodeTokens"] == 2 * 6
