"""kill -9 at random moments of save, backup and restore, on files. BELAY_KILL_ROUNDS: how many (20)."""

import os
import random
import unittest

from state_support import WHERE, StateCase


class Kill(StateCase):
    def test_no_acknowledged_save_is_lost_and_the_state_is_always_sound(self):
        seed = int(os.environ.get("BELAY_KILL_SEED") or random.randrange(10**6))
        self.kill_rounds(int(os.environ.get("BELAY_KILL_ROUNDS") or 20), seed)
        # Files that the killed processes left are removed.
        self.assertEqual(list((self.dir / "belay.db-state").rglob(".belay-new-*")), [])

    def test_of_concurrent_writers_one_wins_and_the_others_fail(self):
        self.save({})
        for base, winners in ((self.based, 1), (lambda content: content, 0)):  # from what is there; from nothing (issue 12, item 33)
            files = [self.write(f"{n}.json", base({"outputs": {"n": n}})) for n in range(6)]
            running = [self.start("state", "save", *WHERE, "--wait", "60s", file) for file in files]
            self.assertEqual(sorted(p.wait(60) for p in running), [0] * winners + [77] * (6 - winners))
            self.assertEqual(self.load()["metadata"]["serial"], 2)
        self.assertEqual(len(self.history()["snapshots"]), 2)


if __name__ == "__main__":
    unittest.main()
