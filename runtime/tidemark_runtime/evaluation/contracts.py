"""Made contracts in English and Chinese, with the fields that someone would want out of them. Nothing is copied."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

_EN_FIRMS = ("Halden", "Quarry Lane", "Bluestone", "Verity", "Ostrava", "Larkfield", "Meridian", "Copperhill")
_EN_KINDS = ("Logistics Ltd", "Instruments Inc", "Trading Co", "Systems GmbH", "Partners LLP")
_EN_GOODS = ("water pumps", "copper cable", "server racks", "safety valves", "printed forms")
_EN_TOWNS = ("Marfield", "Port Ansel", "Low Haven", "Greywater", "Tarn Bridge")
_EN_MONTHS = ("January", "March", "May", "June", "September", "November")
_ZH_FIRMS = ("恒远", "青石", "瑞和", "海宁", "明川", "中德", "金桥", "华岳")
_ZH_KINDS = ("物流有限公司", "仪器有限公司", "贸易公司", "科技股份有限公司")
_ZH_GOODS = ("水泵", "铜缆", "机柜", "安全阀", "印刷表格")
_ZH_TOWNS = ("青石镇", "临江港", "南湾", "白鹭洲", "桥头村")

_EN = """SUPPLY AGREEMENT No. {number}

This agreement is made on {date} between {seller} (the "Seller") and {buyer} (the "Buyer").

1. Goods. The Seller delivers {quantity} units of {goods} to the Buyer's warehouse in {town}.
2. Price. The total price is {price} crowns. It includes packing and transport, not customs.
3. Payment. The Buyer pays within {days} days after delivery. After that, interest of {interest} percent a month is due.
4. Delivery. Parts of the order may be delivered earlier, but none later than {weeks} weeks after signature.
5. Warranty. Defects are remedied free of charge for {months} months. Wear is no defect.
6. Confidentiality. Neither party discloses prices or drawings to others, also after the end of this agreement.
7. Law. Disputes are decided by the court in {town}.
"""

_ZH = """供货合同 编号 {number}

本合同由{seller}（以下简称“卖方”）与{buyer}（以下简称“买方”）于{date}签订。

第一条 货物。卖方向买方位于{town}的仓库交付{goods}{quantity}件。
第二条 价格。合同总价为{price}元，包括包装费和运费，不包括关税。
第三条 付款。买方应在交货后{days}天内付款，逾期按每月百分之{interest}计付利息。
第四条 交货。货物可以分批提前交付，但最迟不得超过签字后{weeks}周。
第五条 保修。卖方在{months}个月内免费排除缺陷，正常磨损不属于缺陷。
第六条 保密。任何一方不得向他人披露价格和图纸，合同终止后亦同。
第七条 法律。争议由{town}法院裁决。
"""

_QUESTIONS = {
    "en": {
        "number": "Agreement number:",
        "seller": "Seller:",
        "buyer": "Buyer:",
        "date": "Date:",
        "quantity": "Number of units:",
        "price": "Total price in crowns:",
        "days": "Days until payment:",
        "months": "Months of warranty:",
    },
    "zh": {
        "number": "合同编号：",
        "seller": "卖方：",
        "buyer": "买方：",
        "date": "签订日期：",
        "quantity": "货物件数：",
        "price": "合同总价（元）：",
        "days": "付款期限（天）：",
        "months": "保修期（月）：",
    },
}
_TASKS = {"en": "\nFields of the agreement above:\n", "zh": "\n从上述合同中提取的字段：\n"}


@dataclass(frozen=True, slots=True)
class Contract:
    """A text and the right values."""

    language: str
    text: str
    """The contract, and the beginning of a list of its fields."""
    fields: Mapping[str, tuple[str, str]]
    """Name -> (what stands before the value, the value)."""


def make(language: str, seed: int) -> Contract:
    """The same seed, the same contract."""
    chance = random.Random(f"contract {language} {seed}")
    values = _english(chance) if language == "en" else _chinese(chance)
    values |= {
        "quantity": str(chance.randint(12, 980)),
        "price": str(chance.randint(1_000, 99_000)),
        "days": str(chance.choice((10, 14, 21, 30, 45, 60, 90))),
        "interest": str(chance.randint(1, 4)),
        "weeks": str(chance.randint(3, 30)),
        "months": str(chance.choice((6, 12, 18, 24, 36))),
    }
    body = (_EN if language == "en" else _ZH).format(**values)
    fields = {name: (before, values[name]) for name, before in _QUESTIONS[language].items()}
    return Contract(language, body + _TASKS[language], fields)


def _english(chance: random.Random) -> dict[str, str]:
    first, second = chance.sample(_EN_FIRMS, 2)
    return {
        "number": f"{chance.choice('ABKS')}-{chance.randint(1000, 9999)}",
        "seller": f"{first} {chance.choice(_EN_KINDS)}",
        "buyer": f"{second} {chance.choice(_EN_KINDS)}",
        "date": f"{chance.randint(1, 28)} {chance.choice(_EN_MONTHS)} {chance.randint(2015, 2026)}",
        "goods": chance.choice(_EN_GOODS),
        "town": chance.choice(_EN_TOWNS),
    }


def _chinese(chance: random.Random) -> dict[str, str]:
    first, second = chance.sample(_ZH_FIRMS, 2)
    return {
        "number": f"{chance.choice('ABKS')}-{chance.randint(1000, 9999)}",
        "seller": f"{first}{chance.choice(_ZH_KINDS)}",
        "buyer": f"{second}{chance.choice(_ZH_KINDS)}",
        "date": f"{chance.randint(2015, 2026)}年{chance.randint(1, 12)}月{chance.randint(1, 28)}日",
        "goods": chance.choice(_ZH_GOODS),
        "town": chance.choice(_ZH_TOWNS),
    }
