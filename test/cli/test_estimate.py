"""How long a wait will take, from the history of an SQLite file; other suites do not inherit this."""
import re

from stats_support import plant
from support import BelayCase, main


class Estimate(BelayCase):
    def test_on_a_terminal_a_wait_is_estimated_from_earlier_holds(self):
        plant(self, [(i, "lock.released", "k", 600) for i in range(3)])
        env = {"BELAY_STORE": self.store + "?retain_events=36500d"}
        self.ok("acquire", "--json", "k", "--ttl", "1h", env=env)
        for begin, minutes, command in (
                ("1st in the queue", 10, ["acquire", "k", "--wait", "1m"]),
                ("2nd in the queue", 20, ["run", "--wait", "1m", "k", "--", "true"]), ("Waiting", 10, ["wait", "k"])):
            terminal = self.terminal(*command, env=env, columns=120)
            self.addCleanup(terminal.end)
            line = rf"{begin}, about ({minutes}m 0|{minutes - 1}m \d+)s to go \(estimate\), held for .* left\) 'k'"
            terminal.expect_that(lambda t=terminal: re.search(line, t.text), "the estimate")

    def test_a_wait_is_not_estimated_from_few_holds_and_says_if_it_takes_longer(self):
        plant(self, [(i, "lock.released", "new", 600) for i in range(2)] + [(i, "lock.released", "k", 0.01) for i in range(3)])
        env = {"BELAY_STORE": self.store + "?retain_events=36500d"}
        for key, text in (("new", r"1st in the queue, held for [1-9]\d*s by "), ("k", "1st in the queue, longer than usual, held for ")):
            self.ok("acquire", key, "--ttl", "1h", env=env)
            terminal = self.terminal("acquire", key, "--wait", "1m", env=env, columns=120)
            self.addCleanup(terminal.end)
            terminal.expect_that(lambda t=terminal: re.search(text, t.text), text)
            if key == "new":  # the other is estimated for its first second
                self.assertNotIn("estimate", terminal.text)


if __name__ == "__main__":
    main()
