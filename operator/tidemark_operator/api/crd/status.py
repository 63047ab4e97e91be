"""The schema of `status`, what `kubectl get` shows of it, and the paths of the scale subresource.

To add a field of the status, add a line to `_FIELDS`. There are no limits on purpose: a status that the API server
refuses tells nobody anything.
"""

from __future__ import annotations

from typing import Any


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _count(description: str) -> dict[str, Any]:
    return {"type": "integer", "format": "int64", "description": description}


_CONDITION: dict[str, Any] = {
    "type": "object",
    "required": ["type", "status", "reason", "message", "lastTransitionTime"],
    "properties": {
        "type": _text("What is answered, for example Ready."),
        "status": {"type": "string", "enum": ["True", "False", "Unknown"], "description": "The answer."},
        "reason": _text("Why, in one word."),
        "message": _text("Why, in sentences, and what to do."),
        "observedGeneration": _count("The metadata.generation that was looked at."),
        "lastTransitionTime": {
            "type": "string",
            "format": "date-time",
            "description": "Since when the answer is the same.",
        },
    },
}

_SHAPE_COUNTS = (
    "numLayers",
    "numHeads",
    "numKvHeads",
    "headDim",
    "hiddenSize",
    "intermediateSize",
    "vocabSize",
    "maxContextTokens",
)

_FIELDS: dict[str, dict[str, Any]] = {
    "observedGeneration": _count("The metadata.generation that was last acted on."),
    "phase": _text("A word or a sentence for the eye; scripts read the conditions."),
    "conditions": {
        "type": "array",
        "description": "Ready is True while traffic works; the others say why it does not, or what goes on.",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": _CONDITION,
    },
    "replicas": _count("Pods that there are."),
    "readyReplicas": _count("Pods that answer."),
    "selector": _text("Selects the pods; the scale subresource shows it."),
    "url": _text("Where clients reach the service."),
    "model": _text("What clients send as `model`."),
    "devices": _text("What one pod computes on."),
    "kv": _text("Type of the KV cache, and how much of it is used."),
    "shape": {
        "type": "object",
        "description": "Of the model, as an engine that loaded it found it; the next capacity plan is made from it.",
        "properties": {
            "source": _text("Where it was loaded from; another source makes the rest worthless."),
            **{name: _count("Of the model.") for name in _SHAPE_COUNTS},
            "weightsBytes": _count("Weights in memory."),
            "overheadBytes": _count("What else the engine's processes took."),
            "kvTokenBytes": {"type": "number", "description": "Bytes of KV memory that a token takes."},
        },
    },
    "tightened": {
        "type": "object",
        "description": "A lower soft limit than the spec's, while memory is short (`watermarks.response: tighten`).",
        "properties": {
            "maxConcurrencySoft": _count("What the engines have."),
            "instead": _count("What the spec says."),
            "since": _text("When it was first lowered."),
            "changed": _text("When it was last moved."),
        },
    },
    "evaluation": {
        "type": "object",
        "description": "What the last evaluation said; there only where a schedule asks for them.",
        "properties": {
            "job": _text("Which Job it was."),
            "time": _text("When it ended."),
            "passed": {"type": "boolean", "description": "Whether it kept to the limits of `spec.evaluation`."},
            "message": _text("The figures, or why there are none."),
            "configuration": _text("What was compared with the unquantized model."),
            "restartHash": _text("Of the engine's configuration that was evaluated, as pods have it in an annotation."),
            "meanKl": {"type": "number", "description": "Mean KL divergence, in nats."},
            "perplexityRise": {"type": "number", "description": "A ratio: 0.01 is one per cent."},
            "intervalSeconds": _count("Longest time between two runs by the schedule."),
        },
    },
    "warnings": {
        "type": "array",
        "description": "Fields that were set and have no effect in this version, and what the engines warn of.",
        "items": {"type": "string"},
    },
}


def schema() -> dict[str, Any]:
    """The schema of `status`."""
    return {"type": "object", "description": "What the operator last saw.", "properties": _FIELDS}


def _of_ready(key: str) -> str:
    return f'.status.conditions[?(@.type=="Ready")].{key}'


def columns() -> list[dict[str, Any]]:
    """Columns of `kubectl get`; those with priority 1 are shown with `-o wide`."""
    shown = (
        ("Ready", "string", _of_ready("status"), "True while traffic works.", 0),
        ("Reason", "string", _of_ready("reason"), "Why it is ready or not.", 0),
        ("Model", "string", ".status.model", "What clients send as model.", 0),
        ("Replicas", "integer", ".status.readyReplicas", "Pods that answer.", 0),
        ("Devices", "string", ".status.devices", "What one pod computes on.", 0),
        ("KV", "string", ".status.kv", "Type of the KV cache, and how much of it is used.", 0),
        ("URL", "string", ".status.url", "Where clients reach the service.", 0),
        ("Age", "date", ".metadata.creationTimestamp", "Since it was created.", 0),
        ("Phase", "string", ".status.phase", "What goes on, in a sentence.", 1),
    )
    return [
        {
            "name": name,
            "type": type_,
            "jsonPath": path,
            "description": description,
            **({"priority": priority} if priority else {}),
        }
        for name, type_, path, description, priority in shown
    ]


def scale() -> dict[str, str]:
    """What `kubectl scale` and an autoscaler read and write."""
    return {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
