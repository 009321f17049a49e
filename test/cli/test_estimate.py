"""How long a wait will take, from earlier holds of the lock. Run again on the other stores by their own tests."""
import re

from stats_support import plant
from support import BelayCase, main


class Estimate(BelayCase):
    def past(self, holds):
        """Plant the history of the store: the key and the seconds of each hold that was released."""
        plant(self, [(i, "lock.released", key, seconds) for i, (key, seconds) in enumerate(holds)])
        self.env["BELAY_STORE"] = self.store + "?retain_events=36500d"

    def expect(self, pattern, *command):
        terminal = self.terminal(*command, columns=120)
        self.addCleanup(terminal.end)
        terminal.expect_that(lambda: re.search(pattern, terminal.text), pattern)
        return terminal.text

    def test_on_a_terminal_a_wait_is_estimated_from_earlier_holds(self):
        self.past([("k", 600)] * 3)
        self.ok("acquire", "--json", "k", "--ttl", "1h")
        for begin, minutes, command in (
                ("1st in the queue", 10, ["acquire", "k", "--wait", "1m"]),
                ("2nd in the queue", 20, ["run", "--wait", "1m", "k", "--", "true"]), ("Waiting", 10, ["wait", "k"])):
            self.expect(rf"{begin}, about ({minutes}m 0|{minutes}m|{minutes - 1}m \d+)s to go \(estimate\), held for .* left\) 'k'",
                        *command)

    def test_a_wait_is_not_estimated_from_few_holds_and_says_if_it_takes_longer(self):
        self.past([("new", 600)] * 2 + [("k", 0.01)] * 3)
        for key, text in (("new", r"1st in the queue, held for [1-9]\d*s by "), ("k", "1st in the queue, longer than usual, held for ")):
            self.ok("acquire", key, "--ttl", "1h")
            shown = self.expect(text, "acquire", key, "--wait", "1m")
            if key == "new":  # the other is estimated for its first moment
                self.assertNotIn("estimate", shown)

    def test_a_free_slot_is_expected_from_the_holder_that_began_first(self):
        self.past([("k", 600)] * 3)
        for _ in range(2):
            self.ok("acquire", "k", "--slots", "2", "--ttl", "1h")
        self.expect(r"1st in the queue, about (10m 0s|9m \d+s) to go \(estimate\)", "acquire", "k", "--slots", "2", "--wait", "1m")


if __name__ == "__main__":
    main()
