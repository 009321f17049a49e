"""Durations, saved values, and the comparison of an answer with what a scenario expects."""

import re

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)", text).groups()
    return int(number) * UNITS[unit]


def filled(value, saved, places):
    """The value with saved values for {"$": NAME}, and with places for {name} in texts."""
    if isinstance(value, dict):
        if set(value) == {"$"}:
            return saved[value["$"]]
        return {name: filled(item, saved, places) for name, item in value.items()}
    if isinstance(value, list):
        return [filled(item, saved, places) for item in value]
    if isinstance(value, str):
        for name, text in places.items():
            value = value.replace("{" + name + "}", text)
    return value


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _operator(name, wanted, got, saved):
    if name == "$save":
        saved[wanted] = got
        return got is not None
    if name == "$same":
        return got == saved[wanted]
    if name == "$other":
        return got is not None and got != saved[wanted]
    if name == "$more":
        return _is_number(got) and got > (saved[wanted] if isinstance(wanted, str) else wanted)
    if name == "$most":
        return _is_number(got) and got <= wanted
    if name == "$text":
        return isinstance(got, str) and wanted in got
    if name == "$any":
        return got is not None
    raise ValueError(f"no operator '{name}': $save, $same, $other, $more, $most, $text, $some, $any")


def _some(wanted, got, saved):
    """The wanted ones are in the list, in this order, with others between them."""
    rest = iter(got if isinstance(got, list) else [])
    for one in wanted:
        if not any(not problem(one, item, saved) for item in rest):
            return f"no {one} in its place"
    return None


def problem(wanted, got, saved, at="answer"):
    """What is wrong with the answer; None if it is as expected."""
    if isinstance(wanted, dict) and len(wanted) == 1 and next(iter(wanted)).startswith("$"):
        (name, value), = wanted.items()
        if name == "$some":
            missing = _some(value, got, saved)
            return f"{at}: {missing}" if missing else None
        return None if _operator(name, value, got, saved) else f"{at} is {got!r}, expected {wanted}"
    if isinstance(wanted, dict):
        if not isinstance(got, dict):
            return f"{at} is {got!r}, expected {wanted}"
        found = (problem(item, got.get(name), saved, f"{at}.{name}") for name, item in wanted.items())
        return next((one for one in found if one), None)
    if isinstance(wanted, list):
        if not isinstance(got, list) or len(got) != len(wanted):
            return f"{at} is {got!r}, expected {len(wanted)} of {wanted}"
        found = (problem(item, got[i], saved, f"{at}[{i}]") for i, item in enumerate(wanted))
        return next((one for one in found if one), None)
    return None if type(got) is type(wanted) and got == wanted else f"{at} is {got!r}, expected {wanted!r}"
