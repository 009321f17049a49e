"""Test cases of other modules, to be run once more in other surroundings."""

import unittest


def _cases_of(suite):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from _cases_of(item)
        else:
            yield item


def inherited_cases(loader, modules, left_out):
    """The cases of the modules, but for those whose methods are named; a name that none of them has is an error."""
    cases = list(_cases_of(loader.loadTestsFromNames(modules)))
    names = {case.id().rsplit(".", 1)[-1] for case in cases}
    unknown = sorted(left_out - names)
    if unknown and loader.testNamePatterns is None:  # else the others were left out with -k
        raise ValueError(f"{', '.join(modules)} have no case {', '.join(unknown)}: it was renamed or removed")
    return [case for case in cases if case.id().rsplit(".", 1)[-1] not in left_out]
