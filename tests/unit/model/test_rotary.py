from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from made_models import LLAMA_CONFIG

from tidemark_runtime.model import rotary, spec

PLAIN = dataclasses.replace(spec.from_hf(LLAMA_CONFIG), head_dim=64, rope_dim=64, rope_theta=5e5)
LLAMA3 = spec.Llama3Scaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_context_tokens=8192)


def test_angles_are_position_times_frequency_even_far_out() -> None:
    positions = torch.tensor([0, 1, 131_071])
    cos, sin = rotary.Rotary(PLAIN).at(positions)
    assert cos.shape == sin.shape == (3, 32)
    assert cos.dtype == sin.dtype == torch.float32
    for row, position in enumerate(positions.tolist()):
        for index in range(32):
            angle = position * 5e5 ** (-2 * index / 64)
            assert cos[row, index].item() == pytest.approx(math.cos(angle), abs=1e-6)
            assert sin[row, index].item() == pytest.approx(math.sin(angle), abs=1e-6)


def test_linear_scaling_squeezes_positions() -> None:
    scaled = rotary.Rotary(dataclasses.replace(PLAIN, rope_scaling=spec.LinearScaling(4.0)))
    squeezed = scaled.at(torch.tensor([400]))[0]
    assert torch.equal(squeezed, rotary.Rotary(PLAIN).at(torch.tensor([100]))[0])


def test_llama3_scaling_keeps_high_divides_low_and_blends_between() -> None:
    plain = rotary.frequencies(PLAIN)
    ratio = plain / rotary.frequencies(dataclasses.replace(PLAIN, rope_scaling=LLAMA3))
    wavelengths = 2 * math.pi / plain
    assert torch.all(ratio[wavelengths < 8192 / 4] == 1.0)
    torch.testing.assert_close(ratio[wavelengths > 8192], torch.full_like(ratio[wavelengths > 8192], 8.0))
    between = ratio[(wavelengths >= 8192 / 4) & (wavelengths <= 8192)]
    assert len(between) > 0
    assert torch.all((between > 1.0) & (between < 8.0))


def test_the_factors_of_a_gguf_give_the_same_as_llama3_scaling() -> None:
    wanted = rotary.frequencies(dataclasses.replace(PLAIN, rope_scaling=LLAMA3))
    factors = tuple((rotary.frequencies(PLAIN) / wanted).tolist())
    found = rotary.frequencies(dataclasses.replace(PLAIN, rope_scaling=spec.FactorScaling(factors)))
    torch.testing.assert_close(found, wanted)
