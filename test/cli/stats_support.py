"""A history whose every number is known, planted into the SQLite file of a store."""

import sqlite3

DAY = 86400
MONDAY = 20640 * DAY  # 2026-07-06T00:00:00Z, in seconds

# (seconds after MONDAY, type, key, seconds held or waited)
WEEK = [
    (1, "lock.acquired", "build-1", None), (11, "lock.released", "build-1", 10),
    (12, "lock.acquired", "build-1", None), (14, "lock.refused", "deploy-api-prod", None),
    (32, "lock.released", "build-1", 20), (32, "wait.ended", "build-1", 19), (32, "lock.acquired", "build-1", None),
    (62, "lock.forced", "build-1", 30), (70, "lock.acquired", "deploy-api-prod", None),
    (75, "lock.renewed", "deploy-api-prod", None), (80, "lock.lost", "deploy-api-prod", None),
    (DAY, "lock.taken_over", "deploy-api-prod", None), (DAY, "wait.ended", "deploy-api-prod", 0.5),
    (DAY, "lock.acquired", "deploy-api-prod", None), (DAY + 40, "lock.released", "deploy-api-prod", 40),
]


def durations(*ms):
    """What is said of a few durations: p90 is the longest of up to ten."""
    if not ms:
        return {"count": 0, "median_ms": None, "p90_ms": None, "longest_ms": None, "total_ms": None}
    ordered = sorted(ms)
    return {"count": len(ms), "median_ms": ordered[(len(ms) - 1) // 2], "p90_ms": ordered[-1],
            "longest_ms": ordered[-1], "total_ms": sum(ms)}


def group(name, acquired, released, refused, taken_over, forced, lost, held, waited):
    return {"name": name, "acquired": acquired, "released": released, "refused": refused, "taken_over": taken_over,
            "forced": forced, "lost": lost, "held": durations(*held), "waited": durations(*waited)}


TOTAL = group(None, 5, 3, 1, 1, 1, 1, [10000, 20000, 30000, 40000], [19000, 500])
BUILD = group("build-1", 3, 2, 0, 0, 1, 0, [10000, 20000, 30000], [19000])
DEPLOY = group("deploy-api-prod", 2, 1, 1, 1, 0, 1, [40000], [500])
DAYS = [group("2026-07-06", 4, 2, 1, 0, 1, 1, [10000, 20000, 30000], [19000]),
        group("2026-07-07", 1, 1, 0, 1, 0, 0, [40000], [500])]


def plant(case, history=WEEK, store=None):
    """Replace the history of a store, that of `case`, which no server owns, by this one."""
    store = store or case.store
    case.ok("run", "--store", store, "planted", "--", "true")  # makes the file
    with sqlite3.connect(store.removeprefix("sqlite:")) as db:
        db.execute("DELETE FROM events")
        db.execute("UPDATE meta SET indexed = 0, listed = 0")
        db.executemany("INSERT INTO events VALUES (?, ?, 0, ?, ?, 'id', 1, 'me', 'me', NULL, NULL, ?, NULL)",
                       [(2 + i, round((MONDAY + at) * 1000), event, key, -1 if took is None else round(took * 1000))
                        for i, (at, event, key, took) in enumerate(history)])
    db.close()
