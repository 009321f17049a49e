"""kill -9 at random moments of save, backup and restore, on files. BELAY_KILL_ROUNDS: how many (20)."""

import os
import random
import unittest

from state_support import WHERE, StateCase


class Kill(StateCase):
    def test_no_acknowledged_save_is_lost_and_the_state_is_always_sound(self):
        seed = int(os.environ.get("BELAY_KILL_SEED") or random.randrange(10**6))
        self.kill_rounds(int(os.environ.get("BELAY_KILL_ROUNDS") or 20), seed)
        # What the killed ones left behind is swept away.
        self.assertEqual(list((self.dir / "belay.db-state").rglob(".belay-new-*")), [])

    def test_writers_at_once_lose_nothing(self):
        self.save({})
        running = [self.start("state", "save", *WHERE, "--wait", "60s", self.write(f"{n}.json", {"outputs": {"n": n}}))
                   for n in range(6)]
        self.assertEqual([p.wait(60) for p in running], [0] * 6)
        self.assertEqual(self.load()["metadata"]["serial"], 7)
        self.assertEqual(len(self.history()["snapshots"]), 7)


if __name__ == "__main__":
    unittest.main()
