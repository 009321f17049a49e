/* Proof that the worlds were not idle. */
#include <inttypes.h>
#include <stdio.h>

#include "sim/sim.h"

static const char *const names[SEEN_KINDS] = {
    [SEEN_TAKEN] = "taken",
    [SEEN_HANDED_OVER] = "handed over",
    [SEEN_TAKEN_OVER] = "taken over",
    [SEEN_BELOW] = "taken below another",
    [SEEN_ADOPTED] = "adopted",
    [SEEN_REENTERED] = "re-entered",
    [SEEN_FOUND_AGAIN] = "found again after a lost answer",
    [SEEN_GIVEN_BACK] = "given back, found after a lost answer",
    [SEEN_RENEWED] = "renewed",
    [SEEN_FORCED] = "forced",
    [SEEN_HELD] = "held by others",
    [SEEN_USED] = "id used",
    [SEEN_UNKNOWN] = "unknown",
    [SEEN_CANCELLED] = "cancelled",
    [SEEN_NOT_HOLDER] = "not the holder",
    [SEEN_LOST] = "lost",
    [SEEN_OUT_OF_DATE] = "late without effect",
    [SEEN_LATE] = "late with effect",
    [SEEN_WAKE_LOST] = "wake-up lost",
    [SEEN_PAUSED] = "paused",
    [SEEN_CRASHED] = "crashed",
    [SEEN_SHARED_TOGETHER] = "shared beside another",
    [SEEN_SHARED_BELOW] = "shared above or below another",
    [SEEN_SLOT_BESIDE] = "a slot beside another",
    [SEEN_LAST_SLOT] = "the last slot",
    [SEEN_OTHER_SLOTS] = "another number of slots",
    [SEEN_CO_HANDED_OVER] = "handed over beside others",
    [SEEN_CO_EXPIRED] = "one of several expired",
    [SEEN_CO_RELEASED] = "one of several released",
    [SEEN_CO_FORCED] = "one of several forced",
    [SEEN_CO_ADOPTED] = "one of several adopted",
    [SEEN_CO_RENEWED] = "one of several renewed",
    [SEEN_CO_FOUND_AGAIN] = "one of several found again",
    [SEEN_CO_RELEASED_TWICE] = "one of several released twice",
    [SEEN_JOINT_TAKEN] = "several keys taken",
    [SEEN_JOINT_HANDED_OVER] = "several keys handed over",
    [SEEN_JOINT_ADOPTED] = "several keys adopted",
    [SEEN_JOINT_FOUND_AGAIN] = "several keys found again",
    [SEEN_FROZEN] = "frozen",
    [SEEN_THAWED] = "acquired after a freeze",
    [SEEN_KEPT_FROZEN] = "renewed while frozen",
    [SEEN_JOINT_PART_ENDED] = "the rest of several keys released",
};

void sim_saw(struct sim *sim, enum seen seen)
{
    sim->seen[seen]++;
}

bool sim_print_seen(const struct sim *sim)
{
    bool all = true;

    printf("seen:");
    for (int i = 0; i < SEEN_KINDS; i++) {
        printf("%s %s %" PRIu64, i == 0 ? "" : ",", names[i], sim->seen[i]);
        all = all && sim->seen[i] > 0;
    }
    printf("\n");
    return all;
}
