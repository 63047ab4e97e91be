"""Made text in English and Chinese: sentences of a small world, put together by a seeded chance. Nothing is copied.

The same seed gives the same text on every machine, so that two sites compare the same thing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

LANGUAGES = ("en", "zh")

_WORDS: Mapping[str, Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "en": {
            "person": ("Anna Keller", "Tom Okafor", "Mei Lin", "Jonas Brandt", "Priya Raman", "Sofia Duarte"),
            "role": ("the harbour master", "an auditor", "the night engineer", "a young clerk", "the oldest pilot"),
            "place": ("the north pier", "the customs house", "the old mill", "the counting room", "the lighthouse"),
            "town": ("Marfield", "Port Ansel", "Low Haven", "Greywater", "Tarn Bridge"),
            "thing": ("a ledger", "the spare pump", "two crates of lamps", "a sealed letter", "the tide tables"),
            "time": ("before dawn", "late in the afternoon", "on the third day", "after the storm", "in early March"),
            "feeling": ("relieved", "uneasy", "curious", "tired but certain", "not at all surprised"),
            "cause": (
                "the water had risen faster than anyone had planned",
                "the figures of the two offices did not agree",
                "a single valve had been left open",
                "nobody had read the second page",
                "the wind had turned to the north-east",
            ),
        },
        "zh": {
            "person": ("陈文静", "李建国", "周晓岚", "王海生", "赵明远", "林秀英"),
            "role": ("港务主任", "一位审计员", "值夜班的工程师", "年轻的书记员", "最年长的领航员"),
            "place": ("北码头", "海关大楼", "老磨坊", "账房", "灯塔"),
            "town": ("青石镇", "临江港", "南湾", "白鹭洲", "桥头村"),
            "thing": ("一本账簿", "备用水泵", "两箱灯具", "一封密信", "潮汐表"),
            "time": ("天亮以前", "傍晚时分", "第三天", "暴风雨过后", "三月初"),
            "feeling": ("松了一口气", "有些不安", "十分好奇", "疲惫却坚定", "并不感到意外"),
            "cause": (
                "水位上涨得比任何人预计的都快",
                "两个部门的数字对不上",
                "有一个阀门忘了关",
                "没有人读过第二页",
                "风向转成了东北风",
            ),
        },
    }
)

_SENTENCES: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "en": (
            "{time}, {person} carried {thing} from {place} to {place2} and told nobody about it.",
            "{person}, {role} of {town}, was {feeling}, because {cause}.",
            "The report said that {number} tons had passed {place} in {year}, {percent} percent more than before.",
            'When they asked at {place}, the answer was short: "{cause}."',
            "It took {small} weeks until {person} understood that {cause}.",
            "In {town} people still say that {thing} belongs in {place}, and that whoever moves it will be sorry.",
            "{person} wrote down three numbers: {number}, {number2} and {small}.",
            "If the line at {place} is reached, work stops, the gates are closed, and {role} is called.",
            "Both sides signed {time}; the price was {number} crowns, to be paid within {small} days.",
            "She did not trust the clock in {place}, so she counted the steps to {place2} instead.",
            "What the engineers measured and what they had planned differed by less than {small} percent.",
            "{role} opened the door, saw {thing}, and was {feeling}.",
            "Nothing is known of the ship that left {town} in {year} except its name and the weight of its cargo.",
            "The first rule is to know where the line is; the second is to see it while the water rises.",
            "Later, when {cause}, everyone remembered what {person} had said about {thing}.",
        ),
        "zh": (
            "{time}，{person}把{thing}从{place}带到了{place2}，没有告诉任何人。",
            "{town}的{role}{person}{feeling}，因为{cause}。",
            "报告说，{year}年经过{place}的货物有{number}吨，比上一年增加了百分之{percent}。",
            "他们到{place}去打听，得到的回答很短：“{cause}。”",
            "过了{small}个星期，{person}才明白{cause}。",
            "在{town}，人们至今还说{thing}应当放在{place}，谁动了它谁就会后悔。",
            "{person}记下了三个数字：{number}、{number2}和{small}。",
            "一旦水位到达{place}的标线，就要停工、关闸，并且通知{role}。",
            "双方{time}签了字；价格是{number}元，须在{small}天之内付清。",
            "她不相信{place}的钟，于是一步一步地数到{place2}。",
            "工程师们测得的结果与计划相差不到百分之{small}。",
            "{role}打开门，看见{thing}，{feeling}。",
            "{year}年离开{town}的那条船，除了船名和货物的重量，什么也没有留下。",
            "第一条规矩是知道标线在哪里；第二条是在涨水的时候看得见它。",
            "后来{cause}，大家才想起{person}说过的关于{thing}的话。",
        ),
    }
)

Count = Callable[[str], int]
"""Tokens of a text."""


def sentence(language: str, chance: random.Random) -> str:
    """One sentence, ending as the language's sentences do."""
    words = _WORDS[language]
    places = chance.sample(words["place"], 2)
    made = chance.choice(_SENTENCES[language]).format(
        **{name: chance.choice(choices) for name, choices in words.items() if name != "place"},
        place=places[0],
        place2=places[1],
        number=chance.randint(120, 9_800),
        number2=chance.randint(120, 9_800),
        small=chance.randint(2, 29),
        percent=chance.randint(2, 60),
        year=chance.randint(1871, 2024),
    )
    return made[0].upper() + made[1:]


def sentences(language: str, seed: int, count: Count, num_tokens: int) -> list[str]:
    """Sentences with at least `num_tokens` tokens together."""
    chance = random.Random(f"{language} {seed}")
    found: list[str] = []
    total = 0
    while total < num_tokens:
        found.append(sentence(language, chance))
        total += count(found[-1])
    return found


def joined(language: str, parts: Sequence[str]) -> str:
    """Paragraphs of a few sentences."""
    space = " " if language == "en" else ""
    paragraphs = [space.join(parts[index : index + 5]) for index in range(0, len(parts), 5)]
    return "\n\n".join(paragraphs)
